//! The SCAN route: looks at every key in small steps, with pauses between them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use redis::{Cmd, Value};
use tidegate_backend::clock::host_now;
use tidegate_backend::{Error, ErrorKind, Result};

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
/// After how many steps the way to the server is measured anew, how many of these measures count, and how many steps.
const MEASURE: u32 = 32;
const WAYS: usize = 9;
const WORKS: usize = 15;
/// A pause is no shorter and no longer.
const PAUSES: (Duration, Duration) = (Duration::from_micros(100), Duration::from_millis(50));

/// How long a server that a look is in the middle of is waited for.
const GIVEN_UP: Duration = Duration::from_secs(30);
/// Between two tries.
const RETRY: Duration = Duration::from_millis(250);

/// What was not permitted.
#[derive(Debug, Default)]
pub(super) struct Missing {
    pub(super) kinds: bool,
    pub(super) sizes: bool,
    /// Keys that alone were refused: the user may not read them, or they are on their way to another server.
    pub(super) keys: u64,
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
///
/// What a step takes is seen from here alone: the way there and back, with two threads that must wake up for it, is often longer
/// than the work, and differs from step to step. So neither is taken from one step: the way is the median of some `PING`s that begin
/// as steps do, the work of a key the median of the last steps.
struct Stride {
    keys: u64,
    pause: u32,
    ways: Recent<WAYS>,
    /// Of the last steps, for each key.
    works: Recent<WORKS>,
}

/// The last `N`.
struct Recent<const N: usize>(VecDeque<Duration>);

impl<const N: usize> Recent<N> {
    fn add(&mut self, took: Duration) {
        if self.0.len() == N {
            self.0.pop_front();
        }
        self.0.push_back(took);
    }

    fn median(&self) -> Duration {
        let mut all: Vec<Duration> = self.0.iter().copied().collect();
        all.sort_unstable();
        all.get(all.len() / 2).copied().unwrap_or_default()
    }
}

impl Stride {
    fn new(pace: Pace) -> Self {
        let pause = PAUSE[usize::from(pace == Pace::Fast)];
        Self { keys: FIRST, pause, ways: Recent(VecDeque::new()), works: Recent(VecDeque::new()) }
    }

