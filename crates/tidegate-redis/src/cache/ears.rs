//! What other processes told, read from the streams on connections of their own.
//!
//! Each round asks where the streams end, then waits for what is new. An answer without anything new proves that nothing
//! was told until the waiting that was asked for was over, counted from when it was asked: so an answer that was held up on
//! its way proves no more than it knew. What is proven counts once everything before it was given to whoever listens.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{Pipeline, RedisError, Value};
use tidegate_backend::CacheNotice;
use tokio::sync::mpsc;

use super::Inner;
use super::stream::{self, Entry, Position};
use super::wire;
use crate::connect::{self, Connector, Heard, Host, Listener, Mode, RedisResult};

/// How long one round waits.
const ROUND: Duration = Duration::from_millis(300);
/// Most entries of a stream in one round.
const MOST: usize = 128;
/// Rounds that may wait to be heard; the streams keep what comes after.
const WAITING: usize = 8;
/// Most notices that `next` gives at once, give or take a round.
const MOST_HEARD: usize = 4_096;
/// The first pause between two attempts; it doubles up to [`LONGEST`].
const SHORTEST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_millis(500);
/// After so many failures in a row, some seconds, the log says so once.
const WORTH_A_WORD: u32 = 10;

/// What a round brought.
struct Told {
    reader: usize,
    notices: Vec<CacheNotice>,
    /// Nothing else was told until then.
    proven: Option<Instant>,
}

/// Until when each reader has given all that was told.
pub(super) struct Proven {
    began: Instant,
    /// Microseconds since `began`; 0 is nothing.
    until: Vec<AtomicU64>,
}

impl Proven {
    pub(super) fn new(readers: usize) -> Self {
        Self { began: Instant::now(), until: (0..readers).map(|_| AtomicU64::new(0)).collect() }
    }

    fn note(&self, reader: usize, at: Instant) {
        let us = u64::try_from(at.saturating_duration_since(self.began).as_micros()).unwrap_or(u64::MAX);
        self.until[reader].fetch_max(us.max(1), Ordering::AcqRel);
    }

    /// For how long something may have been told that was not given.
    pub(super) fn silence(&self) -> Duration {
        let least = self.until.iter().map(|until| until.load(Ordering::Acquire)).min().unwrap_or(0);
        if least == 0 { Duration::MAX } else { self.began.elapsed().saturating_sub(Duration::from_micros(least)) }
    }
}

/// The listening end.
pub(super) struct Ears {
    told: mpsc::Receiver<Told>,
    woken: Listener,
    inner: Option<Arc<Inner>>,
    /// Proven once what was given last has been taken in.
    pending: Option<(usize, Instant)>,
}

impl Ears {
    /// The next that was told, at least one. Nothing is lost when the future is dropped.
    pub(super) async fn next(&mut self, proven: &Proven) -> Vec<CacheNotice> {
        if let Some((reader, at)) = self.pending.take() {
            proven.note(reader, at);
        }
        loop {
            let mut notices = Vec::new();
            tokio::select! {
                told = self.told.recv() => match told {
                    Some(told) => self.take(told, &mut notices, proven),
                    None => return std::future::pending().await,
                },
                heard = self.woken.next() => understand(heard, &mut notices),
                () = lost(self.inner.as_deref()) => notices.push(CacheNotice::Lost),
            }
            while notices.len() < MOST_HEARD {
                let Some(heard) = self.woken.try_next() else { break };
                understand(heard, &mut notices);
            }
            if !notices.is_empty() {
                return notices;
            }
        }
    }

    fn take(&mut self, told: Told, notices: &mut Vec<CacheNotice>, proven: &Proven) {
        let Told { reader, notices: new, proven: until } = told;
        match until {
            Some(until) if new.is_empty() => proven.note(reader, until),
            Some(until) => self.pending = Some((reader, until)),
            None => {}
        }
        notices.extend(new);
    }
}

/// Until the server has lost its keys.
async fn lost(inner: Option<&Inner>) {
    match inner {
        Some(inner) => inner.lost.notified().await,
        None => std::future::pending().await,
    }
}

