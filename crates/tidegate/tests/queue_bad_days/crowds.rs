//! Many at once, and few.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate::core::Millis;
use tidegate::queue::{Delivery, NewTask, Queue, QueueError, Queues, RawQueue, Settle, TaskState, Verdict};
use tidegate_conformance::servers::Redis;

use super::common::{MS, Runs, SECOND, fill, id, in_memory, mail, numbers, open, percentile, raw, until};
use super::process::{Log, Process, Setup};
use super::{long, scaled};

const PAST: Millis = Millis(1);

/// A bound on lateness: exact where a test has the machine for itself.
fn bound(exact: i64) -> i64 {
    if long() { exact } else { exact + 400 }
}

async fn random_instants(queues: Queues) {
    let all = 10_000;
    let runs = Runs::default();
    let worker = runs.worker(&queues, 10 * SECOND);
    let base = queues.now().plus(300);
    fill(&mail(&queues), 0..all, |n| base.plus((n as i64 * 7_919) % 1_500)).await;
    until("all fired", async || runs.len() as u64 == all).await;
    assert!(runs.lateness()[0] >= 0, "{} ms: early", runs.lateness()[0]);
    assert!(runs.all().values().all(|runs| runs.len() == 1));
    worker.stop(SECOND).await;
}

// C1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_at_random_instants_are_never_early_on_redis() {
    let redis = Redis::start();
    random_instants(open(&redis.url()).await).await;
}

// C1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_at_random_instants_are_never_early_in_memory() {
    random_instants(in_memory()).await;
}

// C2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_queue_is_on_time() {
    let redis = Redis::start();
    let (queues, other) = (open(&redis.url()).await, open(&redis.url()).await);
    let (mut workers, runs) = (Vec::new(), Runs::default());
    // Two hundred queues, each idle but for one task of another process.
    for n in 0..200 {
        let (runs, own) = (runs.clone(), queues.clone());
        let queue: Queue<u64> = queues.queue(&format!("idle.{n}")).unwrap();
        workers.push(queue.worker().each(move |task: Delivery<u64>| {
            runs.note(&own, &task);
            async {}
        }));
    }
    tokio::time::sleep(100 * MS).await;
    for n in 0..200 {
        let queue: Queue<u64> = other.queue(&format!("idle.{n}")).unwrap();
        queue.schedule(NewTask::after(id(n), 1_200 * MS, n)).await.unwrap();
        tokio::time::sleep(7 * MS).await;
    }
    until("all fired", async || runs.len() == 200).await;
    let lateness = runs.lateness();
    assert!(lateness[0] >= 0 && percentile(&lateness, 50) <= bound(5), "{lateness:?}");
    assert!(percentile(&lateness, 99) <= bound(20), "{lateness:?}");
    for worker in workers {
        worker.stop(SECOND).await;
    }
}

// C6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pile_in_one_second_does_not_hold_up_a_trickle() {
    let (redis, all) = (Redis::start(), scaled(20_000, 500_000));
    let (queues, filler) = (open(&redis.url()).await, open(&redis.url()).await);
    let base = queues.now().plus(scaled(2_500, 40_000) as i64);
    let pile: Queue<u64> = filler.queue("pile").unwrap();
    fill(&pile, 0..all, |n| base.plus((n as i64 * 7_919) % 1_000)).await;
    assert!(queues.now() < base, "filled in time");
    let (piled, trickled) = (Runs::default(), Runs::default());
    let own: Queue<u64> = queues.queue("pile").unwrap();
    let (runs, clock) = (piled.clone(), queues.clone());
    let worker = own.worker().concurrency(2_048).lease(60 * SECOND).each(move |task: Delivery<u64>| {
        runs.note(&clock, &task);
        async {}
    });
    let quick = trickled.worker(&queues, 10 * SECOND);
    let drained = tokio::spawn({
        let (pile, queues) = (own.clone(), queues.clone());
        async move {
            while numbers(&pile).await != (0, 0, 0) {
                tokio::time::sleep(5 * MS).await;
            }
            queues.now()
        }
    });
    let mut n = 0;
    while !drained.is_finished() {
        mail(&filler).schedule(NewTask::after(id(n), 20 * MS, n)).await.unwrap();
        n += 1;
        tokio::time::sleep(20 * MS).await;
    }
    let took = drained.await.unwrap().since(base);
    // The half million in eight seconds is for optimized builds, as `tidegate bench deadlines` is.
    let most = match (long(), cfg!(debug_assertions)) {
        (false, _) => 5_000,
        (true, false) => 9_000,
        (true, true) => 60_000,
    };
    assert!(took <= most, "{took} ms");
    assert_eq!(piled.len() as u64, all);
    until("the trickle came through", async || trickled.len() as u64 == n).await;
    let lateness = trickled.lateness();
    assert!(lateness[0] >= 0 && percentile(&lateness, 99) <= bound(100), "{lateness:?}");
    worker.stop(SECOND).await;
    quick.stop(SECOND).await;
}

