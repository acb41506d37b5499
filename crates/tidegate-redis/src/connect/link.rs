//! Connections as they are made: to one server, to the master that sentinels name, to a Cluster.

use std::time::Duration;

#[cfg(feature = "cluster")]
use futures_util::future::join_all;
use futures_util::future::select_ok;
use redis::aio::{AsyncPushSender, ConnectionLike, MultiplexedConnection};
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, Cmd, ConnectionAddr, IntoConnectionInfo, Pipeline, ProtocolVersion};
use redis::{RedisConnectionInfo, RedisError, Value};

use super::options::{Host, Login, Mode, RedisOptions};

pub(crate) type RedisResult<T> = redis::RedisResult<T>;

/// A connection is dropped when the kernel has had no answer to what it sent for this long.
const USER_TIMEOUT: Duration = Duration::from_secs(5);
/// Commands that may wait for the connection's task; callers beyond wait their turn.
const BUFFER: usize = 512;

/// A live connection. Cloning it is cheap; clones share it.
#[derive(Clone)]
pub(crate) enum Link {
    One(MultiplexedConnection),
    #[cfg(feature = "cluster")]
    Cluster(redis::cluster_async::ClusterConnection),
}

impl Link {
    /// The connection to the only server there is.
    pub(crate) fn to_one(&self) -> Option<MultiplexedConnection> {
        match self {
            Link::One(connection) => Some(connection.clone()),
            #[cfg(feature = "cluster")]
            Link::Cluster(_) => None,
        }
    }

    /// Runs one command.
    pub(crate) async fn one(&self, command: Cmd) -> RedisResult<Value> {
        match self {
            Link::One(connection) => {
                // A clone is a few counters; the connection behind it is the same.
                let mut connection = connection.clone();
                connection.send_packed_command(&command).await?.extract_error()
            }
            #[cfg(feature = "cluster")]
            Link::Cluster(connection) => connection.clone().req_packed_command(&command).await?.extract_error(),
        }
    }

    /// Runs `commands` in one go; each has an answer of its own.
    pub(crate) async fn run(&self, mut commands: Vec<Cmd>) -> Vec<RedisResult<Value>> {
        let count = commands.len();
        match self {
            Link::One(connection) => {
                let mut connection = connection.clone();
                if count == 1
                    && let Some(command) = commands.pop()
                {
                    return vec![connection.req_packed_command(&command).await.and_then(Value::extract_error)];
                }
                let mut pipeline = Pipeline::with_capacity(count);
                for command in commands {
                    pipeline.add_command(command);
                }
                match connection.send_packed_commands(&pipeline, 0, count).await {
                    Ok(values) => values.into_iter().map(Value::extract_error).collect(),
                    Err(e) => (0..count).map(|_| Err(e.clone())).collect(),
                }
            }
            #[cfg(feature = "cluster")]
            Link::Cluster(connection) => {
                // The client routes each by its keys; all are on their way at once.
                join_all(commands.into_iter().map(|command| {
                    let mut connection = connection.clone();
                    async move { connection.req_packed_command(&command).await.and_then(Value::extract_error) }
                }))
                .await
            }
        }
    }

    /// What every server that holds keys answers to `INFO section`.
    pub(crate) async fn info(&self, section: &str) -> RedisResult<Vec<String>> {
        let mut command = redis::cmd("INFO");
        command.arg(section);
        match self {
            Link::One(connection) => {
                let mut connection = connection.clone();
                Ok(vec![command.query_async(&mut connection).await?])
            }
            #[cfg(feature = "cluster")]
            Link::Cluster(connection) => {
                use redis::cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo};
                let mut connection = connection.clone();
                let routing = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
                let value = connection.route_command(command, routing).await?;
                let answers: std::collections::HashMap<String, String> = redis::from_redis_value(value)?;
                Ok(answers.into_values().collect())
            }
        }
    }
}

/// A connection as its server knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seat {
    /// The life of the server.
    run_id: String,
    /// The number that the server gave the connection.
    number: i64,
}

impl Link {
    /// Who it is to its server; `None`: that does not tell, or there are several.
    pub(super) async fn seat(&self) -> Option<Seat> {
        let mut connection = self.to_one()?;
        let mut both = Pipeline::with_capacity(2);
        both.cmd("CLIENT").arg("ID").cmd("INFO").arg("server");
        let told: RedisResult<(i64, String)> = both.query_async(&mut connection).await;
        let (number, info) = told.inspect_err(|e| tracing::debug!(error = %e, "a connection without a number")).ok()?;
        Some(Seat { run_id: super::run_id(&info)?.to_owned(), number })
    }

