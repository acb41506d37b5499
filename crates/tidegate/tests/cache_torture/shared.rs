//! Over Redis and Valkey, alone and in a Cluster: the same promises, and mutants that are caught there as well.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tidegate::cache::{CacheKey, CacheStore, RedisCache, RedisCacheOptions};
use tidegate_backend::BoxFuture;
use tidegate_conformance::cache::Harness;
use tidegate_conformance::cache::bent::Bend;
use tidegate_conformance::cache::torture::{Mix, Settings, torture};
use tidegate_conformance::servers::{Cluster, Engine, Proxy, Redis};
use tidegate_core::cache::SCHEMA_SLOTS;
use tidegate_redis::RedisOptions;

use super::subject::{Built, start};
use super::{MUTANT, is_caught, promises_are_kept};

/// Reads of a torture here: each is a round trip.
const READS: u64 = 100_000;

struct Shared {
    store: Arc<RedisCache>,
    url: String,
    servers: Arc<Servers>,
    /// Bad things that have happened.
    disturbed: AtomicUsize,
}

enum Servers {
    One(Redis),
    /// Behind a bad network.
    Far(Redis, Proxy),
    Cluster(Cluster),
}

impl Servers {
    fn nodes(&self) -> &[Redis] {
        match self {
            Self::One(redis) | Self::Far(redis, _) => std::slice::from_ref(redis),
            Self::Cluster(cluster) => &cluster.nodes,
        }
    }

    /// What happens to servers, or on the way to them.
    fn disturb(&self, turn: usize) {
        if let Self::Far(_, proxy) = self {
            return spoil(proxy, turn);
        }
        for node in self.nodes() {
            match turn % 5 {
                0 => drop(node.tell(&["FLUSHALL"])),
                1 => node.restart(),
                2 => {
                    node.freeze();
                    std::thread::sleep(Duration::from_millis(600));
                    node.thaw();
                }
                3 => drop(node.tell(&["SCRIPT", "FLUSH"])),
                _ => {
                    for kind in ["normal", "pubsub"] {
                        node.tell(&["CLIENT", "KILL", "TYPE", kind]);
                    }
                }
            }
        }
    }

    /// A foreign client's command, on the node that has the key; until it is answered.
    fn command(&self, command: &[&[u8]]) {
        let begun = Instant::now();
        loop {
            let mut answers = self.nodes().iter().map(|node| node.try_tell_bytes(command));
            if answers.any(|answer| answer.is_ok()) {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(9), "no node does {command:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Answers that come late, in part or never, though their effect has happened; connections cut, or silent.
fn spoil(proxy: &Proxy, turn: usize) {
    let for_ms = |ms| std::thread::sleep(Duration::from_millis(ms));
    match turn % 5 {
        0 => {
            proxy.delay(Duration::from_millis(200));
            for_ms(600);
            proxy.delay(Duration::ZERO);
        }
        1 => proxy.tear_replies(3),
        2 => proxy.cut_replies(10),
        3 => proxy.cut(),
        _ => {
            proxy.silence(true);
            for_ms(600);
            // What was swallowed never arrives.
            proxy.silence(false);
            proxy.cut();
        }
    }
}

async fn connect(url: &str) -> Arc<RedisCache> {
    let redis = RedisOptions::parse(url).unwrap().name("torture").unwrap();
    Arc::new(RedisCache::open(redis, RedisCacheOptions::default()).await.unwrap())
}

impl Shared {
    async fn run(&self, command: Vec<Vec<u8>>) {
        let servers = Arc::clone(&self.servers);
        let run = move || servers.command(&command.iter().map(Vec::as_slice).collect::<Vec<_>>());
        tokio::task::spawn_blocking(run).await.unwrap();
    }

    fn place(&self, key: &CacheKey) -> Vec<u8> {
        self.store.redis_keys(key).swap_remove((key.schema % SCHEMA_SLOTS) as usize)
    }
}

impl Harness for Shared {
    fn store(&self) -> Arc<dyn CacheStore> {
        self.store.clone()
    }

    fn another(&self) -> BoxFuture<'_, Arc<dyn CacheStore>> {
        Box::pin(async { connect(&self.url).await as Arc<dyn CacheStore> })
    }

    fn write_raw<'a>(&'a self, key: &'a CacheKey, bytes: &'a [u8], life: Duration) -> BoxFuture<'a, ()> {
        let life = life.as_millis().to_string().into_bytes();
        Box::pin(self.run(vec![b"SET".to_vec(), self.place(key), bytes.to_vec(), b"PX".to_vec(), life]))
    }

    fn delete_raw<'a>(&'a self, key: &'a CacheKey) -> BoxFuture<'a, ()> {
        Box::pin(self.run(vec![b"DEL".to_vec(), self.place(key)]))
    }

    fn disturb(&self) -> BoxFuture<'_, ()> {
        let (servers, turn) = (Arc::clone(&self.servers), self.disturbed.fetch_add(1, Ordering::SeqCst));
        Box::pin(async move {
            let _ = tokio::task::spawn_blocking(move || servers.disturb(turn)).await;
        })
    }

    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(time))
    }
}

