//! Probes: before the gate refuses, the ledger's readers are asked whether the order exists already and whether its
//! copies still hold. Up to 500 questions share one plain read, so a refusal costs no write and no lock.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_backend::ledger::MAX_PROBES;
use tidegate_backend::{Probe, Probed};
use tidegate_core::command::Place;
use tidegate_core::gate::{Opinion, check};
use tidegate_core::{Refusal, SkuId};
use tokio::sync::{Notify, oneshot};

use crate::tidegate::Inner;
use crate::{Error, Result};

struct Question {
    probe: Probe,
    reply: oneshot::Sender<Result<Probed>>,
}

#[derive(Default)]
struct Waiting {
    questions: VecDeque<Question>,
    stopping: bool,
}

/// The bounded queue in front of the ledger's readers.
pub(crate) struct Probes {
    capacity: usize,
    waiting: Mutex<Waiting>,
    arrived: Notify,
}

impl Probes {
    /// A queue of at most `capacity` questions.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, waiting: Mutex::default(), arrived: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses new questions; those that wait are still answered.
    pub(crate) fn stop(&self) {
        self.lock().stopping = true;
        self.arrived.notify_one();
    }

    fn ask(&self, probe: Probe) -> Result<oneshot::Receiver<Result<Probed>>> {
        let (reply, answer) = oneshot::channel();
        {
            let mut waiting = self.lock();
            if waiting.stopping {
                return Err(Error::Stopping);
            }
            if waiting.questions.len() >= self.capacity {
                metrics::counter!("tidegate_overloaded_total").increment(1);
                return Err(Error::Overloaded);
            }
            waiting.questions.push_back(Question { probe, reply });
        }
        self.arrived.notify_one();
        Ok(answer)
    }

    async fn next(&self) -> Option<Vec<Question>> {
        loop {
            {
                let mut waiting = self.lock();
                let count = waiting.questions.len().min(MAX_PROBES);
                if count > 0 {
                    return Some(waiting.questions.drain(..count).collect());
                }
                if waiting.stopping {
                    return None;
                }
            }
            self.arrived.notified().await;
        }
    }
}

/// Answers questions, up to 500 from one read, until stopped and empty.
pub(crate) async fn run(inner: Arc<Inner>) {
    while let Some(questions) = inner.probes.next().await {
        let (probes, replies): (Vec<_>, Vec<_>) = questions.into_iter().map(|q| (q.probe, q.reply)).unzip();
        match inner.ledger.probe(probes).await {
            Ok(answers) => {
                for (reply, answer) in replies.into_iter().zip(answers) {
                    let _ = reply.send(Ok(answer));
                }
            }
            Err(e) => {
                inner.health.read_failed(&e);
                let e = Error::from(e);
                for reply in replies {
                    let _ = reply.send(Err(e.clone()));
                }
            }
        }
    }
}

/// What stands between an order and the ledger: nothing, or a question to the readers.
enum Judged {
    ToLedger,
    Asked(oneshot::Receiver<Result<Probed>>),
}

fn judge(inner: &Inner, place: &Place) -> Result<Judged> {
    let chosen = place.chosen.then(|| place.order_id.clone());
    if inner.gate.check(place, inner.ledger.clock().now()) == Opinion::Pass
        || inner.queue.is_in_flight(chosen.as_ref().map(|id| id.as_str()), place.key.as_ref().map(|key| key.as_str()))
    {
        return Ok(Judged::ToLedger);
    }
    let skus: Vec<SkuId> = place.lines.iter().map(|(sku, _)| sku.clone()).collect();
    inner.probes.ask(Probe { order_id: chosen, key: place.key.clone(), skus }).map(Judged::Asked)
}

/// The refusal the readers confirm, if they do. A repeat of an accepted order goes to the ledger, which has its answer;
/// so does an order whose stock turns out to be there.
async fn confirm(inner: &Inner, place: &Place, asked: Judged) -> Result<Option<Refusal>> {
    let Judged::Asked(answer) = asked else { return Ok(None) };
    let probed = answer.await.map_err(|_| Error::Stopping)??;
    if probed.known {
        return Ok(None);
    }
    let mut copies = Vec::with_capacity(probed.copies.len());
    for ((sku, _), copy) in place.lines.iter().zip(probed.copies) {
        match copy {
            Some(copy) => copies.push((sku.clone(), copy)),
            None => return Ok(Some(Refusal::unknown_sku(sku))),
        }
    }
    inner.gate.replace(&copies, false);
    let now = inner.ledger.clock().now();
    let mut by_line = copies.iter().map(|(_, copy)| copy.clone());
    Ok(match check(place, now, |_| by_line.next()) {
        Opinion::Short { sku, asked, available } => {
            metrics::counter!("tidegate_gate_refusals_total").increment(1);
            Some(Refusal::insufficient_stock(&sku, available, asked))
        }
        _ => None,
    })
}

impl Inner {
    /// The gate's refusal of `place`, confirmed by the ledger's readers; `None` when the ledger must decide.
    pub(crate) async fn past_the_gate(&self, place: &Place) -> Result<Option<Refusal>> {
        let judged = judge(self, place)?;
        confirm(self, place, judged).await
    }
}

/// As [`Inner::past_the_gate`], for many: their questions share reads.
pub(crate) async fn judge_many(inner: &Inner, places: &[Place]) -> Vec<Result<Option<Refusal>>> {
    let judged: Vec<_> = places.iter().map(|place| judge(inner, place)).collect();
    let mut opinions = Vec::with_capacity(places.len());
    for (place, judged) in places.iter().zip(judged) {
        opinions.push(match judged {
            Ok(asked) => confirm(inner, place, asked).await,
            Err(e) => Err(e),
        });
    }
    opinions
}
