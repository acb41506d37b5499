//! Reports of several processes, kept on a server and merged.

use std::sync::Arc;
use std::time::Duration;

use tidegate_backend::{CacheKey, CacheStore};
use tidegate_conformance::servers::Redis;
use tidegate_core::hot::{Recent, Report, WINDOWS};
use tidegate_redis::hotkeys::{HotKeysOptions, Source, hot_keys};
use tidegate_redis::{RedisCache, RedisCacheOptions, RedisOptions};

use crate::common;

const KEPT: Duration = Duration::from_secs(10);

async fn open(url: &str, name: &str) -> Arc<RedisCache> {
    let redis = RedisOptions::parse(url).unwrap().name(name).unwrap();
    Arc::new(RedisCache::open(redis, RedisCacheOptions::default()).await.unwrap())
}

/// Each key with its reads in the last ten seconds, and as many before that.
fn report(keys: &[(&'static str, u32)]) -> Report<CacheKey> {
    let recent = |(name, reads): &(&'static str, u32)| {
        let mut counts = [0; WINDOWS];
        (counts[1], counts[4], counts[9]) = (reads / 2, reads - reads / 2, *reads);
        let name = CacheKey { namespace: "ns".into(), schema: 0, key: name.as_bytes().to_vec().into() };
        Recent { name, counts, over: 0, held: WINDOWS }
    };
    let mut totals = [0; WINDOWS];
    totals[3] = keys.iter().map(|(_, reads)| u64::from(*reads)).sum();
    Report { totals, hottest: keys.iter().map(recent).collect(), unnamed: 0 }
}

/// On `url`, by processes of two shops.
async fn are_merged(url: &str) {
    let (shop, other) = (common::fresh_name("hot"), common::fresh_name("hot"));
    let stores = [open(url, &shop).await, open(url, &shop).await, open(url, &other).await];
    stores[0].tell_hot_keys(&report(&[("x", 99)]), KEPT).await.unwrap();
    stores[0].tell_hot_keys(&report(&[("mug", 100), ("tea", 51)]), KEPT).await.unwrap();
    stores[1].tell_hot_keys(&report(&[("mug", 30), ("pot\n", 9)]), KEPT).await.unwrap();
    stores[2].tell_hot_keys(&report(&[("mug", 60)]), KEPT).await.unwrap();
    let redis = RedisOptions::parse(url).unwrap();
    let found = hot_keys(&redis, &HotKeysOptions { seconds: 9, top: 3 }).await.unwrap();
    assert_eq!((found.source, found.seconds, found.processes), (Source::Sketch, 10.0, 3), "{found:?}");
    let names: Vec<String> = found.items.iter().map(|hot| String::from_utf8_lossy(&hot.name).into_owned()).collect();
    let [mug, others, tea] =
        [(&shop, "mug"), (&other, "mug"), (&shop, "tea")].map(|(shop, key)| format!("tg:{shop}:c:ns:{{:{key}}}:0"));
    assert_eq!(names, [mug, others, tea], "{found:?}");
    let first = &found.items[0];
    assert_eq!((first.share, first.per_second, first.error), (130.0 / 250.0, Some(13.0), Some(0.0)));
    assert_eq!(first.purpose, Some("Tidegate: a cached entry"));
    let long = hot_keys(&redis, &HotKeysOptions { seconds: 30, top: 1 }).await.unwrap();
    assert_eq!((long.seconds, long.items[0].per_second), (30.0, Some(260.0 / 30.0)), "{long:?}");
    for store in stores {
        store.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_of_all_processes_are_merged() {
    let redis = Redis::start();
    are_merged(&redis.url()).await;
    assert_eq!(redis.tell(&["ZCARD", "{tg::hot}:who"]), "3", "one a process, however often it tells");
    let life: u64 = redis.tell(&["PTTL", "{tg::hot}:who"]).parse().unwrap();
    assert!((1..=10_000).contains(&life), "{life}");
    for key in redis.tell(&["KEYS", "{tg::hot}:r:*"]).lines() {
        let life: u64 = redis.tell(&["PTTL", key]).parse().unwrap();
        assert!((1..=10_000).contains(&life), "{key}: {life}");
    }
}

/// Who may not read what processes tell is not told that they tell nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_not_be_read_is_not_nothing() {
    let redis = Redis::start();
    let store = open(&redis.url(), "shop").await;
    store.tell_hot_keys(&report(&[("mug", 100)]), KEPT).await.unwrap();
    let may = |rights: &[&str]| {
        redis.tell(&[&["ACL", "SETUSER", "looker", "reset", "on", ">word", "+ping", "+info"], rights].concat())
    };
    let url = format!("redis://looker:word@127.0.0.1:{}", redis.port());
    for (rights, told) in [(&["~*"][..], false), (&["~*", "+zrange"], false), (&["~*", "+zrange", "+get"], true)] {
        may(rights);
        let found =
            hot_keys(&RedisOptions::parse(&url).unwrap(), &HotKeysOptions { seconds: 9, top: 3 }).await.unwrap();
        assert_eq!(found.notes.iter().any(|note| note.contains("+zrange +get")), !told, "{found:?}");
        assert!(
            found.processes == usize::from(told) && !found.notes.iter().any(|note| note.contains("no process")),
            "{found:?}"
        );
    }
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_in_a_cluster_are_merged() {
    are_merged(&common::shared_cluster().url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_are_gone_and_foreign_bytes_are_left_out() {
    let redis = Redis::start();
    let gone = open(&redis.url(), "shop").await;
    gone.tell_hot_keys(&report(&[("mug", 100)]), Duration::from_millis(200)).await.unwrap();
    gone.close().await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let options = RedisOptions::parse(&redis.url()).unwrap();
    let found = hot_keys(&options, &HotKeysOptions::default()).await.unwrap();
    assert_eq!((found.processes, found.items.len()), (0, 0), "{found:?}");
    redis.tell(&["ZADD", "{tg::hot}:who", "1e15", "zz"]);
    redis.tell(&["SET", "{tg::hot}:r:zz", "garbage"]);
    let store = open(&redis.url(), "shop").await;
    store.tell_hot_keys(&report(&[("tea", 5)]), KEPT).await.unwrap();
    let found = hot_keys(&options, &HotKeysOptions::default()).await.unwrap();
    assert_eq!((found.processes, found.items.len()), (1, 1), "{found:?}");
    // Too many processes: none is added, and those that are known go on.
    for n in 0..255 {
        redis.tell(&["ZADD", "{tg::hot}:who", "1e15", &format!("p{n}")]);
    }
    let late = open(&redis.url(), "shop").await;
    late.tell_hot_keys(&report(&[("late", 5)]), KEPT).await.unwrap();
    store.tell_hot_keys(&report(&[("tea", 6)]), KEPT).await.unwrap();
    assert_eq!(redis.tell(&["ZCARD", "{tg::hot}:who"]), "257");
    let found = hot_keys(&options, &HotKeysOptions { seconds: 10, top: 5 }).await.unwrap();
    assert!(found.processes <= 1, "{found:?}");
    redis.tell(&["DEL", "{tg::hot}:who"]);
    redis.tell(&["SET", "{tg::hot}:who", "a stranger's"]);
    let found = hot_keys(&options, &HotKeysOptions::default()).await.unwrap();
    assert_eq!(found.items.len(), 0, "{found:?}");
    assert!(store.tell_hot_keys(&report(&[("tea", 6)]), KEPT).await.is_err());
    for store in [store, late] {
        store.close().await;
    }
}