    /// Has its server end the connection that this one replaces, `present` being its own: what was sent on that and has not
    /// arrived is carried out no more. A server that was started again has none of it.
    pub(super) async fn replace(&self, before: &Seat, present: &Seat) {
        let Some(mut connection) = self.to_one().filter(|_| before.run_id == present.run_id && before != present)
        else {
            return;
        };
        let mut kill = redis::cmd("CLIENT");
        kill.arg("KILL").arg("ID").arg(before.number);
        let ended: RedisResult<i64> = kill.query_async(&mut connection).await;
        if let Err(e) = ended {
            tracing::debug!(error = %e, "what was sent on the connection before may still be carried out");
        }
    }
}

/// A master of a Cluster, and a slot it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Master {
    pub(crate) host: Host,
    pub(crate) slot: u16,
}

impl Link {
    /// The masters of a Cluster, each once; none for a server alone.
    pub(crate) async fn masters(&self) -> RedisResult<Vec<Master>> {
        if self.to_one().is_some() {
            return Ok(Vec::new());
        }
        let mut command = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        let ranges: Vec<Vec<Value>> = redis::from_redis_value(self.one(command).await?)?;
        let mut masters: Vec<Master> = Vec::new();
        for range in ranges {
            let [Value::Int(slot), _, Value::Array(node), ..] = &range[..] else { continue };
            let [Value::BulkString(name), Value::Int(port), ..] = &node[..] else { continue };
            let (Ok(slot), Ok(port)) = (u16::try_from(*slot), u16::try_from(*port)) else { continue };
            let host = Host { name: String::from_utf8_lossy(name).into_owned(), port };
            if masters.iter().all(|master| master.host != host) {
                masters.push(Master { host, slot });
            }
        }
        Ok(masters)
    }
}

/// Makes a fresh connection.
pub(crate) async fn connect(options: &RedisOptions) -> RedisResult<Link> {
    let limit = options.connect_timeout * 2 + options.response_timeout;
    let connecting = async {
        match &options.mode {
            Mode::Standalone(host) => one(options, host).await,
            Mode::Sentinel { .. } => one(options, &master(options).await?).await,
            Mode::Cluster(hosts) => cluster(options, hosts).await,
        }
    };
    // redis-rs #1953: connecting to a Cluster can hang.
    tokio::time::timeout(limit, connecting).await.map_err(|_| timed_out())?
}

async fn one(options: &RedisOptions, host: &Host) -> RedisResult<Link> {
    let client = client(options, host, &options.login, options.database)?;
    let mut connection = client.get_multiplexed_async_connection_with_config(&config(options)).await?;
    if matches!(options.mode, Mode::Sentinel { .. }) {
        // A master that was replaced may not know it yet, and a sentinel may be late to hear of it.
        let role: Vec<Value> = redis::cmd("ROLE").query_async(&mut connection).await?;
        if role.first() != Some(&Value::BulkString(b"master".to_vec())) {
            return Err((redis::ErrorKind::Client, "the server that the sentinels name is no master").into());
        }
    }
    Ok(Link::One(connection))
}

#[cfg(not(feature = "cluster"))]
async fn cluster(_options: &RedisOptions, _hosts: &[Host]) -> RedisResult<Link> {
    Err((redis::ErrorKind::InvalidClientConfig, "this build knows no Cluster").into())
}

#[cfg(feature = "cluster")]
async fn cluster(options: &RedisOptions, hosts: &[Host]) -> RedisResult<Link> {
    let addresses: RedisResult<Vec<_>> =
        hosts.iter().map(|host| Ok(client(options, host, &options.login, 0)?.get_connection_info().clone())).collect();
    let mut builder = redis::cluster::ClusterClientBuilder::new(addresses?)
        .connection_timeout(options.connect_timeout)
        .response_timeout(options.response_timeout)
        .tcp_settings(tcp())
        .retries(3)
        .min_retry_wait(10)
        .max_retry_wait(100);
    #[cfg(feature = "tls")]
    if let Some(certificates) = certificates(options) {
        builder = builder.certs(certificates);
    }
    if let Some(user) = &options.login.user {
        builder = builder.username(user);
    }
    if let Some(password) = &options.login.password {
        builder = builder.password(password);
    }
    Ok(Link::Cluster(builder.build()?.get_async_connection().await?))
}

