//! Servers that forget, freeze, restart, fill up, evict, and are replaced.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_backend::feed::{Event, Reads};
use tidegate_backend::{ErrorKind, FeedStore};
use tidegate_conformance::servers::{Engine, Proxy, Redis, Sentinel, Setup};
use tidegate_core::feed::Subject;
use tidegate_redis::RedisFeed;

use super::common::until;
use super::shelf::{
    NOW, SECOND, author_fill, entry, floor, followed, news, open, part, post, published, until_read, user,
};

/// The time limit of a call (500 ms), and what a busy machine may add.
const LIMIT: Duration = Duration::from_millis(3_000);

fn ask_news() -> Reads {
    Reads { news: true, ..Reads::default() }
}

async fn apply_until(feed: &RedisFeed, change: &tidegate_core::feed::Change) {
    let began = Instant::now();
    while let Err(e) = feed.apply(std::slice::from_ref(change), NOW).await {
        assert!(began.elapsed() < 20 * SECOND, "{e}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_is_a_loss_and_is_said() {
    let redis = Redis::start();
    let (a, b) = (open(&redis.url(), "x").await, open(&redis.url(), "x").await);
    for feed in [&a, &b] {
        news(feed).await;
    }
    a.apply(&[published("ann", 0, 9, &[entry(5, "p")])], NOW).await.unwrap();
    assert_eq!(news(&b).await.events.len(), 1);
    redis.restart();
    for feed in [&a, &b] {
        assert!(until_read(feed, ask_news()).await.news.lost);
        assert!(!news(feed).await.lost);
        assert_eq!(part(feed, "ann").await, None);
    }
    assert!(a.fill(vec![author_fill("ann", 9, &[entry(5, "p")])]).await.unwrap()[0]);
    assert_eq!(part(&b, "ann").await.unwrap().entries, [entry(5, "p")]);
}

/// A new connection may lead to a server that lacks the newest, even if it has all that was read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_without_the_newest_is_noticed() {
    let (old, new) = (Redis::start(), Redis::start());
    new.tell(&["REPLICAOF", "127.0.0.1", &old.port().to_string()]);
    until("the replica", 10 * SECOND, || old.tell(&["INFO", "replication"]).contains("state=online")).await;
    let proxy = Proxy::start(old.port());
    let url = format!("redis://127.0.0.1:{}", proxy.port());
    let (a, b) = (open(&url, "x").await, open(&url, "x").await);
    for feed in [&a, &b] {
        news(feed).await;
    }
    a.apply(&[published("ann", 0, 9, &[entry(5, "p")])], NOW).await.unwrap();
    assert_eq!(news(&b).await.events.len(), 1);
    // `WAIT` speaks of its own connection's writes only.
    let offset = |redis: &Redis, field: &str| {
        let info = redis.tell(&["INFO", "replication"]);
        info.lines().find_map(|line| line.strip_prefix(field)?.trim().parse::<u64>().ok())
    };
    let told = offset(&old, "master_repl_offset:");
    until("the replica", 10 * SECOND, || offset(&new, "slave_repl_offset:") >= told).await;
    // From here on it gets nothing: it lags.
    new.tell(&["REPLICAOF", "NO", "ONE"]);
    a.apply(&[published("ann", 9, 10, &[entry(4, "q")])], NOW).await.unwrap();
    proxy.lead_to(new.port());
    proxy.cut();
    until("it waits for floors", 10 * SECOND, || b.wants_repeat()).await;
    assert!(b.read(ask_news()).await.is_err(), "what it has may be old");
    for feed in [&a, &b] {
        let found = until_read(feed, ask_news()).await;
        assert!(found.news.lost);
    }
    // What the outbox repeats brings it up to date.
    assert_eq!(part(&b, "ann").await.unwrap().version, 9);
    a.apply(&[floor(Subject::Author(user("ann")), 10)], NOW).await.unwrap();
    assert_eq!(part(&b, "ann").await, None);
    assert!(!b.fill(vec![author_fill("ann", 9, &[])]).await.unwrap()[0]);
}

/// A server that was started again with the data of some time ago. What it lacks is more than floors are remembered for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_copies_of_a_server_that_came_back_are_deleted() {
    let redis = Redis::start();
    let a = open(&redis.url(), "x").await;
    news(&a).await;
    a.apply(&[published("ann", 0, 9, &[entry(5, "p")])], NOW).await.unwrap();
    a.apply(&[published("bob", 0, 4, &[])], NOW).await.unwrap();
    a.close().await;
    redis.tell(&["HINCRBY", "{tg:x:f0}:mark", "at", "-60000"]);
    redis.tell(&["SET", "{tg:x}:another's", "1"]);
    redis.tell(&["SAVE"]);
    let b = open(&redis.url(), "x").await;
    b.apply(&[published("ann", 9, 10, &[entry(4, "q")])], NOW).await.unwrap();
    redis.restart();
    assert!(redis.tell(&["KEYS", "*:ann"]).contains("a:ann"), "it has what it had then");
    for feed in [&b, &open(&redis.url(), "x").await] {
        until_read(feed, ask_news()).await;
        assert!(!feed.wants_repeat(), "floors do not help");
        assert_eq!((part(feed, "ann").await, part(feed, "bob").await), (None, None));
    }
    assert_eq!(redis.tell(&["EXISTS", "{tg:x}:another's"]).trim(), "1");
    assert!(b.fill(vec![author_fill("ann", 10, &[entry(4, "q")])]).await.unwrap()[0]);
    // Marked: the next one trusts it at once.
    let c = open(&redis.url(), "x").await;
    assert_eq!(part(&c, "ann").await.unwrap().entries, [entry(4, "q")]);
}

