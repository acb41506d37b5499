use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::queue::task::{Condition, Due};

const LEASE: i64 = 1_000;

fn id(n: usize) -> TaskId {
    TaskId::parse(&format!("t{n:04}")).expect("a task id")
}

fn ask(n: usize, at: i64, condition: Condition) -> Schedule {
    Schedule { id: id(n), due: Due::At(Millis(at)), payload: Bytes::new(), condition }
}

fn full(tasks: usize, at: i64) -> Queue {
    let mut queue = Queue::new(20);
    for n in 0..tasks {
        assert!(queue.schedule(Millis(0), &ask(n, at, Condition::Absent)).new);
    }
    queue
}

fn claim(queue: &mut Queue, now: i64, max: usize) -> Vec<Claimed> {
    queue.claim(Millis(now), u64::try_from(now).expect("after 1970") * 1_000, max, LEASE)
}

fn settle(queue: &mut Queue, now: i64, claimed: &Claimed, verdict: Verdict) -> Settled {
    queue.settle(Millis(now), &Settle { id: claimed.id.clone(), receipt: claimed.receipt, verdict })
}

fn retry() -> Verdict {
    Verdict::Retry { delay_ms: Some(0), spread: 0, error: Some("no".into()) }
}

#[test]
fn conditions() {
    use Condition::{Absent, Always, Earlier, Later};
    for (condition, at, changes) in [
        (Absent, 5, false),
        (Earlier, 9, true),
        (Earlier, 10, false),
        (Earlier, 11, false),
        (Later, 9, false),
        (Later, 10, false),
        (Later, 11, true),
        (Always, 10, true),
    ] {
        let mut queue = full(1, 10);
        let answer = queue.schedule(Millis(0), &ask(0, at, condition));
        assert_eq!((answer.new, answer.scheduled), (false, changes), "{condition:?} {at}");
        assert_eq!(queue.next_at(), Some(Millis(if changes { at } else { 10 })));
    }
}

#[test]
fn a_change_takes_a_task_from_its_holder() {
    let mut queue = full(1, 10);
    let held = claim(&mut queue, 10, 1).remove(0);
    assert!(!queue.schedule(Millis(10), &ask(0, 20, Condition::Absent)).scheduled);
    assert!(queue.schedule(Millis(10), &ask(0, 20, Condition::Always)).scheduled);
    assert_eq!(settle(&mut queue, 10, &held, Verdict::Ack), Settled::Lost);
    let again = claim(&mut queue, 20, 1).remove(0);
    assert_eq!(again.attempt, 1);
    assert!(again.receipt > held.receipt);
    assert_eq!(settle(&mut queue, 20, &again, Verdict::Ack), Settled::Done);
    assert_eq!(settle(&mut queue, 20, &again, Verdict::Ack), Settled::Lost);
}

#[test]
fn a_lease_that_ran_out_can_be_answered_until_another_has_it() {
    let mut queue = full(1, 10);
    let first = claim(&mut queue, 10, 1).remove(0);
    assert_eq!(claim(&mut queue, 10 + LEASE - 1, 1), []);
    assert_eq!(queue.stats(Millis(10 + LEASE - 1)).leased, 1);
    let lapsed = queue.stats(Millis(10 + LEASE));
    assert_eq!((lapsed.pending, lapsed.due, lapsed.leased), (1, 1, 0));
    assert_eq!(settle(&mut queue, 10 + LEASE, &first, Verdict::Extend(LEASE)), Settled::Done);
    let second = claim(&mut queue, 10 + 2 * LEASE, 1).remove(0);
    assert_eq!(second.attempt, 2);
    assert_eq!(settle(&mut queue, 10 + 2 * LEASE, &first, Verdict::Ack), Settled::Lost);
}

#[test]
fn handed_back_tasks_are_not_charged_and_failed_ones_die() {
    let mut queue = Queue::new(2);
    queue.schedule(Millis(0), &ask(0, 10, Condition::Absent));
    let held = claim(&mut queue, 10, 1).remove(0);
    assert_eq!(settle(&mut queue, 11, &held, Verdict::Release), Settled::Done);
    let held = claim(&mut queue, 11, 1).remove(0);
    assert_eq!(held.attempt, 1);
    assert_eq!(settle(&mut queue, 12, &held, retry()), Settled::Done);
    let held = claim(&mut queue, 12, 1).remove(0);
    assert_eq!(held.attempt, 2);
    assert_eq!(settle(&mut queue, 13, &held, retry()), Settled::Dead);
    let dead = queue.list_dead(Millis(13), None, 9).remove(0);
    assert_eq!((dead.state, dead.dead_at, dead.last_error.as_deref()), (TaskState::Dead, Some(Millis(13)), Some("no")));
    assert_eq!(claim(&mut queue, 99_999, 1), []);
    assert!(!queue.schedule(Millis(14), &ask(0, 10, Condition::Absent)).scheduled, "absent leaves a dead one");
    assert_eq!(queue.requeue(Millis(14), &id(0), 5).map(|task| (task.due_at, task.attempt)), Some((Millis(19), 0)));
    assert_eq!(queue.requeue(Millis(14), &id(0), 5), None);
}