/// The address of the master, by the word of the sentinel that answers first.
pub(crate) async fn master(options: &RedisOptions) -> RedisResult<Host> {
    let Mode::Sentinel { hosts, service, login } = &options.mode else {
        return Err((redis::ErrorKind::EmptySentinelList, "no sentinels are named").into());
    };
    let asked = hosts.iter().map(|host| {
        Box::pin(async move {
            let client = client(options, host, login, 0)?;
            let mut connection = client.get_multiplexed_async_connection_with_config(&config(options)).await?;
            let mut ask = redis::cmd("SENTINEL");
            ask.arg("GET-MASTER-ADDR-BY-NAME").arg(service);
            let address: Option<(String, u16)> = ask.query_async(&mut connection).await?;
            let unknown = "a sentinel does not know the service";
            let (name, port) =
                address.ok_or_else(|| RedisError::from((redis::ErrorKind::MasterNameNotFoundBySentinel, unknown)))?;
            Ok::<_, RedisError>(Host { name, port })
        })
    });
    Ok(select_ok(asked).await?.0)
}

/// A connection for subscriptions, to `host`; what it hears goes to `push`.
pub(crate) async fn connect_for_pushes(
    options: &RedisOptions,
    host: &Host,
    push: impl AsyncPushSender,
) -> RedisResult<MultiplexedConnection> {
    let client = client(options, host, &options.login, options.database)?;
    let info = client.get_connection_info().clone();
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    let client = Client::open(info.set_redis_settings(settings))?;
    client.get_multiplexed_async_connection_with_config(&config(options).set_push_sender(push)).await
}

/// A connection to `host` for commands that wait; whoever is silent for `patience` is given up.
pub(crate) async fn connect_for_waiting(
    options: &RedisOptions,
    host: &Host,
    patience: Duration,
) -> RedisResult<MultiplexedConnection> {
    let client = client(options, host, &options.login, options.database)?;
    let config = config(options).set_response_timeout(Some(patience));
    let connecting = client.get_multiplexed_async_connection_with_config(&config);
    let limit = options.connect_timeout + options.response_timeout;
    tokio::time::timeout(limit, connecting).await.map_err(|_| timed_out())?
}

/// Where to listen: the only server, the master, or any node of a Cluster (they tell each other what is published).
pub(crate) async fn listening_hosts(options: &RedisOptions) -> RedisResult<Vec<Host>> {
    Ok(match &options.mode {
        Mode::Standalone(host) => vec![host.clone()],
        Mode::Sentinel { .. } => vec![master(options).await?],
        Mode::Cluster(hosts) => hosts.clone(),
    })
}

fn client(options: &RedisOptions, host: &Host, login: &Login, database: i64) -> RedisResult<Client> {
    let (name, port) = (host.name.clone(), host.port);
    let addr = if options.tls {
        ConnectionAddr::TcpTls { host: name, port, insecure: false, tls_params: None }
    } else {
        ConnectionAddr::Tcp(name, port)
    };
    let mut settings = RedisConnectionInfo::default().set_db(database).set_skip_set_lib_name();
    if let Some(user) = &login.user {
        settings = settings.set_username(user);
    }
    if let Some(password) = &login.password {
        settings = settings.set_password(password);
    }
    let info = addr.into_connection_info()?.set_redis_settings(settings).set_tcp_settings(tcp());
    #[cfg(feature = "tls")]
    if let Some(certificates) = certificates(options) {
        return Client::build_with_tls(info, certificates);
    }
    Client::open(info)
}

#[cfg(feature = "tls")]
fn certificates(options: &RedisOptions) -> Option<redis::TlsCertificates> {
    // The provider is installed once for the process; whoever came first has chosen it.
    let _ = options.tls.then(|| rustls::crypto::ring::default_provider().install_default());
    let root_cert = options.authority.clone();
    (options.tls && root_cert.is_some()).then_some(redis::TlsCertificates { client_tls: None, root_cert })
}

fn config(options: &RedisOptions) -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(Some(options.connect_timeout))
        .set_response_timeout(Some(options.response_timeout))
        .set_pipeline_buffer_size(BUFFER)
}

fn tcp() -> TcpSettings {
    let settings = TcpSettings::default().set_nodelay(true);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(USER_TIMEOUT);
    settings
}

pub(super) fn timed_out() -> RedisError {
    std::io::Error::new(std::io::ErrorKind::TimedOut, "no connection in time").into()
}