fn one() -> BoxFuture<'static, Box<dyn Harness>> {
    Box::pin(async {
        let redis = Redis::start();
        let url = redis.url();
        Box::new(Shared {
            store: connect(&url).await,
            url,
            servers: Arc::new(Servers::One(redis)),
            disturbed: AtomicUsize::new(0),
        }) as Box<dyn Harness>
    })
}

fn far() -> BoxFuture<'static, Box<dyn Harness>> {
    Box::pin(async {
        let redis = Redis::start();
        let proxy = Proxy::start(redis.port());
        let url = format!("redis://127.0.0.1:{}", proxy.port());
        Box::new(Shared {
            store: connect(&url).await,
            url,
            servers: Arc::new(Servers::Far(redis, proxy)),
            disturbed: AtomicUsize::new(0),
        }) as Box<dyn Harness>
    })
}

fn cluster() -> BoxFuture<'static, Box<dyn Harness>> {
    Box::pin(async {
        let cluster = Cluster::start(Engine::default(), false);
        let url = cluster.url();
        Box::new(Shared {
            store: connect(&url).await,
            url,
            servers: Arc::new(Servers::Cluster(cluster)),
            disturbed: AtomicUsize::new(0),
        }) as Box<dyn Harness>
    })
}

const SHARED: Settings = Settings { reads: READS, kill_every: Some(Duration::from_millis(400)), ..SOME };
const SOME: Settings = Settings { time: Duration::from_secs(120), ..MUTANT };

#[test]
fn no_read_is_older_than_its_promise() {
    promises_are_kept(&torture(&one, &start(Built::Plainly), SHARED));
}

#[test]
fn no_read_is_older_than_its_promise_in_a_cluster() {
    promises_are_kept(&torture(&cluster, &start(Built::Batching), SHARED));
}

#[test]
fn bad_days_make_no_read_old() {
    // Each of five bad things twice.
    let settings = Settings {
        reads: u64::MAX,
        time: Duration::from_secs(16),
        disturb_every: Some(Duration::from_millis(1_200)),
        ..SHARED
    };
    let tally = torture(&one, &start(Built::Plainly), settings);
    assert!(tally.broken.is_empty(), "{tally:#?}");
    assert!(tally.reads() > READS / 10 && tally.acknowledged > 100, "{tally:?}");
}

#[test]
fn a_bad_network_makes_no_read_old() {
    // Each of five bad things twice.
    let settings = Settings {
        reads: u64::MAX,
        time: Duration::from_secs(16),
        disturb_every: Some(Duration::from_millis(1_200)),
        ..SHARED
    };
    let tally = torture(&far, &start(Built::Plainly), settings);
    assert!(tally.broken.is_empty(), "{tally:#?}");
    assert!(tally.reads() > READS / 20 && tally.acknowledged > 100, "{tally:?}");
}

#[test]
fn a_lease_that_ends_before_its_load_makes_no_read_old() {
    let settings = Settings { bend: Some(Bend::RenewsNothing), ..SHARED };
    promises_are_kept(&torture(&one, &start(Built::Plainly), settings));
}

#[test]
fn a_deaf_process_keeps_to_the_bound() {
    let settings =
        Settings { bend: Some(Bend::Deaf), reads: u64::MAX, time: Duration::from_secs(6), mix: Mix::Bounded, ..MUTANT };
    promises_are_kept(&torture(&one, &start(Built::Plainly), settings));
}

#[test]
fn mutant_a_blind_set_is_caught() {
    let settings = Settings { bend: Some(Bend::FillsBlindly), ..MUTANT };
    is_caught("a blind SET", &torture(&one, &start(Built::Plainly), settings));
}