/// Subscriptions that begin anew have missed some; whoever waits for a lease looks again by itself.
fn understand(heard: Heard, notices: &mut Vec<CacheNotice>) {
    if let Heard::Message(words) = heard {
        notices.extend(wire::understand_woken(&words));
    }
}

/// How many readers a cache needs: in a Cluster one for each stream, else one for all.
pub(super) fn readers(connector: &Connector, buckets: usize) -> usize {
    if connector.is_cluster() { buckets } else { 1 }
}

/// Starts to listen.
pub(super) fn start(inner: &Arc<Inner>) -> (Ears, Vec<tokio::task::JoinHandle<()>>) {
    let (sender, told) = mpsc::channel(WAITING);
    let buckets = inner.options.buckets;
    let tasks = (0..readers(&inner.connector, buckets)).map(|at| {
        let buckets: Vec<usize> = if inner.connector.is_cluster() { vec![at] } else { (0..buckets).collect() };
        let streams: Vec<_> = buckets.into_iter().map(|bucket| inner.keys.cache_stream(bucket)).collect();
        let positions = vec![Position::default(); streams.len()];
        let reader = Reader { at, inner: inner.clone(), streams, positions, run_id: None, to: sender.clone() };
        tokio::spawn(reader.run())
    });
    let tasks = tasks.collect();
    let woken = Listener::start(inner.connector.options().clone(), inner.keys.woken_channel());
    (Ears { told, woken, inner: Some(Arc::clone(inner)), pending: None }, tasks)
}

struct Reader {
    at: usize,
    inner: Arc<Inner>,
    streams: Vec<Vec<u8>>,
    /// Where it is in each.
    positions: Vec<Position>,
    /// The server that was read last; `None` before the first look.
    run_id: Option<String>,
    to: mpsc::Sender<Told>,
}

/// Why a reader makes its connection anew.
enum Lost {
    /// Nobody listens any more.
    Deaf,
    /// Another node has the stream.
    Moved(Host),
    Failed(String),
}

impl Reader {
    /// Reads until it is aborted.
    async fn run(mut self) {
        let mut pause = SHORTEST;
        let mut moved = None;
        let mut short = 0;
        for turn in 0_usize.. {
            let began = Instant::now();
            let lost = self.session(turn, moved.take()).await;
            short = if began.elapsed() > LONGEST { 0 } else { short + 1 };
            if let (Lost::Failed(why), WORTH_A_WORD) = (&lost, short) {
                tracing::warn!(why, "the streams of a cache cannot be read; in-process copies are not used meanwhile");
            }
            match lost {
                Lost::Deaf => return,
                // A node that knows better is asked at once, unless nodes send each other back and forth.
                Lost::Moved(host) if pause == SHORTEST => moved = Some(host),
                Lost::Moved(host) => {
                    moved = Some(host);
                    tokio::time::sleep(pause).await;
                }
                Lost::Failed(why) => {
                    tracing::debug!(why, "the streams of a cache cannot be read");
                    tokio::time::sleep(pause).await;
                }
            }
            pause = if short == 0 { SHORTEST } else { (pause * 2).min(LONGEST) };
        }
    }

    /// One connection, from its beginning to its end.
    async fn session(&mut self, turn: usize, moved: Option<Host>) -> Lost {
        let mut epochs = self.inner.connector.epochs();
        epochs.mark_unchanged();
        let host = match moved {
            Some(host) => host,
            None => match self.hosts().await {
                Ok(hosts) => hosts[turn % hosts.len()].clone(),
                Err(e) => return Lost::Failed(e.to_string()),
            },
        };
        let lost = |e: RedisError| match e.redirect_node() {
            Some((address, _)) => moved_to(address, &host),
            None => Lost::Failed(e.to_string()),
        };
        let options = self.inner.connector.options();
        let patience = ROUND + options.response_timeout.max(ROUND);
        let mut connection = match connect::connect_for_waiting(options, &host, patience).await {
            Ok(connection) => connection,
            Err(e) => return lost(e),
        };
        if let Err(e) = self.arrive(&mut connection).await {
            return lost(e);
        }
        loop {
            match self.round(&mut connection).await {
                Ok(true) => {}
                Ok(false) => return Lost::Deaf,
                Err(e) => return lost(e),
            }
            // Commands go over a new connection, so the master may be another.
            if epochs.has_changed().unwrap_or(true) {
                return Lost::Failed("there is a new connection".to_owned());
            }
        }
    }

