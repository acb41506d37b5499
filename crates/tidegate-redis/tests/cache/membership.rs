//! The contract of stores of membership filters, on Redis, Valkey and a Cluster; and what only servers do.

use std::sync::Arc;

use tidegate_backend::membership::{Agreed, Bits, Change, MembershipStore};
use tidegate_backend::{BoxFuture, CacheStore};
use tidegate_conformance::membership::Harness;
use tidegate_conformance::servers::{Cluster, Engine, Redis, Setup};
use tidegate_redis::RedisCache;

use super::shelf::SECOND;
use super::{common, shelf};

enum Servers {
    One(Redis),
    Cluster(Arc<Cluster>),
}

struct Shared {
    store: Arc<RedisCache>,
    name: String,
    servers: Servers,
}

impl Harness for Shared {
    fn store(&self) -> Arc<dyn CacheStore> {
        self.store.clone()
    }

    fn evict<'a>(&'a self, namespace: &'a str, generation: u64, bucket: u32) -> BoxFuture<'a, ()> {
        let key = format!("{{tg:{}:m:{namespace}}}:{generation:x}:{bucket}", self.name);
        let nodes = match &self.servers {
            Servers::One(redis) => std::slice::from_ref(redis),
            Servers::Cluster(cluster) => &cluster.nodes,
        };
        let deleted = nodes.iter().filter(|node| node.try_tell(&["DEL", &key]).is_ok_and(|n| n.contains('1'))).count();
        assert_eq!(deleted, 1, "{key} lies on one node");
        Box::pin(std::future::ready(()))
    }
}

async fn on(redis: Redis) -> Shared {
    let name = shelf::fresh_name();
    Shared { store: shelf::open(&redis.url(), &name).await, name, servers: Servers::One(redis) }
}

mod standalone {
    use super::*;

    async fn open() -> Shared {
        on(Redis::start_with(Setup::default().engine(Engine::Redis))).await
    }

    tidegate_conformance::membership_conformance!(open);
}

mod valkey {
    use super::*;

    async fn open() -> Shared {
        on(Redis::start_with(Setup::default().engine(Engine::Valkey))).await
    }

    tidegate_conformance::membership_conformance!(open);
}

mod cluster {
    use super::*;

    async fn open() -> Shared {
        let cluster = common::shared_cluster();
        let name = shelf::fresh_name();
        Shared { store: shelf::open(&cluster.url(), &name).await, name, servers: Servers::Cluster(cluster) }
    }

    tidegate_conformance::membership_conformance!(open);
}

const KEEP: std::time::Duration = std::time::Duration::from_secs(600);

async fn some_state(store: &RedisCache) {
    store.prepare("ns", 1, 0..3, KEEP).await.unwrap();
    let change = Change { state: b"", new: b"one", home: b"", leader: 0, keep: KEEP };
    assert_eq!(store.replace("ns", change).await.unwrap(), Agreed::Done);
}

fn bits(offsets: &[u32]) -> [Bits; 1] {
    [Bits { generation: 1, bucket: 0, offsets: offsets.to_vec() }]
}

/// After a restart a server calls itself something else, whatever it has kept.
#[tokio::test]
async fn a_server_that_was_started_again_has_another_name() {
    let redis = Redis::start_with(Setup::default().persistent());
    let store = shelf::open(&redis.url(), "restart").await;
    some_state(&store).await;
    let before = store.look("ns", 1, &[0]).await.unwrap();
    assert!(before.buckets[0].is_some());
    redis.restart();
    let began = std::time::Instant::now();
    let after = loop {
        match store.look("ns", 1, &[0]).await {
            Ok(held) => break held,
            Err(e) => assert!(began.elapsed() < 10 * SECOND, "{e}"),
        }
        tokio::time::sleep(SECOND / 50).await;
    };
    assert_eq!(after.state, before.state, "it has kept what it had");
    assert_ne!(after.home, before.home);
}

