//! Which servers hold keys, and what each says of itself.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};
use tidegate_backend::{Error, ErrorKind, Result};
use tidegate_core::watch::{Info, Kind};

use super::weight::{Allocator, Layout, Model};
use crate::asks;
use crate::connect::{Host, Mode, RedisOptions, RedisResult, connect_for_waiting, master};
use crate::members::members;

/// How long a server has for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A server that holds keys, and a connection to it.
pub(crate) struct Server {
    pub(crate) host: Host,
    pub(crate) address: String,
    pub(crate) info: Info,
    pub(crate) connection: MultiplexedConnection,
    pub(crate) is_cluster: bool,
    /// The database that the connection is in.
    pub(crate) database: u64,
    options: RedisOptions,
}

fn failed(host: &Host, e: redis::RedisError) -> Error {
    let (kind, what) = match e.code() {
        Some("NOAUTH" | "WRONGPASS") => NOT_LET_IN,
        _ if e.kind() == redis::ErrorKind::AuthenticationFailed => NOT_LET_IN,
        Some("NOPERM") => {
            (ErrorKind::Configuration, "does not permit a command that is needed; give the user the permission for it")
        }
        Some("LOADING" | "BUSY" | "TRYAGAIN" | "CLUSTERDOWN" | "MASTERDOWN") => {
            (ErrorKind::Unavailable, "is not ready; try again when it is")
        }
        Some(_) => (
            ErrorKind::Configuration,
            "refuses what the URL asks for; check its database, and that redis-cluster:// is for a Cluster alone",
        ),
        None => (
            ErrorKind::Unavailable,
            "does not answer; check that it runs, the URL's host and port, and that rediss:// is for TLS alone",
        ),
    };
    Error::new(kind, format!("{} {what}", host.address())).because(e)
}

const NOT_LET_IN: (ErrorKind, &str) =
    (ErrorKind::Configuration, "does not let us in; check the URL's user and password");

/// The servers that hold keys: one alone, the master under Sentinel, every master of a Cluster.
pub(crate) async fn of(options: &RedisOptions) -> Result<Vec<Server>> {
    let hosts = match &options.mode {
        Mode::Standalone(host) => vec![host.clone()],
        Mode::Sentinel { .. } => {
            let why = "no sentinel names the master; check the URL";
            vec![master(options).await.map_err(|e| Error::new(ErrorKind::Unavailable, why).because(e))?]
        }
        Mode::Cluster(hosts) => masters(options, hosts).await?,
    };
    let mut servers = Vec::with_capacity(hosts.len());
    for host in hosts {
        let server = Server::connect(options, host).await;
        servers.push(server.map_err(|e| match &options.mode {
            // The URL led to the Cluster, and the Cluster here.
            Mode::Cluster(_) if e.kind() == ErrorKind::Unavailable => {
                let why = "a master of the Cluster cannot be asked; redis-cli --cluster check says how it is";
                Error::new(ErrorKind::Unavailable, why).because(e)
            }
            _ => e,
        })?);
    }
    Ok(servers)
}

async fn masters(options: &RedisOptions, hosts: &[Host]) -> Result<Vec<Host>> {
    let mut why = None;
    for host in hosts {
        let asked = async {
            let mut connection = connect_for_waiting(options, host, PATIENCE).await?;
            redis::cmd("CLUSTER").arg("NODES").query_async::<String>(&mut connection).await
        };
        match asked.await {
            Ok(text) => {
                let members = members(&text, host).into_iter();
                let masters: Vec<Host> = members.filter(|member| member.slots > 0).map(|member| member.host).collect();
                if !masters.is_empty() {
                    return Ok(masters);
                }
            }
            Err(e) => why = Some(failed(host, e)),
        }
    }
    Err(why.unwrap_or_else(|| Error::new(ErrorKind::Unavailable, "no server of the Cluster holds slots")))
}

impl Server {
    async fn connect(options: &RedisOptions, host: Host) -> Result<Self> {
        Self::enter(options, host.clone()).await.map_err(|e| failed(&host, e))
    }

    async fn enter(options: &RedisOptions, host: Host) -> RedisResult<Self> {
        let mut connection = connect_for_waiting(options, &host, PATIENCE).await?;
        let info: String = redis::cmd("INFO").query_async(&mut connection).await?;
        let info = Info::parse(&info);
        let is_cluster = matches!(options.mode, Mode::Cluster(_)) || info.number("cluster_enabled") == Some(1);
        let address = host.address();
        let database = u64::try_from(options.database).unwrap_or(0);
        Ok(Self { host, address, info, connection, is_cluster, database, options: options.clone() })
    }

