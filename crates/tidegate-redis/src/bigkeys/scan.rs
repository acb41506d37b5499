//! The SCAN route: looks at every key in small steps, with pauses between them.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use redis::{Cmd, Value};
use tidegate_backend::Result;
use tidegate_backend::clock::host_now;

use super::collect::{BigKey, Collector, MAX_PREFIXES, Seen};
use super::names::prefix;
use super::rdb::Kind;
use super::server::Server;
use super::weight::Weight;
use super::{Pace, Progress};

/// Keys of the first step, and of the smallest and the largest.
const FIRST: u64 = 20;
const STEPS: (u64, u64) = (5, 400);
/// What a step may take of the server's time.
const BUDGET: Duration = Duration::from_micros(300);
/// The pause after a step, in times of what it took: a duty of 25 % and 50 %.
const PAUSE: [u32; 2] = [3, 1];
/// Elements of a collection that `MEMORY USAGE` looks at: of every key, and of those that seem the largest.
const SAMPLES: [u32; 2] = [5, 100];
/// Keys of which more is asked at once, and the pause after them.
const DETAILS: usize = 8;
const DETAILS_PAUSE: Duration = Duration::from_millis(1);
/// Of how many keys of a prefix the type is asked; if all are alike, it is asked of one in [`CHECKED`] of the others.
const ASKED: u32 = 64;
const CHECKED: u64 = 16;
/// How often the way to the server is measured.
const MEASURE: u32 = 256;

/// What was not permitted.
#[derive(Debug, Default)]
pub(super) struct Missing {
    pub(super) kinds: bool,
    pub(super) sizes: bool,
    /// Databases that could not be gone into, and the keys they have.
    pub(super) databases: Vec<(u32, u64)>,
}

/// The types of keys by their prefix, as far as they are alike.
#[derive(Debug, Default)]
struct Types(HashMap<Vec<u8>, (Kind, u32)>);

impl Types {
    /// The type of a key that need not be asked for.
    fn guess(&self, name: &[u8]) -> Option<Kind> {
        let (kind, seen) = self.0.get(prefix(name))?;
        (*seen >= ASKED).then_some(*kind)
    }

    fn learn(&mut self, name: &[u8], kind: Kind) {
        let prefix = prefix(name);
        if prefix.is_empty() {
            return;
        }
        let has_room = self.0.len() < MAX_PREFIXES;
        match self.0.get_mut(prefix) {
            Some((known, seen)) if *known == kind => *seen = seen.saturating_add(1),
            Some((known, seen)) => (*known, *seen) = (kind, 0),
            None if has_room => {
                self.0.insert(prefix.to_vec(), (kind, 1));
            }
            None => {}
        }
    }
}

/// A key of a step: its name, and its type if it need not be asked for.
struct Next {
    name: Vec<u8>,
    kind: Option<Kind>,
}

/// How a walk went.
pub(super) struct Walked {
    pub(super) collector: Collector,
    /// Whether it came to its end before the deadline.
    pub(super) is_whole: bool,
    pub(super) missing: Missing,
    /// Whether some types were not asked for.
    pub(super) has_guessed: bool,
    types: Types,
    number: u64,
}

/// How large a step is, and how long the pause after it.
struct Stride {
    keys: u64,
    pause: u32,
    /// The way there and back, without any work.
    way: Duration,
}

impl Stride {
    fn new(pace: Pace) -> Self {
        Self { keys: FIRST, pause: PAUSE[usize::from(pace == Pace::Fast)], way: Duration::MAX }
    }

    /// A step took `took`, the way included; the pause that is due.
    fn after(&mut self, took: Duration) -> Duration {
        let work = took.saturating_sub(self.way);
        if work > BUDGET {
            self.keys = (self.keys * 2 / 3).max(STEPS.0);
        } else if work < BUDGET / 2 {
            self.keys = (self.keys + self.keys / 4 + 1).min(STEPS.1);
        }
        // A step that others held up is not ours to pay for without end.
        (work * self.pause).clamp(Duration::from_micros(100), Duration::from_millis(50))
    }
}

impl Walked {
    fn next(&mut self, name: Vec<u8>) -> Next {
        self.number += 1;
        let kind = if self.number.is_multiple_of(CHECKED) { None } else { self.types.guess(&name) };
        self.has_guessed |= kind.is_some();
        Next { name, kind }
    }
}

fn command(words: &[&[u8]]) -> Cmd {
    let mut command = Cmd::new();
    for word in words {
        command.arg(*word);
    }
    command
}

fn kind_of(name: &str) -> Kind {
    [Kind::String, Kind::List, Kind::Set, Kind::SortedSet, Kind::Hash, Kind::Stream]
        .into_iter()
        .find(|kind| kind.name() == name)
        .unwrap_or(Kind::Module)
}

