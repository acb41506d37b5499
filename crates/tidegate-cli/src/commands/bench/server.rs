//! Private Redis servers: each on a free port of this machine, nothing on disk, gone when its value is dropped.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::failure::{Failure, Result};

/// Programs that serve, in the order in which they are looked for.
const PROGRAMS: [&str; 2] = ["redis-server", "valkey-server"];
/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Starts on ports that another program took in between.
const MAX_STARTS: usize = 5;
/// Nodes of a private Cluster, and their slots.
const NODES: usize = 3;
const SLOTS: usize = 16_384;
/// A Cluster node's second port is this far above its first.
const BUS: u16 = 10_000;

/// A running server.
pub struct Server {
    child: Child,
    port: u16,
    folder: PathBuf,
    options: Vec<String>,
}

impl Server {
    /// Starts one; its files go to `folder`.
    ///
    /// # Errors
    /// [`Failure::Usage`]: neither `redis-server` nor `valkey-server` is installed. [`Failure::Work`]: it does not start.
    pub fn start(folder: &Path) -> Result<Self> {
        Self::start_with(folder, &[])
    }

    /// The same with options of its own, such as `["--appendonly", "yes"]`.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_with(folder: &Path, options: &[&str]) -> Result<Self> {
        for _ in 0..MAX_STARTS {
            let Some(port) = free_port() else { continue };
            let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
            let child = spawn(folder, port, &options)?;
            let mut server = Self { child, port, folder: folder.to_owned(), options };
            if server.answers() {
                return Ok(server);
            }
        }
        Err(Failure::Work(
            "a private Redis does not start; start one yourself and name it with --redis redis://..".to_owned(),
        ))
    }

    /// Waits until it answers; false when it has ended, or does not.
    fn answers(&mut self) -> bool {
        let began = Instant::now();
        while began.elapsed() < PATIENCE && self.runs() {
            if self.tell(&["PING"]).is_ok_and(|answer| answer.contains("PONG")) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }

    /// SIGKILL, as a machine that loses its power.
    pub fn kill(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again on its port, with what it has on disk.
    ///
    /// # Errors
    /// [`Failure::Work`]: it does not answer.
    pub fn restart(&mut self) -> Result {
        self.kill();
        self.child = spawn(&self.folder, self.port, &self.options)?;
        if self.answers() { Ok(()) } else { Err(Failure::Work("a private Redis does not start again".to_owned())) }
    }

    fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// `redis://127.0.0.1:port`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Bytes it uses.
    ///
    /// # Errors
    /// [`Failure::Work`]: it does not answer.
    pub fn used_memory(&self) -> Result<u64> {
        let info = self.tell(&["INFO", "memory"]).unwrap_or_default();
        let line = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
        let bytes = line.and_then(|bytes| bytes.trim().parse().ok());
        bytes.ok_or_else(|| Failure::Work("the private Redis does not say how much memory it uses".to_owned()))
    }

    /// SIGSTOP: connections stay open, nothing answers.
    pub fn freeze(&self) -> Result {
        self.signal(Signal::STOP)
    }

    /// SIGCONT.
    pub fn thaw(&self) -> Result {
        self.signal(Signal::CONT)
    }

    /// Whether what is told through streams arrives nowhere: who reads them is refused.
    pub fn silence_streams(&self, silent: bool) -> Result {
        self.done(&["ACL", "SETUSER", "default", if silent { "-xread" } else { "+xread" }])
    }

    /// Takes every key away.
    ///
    /// # Errors
    /// [`Failure::Work`].
    pub fn flush(&self) -> Result {
        self.done(&["FLUSHALL"])
    }

    fn signal(&self, signal: Signal) -> Result {
        kill_process(Pid::from_child(&self.child), signal)
            .map_err(|e| Failure::Work(format!("cannot signal the private Redis: {e}")))
    }

    /// Gives it one command and returns what it answers, as it comes over the wire; up to 64 KiB.
    fn tell(&self, command: &[&str]) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        let mut bytes = format!("*{}\r\n", command.len());
        for part in command {
            bytes.push_str(&format!("${}\r\n{part}\r\n", part.len()));
        }
        stream.write_all(bytes.as_bytes())?;
        let mut answer = vec![0; 64 << 10];
        let read = stream.read(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer[..read]).into_owned())
    }

    fn done(&self, command: &[&str]) -> Result {
        match self.tell(command) {
            Ok(answer) if !answer.starts_with('-') => Ok(()),
            Ok(answer) => Err(Failure::Work(format!("the private Redis refuses {command:?}: {}", answer.trim()))),
            Err(e) => Err(Failure::Work(format!("the private Redis does not answer {command:?}: {e}"))),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A frozen one is killed as well.
        self.kill();
    }
}

