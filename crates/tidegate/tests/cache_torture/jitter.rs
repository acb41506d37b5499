//! Jitter only ever shortens: over a million draws of the rule, and in what the cache stores.

use std::convert::Infallible;
use std::sync::Arc;

use tidegate::cache::{
    CacheKey, CacheStore, Caches, EmbeddedCache, EmbeddedCacheOptions, Key, LoadContext, Loaded, Ttl,
};
use tidegate_core::Millis;
use tidegate_core::cache::{Entry, Life, Stamp};

const BORN: Millis = Millis(1_764_448_000_000);
const DRAWS: u32 = 1_000_000;
const LIFE: Life = Life {
    fresh_for: Ttl::seconds::<10>(),
    stale_for: Some(Ttl::seconds::<5>()),
    absent_for: Some(Ttl::seconds::<10>()),
    jitter: 0.3,
    early_refresh: 0.0,
};

/// Whether every one of a million draws is within `10 s * (1 - 0.3) ..= 10 s`, and they are spread.
fn only_shortens(draw: impl Fn(f64) -> Stamp) -> Result<(), String> {
    let mut tenths = [0_u32; 10];
    for n in 0..DRAWS {
        let stamp = draw(f64::from(n) / f64::from(DRAWS));
        let lives = stamp.soft.since(stamp.born);
        if !(7_000..=10_000).contains(&lives) || stamp.hard < stamp.soft {
            return Err(format!("draw {n}: {stamp:?} lives {lives} ms"));
        }
        tenths[((lives - 7_000) / 300).clamp(0, 9) as usize] += 1;
    }
    if tenths.iter().any(|drawn| *drawn < DRAWS / 12) {
        return Err(format!("not spread: {tenths:?}"));
    }
    Ok(())
}

#[test]
fn a_million_draws_only_shorten() {
    only_shortens(|chance| LIFE.of_value(BORN, chance)).unwrap();
    only_shortens(|chance| LIFE.of_absence(BORN, chance).unwrap()).unwrap();
}

#[test]
fn mutant_jitter_that_lengthens_is_caught() {
    // A jitter of 10 % to both sides: what several libraries do.
    let lengthens = |chance: f64| {
        let stamp = Life { jitter: 0.0, ..LIFE }.of_value(BORN, 0.0);
        let by = (1_000.0 * (chance - 0.5)) as i64;
        Stamp { soft: stamp.soft.plus(by), hard: stamp.hard.plus(by), ..stamp }
    };
    assert!(only_shortens(lengthens).is_err());
    assert!(only_shortens(|_| LIFE.of_value(BORN, 0.5)).is_err(), "one value is no spread");
}

#[tokio::test]
async fn what_the_cache_stores_lives_no_longer_than_it_was_told() {
    let store = Arc::new(EmbeddedCache::open(EmbeddedCacheOptions::default()).unwrap());
    let caches = Caches::builder(store.clone()).start().unwrap();
    let cache = caches
        .cache::<u32, u32>("jitter")
        .fresh_for(LIFE.fresh_for)
        .absent_for(Ttl::seconds::<10>())
        .jitter(LIFE.jitter)
        .loader(async |key: u32, _: LoadContext| {
            Ok::<_, Infallible>(if key.is_multiple_of(5) { Loaded::absent() } else { Loaded::value(key) })
        })
        .unwrap();
    let mut lives = Vec::new();
    for key in 0..2_000_u32 {
        cache.get(&key).await.unwrap();
        let encoded = key.encode().unwrap();
        let stored = CacheKey { namespace: "jitter".into(), schema: 0, key: encoded.as_bytes().to_vec().into() };
        let bytes = store.read(&stored).await.unwrap().unwrap();
        let stamp = match Entry::read(&bytes, encoded.as_bytes(), 0).unwrap() {
            Entry::Value { header, .. } | Entry::Absent(header) => header.stamp,
            other => panic!("{other:?}"),
        };
        lives.push(stamp.soft.since(stamp.born));
    }
    lives.sort_unstable();
    let (first, last) = (lives[0], lives[lives.len() - 1]);
    assert!(first >= 7_000 && last <= 10_000, "{first} to {last}");
    assert!(first < 7_300 && last > 9_700, "chance is spread over it: {first} to {last}");
    caches.close().await;
}