    /// Where the streams may be.
    async fn hosts(&self) -> RedisResult<Vec<Host>> {
        if self.inner.connector.is_cluster()
            && let Ok(masters) = self.inner.connector.masters().await
        {
            let named: Vec<Host> = masters.into_iter().map(|m| m.host).filter(|host| !host.name.is_empty()).collect();
            if !named.is_empty() {
                return Ok(named);
            }
        }
        connect::listening_hosts(self.inner.connector.options()).await
    }

    /// Finds out whether this is the server that was read before. If it is not, or there was none, all may have been missed.
    async fn arrive(&mut self, connection: &mut MultiplexedConnection) -> RedisResult<()> {
        let asked = Instant::now();
        let mut look = Pipeline::new();
        look.cmd("INFO").arg("server");
        self.ask_ends(&mut look);
        let mut answers = connection.send_packed_commands(&look, 0, 1 + self.streams.len()).await?.into_iter();
        let info: String = redis::from_redis_value(answers.next().unwrap_or(Value::Nil).extract_error()?)?;
        let run_id = connect::run_id(&info).map(str::to_owned);
        let ends = ends(answers)?;
        if run_id.is_none() || run_id != self.run_id {
            self.run_id = run_id;
            self.positions = ends.iter().map(|end| Position::at(end.as_ref())).collect();
            let told = Told { reader: self.at, notices: vec![CacheNotice::Gap], proven: Some(asked) };
            // An error here is that nobody listens, which the next round finds too.
            let _ = self.to.send(told).await;
        }
        Ok(())
    }

    /// One round; whether anybody still listens.
    async fn round(&mut self, connection: &mut MultiplexedConnection) -> RedisResult<bool> {
        let asked = Instant::now();
        let mut ask = Pipeline::new();
        let sentinel = matches!(self.inner.connector.options().mode, Mode::Sentinel { .. });
        if sentinel {
            ask.cmd("ROLE");
        }
        self.ask_ends(&mut ask);
        let read = ask.cmd("XREAD").arg("COUNT").arg(MOST).arg("BLOCK").arg(ROUND.as_millis() as u64).arg("STREAMS");
        for stream in &self.streams {
            read.arg(stream.as_slice());
        }
        for position in &self.positions {
            read.arg(position.text());
        }
        let count = usize::from(sentinel) + self.streams.len() + 1;
        let mut answers = connection.send_packed_commands(&ask, 0, count).await?.into_iter();
        if sentinel {
            let role: Vec<Value> = redis::from_redis_value(answers.next().unwrap_or(Value::Nil).extract_error()?)?;
            if role.first() != Some(&Value::BulkString(b"master".to_vec())) {
                return Err((redis::ErrorKind::Client, "the server is no master any more").into());
            }
        }
        let new = answers.next_back().unwrap_or(Value::Nil).extract_error()?;
        let ends = ends(answers)?;
        let told = self.understand(asked, &ends, new)?;
        if told.notices.is_empty() && told.proven.is_none() {
            return Ok(true);
        }
        Ok(self.to.send(told).await.is_ok())
    }

    fn ask_ends(&self, ask: &mut Pipeline) {
        for stream in &self.streams {
            ask.cmd("XREVRANGE").arg(stream.as_slice()).arg("+").arg("-").arg("COUNT").arg(1);
        }
    }

