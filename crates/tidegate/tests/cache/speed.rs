//! What a local hit costs beside the map's own get. Run by hand, alone on the machine:
//! `cargo test --release -p tidegate --features cache --test cache speed -- --ignored --nocapture`.

use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tidegate::cache::*;

const BATCH: usize = 1_000;
const ROUNDS: usize = 400;

fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("a local hit is ready at once"),
    }
}

/// Median and 99th percentile of the time of one call, over batches.
fn measure(mut call: impl FnMut(usize)) -> (Duration, Duration) {
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|round| {
            let began = Instant::now();
            for n in 0..BATCH {
                call(round * BATCH + n);
            }
            began.elapsed() / BATCH as u32
        })
        .collect();
    times.sort();
    (times[ROUNDS / 2], times[ROUNDS * 99 / 100])
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::print_stdout, reason = "what it measures")]
#[ignore = "measures; says nothing in a debug build"]
async fn speed_of_a_local_hit() {
    let store = Arc::new(EmbeddedCache::open(EmbeddedCacheOptions { max_bytes: 256 << 20 }).unwrap());
    let caches = Caches::builder(store).local_bytes(256 << 20).start().unwrap();
    let cache: Cache<(u64, u32), String> = caches
        .cache("speed")
        .fresh_for(Ttl::seconds::<3_600>())
        .local(128 << 20, Ttl::seconds::<3_600>())
        .loader(|key: (u64, u32), _| async move { Ok::<_, std::io::Error>(Loaded::value(format!("value {key:?}"))) })
        .unwrap();
    for keys in [1_usize, 100_000] {
        let map = quick_cache::sync::Cache::<Vec<u8>, Arc<String>>::new(200_000);
        let all: Vec<(u64, u32)> = (0..keys).map(|n| ((n as u64).wrapping_mul(0x9e37_79b9), n as u32 % 7)).collect();
        let encoded: Vec<Vec<u8>> = all.iter().map(|key| key.encode().unwrap().as_bytes().to_vec()).collect();
        for (key, bytes) in all.iter().zip(&encoded) {
            cache.get(key).await.unwrap();
            cache.get(key).await.unwrap();
            map.insert(bytes.clone(), Arc::new(format!("value {key:?}")));
        }
        for turn in 0..3 {
            let raw = measure(|n| drop(black_box(map.get(&encoded[n % keys]))));
            let ours = measure(|n| drop(black_box(now(cache.get(&all[n % keys])).unwrap())));
            let ratio = raw.0.as_nanos() as f64 / ours.0.as_nanos() as f64;
            println!("{keys} keys, turn {turn}: map {raw:?}, cache {ours:?}, ratio {ratio:.2}");
        }
    }
    let stats = cache.stats();
    assert!(stats.local_hits > 2_000_000, "{stats:?}");
}
