//! Due orders: sleep until the next deadline, claim a batch under a lease, let the ledger decide again from the rows
//! (this second look protects a paid order), acknowledge. While the index cannot be used the sweep does the work.

use std::sync::Arc;
use std::time::Duration;

use tidegate_backend::ledger::MAX_BATCH_COMMANDS;
use tidegate_backend::{Claim, IndexState, Retry};
use tidegate_core::command::Park;
use tidegate_core::{Command, Millis, Order, Outcome};
use tokio::task::JoinSet;

use crate::tidegate::Inner;
use crate::{Error, Result};

/// Batches that may be with the ledger at once: the next is claimed while one is being decided.
const BATCHES: usize = 2;
/// Failed tries of one order before it is parked.
pub(super) const MAX_TRIES: u32 = 20;
/// The longest sleep: every wake-up is an optimisation, this tick is the guarantee.
const TICK: Duration = Duration::from_millis(500);
/// The same where looking is a round trip to a store that nodes share.
const TICK_SHARED: Duration = Duration::from_secs(1);

/// Acts on deadlines until stopped.
pub(crate) async fn run(inner: Arc<Inner>) {
    let mut batches: JoinSet<()> = JoinSet::new();
    // Nothing is claimed until a look has found something due.
    let mut is_due = true;
    loop {
        while batches.len() >= BATCHES {
            let _ = batches.join_next().await;
        }
        let unavailable = matches!(inner.deadlines.state(), IndexState::Unavailable(_));
        if unavailable || inner.health.ledger_failure().is_some() {
            // While the ledger cannot write nothing is claimed.
            tokio::time::sleep(TICK).await;
            continue;
        }
        let claimed = if is_due { claim(&inner).await } else { Ok(Vec::new()) };
        let looked = match &claimed {
            Ok(claims) if claims.is_empty() => wait(&inner).await.map(|due| is_due = due),
            _ => Ok(()),
        };
        let claimed = looked.and(claimed);
        inner.health.claimed(claimed.as_ref().err().map(ToString::to_string));
        match claimed {
            Ok(claims) if claims.is_empty() => {}
            Ok(claims) => {
                let inner = Arc::clone(&inner);
                batches.spawn(async move {
                    if let Err(e) = act(&inner, claims).await
                        && let Some(times) = inner.health.unended_claims.due()
                    {
                        tracing::warn!(error = %e, times, "due orders wait for their lease to end");
                    }
                });
            }
            Err(e) => {
                if let Some(times) = inner.health.failed_claims.due() {
                    tracing::warn!(error = %e, times, "due orders could not be claimed; they are found in the ledger");
                }
                tokio::time::sleep(TICK).await;
            }
        }
    }
}

async fn claim(inner: &Inner) -> Result<Vec<Claim>> {
    let now = inner.ledger.clock().now();
    inner.deadlines.claim(now, MAX_BATCH_COMMANDS, inner.options.lease_ms).await.map_err(Error::index)
}

/// Looks when something is due and sleeps until then; gives true when it is. An earlier deadline or the tick end the sleep
/// before.
async fn wait(inner: &Inner) -> Result<bool> {
    let next = inner.deadlines.next_at().await.map_err(Error::index)?;
    let clock = inner.ledger.clock();
    let due = async {
        match next {
            Some(at) => clock.sleep_until(at).await,
            None => std::future::pending().await,
        }
    };
    let tick = if inner.deadlines.is_shared() { TICK_SHARED } else { TICK };
    tokio::select! {
        biased;
        () = due => Ok(true),
        // What was scheduled since that look began is not missed.
        () = inner.deadlines.earlier() => Ok(false),
        () = tokio::time::sleep(tick) => Ok(false),
    }
}

async fn act(inner: &Inner, claims: Vec<Claim>) -> Result<()> {
    let commands = claims.iter().map(|claim| Command::Expire(claim.order)).collect();
    let answers = match inner.queue.submit(commands).await {
        Ok(answers) => answers,
        Err(e) => {
            // Not the orders' fault: handed back, no try charged.
            let soon = inner.ledger.clock().now().plus(100);
            let retries: Vec<Retry> = claims.iter().map(|claim| again(claim, soon, false)).collect();
            inner.deadlines.retry(&retries).await.map_err(Error::index)?;
            return Err(e);
        }
    };
    let now = inner.ledger.clock().now();
    let mut done = Vec::with_capacity(claims.len());
    let mut retries = Vec::new();
    for (claim, answer) in claims.iter().zip(answers) {
        match answer {
            Ok(Outcome::Expired(order)) => {
                expired(&order);
                done.push((claim.order, claim.receipt));
            }
            Ok(Outcome::NotDue(at)) => retries.push(again(claim, at, false)),
            Ok(_) => done.push((claim.order, claim.receipt)),
            Err(Error::Broken(why)) => failed(inner, claim, now, why).await?,
            Err(_) => retries.push(again(claim, now.plus(100), false)),
        }
    }
    if !retries.is_empty() {
        inner.deadlines.retry(&retries).await.map_err(Error::index)?;
    }
    inner.deadlines.ack(&done).await.map_err(Error::index)
}

/// Measures how late the deadline acted on `order`.
pub(super) fn expired(order: &Order) {
    let late = order.state.cancelled_at.map_or(0, |at| at.since(order.state.release_at).max(0));
    metrics::histogram!("tidegate_deadline_lateness_seconds").record(late as f64 / 1_000.0);
}

/// `claim`, claimable again at `at`.
fn again(claim: &Claim, at: Millis, charge: bool) -> Retry {
    Retry { order: claim.order, receipt: claim.receipt, at, charge }
}

/// An order's own failure: tried again with growing delay, parked after [`MAX_TRIES`]. It never holds up the others.
async fn failed(inner: &Inner, claim: &Claim, now: Millis, why: String) -> Result<()> {
    metrics::counter!("tidegate_deadline_failures_total").increment(1);
    tracing::error!(
        order_no = claim.order.0,
        attempt = claim.attempt,
        why,
        "an order's deadline could not be acted on"
    );
    if claim.attempt < MAX_TRIES {
        let later = again(claim, now.plus(delay_ms(claim.attempt)), true);
        return inner.deadlines.retry(&[later]).await.map_err(Error::index);
    }
    let park = Park { order: claim.order, tries: i64::from(claim.attempt), reason: why };
    match inner.submit_one(Command::Park(park)).await {
        Ok(_) => {
            metrics::counter!("tidegate_orders_parked_total").increment(1);
            inner.deadlines.ack(&[(claim.order, claim.receipt)]).await.map_err(Error::index)
        }
        Err(e) => {
            let later = again(claim, now.plus(delay_ms(MAX_TRIES)), true);
            inner.deadlines.retry(&[later]).await.map_err(Error::index)?;
            Err(e)
        }
    }
}

/// 50 ms, doubling to a minute.
pub(super) fn delay_ms(attempt: u32) -> i64 {
    (50_i64 << attempt.min(11).saturating_sub(1)).min(60_000)
}
