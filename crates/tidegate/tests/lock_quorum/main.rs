//! Locks that a majority of private Redis servers grants.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidegate::lock::{
    Ask, AskId, Fence, Guard, Kept, Leave, LockError, LockName, LockNode, LockToken, Locks, Look, Mend, Quorum,
    QuorumOptions, RedisLocks, RedisNode, Sync, Vote,
};
use tidegate_backend::{BoxFuture, Renewal, Result};
use tidegate_conformance::servers::{Proxy, Redis, Setup, wait_until};
use tidegate_core::lock::Acquire;
use tidegate_redis::{Connector, RedisOptions};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
/// The longest time of a lock here, and so how long a new server does not count.
const LONGEST: Duration = Duration::from_secs(1);

async fn node(port: u16) -> Arc<dyn LockNode> {
    let options = RedisOptions::parse(&format!("redis://127.0.0.1:{port}")).unwrap().name("votes").unwrap();
    Arc::new(RedisNode::open(Connector::start(options).await.unwrap()).unwrap())
}

async fn nodes(ports: &[u16]) -> Vec<Arc<dyn LockNode>> {
    let mut nodes = Vec::new();
    for port in ports {
        nodes.push(node(*port).await);
    }
    nodes
}

fn options() -> QuorumOptions {
    QuorumOptions::default().longest(LONGEST).within(150 * MS)
}

/// What one process has of a quorum.
async fn process(ports: &[u16]) -> Locks {
    Locks::new(Arc::new(Quorum::new(nodes(ports).await, options()).unwrap()))
}

struct Servers(Vec<Redis>);

impl Servers {
    fn start(count: usize) -> Self {
        Self((0..count).map(|_| Redis::start()).collect())
    }

    fn ports(&self) -> Vec<u16> {
        self.0.iter().map(Redis::port).collect()
    }

    /// How many have the lock's key.
    fn keys(&self, name: &str) -> Vec<bool> {
        let key = format!("{{tg:votes:lq}}:h:{name}");
        self.0.iter().map(|redis| redis.try_tell(&["EXISTS", &key]).is_ok_and(|there| there.trim() == "1")).collect()
    }
}

fn ask() -> Ask {
    Ask::new(900 * MS)
}

/// Every server counts: all have been up for the longest time of a lock.
async fn counting(locks: &Locks) {
    let began = Instant::now();
    loop {
        match locks.acquire("warm", Ask::new(100 * MS)).await {
            Ok(guard) => {
                guard.release().await.unwrap();
                // The last server may be a moment behind the first.
                tokio::time::sleep(150 * MS).await;
                return;
            }
            Err(LockError::Unreachable(e)) => assert!(e.to_string().contains("it counts in"), "{e}"),
            Err(e) => panic!("{e}"),
        }
        assert!(began.elapsed() < 5 * SECOND, "the servers never count");
        tokio::time::sleep(50 * MS).await;
    }
}

