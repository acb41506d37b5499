//! One caller: taking a lock (its fence comes with it) and giving it back, beside the pair of commands that most teams use,
//! by turns, on the same connection.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate::lock::{Ask, Locks, RedisLocks};

use super::{Bench, failed};
use crate::commands::bench::line::Line;
use crate::commands::bench::redis::{Redis, broken};
use crate::failure::Result;
use crate::load::record::Record;
use crate::runtime;

/// Pairs of each kind.
const PAIRS: u64 = 20_000;
const TTL: Duration = Duration::from_secs(30);
const TTL_MS: &str = "30000";
/// The lock's name.
const NAME: &str = "bench";
/// Deletes the key if it is the caller's.
const COMPARE_AND_DELETE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

/// Measures.
pub fn measure(bench: &mut Bench<'_>) -> Result {
    let pairs = bench.scaled(PAIRS, 500);
    let (bare, took, ours) = runtime::run(async {
        let redis = Redis::open(&bench.url, &bench.name).await?;
        let locks = Locks::new(Arc::new(RedisLocks::open(redis.connector().clone())));
        let hash = redis.ask(&["SCRIPT", "LOAD", COMPARE_AND_DELETE]).await?.text();
        let key = format!("tg:{}:bare", bench.name);
        let (mut bare, mut took, mut ours) = (Record::new(), Record::new(), Record::new());
        for n in 0..pairs {
            let token = format!("{n:032x}");
            let began = Instant::now();
            let set: [&[u8]; 6] = [b"SET", key.as_bytes(), token.as_bytes(), b"NX", b"PX", TTL_MS.as_bytes()];
            let set = redis.bare.ask(&set).await.map_err(broken)?;
            let delete: [&[u8]; 5] = [b"EVALSHA", hash.as_bytes(), b"1", key.as_bytes(), token.as_bytes()];
            let deleted = redis.bare.ask(&delete).await.map_err(broken)?;
            bare.time(began.elapsed());
            if (set.text().as_str(), deleted.text().as_str()) != ("OK", "1") {
                return Err(broken("the bare lock was somebody else's"));
            }
            let began = Instant::now();
            let guard = locks.acquire(NAME, Ask::new(TTL)).await.map_err(failed)?;
            took.time(began.elapsed());
            if !guard.release().await.map_err(failed)? {
                return Err(failed("it was not ours any more"));
            }
            ours.time(began.elapsed());
        }
        locks.close().await;
        Ok((bare, took, ours))
    })?;
    let (bare, took, ours) = (bare.percentiles(), took.percentiles(), ours.percentiles());
    let rate = |p50: f64| 1_000.0 / p50.max(1e-6);
    let line = Line::new("bare SET NX PX and compare-and-delete", rate(bare.p50), "pairs/s").times(bare);
    bench.printer.line(line)?;
    bench.printer.line(Line::new("acquire, with its fence", rate(took.p50), "locks/s").times(took))?;
    let line = Line::new("acquire and release", rate(ours.p50), "pairs/s").times(ours);
    bench.printer.line(line.beside("the bare pair at its median, same connection", Some(rate(bare.p50))))
}
