//! Redis and the way to it: it restarts, is silent, is replaced, is wiped; replies and subscriptions are lost.

use std::time::{Duration, Instant};

use tidegate::core::Millis;
use tidegate::queue::{Connector, NewTask, Queues, RedisOptions, Settle, Settled, Verdict};
use tidegate_conformance::servers::{Engine, Proxy, Redis, Sentinel, Setup};

use super::common::{
    MS, QUEUE, Runs, SECOND, SLACK, fill, id, mail, numbers, open, percentile, raw, redis_store, until,
};
use super::scaled;

const PAST: Millis = Millis(1);

fn through(proxy: &Proxy) -> String {
    format!("redis://127.0.0.1:{}", proxy.port())
}

// C14
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_subscription_all_fires_in_time() {
    let redis = Redis::start();
    let (queues, runs) = (open(&redis.url()).await, Runs::default());
    let due = queues.now().plus(1_000);
    fill(&mail(&queues), 0..100, |n| due.plus(n as i64 * 5)).await;
    let worker = runs.worker(&queues, SECOND);
    // Nothing is scheduled from here on, and whoever subscribes loses it at once.
    let began = Instant::now();
    while began.elapsed() < 1_500 * MS {
        redis.tell(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        tokio::time::sleep(30 * MS).await;
    }
    until("all fired", async || runs.len() == 100).await;
    let lateness = runs.lateness();
    assert!(lateness[0] >= 0 && percentile(&lateness, 100) <= 1_000, "{lateness:?}");
    worker.stop(SECOND).await;
}

// C14: an earlier task scheduled by another process is not heard of, and still comes within the tick.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_earlier_task_that_nobody_heard_of_comes_within_the_tick() {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.port());
    let (queues, runs) = (open(&through(&proxy)).await, Runs::default());
    let other = open(&redis.url()).await;
    mail(&other).schedule(NewTask::after(id(0), 3_600 * SECOND, 0)).await.unwrap();
    let worker = runs.worker(&queues, SECOND);
    tokio::time::sleep(100 * MS).await;
    for n in 1..=5 {
        redis.tell(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        mail(&other).schedule(NewTask::after(id(n), 20 * MS, n)).await.unwrap();
        until("it fired", async || runs.len() as u64 == n).await;
    }
    let lateness = runs.lateness();
    assert!(lateness[0] >= 0 && lateness[4] <= 500 + SLACK.as_millis() as i64, "{lateness:?}");
    worker.stop(SECOND).await;
}

/// While `day` happens nothing can be consumed, which is told; two seconds after it all that is due was.
async fn goes_on_after(queues: &Queues, outage: impl AsyncFnOnce(), back: impl AsyncFnOnce()) {
    let runs = Runs::default();
    let worker = runs.worker(queues, 30 * SECOND);
    let queue = mail(queues);
    fill(&queue, 0..10, |_| PAST).await;
    until("it consumes", async || numbers(&queue).await == (0, 0, 0)).await;
    let due = queues.now().plus(500);
    fill(&queue, 10..60, |_| due).await;
    assert_eq!(queues.trouble(), None);
    outage().await;
    until("it says so", async || queues.trouble().is_some()).await;
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(scaled(3, 30)) {
        assert!(queues.trouble().is_some(), "red all the while");
        tokio::time::sleep(50 * MS).await;
    }
    assert_eq!(runs.len(), 10);
    back().await;
    let back = Instant::now();
    until("it consumes again", async || runs.len() == 60).await;
    assert!(back.elapsed() <= 2 * SECOND + SLACK, "{:?}", back.elapsed());
    until("all is acknowledged, and it says so", async || {
        queues.trouble().is_none()
            && queue.stats().await.is_ok_and(|stats| stats.is_some_and(|s| s.pending + s.leased == 0))
    })
    .await;
    assert!(runs.all().values().all(|runs| runs.len() == 1), "once each");
    worker.stop(SECOND).await;
}

// C16
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consuming_goes_on_after_a_restart() {
    let redis = Redis::start_with(Setup::default().persistent());
    let queues = open(&redis.url()).await;
    goes_on_after(&queues, async || redis.kill(), async || redis.restart()).await;
}

// C16
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consuming_goes_on_after_a_silent_network() {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.port());
    let queues = open(&through(&proxy)).await;
    goes_on_after(
        &queues,
        async || proxy.silence(true),
        async || {
            // Packets of the old connections are gone for good.
            proxy.cut();
            proxy.silence(false);
        },
    )
    .await;
}

