//! Ports, programs, children.

use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{LazyLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rand::Rng;
use rustix::process::{Pid, Signal, kill_process};

use super::folder::NOBODY;

/// Longest wait for a server to start or to stop; far above what a busy machine needs.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest pause between two looks.
const GLANCE: Duration = Duration::from_millis(20);

/// The path of `program`, from `PATH` or one of the folders that Debian uses for servers.
///
/// # Panics
/// When it is not there; the message names its Debian `package`.
#[must_use]
pub fn find(program: &str, package: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.extend(["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from));
    // Debian keeps the versions of PostgreSQL side by side; the newest serves.
    let mut versions: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flat_map(|entries| entries.flatten())
        .filter_map(|e| Some((e.file_name().to_str()?.parse().ok()?, e.path().join("bin"))))
        .collect();
    versions.sort();
    folders.extend(versions.into_iter().rev().map(|(_, folder)| folder));
    let found = folders.into_iter().map(|folder| folder.join(program)).find(|file| file.is_file());
    found.unwrap_or_else(|| panic!("{program} is missing: run ./scripts/test, or install Debian's package {package}"))
}

/// A port of the loopback that is free now. Below the range from which the system picks ports for outgoing connections,
/// by 10,000 and more, because the bus of a Redis Cluster is that far above its port. Another program may take it first:
/// whoever starts a server on it tries again with another.
///
/// # Panics
/// When there is no free port.
#[must_use]
pub fn free_port() -> u16 {
    let mut rng = rand::rng();
    let free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    (0..1_000).map(|_| rng.random_range(10_000..22_700)).find(free).expect("one of a thousand ports is free")
}

/// A command for `program` that is killed when this process ends, and that runs as user 65534 when this one is root.
#[must_use]
pub fn command(program: &Path) -> Command {
    let mut command = Command::new(find("setpriv", "util-linux"));
    command.args(["--pdeathsig", "KILL"]);
    if rustix::process::geteuid().is_root() {
        let nobody = [format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"), "--clear-groups".to_owned()];
        command.args(nobody);
    }
    command.arg("--").arg(program).stdin(Stdio::null()).env("LC_ALL", "C").current_dir("/");
    command
}

/// Runs `command` to its end and returns what it printed.
///
/// # Panics
/// When it fails; the message has what it printed.
pub fn run(command: &mut Command) -> String {
    try_run(command).unwrap_or_else(|failure| panic!("{failure}"))
}

/// As [`run`]; a failure comes back as text.
pub(super) fn try_run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    Err(format!("{command:?} ended with {}: {} {}", output.status, text(&output.stdout), text(&output.stderr)))
}

/// Looks again and again until `ready`.
///
/// # Panics
/// When a minute has passed; the message names `what`.
pub fn wait_until(what: &str, mut ready: impl FnMut() -> bool) {
    let (began, mut pause) = (Instant::now(), Duration::from_millis(1));
    while !ready() {
        assert!(began.elapsed() < PATIENCE, "waited a minute for {what}");
        thread::sleep(pause);
        pause = (pause * 2).min(GLANCE);
    }
}

type Spawn = (Command, mpsc::Sender<io::Result<Child>>);

/// Starts children. `--pdeathsig` means the *thread* that started a child, so this one lives as long as the process.
static STARTER: LazyLock<mpsc::Sender<Spawn>> = LazyLock::new(|| {
    let (sender, receiver) = mpsc::channel::<Spawn>();
    let serve = move || {
        for (mut command, answer) in receiver {
            // Whoever asked may have given up.
            let _ = answer.send(command.spawn());
        }
    };
    thread::Builder::new().name("server-starter".to_owned()).spawn(serve).expect("a thread can be started");
    sender
});

/// A running server and its own children, killed when it is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

impl Process {
    /// Starts `command` (see [`command`]).
    ///
    /// # Panics
    /// When the program cannot be started at all.
    #[must_use]
    pub fn start(command: Command) -> Self {
        let (sender, receiver) = mpsc::channel();
        STARTER.send((command, sender)).expect("the starter runs as long as the process");
        let child = receiver.recv().expect("the starter answers").expect("a program that was found can be started");
        Self { child }
    }

    /// Whether it still runs.
    ///
    /// # Panics
    /// When the system cannot tell.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child can be waited for").is_none()
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL, to it and its children; returns when all are gone, their ports free.
    pub fn kill(&mut self) {
        // Frozen first: a server that sees a child die starts another.
        let family = self.signal(Signal::STOP);
        self.signal(Signal::KILL);
        // By the list from before: once their parent is dead, they are somebody else's children.
        for pid in &family {
            let _ = kill_process(*pid, Signal::KILL);
        }
        // An error means that it was waited for before.
        let _ = self.child.wait();
        wait_until("the children of a killed server", || !family.iter().copied().any(alive));
    }

    /// SIGSTOP, to it and its children: a frozen machine whose kernel still takes packets.
    pub fn freeze(&mut self) {
        self.signal(Signal::STOP);
    }

    /// SIGCONT, to it and its children.
    pub fn thaw(&mut self) {
        self.signal(Signal::CONT);
    }

    /// Sends one signal to it alone, if it still runs.
    pub fn tell(&mut self, signal: Signal) {
        if self.is_running() {
            // An error means that it has ended in between.
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }

    /// Sends it one signal, and returns when it has ended by itself; kills it when it has not in a minute.
    pub fn end(&mut self, signal: Signal) {
        self.thaw();
        self.tell(signal);
        let began = Instant::now();
        while self.is_running() {
            if began.elapsed() > PATIENCE {
                return self.kill();
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Signals it, then its children; returns these. Does nothing once it has ended: its id may be another's by now.
    fn signal(&mut self, signal: Signal) -> Vec<Pid> {
        if !self.is_running() {
            return Vec::new();
        }
        // An error means that one has ended in between.
        let _ = kill_process(Pid::from_child(&self.child), signal);
        let family = self.family();
        for pid in &family {
            let _ = kill_process(*pid, signal);
        }
        family
    }

    /// The processes it started and theirs, from what the system lists.
    fn family(&self) -> Vec<Pid> {
        let mut parents: Vec<(i32, i32)> = Vec::new();
        for entry in std::fs::read_dir("/proc").into_iter().flat_map(|entries| entries.flatten()) {
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            // `pid (any name) state parent ..`
            let parent = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)?.parse().ok());
            parents.extend(pid.zip(parent));
        }
        let mut family = vec![i32::try_from(self.child.id()).expect("a process id")];
        let mut at = 0;
        while at < family.len() {
            let parent = family[at];
            family.extend(parents.iter().filter(|(_, p)| *p == parent).map(|(pid, _)| *pid));
            at += 1;
        }
        family.into_iter().skip(1).filter_map(Pid::from_raw).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn alive(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    // A zombie waits for its parent only.
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}
