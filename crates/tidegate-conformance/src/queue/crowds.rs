//! Many at once.

use std::collections::HashMap;

use bytes::Bytes;
use tidegate_core::Millis;
use tidegate_core::queue::{MAX_BATCH_BYTES, Schedule, Settle, Settled, TaskId, Verdict};

use super::{ATTEMPTS, LONG, Open, PAST, SHORT, Subject, handout, id, ids, task};

/// A pile is handed out from both ends.
pub async fn a_pile_does_not_hold_up_the_newest(open: Open<'_>) {
    let it = Subject::open(open).await;
    it.due(1_000).await;
    it.schedule(task(5_000, PAST + 50_000)).await;
    let batch = it.claim(64, LONG).await;
    assert_eq!(batch.len(), 64);
    assert_eq!(ids(&batch[..56]), (0..56).map(id).collect::<Vec<_>>());
    assert!(batch.iter().any(|task| task.id == id(5_000)));
}

/// Fifty thousand due at once come once each.
pub async fn fifty_thousand_due_at_once(open: Open<'_>) {
    let it = Subject::open(open).await;
    let all = 50_000;
    for from in (0..all).step_by(500) {
        let tasks: Vec<Schedule> = (from..from + 500).map(|n| task(n, PAST)).collect();
        it.schedule_all(&tasks).await;
    }
    assert_eq!(it.stats().await.due, all as u64);
    let mut seen = vec![false; all];
    for round in 0.. {
        let batch = it.claim(512, LONG).await;
        if batch.is_empty() {
            assert!(round >= all / 512);
            break;
        }
        let acks: Vec<Settle> = batch
            .iter()
            .map(|task| Settle { id: task.id.clone(), receipt: task.receipt, verdict: Verdict::Ack })
            .collect();
        let answers = it.store.settle(&it.queue, &acks).await.expect("the store answers");
        assert!(answers.iter().all(|answer| *answer == Settled::Done));
        for task in &batch {
            let n: usize = task.id.as_str()[5..].parse().expect("a number");
            assert!(!std::mem::replace(&mut seen[n], true), "{n} came twice");
        }
    }
    assert!(seen.into_iter().all(|seen| seen));
    let stats = it.stats().await;
    assert_eq!((stats.pending, stats.leased), (0, 0));
}

/// Callers that claim and acknowledge at the same time, while others schedule and cancel: each task has one holder, and what
/// is neither acknowledged nor cancelled is still there.
pub async fn whoever_races_has_tasks_of_its_own(open: Open<'_>) {
    let it = Subject::open(open).await;
    let (all, mut workers) = (3_000usize, Vec::new());
    let schedulers: Vec<_> = (0..3)
        .map(|part| {
            let (store, queue) = (it.store.clone(), it.queue.clone());
            tokio::spawn(async move {
                for from in (part * all / 3..(part + 1) * all / 3).step_by(20) {
                    let tasks: Vec<Schedule> = (from..from + 20).map(|n| task(n, PAST)).collect();
                    let answers = store.schedule(&queue, &tasks).await.expect("the store answers");
                    assert!(answers.iter().all(|answer| answer.new));
                }
            })
        })
        .collect();
    for n in 0..6 {
        let (store, queue) = (it.store.clone(), it.queue.clone());
        workers.push(tokio::spawn(async move {
            let (mut mine, mut idle) = (Vec::<TaskId>::new(), 0);
            while idle < 30 {
                let batch = handout(&*store, &queue, 7 + n, LONG).await.tasks;
                idle = if batch.is_empty() { idle + 1 } else { 0 };
                if batch.is_empty() {
                    tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                }
                let acks: Vec<Settle> = batch
                    .into_iter()
                    .map(|task| Settle { id: task.id, receipt: task.receipt, verdict: Verdict::Ack })
                    .collect();
                let answers = store.settle(&queue, &acks).await.expect("the store answers");
                mine.extend(acks.into_iter().zip(answers).filter(|(_, a)| *a == Settled::Done).map(|(ack, _)| ack.id));
            }
            mine
        }));
    }
    let (mut cancelled, mut done) = (0, HashMap::<TaskId, u32>::new());
    for n in (0..all).step_by(9) {
        cancelled += usize::from(it.cancel(n).await);
    }
    for scheduler in schedulers {
        scheduler.await.expect("it ends");
    }
    for worker in workers {
        for id in worker.await.expect("it ends") {
            *done.entry(id).or_default() += 1;
        }
    }
    assert!(done.values().all(|times| *times == 1), "acknowledged twice");
    assert_eq!(done.len() + cancelled, all);
}

/// A claim carries a bounded payload, and never nothing.
pub async fn a_claim_carries_a_bounded_payload(open: Open<'_>) {
    let it = Subject::open(open).await;
    for n in 0..40 {
        it.schedule(Schedule { payload: Bytes::from(vec![b'x'; 60_000]), ..task(n, PAST) }).await;
    }
    let mut came = 0;
    while came < 40 {
        let batch = it.claim(512, LONG).await;
        let bytes: usize = batch.iter().map(|task| task.payload.len()).sum();
        assert!(!batch.is_empty() && bytes <= MAX_BATCH_BYTES, "{bytes}");
        came += batch.len();
    }
}

/// A task that kills its process takes nobody with it: those who were leased with it live, whatever the number of attempts.
pub async fn a_killer_dies_alone(open: Open<'_>) {
    let it = Subject::open(open).await;
    it.due(64).await;
    let killer = id(40);
    for round in 0.. {
        assert!(round < 50, "it ends");
        let batch = it.claim(64, SHORT).await;
        if batch.is_empty() {
            let stats = it.stats().await;
            if stats.pending + stats.leased == 0 {
                break;
            }
            it.outlive().await;
            continue;
        }
        if batch.iter().any(|task| task.id == killer) {
            assert!(batch[0].attempt < ATTEMPTS || batch.len() == 1, "on its last attempt it is alone");
            it.outlive().await;
            continue;
        }
        for task in &batch {
            assert_eq!(it.settle(task, Verdict::Ack).await, Settled::Done);
        }
    }
    let stats = it.stats().await;
    assert_eq!((stats.pending, stats.leased, stats.dead), (0, 0, 1));
    assert!(it.get(40).await.is_some());
}

/// One claim asks several queues; each answers for itself, and one that has nothing says when it will.
pub async fn one_claim_asks_many_queues(open: Open<'_>) {
    let it = Subject::open(open).await;
    let names: Vec<_> = (0..20).map(|n| super::queue(&format!("many.{n}"))).collect();
    let far = Millis(it.store.now().0 + LONG);
    for (n, name) in names.iter().enumerate() {
        let at = if n % 2 == 0 { PAST } else { far.0 };
        it.store.schedule(name, &[task(n, at)]).await.expect("the store answers");
    }
    let wants: Vec<_> =
        names.iter().map(|queue| tidegate_backend::Want { queue: queue.clone(), max: 5, lease_ms: LONG }).collect();
    let answers = it.store.claim(&wants).await.expect("the store answers");
    assert_eq!(answers.len(), 20);
    for (n, answer) in answers.iter().enumerate() {
        if n % 2 == 0 {
            assert_eq!(ids(&answer.tasks), [id(n)]);
        } else {
            assert_eq!((answer.tasks.len(), answer.next_at), (0, Some(far)));
        }
    }
}
