//! Random operations; every answer, list and number held against [`Queue`].
//!
//! Two processes take turns, where there are two. Tasks are due long ago or in thousands of years, leases are long or have
//! passed before the next step, and every step takes its milliseconds, so that the order of events is the same on both sides
//! though the instants are not.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use tidegate_backend::queue::Listing;
use tidegate_core::queue::{Queue, Receipt, TaskState};

use super::*;

const SEEDS: u64 = 4;
const STEPS: usize = 400;
const IDS: usize = 14;
/// What every step takes, milliseconds.
const TICK: i64 = 2;

struct Replay {
    dice: StdRng,
    subject: Subject,
    stores: Vec<Arc<dyn QueueStore>>,
    model: Queue,
    now: Millis,
    /// Claims that were handed out lately: the model's and the store's.
    held: Vec<(Claimed, Claimed)>,
    seen: BTreeMap<&'static str, u32>,
}

/// Random operations; see the module's text.
pub async fn random_operations_agree_with_the_model(open: Open<'_>) {
    let mut seen = BTreeMap::new();
    for seed in 0..SEEDS {
        let mut replay = Replay::start(open, seed).await;
        for _ in 0..STEPS {
            replay.step().await;
        }
        for (kind, times) in replay.seen {
            *seen.entry(kind).or_insert(0) += times;
        }
    }
    for kind in
        ["new", "changed", "left", "claimed", "done", "lost", "dead", "cancelled", "revived", "purged", "lapsed"]
    {
        assert!(seen.get(kind).is_some_and(|times| *times >= 3), "the replay is poor in {kind}: {seen:?}");
    }
}

impl Replay {
    async fn start(open: Open<'_>, seed: u64) -> Self {
        let subject = Subject::open(open).await;
        let mut stores = vec![subject.store.clone()];
        stores.extend(subject.harness.another().await);
        let dice = StdRng::seed_from_u64(seed);
        let now = Millis(PAST + 86_400_000);
        let mut replay =
            Self { dice, subject, stores, model: Queue::new(ATTEMPTS), now, held: Vec::new(), seen: BTreeMap::new() };
        // A queue that has begun, so that it has numbers from the first step on.
        replay.schedule().await;
        replay
    }

    fn count(&mut self, kind: &'static str) {
        *self.seen.entry(kind).or_insert(0) += 1;
    }

    fn store(&mut self) -> Arc<dyn QueueStore> {
        self.stores.choose(&mut self.dice).expect("there is one").clone()
    }

    async fn pass(&mut self, ms: i64) {
        self.now = self.now.plus(ms);
        self.subject.harness.pass(Duration::from_millis(ms.unsigned_abs())).await;
    }

    async fn step(&mut self) {
        match self.dice.random_range(0..100) {
            0..18 => self.schedule().await,
            18..23 => self.cancel().await,
            23..47 => self.claim().await,
            47..88 => self.settle().await,
            88..95 => self.requeue().await,
            _ => self.purge().await,
        }
        self.pass(TICK).await;
        self.compare().await;
    }

    fn any_task(&mut self) -> Schedule {
        use Condition::{Absent, Always, Earlier, Later};
        let n = self.dice.random_range(0..IDS);
        let offset = self.dice.random_range(0..40);
        let at = if self.dice.random_range(0..4) == 0 { Millis::MAX.0 - offset } else { PAST + offset };
        let condition =
            *[Absent, Absent, Absent, Absent, Earlier, Later, Always].choose(&mut self.dice).expect("there are some");
        let payload = vec![b'p'; self.dice.random_range(0..20)].into();
        Schedule { condition, payload, ..task(n, at) }
    }

    async fn schedule(&mut self) {
        let tasks: Vec<Schedule> = (0..self.dice.random_range(1..5)).map(|_| self.any_task()).collect();
        let answers = self.store().schedule(&self.subject.queue, &tasks).await.expect("the store answers");
        assert_eq!(answers.len(), tasks.len());
        for (asked, answer) in tasks.iter().zip(answers) {
            let expected = self.model.schedule(self.now, asked);
            assert_eq!((answer.new, answer.scheduled), (expected.new, expected.scheduled), "{asked:?}");
            same(Some(&answer.task), Some(&expected.task));
            self.count(if answer.new {
                "new"
            } else if answer.scheduled {
                "changed"
            } else {
                "left"
            });
        }
    }

    async fn cancel(&mut self) {
        let id = id(self.dice.random_range(0..IDS));
        let expected = self.model.cancel(&id);
        let answers = self.store().cancel(&self.subject.queue, &[id]).await.expect("the store answers");
        assert_eq!(answers, [expected]);
        if expected {
            self.count("cancelled");
        }
    }