    /// A step of `keys` keys took `took`, the way included; the pause that is due.
    fn after(&mut self, keys: usize, took: Duration) -> Duration {
        let keys = u32::try_from(keys).unwrap_or(u32::MAX).max(1);
        let took = took.saturating_sub(self.ways.median());
        self.works.add(took / keys);
        let key = self.works.median();
        let next = key * u32::try_from(self.keys).unwrap_or(u32::MAX);
        if next > BUDGET {
            self.keys = (self.keys * 2 / 3).max(STEPS.0);
        } else if next < BUDGET / 2 {
            self.keys = (self.keys + self.keys / 4 + 1).min(STEPS.1);
        }
        // A step that others held up is not ours to pay for threefold, nor without end.
        (key * keys * self.pause).max(took).clamp(PAUSES.0, PAUSES.1)
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

/// What a server says that it will not say a moment later.
fn is_for_a_moment(answer: &redis::RedisResult<Value>) -> bool {
    answer.as_ref().is_err_and(|e| matches!(e.code(), Some("BUSY" | "LOADING" | "MASTERDOWN" | "TRYAGAIN")))
}

/// Asks, on another connection if this one breaks, and again while the server is busy for a moment.
async fn ask(server: &mut Server, commands: &[Cmd]) -> Result<Vec<redis::RedisResult<Value>>> {
    let began = Instant::now();
    loop {
        match server.all(commands).await {
            Ok(answers) if began.elapsed() >= GIVEN_UP || !answers.iter().any(is_for_a_moment) => return Ok(answers),
            Ok(_) => tokio::time::sleep(RETRY).await,
            Err(e) => again(server, began, e).await?,
        }
    }
}

/// Goes in again after the connection broke by `why`.
async fn again(server: &mut Server, began: Instant, why: redis::RedisError) -> Result<()> {
    loop {
        match server.connect_again().await {
            Ok(true) => return Ok(()),
            Ok(false) => {
                let why = format!("{} was started again meanwhile; look again", server.address);
                return Err(Error::new(ErrorKind::Unavailable, why));
            }
            // Its process is gone, and with it what was looked at.
            Err(e) if e.is_connection_refusal() || began.elapsed() >= GIVEN_UP => return Err(server.unavailable(why)),
            Err(_) => tokio::time::sleep(RETRY).await,
        }
    }
}

async fn one(server: &mut Server, command: &Cmd) -> Result<redis::RedisResult<Value>> {
    let answers = ask(server, std::slice::from_ref(command)).await;
    answers.map(|mut answers| answers.pop().unwrap_or(Ok(Value::Nil)))
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
            stride.ways.add(began.elapsed());
            tokio::time::sleep(PAUSES.0).await;
        }
        steps = steps.wrapping_add(1);
        // What is asked of the last step's keys, and the next step, in one round trip.
        let mut commands = asked(&keys, &walked.missing);
        let is_last = is_begun && cursor == b"0";
        if !is_last {
            commands.push(command(&[b"SCAN", &cursor, b"COUNT", stride.keys.to_string().as_bytes()]));
        }
        let began = Instant::now();
        let answers = ask(server, &commands).await?;
        let took = began.elapsed();
        let asked_of = keys.len();
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
        tokio::time::sleep(stride.after(asked_of.max(keys.len()), took)).await;
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

/// Whether a command may not be used at all; what is refused for one key says nothing of the next.
fn is_forbidden(answer: &redis::RedisResult<Value>) -> bool {
    // "has no permissions to run the 'x' command"; of a key "to access one of the keys", "to access a key".
    answer.as_ref().is_err_and(|e| match e.code() {
        Some("NOPERM") => !e.to_string().contains(" key"),
        // An unknown command, or one that was renamed.
        code => code == Some("ERR"),
    })
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
        walked.missing.kinds |= kind.as_ref().is_some_and(is_forbidden);
        walked.missing.sizes |= size.as_ref().is_some_and(is_forbidden);
        let is_refused = |answer: &Option<redis::RedisResult<Value>>| {
            answer.as_ref().is_some_and(|a| a.is_err() && !is_forbidden(a))
        };
        walked.missing.keys += u64::from(is_refused(&kind) || is_refused(&size));
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
    let mut gone = HashSet::new();
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
                let answers = ask(server, &commands).await?;
                for (key, answer) in keys.iter_mut().zip(answers) {
                    if let Ok(Value::SimpleString(kind)) = answer
                        && kind != "none"
                    {
                        walked.collector.retype(key, kind_of(&kind));
                    }
                }
            }
            let commands: Vec<Cmd> = keys.iter().flat_map(|key| more_of(key)).collect();
            let answers = ask(server, &commands).await?;
            for (key, answers) in keys.iter_mut().zip(answers.chunks_exact(4)) {
                if matches!(answers[2], Ok(Value::Int(-2))) || matches!(answers[3], Ok(Value::Nil)) {
                    gone.insert((key.database, key.name.clone()));
                    continue;
                }
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
    largest.retain(|key| {
        let is_there = !gone.contains(&(key.database, key.name.clone()));
        if !is_there {
            walked.collector.forget(key);
        }
        is_there
    });
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

    const US: Duration = Duration::from_micros(1);
    const WAY: Duration = Duration::from_micros(100);

    fn stride() -> Stride {
        let mut stride = Stride::new(Pace::Gentle);
        stride.ways.add(WAY);
        stride
    }

    /// What `steps` steps take a server that needs `key` for each.
    fn walked(stride: &mut Stride, steps: u32, key: Duration, late: impl Fn(u32) -> Duration) -> Duration {
        (0..steps).fold(Duration::ZERO, |_, step| {
            let work = key * u32::try_from(stride.keys).unwrap();
            stride.after(usize::try_from(stride.keys).unwrap(), WAY + work + late(step))
        })
    }

    #[test]
    fn steps_keep_to_their_budget() {
        let mut stride = stride();
        walked(&mut stride, 100, 4 * US, |_| Duration::ZERO);
        let work = 4 * US * u32::try_from(stride.keys).unwrap();
        assert!(work <= BUDGET && work >= BUDGET / 2, "{} keys", stride.keys);
        let pause = walked(&mut stride, 1, 4 * US, |_| Duration::ZERO);
        assert_eq!(pause, work * 3, "a quarter of the time");
        // One that others held up changes nothing but its own pause.
        let keys = stride.keys;
        assert_eq!(walked(&mut stride, 1, 4 * US, |_| Duration::from_secs(1)), PAUSES.1);
        assert_eq!((stride.keys, walked(&mut stride, 1, 4 * US, |_| Duration::ZERO)), (keys, work * 3));
        // Every key is dear from now on.
        walked(&mut stride, 60, 90 * US, |_| Duration::ZERO);
        assert_eq!(stride.keys, STEPS.0);
        walked(&mut stride, 60, Duration::ZERO, |_| Duration::ZERO);
        assert_eq!(stride.keys, STEPS.1);
    }

    /// Threads that wake up late at each third step make no step small.
    #[test]
    fn what_is_late_by_chance_is_no_work() {
        let mut stride = stride();
        walked(&mut stride, 100, 4 * US, |step| if step % 3 == 0 { Duration::from_millis(2) } else { Duration::ZERO });
        let work = 4 * US * u32::try_from(stride.keys).unwrap();
        assert!(work <= BUDGET && work >= BUDGET / 2, "{} keys", stride.keys);
    }
}
