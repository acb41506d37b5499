//! Scheduling, conditions, cancelling, lists, numbers.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use tidegate_backend::queue::Listing;
use tidegate_core::Millis;
use tidegate_core::queue::{Condition, Due, MAX_PAYLOAD_BYTES, Schedule, Settled, TaskId, TaskState, Verdict};

use super::{ATTEMPTS, LONG, Open, PAST, Subject, failed, handout, id, queue, small, task};

/// What was scheduled is there as it was scheduled; the same again changes nothing.
pub async fn a_task_is_there_as_it_was_scheduled(open: Open<'_>) {
    let it = Subject::open(open).await;
    let far = it.store.now().plus(LONG);
    let answer = it.schedule(task(1, far.0)).await;
    assert!(answer.new && answer.scheduled);
    let there = it.get(1).await.expect("it is there");
    assert_eq!(there, answer.task);
    assert_eq!((there.state, there.due_at, there.visible_at, there.attempt), (TaskState::Pending, far, far, 0));
    assert_eq!((&there.payload[..], there.last_error, there.dead_at), (&b"{\"n\":1}"[..], None, None));
    let again = it.schedule(task(1, PAST)).await;
    assert_eq!((again.new, again.scheduled, again.task), (false, false, answer.task));
    assert_eq!(it.get(2).await, None);
}

/// Each condition decides by `due_at`; a change starts the task anew.
pub async fn conditions_decide_by_the_instant(open: Open<'_>) {
    use Condition::{Absent, Always, Earlier, Later};
    let it = Subject::open(open).await;
    let base = it.store.now().0 + LONG;
    let cases = [
        (Absent, -1, false),
        (Absent, 1, false),
        (Earlier, -1, true),
        (Earlier, 0, false),
        (Earlier, 1, false),
        (Later, -1, false),
        (Later, 0, false),
        (Later, 1, true),
        (Always, 0, true),
    ];
    for (n, (condition, by, changes)) in cases.into_iter().enumerate() {
        it.schedule(task(n, base)).await;
        let asked = Schedule { payload: Bytes::from_static(b"new"), condition, ..task(n, base + by) };
        let answer = it.schedule(asked).await;
        assert_eq!((answer.new, answer.scheduled), (false, changes), "{condition:?} {by}");
        let there = it.get(n).await.expect("it is there");
        assert_eq!(there.due_at, Millis(if changes { base + by } else { base }), "{condition:?} {by}");
        assert_eq!(&there.payload[..] == b"new", changes, "{condition:?} {by}");
    }
}

/// Any instant a calendar can hold stays what it is, to the millisecond; delays count from the store's clock.
pub async fn instants_are_kept_to_the_millisecond(open: Open<'_>) {
    let it = Subject::open(open).await;
    let instants = [Millis::MIN.0, -1, 0, 1, 4_294_967_296_123, 2_366_841_600_123, Millis::MAX.0 - 1, Millis::MAX.0];
    for (n, at) in instants.into_iter().enumerate() {
        it.schedule(task(n, at)).await;
        assert_eq!(it.get(n).await.map(|task| task.due_at), Some(Millis(at)));
    }
    let before = it.store.now();
    let delayed = it.schedule(Schedule { due: Due::In(5_000_000), ..task(50, 0) }).await.task;
    let slack = it.store.now().since(before) + 2_000;
    assert!((delayed.due_at.since(before.plus(5_000_000))).abs() <= slack, "{delayed:?} {before:?}");
    let claimed: Vec<TaskId> = it.claim(9, LONG).await.into_iter().map(|task| task.id).collect();
    assert_eq!(claimed, [id(0), id(1), id(2), id(3)], "those of the past, in order");
}

/// A task in any state can be cancelled, once.
pub async fn cancel_takes_a_task_in_any_state(open: Open<'_>) {
    let it = Subject::open(open).await;
    it.due(3).await;
    assert!(it.cancel(0).await && !it.cancel(0).await);
    let held = it.claim_one(LONG).await;
    assert_eq!(held.id, id(1));
    assert!(it.cancel(1).await);
    assert_eq!(it.settle(&held, Verdict::Ack).await, Settled::Lost);
    for _ in 0..ATTEMPTS {
        let held = it.claim_one(LONG).await;
        it.settle(&held, failed()).await;
    }
    assert_eq!(it.stats().await.dead, 1);
    assert!(it.cancel(2).await);
    let empty = it.stats().await;
    assert_eq!((empty.pending, empty.leased, empty.dead, empty.oldest_due_at), (0, 0, 0, None));
}

/// Ids and payloads are any bytes they may be.
pub async fn ids_and_payloads_are_bytes(open: Open<'_>) {
    let it = Subject::open(open).await;
    let long = "é".repeat(64);
    let names = ["a", "A", "a b", "a:b", "{a}", "ä", "a\u{308}", "%", "'\"\\", "0", long.as_str()];
    let payloads: Vec<Bytes> = vec![
        Bytes::new(),
        Bytes::from_static(b"\0\r\n\xff"),
        Bytes::from((0..=255u8).collect::<Vec<_>>()),
        Bytes::from(vec![b'x'; MAX_PAYLOAD_BYTES]),
    ];
    for (n, name) in names.iter().enumerate() {
        let id = TaskId::parse(name).expect("an id");
        let payload = payloads[n % payloads.len()].clone();
        assert!(it.schedule(Schedule { id, payload, ..task(n, PAST + small(n)) }).await.new, "{name:?}");
    }
    let mut claimed = Vec::new();
    while claimed.len() < names.len() {
        let some = it.claim(3, LONG).await;
        assert!(!some.is_empty(), "they are due");
        claimed.extend(some);
    }
    for (n, (name, claimed)) in names.iter().zip(&claimed).enumerate() {
        assert_eq!((claimed.id.as_str(), &claimed.payload), (*name, &payloads[n % payloads.len()]));
        assert_eq!(it.settle(claimed, Verdict::Ack).await, Settled::Done);
    }
}