/// A private Cluster of three masters.
pub struct Cluster(Vec<Server>);

impl Cluster {
    /// Starts its nodes in `folder` and joins them.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start(folder: &Path) -> Result<Self> {
        let mut nodes = Vec::with_capacity(NODES);
        for n in 0..NODES {
            let own = folder.join(format!("node-{n}"));
            std::fs::create_dir_all(&own).map_err(|e| Failure::Work(format!("cannot make {}: {e}", own.display())))?;
            nodes.push(Server::start_with(&own, &["--cluster-enabled", "yes", "--cluster-node-timeout", "5000"])?);
        }
        for (n, node) in nodes.iter().enumerate() {
            let (from, to) = (SLOTS * n / NODES, SLOTS * (n + 1) / NODES - 1);
            node.done(&["CLUSTER", "ADDSLOTSRANGE", &from.to_string(), &to.to_string()])?;
            node.done(&["CLUSTER", "MEET", "127.0.0.1", &nodes[0].port.to_string()])?;
        }
        let began = Instant::now();
        let settled = |node: &Server| {
            node.tell(&["CLUSTER", "INFO"])
                .is_ok_and(|info| info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3"))
        };
        while !nodes.iter().all(settled) {
            if began.elapsed() > PATIENCE {
                return Err(Failure::Work("the private Cluster does not settle".to_owned()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Self(nodes))
    }

    /// `redis-cluster://host:port,..` of all nodes.
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.0.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
        format!("redis-cluster://{}", hosts.join(","))
    }
}

/// The version of the program that private servers run, if there is one: `Redis 7.0.15`.
pub fn version() -> Option<String> {
    let out = PROGRAMS.iter().find_map(|program| Command::new(program).arg("--version").output().ok())?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let name = text.split_whitespace().next()?.to_owned();
    let version = text.split_whitespace().find_map(|word| word.strip_prefix("v="))?;
    Some(format!("{name} {version}"))
}

/// A port that is free now, and the one above it that a Cluster needs.
fn free_port() -> Option<u16> {
    // Below the range from which the system picks ports for outgoing connections.
    let port = rand::random_range(10_000..22_000);
    let free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    (free(port) && free(port + BUS)).then_some(port)
}

fn spawn(folder: &Path, port: u16, options: &[String]) -> Result<Child> {
    let log = folder.join("redis.log");
    let arguments = |command: &mut Command| {
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--appendonly", "no"]);
        command.arg("--dir").arg(folder).arg("--logfile").arg(&log).args(options);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    };
    for program in PROGRAMS {
        if Command::new(program).arg("--version").stdout(Stdio::null()).status().is_err() {
            continue;
        }
        // So that it ends with this process even if that is killed; util-linux has it.
        let mut bound = Command::new("setpriv");
        bound.args(["--pdeathsig", "KILL", "--", program]);
        arguments(&mut bound);
        if let Ok(child) = bound.spawn() {
            return Ok(child);
        }
        let mut plain = Command::new(program);
        arguments(&mut plain);
        return plain.spawn().map_err(|e| Failure::Work(format!("cannot start {program}: {e}")));
    }
    Err(Failure::Usage(
        "neither redis-server nor valkey-server is installed; install the package redis-server, or name a server with \
         --redis redis://.."
            .to_owned(),
    ))
}
