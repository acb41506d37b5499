//! One server, asked on a connection of its own.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{RedisError, Value};
use tidegate_backend::clock::host_now;
use tidegate_core::Millis;
use tidegate_core::watch::{Answer, Info, Reply, Sample, Silence};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::extra::{Extra, Sent};
use super::late::timed;
use super::parse;
use crate::asks::all;
use crate::connect::{Host, RedisOptions, RedisResult, connect_for_waiting};

/// Silent rounds after which a new connection is made: the old one may lead nowhere.
const MAX_TIMEOUTS: u32 = 3;
/// What a server says that takes no more clients, and how long it is waited for.
const TURNED_AWAY: &[u8] = b"-ERR max number of clients";
const GREETING: Duration = Duration::from_millis(300);
/// Longest error that is shown, characters.
const SHOWN: usize = 200;

/// One server.
pub(super) struct Node {
    host: Host,
    address: String,
    options: RedisOptions,
    connection: Option<MultiplexedConnection>,
    timeouts: u32,
    extra: Extra,
}

impl Node {
    pub(super) fn new(host: Host, address: String, options: RedisOptions) -> Self {
        Self { host, address, options, connection: None, timeouts: 0, extra: Extra::default() }
    }

    /// Asks it once; ends within four times its patience.
    pub(super) async fn sample(&mut self) -> Sample {
        let at = host_now();
        let asked = match self.connected().await {
            Ok(connection) => self.ask(connection).await,
            Err(e) => Err((e, Duration::ZERO, false)),
        };
        match asked {
            Ok((answer, is_late)) => {
                self.timeouts = 0;
                self.sampled(at, Reply::Answer(Box::new(answer)), is_late)
            }
            Err((e, waited, is_late)) => {
                let kind = match silence(&e, waited) {
                    Silence::NoConnection if !e.is_connection_refusal() && self.turns_away().await => {
                        Silence::TooManyClients
                    }
                    kind => kind,
                };
                self.timeouts = if kind == Silence::Timeout { self.timeouts + 1 } else { 0 };
                if kind == Silence::NoConnection || kind == Silence::TooManyClients || self.timeouts >= MAX_TIMEOUTS {
                    (self.connection, self.timeouts) = (None, 0);
                }
                let why = why(&e, kind, waited);
                self.sampled(at, Reply::Silence { kind, why, waited_ms: waited.as_secs_f64() * 1_000.0 }, is_late)
            }
        }
    }

    fn sampled(&self, at: Millis, reply: Reply, is_late: bool) -> Sample {
        Sample { address: self.address.clone(), at, reply, is_late, tls: self.options.tls }
    }

    /// Whether it says, to everybody who comes, that it has too many clients, and hangs up. Whoever asks something meanwhile sees a
    /// broken connection and nothing of the words.
    async fn turns_away(&self) -> bool {
        if self.options.tls {
            return false;
        }
        let heard = async {
            let mut stream = TcpStream::connect((self.host.name.as_str(), self.host.port)).await.ok()?;
            let mut words = [0; 64];
            let length = stream.read(&mut words).await.ok()?;
            Some(words[..length].starts_with(TURNED_AWAY))
        };
        tokio::time::timeout(GREETING, heard).await.ok().flatten().unwrap_or(false)
    }

    async fn connected(&mut self) -> RedisResult<MultiplexedConnection> {
        if let Some(connection) = &self.connection {
            return Ok(connection.clone());
        }
        let connection = connect_for_waiting(&self.options, &self.host, self.options.response_timeout).await?;
        self.connection = Some(connection.clone());
        Ok(connection)
    }

    async fn ask(
        &mut self,
        mut connection: MultiplexedConnection,
    ) -> Result<(Answer, bool), (RedisError, Duration, bool)> {
        let ahead = self.extra.ahead();
        let is_ahead = ahead.is_some();
        let commands: Vec<_> = ahead.into_iter().chain([redis::cmd("INFO")]).chain(self.extra.beside()).collect();
        let (answers, took, is_late) = timed(all(&mut connection, &commands)).await;
        let failed = |e: RedisError| (e, took, is_late);
        let mut answers = answers.map_err(failed)?.into_iter();
        let stats = if is_ahead { answers.next() } else { None };
        let info = answers.next().unwrap_or(Ok(Value::Nil)).map_err(failed)?;
        let info = Info::parse(&parse::text(&info));
        // One wait for all of it; what comes too late is unknown.
        let added = self.extra.ask(&mut connection, &info, Sent { stats, newest: answers.next() });
        let added = tokio::time::timeout(self.options.response_timeout, added).await.unwrap_or_default();
        let answer = Answer {
            info,
            round_trip_ms: took.as_secs_f64() * 1_000.0,
            config: added.config,
            host: added.host,
            clients: added.clients,
            slow: added.slow,
            flushes: added.flushes,
        };
        Ok((answer, is_late))
    }
}

/// In which way it did not answer. `waited`: nothing while there is no connection.
fn silence(e: &RedisError, waited: Duration) -> Silence {
    if e.to_string().contains("max number of clients") {
        return Silence::TooManyClients;
    }
    match e.code() {
        Some("BUSY") => return Silence::Busy,
        Some("NOAUTH" | "WRONGPASS" | "NOPERM") => return Silence::Refused,
        _ => {}
    }
    if e.kind() == redis::ErrorKind::AuthenticationFailed {
        Silence::Refused
    } else if e.is_timeout() && waited > Duration::ZERO {
        Silence::Timeout
    } else if e.code().is_some() {
        // Whatever it is, it is an answer that is no INFO.
        Silence::Refused
    } else {
        Silence::NoConnection
    }
}

fn why(e: &RedisError, kind: Silence, waited: Duration) -> String {
    match kind {
        Silence::Timeout => format!("no answer within {:.1} s", waited.as_secs_f64()),
        Silence::NoConnection if e.is_timeout() => "no connection in time".to_owned(),
        _ => e.to_string().chars().map(|c| if c.is_control() { ' ' } else { c }).take(SHOWN).collect(),
    }
}