async fn five() -> (Servers, Locks, Locks) {
    let servers = Servers::start(5);
    let (one, two) = (process(&servers.ports()).await, process(&servers.ports()).await);
    counting(&one).await;
    (servers, one, two)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_holder_at_a_time_and_fences_grow_whoever_is_away() {
    let (servers, one, two) = five().await;
    let mut last = Fence(0);
    for round in 0..24 {
        let (mine, other) = if round % 2 == 0 { (&one, &two) } else { (&two, &one) };
        match round {
            6 => servers.0[0].freeze(),
            12 => servers.0[1].kill(),
            18 => servers.0[0].thaw(),
            _ => {}
        }
        let guard = mine.acquire("row", ask().wait(2 * SECOND)).await.unwrap();
        assert!(guard.fence() > last, "round {round}: {:?} after {last:?}", guard.fence());
        last = guard.fence();
        let refused = other.acquire("row", ask()).await.unwrap_err();
        assert!(matches!(refused, LockError::Held { .. }), "round {round}: {refused}");
        if !(6..18).contains(&round) {
            // One that is frozen cannot be asked.
            wait_until("a majority to have it", || servers.keys("row").iter().filter(|there| **there).count() >= 3);
        }
        assert!(guard.release().await.unwrap());
    }
    assert_eq!(one.look("row").await.unwrap().held, None);
}

/// L16: servers that are dead are told as such, in time; a lock that nobody can have is not "held".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_nobody_holds_and_everybody_is_told_in_time() {
    let (servers, one, _two) = five().await;
    for server in &servers.0[..3] {
        server.kill();
    }
    let began = Instant::now();
    let refused = one.acquire("row", ask().wait(SECOND)).await.unwrap_err();
    assert!(matches!(refused, LockError::Unreachable(_)), "{refused}");
    assert!((SECOND..SECOND + 600 * MS).contains(&began.elapsed()), "{:?}", began.elapsed());
    let began = Instant::now();
    let refused = one.acquire("row", ask()).await.unwrap_err();
    assert!(matches!(refused, LockError::Unreachable(_)), "{refused}");
    assert!(began.elapsed() < 600 * MS, "{:?}", began.elapsed());
    assert!(refused.to_string().contains("2 of 5"), "{refused}");
    assert_eq!(servers.keys("row"), [false; 5], "what the others gave is given back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_mends_what_a_server_lost() {
    let (servers, one, two) = five().await;
    servers.0[4].kill();
    let guard = one.acquire("row", ask()).await.unwrap();
    servers.0[4].restart();
    servers.0[0].tell(&["FLUSHALL"]);
    wait_until("the lock to be everywhere", || servers.keys("row") == [true; 5]);
    // Those that have kept it go: what was mended holds.
    servers.0[1].kill();
    servers.0[2].kill();
    tokio::time::sleep(LONGEST + 200 * MS).await;
    assert!(guard.is_valid(), "a majority has it");
    let refused = two.acquire("row", ask()).await.unwrap_err();
    assert!(matches!(refused, LockError::Held { .. } | LockError::Unreachable(_)), "{refused}");
    assert!(guard.is_valid());
    assert!(guard.release().await.unwrap());
    assert_eq!(servers.keys("row"), [false; 5]);
}

/// L14: a lock that every server has lost, and that others had meanwhile, is lost, and nobody makes it anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_others_had_meanwhile_is_never_made_anew() {
    let (servers, one, two) = five().await;
    let guard = one.acquire("row", ask().without_renewal()).await.unwrap();
    for server in &servers.0 {
        server.tell(&["DEL", "{tg:votes:lq}:h:row"]);
    }
    let other = two.acquire("row", ask()).await.unwrap();
    assert!(other.fence() > guard.fence());
    assert!(other.release().await.unwrap());
    assert!(matches!(guard.renew().await.unwrap_err(), LockError::Lost));
    assert_eq!(servers.keys("row"), [false; 5]);
    // One server has it still: where another has had it since, it is not mended.
    let guard = one.acquire("row", ask().without_renewal()).await.unwrap();
    for server in &servers.0[1..] {
        server.tell(&["DEL", "{tg:votes:lq}:h:row"]);
    }
    let other = two.acquire("row", ask()).await.unwrap();
    assert!(other.release().await.unwrap());
    assert!(guard.renew().await.is_err());
    assert_eq!(servers.keys("row"), [true, false, false, false, false]);
}