    fn understand(&mut self, asked: Instant, ends: &[Option<Entry>], new: Value) -> RedisResult<Told> {
        let own = &self.inner.teller;
        let waited = new == Value::Nil && asked.elapsed() + Duration::from_millis(1) >= ROUND;
        let mut by_stream: Vec<Vec<Entry>> = self.streams.iter().map(|_| Vec::new()).collect();
        if let Value::Array(all) = new {
            for one in all {
                let Value::Array(parts) = one else { return Err(strange()) };
                let [Value::BulkString(name), entries] = <[Value; 2]>::try_from(parts).map_err(|_| strange())? else {
                    return Err(strange());
                };
                let at = self.streams.iter().position(|stream| *stream == name).ok_or_else(strange)?;
                by_stream[at] = stream::entries(entries).ok_or_else(strange)?;
            }
        }
        let mut notices = Vec::new();
        let (mut gap, mut full) = (false, false);
        for ((position, end), entries) in self.positions.iter_mut().zip(ends).zip(by_stream) {
            let newer = Position::at(end.as_ref()).id > position.id;
            if position.is_beyond(end.as_ref()) || (newer && entries.is_empty()) {
                *position = Position::at(end.as_ref());
                gap = true;
                // What was read from here began behind the end of another stream.
                full = true;
                continue;
            }
            full |= entries.len() >= MOST;
            for entry in entries {
                gap |= position.follow(&entry);
                if entry.teller != *own {
                    notices.extend(wire::decode(&entry.message));
                }
            }
        }
        if gap {
            notices.insert(0, CacheNotice::Gap);
        }
        // A wait that was over too soon (the server's clock was set, somebody ended it) proves no more than an answer.
        let proven = if full {
            None
        } else if waited {
            Some((asked + ROUND).min(Instant::now()))
        } else {
            Some(asked)
        };
        Ok(Told { reader: self.at, notices, proven })
    }
}

fn strange() -> RedisError {
    (redis::ErrorKind::UnexpectedReturnType, "a stream is not what caches write").into()
}

/// The last entry of each stream.
fn ends(answers: impl Iterator<Item = Value>) -> RedisResult<Vec<Option<Entry>>> {
    let end = |answer: Value| Ok(stream::entries(answer.extract_error()?).ok_or_else(strange)?.pop());
    answers.map(end).collect()
}

/// The node that `address` names; without a host, another port of the one that said so.
fn moved_to(address: &str, said: &Host) -> Lost {
    let node = address.rsplit_once(':').and_then(|(name, port)| Some((name, port.parse().ok()?)));
    match node {
        Some(("" | "?", port)) => Lost::Moved(Host { name: said.name.clone(), port }),
        Some((name, port)) => Lost::Moved(Host { name: name.trim_matches(['[', ']']).to_owned(), port }),
        None => Lost::Failed(format!("the stream has moved to {address}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::RedisOptions;

    #[tokio::test]
    async fn what_was_given_counts_once_more_is_asked_for() {
        let (sender, told) = mpsc::channel(WAITING);
        // Nobody listens on this port; what is published is not the point.
        let options = RedisOptions::parse("redis://127.0.0.1:1").unwrap();
        let woken = Listener::start(options, "none".to_owned());
        let mut ears = Ears { told, woken, inner: None, pending: None };
        let proven = Proven::new(2);
        assert_eq!(proven.silence(), Duration::MAX);
        let send = async |reader, notices: &[CacheNotice]| {
            let told = Told { reader, notices: notices.to_vec(), proven: Some(Instant::now()) };
            sender.send(told).await.unwrap_or_else(|_| panic!("it listens"));
        };
        let notice = CacheNotice::Cleared { namespace: "n".into() };
        send(0, &[]).await;
        send(1, std::slice::from_ref(&notice)).await;
        assert_eq!(ears.next(&proven).await, std::slice::from_ref(&notice));
        assert_eq!(proven.silence(), Duration::MAX, "it was given, but may not have been acted on");
        send(0, std::slice::from_ref(&notice)).await;
        assert_eq!(ears.next(&proven).await, [notice]);
        assert!(proven.silence() < Duration::from_secs(60), "{:?}", proven.silence());
    }
}