/// While its keys are on their way to another node of a Cluster a filter refuses nobody, and no addition has to wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_filter_on_its_way_to_another_node_is_given_up() {
    let cluster = Cluster::start(Engine::default(), false);
    for moved in ["state", "1:0", "1:n"] {
        let store = shelf::open(&cluster.url(), "way").await;
        some_state(&store).await;
        let before = store.look("ns", 1, &[0]).await.unwrap();
        let slot = cluster.slot("{tg:way:m:ns}:state");
        let from = cluster.owner(slot, 0).unwrap();
        let to = (from + 1) % 3;
        cluster.open_slot(slot, from, to);
        cluster.move_key(&format!("{{tg:way:m:ns}}:{moved}"), from, to);
        let during = store.look("ns", 1, &[0]).await.unwrap();
        assert!(during.buckets[0].is_none() || during.state.is_empty(), "{moved}: {during:?}");
        let mut state = before.state.clone();
        for round in 0.. {
            assert!(round < 5, "{moved}: nothing is agreed on");
            let added = if state.is_empty() { Vec::new() } else { bits(&[1]).to_vec() };
            match store.add("ns", &state, &added).await.unwrap() {
                Agreed::Done => break,
                Agreed::Changed(other) => state = other,
            }
        }
        assert!(state.is_empty(), "{moved}");
        cluster.move_slot_of(slot, from, to);
        let after = store.look("ns", 1, &[]).await.unwrap();
        assert_eq!(after.state.as_ref(), b"", "{moved}");
        assert_ne!(after.home, before.home);
        store.discard("ns", 1, 0..3).await.unwrap();
    }
}

/// Every key ends by itself.
#[tokio::test]
async fn every_key_of_a_filter_expires() {
    let redis = Redis::start();
    let store = shelf::open(&redis.url(), "ends").await;
    some_state(&store).await;
    assert_eq!(store.add("ns", b"one", &bits(&[1, 2])).await.unwrap(), Agreed::Done);
    let whole = [(1, bytes::Bytes::from(vec![7; 1_016]))];
    assert_eq!(store.merge("ns", b"one", 1, &whole, Some(1)).await.unwrap(), Agreed::Done);
    assert!(store.lead("ns", 5, KEEP).await.unwrap());
    let keys = redis.tell(&["KEYS", "{tg:ends:m:ns}:*"]);
    let names: Vec<&str> = keys.split_whitespace().filter(|word| word.contains("tg:ends")).collect();
    assert_eq!(names.len(), 6, "{keys}");
    for name in names {
        let life = redis.tell(&["PTTL", name.trim_matches('"')]);
        assert!(!life.contains('-'), "{name}: {life}");
    }
}

/// A server whose memory is full takes additions: their room was made before.
#[tokio::test]
async fn a_full_server_takes_additions() {
    let redis = Redis::start();
    let store = shelf::open(&redis.url(), "full").await;
    some_state(&store).await;
    redis.tell(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(store.add("ns", b"one", &bits(&[9])).await.unwrap(), Agreed::Done);
    let held = store.look("ns", 1, &[0]).await.unwrap();
    assert_eq!(held.buckets[0].as_ref().unwrap()[1], 0x40);
    assert!(store.prepare("ns", 2, 0..3, KEEP).await.is_err());
    redis.tell(&["CONFIG", "SET", "maxmemory", "0"]);
}

/// What strangers put under our keys refuses nobody and blocks nobody.
#[tokio::test]
async fn garbage_under_our_keys_is_no_bucket() {
    let redis = Redis::start();
    let store = shelf::open(&redis.url(), "garbage").await;
    some_state(&store).await;
    redis.tell(&["SET", "{tg:garbage:m:ns}:1:0", "short"]);
    redis.tell(&["DEL", "{tg:garbage:m:ns}:1:1"]);
    redis.tell(&["LPUSH", "{tg:garbage:m:ns}:1:1", "x"]);
    let held = store.look("ns", 1, &[0, 1, 2]).await.unwrap();
    assert_eq!(held.buckets.iter().map(Option::is_some).collect::<Vec<_>>(), [false, false, true]);
    assert_eq!(store.add("ns", b"one", &bits(&[1])).await.unwrap(), Agreed::Done);
    let of_a_list = [Bits { generation: 1, bucket: 1, offsets: vec![1] }];
    assert_eq!(store.add("ns", b"one", &of_a_list).await.unwrap(), Agreed::Changed(bytes::Bytes::new()));
    assert_eq!(store.look("ns", 1, &[]).await.unwrap().state.as_ref(), b"");
}
