//! Workers: on time, at least once, never more than they may, and an orderly end.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidegate::core::Millis;
use tidegate::queue::{Answer, Delivery, NewTask, Queue, Queues, StopReport, TaskState};
use tokio::sync::{Notify, mpsc};

use super::common::{MS, in_memory, mail, until};

const SECOND: Duration = Duration::from_secs(1);

async fn due(queue: &Queue<String>, n: usize) {
    let tasks: Vec<_> = (0..n).map(|n| NewTask::at(format!("t{n}"), Millis(1), n.to_string())).collect();
    for some in tasks.chunks(512) {
        queue.schedule_all(some).await.unwrap();
    }
}

async fn left(queue: &Queue<String>) -> (u64, u64, u64) {
    queue.stats().await.unwrap().map_or((0, 0, 0), |stats| (stats.pending, stats.leased, stats.dead))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_come_on_time_and_never_early() {
    let queues = in_memory();
    let mail = mail(&queues);
    let (told, mut heard) = mpsc::unbounded_channel();
    let clock = queues.clone();
    let worker = mail.worker().each(move |task: Delivery<String>| {
        let _ = told.send(clock.now().since(task.due_at));
        async {}
    });
    tokio::time::sleep(20 * MS).await;
    // One after the other into an idle queue (asynq #721): the worker sleeps when each is scheduled.
    for n in 0..40u64 {
        mail.schedule(NewTask::after(n.to_string(), Duration::from_millis(5 + n), n.to_string())).await.unwrap();
        let late = tokio::time::timeout(SECOND, heard.recv()).await.unwrap().unwrap();
        assert!(late >= 0, "{late} ms: early");
        assert!(late <= 100, "{late} ms late");
    }
    until("the last is acknowledged", async || left(&mail).await == (0, 0, 0)).await;
    worker.stop(SECOND).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_run_at_once_than_may() {
    let queues = in_memory();
    let mail = mail(&queues);
    due(&mail, 200).await;
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (running, highest) = (now.clone(), most.clone());
    let worker = mail.worker().concurrency(7).each(move |_| {
        let (running, highest) = (running.clone(), highest.clone());
        async move {
            highest.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(2 * MS).await;
            running.fetch_sub(1, Ordering::SeqCst);
        }
    });
    until("all are done", async || left(&mail).await == (0, 0, 0)).await;
    assert_eq!(most.load(Ordering::SeqCst), 7);
    assert_eq!(worker.stop(SECOND).await, StopReport::default());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_with_room_for_more_than_one_claim_gets_it_at_once() {
    let queues = in_memory();
    let mail = mail(&queues);
    due(&mail, 1_500).await;
    let (begun, release) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let (count, wait) = (begun.clone(), release.clone());
    // None ends before the others have begun: nothing rings meanwhile.
    let worker = mail.worker().concurrency(1_200).each(move |_| {
        let wait = wait.clone();
        count.fetch_add(1, Ordering::SeqCst);
        async move { wait.notified().await }
    });
    let took = until("it is full", async || begun.load(Ordering::SeqCst) >= 1_200).await;
    assert!(took < SECOND, "a claim every half second: {took:?}");
    tokio::time::sleep(50 * MS).await;
    assert_eq!(begun.load(Ordering::SeqCst), 1_200, "never more than it may");
    until("all are done", async || {
        release.notify_waiters();
        left(&mail).await == (0, 0, 0)
    })
    .await;
    worker.stop(SECOND).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_fails_comes_again_and_dies_in_the_end() {
    let queues = in_memory();
    let mail = mail(&queues);
    due(&mail, 3).await;
    let seen: Arc<Mutex<BTreeMap<String, Vec<u32>>>> = Arc::default();
    let told = seen.clone();
    let worker = mail.worker().each(move |task: Delivery<String>| {
        told.lock().unwrap().entry(task.payload.clone()).or_default().push(task.attempt);
        async move {
            match task.payload.as_str() {
                "0" if task.attempt < 2 => Answer::Retry { after: Some(MS), error: "not\0yet".to_owned() },
                "1" => Answer::Retry { after: Some(Duration::ZERO), error: format!("\0{}", "é".repeat(2_000)) },
                "2" if task.attempt < 2 => panic!("by design"),
                _ => Answer::Done,
            }
        }
    });
    until("one is dead, the others done", async || left(&mail).await == (0, 0, 1)).await;
    let seen = seen.lock().unwrap().clone();
    assert_eq!(seen, BTreeMap::from([("0".into(), vec![1, 2]), ("1".into(), vec![1, 2, 3]), ("2".into(), vec![1, 2])]));
    let dead = mail.get("t1").await.unwrap().unwrap().task;
    assert_eq!(dead.state, TaskState::Dead);
    let told = dead.last_error.unwrap();
    assert!(told.len() == 1_023 && told.starts_with("\u{FFFD}é"), "{told:.10}");
    worker.stop(SECOND).await;
    mail.requeue("t1", Duration::ZERO).await.unwrap().unwrap();
    assert_eq!(left(&mail).await, (1, 0, 0));
}

fn never() {
    panic!("it is never handled");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payload_of_another_type_dies_with_its_reason() {
    let queues = in_memory();
    let text = mail(&queues);
    due(&text, 1).await;
    let numbers: Queue<u64> = queues.queue("mail").unwrap();
    let worker = numbers.worker().each(|_| async { never() });
    until("it failed once", async || text.get("t0").await.unwrap().is_some_and(|task| task.task.last_error.is_some()))
        .await;
    let task = text.get("t0").await.unwrap().unwrap().task;
    assert!(task.last_error.unwrap().contains("not of the worker's type"));
    worker.stop(SECOND).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_handler_keeps_its_lease_and_hears_when_it_is_lost() {
    let queues = in_memory();
    let mail = mail(&queues);
    due(&mail, 1).await;
    let (begun, lost) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begin, lose) = (begun.clone(), lost.clone());
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let worker = mail.worker().lease(150 * MS).each(move |task: Delivery<String>| {
        let (begin, lose) = (begin.clone(), lose.clone());
        counted.fetch_add(1, Ordering::SeqCst);
        async move {
            begin.notify_one();
            task.lost().await;
            assert!(task.is_lost());
            lose.notify_one();
        }
    });
    begun.notified().await;
    // Four leases long it stays this handler's.
    tokio::time::sleep(600 * MS).await;
    assert_eq!((calls.load(Ordering::SeqCst), left(&mail).await), (1, (0, 1, 0)));
    assert!(mail.cancel("t0").await.unwrap());
    tokio::time::timeout(SECOND, lost.notified()).await.expect("it hears of it within a third of the lease");
    worker.stop(SECOND).await;
    assert_eq!(left(&mail).await, (0, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_finishes_what_runs_and_hands_back_the_rest_uncharged() {
    let queues = in_memory();
    let mail = mail(&queues);
    due(&mail, 40).await;
    let begun = Arc::new(AtomicUsize::new(0));
    let counted = begun.clone();
    let worker = mail.worker().concurrency(10).each(move |_| {
        let n = counted.fetch_add(1, Ordering::SeqCst);
        async move { tokio::time::sleep(if n < 5 { 100 * MS } else { 60 * SECOND }).await }
    });
    until("ten run", async || begun.load(Ordering::SeqCst) == 10).await;
    let began = Instant::now();
    let report = worker.stop(300 * MS).await;
    assert!(began.elapsed() < 2 * SECOND);
    // Those that ended freed room for others, which ran when the end came.
    assert_eq!(report.finished + 35, 40);
    assert!(report.handed_back >= 5, "{report:?}");
    assert_eq!(left(&mail).await, (35, 0, 0));
    let (rest, _) = mail.list(tidegate::queue::Listing::Live(None), None, 100).await.unwrap();
    assert!(rest.iter().all(|task| task.attempt == 0), "no attempt was charged");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_are_answered_task_by_task() {
    let queues = in_memory();
    let mail = mail(&queues);
    due(&mail, 100).await;
    let sizes: Arc<Mutex<Vec<usize>>> = Arc::default();
    let told = sizes.clone();
    let worker = mail
        .worker()
        .concurrency(40)
        .batches(20, move |tasks: Vec<Delivery<String>>| {
            told.lock().unwrap().push(tasks.len());
            async move {
                let odd = |task: &Delivery<String>| task.payload.parse::<usize>().unwrap() % 2 == 1;
                let again = Answer::Retry { after: Some(3_600 * SECOND), error: "odd".to_owned() };
                tasks.iter().map(|task| if odd(task) { again.clone() } else { Answer::Done }).collect()
            }
        })
        .unwrap();
    until("half are done", async || left(&mail).await == (50, 0, 0)).await;
    assert!(sizes.lock().unwrap().iter().all(|size| *size <= 20));
    assert!(sizes.lock().unwrap().len() <= 12, "they come in batches: {:?}", sizes.lock().unwrap());
    worker.stop(SECOND).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_loop_serves_many_queues_and_a_pile_in_one_does_not_hold_up_another() {
    let queues = in_memory();
    let (pile, trickle): (Queue<String>, Queue<String>) =
        (queues.queue("pile").unwrap(), queues.queue("trickle").unwrap());
    due(&pile, 5_000).await;
    let slow = pile.worker().concurrency(8).each(|_| tokio::time::sleep(MS));
    let (told, mut heard) = mpsc::unbounded_channel();
    let clock: Queues = queues.clone();
    let quick = trickle.worker().each(move |task: Delivery<String>| {
        let _ = told.send(clock.now().since(task.due_at));
        async {}
    });
    for n in 0..50u64 {
        trickle.schedule(NewTask::after(n.to_string(), 3 * MS, String::new())).await.unwrap();
        let late = tokio::time::timeout(SECOND, heard.recv()).await.unwrap().unwrap();
        assert!((0..=100).contains(&late), "{late} ms");
    }
    slow.stop(SECOND).await;
    quick.stop(SECOND).await;
}
