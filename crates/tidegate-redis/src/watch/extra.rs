//! What is asked beside `INFO`, as far as it is permitted.

use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};
use tidegate_core::doctor::replica_buffer;
use tidegate_core::watch::{Client, Config, Host, Info, Kind, SlowCommand};

use super::{host, parse};
use crate::asks::{all, command};
use crate::connect::RedisResult;

/// How often settings are read again.
const SETTINGS: Duration = Duration::from_secs(30);
/// How long nothing is asked again that was forbidden: each try counts as an error on the server.
const FORBIDDEN: Duration = Duration::from_secs(3_600);
/// How often clients are listed, while there is a reason.
const CLIENTS: Duration = Duration::from_secs(2);
/// A list of more clients than this would itself stop the server.
const MOST_CLIENTS: u64 = 5_000;
/// Buffers that are a reason to look whose they are, bytes: one client's, all clients'.
const LARGE: (u64, u64) = (512 << 10, 8 << 20);
/// How often the machine is looked at.
const MACHINE: Duration = Duration::from_secs(10);
/// Entries of the slow log that are read at once.
const ENTRIES: i64 = 32;
/// Fewer keys than this part of those before: it is looked whether somebody deleted everything.
const FEWER: u64 = 2;
/// How often it is read how often everything was deleted: one that was before the last time has not taken what goes now.
const STATS: Duration = Duration::from_secs(5);
/// It is looked so often: a flush may be counted only when the memory is free again.
const FLUSH_LOOKS: u32 = 10;
/// Wasted memory from which on it is asked whether the server can move allocations together.
const WASTE: u64 = 64 << 20;

const NAMES: [&str; 5] =
    ["save", "client-output-buffer-limit", "stop-writes-on-bgsave-error", "activedefrag", "slowlog-log-slower-than"];

/// What was learnt beside `INFO`, and when.
#[derive(Debug, Default)]
pub(super) struct Extra {
    run_id: String,
    config: Config,
    config_at: Option<Instant>,
    defrag_asked: bool,
    host: Host,
    host_at: Option<Instant>,
    /// Those of the last list; a finding may open between two.
    clients: Vec<Client>,
    clients_at: Option<Instant>,
    clients_forbidden: Option<Instant>,
    slow_forbidden: Option<Instant>,
    /// The newest entry of the slow log that was seen.
    slow_id: Option<i64>,
    keys: Option<u64>,
    /// When it was read last how often everything was deleted.
    stats_at: Option<Instant>,
    /// How often that is still to be read because keys have gone.
    flushes_left: u32,
}

/// The answers to [`Extra::ahead`] and to [`Extra::beside`].
#[derive(Debug, Default)]
pub(super) struct Sent {
    pub(super) stats: Option<RedisResult<Value>>,
    pub(super) newest: Option<RedisResult<Value>>,
}

/// What a round adds to `INFO`.
#[derive(Debug, Default)]
pub(super) struct Added {
    pub(super) config: Config,
    pub(super) host: Host,
    pub(super) clients: Vec<Client>,
    pub(super) slow: Option<Vec<SlowCommand>>,
    pub(super) flushes: Option<u64>,
}

fn is_due(at: Option<Instant>, every: Duration) -> bool {
    at.is_none_or(|at| at.elapsed() >= every)
}

impl Extra {
    /// The command to send before `INFO`, if it is time: a deletion of everything that it counts already has taken from the keys
    /// that `INFO` then shows.
    pub(super) fn ahead(&self) -> Option<Cmd> {
        (is_due(self.stats_at, STATS) || self.flushes_left > 0).then(|| command(&["INFO", "commandstats"]))
    }

    /// The commands to send together with `INFO`.
    pub(super) fn beside(&self) -> Option<Cmd> {
        self.may_read_slow_log().then(|| command(&["SLOWLOG", "GET", "1"]))
    }

    fn may_read_slow_log(&self) -> bool {
        is_due(self.slow_forbidden, FORBIDDEN)
    }