// C16
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consuming_goes_on_after_a_new_master() {
    let sentinel = Sentinel::start(Engine::default());
    let queues = open(&sentinel.url()).await;
    let (queue, runs) = (mail(&queues), Runs::default());
    let worker = runs.worker(&queues, 2 * SECOND);
    let far = queues.now().plus(3_600_000);
    fill(&queue, 0..100, |n| if n < 20 { PAST } else { far }).await;
    until("it consumes", async || numbers(&queue).await == (80, 0, 0)).await;
    let old = sentinel.master_port();
    copied(&sentinel.servers[0], &sentinel.servers[1]).await;
    sentinel.servers[0].kill();
    until("another is the master", async || sentinel.master_port() != old).await;
    let switched = Instant::now();
    let soon = NewTask::at(id(100), PAST, 100);
    until("tasks are taken", async || queue.schedule(soon.clone()).await.is_ok()).await;
    until("they are consumed", async || runs.len() == 21).await;
    // Sentinel names the new master a moment before it lets itself be written to.
    assert!(switched.elapsed() < 4 * SECOND + SLACK, "{:?}", switched.elapsed());
    until("all is acknowledged", async || numbers(&queue).await == (80, 0, 0)).await;
    until("it is well", async || queues.trouble().is_none()).await;
    worker.stop(SECOND).await;
}

// C22
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_replies_cost_a_lease_and_no_task() {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.port());
    let (queues, own) = (open(&through(&proxy)).await, open(&redis.url()).await);
    let (queue, lease) = (mail(&own), SECOND);
    let (one, other) = (raw(&queues), raw(&own));
    let far = NewTask::after(id(7), 3_600 * SECOND, 7);
    // The server knows the scripts: the replies that are lost below are those of what was done.
    let warm = mail(&queues).schedule(NewTask::at(id(0), PAST, 0)).await.unwrap().task;
    let held = one.claim(1, lease, Duration::ZERO).await.unwrap().keep().remove(0);
    assert_eq!(held.id, warm.id);
    let ack = Settle { id: held.id, receipt: held.receipt, verdict: Verdict::Ack };
    assert_eq!(one.settle(&[ack]).await.unwrap(), [Settled::Done]);
    let settle =
        |receipt| Settle { id: tidegate::queue::TaskId::parse(&id(0)).unwrap(), receipt, verdict: Verdict::Ack };
    for kind in ["cut", "late"] {
        fill(&queue, 0..1, |_| PAST).await;
        let spoil = |on: bool| match (kind, on) {
            ("cut", true) => proxy.cut_replies(1),
            ("cut", false) => {}
            // Longer than a client waits.
            (_, on) => proxy.delay(if on { 800 * MS } else { Duration::ZERO }),
        };
        let claimed = loop {
            // The reply that is cut may be another's, such as a notice: then it is tried again, the task handed back.
            tokio::time::sleep(100 * MS).await;
            spoil(true);
            let claimed = Instant::now();
            let lost = one.claim(1, lease, Duration::ZERO).await;
            spoil(false);
            let Ok(lease) = lost else { break claimed };
            drop(lease);
            until("it is handed back", async || numbers(&queue).await == (1, 0, 0)).await;
        };
        assert_eq!(numbers(&queue).await, (0, 1, 0), "{kind}: the server did it");
        let again = other.claim(1, lease, 10 * SECOND).await.unwrap().keep().remove(0);
        assert!(claimed.elapsed() <= lease + SLACK, "{kind}: {:?}", claimed.elapsed());
        assert_eq!(again.attempt, 2);
        // An acknowledgement whose reply is lost was done; the same again harms nothing.
        until("the way is free", async || one.stats().await.is_ok()).await;
        tokio::time::sleep(100 * MS).await;
        spoil(true);
        let acked = one.settle(&[settle(again.receipt)]).await;
        assert!(acked.as_ref().map_or(true, |acked| acked[..] == [Settled::Done]), "{kind}: {acked:?}");
        spoil(false);
        assert_eq!(numbers(&queue).await, (0, 0, 0), "{kind}");
        until("the way is free", async || one.stats().await.is_ok()).await;
        assert_eq!(one.settle(&[settle(again.receipt)]).await.unwrap(), [Settled::Lost]);
        // A schedule, too: repeated it finds its own task. (The queue is named first, once a connection.)
        mail(&queues).schedule(NewTask::after(id(8), 3_600 * SECOND, 8)).await.unwrap();
        assert!(queue.cancel(&id(8)).await.unwrap());
        tokio::time::sleep(100 * MS).await;
        spoil(true);
        let first = mail(&queues).schedule(far.clone()).await;
        assert!(first.as_ref().map_or(true, |first| first.new), "{kind}: {first:?}");
        spoil(false);
        until("the way is free", async || one.stats().await.is_ok()).await;
        let repeated = mail(&queues).schedule(far.clone()).await.unwrap();
        assert!(!repeated.new && !repeated.scheduled && numbers(&queue).await == (1, 0, 0), "{kind}: {repeated:?}");
        assert!(queue.cancel(&id(7)).await.unwrap());
    }
}

