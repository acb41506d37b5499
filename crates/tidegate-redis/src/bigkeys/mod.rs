//! Which keys take the most memory: [`big_keys`].
//!
//! - `rdb/`: replication snapshots, read on the fly. `weight.rs`: what a key of one weighs in the server.
//! - `snapshot.rs`: that route; `wire.rs`: its connection. `scan.rs`: the other, paced SCAN with `MEMORY USAGE`.
//! - `keysizes.rs`: histograms of sizes, where the server keeps them.
//! - `server.rs`: which servers hold keys. `collect.rs`: what was seen, added up. `names.rs`: names, prefixes, our own keys.
//!
//! Nothing is ever asked with `KEYS` or `MONITOR`.

mod collect;
mod keysizes;
mod names;
pub mod rdb;
mod scan;
pub(crate) mod server;
mod snapshot;
pub mod weight;
mod wire;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidegate_backend::{Error, ErrorKind, Result};
use tidegate_core::Millis;
use tidegate_core::watch::{Info, bytes};

use self::collect::Collector;
pub use self::collect::{BigKey, MAX_PREFIXES, Sum};
pub use self::keysizes::Histogram;
pub use self::names::{escaped, prefix, purpose};
pub(crate) use self::names::{must_stay, shop};
pub use self::rdb::Kind;
use self::server::Server;
use self::snapshot::{Ask, NoSnapshot};
use self::wire::Until;
use crate::connect::RedisOptions;

/// Most keys that are listed.
pub const MAX_TOP: usize = 1_000;
/// The route of histograms.
const BY_SIZE: &str = "keysizes";
/// Prefixes and slots that a report names.
const NAMED: usize = 50;
/// A fork may need as much again for what is written meanwhile; it is taken to be safe with half.
const HEADROOM: u64 = 2;
/// What a server may use for data beyond a tenth more than its keys come to, before that is said; bytes.
const UNACCOUNTED: u64 = 8 << 20;
/// Why a snapshot is not asked for unless somebody wants it.
const BY_DISK: &str =
    "it would write the snapshot to its disk first (repl-diskless-sync no), and refuse writes if that fails";

/// How keys are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Route {
    /// Histograms of sizes if these alone say that nothing is big, else the snapshot where the server gives one and has room for it, else
    /// SCAN.
    #[default]
    Auto,
    /// Histograms of sizes (`INFO keysizes`, Redis 8 and newer), without names: an experiment. SCAN where their sums are off.
    KeySizes,
    /// The replication snapshot, whatever room the server has.
    Snapshot,
    /// SCAN.
    Scan,
}

/// How much haste is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pace {
    /// A snapshot is read at 40 MiB/s at most; SCAN takes up to a quarter of the server's time.
    #[default]
    Gentle,
    /// A snapshot is read as fast as it comes; SCAN takes up to half of the server's time.
    Fast,
}

/// How far it is; several may look at it.
#[derive(Debug, Default)]
pub struct Progress {
    scanned: AtomicU64,
    total: AtomicU64,
    bytes: AtomicU64,
}

