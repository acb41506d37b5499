//! A master and a replica, watched by sentinels.

use std::fs;

use super::{Engine, Redis, Setup, started};
use crate::servers::Folder;
use crate::servers::folder::own;
use crate::servers::process::{Process, free_port, wait_until};
use crate::servers::resp;

/// The name under which the sentinels know the master.
const SERVICE: &str = "shop";
const SENTINELS: usize = 3;
/// Two of three must agree.
const QUORUM: usize = 2;

/// A master, a replica and three sentinels. Dropped, all end.
#[derive(Debug)]
pub struct Sentinel {
    /// Two servers; the first is the master at the start.
    pub servers: [Redis; 2],
    sentinels: Vec<(u16, Process, Folder)>,
}

impl Sentinel {
    /// Starts all five; a master that is silent for half a second is replaced.
    ///
    /// # Panics
    /// As [`Redis::start`].
    #[must_use]
    pub fn start(engine: Engine) -> Self {
        let servers = [(); 2].map(|()| Redis::start_with(Setup::default().engine(engine)));
        servers[1].tell(&["REPLICAOF", "127.0.0.1", &servers[0].port().to_string()]);
        wait_until("the replica", || servers[0].tell(&["INFO", "replication"]).contains("state=online"));
        let sentinels = (0..SENTINELS).map(|_| watch(engine, servers[0].port())).collect();
        let all = Self { servers, sentinels };
        wait_until("the sentinels to know each other and the replica", || {
            all.ports().all(|port| {
                let info = ask(port, &["INFO", "sentinel"]).unwrap_or_default();
                info.contains("slaves=1") && info.contains("sentinels=3")
            })
        });
        all
    }

    /// `redis-sentinel://host:port,.../shop/0`.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.ports().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("redis-sentinel://{}/{SERVICE}/0", hosts.join(","))
    }

    /// The port of the master by the sentinels' word.
    #[must_use]
    pub fn master_port(&self) -> Option<u16> {
        let answers = self.ports().filter_map(|port| ask(port, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE]).ok());
        answers.filter_map(|lines| lines.lines().nth(1)?.parse().ok()).next()
    }

    /// kill -9 of every sentinel; master and replica live on.
    pub fn kill_sentinels(&mut self) {
        self.sentinels.clear();
    }

    /// Has the sentinels make the replica the master, without a fault of the old one.
    ///
    /// # Panics
    /// When no sentinel does so.
    pub fn fail_over(&self) {
        let done = self.ports().any(|port| ask(port, &["SENTINEL", "FAILOVER", SERVICE]).is_ok());
        assert!(done, "no sentinel starts a failover");
    }

    fn ports(&self) -> impl Iterator<Item = u16> {
        self.sentinels.iter().map(|(port, _, _)| *port)
    }
}

fn ask(port: u16, command: &[&str]) -> Result<String, String> {
    resp::ask(port, &[command.iter().map(|part| part.as_bytes()).collect()])
}

fn watch(engine: Engine, master: u16) -> (u16, Process, Folder) {
    let folder = Folder::new();
    let file = folder.path().join("sentinel.conf");
    loop {
        let port = free_port();
        let lines = [
            format!("port {port}\nbind 127.0.0.1\ndir {}", folder.path().display()),
            format!("sentinel monitor {SERVICE} 127.0.0.1 {master} {QUORUM}"),
            format!("sentinel down-after-milliseconds {SERVICE} 500"),
            format!("sentinel failover-timeout {SERVICE} 3000\n"),
        ];
        fs::write(&file, lines.join("\n")).expect("a new folder can be written");
        own(&file);
        let mut command = engine.command(&folder, &[]);
        command.arg(&file).arg("--sentinel");
        if let Some(process) = started(command, &folder.path().join("log"), || ask(port, &["PING"]).is_ok()) {
            return (port, process, folder);
        }
    }
}
