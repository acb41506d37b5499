//! On Redis and Valkey: several processes, restarts that lose what was acknowledged, builders that are overtaken.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tidegate::cache::membership::Mutant;
use tidegate::cache::{Caches, RedisCache, RedisCacheOptions, *};
use tidegate_backend::BoxFuture;
use tidegate_conformance::servers::{Cluster, Engine, Redis, Sentinel, Setup};
use tidegate_redis::RedisOptions;

use super::common::*;
use super::torture::{Torture, is_kept, torture};

async fn connect(url: &str) -> Caches {
    let redis = RedisOptions::parse(url).unwrap().name("shop").unwrap();
    process(Arc::new(RedisCache::open(redis, RedisCacheOptions::default()).await.unwrap()))
}

const SETTLE: Duration = Duration::from_millis(60);

async fn on_server(redis: Arc<Redis>) -> Torture {
    let mut processes = Vec::new();
    for _ in 0..2 {
        processes.push(connect(&redis.url()).await);
    }
    let url = redis.url();
    let another = move || {
        let url = url.clone();
        Box::pin(async move { connect(&url).await }) as BoxFuture<'static, Caches>
    };
    let disturb = move |turn: u64| {
        let redis = Arc::clone(&redis);
        Box::pin(async move {
            let work = move || match turn % 5 {
                0 => drop(redis.tell(&["SCRIPT", "FLUSH"])),
                1 => {
                    let keys = redis.tell(&["KEYS", "{tg:shop:m:rows}:*"]);
                    let words = keys.split_whitespace().map(|word| word.trim_matches('"'));
                    for key in words.filter(|word| word.starts_with('{')).step_by(3) {
                        redis.tell(&["DEL", key]);
                    }
                }
                2 => drop(redis.tell(&["CLIENT", "KILL", "TYPE", "normal"])),
                3 => redis.restart(),
                _ => drop(redis.tell(&["FLUSHALL"])),
            };
            tokio::task::spawn_blocking(work).await.unwrap();
        }) as BoxFuture<'static, ()>
    };
    let time = Duration::from_secs(if is_long() { 120 } else { 6 });
    Torture { processes, another: Box::new(another), disturb: Box::new(disturb), settle: SETTLE, mutant: None, time }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_who_exists_is_refused_on_redis() {
    is_kept(&torture(on_server(Arc::new(Redis::start())).await).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_who_exists_is_refused_on_valkey() {
    let valkey = Redis::start_with(Setup::default().engine(Engine::Valkey));
    is_kept(&torture(on_server(Arc::new(valkey)).await).await);
}

/// The keys of the filter move from node to node, too.
fn disturb_cluster(cluster: &Cluster, turn: u64) {
    let slot = cluster.slot("{tg:shop:m:rows}:state");
    let Some(owner) = cluster.owner(slot, 0) else { return };
    let node = &cluster.nodes[owner];
    match turn % 5 {
        0 => cluster.move_slot(slot, (owner + 1) % 3),
        1 => {
            let keys = node.tell(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "1000"]);
            keys.lines().step_by(3).for_each(|key| drop(node.tell(&["DEL", key])));
        }
        2 => drop(node.tell(&["SCRIPT", "FLUSH"])),
        3 => drop(node.tell(&["FLUSHALL"])),
        _ => cluster.nodes.iter().for_each(|node| drop(node.tell(&["CLIENT", "KILL", "TYPE", "normal"]))),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_who_exists_is_refused_in_a_cluster() {
    let cluster = tokio::task::spawn_blocking(|| Cluster::start(Engine::default(), false)).await.unwrap();
    let cluster = Arc::new(cluster);
    let url = cluster.url();
    let processes = vec![connect(&url).await, connect(&url).await];
    let another = move || {
        let url = url.clone();
        Box::pin(async move { connect(&url).await }) as BoxFuture<'static, Caches>
    };
    let disturb = move |turn: u64| {
        let cluster = Arc::clone(&cluster);
        Box::pin(async move {
            tokio::task::spawn_blocking(move || disturb_cluster(&cluster, turn)).await.unwrap();
        }) as BoxFuture<'static, ()>
    };
    let time = Duration::from_secs(if is_long() { 120 } else { 4 });
    let plan = Torture {
        processes,
        another: Box::new(another),
        disturb: Box::new(disturb),
        settle: SETTLE,
        mutant: None,
        time,
    };
    is_kept(&torture(plan).await);
}

/// A server that comes back with what it had saved lacks what was added since: it is not believed until it was built anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_restart_loses_is_not_refused() {
    for mutant in [None, Some(Mutant::TrustsAnyServer)] {
        let redis = Redis::start_with(Setup::default().persistent().option("appendonly", "no").option("save", ""));
        let table = Table::with(1..=100);
        let caches = connect(&redis.url()).await;
        let cache = table.cache_with(&caches, table.mutant(mutant));
        let built = complete(&cache).await;
        redis.tell(&["SAVE"]);
        for id in 500..600 {
            cache.membership().unwrap().add(&id).await.unwrap();
            table.commit(id);
        }
        assert!(refuses(&cache, 700).await);
        // Pages wait: nothing is built before the reads below.
        let park = table.parks();
        redis.restart();
        let reader = connect(&redis.url()).await;
        let reading = table.cache_with(&reader, table.mutant(mutant));
        until(&reading, "it has its filter back", |status| status.generation == built.generation).await;
        let mut refused = 0;
        for id in 500..600 {
            refused += u32::from(refuses(&reading, id).await);
        }
        assert_eq!(refused > 0, mutant.is_some(), "{mutant:?}: {refused} refused");
        park.add_permits(1_000);
        if mutant.is_none() {
            until(&reading, "it is built anew", |s| s.complete && s.generation != built.generation).await;
            assert!(refuses(&reading, 701).await && !refuses(&reading, 599).await);
        }
        caches.close().await;
        reader.close().await;
    }
}

/// A replica that takes its master's place without the last additions refuses none of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_failover_loses_is_not_refused() {
    let servers = tokio::task::spawn_blocking(|| Sentinel::start(Engine::default())).await.unwrap();
    let table = Table::with(1..=100);
    let caches = connect(&servers.url()).await;
    let cache = table.cache(&caches);
    let built = complete(&cache).await;
    let [master, replica] = &servers.servers;
    // What is built has arrived there; what comes now does not.
    tokio::time::sleep(Duration::from_millis(300)).await;
    replica.freeze();
    master.tell(&["CLIENT", "KILL", "TYPE", "replica"]);
    let ids: Vec<u64> = (500..1_000).collect();
    cache.membership().unwrap().add_many(&ids).await.unwrap();
    ids.iter().for_each(|id| table.commit(*id));
    assert!(refuses(&cache, 5_000).await);
    table.stores_nothing.store(true, Ordering::SeqCst);
    master.kill();
    replica.thaw();
    let (began, mut at, mut again) = (Instant::now(), 0, None);
    while again.is_none_or(|again: Instant| again.elapsed() < Duration::from_millis(500)) {
        assert!(began.elapsed() < Duration::from_secs(25), "it is not built anew");
        for _ in 0..20 {
            at = (at + 37) % ids.len();
            assert!(!refuses(&cache, ids[at]).await, "{} is refused", ids[at]);
        }
        let status = cache.membership().unwrap().status().await;
        if again.is_none() && status.is_ok_and(|s| s.complete && s.generation != built.generation) {
            again = Some(Instant::now());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(refuses(&cache, 5_001).await);
    println!("believed again {:?} after the master's end", began.elapsed());
    caches.close().await;
}

/// What a process added in the last minute it adds again on a server that may have lost it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn additions_are_made_again_on_another_server() {
    let redis = Redis::start_with(Setup::default().persistent().option("appendonly", "no").option("save", ""));
    let table = Table::with(1..=100);
    let (one, two) = (connect(&redis.url()).await, connect(&redis.url()).await);
    let writer = table.cache_with(&one, Membership::additions_only());
    let reader = table.cache(&two);
    let built = complete(&reader).await;
    redis.tell(&["SAVE"]);
    let ids: Vec<u64> = (500..600).collect();
    writer.membership().unwrap().add_many(&ids).await.unwrap();
    redis.restart();
    // Built from a table that does not have them yet.
    until(&reader, "it is built anew", |status| status.complete && status.generation != built.generation).await;
    let began = Instant::now();
    for id in ids {
        while refuses(&reader, id).await {
            assert!(began.elapsed() < Duration::from_secs(9), "they are not made again");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    one.close().await;
    two.close().await;
}

/// A builder that another has overtaken, because its lease ran out while it stood still, changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_builder_that_was_overtaken_changes_nothing() {
    for mutant in [None, Some(Mutant::SwapsBlindly)] {
        let redis = Redis::start();
        let table = Table::with(1..=2_000);
        table.stores_nothing.store(true, Ordering::SeqCst);
        let (one, two) = (connect(&redis.url()).await, connect(&redis.url()).await);
        let slow = Table::with(1..=2_000);
        let park = slow.parks();
        let first = slow.cache_with(&one, slow.mutant(mutant).capacity(3_000));
        until(&first, "it is begun", |status| status.building).await;
        // Its lease is over.
        redis.tell(&["DEL", "{tg:shop:m:rows}:lead"]);
        let second = table.cache_with(&two, table.membership().capacity(3_000));
        complete(&second).await;
        second.membership().unwrap().add(&50_000).await.unwrap();
        table.commit(50_000);
        assert!(!refuses(&second, 50_000).await);
        slow.rows.lock().unwrap().insert(50_001);
        park.add_permits(1_000);
        let began = Instant::now();
        let mut refused = false;
        while began.elapsed() < Duration::from_secs(2) && !refused {
            let read = second.read(&50_000).strong().await.unwrap();
            refused = read.source == Source::Filter;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(refused, mutant.is_some(), "{mutant:?}");
        one.close().await;
        two.close().await;
    }
}

/// Two processes, one rebuilds again and again while the other inserts: no row is refused, unknown ids are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rebuilds_during_inserts_refuse_no_row() {
    let redis = Redis::start();
    let known = if is_long() { 1_000_000 } else { 20_000 };
    let table = Table::with(1..=known);
    let (one, two) = (connect(&redis.url()).await, connect(&redis.url()).await);
    let membership = || table.membership().capacity(known * 2);
    let (builder, writer) = (table.cache_with(&one, membership()), table.cache_with(&two, membership()));
    complete(&builder).await;
    complete(&writer).await;
    let rebuilding = tokio::spawn({
        let filter = builder.membership().unwrap();
        async move {
            let (began, mut rebuilds) = (Instant::now(), 0);
            while began.elapsed() < Duration::from_secs(4) || rebuilds < 3 {
                filter.rebuild().await.unwrap();
                rebuilds += 1;
            }
            rebuilds
        }
    });
    let (mut id, mut refused) = (1 << 32, 0);
    while !rebuilding.is_finished() {
        // Rows enter by their invalidation, after the commit.
        let ids: Vec<u64> = (id..id + 20).collect();
        ids.iter().for_each(|id| table.commit(*id));
        writer.invalidate_many(&ids).await.unwrap();
        for cache in [&builder, &writer] {
            for read in cache.get_many(&ids).await {
                assert!(read.unwrap().value.is_some(), "a row was refused");
            }
            for old in (1..=known).step_by(known as usize / 7) {
                assert!(cache.get(&old).await.unwrap().value.is_some(), "{old} was refused");
            }
        }
        refused += u32::from(refuses(&writer, (1 << 50) + id).await);
        id += 20;
    }
    let rebuilds = rebuilding.await.unwrap();
    let loads = table.loads.load(Ordering::SeqCst);
    println!("{rebuilds} rebuilds during {} inserts, {refused} strangers refused, {loads} loads", id - (1 << 32));
    assert!(rebuilds >= 3 && id > (1 << 32) + 200 && refused > 10);
    one.close().await;
    two.close().await;
}