    /// Asks whatever `info` gives a reason for. What fails is left out: what it lacks is unknown.
    pub(super) async fn ask(&mut self, connection: &mut MultiplexedConnection, info: &Info, sent: Sent) -> Added {
        if info.text("run_id").is_some_and(|run_id| run_id != self.run_id) {
            let kept = Self { host_at: None, ..std::mem::take(self) };
            *self = Self {
                clients_forbidden: kept.clients_forbidden,
                slow_forbidden: kept.slow_forbidden,
                ..Self::default()
            };
            info.text("run_id").unwrap_or_default().clone_into(&mut self.run_id);
        }
        let slow = self.slow(connection, sent.newest).await;
        self.read_config(connection).await;
        self.ask_defrag(connection, info).await;
        if is_due(self.host_at, MACHINE) {
            (self.host, self.host_at) = (host::seen(info), Some(Instant::now()));
        }
        let clients = self.clients(connection, info).await;
        let flushes = self.flushes(connection, info, sent.stats).await;
        Added { config: self.config.clone(), host: self.host, clients, slow, flushes }
    }

    async fn slow(
        &mut self,
        connection: &mut MultiplexedConnection,
        newest: Option<RedisResult<Value>>,
    ) -> Option<Vec<SlowCommand>> {
        let newest = match newest? {
            Ok(answer) => parse::slow(&answer).first().map_or(-1, |(id, _)| *id),
            Err(e) => {
                if e.code().is_some() {
                    self.slow_forbidden = Some(Instant::now());
                }
                return None;
            }
        };
        // What was slow before the first look is no news.
        let known = self.slow_id.replace(newest);
        let Some(known) = known.filter(|known| newest > *known) else { return Some(Vec::new()) };
        let count = (newest - known).min(ENTRIES).to_string();
        let answer = all(connection, &[command(&["SLOWLOG", "GET", &count])]).await.ok()?.pop()?.ok()?;
        let news = parse::slow(&answer).into_iter().filter(|(id, _)| *id > known);
        Some(news.map(|(_, entry)| entry).collect())
    }

    async fn read_config(&mut self, connection: &mut MultiplexedConnection) {
        let every = if self.config.permitted == Some(false) { FORBIDDEN } else { SETTINGS };
        if !is_due(self.config_at, every) {
            return;
        }
        // One by one: servers before 7.0 take a single name.
        let Ok(mut first) = all(connection, &[command(&["CONFIG", "GET", NAMES[0]])]).await else { return };
        self.config_at = Some(Instant::now());
        let save = match first.pop() {
            Some(Ok(answer)) => parse::setting(&answer, NAMES[0]),
            _ => {
                self.config = Config { permitted: Some(false), ..Config::default() };
                return;
            }
        };
        let rest: Vec<Cmd> = NAMES[1..].iter().map(|name| command(&["CONFIG", "GET", name])).collect();
        let Ok(answers) = all(connection, &rest).await else { return };
        let values: Vec<Option<String>> = NAMES[1..]
            .iter()
            .zip(answers)
            .map(|(name, answer)| answer.ok().and_then(|answer| parse::setting(&answer, name)))
            .collect();
        let [buffers, stops, defrag, slower] = &values[..] else { return };
        let is_on = |value: &Option<String>| value.as_deref().map(|value| value == "yes");
        self.config = Config {
            permitted: Some(true),
            save: save.map(|save| parse::save_points(&save)),
            replica_buffer: buffers.as_deref().and_then(replica_buffer),
            stops_writes: is_on(stops),
            active_defrag: is_on(defrag),
            can_defrag: self.config.can_defrag.or(is_on(defrag).filter(|on| *on)),
            slower_than_us: slower.as_deref().and_then(|value| value.parse().ok()),
        };
    }

