//! Hits, each beside the bare thing it is built on: batches of both by turns, on the same connection, over the same bytes. And
//! what counting them for hot keys costs.

use std::future::Future;
use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use tidegate::bare_cache::{BareMap, BareReads};
use tidegate::cache::{
    Cache, CacheKey, Caches, Codec, DEFAULT_HOT_KEYS, Json, Key, LoadContext, Loaded, RedisCache, Ttl,
};
use tidegate::core::cache::Entry;

use super::child::NoRow;
use super::{Bench, broken};
use crate::commands::bench::line::Line;
use crate::failure::{Failure, Result};
use crate::load::random::{Random, Zipf};
use crate::load::record::Percentiles;
use crate::runtime;

/// Calls of which the time is taken together.
const BATCH: usize = 1_000;
/// Keys of the wide case.
const WIDE: usize = 100_000;
/// Keys of the case that counts them: more than it has counters for.
const DRAWN: usize = 10_000;
/// From a key to the next, prime.
const STRIDE: usize = 7_919;
/// Keys in Redis.
const STORED: usize = 1_000;
/// Keys of a page.
const PAGE: usize = 100;
/// Callers at once.
const CALLERS: [usize; 2] = [1, 64];
/// Batches of each kind.
const BATCHES: u64 = 40;

/// A row of some hundred bytes.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Product {
    sku: String,
    title: String,
    description: String,
    price: i64,
    currency: String,
    tags: Vec<String>,
}

type ProductKey = (u64, u32);

fn product(key: ProductKey) -> Product {
    let (id, shop) = key;
    Product {
        sku: format!("SKU-{id}-{shop}"),
        title: format!("Teapot number {id}"),
        description: "Stoneware, glazed inside and out, 1.2 litres, with a sieve; dishwasher-proof up to 60 degrees"
            .to_owned(),
        price: 2_499,
        currency: "GBP".to_owned(),
        tags: ["kitchen", "tea", "stoneware"].map(str::to_owned).to_vec(),
    }
}

/// A key; neighbours are far from each other.
fn key(n: usize) -> ProductKey {
    ((n as u64).wrapping_mul(0x9e37_79b9), n as u32 % 7)
}

fn build(caches: &Caches, namespace: &str, local_bytes: usize) -> Result<Cache<ProductKey, Product>> {
    let builder = caches.cache(namespace).fresh_for(Ttl::seconds::<3_600>());
    let builder =
        if local_bytes > 0 { builder.local(local_bytes, Ttl::seconds::<3_600>()) } else { builder.no_local() };
    builder.loader(rows).map_err(broken)
}

async fn rows(key: ProductKey, _: LoadContext) -> std::result::Result<Loaded<Product>, NoRow> {
    Ok(Loaded::value(product(key)))
}

/// The middle and the end of times that are sorted here.
struct Times(Vec<Duration>);

