//! Ids that do not exist, and keys that were filled together.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use tidegate::cache::{Cache, CacheKey, Caches, Key, Loaded, Membership, Ttl};
use tidegate::core::cache::Entry;

use super::child::NoRow;
use super::{Bench, broken};
use crate::commands::bench::child::Server;
use crate::commands::bench::line::Line;
use crate::commands::bench::orders::{Place, generate};
use crate::failure::{Failure, Result};
use crate::load::pool::Pool;
use crate::load::record::Record;
use crate::runtime;

/// Keys filled together.
const KEYS: u64 = 10_000;
/// Parts of the span in which they turn stale.
const PARTS: usize = 100;
/// Ids that exist, and how many come while others are asked for.
const KNOWN: u64 = 100_000;
const INSERTS: u64 = 2_000;
/// Ids that do not, through the library and over HTTP.
const UNKNOWN: u64 = 1_000_000;
const UNKNOWN_PAGES: u64 = 50_000;
/// Who asks at once.
const CALLERS: u64 = 64;
/// Products of the shop that is asked over HTTP.
const PRODUCTS: u64 = 100;
/// How long a filter may take until it is built.
const PATIENCE: Duration = Duration::from_secs(30);
/// Keys of one call.
const PAGE: usize = 1_000;

/// Keys that were filled together turn stale apart.
pub fn jitter(bench: &mut Bench<'_>) -> Result {
    let ends = runtime::run(async {
        let store = bench.store().await?;
        let caches = Caches::builder(store.clone()).start().map_err(broken)?;
        let builder = caches.cache("jitter").fresh_for(Ttl::seconds::<600>()).jitter(0.2);
        let cache = builder.loader(|key: u64, _| async move { Ok::<_, NoRow>(Loaded::value(key)) }).map_err(broken)?;
        let keys: Vec<u64> = (0..KEYS).collect();
        cache.warm(&keys).await.map_err(broken)?;
        let bare = store.bare_reads().map_err(broken)?;
        let mut ends = Vec::with_capacity(keys.len());
        for page in keys.chunks(PAGE) {
            let encoded: std::result::Result<Vec<_>, _> = page.iter().map(Key::encode).collect();
            let encoded: Vec<Bytes> =
                encoded.map_err(broken)?.iter().map(|key| Bytes::copy_from_slice(key.as_bytes())).collect();
            let place = |key: &Bytes| {
                let whole = CacheKey { namespace: "jitter".into(), schema: 0, key: key.clone() };
                store.redis_keys(&whole).swap_remove(0)
            };
            let names: Vec<Vec<u8>> = encoded.iter().map(place).collect();
            let found = bare.get_many(&names).await.map_err(broken)?;
            for (bytes, key) in found.into_iter().zip(&encoded) {
                if let Ok(Entry::Value { header, .. }) = Entry::read(&bytes.unwrap_or_default(), key, 0) {
                    ends.push(header.stamp.soft.0);
                }
            }
        }
        caches.close().await;
        Ok(ends)
    })?;
    let line =
        Line::new(format!("{KEYS} keys warmed together, jitter 20 %: fullest of {PARTS} parts"), fullest(&ends), "%");
    bench.printer.line(line.errors(KEYS - ends.len() as u64))
}

/// The share of the fullest of equal parts of the span, in percent.
fn fullest(ends: &[i64]) -> f64 {
    let (Some(first), Some(last)) = (ends.iter().min(), ends.iter().max()) else { return 100.0 };
    let mut parts = [0_u64; PARTS];
    for end in ends {
        let part = (end - first).unsigned_abs() as usize * PARTS / ((last - first).unsigned_abs() as usize + 1);
        parts[part] += 1;
    }
    parts.into_iter().max().unwrap_or(0) as f64 * 100.0 / ends.len() as f64
}

/// The rows that there are.
#[derive(Default)]
struct Rows {
    ids: RwLock<BTreeSet<u64>>,
    loads_of_unknown: AtomicU64,
}

impl Rows {
    fn insert(&self, id: u64) {
        self.ids.write().unwrap_or_else(PoisonError::into_inner).insert(id);
    }

