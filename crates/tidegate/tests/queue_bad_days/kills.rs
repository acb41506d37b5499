//! Processes that die, freeze, stop.

use std::time::{Duration, Instant};

use tidegate::core::Millis;
use tidegate::queue::{Condition, NewTask, Receipt, Settle, Settled, TaskId, TaskState, Verdict};
use tidegate_conformance::servers::Redis;

use super::common::{MS, Runs, SECOND, SLACK, fill, id, in_memory, mail, numbers, open, open_with, raw, until};
use super::process::{Log, Process, Setup, until as wait_until};
use super::scaled;

/// Far from any lease that ends.
const PAST: Millis = Millis(1);

async fn settle(queues: &tidegate::queue::Queues, id: &str, receipt: u64, verdict: Verdict) -> Settled {
    let settle = Settle { id: TaskId::parse(id).unwrap(), receipt: Receipt(receipt), verdict };
    raw(queues).settle(&[settle]).await.unwrap()[0]
}

// C19, C24
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_killed_at_any_moment_lose_nothing() {
    let (redis, log) = (Redis::start(), Log::new());
    let queues = open(&redis.url()).await;
    let (queue, all) = (mail(&queues), scaled(6_000, 1_000_000));
    fill(&queue, 0..all, |n| Millis(1 + n as i64 / 100)).await;
    let hands = scaled(32, 512);
    let setup = Setup { work_ms: 20, concurrency: hands as usize, ..Setup::new(&redis.url(), &log) };
    let mut workers: Vec<_> = (0..2).map(|n| Process::start(&setup.who(format!("w{n}")))).collect();
    let mut largest = 0;
    for round in 0..scaled(8, 60) {
        tokio::time::sleep(Duration::from_millis(60 + 37 * (round % 5))).await;
        let at = round as usize % workers.len();
        largest = largest.max(workers[at].resident_kib());
        workers.swap_remove(at).kill();
        // At once, under the same name.
        workers.push(Process::start(&setup.who(format!("w{at}"))));
    }
    until("all is done", async || numbers(&queue).await == (0, 0, 0)).await;
    assert_eq!(log.missing(all).len(), 0);
    assert!(largest < 64 << 10, "a worker takes {largest} KiB");
    // Only what was in a dead process's hands came twice: those it handled, and as many whose answers were on their way.
    let twice = log.ends().values().filter(|times| **times > 1).count() as u64;
    assert!(twice <= scaled(8, 60) * hands * 2, "{twice} were done twice");
    assert!(workers.into_iter().all(Process::end));
}

// C19, and the goal "kill -9 of the busy worker"
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orphans_come_again_within_one_lease() {
    let (redis, log) = (Redis::start(), Log::new());
    let queues = open(&redis.url()).await;
    let queue = mail(&queues);
    fill(&queue, 0..20, |_| PAST).await;
    let lease = SECOND;
    let setup = Setup { lease_ms: 1_000, work_ms: 60_000, ..Setup::new(&redis.url(), &log) };
    let worker = Process::start(&setup);
    wait_until("all are in its hands", || log.of("begin").len() == 20);
    tokio::time::sleep(lease * 2).await;
    assert_eq!(numbers(&queue).await, (0, 20, 0), "renewed while it lives");
    let runs = Runs::default();
    let other = runs.worker(&queues, lease);
    worker.kill();
    let killed = Instant::now();
    until("another has them all", async || runs.len() == 20).await;
    assert!(killed.elapsed() <= lease + SLACK, "{:?}", killed.elapsed());
    until("they are acknowledged", async || numbers(&queue).await == (0, 0, 0)).await;
    fill(&queue, 0..20, |_| Millis::MAX).await;
    for line in log.of("begin") {
        let run = runs.of(&line.id)[0];
        assert_eq!((line.attempt, run.attempt), (1, 2));
        assert!(run.receipt > Receipt(line.receipt));
        for verdict in [Verdict::Ack, Verdict::Release, Verdict::Extend(1_000)] {
            assert_eq!(
                settle(&queues, &line.id, line.receipt, verdict).await,
                Settled::Lost,
                "the receipts of the dead"
            );
        }
    }
    assert_eq!(numbers(&queue).await, (20, 0, 0), "the new tasks of those ids are untouched");
    other.stop(SECOND).await;
}

