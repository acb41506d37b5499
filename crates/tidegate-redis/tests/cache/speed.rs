//! What a read costs beside the client's own, interleaved on the same servers. Run by hand, optimized:
//! `CARGO_PROFILE_DEV_OPT_LEVEL=3 cargo test -p tidegate-redis --test cache -- --ignored --nocapture speed`

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use redis::aio::ConnectionLike;
use tidegate_backend::{CacheKey, CacheStore};
use tidegate_conformance::servers::Redis;
use tidegate_redis::RedisCache;

use super::{common, shelf};

const ROUNDS: usize = 30;

/// `count` calls by `callers` at once, all on one connection.
async fn many<F: Future<Output = ()>>(callers: usize, count: usize, call: impl Fn(usize) -> F) -> Duration {
    let began = Instant::now();
    let each = count / callers;
    join_all((0..callers).map(|caller| {
        let call = &call;
        async move {
            for n in 0..each {
                call(caller * each + n).await;
            }
        }
    }))
    .await;
    began.elapsed()
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

/// Prints the medians, and the median of each round's ratio (1: as fast as the client alone).
fn report(what: &str, per_round: usize, rounds: &[(Duration, Duration)]) {
    let us = |of: &dyn Fn(&(Duration, Duration)) -> Duration| {
        median(rounds.iter().map(|round| of(round).as_secs_f64() * 1e6 / per_round as f64).collect())
    };
    let ratio = median(rounds.iter().map(|(raw, ours)| raw.as_secs_f64() / ours.as_secs_f64()).collect());
    println!("{what}: raw {:.2} us, ours {:.2} us, ratio {ratio:.3}", us(&|round| round.0), us(&|round| round.1));
}

async fn filled(cache: &RedisCache, bytes: usize) -> Vec<(CacheKey, Vec<u8>)> {
    let mut all = Vec::new();
    for n in 0..1_000 {
        let key = shelf::key(&format!("key {n}"));
        shelf::load(cache, &key, &shelf::sized(&key, 1, None, bytes)).await;
        let name = cache.redis_keys(&key).swap_remove(0);
        all.push((key, name));
    }
    all
}

async fn singles<C: ConnectionLike + Clone>(cache: &Arc<RedisCache>, raw: C, keys: &[(CacheKey, Vec<u8>)], what: &str) {
    for callers in [1, 16, 64] {
        let count = if callers == 1 { 2_000 } else { 6_400 };
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let by_client = many(callers, count, |n| {
                let mut raw = raw.clone();
                async move {
                    let found: Option<Vec<u8>> =
                        redis::cmd("GET").arg(&keys[n % 1_000].1).query_async(&mut raw).await.unwrap();
                    assert!(found.is_some());
                }
            })
            .await;
            let ours = many(callers, count, |n| async move {
                assert!(cache.read(&keys[n % 1_000].0).await.unwrap().is_some());
            })
            .await;
            rounds.push((by_client, ours));
        }
        report(&format!("{what}, {callers} at once"), count, &rounds);
    }
}

async fn hundreds<C: ConnectionLike + Clone>(
    cache: &Arc<RedisCache>,
    raw: C,
    keys: &[(CacheKey, Vec<u8>)],
    what: &str,
) {
    let mut rounds = Vec::new();
    for round in 0..ROUNDS {
        let of = |n: usize| &keys[(round * 37 + n) % 900..][..100];
        let by_client = many(1, 100, |n| {
            let mut raw = raw.clone();
            let keys = of(n);
            async move {
                let mut command = redis::cmd("MGET");
                for (_, name) in keys {
                    command.arg(name);
                }
                let found: Vec<Option<Vec<u8>>> = command.query_async(&mut raw).await.unwrap();
                assert!(found.iter().all(Option::is_some));
            }
        })
        .await;
        let ours = many(1, 100, |n| {
            let keys: Vec<CacheKey> = of(n).iter().map(|(key, _)| key.clone()).collect();
            async move {
                let found = cache.read_many(&keys).await.unwrap();
                assert!(found.iter().all(Option::is_some));
            }
        })
        .await;
        rounds.push((by_client, ours));
    }
    report(&format!("{what}, MGET of 100"), 100, &rounds);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures"]
async fn speed_of_a_server_alone() {
    let redis = Redis::start();
    for bytes in [300, 4_000] {
        let cache = shelf::open(&redis.url(), &shelf::fresh_name()).await;
        let keys = filled(&cache, bytes).await;
        let client = redis::Client::open(redis.url()).unwrap();
        let raw = client.get_multiplexed_async_connection().await.unwrap();
        singles(&cache, raw.clone(), &keys, &format!("{bytes} bytes")).await;
        hundreds(&cache, raw, &keys, &format!("{bytes} bytes")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures"]
async fn speed_of_a_cluster() {
    let cluster = common::shared_cluster();
    let cache = shelf::open(&cluster.url(), &shelf::fresh_name()).await;
    let keys = filled(&cache, 300).await;
    let client = redis::cluster::ClusterClient::new(cluster.nodes.iter().map(Redis::url)).unwrap();
    let raw = client.get_async_connection().await.unwrap();
    singles(&cache, raw.clone(), &keys, "Cluster, 300 bytes").await;
    hundreds(&cache, raw, &keys, "Cluster, 300 bytes").await;
}
