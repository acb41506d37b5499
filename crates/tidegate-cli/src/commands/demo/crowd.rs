//! The buyers come: each visit places one order over HTTP. What they do then is in `after.rs`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Uri};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinSet};

use super::plan::{Sale, Visit};
use super::tally::{SoldOut, Tally};
use crate::load::conn::Answer;
use crate::load::pool::Pool;
use crate::load::shapes::{Order, Problem};
use crate::load::target::Target;
use crate::load::verify::{Accepted, digest};
use crate::progress::Progress;

/// Orders under way at a time, each over a connection of its own.
const PLACING: usize = 128;
/// Connections for everything else.
const OTHERS: usize = 32;

/// The crowd and what it was told.
pub struct Crowd {
    sale: Sale,
    place: Pool,
    others: Pool,
    placing: Arc<Semaphore>,
    path: Uri,
    /// What it was told.
    pub tally: Tally,
    progress: Progress,
}

/// The name of a SKU.
pub fn sku(number: u64) -> String {
    format!("demo-{:03}", number + 1)
}

/// The host's clock, milliseconds since 1970.
pub fn host_now() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

impl Crowd {
    /// A crowd in front of `target`.
    pub fn new(sale: Sale, target: &Target, progress: Progress) -> Self {
        Self {
            sale,
            place: Pool::new(target.clone(), PLACING),
            others: Pool::new(target.clone(), OTHERS),
            placing: Arc::new(Semaphore::new(PLACING)),
            path: Uri::from_static("/v1/orders"),
            tally: Tally::new(),
            progress,
        }
    }

    /// The connections that are not for placing.
    pub fn others(&self) -> &Pool {
        &self.others
    }

    /// Starts the visits of the rush into `visits`, as fast as the server answers. Returns once each is answered; what
    /// buyers do with their orders goes on.
    pub async fn rush(self: &Arc<Self>, visits: &mut JoinSet<()>) {
        for number in 0..self.sale.rush() {
            self.come(number, visits).await;
        }
        self.all_answered().await;
    }

    /// Starts the visits of those who come later, spread over `over`. Returns as [`Crowd::rush`].
    pub async fn second_wave(self: &Arc<Self>, over: Duration, visits: &mut JoinSet<()>) {
        let (first, end, began) = (self.sale.rush(), self.sale.orders, Instant::now());
        for number in first..end {
            let share = (number - first) as f64 / (end - first) as f64;
            tokio::time::sleep_until((began + over.mul_f64(share)).into()).await;
            self.come(number, visits).await;
        }
        self.all_answered().await;
    }

    async fn come(self: &Arc<Self>, number: u64, visits: &mut JoinSet<()>) {
        // The crowd owns the semaphore and never closes it.
        let Ok(slot) = Arc::clone(&self.placing).acquire_owned().await else { return };
        let crowd = Arc::clone(self);
        visits.spawn(async move {
            let visit = crowd.sale.visit(number);
            let order = crowd.order(&visit).await;
            drop(slot);
            crowd.progress.add(1);
            if let Some(order) = order {
                crowd.go_on(&visit, order).await;
            }
        });
        while let Some(gone) = visits.try_join_next() {
            self.left(gone);
        }
    }

    /// Waits until everybody has left.
    pub async fn all_left(&self, visits: &mut JoinSet<()>) {
        while let Some(gone) = visits.join_next().await {
            self.left(gone);
        }
    }

    fn left(&self, gone: Result<(), JoinError>) {
        if let Err(e) = gone {
            self.tally.strange(format!("a buyer was lost: {e}"));
        }
    }

    async fn all_answered(&self) {
        if let Ok(all) = self.placing.acquire_many(PLACING as u32).await {
            drop(all);
        }
    }

    /// Places the order, twice at the same moment if the buyer is so; gives it back if it was accepted.
    async fn order(&self, visit: &Visit) -> Option<Order> {
        let id = format!("demo-{}-{}", self.sale.seed, visit.number);
        let body = json!({"order_id": id, "buyer_id": format!("buyer-{}", visit.buyer), "lines": [{"sku": sku(visit.sku), "quantity": visit.quantity}]});
        let body = Bytes::from(body.to_string());
        let answers = if visit.twice {
            let (a, b) = tokio::join!(
                self.place_once(visit, body.clone(), &self.place),
                self.place_once(visit, body, &self.others)
            );
            vec![a, b]
        } else {
            vec![self.place_once(visit, body, &self.place).await]
        };
        let accepted = answers.iter().flatten().filter(|answer| answer.status == 201).count();
        let order = answers
            .iter()
            .flatten()
            .find(|answer| matches!(answer.status, 200 | 201))
            .and_then(|a| self.read::<Order>(a));
        let mut told = self.tally.told();
        told.duplicates += u64::from(accepted > 1);
        let Some(order) = order else {
            if let Some(answer) = answers.iter().flatten().next() {
                let code = answer.json::<Problem>().map_or_else(|_| answer.status.to_string(), |p| p.code);
                *told.refused.entry(code).or_default() += 1;
            }
            return None;
        };
        let hold = u64::try_from(order.release_at - order.placed_at).unwrap_or(0);
        told.last_deadline = told.last_deadline.max(Some(Instant::now() + Duration::from_millis(hold)));
        let lines = digest(std::iter::once((sku(visit.sku).as_str(), visit.quantity)));
        let total = order.total.as_ref().map(|total| i128::from(total.amount));
        told.accepted.push(Accepted { id: order.id.clone(), total, lines, fresh: true });
        Some(order)
    }

    async fn place_once(&self, visit: &Visit, body: Bytes, pool: &Pool) -> Option<Answer> {
        let (sent, began) = (host_now(), Instant::now());
        let answered = pool.call(Method::POST, &self.path, Some(body)).await;
        let took = began.elapsed();
        let answer = match answered {
            Ok(answer) => answer,
            Err(e) => {
                self.tally.strange(format!("placing order {}: {e}", visit.number));
                return None;
            }
        };
        self.tally.place().add(answer.status, took);
        match answer.status {
            200 | 201 => {}
            409 => {
                if answer.json::<Problem>().is_ok_and(|p| p.code == "insufficient-stock") {
                    let sold_out =
                        SoldOut { sku: sku(visit.sku), quantity: visit.quantity, sent, answered: host_now() };
                    self.tally.told().sold_out.push(sold_out);
                }
            }
            status => self.tally.strange(format!(
                "placing order {} answered {status}: {}",
                visit.number,
                String::from_utf8_lossy(&answer.body)
            )),
        }
        Some(answer)
    }

    /// The body of an answer; one that is not of the documented shape is noted.
    pub fn read<T: serde::de::DeserializeOwned>(&self, answer: &Answer) -> Option<T> {
        answer.json().map_err(|e| self.tally.strange(e.to_string())).ok()
    }
}