/// L16: a failed renewal takes nothing back, and is no loss.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_miss_a_renewal_leave_the_rest_untouched() {
    let servers = Servers::start(3);
    let proxies: Vec<Proxy> = servers.ports().into_iter().map(Proxy::start).collect();
    let locks = process(&proxies.iter().map(Proxy::port).collect::<Vec<_>>()).await;
    counting(&locks).await;
    let guard = locks.acquire("row", ask().without_renewal()).await.unwrap();
    proxies[0].silence(true);
    proxies[1].silence(true);
    let refused = guard.renew().await.unwrap_err();
    assert!(matches!(refused, LockError::Unreachable(_)), "for a while only: {refused}");
    assert!(guard.is_valid());
    assert_eq!(servers.keys("row"), [true; 3]);
    for proxy in &proxies {
        proxy.silence(false);
        proxy.cut();
    }
    let began = Instant::now();
    while guard.renew().await.is_err() {
        assert!(guard.is_valid(), "{:?}", began.elapsed());
        tokio::time::sleep(20 * MS).await;
    }
    assert!(guard.release().await.unwrap());
}

/// L12: what may be relied on counts from the last request, and what comes too late is no grant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn validity_counts_from_the_request_that_succeeded() {
    let servers = Servers::start(3);
    let proxies: Vec<Proxy> = servers.ports().into_iter().map(Proxy::start).collect();
    let ports: Vec<u16> = proxies.iter().map(Proxy::port).collect();
    let within = options().within(400 * MS);
    let locks = Locks::new(Arc::new(Quorum::new(nodes(&ports).await, within).unwrap()));
    let other = process(&servers.ports()).await;
    counting(&locks).await;
    let held = other.acquire("row", Ask::new(600 * MS).without_renewal()).await.unwrap();
    for proxy in &proxies {
        proxy.delay(60 * MS);
    }
    let began = Instant::now();
    let guard = locks.acquire("row", ask().without_renewal().wait(3 * SECOND)).await.unwrap();
    assert!(began.elapsed() > 400 * MS, "it waited");
    assert!(!held.is_valid());
    let left = guard.remaining();
    assert!(left > 500 * MS, "{left:?}: the wait does not count");
    assert!(left < 900 * MS - 60 * MS, "{left:?}: the way does");
    guard.release().await.unwrap();
    for proxy in &proxies {
        proxy.delay(130 * MS);
    }
    let late = locks.acquire("row", Ask::new(120 * MS).without_renewal()).await;
    assert!(late.as_ref().map_or(true, Guard::is_valid), "granted, and over");
}

/// A node whose word counts though it has forgotten: what a quorum without the bar would be.
struct Credulous(Arc<dyn LockNode>);

impl LockNode for Credulous {
    fn name(&self) -> String {
        self.0.name()
    }
    fn trouble(&self) -> Option<String> {
        self.0.trouble()
    }
    fn vote<'a>(&'a self, name: &'a LockName, asked: &'a Acquire, longest_ms: i64) -> BoxFuture<'a, Result<Vote>> {
        Box::pin(async move { self.0.vote(name, asked, longest_ms).await.map(|vote| Vote { barred_ms: 0, ..vote }) })
    }
    fn keep<'a>(&'a self, locks: &'a [Renewal], mend: Mend) -> BoxFuture<'a, Vec<Result<Kept>>> {
        self.0.keep(locks, mend)
    }
    fn give_back<'a>(
        &'a self,
        name: &'a LockName,
        token: &'a LockToken,
        only: Option<(AskId, Leave)>,
    ) -> BoxFuture<'a, Result<bool>> {
        self.0.give_back(name, token, only)
    }
    fn look<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Look>> {
        self.0.look(name)
    }
    fn beat(&self, longest_ms: i64) -> BoxFuture<'_, Result<i64>> {
        self.0.beat(longest_ms)
    }
}