// C36
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_worker_has_lost_what_it_held() {
    let (redis, log) = (Redis::start(), Log::new());
    let queues = open(&redis.url()).await;
    let queue = mail(&queues);
    fill(&queue, 0..1, |_| PAST).await;
    let worker = Process::start(&Setup { lease_ms: 500, work_ms: 300, ..Setup::new(&redis.url(), &log) });
    wait_until("it begins", || log.of("begin").len() == 1);
    worker.signal("-STOP");
    let (runs, frozen) = (Runs::default(), Instant::now());
    let other = runs.worker(&queues, SECOND);
    until("a second delivery", async || runs.len() == 1).await;
    assert!(frozen.elapsed() <= 500 * MS + SLACK, "{:?}", frozen.elapsed());
    until("it is acknowledged", async || numbers(&queue).await == (0, 0, 0)).await;
    // A new life of the same id: the sleeper's acknowledgement must not end it.
    queue.schedule(NewTask::after(id(0), 3_600 * SECOND, 7).when(Condition::Absent)).await.unwrap();
    worker.signal("-CONT");
    wait_until("the sleeper is done with it", || log.of("end").len() == 1);
    tokio::time::sleep(300 * MS).await;
    let first = log.of("begin")[0].receipt;
    assert_eq!(settle(&queues, &id(0), first, Verdict::Ack).await, Settled::Lost);
    let there = queue.get(&id(0)).await.unwrap().unwrap();
    assert_eq!((there.task.state, there.task.attempt, there.payload), (TaskState::Pending, 0, 7));
    assert_eq!((log.of("begin").len(), runs.of(&id(0)).len()), (1, 1), "once each");
    assert!(worker.end());
    other.stop(SECOND).await;
}

// C37
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scaling_up_and_down_redelivers_nothing() {
    let (redis, log) = (Redis::start(), Log::new());
    let queues = open(&redis.url()).await;
    let queue = mail(&queues);
    // Longer than a lease: renewals count, too.
    let setup = Setup { lease_ms: 400, work_ms: 150, concurrency: 8, ..Setup::new(&redis.url(), &log) };
    let mut workers = vec![Process::start(&setup.who("w"))];
    let (began, mut all, mut name) = (Instant::now(), 0, 0);
    // In full: ten minutes, as the case says; four for a build without optimization, which runs among many others.
    let whole = if cfg!(debug_assertions) { 240 } else { 600 };
    while began.elapsed() < Duration::from_secs(scaled(4, whole)) {
        fill(&queue, all..all + 20, |_| PAST).await;
        all += 20;
        if name % 3 == 2 {
            assert!(workers.swap_remove(0).end(), "an orderly end");
        } else if workers.len() < 3 {
            workers.push(Process::start(&setup.who(format!("w{name}"))));
        }
        name += 1;
        tokio::time::sleep(150 * MS).await;
    }
    until("all is done", async || numbers(&queue).await == (0, 0, 0)).await;
    let lines = log.lines();
    let again: Vec<_> = lines.iter().filter(|line| line.what == "begin" && line.attempt > 1).collect();
    assert!(again.is_empty(), "reclaimed though their workers lived: {again:?}");
    assert_eq!(log.missing(all).len(), 0);
    assert!(log.ends().values().all(|times| *times == 1));
    assert!(workers.into_iter().all(Process::end));
}

// C42
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_kills_its_process_dies_alone() {
    let (redis, log, attempts) = (Redis::start(), Log::new(), 5);
    let queues = open_with(&redis.url(), attempts).await;
    let (queue, all, killer) = (mail(&queues), 64, 40);
    fill(&queue, 0..all, |_| PAST).await;
    let setup = Setup {
        lease_ms: 250,
        concurrency: 64,
        batch: 64,
        work_ms: 20,
        max_attempts: attempts,
        killer: Some(killer),
        ..Setup::new(&redis.url(), &log)
    };
    let (mut worker, mut deaths) = (Process::start(&setup), 0);
    until("the queue is empty but for the dead", async || {
        if !worker.is_running() {
            deaths += 1;
            worker = Process::start(&setup);
        }
        numbers(&queue).await == (0, 0, 1)
    })
    .await;
    assert_eq!(deaths, attempts, "as often as it has attempts");
    let dead = queue.get(&id(killer)).await.unwrap().unwrap().task;
    assert_eq!((dead.state, dead.attempt), (TaskState::Dead, attempts));
    assert_eq!(log.missing(all).into_iter().collect::<Vec<_>>(), [id(killer)], "all others were done");
    assert!(worker.end());
}

