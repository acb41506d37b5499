//! Random command sequences keep the invariants, and a model of the simplest kind agrees with every answer.

mod model;

use std::collections::BTreeSet;

use model::Model;
use proptest::prelude::*;
use tidegate_conformance::Oracle;
use tidegate_conformance::workload::{Entropy, Listed, Workload};
use tidegate_core::{Command, Millis, Settings};

struct List<'a>(Listed<'a>);

impl Entropy for List<'_> {
    fn below(&mut self, n: u64) -> u64 {
        self.0.0.next().map_or(0, |x| u64::from(*x) % n)
    }
}

const START: Millis = Millis(1_800_000_000_000);

/// Runs the commands that `entropy` spells in batches, checking answers and invariants after each batch.
fn run(entropy: &[u32], settings: Settings) -> Result<BTreeSet<String>, TestCaseError> {
    let mut e = List(Listed(entropy.iter()));
    let workload = Workload::small(settings);
    let mut oracle = Oracle::new(settings);
    let mut model = Model::new(settings);
    let mut now = START;
    let mut seen = BTreeSet::new();
    while !e.0.is_empty() {
        now = now.plus(i64::try_from(e.below(200_000)).expect("small"));
        let batch: Vec<Command> = (0..1 + e.below(12)).map(|_| workload.command(&mut e)).collect();
        let verdicts = oracle.commit(&batch, now);
        prop_assert_eq!(verdicts.len(), batch.len());
        for (command, verdict) in batch.iter().zip(&verdicts) {
            if let Err(why) = model.agrees(command, verdict, now) {
                return Err(TestCaseError::fail(format!("at {now:?}: {command:?}\n answered {verdict:?}\n but {why}")));
            }
            seen.insert(model::said(verdict).map_or_else(|code| code.name().to_owned(), str::to_owned));
        }
        for sku in oracle.skus() {
            prop_assert_eq!(Some(sku.counts), model.counts(&sku.id), "counts of {}", sku.id);
        }
        let report = oracle.audit(now, i64::MAX / 2);
        prop_assert!(report.is_sound(), "after {batch:?}: {:?}", report.findings);
    }
    Ok(seen)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_sequences_keep_the_invariants(entropy in proptest::collection::vec(any::<u32>(), 0..3_000)) {
        run(&entropy, Settings::default())?;
    }

    #[test]
    fn also_with_grace_and_without_revival(entropy in proptest::collection::vec(any::<u32>(), 0..2_000)) {
        let settings = Settings { grace_seconds: 60, hold_seconds: 90, late_payment: tidegate_core::LatePayment::Refund, ..Settings::default() };
        run(&entropy, settings)?;
    }
}

/// More rounds with `./scripts/test --long`.
fn cases() -> u32 {
    if std::env::var_os("TIDEGATE_TEST_LONG").is_some() { 5_000 } else { 250 }
}

#[test]
fn the_workload_reaches_every_answer() {
    use rand::{RngCore, SeedableRng};
    let mut seen = BTreeSet::new();
    for seed in 0..300 {
        let mut rng = rand::rngs::StdRng::seed_from_u64(seed);
        let entropy: Vec<u32> = (0..1_500).map(|_| rng.next_u32()).collect();
        seen.extend(run(&entropy, Settings::default()).expect("every answer agrees and every invariant holds"));
    }
    let wanted = [
        "placed",
        "replayed",
        "applied",
        "partial",
        "duplicate",
        "revived",
        "surplus",
        "refund due",
        "unmatched",
        "cancelled",
        "tombstoned",
        "expired",
        "not due",
        "settled",
        "extended",
        "fulfilled",
        "created",
        "put",
        "adjusted",
        "adjustment replayed",
        "archived",
        "idempotency-mismatch",
        "already-cancelled",
        "unknown-order",
        "unknown-sku",
        "archived",
        "limit-reached",
        "insufficient-stock",
        "illegal-transition",
        "hold-cap-exceeded",
        "currency-mismatch",
        "payment-id-reused",
        "not-refundable",
        "already-settled",
        "stock-exists",
        "below-committed",
        "invalid",
        "unknown-payment",
        "unknown-refund",
    ];
    let unreached: Vec<_> = wanted.iter().filter(|name| !seen.contains(**name)).collect();
    assert!(unreached.is_empty(), "never seen: {unreached:?}");
}