/// A server is started anew, another flushed: two of three have forgotten the lock. They count again once it is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_forgot_does_not_count_for_the_longest_lease() {
    let servers = Servers::start(3);
    let (one, two) = (process(&servers.ports()).await, process(&servers.ports()).await);
    let credulous =
        nodes(&servers.ports()).await.into_iter().map(|node| Arc::new(Credulous(node)) as Arc<dyn LockNode>);
    let credulous = Locks::new(Arc::new(Quorum::new(credulous.collect(), options()).unwrap()));
    counting(&one).await;
    let guard = one.acquire("row", Ask::new(LONGEST).without_renewal()).await.unwrap();
    servers.0[1].restart();
    servers.0[2].tell(&["FLUSHALL"]);
    let taken = two.acquire("row", ask().wait(3 * SECOND).without_renewal()).await.unwrap();
    assert!(!guard.is_valid(), "never two at once");
    assert!(taken.fence() > guard.fence());
    taken.release().await.unwrap();
    // The mutant is caught: without the bar there are two.
    let guard = one.acquire("row", Ask::new(LONGEST).without_renewal()).await.unwrap();
    servers.0[1].restart();
    servers.0[2].tell(&["FLUSHALL"]);
    let second = loop {
        match credulous.acquire("row", ask().without_renewal()).await {
            Ok(second) => break second,
            Err(LockError::Unreachable(_) | LockError::Held { .. }) if guard.is_valid() => {}
            other => panic!("{other:?}"),
        }
        tokio::time::sleep(10 * MS).await;
    };
    assert!(guard.is_valid() && second.is_valid(), "two at once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_must_agree_on_the_longest_time() {
    let servers = Servers::start(3);
    let locks = process(&servers.ports()).await;
    counting(&locks).await;
    let other = Quorum::new(nodes(&servers.ports()).await, options().longest(2 * SECOND)).unwrap();
    let refused = Locks::new(Arc::new(other)).acquire("row", ask()).await.unwrap_err();
    assert!(refused.to_string().contains("1000 ms"), "{refused}");
    let refused = locks.acquire("row", Ask::new(2 * SECOND)).await.unwrap_err();
    assert!(matches!(refused, LockError::Time { most, .. } if most == LONGEST), "{refused}");
    let two = nodes(&servers.ports()[..2]).await;
    assert!(Quorum::new(two, options()).unwrap_err().to_string().contains("3 to 15"));
}

/// Nobody is handed the lock, and nobody storms the servers for it either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_ask_seldom_and_all_get_it() {
    let (servers, one, two) = five().await;
    let commands = || -> u64 {
        let stats = servers.0[0].tell(&["INFO", "stats"]);
        let line = stats.lines().find_map(|line| line.strip_prefix("total_commands_processed:")).unwrap();
        line.trim().parse().unwrap()
    };
    let held = one.acquire("row", ask()).await.unwrap();
    let served = Arc::new(AtomicU64::new(0));
    let waiting: Vec<_> = (0..20)
        .map(|n| {
            let (locks, served) = (if n % 2 == 0 { one.clone() } else { two.clone() }, served.clone());
            tokio::spawn(async move {
                let guard = locks.acquire("row", ask().wait(20 * SECOND)).await.unwrap();
                served.fetch_add(1, Ordering::SeqCst);
                guard.release().await.unwrap();
            })
        })
        .collect();
    tokio::time::sleep(2 * SECOND).await;
    let before = commands();
    tokio::time::sleep(2 * SECOND).await;
    let rate = (commands() - before) / 2;
    // A vote and what gives it back are scripts of some commands each.
    assert!(rate < 20 * 50, "{rate} commands/s for 20 waiters");
    held.release().await.unwrap();
    for waiter in waiting {
        waiter.await.unwrap();
    }
    assert_eq!(served.load(Ordering::SeqCst), 20);
    assert_eq!(servers.keys("row"), [false; 5]);
}