/// Looks at every key of `server`, up to `deadline`.
pub(super) async fn walk(
    server: &mut Server,
    collector: Collector,
    pace: Pace,
    deadline: Instant,
    progress: &Progress,
) -> Result<Walked> {
    let databases: Vec<(u32, u64)> = server.info.keyspaces().map(|db| (db.db, db.keys)).collect();
    let mut walked = Walked {
        collector,
        is_whole: true,
        missing: Missing::default(),
        has_guessed: false,
        types: Types::default(),
        number: 0,
    };
    let mut stride = Stride::new(pace);
    for (database, keys) in databases {
        if !go_into(server, u64::from(database)).await? {
            walked.missing.databases.push((database, keys));
            continue;
        }
        if !through(server, u64::from(database), &mut stride, &mut walked, deadline, progress).await? {
            walked.is_whole = false;
            break;
        }
    }
    details(server, &mut walked).await?;
    Ok(walked)
}

async fn one(server: &mut Server, command: &Cmd) -> Result<redis::RedisResult<Value>> {
    let answers = server.all(std::slice::from_ref(command)).await;
    answers.map(|mut answers| answers.pop().unwrap_or(Ok(Value::Nil))).map_err(|e| server.unavailable(e))
}

/// Goes into a database; false: that is not permitted. Where the connection is already nothing is asked.
async fn go_into(server: &mut Server, database: u64) -> Result<bool> {
    if server.database == database {
        return Ok(true);
    }
    match one(server, &command(&[b"SELECT", database.to_string().as_bytes()])).await? {
        Ok(_) => {
            server.database = database;
            Ok(true)
        }
        Err(e) if e.code() == Some("NOPERM") => Ok(false),
        Err(e) => Err(server.unavailable(e)),
    }
}

/// Goes through a database; `false`: the time was over before its end.
async fn through(
    server: &mut Server,
    database: u64,
    stride: &mut Stride,
    walked: &mut Walked,
    deadline: Instant,
    progress: &Progress,
) -> Result<bool> {
    let mut cursor = b"0".to_vec();
    let mut keys: Vec<Next> = Vec::new();
    let mut is_begun = false;
    let mut steps = 0_u32;
    loop {
        if Instant::now() >= deadline {
            return Ok(false);
        }
        if steps.is_multiple_of(MEASURE) {
            let began = Instant::now();
            // Whatever it answers, it takes as long.
            let _ = one(server, &command(&[b"PING"])).await?;
            stride.way = if steps == 0 { began.elapsed() } else { stride.way.min(began.elapsed()) };
        }
        steps = steps.wrapping_add(1);
        // What is asked of the last step's keys, and the next step, in one round trip.
        let mut commands = asked(&keys, &walked.missing);
        let is_last = is_begun && cursor == b"0";
        if !is_last {
            commands.push(command(&[b"SCAN", &cursor, b"COUNT", stride.keys.to_string().as_bytes()]));
        }
        let began = Instant::now();
        let answers = match server.all(&commands).await {
            Ok(answers) => answers,
            Err(e) => return Err(server.unavailable(e)),
        };
        let took = began.elapsed();
        let mut answers = answers.into_iter();
        take(&keys, database, &mut answers, walked, progress);
        if is_last {
            return Ok(true);
        }
        let next = answers.next().unwrap_or(Ok(Value::Nil)).map_err(|e| server.unavailable(e))?;
        let names: Vec<Vec<u8>>;
        (cursor, names) = redis::from_redis_value(next).map_err(|e| server.unavailable(e.into()))?;
        keys = names.into_iter().map(|name| walked.next(name)).collect();
        is_begun = true;
        tokio::time::sleep(stride.after(took)).await;
    }
}

fn asked(keys: &[Next], missing: &Missing) -> Vec<Cmd> {
    let mut commands = Vec::with_capacity(keys.len() * 2 + 1);
    for Next { name, kind } in keys {
        if !missing.kinds && kind.is_none() {
            commands.push(command(&[b"TYPE", name]));
        }
        if !missing.sizes {
            commands.push(command(&[b"MEMORY", b"USAGE", name, b"SAMPLES", SAMPLES[0].to_string().as_bytes()]));
        }
    }
    commands
}

fn take(
    names: &[Next],
    database: u64,
    answers: &mut impl Iterator<Item = redis::RedisResult<Value>>,
    walked: &mut Walked,
    progress: &Progress,
) {
    let (has_kinds, has_sizes) = (!walked.missing.kinds, !walked.missing.sizes);
    let (mut keys, mut bytes) = (0, 0);
    for Next { name, kind: guessed } in names {
        let kind = if has_kinds && guessed.is_none() { answers.next() } else { None };
        let size = if has_sizes { answers.next() } else { None };
        let is_forbidden = |answer: &redis::RedisResult<Value>| answer.as_ref().is_err_and(|e| e.code().is_some());
        walked.missing.kinds |= kind.as_ref().is_some_and(is_forbidden);
        walked.missing.sizes |= size.as_ref().is_some_and(is_forbidden);
        if matches!(size, Some(Ok(Value::Nil))) {
            // It ended meanwhile.
            continue;
        }
        let kind = match kind {
            Some(Ok(Value::SimpleString(kind))) => {
                let kind = kind_of(&kind);
                walked.types.learn(name, kind);
                kind
            }
            _ => guessed.unwrap_or(Kind::Unknown),
        };
        let weight = match size {
            Some(Ok(Value::Int(size))) => Some(Weight { bytes: u64::try_from(size).unwrap_or_default(), pieces: 1 }),
            _ => None,
        };
        (keys, bytes) = (keys + 1, bytes + weight.map_or(0, |weight| weight.bytes));
        let (name_length, encoding, elements, expires_at) = (name.len() as u64, None, None, None);
        walked.collector.add(&Seen { database, name, name_length, kind, encoding, elements, weight, expires_at });
    }
    progress.add(keys, bytes);
}