/// The same where the connection stays: what a process has told must be there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_told_and_is_gone_is_noticed() {
    let redis = Redis::start();
    let (a, b) = (open(&redis.url(), "x").await, open(&redis.url(), "x").await);
    for feed in [&a, &b] {
        news(feed).await;
    }
    a.apply(&[published("ann", 0, 9, &[])], NOW).await.unwrap();
    assert!(!news(&a).await.lost && !news(&b).await.lost);
    a.apply(&[published("ann", 9, 10, &[])], NOW).await.unwrap();
    let stream = "{tg:x:f0}:news";
    let last = redis.tell(&["XREVRANGE", stream, "+", "-", "COUNT", "1"]);
    redis.tell(&["XDEL", stream, last.lines().next().unwrap()]);
    assert!(news(&a).await.lost);
    assert!(!news(&a).await.lost, "it is said once");
    // Written over: other words at the same place.
    news(&b).await;
    b.apply(&[published("ann", 10, 11, &[])], NOW).await.unwrap();
    news(&a).await;
    let last = redis.tell(&["XREVRANGE", stream, "+", "-", "COUNT", "1"]);
    let id = last.lines().next().unwrap().to_owned();
    redis.tell(&["DEL", stream]);
    redis.tell(&["XADD", stream, &id, "e", "T\n1\n2\nbob"]);
    assert!(news(&a).await.lost);
    // What a stranger wrote is no news.
    redis.tell(&["XADD", stream, "*", "e", "nonsense"]);
    assert!(news(&a).await.lost);
    assert!(!news(&a).await.lost);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_ends_in_time_while_the_server_is_frozen() {
    let redis = Redis::start();
    let feed = open(&redis.url(), "x").await;
    feed.apply(&[published("ann", 0, 9, &[entry(5, "p")])], NOW).await.unwrap();
    news(&feed).await;
    redis.freeze();
    let frozen = Instant::now();
    let mut callers = tokio::task::JoinSet::new();
    for n in 0..40 {
        let feed: Arc<RedisFeed> = feed.clone();
        callers.spawn(async move {
            let mut longest = Duration::ZERO;
            while frozen.elapsed() < 2 * SECOND {
                let began = Instant::now();
                let failed = match n % 5 {
                    0 => feed.read(ask_news()).await.err(),
                    1 => feed.read(Reads { heads: vec![user("ann")], ..Reads::default() }).await.err(),
                    2 => feed.apply(&[followed("ann", 0, 3, "bob")], NOW).await.err(),
                    3 => feed.fill(vec![author_fill("bob", 3, &[])]).await.err(),
                    _ => feed.lease(&[Subject::Root(post("r"))]).await.err(),
                };
                assert_eq!(failed.map(|e| e.kind()), Some(ErrorKind::Unavailable), "call {n}");
                longest = longest.max(began.elapsed());
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            longest
        });
    }
    let longest = callers.join_all().await.into_iter().max().unwrap();
    assert!(longest < LIMIT, "{longest:?}");
    redis.thaw();
    assert!(until_read(&feed, ask_news()).await.news.lost, "it was another connection");
    assert!(part(&feed, "ann").await.is_some());
    redis.kill();
    let began = Instant::now();
    let e = feed.apply(&[followed("ann", 0, 9, "bob")], NOW).await.unwrap_err();
    assert!(e.kind() == ErrorKind::Unavailable && began.elapsed() < LIMIT, "{e}");
}

/// A full server still hears what is old; it takes no copies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_hears_what_is_old_and_takes_no_copies() {
    let redis = Redis::start();
    let (a, b) = (open(&redis.url(), "x").await, open(&redis.url(), "x").await);
    a.apply(&[published("ann", 0, 9, &[entry(5, "p")]), published("bob", 0, 9, &[entry(5, "p")])], NOW).await.unwrap();
    for feed in [&a, &b] {
        news(feed).await;
    }
    redis.tell(&["CONFIG", "SET", "maxmemory", "1mb"]);
    let e = a.fill(vec![author_fill("new", 9, &[entry(1, "n")])]).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    let changes = [published("ann", 9, 10, &[entry(1, "q")]), floor(Subject::Author(user("bob")), 10)];
    apply_until(&a, &changes[0]).await;
    apply_until(&a, &changes[1]).await;
    let told = until_read(&b, ask_news()).await.news;
    assert!(told.lost || told.events == changes.each_ref().map(Event::of), "{told:?}");
    assert_eq!(part(&b, "ann").await.unwrap().version, 10);
    assert_eq!(part(&b, "bob").await, None);
    redis.tell(&["CONFIG", "SET", "maxmemory", "0"]);
    assert!(a.fill(vec![author_fill("new", 9, &[])]).await.unwrap()[0]);
}

