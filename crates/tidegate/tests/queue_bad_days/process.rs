//! A process with a worker of its own, as its parent sees it: what it does it writes into a file that all share.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::common::id;

/// Says to the program that it is a child, and what of.
pub const SETUP: &str = "TIDEGATE_QUEUE_CHILD";

/// The worker of a process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Setup {
    /// Its name in the file.
    pub who: String,
    pub url: String,
    pub log: PathBuf,
    pub lease_ms: u64,
    /// 0: it has no worker.
    pub concurrency: usize,
    pub batch: usize,
    pub work_ms: u64,
    pub max_attempts: u32,
    /// The payload that ends the process when it is handled.
    pub killer: Option<u64>,
    /// Tasks that it schedules when it begins, and their delays.
    pub schedule: Vec<(u64, u64)>,
}

impl Setup {
    pub fn new(url: &str, log: &Log) -> Self {
        Self {
            who: "w".to_owned(),
            url: url.to_owned(),
            log: log.path.clone(),
            lease_ms: 600,
            concurrency: 32,
            batch: 1,
            work_ms: 1,
            max_attempts: 20,
            killer: None,
            schedule: Vec::new(),
        }
    }

    pub fn who(&self, who: impl Into<String>) -> Self {
        Self { who: who.into(), ..self.clone() }
    }
}

/// A line of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub who: String,
    pub what: String,
    pub id: String,
    pub attempt: u32,
    pub receipt: u64,
    pub late_ms: i64,
}

/// What all processes did.
pub struct Log {
    pub path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Log {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        File::create(&path).unwrap();
        Self { path, _folder: folder }
    }

    pub fn folder(&self) -> &Path {
        self.path.parent().unwrap()
    }

    pub fn lines(&self) -> Vec<Line> {
        let text = std::fs::read_to_string(&self.path).unwrap();
        // The last one may be on its way.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let line = |line: &str| {
            let mut parts = line.split(' ');
            let mut next = || parts.next().unwrap_or_else(|| panic!("{line:?} is short"));
            Line {
                who: next().to_owned(),
                what: next().to_owned(),
                id: next().to_owned(),
                attempt: next().parse().unwrap(),
                receipt: next().parse().unwrap(),
                late_ms: next().parse().unwrap(),
            }
        };
        whole.lines().map(line).collect()
    }

    /// Lines of one kind.
    pub fn of(&self, what: &str) -> Vec<Line> {
        self.lines().into_iter().filter(|line| line.what == what).collect()
    }

    /// How often each task was ended.
    pub fn ends(&self) -> BTreeMap<String, usize> {
        let mut ends = BTreeMap::new();
        self.of("end").into_iter().for_each(|line| *ends.entry(line.id).or_default() += 1);
        ends
    }

    /// Those of `0..all` that nobody has ended.
    pub fn missing(&self, all: u64) -> BTreeSet<String> {
        let ends = self.ends();
        (0..all).map(id).filter(|id| !ends.contains_key(id)).collect()
    }
}

/// Waits until `ready`, for half a minute at most; returns how long it took.
pub fn until(what: &str, mut ready: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !ready() {
        assert!(began.elapsed().as_secs() < 30, "waited for {what}");
        std::thread::sleep(Duration::from_millis(3));
    }
    began.elapsed()
}

/// A running process. Killed when dropped.
pub struct Process {
    child: Child,
}

impl Process {
    /// Starts it, and waits until its worker does.
    pub fn start(setup: &Setup) -> Self {
        Self::start_with(setup, |_| {})
    }

    /// `with` adds to its environment.
    pub fn start_with(setup: &Setup, with: impl FnOnce(&mut Command)) -> Self {
        // Of what stands in the log already nothing is read again: it may be long.
        let from = std::fs::metadata(&setup.log).unwrap().len();
        let is_up = || {
            let (mut log, mut text) = (File::open(&setup.log).unwrap(), String::new());
            log.seek(SeekFrom::Start(from)).unwrap();
            log.read_to_string(&mut text).unwrap();
            text.contains(&format!("{} up ", setup.who))
        };
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["child::run", "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
        command.env(SETUP, serde_json::to_string(setup).unwrap());
        // The harness of nextest must not make the child one of its tests.
        command.env_remove("NEXTEST").env_remove("NEXTEST_EXECUTION_MODE");
        with(&mut command);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let mut process = Self { child };
        until("a process that works", || {
            assert!(process.is_running(), "it ended");
            is_up()
        });
        process
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// `-STOP`, `-CONT`, `-TERM`.
    pub fn signal(&self, signal: &str) {
        let done = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(done.success());
    }

    /// SIGTERM, and waits for its end; whether it was an orderly one.
    pub fn end(mut self) -> bool {
        self.signal("-TERM");
        until("a process that was told to end", || !self.is_running());
        self.child.wait().unwrap().success()
    }

    /// Its memory, KiB.
    pub fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
