//! Slow chores: unmatched money that has waited a day is flagged once, parked orders are tried again hourly, tombstones
//! and request keys that have had their time are deleted, and after a failed commit (which may have gone through) gate
//! and deadline index are compared with the ledger. None of it is tried while commits fail. Several nodes do their chores at
//! different times; two that meet do no harm.

use std::sync::Arc;
use std::time::Duration;

use tidegate_backend::PageRequest;
use tidegate_backend::ledger::MAX_PAGE;
use tidegate_core::{Command, Millis};

use crate::Result;
use crate::tidegate::Inner;

/// How long money may stay unmatched before it is flagged, seconds.
const UNMATCHED_SECONDS: i64 = 86_400;
/// How long keys of adjustments, refunds and settling are kept, seconds.
const REQUEST_KEY_SECONDS: i64 = 7 * 86_400;
/// Ticks of half a second between two rounds of chores.
const CHORES_EVERY: u64 = 60;
/// Ticks between two tries of the parked orders.
const PARKED_EVERY: u64 = 7_200;

/// Does its chores until stopped.
pub(crate) async fn run(inner: Arc<Inner>) {
    let mut tick = tokio::time::interval(Duration::from_millis(500));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let phase = if inner.is_one_of_several() { super::jitter::number() % PARKED_EVERY } else { 0 };
    for round in phase.. {
        tick.tick().await;
        if inner.health.ledger_failure().is_some() {
            continue;
        }
        let chores = async {
            if !inner.is_one_of_several() && inner.health.take_unsure() {
                let repaired =
                    super::reconcile::repair(&inner, None).await.inspect_err(|_| inner.health.be_unsure())?.repaired;
                tracing::info!(repaired, "compared gate and deadline index with the ledger after a failed commit");
            }
            if round % CHORES_EVERY == 0 {
                flag_unmatched(&inner).await?;
                prune(&inner).await?;
                if !inner.takes_invalidations() {
                    give_up_invalidations(&inner).await?;
                }
            }
            if round % PARKED_EVERY == PARKED_EVERY - 1 {
                retry_parked(&inner).await?;
            }
            Result::Ok(())
        };
        if let Err(e) = chores.await {
            tracing::warn!(error = %e, "a chore failed; it is tried again in its next round");
        }
    }
}

async fn flag_unmatched(inner: &Inner) -> Result<()> {
    let before = inner.ledger.clock().now().plus_seconds(-UNMATCHED_SECONDS);
    let stale = inner.ledger.stale_unmatched(before, MAX_PAGE).await?;
    if !stale.is_empty() {
        metrics::counter!("tidegate_payments_unmatched_stale_total").increment(stale.len() as u64);
        for answer in inner.submit_many(stale.into_iter().map(Command::FlagUnmatched).collect()).await {
            answer?;
        }
    }
    Ok(())
}

async fn prune(inner: &Inner) -> Result<()> {
    let now = inner.ledger.clock().now();
    let seconds = |s: i64| -> Millis { now.plus_seconds(-s) };
    while inner.ledger.prune(seconds(inner.settings.tombstone_seconds), seconds(REQUEST_KEY_SECONDS)).await? {
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// How long invalidations wait for a node that has caches, milliseconds.
const NO_CACHES_MS: i64 = 600_000;

/// A node without a shared cache hands no invalidation on. Nodes that have one do within seconds; what none of them has
/// taken for ten minutes is for nobody, and must not pile up.
async fn give_up_invalidations(inner: &Inner) -> Result<()> {
    use tidegate_backend::outbox::{DELIVERED_KEPT, Deliver, MAX_OUTBOX_BATCH, OutboxEntry};
    struct Nobody(Millis);
    impl Deliver for Nobody {
        fn deliver<'a>(&'a self, entries: &'a [OutboxEntry]) -> tidegate_backend::BoxFuture<'a, Vec<i64>> {
            let old = entries.iter().filter(|entry| entry.committed_at < self.0).map(|entry| entry.id).collect();
            Box::pin(std::future::ready(old))
        }
    }
    let old = Nobody(tidegate_backend::clock::host_now().plus(-NO_CACHES_MS));
    while inner.ledger.outbox().relay(MAX_OUTBOX_BATCH, &old).await?.delivered == MAX_OUTBOX_BATCH {}
    while inner.ledger.outbox().prune(DELIVERED_KEPT).await? {}
    Ok(())
}

/// Takes every order from the parked list, so that its deadline is tried again. Returns how many.
pub(crate) async fn retry_parked(inner: &Inner) -> Result<u64> {
    let mut retried = 0;
    let mut page = PageRequest { cursor: None, limit: MAX_PAGE };
    loop {
        let parked = inner.ledger.parked(page.clone()).await?;
        retried += parked.items.len() as u64;
        let commands = parked.items.into_iter().map(|order| Command::Unpark(order.order_id)).collect();
        for answer in inner.submit_many(commands).await {
            answer?;
        }
        match parked.next {
            Some(next) => page.cursor = Some(next),
            None => return Ok(retried),
        }
    }
}
