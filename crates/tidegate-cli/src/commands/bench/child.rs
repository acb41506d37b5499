//! The server under test: a process of its own, so that its time and memory are its own too.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::orders::CaseLedger;
use crate::failure::{Failure, Result};
use crate::load::target::Target;

/// How long a start and a stop may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running process. Killed when dropped; better end it with [`Server::stop`].
pub struct Server {
    child: Child,
    /// Where it listens.
    pub target: Target,
    /// From the start of the process to the line that says it is ready.
    pub ready_after: Duration,
}

impl Server {
    /// Starts `tidegate serve` on `ledger`.
    ///
    /// # Errors
    /// [`Failure::Work`] with the end of its log when it does not get ready.
    pub fn serve(ledger: &CaseLedger) -> Result<Self> {
        Self::start(&["serve", "--listen", "127.0.0.1:0"], &ledger.variables(), &ledger.log)
    }

    /// Starts the bare handler.
    ///
    /// # Errors
    /// As [`Server::serve`].
    pub fn bare(log: &Path) -> Result<Self> {
        Self::start(&["bench", "bare"], &[], log)
    }

    fn start(args: &[&str], variables: &[(&str, &str)], log: &Path) -> Result<Self> {
        let failed = |what: &str, e: &dyn std::fmt::Display| Failure::Work(format!("{what}: {e}"));
        let exe = std::env::current_exe().map_err(|e| failed("cannot find this program", &e))?;
        let log_file = File::create(log).map_err(|e| failed("cannot write the server's log", &e))?;
        let mut command = Command::new(exe);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log_file);
        // The user's configuration is for their server, not for this one.
        std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TIDEGATE_")).for_each(
            |(name, _)| {
                command.env_remove(name);
            },
        );
        command.envs(variables.iter().copied());
        let began = Instant::now();
        let mut child = command.spawn().map_err(|e| failed("cannot start the server", &e))?;
        let address = child.stdout.take().and_then(address);
        let ready_after = began.elapsed();
        let Some(address) = address else {
            // Whatever state it is in, it is of no use.
            let _ = child.kill();
            let _ = child.wait();
            let log = std::fs::read_to_string(log).unwrap_or_default();
            let tail: Vec<&str> = log.lines().rev().take(5).collect();
            return Err(Failure::Work(format!(
                "the server did not get ready: {}",
                tail.into_iter().rev().collect::<Vec<_>>().join(" | ")
            )));
        };
        Ok(Self { child, target: Target::parse(&address, None)?, ready_after })
    }

    /// Processor time it has used so far, seconds.
    pub fn cpu_seconds(&self) -> f64 {
        super::process::cpu_seconds(self.child.id())
    }

    /// Memory it holds, bytes.
    pub fn resident_bytes(&self) -> u64 {
        super::process::resident_bytes(self.child.id())
    }

    /// Asks it to stop and waits.
    ///
    /// # Errors
    /// [`Failure::Work`] when it does not stop in time, or not in order.
    pub fn stop(mut self) -> Result {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)
            .map_err(|e| Failure::Work(format!("cannot stop the server: {e}")))?;
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(Failure::Work(format!("the server ended with {status}"))),
                Ok(None) => std::thread::sleep(Duration::from_millis(10)),
                Err(e) => return Err(Failure::Work(format!("cannot wait for the server: {e}"))),
            }
        }
        Err(Failure::Work("the server did not stop within a minute".to_owned()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The URL in the first line that has one; reads on to the end, so that the child never waits for a full pipe.
fn address(stdout: std::process::ChildStdout) -> Option<String> {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(std::result::Result::ok) {
            if let Some(at) = line.find("http://") {
                // Nobody listens after the first.
                let _ = tell.send(line[at..].trim_end().trim_end_matches('/').to_owned());
            }
        }
    });
    told.recv_timeout(PATIENCE).ok()
}
