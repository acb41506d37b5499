//! `tidegate bench cache`: what the cache costs and what it holds out against, beside the bare client and the bare map.
//!
//! - [`hits`]: hits in process, in Redis, many at once. [`crowds`]: thousands of callers of one key. [`days`]: the bus, Redis
//!   and the database away. [`floods`]: ids that do not exist, keys that were filled together.
//!   [`rewarm`]: hot keys that Redis has lost.
//! - [`process`], [`child`]: processes with a cache of their own.

mod child;
mod crowds;
mod days;
mod floods;
mod hits;
mod process;
mod rewarm;

use std::sync::Arc;
use std::time::Duration;

use tidegate::blocks::RedisOptions;
use tidegate::cache::{RedisCache, RedisCacheOptions, Ttl};

use super::line::Printer;
use super::on_redis::Bench;
use super::server::Cluster;
use super::{Args, wanted};
use crate::config::value::without_password;
use crate::failure::{Failure, Result};
use crate::output;

pub use self::child::run as serve;

/// The cases by name, with what each measures.
const CASES: [(&str, &str); 14] = [
    ("local", "hits in process, one thread, beside the map's own get"),
    ("counted", "hits in process as they are counted for hot keys, beside the same uncounted"),
    ("store", "hits in Redis, no copies in process, beside GET and decoding by the bare client"),
    ("many", "pages of 100 from Redis, beside MGET and decoding by the bare client"),
    ("cluster", "the same two on a private Redis Cluster of three (left out with --redis)"),
    ("expiry", "a key expires under 8,000 callers in 8 processes"),
    ("stale", "the same with stale_for: nobody waits"),
    ("failing", "a loader that fails under 10,000 callers in 8 processes"),
    ("bus", "no process hears of writes for 10 s (left out with --redis)"),
    ("frozen", "Redis frozen for 10 s at 5,000 reads/s (left out with --redis)"),
    ("database", "the database down for 60 s"),
    ("unknown", "1,000,000 ids that do not exist through the library, 50,000 over HTTP"),
    ("jitter", "10,000 keys filled together"),
    ("rewarm", "Redis loses the hottest 1,000 keys under readers (left out with --redis)"),
];

impl Bench<'_> {
    async fn store(&self) -> Result<Arc<RedisCache>> {
        open_store(&self.url, &self.name).await
    }
}

/// Measures.
///
/// # Errors
/// [`Failure::Usage`] for a case there is not; [`Failure::Work`].
pub fn run(args: &Args, printer: &mut Printer) -> Result {
    let wanted = wanted(args, &CASES)?;
    let mut bench = Bench::start(args, printer)?;
    let measured = cases(&wanted, &mut bench);
    if bench.server.is_none() {
        bench.erase()?;
    }
    measured
}

fn cases(wanted: &[&(&str, &str)], bench: &mut Bench<'_>) -> Result {
    for (name, what) in wanted {
        bench.printer.step(what);
        match *name {
            "local" => hits::local(bench)?,
            "counted" => hits::counted(bench)?,
            "store" => hits::store(bench, "")?,
            "many" => hits::many(bench, "")?,
            "cluster" => cluster(bench)?,
            "expiry" => crowds::expiry(bench)?,
            "stale" => crowds::stale(bench)?,
            "failing" => crowds::failing(bench)?,
            "bus" => days::bus(bench)?,
            "frozen" => days::frozen(bench)?,
            "database" => days::database(bench)?,
            "unknown" => floods::unknown(bench).and_then(|()| floods::unknown_pages(bench))?,
            "rewarm" => rewarm::rewarm(bench)?,
            _ => floods::jitter(bench)?,
        }
    }
    Ok(())
}

/// Hits in a private Cluster.
fn cluster(bench: &mut Bench<'_>) -> Result {
    if bench.server.is_none() {
        output::note("left out: name a Cluster with --redis redis-cluster://.. and measure the cases store and many");
        return Ok(());
    }
    let cluster = Cluster::start(bench.folder())?;
    let alone = std::mem::replace(&mut bench.url, cluster.url());
    let measured = hits::store(bench, "Cluster: ").and_then(|()| hits::many(bench, "Cluster: "));
    bench.url = alone;
    measured
}

/// Opens the store at `url`.
async fn open_store(url: &str, name: &str) -> Result<Arc<RedisCache>> {
    let options = RedisOptions::parse(url).and_then(|options| options.name(name));
    let options = options.map_err(|e| Failure::Usage(format!("--redis {}: {e}", without_password(url))))?;
    let store = RedisCache::open(options, RedisCacheOptions::default()).await.map_err(broken)?;
    match tidegate::cache::CacheStore::trouble(&store) {
        None => Ok(Arc::new(store)),
        Some(why) => Err(Failure::Unreachable(why)),
    }
}

fn broken(e: impl std::fmt::Display) -> Failure {
    Failure::Work(format!("the cache: {e}"))
}

/// So many milliseconds, at least one.
fn ttl(ms: u64) -> Ttl {
    Ttl::try_from(Duration::from_millis(ms.max(1))).expect("it is longer than nothing")
}

/// Waits, unless it is interrupted.
fn wait_until_us(at_us: u64) -> Result {
    super::orders::wait(Duration::from_micros(at_us.saturating_sub(process::now_us())))
}
