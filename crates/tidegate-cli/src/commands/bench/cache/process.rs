//! A process with a cache of its own, as this one's parent sees it: orders go to its stdin, a line each, and answers come
//! from its stdout.

use std::io::{BufRead, BufReader, Write};
use std::num::NonZeroU32;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};

/// The cache of a process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Setup {
    /// Of the store.
    pub url: String,
    /// Under which it is used.
    pub name: String,
    /// Of the cache.
    pub namespace: String,
    /// How long values are fresh.
    pub fresh_ms: u64,
    /// And how long they are served after that; 0: not at all.
    pub stale_ms: u64,
    /// Whether copies are kept in process.
    pub local: bool,
    /// Loads a second.
    pub load_rate: Option<NonZeroU32>,
    /// How long a load takes.
    pub load_ms: u64,
    /// Whether loads fail.
    pub fails: bool,
}

/// What a process is asked to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Order {
    /// `callers` ask for `key` at the instant `at_us`.
    Crowd {
        /// How many.
        callers: usize,
        /// For what.
        key: u64,
        /// When.
        at_us: u64,
    },
    /// Reads `keys` by turns, and a hot key of a cache with copies in process.
    Stream {
        /// Reads of `keys` in a second.
        per_second: u64,
        /// For so long.
        for_ms: u64,
        /// 0 to this, exclusive.
        keys: u64,
    },
}

/// What came of it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// When each load began and ended.
    pub loads: Vec<(u64, u64)>,
    /// When the last caller was answered.
    pub last_us: u64,
    /// What the slowest waited.
    pub longest_us: u64,
    /// Answered with a value.
    pub values: u64,
    /// Of these, past their freshness.
    pub stale: u64,
    /// Told that too many loads run.
    pub overloaded: u64,
    /// Told another error.
    pub errors: u64,
    /// Times of the hot key's reads, microseconds: median, 99th of 100, the longest.
    pub hot_us: [u64; 3],
}

/// Now, as all processes of this machine count it.
pub fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// A running process. Its end is that of its stdin; killed when dropped.
pub struct Process {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Process {
    /// Starts one; returns when its cache is open.
    ///
    /// # Errors
    /// [`Failure::Work`].
    pub fn start(setup: &Setup) -> Result<Self> {
        let failed = |e: std::io::Error| Failure::Work(format!("cannot start a process with a cache: {e}"));
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.args(["bench", "cache-process"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let (Some(orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::Work("a process with a cache has no pipes".to_owned()));
        };
        let mut process = Self { child, orders, answers: BufReader::new(answers) };
        process.send(setup)?;
        let _: Report = process.receive()?;
        Ok(process)
    }

    /// Gives an order; [`Process::report`] waits for what comes of it.
    ///
    /// # Errors
    /// [`Failure::Work`]: it is gone.
    pub fn order(&mut self, order: &Order) -> Result {
        self.send(order)
    }

    /// Waits for what came of the last order.
    ///
    /// # Errors
    /// [`Failure::Work`]: it is gone.
    pub fn report(&mut self) -> Result<Report> {
        self.receive()
    }

    fn send(&mut self, what: &impl Serialize) -> Result {
        let mut line = serde_json::to_string(what).map_err(|e| Failure::Work(e.to_string()))?;
        line.push('\n');
        self.orders
            .write_all(line.as_bytes())
            .map_err(|e| Failure::Work(format!("a process with a cache is gone: {e}")))
    }

    fn receive(&mut self) -> Result<Report> {
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(|e| Failure::Work(e.to_string()))?;
        serde_json::from_str(&line).map_err(|_| Failure::Work("a process with a cache ended; see above".to_owned()))
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
pub fn start_all(count: usize, setup: &Setup) -> Result<Vec<Process>> {
    (0..count).map(|_| Process::start(setup)).collect()
}

/// Gives all the same order and waits for all.
///
/// # Errors
/// As [`Process::order`].
pub fn all(processes: &mut [Process], order: &Order) -> Result<Vec<Report>> {
    for process in processes.iter_mut() {
        process.order(order)?;
    }
    processes.iter_mut().map(Process::report).collect()
}

/// An instant far enough ahead that every process has its order by then.
pub fn soon_us() -> u64 {
    now_us() + u64::try_from(Duration::from_millis(20).as_micros()).unwrap_or(0)
}