/// Futures dropped at random points leave no key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancellations_at_random_points_leave_no_key() {
    let (servers, one, two) = five().await;
    let mut seed = 11u64;
    let mut tasks = Vec::new();
    for n in 0..200u64 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let (locks, patience) = (if n % 2 == 0 { one.clone() } else { two.clone() }, Duration::from_micros(seed >> 49));
        tasks.push(tokio::spawn(async move {
            let name = format!("lock-{}", n % 23);
            let hold = async {
                let guard = locks.acquire(&name, ask().wait(SECOND)).await?;
                tokio::time::sleep(MS).await;
                guard.release().await
            };
            let _ = tokio::time::timeout(patience, hold).await;
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let began = Instant::now();
    let left = || (0..23).filter(|n| servers.keys(&format!("lock-{n}")).contains(&true)).count();
    while left() > 0 {
        assert!(began.elapsed() < 700 * MS, "{} keys stay behind", left());
        tokio::time::sleep(10 * MS).await;
    }
}

/// L11: a replica that was promoted has no replica of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_replicas_grants_degraded_or_says_so_in_time() {
    let master = Redis::start();
    let replica = Redis::start_with(Setup::default().option("replicaof", &format!("127.0.0.1 {}", master.port())));
    wait_until("the replica to follow", || replica.tell(&["INFO", "replication"]).contains("master_link_status:up"));
    let open = async |redis: &Redis| {
        let options = RedisOptions::parse(&redis.url()).unwrap().name("sync").unwrap();
        Locks::new(Arc::new(RedisLocks::open(Connector::start(options).await.unwrap())))
    };
    let key = |redis: &Redis, n: u32| {
        let keys = redis.tell(&["KEYS", &format!("*:h:row-{n}")]);
        keys.contains("row")
    };
    let within = 300 * MS;
    let (best, one) = (Sync::Best { within }, Sync::Replicas { count: 1, within });
    let locks = open(&master).await;
    let ask = || Ask::new(5 * SECOND);
    // A replica that has just come acknowledges nothing for up to a second.
    let began = Instant::now();
    while let Err(refused) = locks.acquire("row-0", ask().sync(one)).await {
        assert!(began.elapsed() < 20 * SECOND, "{refused}");
    }
    for (n, sync) in [(1, best), (2, one)] {
        let guard = locks.acquire(&format!("row-{n}"), ask().sync(sync)).await.unwrap();
        assert!(!guard.is_degraded());
        assert!(key(&replica, n), "the replica has it when it is granted");
        assert!(guard.release().await.unwrap());
    }
    let refused = locks.acquire("row", ask().sync(Sync::Replicas { count: 2, within })).await.unwrap_err();
    assert!(matches!(refused, LockError::NotReplicated { wanted: 2, reached: 1 }), "{refused}");
    // A replica that hangs is one that has nothing.
    replica.freeze();
    let refused = locks.acquire("row-3", ask().sync(one)).await.unwrap_err();
    assert!(matches!(refused, LockError::NotReplicated { wanted: 1, reached: 0 }), "{refused}");
    assert!(!key(&master, 3), "it is given back");
    replica.thaw();
    replica.tell(&["REPLICAOF", "NO", "ONE"]);
    let locks = open(&replica).await;
    let began = Instant::now();
    let guard = locks.acquire("row-4", ask().sync(best)).await.unwrap();
    assert!(guard.is_degraded() && guard.is_valid());
    assert!(began.elapsed() < within + 200 * MS, "{:?}", began.elapsed());
    guard.release().await.unwrap();
    let began = Instant::now();
    let refused = locks.acquire("row-5", ask().sync(one)).await.unwrap_err();
    assert!(matches!(refused, LockError::NotReplicated { wanted: 1, reached: 0 }), "{refused}");
    assert!(began.elapsed() < within + 200 * MS, "{:?}", began.elapsed());
    assert!(!key(&replica, 5));
    let refused = locks.acquire("row", Ask::new(300 * MS).sync(one)).await.unwrap_err();
    assert!(matches!(refused, LockError::Time { .. }), "{refused}");
}

/// Servers are killed, started, frozen and flushed at random, one or two at a time: never two holders, and fences grow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_happens_to_a_minority_there_is_one_holder() {
    let (servers, one, two) = five().await;
    let lasts = if std::env::var_os("TIDEGATE_TEST_LONG").is_some() { 120 * SECOND } else { 6 * SECOND };
    let (stop, holder) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new((Fence(0), 0u64))));
    let inside = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for n in 0..4u64 {
        let locks = if n % 2 == 0 { one.clone() } else { two.clone() };
        let (stop, holder, inside) = (stop.clone(), holder.clone(), inside.clone());
        tasks.push(tokio::spawn(async move {
            while !stop.load(Ordering::SeqCst) {
                let Ok(guard) = locks.acquire("row", Ask::new(600 * MS).wait(SECOND)).await else { continue };
                if !guard.is_valid() {
                    continue;
                }
                let others = inside.fetch_add(1, Ordering::SeqCst);
                if guard.is_valid() {
                    assert_eq!(others, 0, "two at once");
                    let mut last = holder.lock().unwrap();
                    assert!(guard.fence() > last.0, "{:?} after {:?}", guard.fence(), last.0);
                    *last = (guard.fence(), last.1 + 1);
                }
                tokio::time::sleep(3 * MS).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                let _ = guard.release().await;
            }
        }));
    }
    let (began, mut seed) = (Instant::now(), 5u64);
    while began.elapsed() < lasts {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let victim = &servers.0[usize::try_from(seed >> 40).unwrap() % 5];
        match (seed >> 33) % 4 {
            0 => {
                victim.tell(&["FLUSHALL"]);
            }
            1 => {
                victim.freeze();
                tokio::time::sleep(300 * MS).await;
                victim.thaw();
            }
            2 => tokio::task::block_in_place(|| victim.restart()),
            _ => {
                victim.tell(&["CLIENT", "KILL", "TYPE", "normal"]);
            }
        }
        // A majority counts most of the time: one server is out for a second.
        tokio::time::sleep(500 * MS).await;
    }
    stop.store(true, Ordering::SeqCst);
    for task in tasks {
        task.await.unwrap();
    }
    let granted = holder.lock().unwrap().1;
    assert!(granted > 50, "{granted} grants");
}

