//! Old and new programs on one Redis, and bytes of strangers under our keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tidegate::cache::*;
use tidegate_conformance::servers::Redis;

use super::child::{Down, store};
use super::process::{Order, Process, Setup, Table, until};
use super::scaled;

#[test]
fn an_old_and_a_new_program_share_a_redis_through_a_deploy() {
    let (redis, table) = (Redis::start(), Table::new(20));
    let old = Setup { schema: 1, ..Setup::new(&redis.url(), &table) };
    let new = Setup { schema: 2, ..old.clone() };
    let (mut old, mut new) = (Process::start(&old), Process::start(&new));
    for round in 1..=scaled(10, 100) {
        for key in 0..20 {
            table.set(key, round);
        }
        // Whichever writes, both hear of it.
        for key in 0..20 {
            let writer = if key % 2 == 0 { &mut old } else { &mut new };
            assert_eq!(writer.ask(&Order::Invalidate { key }).error, None);
        }
        for key in 0..20 {
            for process in [&mut old, &mut new] {
                let read = process.ask(&Order::Get { key, strong: true });
                assert_eq!((read.value, read.errors), (Some(round), 0), "{read:?}");
            }
            until("what each keeps in process", || old.get(key).value == Some(round));
            until("what each keeps in process", || new.get(key).value == Some(round));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_under_our_keys_is_never_an_error_and_never_a_wrong_value() {
    const KEYS: u64 = 20;
    let redis = Redis::start();
    let url = redis.url();
    let of_redis = store(&url).await;
    let mut processes = Vec::new();
    for local in [false, true] {
        let caches = Caches::builder(store(&url).await).start().unwrap();
        let builder = caches.cache("t").fresh_for(Ttl::millis::<300>()).stale_for(Ttl::seconds::<60>());
        let builder = if local { builder } else { builder.no_local() };
        let loader = |key: u64, _: LoadContext| async move { Ok::<_, Down>(Loaded::value(format!("value {key}"))) };
        processes.push((builder.loader(loader).unwrap(), caches));
    }
    let spoiled = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let names: Vec<Vec<Vec<u8>>> = (0..KEYS)
        .map(|key| {
            let bytes = Bytes::copy_from_slice(key.encode().unwrap().as_bytes());
            of_redis.redis_keys(&CacheKey { namespace: "t".into(), schema: 0, key: bytes })
        })
        .collect();
    let stranger = std::thread::spawn({
        let (spoiled, stop) = (spoiled.clone(), stop.clone());
        move || {
            let mut n = 0_u64;
            while !stop.load(Ordering::SeqCst) {
                n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let name = &names[(n >> 33) as usize % names.len()][if n & (1 << 40) == 0 { 0 } else { 4 }];
                spoil(&redis, name, n);
                spoiled.fetch_add(1, Ordering::SeqCst);
            }
            redis
        }
    });
    let until = tokio::time::Instant::now() + Duration::from_secs(scaled(4, 60));
    let mut reads = 0_u64;
    while tokio::time::Instant::now() < until {
        for (cache, _) in &processes {
            let key = reads % KEYS;
            let read = if reads.is_multiple_of(7) { cache.read(&key).strong().await } else { cache.get(&key).await };
            assert_eq!(read.unwrap().value.as_deref(), Some(&format!("value {key}")));
            reads += 1;
        }
        let page: Vec<u64> = (0..KEYS).collect();
        for (key, read) in cache_of(&processes, reads).get_many(&page).await.into_iter().enumerate() {
            assert_eq!(read.unwrap().value.as_deref(), Some(&format!("value {key}")));
        }
    }
    stop.store(true, Ordering::SeqCst);
    let redis = stranger.join().unwrap();
    assert!(spoiled.load(Ordering::SeqCst) > 500 && reads > 500, "{spoiled:?} {reads}");
    let stats: Vec<CacheStats> = processes.iter().map(|(cache, _)| cache.stats()).collect();
    assert!(stats.iter().all(|stats| stats.unreadable > 10 && stats.failed_loads == 0), "{stats:?}");
    // Mended: what is there now is ours.
    for key in 0..KEYS {
        processes[0].0.force(&key).await.unwrap();
        assert_eq!(processes[0].0.get(&key).await.unwrap().source, Source::Store);
    }
    drop(redis);
}

fn cache_of(processes: &[(Cache<u64, String>, Caches)], turn: u64) -> &Cache<u64, String> {
    &processes[turn as usize / 2 % processes.len()].0
}

/// What strangers write: noise, nothing, another type, and half an entry of ours.
fn spoil(redis: &Redis, name: &[u8], n: u64) {
    let noise = n.to_le_bytes();
    match (n >> 50) % 5 {
        0 => drop(redis.try_tell_bytes(&[b"SET", name, &noise, b"PX", b"60000"])),
        1 => drop(redis.try_tell_bytes(&[b"SET", name, b"", b"PX", b"60000"])),
        2 => {
            let _ = redis.try_tell_bytes(&[b"DEL", name]);
            let _ = redis.try_tell_bytes(&[b"RPUSH", name, &noise]);
        }
        3 => drop(redis.try_tell_bytes(&[b"SETRANGE", name, b"70", &noise])),
        _ => drop(redis.try_tell_bytes(&[b"APPEND", name, b"x"])),
    }
}