impl Times {
    fn new(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    fn at(&self, part: f64) -> f64 {
        let last = self.0.len().saturating_sub(1);
        self.0.get((last as f64 * part) as usize).map_or(0.0, Duration::as_secs_f64)
    }

    /// Calls a second at the median, of `calls` in each.
    fn rate(&self, calls: usize) -> f64 {
        calls as f64 / self.at(0.5).max(1e-12)
    }

    /// Of one call of `calls`, milliseconds.
    fn of_one(&self, calls: usize) -> Percentiles {
        let ms = |part| self.at(part) * 1_000.0 / calls as f64;
        Percentiles { p50: ms(0.5), p99: ms(0.99), max: ms(1.0) }
    }
}

/// Hits in process, on one hot key and on many.
pub fn local(bench: &mut Bench<'_>) -> Result {
    let batches = bench.scaled(2_000, 200) as usize;
    let measured = runtime::run(async {
        let caches = Caches::builder(bench.store().await?).local_bytes(256 << 20).load_budget(1_000);
        let caches = caches.start().map_err(broken)?;
        let cache = build(&caches, "local", 200 << 20)?;
        let mut measured = Vec::new();
        for keys in [1, WIDE] {
            let keys: Vec<ProductKey> = (0..keys).map(key).collect();
            measured.push((keys.len(), local_batches(&cache, &keys, batches).await?));
        }
        caches.close().await;
        Ok(measured)
    })?;
    for (keys, (bare, ours)) in measured {
        let which = if keys == 1 { "one hot key".to_owned() } else { format!("{keys} keys") };
        let line = Line::new(format!("local hit, {which}"), ours.rate(BATCH), "hits/s").times(ours.of_one(BATCH));
        bench.printer.line(line.beside("the map's own get with the encoded key at hand", Some(bare.rate(BATCH))))?;
    }
    Ok(())
}

async fn local_batches(
    cache: &Cache<ProductKey, Product>,
    keys: &[ProductKey],
    batches: usize,
) -> Result<(Times, Times)> {
    let map = BareMap::new(2 * WIDE);
    let encoded: std::result::Result<Vec<_>, _> = keys.iter().map(Key::encode).collect();
    let encoded: Vec<Box<[u8]>> = encoded.map_err(broken)?.iter().map(|key| key.as_bytes().into()).collect();
    for (part, encoded) in keys.chunks(BATCH).zip(encoded.chunks(BATCH)) {
        for (read, bytes) in cache.get_many(part).await.into_iter().zip(encoded) {
            // The very same values: where they lie in memory matters.
            let value = read.map_err(broken)?.value.ok_or_else(|| broken("a row is missing"))?;
            map.insert(bytes, value);
        }
    }
    let (mut bare, mut ours) = (Vec::with_capacity(batches), Vec::with_capacity(batches));
    for batch in 0..batches {
        // One after the other is far from each other: no order of theirs is that of the memory.
        let of = |n: usize| (batch * BATCH + n) * STRIDE % keys.len();
        let began = Instant::now();
        for n in 0..BATCH {
            drop(black_box(map.get(&encoded[of(n)])));
        }
        bare.push(began.elapsed());
        let began = Instant::now();
        for n in 0..BATCH {
            drop(black_box(cache.get(&keys[of(n)]).await.map_err(broken)?));
        }
        ours.push(began.elapsed());
        if batch % 16 == 0 {
            // The runtime's other tasks: the bus is listened to.
            tokio::task::yield_now().await;
        }
    }
    Ok((Times::new(bare), Times::new(ours)))
}

/// Hits as they are counted for hot keys, beside the same that are not; and what a read costs beside that which is counted.
pub fn counted(bench: &mut Bench<'_>) -> Result {
    let batches = bench.scaled(2_000, 200) as usize;
    let [uncounted, counted, counting] = runtime::run(async {
        let caches = Caches::builder(bench.store().await?).local_bytes(128 << 20).load_budget(1_000);
        let caches = caches.start().map_err(broken)?;
        let cache_of = |namespace, hot_keys| {
            let builder = caches.cache(namespace).fresh_for(Ttl::seconds::<3_600>());
            let builder = builder.local(50 << 20, Ttl::seconds::<3_600>()).hot_keys(hot_keys);
            builder.loader(rows).map_err(broken)
        };
        let measured =
            counted_batches(&cache_of("uncounted", 0)?, &cache_of("counted", DEFAULT_HOT_KEYS)?, batches).await;
        caches.close().await;
        measured
    })?;
    let line = Line::new("local hit, by Zipf's law, counted for hot keys", counted.rate(BATCH), "hits/s");
    let line = line.times(counted.of_one(BATCH)).beside("the same with hot_keys(0)", Some(uncounted.rate(BATCH)));
    bench.printer.line(line)?;
    let ns = |times: &Times| 1e9 / times.rate(BATCH);
    let line = Line::new("counting one of the reads that are counted", ns(&counting), "ns");
    let line = line.times(counting.of_one(BATCH)).beside("a hit with hot_keys(0), ns", Some(ns(&uncounted)));
    bench.printer.line(line)
}

async fn counted_batches(
    without: &Cache<ProductKey, Product>,
    with: &Cache<ProductKey, Product>,
    batches: usize,
) -> Result<[Times; 3]> {
    let keys: Vec<ProductKey> = (0..DRAWN).map(key).collect();
    for cache in [without, with] {
        for part in keys.chunks(BATCH) {
            for read in cache.get_many(part).await {
                read.map_err(broken)?;
            }
        }
    }
    let encoded: std::result::Result<Vec<_>, _> = keys.iter().map(Key::encode).collect();
    let encoded: Vec<Box<[u8]>> = encoded.map_err(broken)?.iter().map(|key| key.as_bytes().into()).collect();
    let drawn = drawn();
    let of = |batch: usize, n: usize| drawn[(batch * BATCH + n) % drawn.len()];
    let mut times = [const { Vec::new() }; 3];
    for batch in 0..batches {
        for (cache, times) in [without, with].into_iter().zip(&mut times) {
            let began = Instant::now();
            for n in 0..BATCH {
                drop(black_box(cache.get(&keys[of(batch, n)]).await.map_err(broken)?));
            }
            times.push(began.elapsed());
        }
        if batch % 16 == 0 {
            tokio::task::yield_now().await;
        }
    }
    // By itself, for it changes how many of the other reads are counted.
    for batch in 0..batches {
        let began = Instant::now();
        for n in 0..BATCH {
            with.count_read(&keys[of(batch, n)], &encoded[of(batch, n)]);
        }
        times[2].push(began.elapsed());
    }
    Ok(times.map(Times::new))
}

/// Places of keys, drawn by Zipf's law.
fn drawn() -> Vec<usize> {
    let (zipf, mut random) = (Zipf::new(DRAWN), Random::of(7, 1));
    std::iter::repeat_with(|| zipf.draw(&mut random)).take(20 * DRAWN).collect()
}

/// Entries in Redis, and how to read them without the cache.
struct Stored {
    cache: Cache<ProductKey, Product>,
    caches: Caches,
    bare: BareReads,
    keys: Vec<ProductKey>,
    /// Of each key: where it lies, and where its payload is in what lies there.
    places: Vec<(Vec<u8>, std::ops::Range<usize>)>,
}

impl Stored {
    async fn fill(bench: &Bench<'_>) -> Result<Self> {
        let store = bench.store().await?;
        let caches = Caches::builder(store.clone()).start().map_err(broken)?;
        let cache = build(&caches, "stored", 0)?;
        let bare = store.bare_reads().map_err(broken)?;
        let keys: Vec<ProductKey> = (0..STORED).map(key).collect();
        let mut places = Vec::with_capacity(STORED);
        for key in &keys {
            cache.get(key).await.map_err(broken)?;
            places.push(place(&store, &bare, key).await?);
        }
        Ok(Self { cache, caches, bare, keys, places })
    }

