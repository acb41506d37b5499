//! Claims, receipts, retries, the dead.

use tidegate_backend::queue::Listing;
use tidegate_core::Millis;
use tidegate_core::queue::model::lapsed_error;
use tidegate_core::queue::{Condition, Schedule, Settle, Settled, TaskState, Verdict, retry_delay_ms};

use super::{ATTEMPTS, LONG, Open, PAST, SHORT, Subject, failed, handout, id, ids, small, task};

/// Earliest first, ties by id, nothing before its instant.
pub async fn claims_come_in_order_and_never_early(open: Open<'_>) {
    let it = Subject::open(open).await;
    for n in [5, 3, 4] {
        it.schedule(task(n, PAST + 10)).await;
    }
    it.schedule(task(9, PAST)).await;
    let soon = it.store.now().0 + LONG;
    it.schedule(task(1, soon)).await;
    let first = it.handout(2, LONG).await;
    assert_eq!(ids(&first.tasks), [id(9), id(3)]);
    assert_eq!(first.next_at, Some(Millis(PAST + 10)));
    let rest = it.handout(9, LONG).await;
    assert_eq!(ids(&rest.tasks), [id(4), id(5)]);
    assert!(rest.next_at.is_some_and(|at| at.0 <= soon), "a lease may end before");
    assert_eq!(it.handout(9, LONG).await.tasks, []);
    let claimed = &first.tasks[0];
    assert_eq!((claimed.due_at, claimed.visible_at, claimed.attempt), (Millis(PAST), Millis(PAST), 1));
    assert_eq!(&claimed.payload[..], b"{\"n\":9}");
    let leased = it.get(9).await.expect("it is there");
    assert_eq!((leased.state, leased.visible_at), (TaskState::Leased, claimed.lease_until));
    assert!((claimed.lease_until.since(it.store.now()) - LONG).abs() < 5_000);
}

/// A receipt counts until its task is handed out again, changed or gone, and not after.
pub async fn a_receipt_counts_until_another_has_the_task(open: Open<'_>) {
    let it = Subject::open(open).await;
    it.due(1).await;
    let first = it.claim_one(SHORT).await;
    it.outlive().await;
    assert_eq!(it.settle(&first, Verdict::Extend(SHORT)).await, Settled::Done, "late, but nobody else has it");
    it.outlive().await;
    let second = it.claim_one(LONG).await;
    assert_eq!(second.attempt, 2);
    assert!(second.receipt > first.receipt);
    for verdict in [Verdict::Ack, Verdict::Release, Verdict::Extend(LONG), failed()] {
        assert_eq!(it.settle(&first, verdict).await, Settled::Lost);
    }
    assert_eq!(it.settle(&second, Verdict::Ack).await, Settled::Done);
    assert_eq!(it.settle(&second, Verdict::Ack).await, Settled::Lost, "a repeated one harms nothing");
    it.due(1).await;
    let third = it.claim_one(LONG).await;
    assert!(third.receipt > second.receipt, "also of a task that was gone meanwhile");
}

/// A change takes a leased task from its holder.
pub async fn a_change_revokes_a_receipt(open: Open<'_>) {
    let it = Subject::open(open).await;
    it.due(1).await;
    let held = it.claim_one(LONG).await;
    let left = it.schedule(task(0, PAST - 5)).await;
    assert!(!left.scheduled);
    assert_eq!(left.task.state, TaskState::Leased);
    let always = Schedule { condition: Condition::Always, ..task(0, PAST + 5) };
    let changed = it.schedule(always).await;
    assert!(changed.scheduled && !changed.new);
    assert_eq!((changed.task.state, changed.task.attempt), (TaskState::Pending, 0));
    assert_eq!(it.settle(&held, Verdict::Ack).await, Settled::Lost);
    let again = it.claim_one(LONG).await;
    assert_eq!((again.attempt, again.due_at), (1, Millis(PAST + 5)));
    assert_eq!(it.settle(&again, Verdict::Ack).await, Settled::Done);
}