/// A replica takes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_is_no_store() {
    let (redis, master) = (Redis::start(), Redis::start());
    let feed = open(&redis.url(), "x").await;
    feed.apply(&[published("ann", 0, 9, &[])], NOW).await.unwrap();
    redis.tell(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    let e = feed.apply(&[published("ann", 9, 10, &[])], NOW).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    assert!(feed.fill(vec![author_fill("ann", 9, &[])]).await.is_err());
    assert!(feed.lease(&[Subject::Root(post("r"))]).await.is_err());
}

/// A server that may delete floors is not read, and takes no copies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_evicts_what_expires_is_refused() {
    let redis = Redis::start_with(Setup::default().option("maxmemory-policy", "volatile-lru"));
    let feed = open(&redis.url(), "x").await;
    for e in [feed.read(ask_news()).await.unwrap_err(), feed.fill(vec![author_fill("a", 1, &[])]).await.unwrap_err()] {
        assert_eq!(e.kind(), ErrorKind::Configuration);
        assert!(e.to_string().contains("CONFIG SET maxmemory-policy noeviction"), "{e}");
    }
    feed.apply(&[published("ann", 0, 9, &[])], NOW).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_types_under_our_keys_are_nothing_and_mended() {
    let redis = Redis::start();
    let feed = open(&redis.url(), "x").await;
    let key = |kind: &str| format!("{{tg:x:f0}}:{kind}");
    let reads = || Reads {
        news: true,
        heads: vec![user("ann")],
        sets: vec![super::shelf::newest("ann", 5), super::shelf::newest("bob", 5)],
        users: vec![user("ann")],
        roots: vec![tidegate_backend::feed::RootRead { root: post("p"), among: None }],
    };
    feed.fill(vec![author_fill("bob", 9, &[entry(5, "q")])]).await.unwrap();
    news(&feed).await;
    let spoil = || {
        for kind in ["a:ann", "h:ann", "u:ann", "r:p", "news"] {
            redis.tell(&["DEL", &key(kind)]);
            redis.tell(&["SADD", &key(kind), "stranger"]);
        }
    };
    spoil();
    let found = feed.read(reads()).await.unwrap();
    assert!(found.news.lost);
    assert_eq!(
        (found.heads[0], found.sets[0].is_some(), found.users[0].is_some(), found.roots[0].is_some()),
        (None, false, false, false)
    );
    assert!(found.sets[1].is_some());
    spoil();
    feed.apply(&[published("ann", 0, 9, &[entry(5, "p")]), followed("ann", 0, 9, "bob")], NOW).await.unwrap();
    assert_eq!(part(&feed, "ann").await.unwrap().entries, [entry(5, "p")]);
    spoil();
    let taken = feed.fill(vec![author_fill("ann", 9, &[entry(5, "p")]), author_fill("bob", 9, &[])]).await.unwrap();
    assert_eq!(taken, [true, true]);
    assert!(part(&feed, "ann").await.is_some());
    // A set without its head, and a head without its set.
    redis.tell(&["ZREMRANGEBYRANK", &key("a:ann"), "0", "0"]);
    assert_eq!(part(&feed, "ann").await, None);
    feed.apply(&[published("ann", 9, 10, &[entry(4, "r")])], NOW).await.unwrap();
    assert_eq!(part(&feed, "ann").await, None);
    assert!(!feed.fill(vec![author_fill("ann", 9, &[])]).await.unwrap()[0]);
    redis.tell(&["DEL", &key("a:bob")]);
    assert_eq!(part(&feed, "bob").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_follows_the_sentinels_to_another_master() {
    let servers = Sentinel::start(Engine::default());
    let (a, b) = (open(&servers.url(), "x").await, open(&servers.url(), "x").await);
    for feed in [&a, &b] {
        news(feed).await;
    }
    a.apply(&[published("ann", 0, 9, &[entry(5, "p")])], NOW).await.unwrap();
    assert_eq!(news(&b).await.events.len(), 1);
    let master = servers.servers.iter().position(|server| Some(server.port()) == servers.master_port()).unwrap();
    servers.servers[master].kill();
    until("another is the master", 20 * SECOND, || {
        servers.master_port().is_some_and(|port| port != servers.servers[master].port())
    })
    .await;
    for feed in [&a, &b] {
        assert!(until_read(feed, ask_news()).await.news.lost);
    }
    let change = published("ann", 9, 10, &[entry(4, "q")]);
    apply_until(&a, &change).await;
    let told = until_read(&b, ask_news()).await.news;
    assert!(told.lost || told.events.contains(&Event::of(&change)), "{told:?}");
    assert!(part(&b, "ann").await.is_none_or(|part| part.version == 10));
}