/// Asks of the largest how they are stored, how many elements they have, when they end, and again how large they are.
async fn details(server: &mut Server, walked: &mut Walked) -> Result<()> {
    let mut largest = walked.collector.take_largest();
    largest.sort_by_key(|key| key.database);
    for keys in largest.chunk_by_mut(|a, b| a.database == b.database) {
        if !go_into(server, keys[0].database).await? {
            continue;
        }
        // A name that was cut is another key's.
        let mut keys: Vec<&mut BigKey> =
            keys.iter_mut().filter(|key| key.name_length == key.name.len() as u64).collect();
        for keys in keys.chunks_mut(DETAILS) {
            if !walked.missing.kinds {
                let commands: Vec<Cmd> = keys.iter().map(|key| command(&[b"TYPE", &key.name])).collect();
                let answers = server.all(&commands).await.map_err(|e| server.unavailable(e))?;
                for (key, answer) in keys.iter_mut().zip(answers) {
                    if let Ok(Value::SimpleString(kind)) = answer
                        && kind != "none"
                    {
                        walked.collector.retype(key, kind_of(&kind));
                    }
                }
            }
            let commands: Vec<Cmd> = keys.iter().flat_map(|key| more_of(key)).collect();
            let answers = server.all(&commands).await.map_err(|e| server.unavailable(e))?;
            for (key, answers) in keys.iter_mut().zip(answers.chunks_exact(4)) {
                let number = |at: usize| match &answers[at] {
                    Ok(Value::Int(number)) => Some(*number),
                    _ => None,
                };
                key.elements = number(0)
                    .and_then(|n| u64::try_from(n).ok())
                    .filter(|_| !matches!(key.kind, Kind::Module | Kind::Unknown));
                key.encoding = match &answers[1] {
                    Ok(Value::BulkString(name)) => Some(String::from_utf8_lossy(name).into_owned()),
                    _ => None,
                };
                key.ttl_ms = number(2).filter(|ttl| *ttl >= 0);
                if let Some(bytes) = number(3).and_then(|n| u64::try_from(n).ok()) {
                    walked.collector.correct(key, bytes);
                }
                key.pieces = pieces(key);
            }
            tokio::time::sleep(DETAILS_PAUSE).await;
        }
    }
    walked.collector.put_back(largest);
    Ok(())
}

fn more_of(key: &BigKey) -> [Cmd; 4] {
    let count: &[u8] = match key.kind {
        Kind::String => b"STRLEN",
        Kind::List => b"LLEN",
        Kind::Set => b"SCARD",
        Kind::SortedSet => b"ZCARD",
        Kind::Hash => b"HLEN",
        Kind::Stream => b"XLEN",
        Kind::Module | Kind::Unknown => b"EXISTS",
    };
    [
        command(&[count, &key.name]),
        command(&[b"OBJECT", b"ENCODING", &key.name]),
        command(&[b"PTTL", &key.name]),
        command(&[b"MEMORY", b"USAGE", &key.name, b"SAMPLES", SAMPLES[1].to_string().as_bytes()]),
    ]
}

/// About how many pieces of memory a key consists of.
fn pieces(key: &BigKey) -> u64 {
    let (elements, bytes) = (key.elements.unwrap_or(0), key.bytes.unwrap_or(0));
    2 + match (key.encoding.as_deref(), key.kind) {
        (Some("skiplist"), _) | (Some("hashtable"), Kind::Hash) => elements.saturating_mul(3),
        (Some("hashtable"), _) => elements.saturating_mul(2),
        (Some("quicklist"), _) => bytes / 4_096,
        (Some("stream"), _) => bytes / 2_048,
        _ => 0,
    }
}

/// Now, milliseconds since 1970.
pub(super) fn now() -> i64 {
    host_now().0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_keep_to_their_budget() {
        let mut stride = Stride { keys: FIRST, pause: 3, way: Duration::from_micros(100) };
        assert_eq!(stride.after(Duration::from_micros(200)), Duration::from_micros(300));
        assert_eq!(stride.keys, 26);
        assert_eq!(stride.after(Duration::from_micros(300)), Duration::from_micros(600));
        assert_eq!(stride.keys, 26);
        assert_eq!(stride.after(Duration::from_micros(1_100)), Duration::from_millis(3));
        assert_eq!(stride.keys, 17);
        for _ in 0..50 {
            stride.after(Duration::from_secs(1));
        }
        assert_eq!((stride.keys, stride.after(Duration::from_secs(1))), (STEPS.0, Duration::from_millis(50)));
        for _ in 0..50 {
            stride.after(Duration::from_micros(100));
        }
        assert_eq!(stride.keys, STEPS.1);
    }
}