/// What was handed back is charged no attempt and comes at its old place.
pub async fn a_release_is_not_charged(open: Open<'_>) {
    let it = Subject::open(open).await;
    it.due(2).await;
    for _ in 0..ATTEMPTS + 2 {
        let held = it.claim_one(LONG).await;
        assert_eq!((held.id.clone(), held.attempt, held.visible_at), (id(0), 1, Millis(PAST)));
        assert_eq!(it.settle(&held, Verdict::Release).await, Settled::Done);
    }
    assert_eq!(it.get(0).await.map(|task| (task.attempt, task.state)), Some((0, TaskState::Pending)));
}

/// A retry waits as long as it was told, or as long as the rule says; the last one kills.
pub async fn retries_wait_and_end(open: Open<'_>) {
    let it = Subject::open(open).await;
    it.due(1).await;
    let held = it.claim_one(LONG).await;
    let now = it.store.now();
    let verdict = Verdict::Retry { delay_ms: None, spread: 400, error: Some("busy".into()) };
    assert_eq!(it.settle(&held, verdict).await, Settled::Done);
    let waiting = it.get(0).await.expect("it is there");
    let delay = retry_delay_ms(1, 400);
    assert!((waiting.visible_at.since(now) - delay).abs() < 1_000 + delay / 2, "{waiting:?} {now:?}");
    assert_eq!((waiting.state, waiting.due_at, waiting.attempt), (TaskState::Pending, Millis(PAST), 1));
    assert_eq!(waiting.last_error.as_deref(), Some("busy"));
    it.schedule(Schedule { condition: Condition::Always, ..task(0, PAST) }).await;
    for (told, kept) in [("", None), ("a\u{1}\u{FFFD}\n", Some("a\u{1}\u{FFFD}\n"))] {
        let held = it.claim_one(LONG).await;
        let verdict = Verdict::Retry { delay_ms: Some(0), spread: 0, error: Some(told.into()) };
        assert_eq!(it.settle(&held, verdict).await, Settled::Done);
        assert_eq!(it.get(0).await.expect("it is there").last_error.as_deref(), kept, "{told:?}");
    }
    assert!(it.store.settle(&it.queue, &[]).await.expect("the store answers").is_empty());
    it.schedule(Schedule { condition: Condition::Always, ..task(0, PAST) }).await;
    for attempt in 1..=ATTEMPTS {
        let held = it.claim_one(LONG).await;
        assert_eq!(held.attempt, attempt);
        let expected = if attempt < ATTEMPTS { Settled::Done } else { Settled::Dead };
        assert_eq!(it.settle(&held, failed()).await, expected);
    }
    let dead = it.get(0).await.expect("it is there");
    assert_eq!((dead.state, dead.attempt, dead.due_at), (TaskState::Dead, ATTEMPTS, Millis(PAST)));
    assert_eq!(dead.last_error.as_deref(), Some("it failed: ä\u{1F4A5}"));
    assert!(dead.dead_at.is_some_and(|at| (at.since(it.store.now())).abs() < 5_000));
    assert_eq!(it.claim(9, LONG).await, []);
    assert_eq!(it.handout(0, LONG).await.next_at, None, "the dead wait for nobody");
}

/// A task whose leases run out dies, too, at the claim after its last.
pub async fn a_crash_loop_ends(open: Open<'_>) {
    let it = Subject::open(open).await;
    it.due(1).await;
    for attempt in 1..=ATTEMPTS {
        let claimed = it.claim_one(SHORT).await;
        assert_eq!((claimed.attempt, claimed.suspect), (attempt, attempt > 2 || attempt > 1 && attempt == ATTEMPTS));
        it.outlive().await;
    }
    assert_eq!(it.claim(9, SHORT).await, []);
    let dead = it.get(0).await.expect("it is there");
    assert_eq!((dead.state, dead.last_error), (TaskState::Dead, Some(lapsed_error(ATTEMPTS))));
    let stats = it.stats().await;
    assert_eq!((stats.pending, stats.leased, stats.dead), (0, 0, 1));
}