// C42: a deploy is no fault of the task's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_charges_no_attempt() {
    let (redis, log) = (Redis::start(), Log::new());
    let queues = open_with(&redis.url(), 2).await;
    let queue = mail(&queues);
    fill(&queue, 0..30, |_| PAST).await;
    let setup = Setup { work_ms: 60_000, concurrency: 10, max_attempts: 2, ..Setup::new(&redis.url(), &log) };
    for deploy in 1..=4 {
        let worker = Process::start(&setup);
        wait_until("ten are in its hands", || log.of("begin").len() == deploy * 10);
        let began = Instant::now();
        assert!(worker.end());
        assert!(began.elapsed() < SECOND + SLACK, "{:?}", began.elapsed());
        assert_eq!(numbers(&queue).await, (30, 0, 0), "handed back at once");
    }
    assert!(log.of("begin").iter().all(|line| line.attempt == 1), "more often than it has attempts");
    let (tasks, _) = queue.list(tidegate::queue::Listing::Live(None), None, 100).await.unwrap();
    assert!(tasks.iter().all(|task| task.attempt == 0));
}

// C19, C26, on a file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_survives_its_process() {
    let log = Log::new();
    let url = format!("sqlite:{}", log.folder().join("queues.db").display());
    // Ten that are due, ten that fall due while nobody is there.
    let schedule = (0..10).map(|n| (n, 0)).chain((10..20).map(|n| (n, 700))).collect();
    let setup = Setup { lease_ms: 500, work_ms: 60_000, schedule, ..Setup::new(&url, &log) };
    let worker = Process::start(&setup);
    wait_until("ten are in its hands", || log.of("begin").len() == 10);
    worker.kill();
    tokio::time::sleep(SECOND).await;
    let (queues, runs) = (open(&url).await, Runs::default());
    let began = Instant::now();
    let other = runs.worker(&queues, SECOND);
    until("all came", async || runs.len() == 20).await;
    assert!(began.elapsed() < SECOND + SLACK, "{:?}", began.elapsed());
    until("all are done", async || numbers(&mail(&queues)).await == (0, 0, 0)).await;
    let attempts: Vec<u32> = runs.all().values().map(|runs| runs[0].attempt).collect();
    // On a busy machine the first process may have lost a lease before it was killed, and claimed once more.
    assert!(attempts[..10].iter().all(|attempt| *attempt >= 2), "{attempts:?}");
    assert_eq!(attempts[10..], [1; 10]);
    assert!(runs.all().values().all(|runs| runs.len() == 1), "once");
    for line in log.of("begin") {
        assert_eq!(settle(&queues, &line.id, line.receipt, Verdict::Ack).await, Settled::Lost);
    }
    other.stop(SECOND).await;
    queues.close().await;
}

// A worker that is dropped, not stopped, is a death in small: what it held comes again after its lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_worker_holds_nothing_for_longer_than_a_lease() {
    let queues = in_memory();
    let queue = mail(&queues);
    fill(&queue, 0..5, |_| PAST).await;
    let lease = 400 * MS;
    let dropped = queue.worker().lease(lease).each(|_| tokio::time::sleep(60 * SECOND));
    until("all are held", async || numbers(&queue).await == (0, 5, 0)).await;
    drop(dropped);
    let (runs, began) = (Runs::default(), Instant::now());
    let other = runs.worker(&queues, lease);
    until("all came again", async || runs.len() == 5).await;
    assert!(began.elapsed() <= lease + SLACK, "{:?}", began.elapsed());
    other.stop(SECOND).await;
}