    /// Asks once whether the server can move allocations together, when it may soon be of use to know: with a `CONFIG SET` of
    /// which the second value is no value. From 7.0 on such a command changes all or nothing, so nothing; a server that cannot
    /// says so before it looks at the second.
    async fn ask_defrag(&mut self, connection: &mut MultiplexedConnection, info: &Info) {
        let waste =
            info.number("used_memory_rss").zip(info.number("used_memory")).map(|(rss, used)| rss.saturating_sub(used));
        let has_reason = waste.is_some_and(|waste| waste >= WASTE);
        if self.defrag_asked
            || self.config.permitted != Some(true)
            || self.config.can_defrag.is_some()
            || !asks_all_or_nothing(info)
            || !has_reason
        {
            return;
        }
        let question = command(&["CONFIG", "SET", "activedefrag", "yes", "hz", "none"]);
        let Ok(mut answers) = all(connection, &[question]).await else { return };
        self.defrag_asked = true;
        if let Some(Err(e)) = answers.pop() {
            self.config.can_defrag = can_defrag(&e.to_string());
        }
    }

    async fn clients(&mut self, connection: &mut MultiplexedConnection, info: &Info) -> Vec<Client> {
        let number = |name: &str| info.number(name).unwrap_or_default();
        let has_reason = number("client_recent_max_input_buffer") >= LARGE.0 || number("mem_clients_normal") >= LARGE.1;
        let may = is_due(self.clients_forbidden, FORBIDDEN) && number("connected_clients") <= MOST_CLIENTS;
        if !has_reason || !may {
            self.clients.clear();
            return Vec::new();
        }
        if !is_due(self.clients_at, CLIENTS) {
            return self.clients.clone();
        }
        self.clients_at = Some(Instant::now());
        let Ok(mut answers) = all(connection, &[command(&["CLIENT", "LIST"])]).await else { return Vec::new() };
        match answers.pop() {
            Some(Ok(list)) => self.clients = parse::clients(&parse::text(&list)),
            _ => self.clients_forbidden = Some(Instant::now()),
        }
        self.clients.clone()
    }

    async fn flushes(
        &mut self,
        connection: &mut MultiplexedConnection,
        info: &Info,
        sent: Option<RedisResult<Value>>,
    ) -> Option<u64> {
        let keys = info.keyspaces().map(|db| db.keys).fold(0, u64::saturating_add);
        let before = self.keys.replace(keys);
        let has_reason = before.is_some_and(|before| keys < before - before / FEWER);
        if has_reason {
            self.flushes_left = FLUSH_LOOKS;
        }
        let answer = if has_reason {
            // What was sent ahead may not have what took the keys.
            all(connection, &[command(&["INFO", "commandstats"])]).await.ok()?.pop()?
        } else {
            sent?
        };
        self.flushes_left = self.flushes_left.saturating_sub(1);
        self.stats_at = Some(Instant::now());
        let stats = Info::parse(&parse::text(&answer.ok()?));
        Some(stats.calls("flushall").saturating_add(stats.calls("flushdb")))
    }
}

/// Whether a `CONFIG SET` of several values changes all of them or none.
pub(crate) fn asks_all_or_nothing(info: &Info) -> bool {
    let server = info.server();
    match server.kind {
        Kind::Redis => server.number.is_some_and(|number| number >= (7, 0)),
        Kind::Valkey => true,
        Kind::Other => false,
    }
}

/// What a server says to `CONFIG SET activedefrag yes hz none`.
pub(crate) fn can_defrag(error: &str) -> Option<bool> {
    let error = error.to_lowercase();
    if error.contains("'hz'") {
        Some(true)
    } else if error.contains("defragmentation cannot be enabled") {
        Some(false)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_servers_say_of_defragmentation() {
        for (error, want) in [
            (
                "ERR CONFIG SET failed (possibly related to argument 'activedefrag') - Active defragmentation cannot be enabled: it \
                 requires a Redis server compiled with a modified Jemalloc",
                Some(false),
            ),
            (
                "ERR CONFIG SET failed (possibly related to argument 'hz') - argument couldn't be parsed into an integer",
                Some(true),
            ),
            ("ERR wrong number of arguments", None),
            ("NOPERM", None),
        ] {
            assert_eq!(can_defrag(error), want, "{error}");
        }
    }
}
