//! One look at every key: by `redis-cli`, or by a process of this program.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use super::failed;
use super::others::{self, Noticed};
use crate::commands::bench::on_redis::Bench;
use crate::failure::Result;

/// A way to look.
#[derive(Debug, Clone, Copy)]
pub enum Look {
    /// `redis-cli --memkeys`.
    Memkeys,
    /// `tidegate big-keys --route snapshot`, at one of its paces.
    Snapshot { fast: bool },
    /// `tidegate big-keys --route scan`.
    Scan,
}

impl Look {
    /// As the table calls it.
    pub fn name(self) -> &'static str {
        match self {
            Look::Memkeys => "memkeys",
            Look::Snapshot { fast: false } => "snapshot, gentle",
            Look::Snapshot { fast: true } => "snapshot, fast",
            Look::Scan => "scan",
        }
    }

    fn arguments(self) -> &'static [&'static str] {
        match self {
            Look::Memkeys => &["--memkeys"],
            Look::Snapshot { fast: false } => &["--route", "snapshot", "--pace", "gentle"],
            Look::Snapshot { fast: true } => &["--route", "snapshot", "--pace", "fast"],
            Look::Scan => &["--route", "scan", "--deadline", "1h"],
        }
    }
}

/// What one look took.
pub struct Seen {
    /// Seconds from the start of the process to its end.
    pub took: f64,
    /// Seconds of the server's main thread.
    pub server: f64,
    /// Keys it looked at; 0 where it does not say.
    pub keys: u64,
    /// Longest pause for a fork.
    pub fork_pause_ms: Option<f64>,
    /// What it printed.
    pub report: Value,
}

/// Who looks.
pub struct Looks {
    /// The program `redis-cli`.
    pub cli: PathBuf,
    /// What a read of the others costs the server's main thread, seconds: it is not the look's.
    pub read_costs: f64,
}

impl Looks {
    /// One look, and what others notice of it.
    ///
    /// # Errors
    /// [`Failure::Work`](crate::failure::Failure::Work).
    pub fn look(&self, bench: &Bench<'_>, look: Look) -> Result<(Seen, Noticed)> {
        let before = main_thread(bench)?;
        let began = Instant::now();
        let ((report, took), noticed) = others::beside(bench, || {
            let report = self.run(bench, look)?;
            Ok((report, began.elapsed().as_secs_f64()))
        })?;
        let server = (main_thread(bench)? - before - noticed.reads() as f64 * self.read_costs).max(0.0);
        let keys = report["scanned"].as_u64().unwrap_or(0);
        let fork_pause_ms = report["fork_pause_ms"].as_f64();
        Ok((Seen { took, server, keys, fork_pause_ms, report }, noticed))
    }

    fn run(&self, bench: &Bench<'_>, look: Look) -> Result<Value> {
        let mut command = match look {
            Look::Memkeys => {
                let mut command = Command::new(&self.cli);
                command.args(["-u", &bench.url]);
                command
            }
            _ => {
                let own = std::env::current_exe().map_err(|e| failed("cannot find this program", e))?;
                let mut command = Command::new(own);
                command.args(["big-keys", "--json", "--top", "100", "--redis", &bench.url]);
                command
            }
        };
        let output = command.args(look.arguments()).stdin(Stdio::null()).stderr(Stdio::piped()).output();
        let output = output.map_err(|e| failed(look.name(), e))?;
        if !output.status.success() {
            return Err(failed(look.name(), String::from_utf8_lossy(&output.stderr).trim()));
        }
        match look {
            Look::Memkeys => Ok(Value::Null),
            _ => serde_json::from_slice(&output.stdout).map_err(|e| failed(look.name(), e)),
        }
    }
}

/// Seconds that the server's main thread has run.
pub fn main_thread(bench: &Bench<'_>) -> Result<f64> {
    bench.on_redis(async |redis| {
        let text = redis.ask(&["INFO", "cpu"]).await?.text();
        let field = |name: &str| -> Option<f64> {
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).and_then(|n| n.trim().parse().ok())
        };
        match (field("used_cpu_user_main_thread"), field("used_cpu_sys_main_thread")) {
            (Some(user), Some(system)) => Ok(user + system),
            _ => Err(failed("INFO cpu", "this server does not say what its main thread used (Redis 6.2 and later do)")),
        }
    })
}