/// What one call was told, another with its token does not take back, at any server, nor when too few answer it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeat_takes_nothing_from_what_was_told() {
    let servers = Servers::start(5);
    let longest = 3 * SECOND;
    let process = async || {
        let quorum = Quorum::new(nodes(&servers.ports()).await, options().longest(longest)).unwrap();
        Locks::new(Arc::new(quorum))
    };
    let (one, two) = (process().await, process().await);
    counting(&one).await;
    let token = LockToken::parse("0123456789abcdef").unwrap();
    let ask = || Ask::new(longest).token(token.clone()).without_renewal();
    let first = one.acquire("row", ask()).await.unwrap();
    let fence = first.fence();
    assert!(!first.is_repeated());
    first.detach();
    // The servers beyond the majority learn its fence a moment later.
    tokio::time::sleep(200 * MS).await;
    let again = two.acquire("row", ask()).await.unwrap();
    assert!(again.is_repeated() && again.fence() == fence);
    again.undelivered();
    tokio::time::sleep(100 * MS).await;
    assert_eq!(servers.keys("row"), [true; 5]);
    let refused = two.acquire("row", Ask::new(longest)).await.unwrap_err();
    assert!(matches!(refused, LockError::Held { .. }), "{refused}");
    // Two of five answer the next repeat: it is told so, and takes nothing back there.
    assert_eq!(one.renew("row", &token, longest).await.unwrap().0, fence);
    servers.0[2..].iter().for_each(Redis::freeze);
    let refused = two.acquire("row", ask()).await.unwrap_err();
    servers.0[2..].iter().for_each(Redis::thaw);
    assert!(matches!(refused, LockError::Unreachable(_)), "{refused}");
    assert_eq!(one.renew("row", &token, longest).await.unwrap().0, fence);
    assert!(one.release("row", &token).await.unwrap());
    two.acquire("row", Ask::new(longest)).await.unwrap().release().await.unwrap();
}