    async fn claim(&mut self) {
        let max = self.dice.random_range(1..12);
        let brief = self.dice.random_range(0..12) == 0;
        let lease = if brief { SHORT } else { LONG };
        let (store, queue) = (self.store(), self.subject.queue.clone());
        let answer = handout(&*store, &queue, max, lease).await.tasks;
        let us = self.now.0.unsigned_abs() * 1_000;
        let expected = self.model.claim(self.now, us, max, lease);
        assert_eq!(ids(&answer), ids(&expected), "a claim of {max}");
        for (expected, answer) in expected.into_iter().zip(answer) {
            assert_eq!((given(answer.due_at), answer.attempt), (given(expected.due_at), expected.attempt));
            assert_eq!((answer.payload.clone(), answer.suspect), (expected.payload.clone(), expected.suspect));
            assert!(self.held.iter().all(|(_, other)| other.receipt < answer.receipt), "receipts grow");
            self.count("claimed");
            self.held.push((expected, answer));
        }
        if brief {
            self.count("lapsed");
            self.pass(SHORT + 100).await;
        }
        let from = self.held.len().saturating_sub(24);
        self.held.drain(..from);
    }

    async fn settle(&mut self) {
        // Mostly one that was handed out lately.
        let from = if self.dice.random_range(0..4) > 0 { self.held.len().saturating_sub(5) } else { 0 };
        let Some((mine, theirs)) = self.held[from..].choose(&mut self.dice).cloned() else { return };
        let verdict = match self.dice.random_range(0..9) {
            0..2 => Verdict::Ack,
            2 => Verdict::Release,
            3 => Verdict::Extend(LONG),
            4 => Verdict::Retry { delay_ms: Some(LONG), spread: 0, error: None },
            _ => failed(),
        };
        let ask = |receipt: Receipt| Settle { id: mine.id.clone(), receipt, verdict: verdict.clone() };
        let expected = self.model.settle(self.now, &ask(mine.receipt));
        let store = self.store();
        let answers = store.settle(&self.subject.queue, &[ask(theirs.receipt)]).await.expect("the store answers");
        assert_eq!(answers, [expected], "{verdict:?} of {}", mine.id);
        self.count(match expected {
            Settled::Done => "done",
            Settled::Lost => "lost",
            Settled::Dead => "dead",
        });
    }

    async fn requeue(&mut self) {
        let id = id(self.dice.random_range(0..IDS));
        let expected = self.model.requeue(self.now, &id, 0);
        let answer = self.store().requeue(&self.subject.queue, &id, 0).await.expect("the store answers");
        assert_eq!(answer.is_some(), expected.is_some());
        if expected.is_some() {
            self.count("revived");
        }
    }

    async fn purge(&mut self) {
        if self.dice.random_range(0..3) > 0 {
            return;
        }
        let (gone, _) = self.model.purge(None, usize::MAX - 1);
        let answer = self.store().purge(&self.subject.queue, None).await.expect("the store answers");
        assert_eq!(answer, (gone, false));
        if gone > 0 {
            self.count("purged");
        }
    }

    async fn compare(&mut self) {
        let (store, queue) = (self.store(), self.subject.queue.clone());
        let stats =
            store.stats(std::slice::from_ref(&queue)).await.expect("the store answers")[0].expect("it has begun");
        let expected = self.model.stats(self.now);
        assert_eq!(
            (stats.pending, stats.due, stats.leased, stats.dead, stats.oldest_due_at.is_some()),
            (expected.pending, expected.due, expected.leased, expected.dead, expected.oldest_due_at.is_some())
        );
        let id = id(self.dice.random_range(0..IDS));
        let there = store.get(&queue, std::slice::from_ref(&id)).await.expect("the store answers").remove(0);
        same(there.as_ref(), self.model.get(self.now, &id).as_ref());
        let state = *[None, Some(TaskState::Pending), Some(TaskState::Leased)].choose(&mut self.dice).expect("three");
        for (listing, expected) in [
            (Listing::Live(state), self.model.list(self.now, state, None, IDS)),
            (Listing::Dead, self.model.list_dead(self.now, None, IDS)),
        ] {
            let (page, _) = store.list(&queue, listing.clone(), None, IDS).await.expect("the store answers");
            let names = |tasks: &[Task]| tasks.iter().map(|task| task.id.clone()).collect::<Vec<_>>();
            assert_eq!(names(&page), names(&expected), "{listing:?}");
            for (there, expected) in page.iter().zip(&expected) {
                same(Some(there), Some(expected));
            }
        }
    }
}

/// An instant that a step gave, not a clock.
fn given(at: Millis) -> Option<Millis> {
    Some(at).filter(|at| at.0 < PAST + 1_000 || at.0 > PAST * 100)
}

/// Equal but for the instants that a clock gave.
fn same(there: Option<&Task>, expected: Option<&Task>) {
    let plain = |task: &Task| {
        let on_time = task.state == TaskState::Pending && task.attempt == 0;
        let due_at = given(task.due_at);
        let visible_at = if on_time { due_at.map(|_| task.visible_at) } else { None };
        let dead = task.dead_at.is_some();
        (
            task.id.clone(),
            task.state,
            due_at,
            visible_at,
            task.payload.clone(),
            task.attempt,
            task.last_error.clone(),
            dead,
        )
    };
    assert_eq!(there.map(plain), expected.map(plain));
}
