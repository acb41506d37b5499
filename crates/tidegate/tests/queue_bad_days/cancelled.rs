//! Callers that go away at any moment, and calls that race.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate::core::Millis;
use tidegate::queue::{Condition, NewTask, Queues, Settle, Settled, Verdict};
use tidegate_conformance::servers::Redis;

use super::common::{MS, Runs, SECOND, fill, id, in_memory, mail, numbers, open, raw, until};
use super::scaled;

const PAST: Millis = Millis(1);

/// Numbers that look random.
fn dice(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

/// Ends `future` after a random time, at whichever point it waits then.
async fn abandoned<T>(seed: &mut u64, future: impl Future<Output = T>) -> Option<T> {
    let patience = Duration::from_micros(dice(seed) % 1_500);
    // The first poll comes first; with no patience at all it is the only one.
    tokio::select! {
        biased;
        answer = future => Some(answer),
        () = tokio::time::sleep(patience) => None,
    }
}

/// Every call, given up at random moments, again and again: no task is lost, none is held for nobody, none is charged.
async fn give_up_everything(queues: Queues) {
    let (queue, runs) = (mail(&queues), Runs::default());
    let rounds = scaled(400, 20_000);
    let mut seed = 0x9e37_79b9_7f4a_7c15;
    let (mut scheduled, mut acknowledged) = (0, 0);
    for round in 0..rounds {
        let n = round;
        let task = NewTask::at(id(n), PAST, n);
        if abandoned(&mut seed, queue.schedule(task.clone())).await.is_none() {
            // It may have been done; whoever wants to know asks again.
            queue.schedule(task).await.unwrap();
        }
        scheduled += 1;
        let raw = raw(&queues);
        let wait = if round % 2 == 0 { Duration::ZERO } else { 5 * MS };
        let lease = abandoned(&mut seed, raw.claim(1 + (round % 5) as usize, 3_600 * SECOND, wait)).await;
        match lease {
            Some(Ok(lease)) if round % 3 == 0 => {
                for task in lease.keep() {
                    assert_eq!(task.attempt, 1, "nobody was charged");
                    let settle = Settle { id: task.id, receipt: task.receipt, verdict: Verdict::Ack };
                    let acked = match abandoned(&mut seed, raw.settle(std::slice::from_ref(&settle))).await {
                        Some(answers) => answers.unwrap(),
                        // Done already, or done now.
                        None => raw.settle(&[settle]).await.unwrap(),
                    };
                    assert!(matches!(acked[..], [Settled::Done | Settled::Lost]));
                    acknowledged += 1;
                }
            }
            // Dropped here, whole or empty: handed back.
            Some(lease) => drop(lease.unwrap()),
            None => {}
        }
        let _ = abandoned(&mut seed, queue.stats()).await;
        let _ = abandoned(&mut seed, queue.get(&id(n))).await;
    }
    until("what nobody took was handed back", async || numbers(&queue).await == (scheduled - acknowledged, 0, 0)).await;
    let worker = runs.worker(&queues, SECOND);
    until("the rest is done", async || numbers(&queue).await == (0, 0, 0)).await;
    assert_eq!(runs.len() as u64, scheduled - acknowledged);
    assert!(runs.all().values().all(|runs| runs.len() == 1 && runs[0].attempt == 1));
    worker.stop(SECOND).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_give_up_at_any_moment_lose_nothing_on_redis() {
    let redis = Redis::start();
    give_up_everything(open(&redis.url()).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_give_up_at_any_moment_lose_nothing_in_memory() {
    give_up_everything(in_memory()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_give_up_at_any_moment_lose_nothing_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let queues = open(&format!("sqlite:{}", folder.path().join("queues.db").display())).await;
    give_up_everything(queues.clone()).await;
    queues.close().await;
}

// Stops at any moment: what a worker was given, finished or not, is accounted for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_that_are_stopped_or_dropped_at_any_moment_lose_nothing() {
    let redis = Redis::start();
    let queues = open(&redis.url()).await;
    let (queue, runs, all) = (mail(&queues), Runs::default(), 400);
    fill(&queue, 0..all, |n| Millis(1 + n as i64)).await;
    let mut seed = 77;
    for round in 0..scaled(25, 400) {
        let worker = runs.worker(&queues, 300 * MS);
        tokio::time::sleep(Duration::from_micros(dice(&mut seed) % 3_000)).await;
        match round % 3 {
            0 => drop(worker),
            1 => drop(worker.stop(SECOND).await),
            // Even the stop is given up.
            _ => drop(abandoned(&mut seed, worker.stop(SECOND)).await),
        }
        if round % 5 == 0 {
            queue.schedule(NewTask::at(id(all + round), PAST, round)).await.unwrap();
        }
    }
    let worker = runs.worker(&queues, 300 * MS);
    until("all is done", async || numbers(&queue).await == (0, 0, 0)).await;
    assert_eq!(runs.len() as u64, all + scaled(25, 400).div_ceil(5));
    worker.stop(SECOND).await;
}

// C21
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moves_and_claims_race_and_the_count_is_kept() {
    let redis = Redis::start();
    let queues = open(&redis.url()).await;
    let (queue, all) = (mail(&queues), 60u64);
    fill(&queue, 0..all, |_| PAST).await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut racers = tokio::task::JoinSet::new();
    // Movers re-bucket tasks that are being handed out; holders hand them back, retry or keep them.
    for racer in 0..6u64 {
        let (queue, raw, stop) = (queue.clone(), raw(&queues), stop.clone());
        let mut seed = racer + 1;
        racers.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let n = dice(&mut seed) % all;
                if racer % 2 == 0 {
                    let when = if dice(&mut seed).is_multiple_of(2) { Condition::Always } else { Condition::Later };
                    let due = Millis(1 + (dice(&mut seed) % 1_000) as i64);
                    let answer = queue.schedule(NewTask::at(id(n), due, n).when(when)).await.unwrap();
                    assert!(!answer.new, "{n} was lost");
                } else {
                    let lease = raw.claim(8, 100 * MS, Duration::ZERO).await.unwrap();
                    for task in lease.keep() {
                        let verdict = match dice(&mut seed) % 3 {
                            0 => Verdict::Release,
                            1 => tidegate::queue::retry(Some(0), None),
                            _ => Verdict::Extend(100),
                        };
                        raw.settle(&[Settle { id: task.id, receipt: task.receipt, verdict }]).await.unwrap();
                    }
                }
            }
        });
    }
    for _ in 0..scaled(20, 200) {
        tokio::time::sleep(50 * MS).await;
        let stats = queue.stats().await.unwrap().unwrap();
        assert_eq!(stats.pending + stats.leased + stats.dead, all, "{stats:?}");
    }
    stop.store(true, Ordering::Relaxed);
    while let Some(ended) = racers.join_next().await {
        ended.unwrap();
    }
}
