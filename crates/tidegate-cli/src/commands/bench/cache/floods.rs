//! Keys that were filled together.

use bytes::Bytes;
use tidegate::cache::{CacheKey, Caches, Key, Loaded, Ttl};
use tidegate::core::cache::Entry;

use super::child::NoRow;
use super::{Bench, broken};
use crate::commands::bench::line::Line;
use crate::failure::Result;
use crate::runtime;

/// Keys filled together.
const KEYS: u64 = 10_000;
/// Parts of the span in which they turn stale.
const PARTS: usize = 100;
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
