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
    let kind = match e.code() {
        Some("NOAUTH" | "WRONGPASS" | "NOPERM") => ErrorKind::Configuration,
        _ if e.kind() == redis::ErrorKind::AuthenticationFailed => ErrorKind::Configuration,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, format!("{} does not answer; check the URL, its user and password", host.address())).because(e)
}

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
        servers.push(Server::connect(options, host).await?);
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
        let asked = async {
            let mut connection = connect_for_waiting(options, &host, PATIENCE).await?;
            let info: String = redis::cmd("INFO").query_async(&mut connection).await?;
            Ok::<_, redis::RedisError>((connection, Info::parse(&info)))
        };
        let (connection, info) = asked.await.map_err(|e| failed(&host, e))?;
        let is_cluster = matches!(options.mode, Mode::Cluster(_)) || info.number("cluster_enabled") == Some(1);
        let address = host.address();
        let database = u64::try_from(options.database).unwrap_or(0);
        Ok(Self { host, address, info, connection, is_cluster, database, options: options.clone() })
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
        Error::new(ErrorKind::Unavailable, format!("{} stopped answering", self.address)).because(e)
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
