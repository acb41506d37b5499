//! A process with a cache of its own, as its parent sees it: orders go to its stdin, a line each, answers come from its
//! stdout.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::num::NonZeroU32;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Says to the program that it is a child, and what of.
pub const SETUP: &str = "TIDEGATE_CACHE_CHILD";
/// An answer's line begins with this; the test harness of the child prints lines of its own.
pub const MARK: &str = "answer: ";

/// The cache of a process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Setup {
    pub url: String,
    /// The rows.
    pub table: PathBuf,
    pub schema: u32,
    pub fresh_ms: u64,
    /// 0: not at all.
    pub stale_ms: u64,
    pub lease_ms: u64,
    pub local: bool,
    pub load_ms: u64,
    pub fails: bool,
    pub load_rate: Option<NonZeroU32>,
}

impl Setup {
    pub fn new(url: &str, table: &Table) -> Self {
        Self {
            url: url.to_owned(),
            table: table.path.clone(),
            schema: 1,
            fresh_ms: 60_000,
            stale_ms: 0,
            lease_ms: 2_000,
            local: true,
            load_ms: 0,
            fails: false,
            load_rate: None,
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Order {
    /// `callers` ask for `key` at the instant `at_us`.
    Crowd { callers: usize, key: u64, at_us: u64 },
    /// Asks for `key` and reports as soon as its load runs.
    Begin { key: u64 },
    /// How the one that was begun ended.
    End,
    /// Reads `key`.
    Get { key: u64, strong: bool },
    /// Invalidates `key`.
    Invalidate { key: u64 },
    /// Reads 0 to `keys` by turns, and a hot key of a cache with copies in process.
    Stream { per_second: u64, for_ms: u64, keys: u64 },
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// When each load began and ended.
    pub loads: Vec<(u64, u64)>,
    pub last_us: u64,
    pub longest_us: u64,
    pub values: u64,
    pub stale: u64,
    pub overloaded: u64,
    pub errors: u64,
    /// The last value or error.
    pub value: Option<u64>,
    pub error: Option<String>,
    pub age_ms: u64,
    /// Longest read of the hot key, and how many there were.
    pub hot_longest_us: u64,
    pub hot: u64,
    /// Fills that the store refused, so far.
    pub rejected: u64,
}

pub fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64
}

/// An instant by which every process has its order.
pub fn soon_us() -> u64 {
    now_us() + 30_000
}

/// Rows that all processes read: versions, eight bytes a key, in a file.
pub struct Table {
    file: File,
    pub path: PathBuf,
    _folder: Option<tempfile::TempDir>,
}

impl Table {
    pub fn new(rows: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows");
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        file.set_len(rows * 8).unwrap();
        Self { file, path, _folder: Some(folder) }
    }

    pub fn open(path: &Path) -> Self {
        Self { file: File::open(path).unwrap(), path: path.to_owned(), _folder: None }
    }

    pub fn set(&self, key: u64, version: u64) {
        self.file.write_all_at(&version.to_le_bytes(), key * 8).unwrap();
    }

    pub fn get(&self, key: u64) -> u64 {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, key * 8).unwrap();
        u64::from_le_bytes(bytes)
    }
}

/// A running process. Killed when dropped.
pub struct Process {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Process {
    pub fn start(setup: &Setup) -> Self {
        Self::start_with(setup, |_| {})
    }

    /// `with` adds to its environment.
    pub fn start_with(setup: &Setup, with: impl FnOnce(&mut Command)) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["child::run", "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
        command.env(SETUP, serde_json::to_string(setup).unwrap());
        // The harness of nextest must not make the child one of its tests.
        command.env_remove("NEXTEST").env_remove("NEXTEST_EXECUTION_MODE");
        with(&mut command);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (orders, answers) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut process = Self { child, orders, answers };
        process.report();
        process
    }

    pub fn order(&mut self, order: &Order) {
        let line = serde_json::to_string(order).unwrap();
        writeln!(self.orders, "{line}").unwrap();
    }

    pub fn report(&mut self) -> Report {
        loop {
            let mut line = String::new();
            let read = self.answers.read_line(&mut line).unwrap();
            assert!(read > 0, "the process is gone");
            // Of a test, the harness has begun a line already.
            if let Some((_, answer)) = line.split_once(MARK) {
                return serde_json::from_str(answer).unwrap();
            }
        }
    }

    pub fn ask(&mut self, order: &Order) -> Report {
        self.order(order);
        self.report()
    }

    pub fn get(&mut self, key: u64) -> Report {
        self.ask(&Order::Get { key, strong: false })
    }

    /// SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGSTOP or SIGCONT.
    pub fn freeze(&self, freeze: bool) {
        let signal = if freeze { "-STOP" } else { "-CONT" };
        let done = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(done.success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Gives all the same order and waits for all.
pub fn all(processes: &mut [Process], order: &Order) -> Vec<Report> {
    processes.iter_mut().for_each(|process| process.order(order));
    processes.iter_mut().map(Process::report).collect()
}

/// All loads of all, in the order in which they began.
pub fn loads(reports: &[Report]) -> Vec<(u64, u64)> {
    let mut loads: Vec<_> = reports.iter().flat_map(|report| report.loads.iter().copied()).collect();
    loads.sort_unstable();
    loads
}

/// The most loads that began in any second from one of them on.
pub fn most_in_a_second(loads: &[(u64, u64)]) -> usize {
    let mut begun: Vec<u64> = loads.iter().map(|(began, _)| *began).collect();
    begun.sort_unstable();
    (0..begun.len()).map(|at| begun[at..].partition_point(|other| *other < begun[at] + 1_000_000)).max().unwrap_or(0)
}

/// Waits for at most ten seconds.
pub fn until(what: &str, mut ready: impl FnMut() -> bool) {
    let began = Instant::now();
    while !ready() {
        assert!(began.elapsed().as_secs() < 10, "waited for {what}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}