async fn years(queues: Queues) {
    let (queue, runs) = (mail(&queues), Runs::default());
    let worker = runs.worker(&queues, SECOND);
    let day = 86_400 * SECOND;
    // 25 days are 2^31 milliseconds, 50 are 2^32.
    for (n, days) in [24, 25, 26, 49, 50, 51, 365, 400, 36_500].into_iter().enumerate() {
        queue.schedule(NewTask::after(id(n as u64), day * days, n as u64)).await.unwrap();
        let due_at = queue.get(&id(n as u64)).await.unwrap().unwrap().task.due_at;
        let off = due_at.since(queues.now()) - i64::from(days) * 86_400_000;
        assert!((-5_000..=0).contains(&off), "{days} days: {off} ms");
    }
    let last = "9999-12-31T23:59:59.999Z";
    queue.schedule(NewTask::at(last, Millis::MAX, 0)).await.unwrap();
    assert_eq!(queue.get(last).await.unwrap().unwrap().task.due_at, Millis::MAX);
    for refused in [
        queue.schedule(NewTask::at("x", Millis(i64::MAX), 0)).await,
        queue.schedule(NewTask::at("x", Millis::MAX.plus(1), 0)).await,
        queue.schedule(NewTask::after("x", Duration::MAX, 0)).await,
        queue.schedule(NewTask::after("x", day * 36_526, 0)).await,
    ] {
        assert!(matches!(refused, Err(QueueError::Task(_))), "{refused:?}");
    }
    // Longer than two ticks of the worker.
    tokio::time::sleep(1_100 * MS).await;
    assert_eq!((runs.len(), numbers(&queue).await), (0, (10, 0, 0)));
    assert_eq!(queue.stats().await.unwrap().unwrap().due, 0);
    worker.stop(SECOND).await;
}

// C9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delay_of_years_does_not_fire_on_redis() {
    let redis = Redis::start();
    years(open(&redis.url()).await).await;
}

// C9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delay_of_years_does_not_fire_in_memory() {
    years(in_memory()).await;
}

async fn drain(raw: &RawQueue, most: usize, mut each: impl FnMut(&str)) -> usize {
    let mut all = 0;
    loop {
        let tasks = raw.claim(most, 600 * SECOND, Duration::ZERO).await.unwrap().keep();
        if tasks.is_empty() {
            return all;
        }
        all += tasks.len();
        tasks.iter().for_each(|task| each(task.id.as_str()));
        raw.settle(&acks(tasks)).await.unwrap();
    }
}

fn acks(tasks: Vec<tidegate::queue::Claimed>) -> Vec<Settle> {
    tasks.into_iter().map(|task| Settle { id: task.id, receipt: task.receipt, verdict: Verdict::Ack }).collect()
}

async fn same_millisecond(queues: Queues) {
    let queue = mail(&queues);
    // In an order that is not that of their ids.
    let all = 10_000;
    let tasks: Vec<_> = (0..all).map(|n| NewTask::at(id((n * 7_919) % all), PAST, n)).collect();
    for some in tasks.chunks(512) {
        queue.schedule_all(some).await.unwrap();
    }
    // Claims of up to 7 take no share of the newest: the order is exact.
    let (raw, mut next) = (raw(&queues), 0);
    let came = drain(&raw, 7, |came| {
        assert_eq!(came, id(next));
        next += 1;
    });
    assert_eq!(came.await as u64, all);
}

// C12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_in_one_millisecond_come_by_id_on_redis() {
    let redis = Redis::start();
    same_millisecond(open(&redis.url()).await).await;
}

// C12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_in_one_millisecond_come_by_id_in_memory() {
    same_millisecond(in_memory()).await;
}

// C17
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_idle_workers_share_what_is_due_at_once() {
    let redis = Redis::start();
    // Ten processes, as far as Redis can tell.
    let (mut processes, mut workers, mut counts) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..10 {
        let (queues, runs) = (open(&redis.url()).await, Runs::default());
        let (own, noted) = (queues.clone(), runs.clone());
        // Ten hands each, a hundred tasks that take their time: all are needed.
        workers.push(mail(&queues).worker().concurrency(10).lease(10 * SECOND).each(move |task: Delivery<u64>| {
            noted.note(&own, &task);
            tokio::time::sleep(800 * MS)
        }));
        processes.push(queues);
        counts.push(runs);
    }
    let due = processes[0].now().plus(400);
    fill(&mail(&processes[0]), 0..100, |_| due).await;
    until("all run", async || counts.iter().map(Runs::len).sum::<usize>() == 100).await;
    assert!(counts.iter().all(|runs| runs.len() == 10), "all are busy");
    let mut lateness: Vec<i64> = counts.iter().flat_map(Runs::lateness).collect();
    lateness.sort_unstable();
    assert!(lateness[0] >= 0 && lateness[99] <= bound(20), "{lateness:?}");
    for worker in workers {
        worker.stop(2 * SECOND).await;
    }
    assert_eq!(numbers(&mail(&processes[0])).await, (0, 0, 0));
}