    /// Whether it is a node of a Cluster that was named as if it were alone.
    pub(crate) fn is_one_of_many(&self) -> bool {
        self.is_cluster && matches!(self.options.mode, Mode::Standalone(_))
    }

    /// Whether it is a replica that does not have, or not yet, all that its master has.
    pub(crate) fn is_out_of_step(&self) -> bool {
        self.info.text("master_link_status").is_some_and(|status| status != "up")
    }

    /// Whether a snapshot for a replica is first written to its disk, which leaves a file there and, where the disk is full, makes it
    /// refuse writes. Where that may not be asked it is as servers of its version come.
    pub(crate) async fn snapshots_by_disk(&mut self) -> bool {
        let mut ask = redis::cmd("CONFIG");
        ask.arg("GET").arg("repl-diskless-sync");
        let told: RedisResult<Vec<String>> = ask.query_async(&mut self.connection).await;
        match told.as_deref() {
            Ok([_, value]) => value == "no",
            _ => {
                let server = self.info.server();
                server.kind == Kind::Redis && server.number.is_some_and(|number| number < (7, 0))
            }
        }
    }

    /// Goes in anew after its connection broke, into the same database; `false`: another run of the server is there.
    pub(crate) async fn connect_again(&mut self) -> RedisResult<bool> {
        let again = Self::enter(&self.options, self.host.clone()).await?;
        if again.info.text("run_id") != self.info.text("run_id") {
            return Ok(false);
        }
        self.connection = again.connection;
        if again.database != self.database {
            redis::cmd("SELECT").arg(self.database).query_async::<()>(&mut self.connection).await?;
        }
        Ok(true)
    }

    /// Runs commands in one round trip; each has an answer of its own.
    pub(crate) async fn all(&mut self, commands: &[Cmd]) -> RedisResult<Vec<RedisResult<Value>>> {
        asks::all(&mut self.connection, commands).await
    }

    pub(crate) fn unavailable(&self, e: redis::RedisError) -> Error {
        if e.code() == Some("NOPERM") {
            let why = format!(
                "{} does not permit a command that is needed; give the user the permission for it",
                self.address
            );
            return Error::new(ErrorKind::Configuration, why).because(e);
        }
        let why = format!("{} stopped answering; look again when it does", self.address);
        Error::new(ErrorKind::Unavailable, why).because(e)
    }

    /// Keys it has, of every database.
    pub(crate) fn keys(&self) -> u64 {
        self.info.keyspaces().map(|db| db.keys).fold(0, u64::saturating_add)
    }

    /// Replicas that are in step and can be reached.
    pub(crate) async fn replicas(&self) -> Vec<Server> {
        let mut replicas = Vec::new();
        for replica in self.info.replicas().filter(|replica| replica.state == "online").take(8) {
            let Some((name, port)) = replica.address.rsplit_once(':') else { continue };
            let Ok(port) = port.parse() else { continue };
            if let Ok(server) = Server::connect(&self.options, Host { name: name.to_owned(), port }).await
                && server.info.text("master_link_status") == Some("up")
            {
                replicas.push(server);
            }
        }
        replicas
    }

    /// What its keys weigh by. How its allocator was built it may not tell; then it is taken to be as Redis builds it.
    pub(crate) async fn model(&mut self) -> Model {
        let server = self.info.server();
        let number = server.number.unwrap_or_default();
        let layout = match server.kind {
            Kind::Valkey if number >= (9, 0) => Layout::Buckets9,
            Kind::Valkey if number >= (8, 1) => Layout::Buckets,
            _ => Layout::Dict,
        };
        let is_libc = self.info.text("mem_allocator").is_some_and(|name| name.starts_with("libc"));
        let allocator = if is_libc { Allocator::Libc } else { Allocator::Jemalloc { quantum: self.quantum().await } };
        Model::new(layout, allocator, self.is_cluster && number < (7, 4)).small_lists(number >= (7, 2))
    }

    async fn quantum(&mut self) -> u64 {
        let mut ask = redis::cmd("MEMORY");
        ask.arg("MALLOC-STATS");
        let text: String = ask.query_async(&mut self.connection).await.unwrap_or_default();
        let told = text.lines().find_map(|line| line.trim().strip_prefix("Quantum size:")?.trim().parse().ok());
        told.unwrap_or(8)
    }
}
