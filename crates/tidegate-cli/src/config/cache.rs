//! How the caches run: `[cache]` and `[cache.products]`.

use std::num::NonZeroU32;
use std::time::Duration;

use tidegate::cache::Ttl;
use tidegate::products::CacheOptions;

use super::value::Value;

/// The options that the values of `get` stand for.
pub fn options(get: impl Fn(&str) -> Value) -> CacheOptions {
    let size = |path: &str| usize::try_from(get(path).size().unwrap_or_default()).unwrap_or(usize::MAX);
    let count = |path: &str| usize::try_from(get(path).number().unwrap_or_default()).unwrap_or(usize::MAX);
    let rate = |path: &str| u32::try_from(get(path).number().unwrap_or_default()).ok().and_then(NonZeroU32::new);
    let time = |path: &str| Duration::from_millis(get(path).time_ms().unwrap_or_default().unsigned_abs());
    // None for "off".
    let ttl = |path: &str| Ttl::try_from(time(path)).ok();
    let part = |path: &str| get(path).decimal().unwrap_or_default();
    let mut cache = CacheOptions::default();
    cache.local_bytes = size("cache.local_bytes");
    cache.load_budget = count("cache.load_budget").max(1);
    cache.load_rate = rate("cache.load_rate");
    cache.rewarm = count("cache.rewarm");
    let products = &mut cache.products;
    products.fresh_for = ttl("cache.products.fresh_for").unwrap_or(products.fresh_for);
    products.stale_for = ttl("cache.products.stale_for");
    products.absent_for = ttl("cache.products.absent_for");
    products.jitter = part("cache.products.jitter");
    products.early_refresh = part("cache.products.early_refresh");
    products.load_budget = count("cache.products.load_budget").max(1);
    products.load_rate = rate("cache.products.load_rate");
    products.load_timeout = time("cache.products.load_timeout");
    products.max_value = size("cache.products.max_value");
    products.local_for = ttl("cache.products.local_for");
    let members = get("cache.products.membership").number().unwrap_or_default();
    (products.membership, products.membership_capacity) = (members > 0, members.max(1_000).unsigned_abs());
    cache
}
