//! Random runs against a queue as plainly as it can be said.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidegate_backend::Claim;

use super::{Open, Subject};

const SEEDS: u64 = 12;
const STEPS: usize = 250;
const LEASE: i64 = 15;
const NEWEST_SHARE: usize = 8;

/// One row an order, everything by scanning.
#[derive(Default)]
struct Model {
    rows: Vec<Row>,
}

#[derive(Clone, Debug)]
struct Row {
    order: i64,
    due: i64,
    visible: i64,
    attempt: u32,
    leased: bool,
}

impl Model {
    fn claim(&mut self, now: i64, max: usize) -> Vec<(i64, i64, u32)> {
        let mut due: Vec<Row> = self.rows.iter().filter(|row| row.visible <= now).cloned().collect();
        due.sort_by_key(|row| (row.visible, row.order));
        let mut taken: Vec<Row> = due.drain(..due.len().min(max - max / NEWEST_SHARE)).collect();
        due.retain(|row| !row.leased);
        taken.extend(due.into_iter().rev().take(max - taken.len()));
        for row in &taken {
            let row = self.row(row.order).expect("it was there");
            (row.attempt, row.visible, row.leased) = (row.attempt + 1, now + LEASE, true);
        }
        taken.iter().map(|row| (row.order, row.due, row.attempt + 1)).collect()
    }

    fn row(&mut self, order: i64) -> Option<&mut Row> {
        self.rows.iter_mut().find(|row| row.order == order)
    }
}

struct Run {
    seed: u64,
    dice: StdRng,
    subject: Subject,
    model: Model,
    now: i64,
    next_order: i64,
    /// The newest claim of each order.
    claims: Vec<Claim>,
}

/// Schedules, cancels, claims, acknowledges and retries at random; queue and model agree after each step.
pub async fn random_runs_agree_with_the_model(open: Open<'_>) {
    for seed in 0..SEEDS {
        let subject = Subject::open(open).await;
        let (dice, model) = (StdRng::seed_from_u64(seed), Model::default());
        let mut run = Run { seed, dice, subject, model, now: 0, next_order: 0, claims: Vec::new() };
        for _ in 0..STEPS {
            run.step().await;
        }
    }
}

impl Run {
    async fn step(&mut self) {
        self.now += self.dice.random_range(0..5);
        match self.dice.random_range(0..8) {
            0..=2 => self.schedule().await,
            3 if !self.model.rows.is_empty() => self.again_or_cancel().await,
            4 | 5 => self.claim().await,
            _ if !self.claims.is_empty() => self.end().await,
            _ => {}
        }
        let seed = self.seed;
        assert_eq!(self.subject.len().await, self.model.rows.len(), "seed {seed}");
        let head = self.model.rows.iter().map(|row| row.visible).min();
        assert_eq!(self.subject.next_at().await, head, "seed {seed}");
    }

    async fn schedule(&mut self) {
        self.next_order += 1;
        let (order, due) = (self.next_order, self.now + self.dice.random_range(-10..50));
        self.subject.schedule(&[(order, due)]).await;
        self.model.rows.push(Row { order, due, visible: due, attempt: 0, leased: false });
    }

    async fn again_or_cancel(&mut self) {
        let row = self.model.rows[self.dice.random_range(0..self.model.rows.len())].clone();
        if self.dice.random() {
            self.subject.schedule(&[(row.order, row.due)]).await;
        } else {
            self.subject.cancel(&[(row.order, row.due)]).await;
            self.model.rows.retain(|other| other.order != row.order);
        }
    }

    async fn claim(&mut self) {
        let max = self.dice.random_range(1..=20);
        let got = self.subject.claim(self.now, max, LEASE).await;
        let seen: Vec<_> = got.iter().map(|claim| (claim.order.0, claim.due_at.0, claim.attempt)).collect();
        assert_eq!(seen, self.model.claim(self.now, max), "seed {}", self.seed);
        self.claims.retain(|old| got.iter().all(|claim| claim.order != old.order));
        self.claims.extend(got);
    }

    async fn end(&mut self) {
        let claim = self.claims.swap_remove(self.dice.random_range(0..self.claims.len()));
        if self.dice.random_range(0..3) == 0 {
            let (at, charge) = (self.now + self.dice.random_range(0..30), self.dice.random());
            self.subject.retry(&claim, at, charge).await;
            if let Some(row) = self.model.row(claim.order.0) {
                (row.visible, row.leased) = (at, false);
                row.attempt -= u32::from(!charge);
            }
        } else {
            self.subject.ack(&claim).await;
            self.model.rows.retain(|row| row.order != claim.order.0);
        }
    }
}