// C26
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_fell_due_while_all_was_down_fires_at_once() {
    let redis = Redis::start_with(Setup::default().persistent());
    {
        let queues = open(&redis.url()).await;
        let due = queues.now().plus(300);
        fill(&mail(&queues), 0..100, |_| due).await;
        queues.close().await;
    }
    redis.kill();
    tokio::time::sleep(SECOND).await;
    redis.restart();
    let (queues, runs) = (open(&redis.url()).await, Runs::default());
    let began = Instant::now();
    let worker = runs.worker(&queues, SECOND);
    until("all fired", async || runs.len() == 100).await;
    assert!(began.elapsed() <= SECOND + SLACK, "{:?}", began.elapsed());
    until("all is done", async || numbers(&mail(&queues)).await == (0, 0, 0)).await;
    assert!(runs.all().values().all(|runs| runs.len() == 1), "once");
    worker.stop(SECOND).await;
}

// C27: a general queue lies in its store alone. That it was lost is noticed, and who has the tasks elsewhere gives them again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wiped_store_is_noticed_and_filled_again() {
    let (redis, all) = (Redis::start(), scaled(5_000, 100_000));
    let store = redis_store(&redis.url(), 20).await;
    let queues = Queues::new(store.clone());
    let (queue, runs) = (mail(&queues), Runs::default());
    let soon = queues.now().plus(1_500);
    fill(&queue, 0..all, |_| soon).await;
    fill(&queue, all..all + 1, |_| PAST).await;
    let held = raw(&queues).claim(1, 60 * SECOND, Duration::ZERO).await.unwrap().keep().remove(0);
    let worker = runs.worker(&queues, 10 * SECOND);
    tokio::time::sleep(50 * MS).await;
    use tidegate_backend::QueueStore as _;
    assert_eq!(store.losses(), 0);
    redis.tell(&["FLUSHALL"]);
    let wiped = Instant::now();
    // The idle worker's next look, or the next task, shows it.
    fill(&queue, 0..1, |_| soon).await;
    until("the loss is noticed", async || store.losses() == 1).await;
    assert!(wiped.elapsed() < SECOND + SLACK, "{:?}", wiped.elapsed());
    let ack = Settle { id: held.id.clone(), receipt: held.receipt, verdict: Verdict::Ack };
    assert_eq!(raw(&queues).settle(&[ack]).await.unwrap(), [Settled::Lost], "receipts of before are worthless");
    fill(&queue, 0..all, |_| soon).await;
    fill(&queue, all..all + 1, |_| PAST).await;
    until("all fired", async || runs.len() as u64 == all + 1).await;
    until("all is done", async || numbers(&queue).await == (0, 0, 0)).await;
    assert!(runs.all().values().all(|runs| runs.len() == 1 && runs[0].late_ms >= 0), "once each, and none early");
    assert!(runs.of(held.id.as_str())[0].receipt > held.receipt, "receipts grow over a loss");
    assert_eq!(queues.names(None, 10).await.unwrap().len(), 1, "it is in the list of queues again");
    worker.stop(SECOND).await;
}

/// Waits until a replica has all that its master has.
async fn copied(master: &Redis, replica: &Redis) {
    let offset = |server: &Redis, name: &str| {
        let info = server.tell(&["INFO", "replication"]);
        info.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned))
    };
    until("the replica has it all", async || {
        let all = offset(master, "master_repl_offset:");
        // Before their first meeting both say 0.
        let met = offset(replica, "master_link_status:").is_some_and(|status| status.trim() == "up");
        met && all.is_some() && offset(replica, "slave_repl_offset:") == all
    })
    .await;
}

// C29
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lagging_replica_hands_out_again_under_newer_receipts() {
    let servers = [(); 2].map(|()| Redis::start());
    servers[1].tell(&["REPLICAOF", "127.0.0.1", &servers[0].port().to_string()]);
    let proxy = Proxy::start(servers[0].port());
    let queues = open(&through(&proxy)).await;
    let queue = mail(&queues);
    fill(&queue, 0..50, |_| PAST).await;
    copied(&servers[0], &servers[1]).await;
    // From here on it lags.
    servers[1].tell(&["REPLICAOF", "NO", "ONE"]);
    let leased = raw(&queues).claim(50, 60 * SECOND, Duration::ZERO).await.unwrap().keep();
    let acks: Vec<_> = leased[..25]
        .iter()
        .map(|task| Settle { id: task.id.clone(), receipt: task.receipt, verdict: Verdict::Ack })
        .collect();
    assert!(raw(&queues).settle(&acks).await.unwrap().iter().all(|answer| *answer == Settled::Done));
    proxy.lead_to(servers[1].port());
    proxy.cut();
    servers[0].kill();
    until("the new master answers", async || queue.stats().await.is_ok()).await;
    let runs = Runs::default();
    let worker = runs.worker(&queues, SECOND);
    until("all came again", async || runs.len() == 50).await;
    for task in &leased {
        let run = runs.of(task.id.as_str())[0];
        assert!(run.receipt > task.receipt, "no two holders have the same receipt");
    }
    fill(&queue, 0..50, |_| Millis::MAX).await;
    let late = Settle { id: leased[49].id.clone(), receipt: leased[49].receipt, verdict: Verdict::Ack };
    assert_eq!(raw(&queues).settle(&[late]).await.unwrap(), [Settled::Lost]);
    worker.stop(SECOND).await;
}