#[test]
fn an_innocent_batch_mate_of_a_killer_lives() {
    let mut queue = Queue::new(5);
    for n in 0..512 {
        queue.schedule(Millis(0), &ask(n, 10, Condition::Absent));
    }
    let killer = id(300);
    let mut now = 10;
    while queue.stats(Millis(now)).pending > 0 || queue.stats(Millis(now)).leased > 0 {
        let batch = claim(&mut queue, now, 512);
        if batch.iter().any(|task| task.id == killer) {
            now += LEASE;
            continue;
        }
        for task in &batch {
            assert_eq!(settle(&mut queue, now, task, Verdict::Ack), Settled::Done);
        }
    }
    let dead = queue.list_dead(Millis(now), None, 9);
    assert_eq!(dead.iter().map(|task| &task.id).collect::<Vec<_>>(), [&killer]);
    assert_eq!(dead[0].last_error, Some(lapsed_error(5)));
}

#[test]
fn a_pile_does_not_hold_up_the_newest() {
    let mut queue = full(1_000, 10);
    queue.schedule(Millis(0), &ask(5_000, 500, Condition::Absent));
    let batch = claim(&mut queue, 500, 64);
    assert_eq!(batch.len(), 64);
    assert!(batch.iter().any(|task| task.id == id(5_000)));
    assert_eq!(
        batch.iter().take(56).map(|task| task.id.clone()).collect::<Vec<_>>(),
        (0..56).map(id).collect::<Vec<_>>()
    );
}

#[test]
fn a_claim_carries_a_bounded_payload() {
    let mut queue = Queue::new(20);
    for n in 0..40 {
        let payload = Bytes::from(vec![7; 60_000]);
        queue.schedule(Millis(0), &Schedule { payload, ..ask(n, 1, Condition::Absent) });
    }
    let batch = claim(&mut queue, 1, 512);
    assert!(batch.iter().map(|task| task.payload.len()).sum::<usize>() <= MAX_BATCH_BYTES);
    assert_eq!(batch.len(), 17);
}

#[test]
fn purging_takes_the_oldest() {
    let mut queue = Queue::new(1);
    for n in 0..5 {
        let now = 10 * i64::try_from(n).expect("small");
        queue.schedule(Millis(now), &ask(n, now, Condition::Absent));
        let held = claim(&mut queue, now, 1).remove(0);
        assert_eq!(settle(&mut queue, now, &held, retry()), Settled::Dead);
    }
    assert_eq!(queue.purge(Some(Millis(20)), 1), (1, true));
    assert_eq!(queue.purge(Some(Millis(20)), 9), (1, false));
    let left: Vec<_> = queue.list_dead(Millis(99), None, 9).into_iter().map(|task| task.id).collect();
    assert_eq!(left, [id(4), id(3), id(2)]);
    let after = (Millis(30), id(3));
    assert_eq!(queue.list_dead(Millis(99), Some(&after), 9).len(), 1);
    assert_eq!(queue.purge(None, 9), (3, false));
}

#[derive(Debug, Clone)]
enum Step {
    Schedule(usize, i64, Condition),
    Cancel(usize),
    Claim(usize),
    Settle(usize, u8),
    Pass(i64),
}

fn step() -> impl Strategy<Value = Step> {
    use Condition::{Absent, Always, Earlier, Later};
    let condition = prop_oneof![Just(Absent), Just(Earlier), Just(Later), Just(Always)];
    prop_oneof![
        3 => (0..12usize, 0..4_000i64, condition).prop_map(|(n, at, condition)| Step::Schedule(n, at, condition)),
        1 => (0..12usize).prop_map(Step::Cancel),
        3 => (1..6usize).prop_map(Step::Claim),
        4 => (0..40usize, 0..4u8).prop_map(|(which, verdict)| Step::Settle(which, verdict)),
        2 => (1..900i64).prop_map(Step::Pass),
    ]
}

proptest! {
    /// Never early, one holder at a time, nothing lost: whatever was scheduled is acknowledged, cancelled, dead or still there.
    #[test]
    fn nothing_is_early_lost_or_held_twice(steps in proptest::collection::vec(step(), 1..200)) {
        let mut queue = Queue::new(3);
        let (mut now, mut handed) = (0i64, Vec::<Claimed>::new());
        let mut expected = std::collections::BTreeSet::new();
        for step in steps {
            match step {
                Step::Schedule(n, at, condition) => {
                    queue.schedule(Millis(now), &ask(n, at, condition));
                    expected.insert(id(n));
                }
                Step::Cancel(n) => {
                    let there = expected.remove(&id(n));
                    prop_assert_eq!(queue.cancel(&id(n)), there);
                }
                Step::Claim(max) => {
                    for task in claim(&mut queue, now, max) {
                        prop_assert!(task.due_at <= Millis(now) && task.visible_at <= Millis(now));
                        prop_assert!(task.attempt <= 3);
                        prop_assert!(handed.iter().all(|other| other.receipt < task.receipt));
                        handed.push(task);
                    }
                }
                Step::Settle(which, verdict) if !handed.is_empty() => {
                    let task = handed[which % handed.len()].clone();
                    let newest = handed.iter().filter(|other| other.id == task.id).map(|other| other.receipt).max();
                    let verdict = match verdict {
                        0 => Verdict::Ack,
                        1 => Verdict::Release,
                        2 => Verdict::Extend(LEASE),
                        _ => retry(),
                    };
                    let answer = settle(&mut queue, now, &task, verdict.clone());
                    if answer != Settled::Lost {
                        prop_assert_eq!(newest, Some(task.receipt));
                        if verdict == Verdict::Ack {
                            expected.remove(&task.id);
                        }
                    }
                }
                Step::Settle(..) => {}
                Step::Pass(ms) => now += ms,
            }
            let stats = queue.stats(Millis(now));
            prop_assert_eq!(stats.pending + stats.leased + stats.dead, expected.len() as u64);
            prop_assert!(stats.due <= stats.pending);
        }
    }
}