    async fn bare_one(&self, n: usize, decodes: bool) -> Result {
        let (name, payload) = &self.places[n % STORED];
        let bytes = self.bare.get(name).await.map_err(broken)?.ok_or_else(|| broken("a stored entry is gone"))?;
        if decodes {
            decode(&bytes, payload)?;
        }
        Ok(())
    }

    async fn our_one(&self, n: usize) -> Result {
        let read = self.cache.get(&self.keys[n % STORED]).await.map_err(broken)?;
        black_box(read.value.as_deref());
        Ok(())
    }

    async fn bare_page(&self, n: usize) -> Result {
        let from = n * 37 % (STORED - PAGE);
        let places = &self.places[from..from + PAGE];
        let names: Vec<Vec<u8>> = places.iter().map(|(name, _)| name.clone()).collect();
        let found = self.bare.get_many(&names).await.map_err(broken)?;
        for (bytes, (_, payload)) in found.iter().zip(places) {
            decode(bytes.as_deref().unwrap_or_default(), payload)?;
        }
        Ok(())
    }

    async fn our_page(&self, n: usize) -> Result {
        let from = n * 37 % (STORED - PAGE);
        for read in self.cache.get_many(&self.keys[from..from + PAGE]).await {
            black_box(read.map_err(broken)?.value.as_deref());
        }
        Ok(())
    }
}

fn decode(bytes: &[u8], payload: &std::ops::Range<usize>) -> Result {
    let payload = bytes.get(payload.clone()).ok_or_else(|| broken("a stored entry has changed"))?;
    let product: Product = Json.decode(payload).map_err(broken)?;
    black_box(&product);
    Ok(())
}

async fn place(store: &RedisCache, bare: &BareReads, key: &ProductKey) -> Result<(Vec<u8>, std::ops::Range<usize>)> {
    let encoded = key.encode().map_err(broken)?;
    let whole = CacheKey { namespace: "stored".into(), schema: 0, key: Bytes::copy_from_slice(encoded.as_bytes()) };
    let name = store.redis_keys(&whole).swap_remove(0);
    let bytes = bare.get(&name).await.map_err(broken)?.unwrap_or_default();
    match Entry::read(&bytes, encoded.as_bytes(), 0) {
        Ok(Entry::Value { payload, .. }) => {
            // A checksum of eight bytes follows it.
            let end = bytes.len() - 8;
            Ok((name, end - payload.len()..end))
        }
        other => Err(Failure::Work(format!("the cache has stored {other:?}"))),
    }
}

/// `count` calls by `callers` at once.
async fn many_calls<F: Future<Output = Result>>(
    callers: usize,
    count: usize,
    call: impl Fn(usize) -> F,
) -> Result<Duration> {
    let began = Instant::now();
    let each = count / callers;
    let all = (0..callers).map(|caller| {
        let call = &call;
        async move {
            for n in 0..each {
                call(caller * each + n).await?;
            }
            Ok::<_, Failure>(())
        }
    });
    join_all(all).await.into_iter().collect::<Result>()?;
    Ok(began.elapsed())
}

/// Hits in Redis.
pub fn store(bench: &mut Bench<'_>, where_: &str) -> Result {
    let batches = bench.scaled(BATCHES, 10);
    let measured = runtime::run(async {
        let stored = Stored::fill(bench).await?;
        let mut measured = Vec::new();
        for callers in CALLERS {
            let count = BATCH / callers * callers;
            let (mut get, mut bare, mut ours) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..batches {
                get.push(many_calls(callers, count, |n| stored.bare_one(n, false)).await?);
                bare.push(many_calls(callers, count, |n| stored.bare_one(n, true)).await?);
                ours.push(many_calls(callers, count, |n| stored.our_one(n)).await?);
            }
            measured.push((callers, count, [get, bare, ours].map(Times::new)));
        }
        stored.caches.close().await;
        Ok(measured)
    })?;
    for (callers, count, [get, bare, ours]) in measured {
        let at_once = if callers == 1 { "one at a time".to_owned() } else { format!("{callers} at once") };
        let per_call = |times: &Times| times.of_one(count / callers);
        let line = Line::new(format!("{where_}raw GET, {at_once}"), get.rate(count), "hits/s");
        bench.printer.line(line.times(per_call(&get)))?;
        let line = Line::new(format!("{where_}Redis hit, {at_once}"), ours.rate(count), "hits/s");
        let baseline = "GET and the same codec's decode by the bare client, same connection, same bytes";
        bench.printer.line(line.times(per_call(&ours)).beside(baseline, Some(bare.rate(count))))?;
    }
    Ok(())
}

/// Pages of 100 from Redis.
pub fn many(bench: &mut Bench<'_>, where_: &str) -> Result {
    let batches = bench.scaled(BATCHES, 10);
    let pages = 50;
    let [bare, ours] = runtime::run(async {
        let stored = Stored::fill(bench).await?;
        let (mut bare, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..batches {
            bare.push(many_calls(1, pages, |n| stored.bare_page(n)).await?);
            ours.push(many_calls(1, pages, |n| stored.our_page(n)).await?);
        }
        stored.caches.close().await;
        Ok([bare, ours].map(Times::new))
    })?;
    let line = Line::new(format!("{where_}get_many({PAGE}), no copies in process"), ours.rate(pages), "pages/s");
    let baseline = "MGET and the same decodes by the bare client, same connection, same bytes";
    bench.printer.line(line.times(ours.of_one(pages)).beside(baseline, Some(bare.rate(pages))))
}