    fn load(&self, id: u64) -> Option<u64> {
        let found = self.ids.read().unwrap_or_else(PoisonError::into_inner).contains(&id);
        self.loads_of_unknown.fetch_add(u64::from(!found), Ordering::Relaxed);
        found.then_some(id)
    }

    fn page(&self, after: Option<u64>) -> Vec<u64> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let ids = self.ids.read().unwrap_or_else(PoisonError::into_inner);
        ids.range((from, Bound::Unbounded)).take(10_000).copied().collect()
    }
}

/// A number that no other `n` has, far from its neighbours'.
fn scattered(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

/// Ids that do not exist, while the filter is built anew and others are inserted.
pub fn unknown(bench: &mut Bench<'_>) -> Result {
    let asked = bench.scaled(UNKNOWN, 50_000);
    let rows = Arc::new(Rows::default());
    (0..KNOWN).for_each(|n| rows.insert(scattered(n)));
    let (rate, record, refused) = runtime::run(async {
        let caches = Caches::builder(bench.store().await?).start().map_err(broken)?;
        let source = Arc::clone(&rows);
        let members = Membership::of(move |after: Option<u64>| {
            let page = source.page(after);
            async move { Ok::<_, NoRow>(page) }
        });
        let loads = Arc::clone(&rows);
        let loader = move |id: u64, _| {
            let found = loads.load(id);
            async move { Ok::<_, NoRow>(Loaded::from(found)) }
        };
        let members = members.capacity(2 * KNOWN).settle(Duration::from_millis(500));
        let builder = caches.cache("unknown").fresh_for(Ttl::seconds::<600>()).membership(members);
        let cache: Cache<u64, u64> = builder.loader(loader).map_err(broken)?;
        let handle = cache.membership().ok_or_else(|| broken("it has no membership filter"))?;
        let began = Instant::now();
        while !handle.status().await.map_err(broken)?.complete {
            if began.elapsed() > PATIENCE {
                return Err(broken("the membership filter is not built in time"));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let rebuilding = tokio::spawn({
            let stop = Arc::clone(&stop);
            async move {
                while !stop.load(Ordering::SeqCst) {
                    handle.rebuild().await.map_err(broken)?;
                }
                Ok::<_, Failure>(())
            }
        });
        let known = tokio::spawn(known_are_found(cache.clone(), Arc::clone(&rows), Arc::clone(&stop)));
        let began = Instant::now();
        let mut callers = tokio::task::JoinSet::new();
        for caller in 0..CALLERS {
            let (cache, each) = (cache.clone(), asked / CALLERS);
            callers.spawn(async move {
                let mut record = Record::new();
                for n in 0..each {
                    let asked = Instant::now();
                    let id = scattered((1 << 40) + caller * each + n);
                    if cache.get(&id).await.map_err(broken)?.value.is_some() {
                        return Err(broken("an id that does not exist has a value"));
                    }
                    record.time(asked.elapsed());
                }
                Ok(record)
            });
        }
        let mut record = Record::new();
        for of_caller in callers.join_all().await {
            record.merge(&of_caller?);
        }
        let rate = record.len() as f64 / began.elapsed().as_secs_f64();
        stop.store(true, Ordering::SeqCst);
        let refused = known.await.map_err(broken)??;
        rebuilding.await.map_err(broken)??;
        caches.close().await;
        Ok((rate, record, refused))
    })?;
    let part = rows.loads_of_unknown.load(Ordering::SeqCst) as f64 * 100.0 / record.len() as f64;
    bench.printer.line(Line::new("unknown ids through the library", rate, "reads/s").times(record.percentiles()))?;
    bench.printer.line(Line::new(format!("{} unknown ids: reach the database", record.len()), part, "%"))?;
    let line = Line::new("known ids refused meanwhile, with inserts and rebuilds", refused as f64, "ids");
    bench.printer.line(line.errors(refused))
}

/// Reads ids that exist and ids that have just come into being, until it is stopped; how many were refused.
async fn known_are_found(cache: Cache<u64, u64>, rows: Arc<Rows>, stop: Arc<AtomicBool>) -> Result<u64> {
    let handle = cache.membership().ok_or_else(|| broken("it has no membership filter"))?;
    let (mut refused, mut n) = (0, 0);
    while !stop.load(Ordering::SeqCst) {
        if n < INSERTS {
            // Before its commit, as the filter wants it.
            let id = scattered(KNOWN + n);
            handle.add(&id).await.map_err(broken)?;
            rows.insert(id);
            refused += u64::from(cache.get(&id).await.map_err(broken)?.value.is_none());
        }
        let id = scattered(n * 7_919 % KNOWN);
        refused += u64::from(cache.get(&id).await.map_err(broken)?.value.is_none());
        n += 1;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(refused)
}

/// Pages of products that do not exist.
pub fn unknown_pages(bench: &mut Bench<'_>) -> Result {
    let place = Place::new(None, "embedded", bench.folder().to_owned())?;
    let ledger = place.ledger("unknown")?;
    let server = Server::serve(&ledger)?;
    let asked = bench.scaled(UNKNOWN_PAGES, 5_000);
    let (record, took, loads) = generate(async {
        let pool = Arc::new(Pool::new(server.target.clone(), CALLERS as usize));
        for n in 0..PRODUCTS {
            let body = Bytes::from_static(br#"{"on_hand":5}"#);
            let answer = pool.send(Method::PUT, &format!("/v1/skus/known-{n}"), Some(body)).await?;
            if !matches!(answer.status, 200 | 201) {
                return Err(Failure::Work(format!("PUT /v1/skus answered {}", answer.status)));
            }
        }
        let began = Instant::now();
        let mut probe = 0;
        while metric(&pool, "tidegate_cache_filter_refusals_total").await? == 0.0 {
            if began.elapsed() > PATIENCE {
                return Err(Failure::Work("the server's membership filter is not built in time".to_owned()));
            }
            probe += 1;
            pool.send(Method::GET, &format!("/v1/products/probe-{probe}"), None).await?;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let before = metric(&pool, "tidegate_cache_loads_total").await?;
        let (began, mut callers) = (Instant::now(), tokio::task::JoinSet::new());
        for caller in 0..CALLERS {
            let pool = Arc::clone(&pool);
            callers.spawn(async move {
                let mut record = Record::new();
                for n in 0..asked / CALLERS {
                    let id = scattered((1 << 40) + caller * asked + n);
                    let begun = Instant::now();
                    let answer = pool.send(Method::GET, &format!("/v1/products/no-{id:x}"), None).await?;
                    record.add(answer.status, begun.elapsed());
                }
                Ok::<_, Failure>(record)
            });
        }
        let mut record = Record::new();
        for of_caller in callers.join_all().await {
            record.merge(&of_caller?);
        }
        let took = began.elapsed();
        // Metrics follow within a second.
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        Ok((record, took, metric(&pool, "tidegate_cache_loads_total").await? - before))
    })?;
    server.stop()?;
    place.forget(&ledger);
    let (all, rate) = (record.len(), record.len() as f64 / took.as_secs_f64());
    let line = Line::new(format!("unknown ids over HTTP, {CALLERS} connections"), rate, "answers/s");
    bench.printer.line(line.times(record.percentiles()).errors(all - record.count(404)))?;
    bench.printer.line(Line::new(
        format!("{all} unknown ids over HTTP: reach the database"),
        loads * 100.0 / all as f64,
        "%",
    ))
}

/// The sum of a counter over its labels, of the namespace of product pages.
async fn metric(pool: &Pool, name: &str) -> Result<f64> {
    let answer = pool.send(Method::GET, "/metrics", None).await?;
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    let lines = text.lines().filter(|line| line.starts_with(name) && line.contains("namespace=\"products\""));
    Ok(lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
}

#[cfg(test)]
mod tests {
    use super::fullest;

    #[test]
    fn the_fullest_part_is_found() {
        assert!((fullest(&(0..1_000).collect::<Vec<i64>>()) - 1.0).abs() < 1e-9);
        assert!((fullest(&[5; 10]) - 100.0).abs() < 1e-9);
        assert!((fullest(&[0, 0, 0, 999]) - 75.0).abs() < 1e-9);
    }
}
