//! The buyers: each visit places one order over HTTP and then does what its plan says.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Uri};
use serde_json::json;
use tidegate::core::Millis;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::plan::{Sale, Then, Visit};
use super::tally::{SoldOut, Tally};
use crate::load::conn::Answer;
use crate::load::pool::Pool;
use crate::load::shapes::{Order, Paid, Problem};
use crate::load::target::Target;
use crate::load::verify::Accepted;
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
    placing: Semaphore,
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
fn host_now() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

impl Crowd {
    /// A crowd in front of `target`.
    pub fn new(sale: Sale, target: &Target, progress: Progress) -> Self {
        Self {
            sale,
            place: Pool::new(target.clone(), PLACING),
            others: Pool::new(target.clone(), OTHERS),
            placing: Semaphore::new(PLACING),
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
        if let Ok(slot) = self.placing.acquire().await {
            slot.forget();
        }
        let crowd = Arc::clone(self);
        visits.spawn(async move {
            let visit = crowd.sale.visit(number);
            let order = crowd.order(&visit).await;
            crowd.placing.add_permits(1);
            crowd.progress.add(1);
            if let Some(order) = order {
                crowd.go_on(&visit, order).await;
            }
        });
        while visits.try_join_next().is_some() {}
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
        let lines = vec![(sku(visit.sku), visit.quantity)];
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

    /// What happens with an accepted order.
    async fn go_on(&self, visit: &Visit, order: Order) {
        let since_deadline = |offset: i64| wait_until(order.pay_by + offset);
        match visit.then {
            Then::Abandon => {}
            Then::Pay { after, again } => {
                tokio::time::sleep(Duration::from_millis(after)).await;
                self.pay(visit, &order).await;
                if again {
                    self.pay(visit, &order).await;
                }
            }
            Then::Race { offset } => {
                since_deadline(offset).await;
                self.pay(visit, &order).await;
            }
            Then::PayLate { after } => {
                since_deadline(i64::try_from(after).unwrap_or(i64::MAX)).await;
                self.pay(visit, &order).await;
            }
            Then::Cancel { after } => {
                tokio::time::sleep(Duration::from_millis(after)).await;
                self.cancel(&order).await;
            }
        }
    }

    /// Reports the money of the whole order; every other provider names the amount.
    async fn pay(&self, visit: &Visit, order: &Order) {
        let mut body = json!({"payment_id": format!("pay-{}", order.id)});
        if let (0, Some(total)) = (visit.number % 2, &order.total) {
            body["amount"] = total.amount.into();
            body["currency"] = super::CURRENCY.into();
        }
        let path = format!("/v1/orders/{}/payments", order.id);
        let Some(answer) = self.ask(&path, body).await else { return };
        if answer.status != 200 {
            return self.tally.strange(format!(
                "{path} answered {}: {}",
                answer.status,
                String::from_utf8_lossy(&answer.body)
            ));
        }
        if let Some(paid) = self.read::<Paid>(&answer) {
            *self.tally.told().payments.entry(paid.outcome).or_default() += 1;
        }
    }

    async fn cancel(&self, order: &Order) {
        let path = format!("/v1/orders/{}/cancel", order.id);
        let Some(answer) = self.ask(&path, json!({"reason": "changed my mind"})).await else { return };
        if answer.status != 200 {
            return self.tally.strange(format!(
                "{path} answered {}: {}",
                answer.status,
                String::from_utf8_lossy(&answer.body)
            ));
        }
        if let Some(order) = self.read::<Order>(&answer) {
            self.tally.told().cancelled += u64::from(order.cancel_reason.as_deref() == Some("requested"));
        }
    }

    async fn ask(&self, path: &str, body: serde_json::Value) -> Option<Answer> {
        match self.others.send(Method::POST, path, Some(Bytes::from(body.to_string()))).await {
            Ok(answer) => Some(answer),
            Err(e) => {
                self.tally.strange(format!("{path}: {e}"));
                None
            }
        }
    }

    fn read<T: serde::de::DeserializeOwned>(&self, answer: &Answer) -> Option<T> {
        answer.json().map_err(|e| self.tally.strange(e.to_string())).ok()
    }
}

/// Waits until the host's clock shows `at`; the server of a demo runs beside it, on the same clock.
fn wait_until(at: i64) -> impl Future<Output = ()> {
    let left = Millis(at).since(Millis(host_now()));
    tokio::time::sleep(Duration::from_millis(u64::try_from(left).unwrap_or(0)))
}
