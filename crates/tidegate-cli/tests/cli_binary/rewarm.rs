//! `tidegate serve` brings back what is read most when its Redis has lost it, with no reader asking.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tidegate_conformance::servers::{Postgres, Redis};

use crate::cache::{Node, Origin, node};
use crate::support::folder;

/// Keys that are read again and again, and others that are read once.
const HOT: usize = 400;
const COLD: usize = 150;
/// Loads a second of a warm-up, and what may begin beside it.
const PACE: usize = 200;
const SLACK: usize = 30;
/// How long it is looked whether a server that must not does.
const QUIET: Duration = Duration::from_secs(6);

/// A server with a Redis, whose `items` were read by Zipf's law, but for those that were read once.
struct Shop {
    // Ends before what it stands on.
    node: Node,
    redis: Redis,
    origin: Origin,
    _postgres: Postgres,
    _dir: tempfile::TempDir,
}

impl Shop {
    fn start(settings: &str) -> Self {
        let (postgres, redis, dir, origin) = (Postgres::start(), Redis::start(), folder(), Origin::start());
        let config = format!("{}\n[cache]\n{settings}\n", origin.config("fresh_for = \"10m\""));
        let (ledger, store) = (postgres.database(), redis.url());
        let node = node(dir.path(), "serve.toml", &config, &["--ledger", &ledger, "--store", &store]);
        let shop = Self { node, redis, origin, _postgres: postgres, _dir: dir };
        for cold in 0..COLD {
            assert_eq!(shop.node.get(&format!("cold-{cold}")).0, 200);
        }
        // More than once: what was read once may have been read by chance.
        let reads = (1..=HOT).flat_map(|rank| (0..3 + HOT / 2 / rank).map(move |_| rank));
        for rank in reads {
            assert_eq!(shop.node.get(&format!("hot-{rank}")).0, 200);
        }
        shop
    }

    /// Everything is lost, and nobody reads any more.
    fn flush(&self) -> Instant {
        let flushed = Instant::now();
        self.redis.tell(&["FLUSHALL"]);
        flushed
    }

    /// How many entries Redis has.
    fn entries(&self) -> usize {
        self.redis.tell(&["KEYS", "tg:shop:c:items:{:*}:[0-3]"]).lines().count()
    }

    fn end(self) {
        assert_eq!(self.node.0.stop(Signal::TERM).0, Some(0));
    }
}

#[test]
fn the_hottest_come_back_without_a_reader_at_a_bounded_pace() {
    let shop = Shop::start("");
    assert!(shop.entries() >= HOT + COLD, "{}", shop.entries());
    let flushed = shop.flush();
    while shop.origin.asked_since(flushed).len() < HOT {
        let asked = shop.origin.asked_since(flushed).len();
        assert!(flushed.elapsed() < Duration::from_secs(15), "{asked} of {HOT} are back");
        std::thread::sleep(Duration::from_millis(20));
    }
    // Whatever comes beyond what was hot would come now.
    std::thread::sleep(Duration::from_secs(1));
    let asked = shop.origin.asked_since(flushed);
    let keys: HashSet<&str> = asked.iter().map(|(_, key)| key.as_str()).collect();
    assert!(asked.len() == HOT && keys.len() == HOT, "each once: {} of {}", keys.len(), asked.len());
    assert!(keys.iter().all(|key| key.starts_with("hot-")), "{keys:?}");
    for (n, (began, _)) in asked.iter().enumerate() {
        let within = asked[n..].iter().take_while(|(at, _)| at.duration_since(*began) < Duration::from_secs(1)).count();
        assert!(within <= PACE + SLACK, "{within} loads in a second");
    }
    let first: HashSet<&str> = asked[..HOT / 4].iter().map(|(_, key)| key.as_str()).collect();
    let early = (1..=20).filter(|rank| first.contains(&*format!("hot-{rank}"))).count();
    assert!(early >= 18, "{early} of the hottest 20 are in the first quarter: {asked:?}");
    // They are in Redis, not only where they were loaded.
    assert!(shop.entries() >= HOT && shop.entries() < HOT + COLD, "{}", shop.entries());
    for rank in [1, 2, HOT / 2, HOT] {
        let answer = shop.node.get(&format!("hot-{rank}?read=strong"));
        assert_eq!((answer.0, &*answer.1), (200, "hit"), "hot-{rank}: {answer:?}");
    }
    shop.end();
}

#[test]
fn nothing_comes_back_where_that_is_switched_off() {
    let shop = Shop::start("rewarm = 0");
    let flushed = shop.flush();
    while flushed.elapsed() < QUIET {
        assert_eq!((shop.origin.asked_since(flushed).len(), shop.entries()), (0, 0), "{:?}", flushed.elapsed());
        std::thread::sleep(Duration::from_millis(200));
    }
    // A reader brings back what it reads.
    assert_eq!(shop.node.get("hot-1?read=strong").1, "miss");
    assert_eq!((shop.origin.asked_since(flushed).len(), shop.entries()), (1, 1));
    shop.end();
}