/// The dead are listed newest first, revived one by one, purged oldest first.
pub async fn the_dead_wait_for_a_person(open: Open<'_>) {
    let it = Subject::open(open).await;
    for n in 0..5 {
        it.schedule(task(n, PAST)).await;
        for _ in 0..ATTEMPTS {
            let held = it.claim_one(LONG).await;
            it.settle(&held, failed()).await;
        }
        it.harness.pass(std::time::Duration::from_millis(5)).await;
    }
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let (page, next) = it.store.list(&it.queue, Listing::Dead, after, 2).await.expect("the store answers");
        seen.extend(page);
        after = next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen.iter().map(|task| task.id.clone()).collect::<Vec<_>>(), [4, 3, 2, 1, 0].map(id));
    let requeue = |n, delay| {
        let (store, queue) = (it.store.clone(), it.queue.clone());
        async move { store.requeue(&queue, &id(n), delay).await.expect("the store answers") }
    };
    let revived = requeue(2, 0).await.expect("it was dead");
    assert_eq!((revived.state, revived.attempt, revived.dead_at), (TaskState::Pending, 0, None));
    assert_eq!(&revived.payload[..], b"{\"n\":2}");
    assert_eq!(requeue(2, 0).await, None);
    assert_eq!(requeue(77, 0).await, None);
    assert_eq!(it.claim_one(LONG).await.id, id(2));
    let before = seen[1].dead_at;
    assert_eq!(it.store.purge(&it.queue, before).await.expect("the store answers"), (2, false), "0 and 1");
    assert_eq!(it.stats().await.dead, 2);
    assert!(!it.schedule(task(3, PAST)).await.scheduled, "absent leaves a dead one");
    let always = Schedule { condition: Condition::Always, ..task(3, PAST) };
    assert!(it.schedule(always).await.scheduled, "others revive it");
    assert_eq!(it.store.purge(&it.queue, None).await.expect("the store answers"), (1, false));
    assert_eq!(it.get(4).await, None);
}

/// A batch of verdicts is answered in order, each on its own.
pub async fn verdicts_of_a_batch_are_each_their_own(open: Open<'_>) {
    let it = Subject::open(open).await;
    it.due(4).await;
    let held = it.claim(4, LONG).await;
    let settle = |n: usize, verdict| Settle { id: held[n].id.clone(), receipt: held[n].receipt, verdict };
    let wrong = Settle { id: id(99), ..settle(0, Verdict::Ack) };
    let batch = [
        settle(0, Verdict::Ack),
        wrong,
        settle(1, Verdict::Release),
        settle(0, Verdict::Ack),
        settle(2, Verdict::Extend(LONG)),
        settle(3, failed()),
        settle(2, Verdict::Ack),
    ];
    use Settled::{Done, Lost};
    let answers = it.store.settle(&it.queue, &batch).await.expect("the store answers");
    assert_eq!(answers, [Done, Lost, Done, Lost, Done, Done, Done]);
    let left: Vec<_> = it.claim(9, LONG).await.into_iter().map(|task| (task.id, task.attempt)).collect();
    assert_eq!(left, [(id(1), 1), (id(3), 2)]);
}

/// What one process schedules, another one is handed; what one holds, the other does not get.
pub async fn processes_share_a_queue(open: Open<'_>) {
    let it = Subject::open(open).await;
    let Some(other) = it.harness.another().await else { return };
    it.due(10).await;
    let mine = it.claim(4, LONG).await;
    let theirs = handout(&*other, &it.queue, 9, LONG).await.tasks;
    assert_eq!(ids(&theirs), (4..10).map(id).collect::<Vec<_>>());
    let asked = Settle { id: mine[0].id.clone(), receipt: mine[0].receipt, verdict: Verdict::Ack };
    assert_eq!(
        other.settle(&it.queue, &[asked]).await.expect("the store answers"),
        [Settled::Done],
        "a receipt is a proof"
    );
    assert!(theirs.iter().zip(4..).all(|(task, n)| task.due_at == Millis(PAST + small(n))));
    other.close().await;
}