// C44
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn far_tasks_cost_a_worker_no_memory() {
    let (redis, log, all) = (Redis::start(), Log::new(), scaled(50_000, 1_000_000));
    let queues = open(&redis.url()).await;
    let far = queues.now().plus(3_600_000);
    let worker = Process::start(&Setup::new(&redis.url(), &log));
    let before = worker.resident_kib();
    fill(&mail(&queues), 0..all, |n| far.plus(n as i64)).await;
    tokio::time::sleep(SECOND).await;
    let after = worker.resident_kib();
    assert!(after < 64 << 10, "{after} KiB");
    assert!(after.saturating_sub(before) < 8 << 10, "from {before} to {after} KiB");
    assert_eq!(log.of("begin").len(), 0);
    assert!(worker.end());
    assert_eq!(numbers(&mail(&queues)).await, (all, 0, 0));
}

// C46
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acknowledgement_costs_the_same_with_ten_thousand_in_flight() {
    let redis = Redis::start();
    let queues = open(&redis.url()).await;
    let (queue, raw) = (mail(&queues), raw(&queues));
    let spent = || {
        let stats = redis.tell(&["INFO", "commandstats"]);
        let used = |name: &str| {
            let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:")));
            let field =
                |name: &str| line.and_then(|l| l.split(',').find_map(|f| f.strip_prefix(name)?.parse::<f64>().ok()));
            (field("usec=").unwrap_or(0.0), field("calls=").unwrap_or(0.0))
        };
        let (first, again) = (used("eval"), used("evalsha"));
        (first.0 + again.0) / (first.1 + again.1).max(1.0)
    };
    let hundred = async || {
        let tasks = raw.claim(100, 600 * SECOND, Duration::ZERO).await.unwrap().keep();
        assert_eq!(tasks.len(), 100);
        redis.tell(&["CONFIG", "RESETSTAT"]);
        for settle in acks(tasks) {
            raw.settle(&[settle]).await.unwrap();
        }
        spent()
    };
    fill(&queue, 0..500, |_| PAST).await;
    let mut few = f64::MAX;
    for _ in 0..5 {
        few = few.min(hundred().await);
    }
    fill(&queue, 0..10_600, |_| PAST).await;
    for _ in 0..20 {
        raw.claim(500, 600 * SECOND, Duration::ZERO).await.unwrap().keep();
    }
    assert_eq!(numbers(&queue).await, (600, 10_000, 0));
    let mut many = f64::MAX;
    for _ in 0..5 {
        many = many.min(hundred().await);
    }
    // The server's own time in the script, so a busy machine does not count.
    assert!(many < few * 3.0 + 10.0, "from {few} to {many} us");
}

// The goal "idle": what waits costs the store no questions, whatever the number of queues.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_process_with_many_queues_asks_seldom() {
    let redis = Redis::start();
    let queues = open(&redis.url()).await;
    let far = queues.now().plus(3_600_000);
    let mut workers = Vec::new();
    for n in 0..100 {
        let queue: Queue<u64> = queues.queue(&format!("idle.{n}")).unwrap();
        fill(&queue, 0..20, |_| far).await;
        workers.push(queue.worker().each(|_| async {}));
    }
    tokio::time::sleep(SECOND).await;
    redis.tell(&["CONFIG", "RESETSTAT"]);
    let began = Instant::now();
    tokio::time::sleep(3 * SECOND).await;
    let stats = redis.tell(&["INFO", "stats"]);
    let events = redis.tell(&["INFO", "commandstats"]);
    let seconds = began.elapsed().as_secs_f64();
    let calls =
        events.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=")?.split(',').next()?.parse().ok());
    let rounds: f64 = calls.unwrap_or(0.0) / 100.0;
    assert!(rounds / seconds <= 2.6, "{rounds} rounds in {seconds} s: {stats}");
    for worker in workers {
        worker.stop(SECOND).await;
    }
}

// One id again and again, while it is handed out: what counts is the last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_task_moved_by_many_fires_once_at_the_last_instant() {
    let redis = Redis::start();
    let queues = Arc::new(open(&redis.url()).await);
    let (queue, runs) = (mail(&queues), Runs::default());
    let worker = runs.worker(&queues, 10 * SECOND);
    let due = queues.now().plus(1_200);
    let mut movers = tokio::task::JoinSet::new();
    for mover in 0..4 {
        let queue = queue.clone();
        movers.spawn(async move {
            for n in 0..50 {
                queue.reschedule(NewTask::at(id(0), due.plus((n * 13 + mover) % 100), 1)).await.unwrap();
            }
        });
    }
    movers.join_all().await;
    queue.reschedule(NewTask::at(id(0), due.plus(50), 2)).await.unwrap();
    until("it fired", async || runs.len() == 1).await;
    until("it is done", async || numbers(&queue).await == (0, 0, 0)).await;
    assert_eq!(runs.of(&id(0)).len(), 1);
    assert!(runs.of(&id(0))[0].late_ms >= 0);
    assert!(queue.get(&id(0)).await.unwrap().is_none_or(|there| there.task.state == TaskState::Pending));
    worker.stop(SECOND).await;
}
