//! Bad days of a Cluster.

use std::time::{Duration, Instant};

use tidegate_backend::{CacheKey, CacheNotice, CacheStore};
use tidegate_conformance::servers::{Cluster, Engine};
use tidegate_core::cache::Reply;

use super::common::{shared_cluster, until};
use super::shelf::{
    self, SECOND, apply, begin_to_hear, fill, hear_until, hearing, invalidate, key, lease, load, open, value,
};

fn cleared(namespace: &str) -> CacheNotice {
    CacheNotice::Cleared { namespace: namespace.into() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_that_every_node_forgot_are_sent_again() {
    let cluster = shared_cluster();
    let cache = open(&cluster.url(), &shelf::fresh_name()).await;
    for round in 0..3 {
        for node in &cluster.nodes {
            node.tell(&["SCRIPT", "FLUSH"]);
        }
        let keys: Vec<_> = (0..100).map(|n| key(&format!("{round} {n}"))).collect();
        let mut operations: Vec<_> = keys.iter().map(|k| (k.clone(), lease(1))).collect();
        operations.extend(keys.iter().map(|k| (k.clone(), fill(1, &value(k, 1, None)))));
        let replies: Vec<_> = cache.apply(&operations).await.into_iter().map(Result::unwrap).collect();
        assert!(replies[..100].iter().all(|reply| matches!(reply, Reply::Granted(_))), "{replies:?}");
        assert!(replies[100..].iter().all(|reply| *reply == Reply::Held), "{replies:?}");
        let found = cache.read_many(&keys).await.unwrap();
        assert!(found.iter().zip(&keys).all(|(found, k)| *found == Some(value(k, 1, None))));
    }
}

/// Moves a slot to the next node, and waits until all nodes agree: moves in quick succession can leave a slot to nobody.
async fn move_on(cluster: &Cluster, slot: u16) {
    let to = (cluster.owner(slot, 0).unwrap() + 1) % 3;
    cluster.move_slot(slot, to);
    let mut agreed = 0;
    while agreed < 10 {
        let agree = (0..3).all(|asked| cluster.owner(slot, asked) == Some(to));
        agreed = if agree { agreed + 1 } else { 0 };
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_and_streams_move_to_other_nodes() {
    let cluster = Cluster::start(Engine::default(), false);
    let (a, b) = (hearing(&cluster.url(), "x").await, hearing(&cluster.url(), "x").await);
    let keys: Vec<_> = (0..20).map(|n| key(&n.to_string())).collect();
    for k in &keys {
        load(&a, k, &value(k, 1, Some(1))).await;
    }
    for k in &keys[..5] {
        let name = String::from_utf8(a.redis_keys(k).swap_remove(0)).unwrap();
        move_on(&cluster, cluster.slot(&name)).await;
        assert_eq!(a.read(k).await.unwrap(), Some(value(k, 1, Some(1))));
    }
    for bucket in 0..4 {
        move_on(&cluster, cluster.slot(&format!("{{tg:x:cb{bucket}}}:inv"))).await;
        // One that hits each stream sooner or later.
        for n in 0..20 {
            let notice = cleared(&format!("{bucket}.{n}"));
            a.tell(std::slice::from_ref(&notice)).await.unwrap();
            let began = Instant::now();
            let mut heard = Vec::new();
            while !heard.contains(&notice) && !heard.contains(&CacheNotice::Gap) {
                assert!(began.elapsed() < 10 * SECOND, "neither {notice:?} is heard nor that it was missed: {heard:?}");
                heard.extend(tokio::time::timeout(SECOND, b.heard()).await.unwrap_or_default());
            }
        }
    }
    assert_eq!(a.clear("ns").await.unwrap(), 20);
    assert_eq!(b.read_many(&keys).await.unwrap().iter().flatten().count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_on_their_way_to_another_node_are_read_and_invalidated() {
    let cluster = Cluster::start(Engine::default(), false);
    let cache = open(&cluster.url(), "x").await;
    for (name, floor) in [("a", None), ("b", Some(5))] {
        let k = key(name);
        let other_schema = tidegate_backend::CacheKey { schema: 1, ..k.clone() };
        load(&cache, &k, &value(&k, 1, Some(1))).await;
        load(&cache, &other_schema, &value(&other_schema, 1, Some(1))).await;
        let name = String::from_utf8(cache.redis_keys(&k).swap_remove(0)).unwrap();
        let slot = cluster.slot(&name);
        let from = cluster.owner(slot, 0).unwrap();
        let to = (from + 1) % 3;
        cluster.open_slot(slot, from, to);
        cluster.move_key(&name, from, to);
        assert_eq!(cache.read(&k).await.unwrap(), Some(value(&k, 1, Some(1))), "it has moved");
        assert!(cache.read(&other_schema).await.unwrap().is_some(), "it has not");
        let both = cache.read_many(&[k.clone(), other_schema.clone()]).await.unwrap();
        assert_eq!(both.iter().flatten().count(), 2);
        assert_eq!(apply(&cache, &k, invalidate(floor)).await.unwrap(), Reply::Held);
        assert_eq!(cache.read(&k).await.unwrap(), None);
        assert_eq!(cache.read(&other_schema).await.unwrap(), None);
        cluster.move_slot_of(slot, from, to);
        let expected = floor.and_then(tidegate_core::cache::RowVersion::new);
        let granted = apply(&cache, &k, lease(2)).await.unwrap();
        assert!(matches!(granted, Reply::Granted(notes) if notes.floor == expected), "{granted:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_is_replaced() {
    let cluster = Cluster::start(Engine::default(), true);
    let (a, b) = (hearing(&cluster.url(), "x").await, hearing(&cluster.url(), "x").await);
    let slot = cluster.slot("{tg:x:cb0}:inv");
    let master = cluster.owner(slot, 5).unwrap();
    let keys: Vec<_> = (0..60).map(|n| key(&n.to_string())).collect();
    for k in &keys {
        load(&a, k, &value(k, 1, Some(1))).await;
        assert_eq!(apply(&a, k, invalidate(Some(2))).await.unwrap(), Reply::Held);
    }
    // The node that is first asked for the streams' place may be the one that is gone.
    cluster.nodes[master].kill();
    let asked = (master + 1) % 3;
    until("the replica is promoted", 15 * SECOND, || cluster.owner(slot, asked).is_some_and(|n| n != master)).await;
    let began = Instant::now();
    for k in &keys {
        loop {
            if let (Ok(x), Ok(y)) = (a.read(k).await, b.read(k).await) {
                assert_eq!((x, y), (None, None));
                break;
            }
            assert!(began.elapsed() < 15 * SECOND, "{:?} {:?}", a.trouble(), b.trouble());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    let heard = tokio::time::timeout(10 * SECOND, b.heard()).await.expect("it hears again");
    assert!(heard.contains(&CacheNotice::Gap), "{heard:?}");
    begin_to_hear(&b).await;
    let last = cleared("last");
    while a.tell(std::slice::from_ref(&last)).await.is_err() {
        assert!(began.elapsed() < 20 * SECOND, "{:?}", a.trouble());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    hear_until(&b, &last).await;
}

/// A replica becomes the master and lacks what was invalidated last. Whoever did that must do it again there by itself: it may
/// have nothing else to ask of that shard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_new_master_lacks_is_repeated_by_an_idle_process() {
    let cluster = Cluster::start(Engine::default(), true);
    let (a, b) = (open(&cluster.url(), "x").await, open(&cluster.url(), "x").await);
    // The heartbeat's own key lies elsewhere.
    let master = (cluster.owner(cluster.slot("{tg:x:cb}:layout"), 0).unwrap() + 1) % 3;
    let lies_there = |k: &CacheKey| {
        let name = String::from_utf8(a.redis_keys(k).swap_remove(0)).unwrap();
        cluster.owner(cluster.slot(&name), 0) == Some(master)
    };
    let keys: Vec<_> = (0..60).map(|n| key(&n.to_string())).filter(lies_there).collect();
    assert!(keys.len() > 5);
    for k in &keys {
        load(&a, k, &value(k, 1, Some(1))).await;
    }
    let replica = &cluster.nodes[master + 3];
    let there = keys.len().to_string();
    until("the replica has them", 10 * SECOND, || replica.tell(&["DBSIZE"]).trim().contains(&there)).await;
    // It is cut off.
    replica.freeze();
    cluster.nodes[master].tell(&["CLIENT", "KILL", "TYPE", "replica"]);
    for k in &keys {
        assert_eq!(apply(&a, k, invalidate(Some(2))).await.unwrap(), Reply::Held);
    }
    cluster.nodes[master].kill();
    replica.thaw();
    let asked = (master + 1) % 3;
    let slot = cluster.slot(&String::from_utf8(a.redis_keys(&keys[0]).swap_remove(0)).unwrap());
    until("the replica is promoted", 20 * SECOND, || cluster.owner(slot, asked).is_some_and(|n| n != master)).await;
    let began = Instant::now();
    for k in &keys {
        while !matches!(b.read(k).await, Ok(None)) {
            assert!(began.elapsed() < 10 * SECOND, "what was invalidated is read for ever");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Nothing goes to another server when the one that is meant is away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clearing_that_leaves_out_a_server_is_not_said_to_be_done() {
    let cluster = Cluster::start(Engine::default(), true);
    let cache = open(&cluster.url(), "x").await;
    let keys: Vec<_> = (0..60).map(|n| key(&n.to_string())).collect();
    for k in &keys {
        load(&cache, k, &value(k, 1, Some(1))).await;
    }
    let on = |nodes: &[tidegate_conformance::servers::Redis]| -> u64 {
        nodes.iter().map(|node| node.tell(&["DBSIZE"]).parse::<u64>().unwrap()).sum()
    };
    until("the replicas have them", 10 * SECOND, || on(&cluster.nodes[3..]) == on(&cluster.nodes[..3])).await;
    cluster.nodes[0].kill();
    let (began, mut refused) = (Instant::now(), 0);
    while cache.clear("ns").await.is_err() {
        refused += 1;
        assert!(began.elapsed() < 20 * SECOND, "{:?}", cache.trouble());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(refused > 0, "it cannot be done before there is a new master");
    for k in &keys {
        assert_eq!(cache.read(k).await.unwrap(), None);
    }
}
