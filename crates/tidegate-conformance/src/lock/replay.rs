//! Random operations, each answer held against [`Lock`]. Times are long, or have passed before the next step; every process
//! gives its signs of life.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidegate_core::lock::Lock;
use tidegate_core::lock::model::Step;

use super::*;

const SEEDS: u64 = 4;
const STEPS: usize = 250;
const CALLERS: u64 = 4;
/// Calls of one caller: more than are told apart.
const CALLS: u64 = 10;
const LOCK: &str = "replayed";

struct Replay {
    dice: StdRng,
    subject: Subject,
    stores: Vec<Arc<dyn LockStore>>,
    model: Lock,
    now: i64,
    /// The store's fences by the model's.
    fences: BTreeMap<Fence, Fence>,
    seen: BTreeMap<&'static str, u32>,
}

/// Random operations; see the module's text.
pub async fn random_operations_agree_with_the_lock(open: Open<'_>) {
    let mut seen = BTreeMap::new();
    for seed in 0..SEEDS {
        let subject = Subject::open(open).await;
        let stores = vec![subject.store.clone(), subject.harness.another().await];
        let mut replay = Replay {
            dice: StdRng::seed_from_u64(seed),
            subject,
            stores,
            model: Lock::default(),
            now: 1_000_000,
            fences: BTreeMap::new(),
            seen: BTreeMap::new(),
        };
        for _ in 0..STEPS {
            replay.step().await;
        }
        for (kind, times) in replay.seen {
            *seen.entry(kind).or_insert(0) += times;
        }
    }
    let kinds = ["granted", "again", "waits", "held", "released", "not released", "renewed", "lost", "left", "ran out"];
    for kind in kinds.into_iter().chain(["told before", "told first", "left and freed"]) {
        assert!(seen.get(kind).is_some_and(|times| *times >= 3), "the replay is poor in {kind}: {seen:?}");
    }
}

impl Replay {
    fn count(&mut self, kind: &'static str) {
        *self.seen.entry(kind).or_insert(0) += 1;
    }

    /// One of a caller's calls: each speaks from a process of its own.
    fn call(&mut self, n: u64) -> (u64, Arc<dyn LockStore>) {
        let most = if self.dice.random_range(0..4) == 0 { CALLS } else { 2 };
        let call = n + CALLERS * self.dice.random_range(0..most);
        (call, self.stores[usize::try_from(call / CALLERS % 2).expect("small")].clone())
    }

    fn why(&mut self) -> Leave {
        if self.dice.random_range(0..4) == 0 { Leave::Done } else { Leave::Untold }
    }

    fn at(&self) -> Step<'static> {
        let us = self.now.unsigned_abs() * 1_000;
        Step { now: Millis(self.now), now_us: us, alive: &|_| true }
    }

    async fn step(&mut self) {
        for store in &self.stores {
            store.sign(&[name(LOCK)]).await.expect("the store answers");
        }
        let n = self.dice.random_range(0..CALLERS);
        match self.dice.random_range(0..200) {
            0..110 => self.acquire(n).await,
            110..130 => self.release(n).await,
            130..174 => self.leave(n).await,
            174..197 => self.renew(n).await,
            _ => {
                // Whatever is held, handed over or not, runs out.
                self.count("ran out");
                self.model.renew(Millis(self.now), &token(n), Some(AskId(n)), SHORT);
                self.subject.renew(LOCK, n, SHORT).await;
                self.now += SHORT + 100;
                self.subject.outlive().await;
            }
        }
        self.now += 1;
        let (there, expected) =
            (self.subject.store.look(&name(LOCK)).await.expect("the store answers"), self.model.look(Millis(self.now)));
        assert_eq!(there.waiters, expected.waiters);
        assert_eq!(there.held.is_some(), expected.held.is_some());
        if let (Some((there, _)), Some((expected, _))) = (there.held, expected.held) {
            self.same_fence(there, expected);
        }
    }

    fn same_fence(&mut self, there: Fence, expected: Fence) {
        let known = *self.fences.entry(expected).or_insert(there);
        assert_eq!(known, there, "one grant, one fence");
        let in_order = self.fences.values().collect::<Vec<_>>();
        assert!(in_order.is_sorted_by(|a, b| a < b), "fences grow");
    }

    async fn acquire(&mut self, n: u64) {
        let (call, store) = self.call(n);
        let asked = repeat(&*store, n, call, self.dice.random_range(0..3) > 0);
        let mine = self.model.look(Millis(self.now)).held;
        let (expected, _) = self.model.acquire(self.at(), &asked);
        let there = acquire(&*store, LOCK, asked).await;
        match (there, expected) {
            (Acquired::Granted { fence, again: there, .. }, Acquired::Granted { fence: expected, again: told, .. }) => {
                self.same_fence(fence, expected);
                assert_eq!(there, told);
                self.count(if told { "told before" } else { "told first" });
                let again = mine.is_some_and(|(fence, _)| fence == expected);
                self.count(if again { "again" } else { "granted" });
            }
            (Acquired::Held { before, joined: anew, .. }, Acquired::Held { before: expected, joined, .. }) => {
                assert_eq!((before, anew), (expected, joined));
                self.count(if before.is_some() { "waits" } else { "held" });
            }
            (there, expected) => panic!("{there:?} instead of {expected:?}"),
        }
    }

    async fn release(&mut self, n: u64) {
        let expected = self.model.release(self.at(), &token(n)).held;
        let (_, store) = self.call(n);
        let there = store.release(&name(LOCK), &token(n)).await.expect("the store answers");
        assert_eq!(there, expected);
        self.count(if expected { "released" } else { "not released" });
    }

    async fn leave(&mut self, n: u64) {
        let ((call, store), why) = (self.call(n), self.why());
        let held = self.model.leave(self.at(), &token(n), AskId(call), why).held;
        leave(&*store, LOCK, n, call, why).await;
        self.count(if held { "left and freed" } else { "left" });
    }

    async fn renew(&mut self, n: u64) {
        let alone = self.dice.random_range(0..4) == 0;
        let ask = Some(AskId(n)).filter(|_| !alone);
        let expected = self.model.renew(Millis(self.now), &token(n), ask, LONG);
        let renewal = Renewal { ask, ..renewal(LOCK, n, LONG) };
        let there = self.subject.store.renew(&[renewal]).await.remove(0).expect("the store answers");
        assert_eq!(there.is_some(), expected.is_some());
        if let (Some((there, _)), Some((expected, _))) = (there, expected) {
            self.same_fence(there, expected);
        }
        self.count(if expected.is_some() { "renewed" } else { "lost" });
    }
}
