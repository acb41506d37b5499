//! Servers that forget, freeze, restart, fill up, and are replaced.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_backend::{CacheNotice, CacheStore, ErrorKind};
use tidegate_conformance::servers::{Engine, Proxy, Redis, Sentinel, Setup};
use tidegate_core::cache::cell::Holder;
use tidegate_core::cache::{Op, Reply};
use tidegate_redis::{Connector, RedisCache, RedisOptions};

use super::common::until;
use super::shelf::{
    self, SECOND, apply, fill, hear_until, hearing, id, invalidate, key, lease, load, open, sized, value,
};

/// The time limit of a call and of what it may wait for first, and what a busy machine may add.
const LIMIT: Duration = Duration::from_millis(1_000);

/// Waits until a read is answered.
async fn until_read(cache: &RedisCache, key: &tidegate_backend::CacheKey) {
    let began = Instant::now();
    while cache.read(key).await.is_err() {
        assert!(began.elapsed() < 10 * SECOND, "{:?}", cache.trouble());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_that_were_forgotten_are_sent_again_in_order() {
    let redis = Redis::start();
    let cache = open(&redis.url(), "x").await;
    for round in 0..20 {
        redis.tell(&["SCRIPT", "FLUSH"]);
        let (k, other) = (key(&format!("k{round}")), key(&format!("o{round}")));
        let bytes = value(&k, 1, Some(3));
        let operations = [
            (k.clone(), lease(1)),
            (other.clone(), lease(2)),
            (k.clone(), fill(1, &bytes)),
            (k.clone(), invalidate(Some(4))),
            (k.clone(), lease(3)),
            (k.clone(), Op::Fill { holder: Holder::Lease(id(3)), bytes: bytes.clone(), ttl_ms: 1_000 }),
        ];
        let replies: Vec<Reply> = cache.apply(&operations).await.into_iter().map(Result::unwrap).collect();
        assert!(matches!(replies[..2], [Reply::Granted(_), Reply::Granted(_)]), "{replies:?}");
        assert_eq!(replies[2..4], [Reply::Held, Reply::Held]);
        assert!(matches!(replies[4..], [Reply::Granted(_), Reply::Below(_)]), "{replies:?}");
        assert_eq!(cache.read_many(&[k, other]).await.unwrap().iter().flatten().count(), 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_restart_or_a_flush_loses_is_a_miss_and_revokes_leases() {
    let redis = Redis::start();
    let cache = open(&redis.url(), "x").await;
    for restart in [false, true] {
        let (filled, held) = (key("filled"), key("held"));
        load(&cache, &filled, &value(&filled, 1, None)).await;
        assert!(matches!(apply(&cache, &held, lease(2)).await.unwrap(), Reply::Granted(_)));
        if restart {
            redis.restart();
            // Whichever call finds it out fails; the next go to the new one.
            until_read(&cache, &filled).await;
        } else {
            redis.tell(&["FLUSHALL"]);
        }
        assert_eq!(cache.read(&filled).await.unwrap(), None);
        assert_eq!(apply(&cache, &held, fill(2, &value(&held, 2, None))).await.unwrap(), Reply::Lost);
        load(&cache, &held, &value(&held, 1, None)).await;
        redis.tell(&["FLUSHALL"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_ends_in_time_while_the_server_is_frozen() {
    let redis = Redis::start();
    let cache = hearing(&redis.url(), "x").await;
    let listener = tokio::spawn({
        let cache = cache.clone();
        async move {
            loop {
                cache.heard().await;
            }
        }
    });
    let k = key("k");
    load(&cache, &k, &value(&k, 1, None)).await;
    until("it hears", 5 * SECOND, || cache.silence() < SECOND).await;
    redis.freeze();
    let frozen = Instant::now();
    let mut callers = tokio::task::JoinSet::new();
    for n in 0..50 {
        let (cache, k) = (cache.clone(), k.clone());
        callers.spawn(async move {
            let mut longest = Duration::ZERO;
            while frozen.elapsed() < 3 * SECOND {
                let began = Instant::now();
                match n % 5 {
                    0 => drop(cache.read(&k).await),
                    1 => drop(cache.read_many(std::slice::from_ref(&k)).await),
                    2 => drop(cache.apply(&vec![(k.clone(), lease(9)); 20]).await),
                    3 => drop(cache.tags("ns", &[1, 2], SECOND).await),
                    _ => drop(cache.tell(&[CacheNotice::Cleared { namespace: "ns".into() }]).await),
                }
                longest = longest.max(began.elapsed());
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            longest
        });
    }
    let longest = callers.join_all().await.into_iter().max().unwrap();
    assert!(longest < LIMIT, "{longest:?}");
    assert!(cache.trouble().is_some() && cache.read(&k).await.is_err());
    assert!(cache.silence() > 2 * SECOND, "{:?}", cache.silence());
    redis.thaw();
    until("it is over", 5 * SECOND, || cache.trouble().is_none() && cache.silence() < SECOND).await;
    until_read(&cache, &k).await;
    listener.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_lacks_the_newest_deletes_gets_them_again_before_it_is_read() {
    // Two servers stand for a master and the replica that was promoted without the last writes.
    let (old, new) = (Redis::start(), Redis::start());
    let proxy = Proxy::start(old.port());
    let on_new = open(&new.url(), "x").await;
    let cache = hearing(&format!("redis://127.0.0.1:{}", proxy.port()), "x").await;
    let keys: Vec<_> = (0..500).map(|n| key(&n.to_string())).collect();
    for k in &keys {
        load(&on_new, k, &value(k, 1, Some(1))).await;
        load(&cache, k, &value(k, 1, Some(1))).await;
    }
    let other = tidegate_backend::CacheKey { namespace: "other".into(), ..key("0") };
    load(&on_new, &other, &value(&other, 1, None)).await;
    // Its counter is behind the other's.
    on_new.tags("ns", &[7], 60 * SECOND).await.unwrap();
    let before = cache.tags("ns", &[7], SECOND).await.unwrap()[0];
    let bumped = cache.bump_tag("ns", 7, 60 * SECOND).await.unwrap();
    assert!(bumped > before);
    for (n, k) in keys.iter().enumerate() {
        let op = match n % 3 {
            0 => invalidate(None),
            1 => invalidate(Some(2)),
            _ => Op::Put { bytes: value(k, 2, Some(2)), ttl_ms: 60_000, keep_floor_ms: 60_000 },
        };
        assert_eq!(apply(&cache, k, op).await.unwrap(), Reply::Held);
    }
    cache.clear("other").await.unwrap();

    proxy.lead_to(new.port());
    proxy.cut();
    let began = Instant::now();
    let mut answered = 0;
    while answered < 2 * keys.len() {
        assert!(began.elapsed() < 10 * SECOND, "{:?}", cache.trouble());
        let k = &keys[answered % keys.len()];
        match cache.read(k).await {
            Ok(found) => {
                assert_eq!(found, None, "what was deleted is back");
                answered += 1;
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
    assert_eq!(cache.read(&other).await.unwrap(), None);
    assert!(cache.tags("ns", &[7], SECOND).await.unwrap()[0] > bumped);
    // Copies in other processes may be old.
    hear_until(&cache, &CacheNotice::Gap).await;
    // The floor is back too.
    assert!(matches!(apply(&cache, &keys[1], lease(5)).await.unwrap(), Reply::Granted(_)));
    let late = Op::Fill { holder: Holder::Lease(id(5)), bytes: value(&keys[1], 5, Some(1)), ttl_ms: 1_000 };
    assert!(matches!(apply(&cache, &keys[1], late).await.unwrap(), Reply::Below(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_follows_the_sentinels_to_another_master() {
    let servers = Sentinel::start(Engine::default());
    let (a, b) = (hearing(&servers.url(), "x").await, hearing(&servers.url(), "x").await);
    let k = key("k");
    load(&a, &k, &value(&k, 1, None)).await;
    assert_eq!(apply(&a, &k, invalidate(Some(9))).await.unwrap(), Reply::Held);
    let master = servers.servers.iter().position(|server| Some(server.port()) == servers.master_port()).unwrap();
    servers.servers[master].kill();
    until("another is the master", 20 * SECOND, || {
        servers.master_port().is_some_and(|port| port != servers.servers[master].port())
    })
    .await;
    let began = Instant::now();
    while a.read(&k).await.is_err() || b.read(&k).await.is_err() {
        assert!(began.elapsed() < 10 * SECOND, "{:?} {:?}", a.trouble(), b.trouble());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(b.read(&k).await.unwrap(), None);
    assert!(matches!(apply(&b, &k, lease(2)).await.unwrap(), Reply::Granted(notes) if notes.floor.is_some()));
    let heard = tokio::time::timeout(10 * SECOND, b.heard()).await.unwrap();
    assert!(heard.contains(&CacheNotice::Gap), "{heard:?}");
    let notice = CacheNotice::Cleared { namespace: "ns".into() };
    a.tell(std::slice::from_ref(&notice)).await.unwrap();
    shelf::hear_until(&b, &notice).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_happens_every_key_expires() {
    let redis = Redis::start();
    let cache = open(&redis.url(), "x").await;
    // A linear congruential sequence is random enough to mix things up (Knuth, MMIX).
    let mut state = 42_u64;
    let mut dice = |sides: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % sides
    };
    for _ in 0..3_000 {
        let k = tidegate_backend::CacheKey { schema: dice(5) as u32, ..key(&dice(40).to_string()) };
        let (a, b) = (dice(4) as u8, dice(4) as u8);
        let holder = if dice(2) == 0 { Holder::Lease(id(a)) } else { Holder::Refresh { fill: id(a), token: id(b) } };
        let version = [None, Some(dice(50))][dice(2) as usize];
        let for_ms = 20_000 + dice(20_000) as i64;
        let op = match dice(9) {
            0 | 1 => Op::Lease { token: id(a), for_ms },
            2 => Op::Refresh { fill: id(a), token: id(b), for_ms },
            3 => Op::Renew { holder, for_ms },
            4 => Op::Fill { holder, bytes: value(&k, a, version), ttl_ms: for_ms },
            5 => Op::Release { holder },
            6 => Op::Fail { holder, error: value(&k, a, None), for_ms },
            7 => Op::Put { bytes: value(&k, a, Some(dice(50))), ttl_ms: for_ms, keep_floor_ms: for_ms },
            _ => invalidate(version),
        };
        apply(&cache, &k, op).await.unwrap();
        match dice(20) {
            0 => drop(cache.tags("ns", &[dice(5)], 30 * SECOND).await.unwrap()),
            1 => drop(cache.bump_tag("ns", dice(5), 30 * SECOND).await.unwrap()),
            2 => cache.tell(&[shelf::invalidated(&k)]).await.unwrap(),
            _ => {}
        }
    }
    let refreshed = tidegate_backend::CacheKey { schema: 1, ..key("refreshed") };
    load(&cache, &refreshed, &value(&refreshed, 1, None)).await;
    let refresh = Op::Refresh { fill: id(1), token: id(2), for_ms: 20_000 };
    assert!(matches!(apply(&cache, &refreshed, refresh).await.unwrap(), Reply::Granted(_)));
    let keys = redis.tell(&["KEYS", "*"]);
    let kinds = [":n", ":r1", ":0", "ct:", ":inv", ":layout"];
    for kind in kinds {
        assert!(keys.contains(kind), "{kind} is not among\n{keys}");
    }
    for name in keys.lines() {
        let left: i64 = redis.tell(&["PTTL", name]).parse().unwrap();
        // -2: it ended just now.
        assert!(left > 0 || left == -2, "{name} has {left} ms left");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_types_under_our_keys_are_garbage_and_mended() {
    let redis = Redis::start();
    let cache = open(&redis.url(), "x").await;
    let k = key("k");
    let [slot, refresher] = [0, 4].map(|at| String::from_utf8(cache.redis_keys(&k)[at].clone()).unwrap());
    let spoil = |slot: bool, rest: bool| {
        if slot {
            redis.tell(&["DEL", &cache_slot(&cache, &k)]);
            redis.tell(&["RPUSH", &cache_slot(&cache, &k), "a"]);
        }
        if rest {
            redis.tell(&["DEL", &refresher]);
            redis.tell(&["HSET", &refresher, "a", "b"]);
            redis.tell(&["SET", "tg:x:c:ns:{:k}:n", "a"]);
        }
    };
    spoil(true, true);
    assert_eq!(cache.read(&k).await.unwrap().as_deref(), Some(&b""[..]), "unreadable, as any garbage");
    assert_eq!(cache.read_many(std::slice::from_ref(&k)).await.unwrap(), [None]);
    load(&cache, &k, &value(&k, 1, Some(1))).await;
    spoil(false, true);
    let refresh = Op::Refresh { fill: id(1), token: id(2), for_ms: 1_000 };
    apply(&cache, &k, refresh).await.unwrap();
    spoil(true, true);
    let put = Op::Put { bytes: value(&k, 3, Some(2)), ttl_ms: 60_000, keep_floor_ms: 60_000 };
    assert_eq!(apply(&cache, &k, put).await.unwrap(), Reply::Held);
    assert_eq!(cache.read(&k).await.unwrap(), Some(value(&k, 3, Some(2))));
    spoil(true, false);
    assert_eq!(apply(&cache, &k, fill(1, &value(&k, 1, None))).await.unwrap(), Reply::Lost);
    spoil(true, true);
    assert_eq!(apply(&cache, &k, invalidate(None)).await.unwrap(), Reply::Held);
    assert_eq!(redis.tell(&["EXISTS", &slot]), "0");
}

fn cache_slot(cache: &RedisCache, k: &tidegate_backend::CacheKey) -> String {
    String::from_utf8(cache.redis_keys(k).swap_remove(0)).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_evicts_is_one_for_caches() {
    let setup = || Setup::default().option("maxmemory", "6mb").option("maxmemory-policy", "allkeys-lru");
    let redis = Redis::start_with(setup());
    let url = redis.url();
    let state = Connector::start(RedisOptions::parse(&url).unwrap()).await;
    assert_eq!(state.err().map(|e| e.kind()), Some(ErrorKind::Configuration));
    let cache = open(&url, "x").await;
    let keys: Vec<_> = (0..200).map(|n| key(&n.to_string())).collect();
    let mut filled = 0;
    for k in &keys {
        assert!(matches!(apply(&cache, k, lease(1)).await.unwrap(), Reply::Granted(_)), "nobody holds it");
        match apply(&cache, k, fill(1, &sized(k, 1, None, 100_000))).await.unwrap() {
            Reply::Held => filled += 1,
            // A lease may be evicted, too: then nothing is stored.
            Reply::Lost => {}
            other => panic!("{other:?}"),
        }
    }
    let found = cache.read_many(&keys).await.unwrap().iter().flatten().count();
    assert!(filled > 100 && (1..=60).contains(&found), "20 MB went into 6: {found} of {filled} are there");
    assert_eq!(cache.trouble(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_is_read_and_invalidated_and_stores_no_more() {
    let redis = Redis::start();
    let (cache, other) = (hearing(&redis.url(), "x").await, hearing(&redis.url(), "x").await);
    let [there, new] = ["there", "new"].map(key);
    load(&cache, &there, &value(&there, 1, Some(1))).await;
    redis.tell(&["CONFIG", "SET", "maxmemory", "1"]);
    for _ in 0..20 {
        assert_eq!(apply(&cache, &new, lease(1)).await.unwrap_err().kind(), ErrorKind::Unavailable);
        assert_eq!(cache.read(&there).await.unwrap(), Some(value(&there, 1, Some(1))));
    }
    assert_eq!(cache.trouble(), None, "it answers");
    // Nor is a new connection refused.
    redis.tell(&["CLIENT", "KILL", "TYPE", "normal"]);
    until_read(&cache, &there).await;
    assert_eq!(apply(&cache, &there, invalidate(Some(7))).await.unwrap(), Reply::Held);
    assert_eq!(cache.read(&there).await.unwrap(), None);
    let notice = shelf::invalidated(&there);
    cache.tell(std::slice::from_ref(&notice)).await.unwrap();
    shelf::hear_until(&other, &notice).await;
    let before = cache.tags("ns", &[1], SECOND).await.unwrap()[0];
    assert!(cache.bump_tag("ns", 1, SECOND).await.unwrap() > before);
    redis.tell(&["CONFIG", "SET", "maxmemory", "0"]);
    assert!(matches!(apply(&cache, &there, lease(2)).await.unwrap(), Reply::Granted(notes) if notes.floor.is_some()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_of_16_mib_pass_and_longer_ones_are_refused_alone() {
    let redis = Redis::start();
    let options = tidegate_redis::RedisCacheOptions { timeout: 5 * SECOND, ..Default::default() };
    let cache = shelf::open_with(&redis.url(), "x", options).await;
    let [a, b] = ["a", "b"].map(key);
    let bytes = sized(&a, 1, None, 16 << 20);
    load(&cache, &a, &bytes).await;
    assert_eq!(cache.read(&a).await.unwrap(), Some(bytes));
    let long = sized(&b, 1, None, 17 << 20);
    let operations = [(b.clone(), lease(1)), (b.clone(), fill(1, &long)), (a.clone(), invalidate(None))];
    let mut replies = cache.apply(&operations).await.into_iter();
    assert!(matches!(replies.next(), Some(Ok(Reply::Granted(_)))));
    assert_eq!(replies.next().unwrap().unwrap_err().kind(), ErrorKind::Command);
    assert_eq!(replies.next().unwrap().unwrap(), Reply::Held);
    let _ = Arc::strong_count(&cache);
}