/// Queues know nothing of each other; a queue begins with its first task and is named from then on.
pub async fn queues_are_strangers(open: Open<'_>) {
    let it = Subject::open(open).await;
    let names = ["a", "a.b", "b-1", "z_9"].map(queue);
    assert_eq!(it.store.stats(&names).await.expect("the store answers"), [None; 4]);
    for name in &names {
        it.store.schedule(name, &[task(1, PAST)]).await.expect("the store answers");
    }
    assert_eq!(it.store.cancel(&names[0], &[id(1)]).await.expect("the store answers"), [true]);
    assert_eq!(handout(&*it.store, &names[0], 9, LONG).await.tasks, []);
    assert_eq!(handout(&*it.store, &names[1], 9, LONG).await.tasks.len(), 1);
    assert_eq!(it.store.queues(None, 9).await.expect("the store answers"), names);
    assert_eq!(it.store.queues(Some(&names[1]), 1).await.expect("the store answers"), [names[2].clone()]);
    let stats = it.store.stats(&names).await.expect("the store answers");
    assert_eq!(
        stats.iter().map(|stats| stats.map(|stats| stats.pending)).collect::<Vec<_>>(),
        [Some(0), Some(0), Some(1), Some(1)]
    );
}

/// Pages come in order, whole, each task once.
pub async fn lists_page(open: Open<'_>) {
    let it = Subject::open(open).await;
    it.due(25).await;
    let held: BTreeSet<TaskId> = it.claim(5, LONG).await.into_iter().map(|task| task.id).collect();
    for (listing, expected) in [
        (Listing::Live(None), 25),
        (Listing::Live(Some(TaskState::Pending)), 20),
        (Listing::Live(Some(TaskState::Leased)), 5),
    ] {
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let (page, next) = it.store.list(&it.queue, listing.clone(), after, 7).await.expect("the store answers");
            assert!(page.len() <= 7);
            seen.extend(page);
            after = next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(seen.len(), expected, "{listing:?}");
        assert!(seen.is_sorted_by(|a, b| (a.visible_at, &a.id) < (b.visible_at, &b.id)), "{listing:?}");
        for task in &seen {
            assert_eq!(task.state == TaskState::Leased, held.contains(&task.id), "{task:?}");
        }
    }
}

/// The numbers of a queue, through the lives of its tasks.
pub async fn numbers_are_true(open: Open<'_>) {
    let it = Subject::open(open).await;
    it.due(6).await;
    it.schedule(task(100, it.store.now().0 + LONG)).await;
    let stats = it.stats().await;
    assert_eq!((stats.pending, stats.due, stats.leased, stats.dead), (7, 6, 0, 0));
    assert_eq!(stats.oldest_due_at, Some(Millis(PAST)));
    let held = it.claim(2, LONG).await;
    let stats = it.stats().await;
    assert_eq!((stats.pending, stats.due, stats.leased, stats.dead), (5, 4, 2, 0));
    assert_eq!(stats.oldest_due_at, Some(Millis(PAST + 2)));
    it.settle(&held[0], Verdict::Ack).await;
    it.settle(&held[1], Verdict::Retry { delay_ms: Some(LONG), spread: 0, error: None }).await;
    let stats = it.stats().await;
    assert_eq!((stats.pending, stats.due, stats.leased, stats.dead), (6, 4, 0, 0));
    let short = it.claim(2, super::SHORT).await;
    assert_eq!(short.len(), 2);
    it.outlive().await;
    let stats = it.stats().await;
    assert_eq!((stats.pending, stats.due, stats.leased, stats.dead), (6, 4, 0, 0), "leases that ran out");
}

/// Whoever waits hears of an earlier task, whenever it is scheduled.
pub async fn earlier_is_never_missed(open: Open<'_>) {
    let it = Subject::open(open).await;
    let base = it.store.now().0 + LONG;
    for n in 0..50 {
        let earlier = it.store.earlier();
        let mut next = it.handout(0, LONG).await.next_at;
        let at = base - small(n);
        let store = it.store.clone();
        let name = it.queue.clone();
        let other = tokio::spawn(async move { store.schedule(&name, &[task(n, at)]).await.map(|_| ()) });
        tokio::time::timeout(Duration::from_secs(5), earlier).await.expect("it is told");
        other.await.expect("it ends").expect("the store answers");
        let before = next.replace(it.handout(0, LONG).await.next_at.expect("there is one"));
        assert!(before.is_none_or(|before| before.0 > at));
        assert_eq!(next, Some(Millis(at)));
    }
}

/// After `close` nothing hangs.
pub async fn it_closes(open: Open<'_>) {
    let it = Subject::open(open).await;
    it.due(3).await;
    let closing = async {
        it.store.close().await;
        it.store.close().await;
        let _ = it.store.schedule(&it.queue, &[task(9, PAST)]).await;
        let _ = it.store.claim(&[]).await;
    };
    tokio::time::timeout(Duration::from_secs(10), closing).await.expect("it ends");
}