impl Progress {
    fn add(&self, keys: u64, bytes: u64) {
        self.scanned.fetch_add(keys, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Keys that were looked at, keys that there were at the beginning, and bytes of the former.
    #[must_use]
    pub fn seen(&self) -> (u64, u64, u64) {
        let of = |number: &AtomicU64| number.load(Ordering::Relaxed);
        (of(&self.scanned), of(&self.total), of(&self.bytes))
    }

    fn back_to(&self, scanned: u64, bytes: u64) {
        self.scanned.store(scanned, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
    }
}

/// What is looked for, and how.
#[derive(Debug, Clone)]
pub struct BigKeysOptions {
    /// Keys that are listed, up to [`MAX_TOP`].
    pub top: usize,
    /// By which route.
    pub route: Route,
    /// How fast.
    pub pace: Pace,
    /// How long it may take; SCAN ends there with what it has, a snapshot fails.
    pub deadline: Duration,
    /// Where progress is told.
    pub progress: Arc<Progress>,
}

impl Default for BigKeysOptions {
    fn default() -> Self {
        Self {
            top: 100,
            route: Route::Auto,
            pace: Pace::Gentle,
            deadline: Duration::from_secs(600),
            progress: Arc::default(),
        }
    }
}

/// What was found.
#[derive(Debug, Clone)]
pub struct Report {
    /// `keysizes`, `snapshot`, `scan`, or `mixed` where servers differ.
    pub route: &'static str,
    /// When it began.
    pub started_at: Millis,
    /// When it ended.
    pub finished_at: Millis,
    /// Keys that were looked at.
    pub scanned: u64,
    /// Keys that the servers had at the beginning.
    pub total: u64,
    /// Which part of the keys was looked at, 0 to 1.
    pub confidence: f64,
    /// How long the fork for a snapshot held up a server, milliseconds; `None`: there was none, or it is not known.
    pub fork_pause_ms: Option<f64>,
    /// What all keys that were looked at take, bytes; 0 by `keysizes`, which does not say.
    pub bytes: u64,
    /// Keys whose size is not known: modules' values, or `MEMORY USAGE` is not permitted.
    pub unknown: u64,
    /// The largest, largest first.
    pub items: Vec<BigKey>,
    /// Sums by type, largest first.
    pub kinds: Vec<(Kind, Sum)>,
    /// Sums by prefix, the largest first.
    pub prefixes: Vec<(Vec<u8>, Sum)>,
    /// Keys of prefixes beyond [`MAX_PREFIXES`].
    pub other_prefixes: Sum,
    /// Sums by slot of a Cluster, the largest first.
    pub slots: Vec<(u16, Sum)>,
    /// How many keys have which size, where servers say so and it agrees with how many keys they have.
    pub sizes: Vec<Histogram>,
    /// Why this route, and what is not known.
    pub notes: Vec<String>,
}

impl Report {
    /// What all keys that were looked at take, bytes, as far as it is known; `None`: of not one is it known.
    #[must_use]
    pub fn known_bytes(&self) -> Option<u64> {
        (self.route != BY_SIZE && (self.scanned == 0 || self.unknown < self.scanned)).then_some(self.bytes)
    }
}

/// Ends what a thread does for us when nobody waits for it any more.
struct Stop(Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What is known while servers are looked at.
struct Run<'a> {
    big: &'a BigKeysOptions,
    deadline: Instant,
    notes: Vec<String>,
    forked_us: Option<u64>,
    sizes: Vec<Histogram>,
    /// Keys that were counted by size alone.
    by_size: u64,
}

/// Whether the servers that `all` name can be looked at by `route`, as far as that is known at once.
///
/// # Errors
/// [`ErrorKind::Configuration`]: one of them has no histograms of sizes, and these were asked for, or it does not let us in.
/// [`ErrorKind::Unavailable`]: one does not answer.
pub async fn allow(all: &[RedisOptions], route: Route) -> Result<()> {
    if route != Route::KeySizes {
        return Ok(());
    }
    for options in all {
        for mut server in server::of(options).await? {
            let mut ask = redis::cmd("INFO");
            ask.arg("keysizes");
            let text: String = ask.query_async(&mut server.connection).await.map_err(|e| server.unavailable(e))?;
            keysizes::parse(&text).ok_or_else(|| keysizes::missing(&server.address))?;
        }
    }
    Ok(())
}

/// Looks at every key of the servers that `options` name: one alone, the master under Sentinel, every master of a Cluster, one after
/// the other.
///
/// # Errors
/// [`ErrorKind::Unavailable`]: a server does not answer, or a snapshot that was asked for is not given, breaks off or is of an unknown
/// version; the text says what to do. [`ErrorKind::Configuration`]: the server does not let us in.
pub async fn big_keys(options: &RedisOptions, big: &BigKeysOptions) -> Result<Report> {
    big_keys_of(std::slice::from_ref(options), big).await
}

/// The same for what each of `all` names, added up in one report.
///
/// # Errors
/// As [`big_keys`], for the first of them that cannot be looked at.
pub async fn big_keys_of(all: &[RedisOptions], big: &BigKeysOptions) -> Result<Report> {
    let started_at = Millis(scan::now());
    let big = BigKeysOptions { top: big.top.clamp(1, MAX_TOP), ..big.clone() };
    let mut servers = Vec::new();
    for options in all {
        servers.extend(server::of(options).await?.into_iter().map(|server| (options, server)));
    }
    let total = servers.iter().map(|(_, server)| server.keys()).fold(0, u64::saturating_add);
    big.progress.total.store(total, Ordering::Relaxed);
    let is_cluster = servers.iter().any(|(_, server)| server.is_cluster);
    let mut sum = Collector::new(big.top, started_at.0, is_cluster);
    let mut run = Run {
        big: &big,
        deadline: Instant::now() + big.deadline,
        notes: Vec::new(),
        forked_us: None,
        sizes: Vec::new(),
        by_size: 0,
    };
    let mut routes = Vec::new();
    for (options, mut server) in servers {
        let empty = Collector::new(big.top, started_at.0, is_cluster);
        let (route, collector) = run.look(options, &mut server, empty).await?;
        routes.push(route);
        sum.merge(collector);
    }
    let route = match routes.first() {
        Some(first) if routes.iter().all(|route| route == first) => first,
        _ => "mixed",
    };
    Ok(report(route, started_at, total, run, sum))
}

fn report(route: &'static str, started_at: Millis, total: u64, run: Run<'_>, mut all: Collector) -> Report {
    let largest_first = |a: &Sum, b: &Sum| (b.bytes, b.keys).cmp(&(a.bytes, a.keys));
    let mut kinds: Vec<_> = std::mem::take(&mut all.kinds).into_iter().collect();
    kinds.sort_by(|a, b| largest_first(&a.1, &b.1));
    let mut prefixes: Vec<_> = std::mem::take(&mut all.prefixes).into_iter().collect();
    prefixes.sort_by(|a, b| largest_first(&a.1, &b.1).then_with(|| a.0.cmp(&b.0)));
    prefixes.truncate(NAMED);
    let mut slots: Vec<_> =
        all.slots.take().unwrap_or_default().into_iter().zip(0..).map(|(sum, slot)| (slot, sum)).collect();
    slots.retain(|(_, sum)| sum.keys > 0);
    slots.sort_by(|a, b| largest_first(&a.1, &b.1));
    slots.truncate(NAMED);
    let scanned = all.all.keys.saturating_add(run.by_size);
    Report {
        route,
        started_at,
        finished_at: Millis(scan::now()),
        scanned,
        total,
        confidence: if total == 0 { 1.0 } else { (scanned as f64 / total as f64).min(1.0) },
        fork_pause_ms: run.forked_us.map(|us| us as f64 / 1_000.0),
        bytes: all.all.bytes,
        unknown: all.all.unknown,
        other_prefixes: all.other_prefixes,
        items: all.into_largest(),
        kinds,
        prefixes,
        slots,
        sizes: run.sizes,
        notes: run.notes,
    }
}

impl Run<'_> {
    async fn look(
        &mut self,
        options: &RedisOptions,
        server: &mut Server,
        empty: Collector,
    ) -> Result<(&'static str, Collector)> {
        let mut route = self.big.route;
        if server.is_one_of_many() {
            let all = format!("redis-cluster://{}", server.address);
            self.note(
                server,
                format_args!("one master of a Cluster, and the others were not looked at; {all} looks at all"),
            );
        }
        if server.is_out_of_step() {
            self.note(server, "a replica that is not in step with its master: it may lack most of its keys");
        }
        if matches!(route, Route::Auto | Route::KeySizes) {
            if self.by_size(server).await? {
                return Ok((BY_SIZE, empty));
            }
            // What was asked for is not to be had, and no snapshot was asked for.
            route = if route == Route::KeySizes { Route::Scan } else { route };
        }
        if route != Route::Scan {
            match self.by_snapshot(options, server).await? {
                Some(collector) => return Ok(("snapshot", collector)),
                None if Instant::now() >= self.deadline => {
                    let why = "the time was over before a snapshot was read; give more with --deadline";
                    return Err(Error::new(ErrorKind::Unavailable, why));
                }
                None => {}
            }
        }
        // More than are listed: what a few elements say of a collection's size is looked at again.
        let empty = empty.wider();
        let walked = scan::walk(server, empty, self.big.pace, self.deadline, &self.big.progress).await?;
        if walked.is_whole && walked.collector.all.keys < server.keys() / 10 * 9 && walked.missing.databases.is_empty()
        {
            let (seen, before) = (walked.collector.all.keys, server.keys());
            self.note(server, format_args!("{seen} of the {before} keys of the beginning came by: the others ended, or were deleted or flushed meanwhile"));
        }
        if !walked.is_whole {
            self.note(server, "the time was over before every key was looked at; give more with --deadline");
        }
        if walked.has_guessed {
            self.note(
                server,
                "sums by type: the type was asked of 64 keys of a prefix, and of one in 16 of the others",
            );
        }
        if walked.missing.sizes {
            self.note(server, "MEMORY USAGE is not permitted: sizes are not known");
        } else {
            self.note(
                server,
                "a collection's size is by its first 5 elements, of the largest collections by 100: a few that are far larger than those \
                 are missed; --route snapshot weighs each",
            );
            self.unaccounted(server, &walked).await;
        }
        if walked.missing.keys > 0 {
            self.note(
                server,
                format_args!(
                    "{} keys were refused, to this user or since they are on their way to another server: their sizes are not known",
                    walked.missing.keys
                ),
            );
        }
        if walked.missing.kinds {
            self.note(server, "TYPE is not permitted: types are not known");
        }
        for (database, keys) in &walked.missing.databases {
            self.note(
                server,
                format_args!("SELECT is not permitted: database {database} with its {keys} keys was not looked at"),
            );
        }
        Ok(("scan", walked.collector))
    }

    /// Says so when the keys come to much less than the server uses for them, or to far fewer than there were.
    async fn unaccounted(&mut self, server: &mut Server, walked: &scan::Walked) {
        if !walked.is_whole || walked.missing.keys > 0 || !walked.missing.databases.is_empty() {
            return;
        }
        let ask = redis::cmd("INFO").arg("memory").query_async::<String>(&mut server.connection).await;
        // What it used at the beginning, or at the end, whichever is less: others write and delete meanwhile.
        let now = ask.ok().and_then(|text| Info::parse(&text).number("used_memory_dataset"));
        let Some(used) = server.info.number("used_memory_dataset").min(now) else { return };
        let seen = walked.collector.all.bytes;
        if used > seen.saturating_add(seen / 10).saturating_add(UNACCOUNTED) {
            let more = bytes(used - seen);
            self.note(
                server,
                format_args!("the server uses {more} more for data than these keys come to: something among them is larger than it seems; --route snapshot weighs each"),
            );
        }
    }

    fn note(&mut self, server: &Server, what: impl fmt::Display) {
        self.notes.push(format!("{}: {what}", server.address));
    }

    /// Asks how many keys of which size there are; whether that is all there is to do.
    async fn by_size(&mut self, server: &mut Server) -> Result<bool> {
        let is_asked_for = self.big.route == Route::KeySizes;
        // Both in one round trip: they are compared.
        let mut ask = [redis::cmd("INFO"), redis::cmd("INFO")];
        ask[0].arg("keysizes");
        ask[1].arg("keyspace");
        let answers = server.all(&ask).await.map_err(|e| server.unavailable(e))?;
        let mut texts = answers.into_iter().map(|answer| {
            answer.ok().and_then(|text| redis::from_redis_value::<String>(text).ok()).unwrap_or_default()
        });
        let (sizes, keyspace) = (texts.next().unwrap_or_default(), texts.next().unwrap_or_default());
        let Some(sizes) = keysizes::parse(&sizes) else {
            if is_asked_for {
                return Err(keysizes::missing(&server.address));
            }
            return Ok(false);
        };
        let total = Info::parse(&keyspace).keyspaces().map(|db| db.keys).fold(0, u64::saturating_add);
        if let Err(why) = sizes.agrees_with(total) {
            self.note(server, format_args!("its key sizes are not believed: {why}"));
            return Ok(false);
        }
        self.note(server, format_args!("key sizes by INFO keysizes, which is experimental: {}", sizes.largest()));
        if sizes.clamped() > 0 {
            self.note(server, format_args!("{} bins had gone below zero and count as 0", sizes.clamped()));
        }
        let is_enough = is_asked_for || sizes.is_surely_small();
        match sizes.big() {
            0 if sizes.is_surely_small() => {
                self.note(server, "nothing is big: no string of 1 MiB, no collection that takes as much; --route snapshot lists the largest");
            }
            0 => {
                self.note(server, "a collection of few elements may have large ones: --route snapshot or scan says so")
            }
            big => self.note(
                server,
                format_args!(
                    "{big} keys are big (1 MiB, or 8192 elements, and more); their names: --route snapshot or scan"
                ),
            ),
        }
        if is_enough {
            self.by_size = self.by_size.saturating_add(sizes.keys);
            self.big.progress.add(sizes.keys, 0);
        }
        self.sizes.extend(sizes.histograms);
        Ok(is_enough)
    }

    /// Tries the replicas, then the server itself; `None`: SCAN it is.
    async fn by_snapshot(&mut self, options: &RedisOptions, server: &mut Server) -> Result<Option<Collector>> {
        for mut replica in server.replicas().await {
            if self.big.route == Route::Auto && replica.snapshots_by_disk().await {
                self.note(&replica, format_args!("the replica was not asked for a snapshot: {BY_DISK}"));
                continue;
            }
            match self.read(options, &mut replica).await? {
                Ok(collector) => {
                    self.note(server, format_args!("its replica {} gave a snapshot", replica.address));
                    return Ok(Some(collector));
                }
                Err(why) => self.note(&replica, format_args!("the replica gave no snapshot: {}", why.why())),
            }
        }
        let (has_room, room) = headroom(&server.info);
        self.note(server, &room);
        if !has_room && self.big.route == Route::Auto {
            return self.no_snapshot(server, "a fork could take more memory than there is");
        }
        if self.big.route == Route::Auto && server.snapshots_by_disk().await {
            return self.no_snapshot(server, BY_DISK);
        }
        match self.read(options, server).await? {
            Ok(collector) => {
                self.note(server, "it gave a snapshot");
                Ok(Some(collector))
            }
            Err(NoSnapshot::Failed(e @ (rdb::RdbError::Corrupt { .. } | rdb::RdbError::Truncated { .. })))
                if self.big.route == Route::Snapshot =>
            {
                Err(Error::new(
                    ErrorKind::Unavailable,
                    format!("{}: {e}; try again, or use --route scan", server.address),
                ))
            }
            Err(why) => self.no_snapshot(server, &why.why()),
        }
    }

    /// Says why there is no snapshot; an error where nothing else was asked for.
    fn no_snapshot(&mut self, server: &Server, why: &str) -> Result<Option<Collector>> {
        if self.big.route == Route::Snapshot {
            let why = format!("{} gives no snapshot ({why}); use --route scan", server.address);
            return Err(Error::new(ErrorKind::Unavailable, why));
        }
        self.note(server, format_args!("no snapshot, so SCAN: {why}"));
        Ok(None)
    }

    async fn read(
        &mut self,
        options: &RedisOptions,
        server: &mut Server,
    ) -> Result<std::result::Result<Collector, NoSnapshot>> {
        let stop = Stop(Arc::default());
        let ask = Ask {
            host: server.host.clone(),
            options: options.clone(),
            valkey: server.info.text("valkey_version").map(str::to_owned),
            model: server.model().await,
            pace: self.big.pace,
            until: Until { stop: Arc::clone(&stop.0), deadline: self.deadline },
            progress: Arc::clone(&self.big.progress),
        };
        let into = Collector::new(self.big.top, scan::now(), server.is_cluster);
        let (before, _, bytes) = self.big.progress.seen();
        let read = tokio::task::spawn_blocking(move || snapshot::read(&ask, into));
        let read =
            read.await.map_err(|e| Error::new(ErrorKind::Unavailable, "the snapshot's reader ended").because(e))?;
        drop(stop);
        match read {
            Ok((_, collector)) => {
                let info: String =
                    redis::cmd("INFO").arg("stats").query_async(&mut server.connection).await.unwrap_or_default();
                let us = Info::parse(&info).number("latest_fork_usec");
                self.forked_us = self.forked_us.max(us);
                Ok(Ok(collector))
            }
            Err(why) => {
                self.big.progress.back_to(before, bytes);
                Ok(Err(why))
            }
        }
    }
}

/// Whether a fork has room for what is written while it lasts, and in words.
fn headroom(info: &Info) -> (bool, String) {
    let used = info.number("used_memory_rss").max(info.number("used_memory"));
    let memory = info.number("total_system_memory").filter(|memory| *memory > 0);
    match (used, memory) {
        (Some(used), Some(memory)) => {
            let has_room = used.saturating_add(used / HEADROOM) <= memory;
            let last = info.number("latest_fork_usec").filter(|us| *us > 0);
            let last = last.map_or(String::new(), |us| format!(", its last fork took {:.1} ms", us as f64 / 1_000.0));
            (has_room, format!("it uses {} of the machine's {}{last}", bytes(used), bytes(memory)))
        }
        _ => (true, "how much memory the machine has is not known".to_owned()),
    }
}
