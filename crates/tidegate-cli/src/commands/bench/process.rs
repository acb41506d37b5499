//! A process of this program that obeys: orders go to its stdin, a line of JSON each, and what comes of them comes from its
//! stdout. [`Process`] is its parent's side, [`obey`] its own.

use std::future::Future;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::failure::{Failure, Result};
use crate::{output, runtime};

/// Now, as all processes of this machine count it.
pub fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// An instant far enough ahead that every process has its order by then.
pub fn soon_us() -> u64 {
    now_us() + u64::try_from(Duration::from_millis(20).as_micros()).unwrap_or(0)
}

/// Memory that a process holds, bytes; 0 when it is gone.
pub fn resident_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|value| value.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) * 1_024
}

/// Ticks a second in `/proc/<pid>/stat`: part of Linux's interface, whatever the kernel runs at.
const TICKS: f64 = 100.0;

/// Processor time that a process has used so far, seconds; 0 when it is gone.
pub fn cpu_seconds(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name in brackets may hold blanks; utime and stime are the 12th and 13th field after it.
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / TICKS
}

/// A running process. Its end is that of its stdin; killed when dropped.
pub struct Process {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Process {
    /// Starts `tidegate bench WHAT`; returns when it has opened what `setup` says.
    ///
    /// # Errors
    /// [`Failure::Work`].
    pub fn start(what: &str, setup: &impl Serialize) -> Result<Self> {
        let failed = |e: std::io::Error| Failure::Work(format!("cannot start bench {what}: {e}"));
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.args(["bench", what]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let (Some(orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::Work(format!("bench {what} has no pipes")));
        };
        let mut process = Self { child, orders, answers: BufReader::new(answers) };
        process.order(setup)?;
        process.report::<()>()?;
        Ok(process)
    }

    /// Gives an order; [`Process::report`] waits for what comes of it.
    ///
    /// # Errors
    /// [`Failure::Work`]: it is gone.
    pub fn order(&mut self, order: &impl Serialize) -> Result {
        let mut line = serde_json::to_string(order).map_err(|e| Failure::Work(e.to_string()))?;
        line.push('\n');
        let sent = self.orders.write_all(line.as_bytes());
        sent.map_err(|e| Failure::Work(format!("a process of the bench is gone: {e}")))
    }

    /// Waits for what came of the last order.
    ///
    /// # Errors
    /// [`Failure::Work`]: it is gone.
    pub fn report<R: DeserializeOwned>(&mut self) -> Result<R> {
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(|e| Failure::Work(e.to_string()))?;
        serde_json::from_str(&line).map_err(|_| Failure::Work("a process of the bench ended; see above".to_owned()))
    }

    /// Gives an order and waits for what comes of it.
    ///
    /// # Errors
    /// [`Failure::Work`]: it is gone.
    pub fn ask<R: DeserializeOwned>(&mut self, order: &impl Serialize) -> Result<R> {
        self.order(order)?;
        self.report()
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL.
    ///
    /// # Errors
    /// [`Failure::Work`]: it has ended by itself.
    pub fn kill(&mut self) -> Result {
        let killed = self.child.kill().and_then(|()| self.child.wait());
        killed.map(drop).map_err(|e| Failure::Work(format!("cannot kill a process of the bench: {e}")))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Several, started one after the other.
///
/// # Errors
/// As [`Process::start`].
pub fn start_all(what: &str, count: usize, setup: &impl Serialize) -> Result<Vec<Process>> {
    (0..count).map(|_| Process::start(what, setup)).collect()
}

/// Gives all the same order and waits for all.
///
/// # Errors
/// As [`Process::order`].
pub fn all<R: DeserializeOwned>(processes: &mut [Process], order: &impl Serialize) -> Result<Vec<R>> {
    for process in processes.iter_mut() {
        process.order(order)?;
    }
    processes.iter_mut().map(Process::report).collect()
}

/// What a process does with orders of its kind.
pub trait Part: Sized {
    /// What it is told at its start.
    type Setup: DeserializeOwned;
    /// What it is told to do.
    type Order: DeserializeOwned;
    /// What came of it.
    type Report: Serialize;

    /// Opens what the setup says.
    fn open(setup: Self::Setup) -> impl Future<Output = Result<Self>>;

    /// Does what it is told.
    fn obey(&mut self, order: Self::Order) -> impl Future<Output = Result<Self::Report>>;
}

/// Obeys until stdin ends.
///
/// # Errors
/// [`Failure::Usage`]: nobody gives orders. [`Failure::Work`].
pub fn obey<P: Part>() -> Result {
    let nobody = || Failure::Usage("this is a part of a bench, which starts it by itself".to_owned());
    let setup: P::Setup = line()?.ok_or_else(nobody)?;
    let runtime = runtime::start(None)?;
    let mut part = runtime.block_on(P::open(setup))?;
    output::json(&())?;
    while let Some(order) = line()? {
        let report = runtime.block_on(part.obey(order))?;
        output::json(&report)?;
    }
    Ok(())
}

fn line<T: DeserializeOwned>() -> Result<Option<T>> {
    let failed = |e: &dyn std::fmt::Display| Failure::Work(format!("a process of the bench: {e}"));
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line).map_err(|e| failed(&e))?;
    if read == 0 { Ok(None) } else { serde_json::from_str(&line).map(Some).map_err(|e| failed(&e)) }
}