// C51
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_may_evict_is_refused_and_no_key_expires() {
    let evicting = Setup::default().option("maxmemory", "64mb").option("maxmemory-policy", "allkeys-lru");
    let evicting = Redis::start_with(evicting);
    let refused = Connector::start(RedisOptions::parse(&evicting.url()).unwrap()).await.err().unwrap().to_string();
    assert!(refused.contains("allkeys-lru") && refused.contains("noeviction"), "{refused}");

    // A policy that deletes only what expires is safe: nothing of a queue does, in any state of its tasks.
    let setup = Setup::default().option("maxmemory", "64mb").option("maxmemory-policy", "volatile-lru");
    let redis = Redis::start_with(setup);
    let queues = super::common::open_with(&redis.url(), 1).await;
    let queue = mail(&queues);
    fill(&queue, 0..3, |_| PAST).await;
    fill(&queue, 3..6, |_| Millis::MAX).await;
    let leased = raw(&queues).claim(2, 60 * SECOND, Duration::ZERO).await.unwrap().keep();
    let retry = Settle {
        id: leased[0].id.clone(),
        receipt: leased[0].receipt,
        verdict: tidegate::queue::retry(Some(0), Some("no".to_owned())),
    };
    assert_eq!(raw(&queues).settle(&[retry]).await.unwrap(), [Settled::Dead]);
    assert_eq!(numbers(&queue).await, (4, 1, 1));
    let keys = redis.tell(&["KEYS", "*"]);
    let ours: Vec<&str> = keys.lines().filter(|key| key.contains(QUEUE) || key.ends_with("names")).collect();
    assert!(ours.len() >= 5, "{keys}");
    for key in ours {
        assert_eq!(redis.tell(&["PTTL", key]), "-1", "{key} expires");
    }
}

/// A key of one queue is overwritten by hand: that queue's tasks wait and it is told, all others come on time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_queue_holds_up_no_other() {
    // Few queues are claimed from one by one, many are looked at together.
    for others in [1, 12] {
        let redis = Redis::start();
        let (queues, runs) = (open(&redis.url()).await, Runs::default());
        let worker = runs.worker(&queues, SECOND);
        let mut idle = Vec::new();
        for n in 0..others {
            let queue: tidegate::queue::Queue<u64> = queues.queue(&format!("other{n}")).unwrap();
            queue.schedule(NewTask::after(id(0), 3_600 * SECOND, 0)).await.unwrap();
            idle.push(queue.worker().each(|_| async {}));
        }
        let broken: tidegate::queue::Queue<u64> = queues.queue("broken").unwrap();
        broken.schedule(NewTask::after(id(0), 100 * MS, 0)).await.unwrap();
        redis.tell(&["RENAME", "{tg:days:q:broken}:w", "{tg:days:q:broken}:kept-w"]);
        redis.tell(&["SET", "{tg:days:q:broken}:w", "x"]);
        let done = Runs::default();
        let (own, noted) = (queues.clone(), done.clone());
        let on_broken = broken.worker().each(move |task| {
            noted.note(&own, &task);
            async {}
        });
        for n in 1..=5 {
            mail(&queues).schedule(NewTask::after(id(n), 200 * MS, n)).await.unwrap();
            until("it fired", async || runs.len() as u64 == n).await;
        }
        let lateness = runs.lateness();
        assert!(lateness[0] >= 0 && lateness[2] < 200, "{lateness:?}");
        let trouble = queues.trouble().expect("it is told");
        assert!(trouble.contains("claim of \"broken\"") && trouble.contains("WRONGTYPE"), "{trouble}");
        redis.tell(&["RENAME", "{tg:days:q:broken}:kept-w", "{tg:days:q:broken}:w"]);
        until("it is worked off", async || done.len() == 1).await;
        until("all is well", async || queues.trouble().is_none()).await;
        for worker in idle.into_iter().chain([worker, on_broken]) {
            worker.stop(SECOND).await;
        }
    }
}
