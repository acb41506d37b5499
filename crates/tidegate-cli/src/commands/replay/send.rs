//! Sending: invoice after invoice in order of time, payments beside them.
//!
//! Orders go one after the other, so what is refused depends on the files alone and each order is priced as its rows
//! say. Payments of accepted orders run beside, bounded by the pool.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use serde_json::json;
use tokio::task::JoinSet;

use super::cancellations::Orders;
use super::catalogue::Catalogue;
use super::invoice::Invoice;
use super::reason::Reason;
use super::unusable::Unusable;
use crate::client::segment;
use crate::failure::{Failure, Result};
use crate::load::conn::Answer;
use crate::load::pool::Pool;
use crate::load::random::Random;
use crate::load::record::Record;
use crate::load::shapes::{Order, Paid, Problem};
use crate::load::verify::{Accepted, digest};

/// Payments under way at most.
const PAYMENTS: usize = 64;
/// Share of orders that are sent twice, as impatient buyers do.
const DOUBLE: f64 = 0.02;

/// How orders are sent and what buyers do.
#[derive(Debug, Clone, Copy)]
pub struct Habits {
    /// Share of accepted orders that are paid.
    pub pay_ratio: f64,
    /// Hold of each order, seconds.
    pub hold_seconds: i64,
    /// Decides who pays.
    pub seed: u64,
}

/// What was sent and what came back.
#[derive(Default)]
pub struct Sent {
    /// Orders accepted, now or by an earlier run.
    pub accepted: Vec<Accepted>,
    /// Orders answered `201`.
    pub placed: u64,
    /// Orders an earlier run had placed.
    pub replayed: u64,
    /// Ids answered `201` twice.
    pub duplicates: u64,
    /// Refusals by code.
    pub refused: BTreeMap<String, u64>,
    /// Payments by outcome.
    pub paid: BTreeMap<String, u64>,
    /// Rows of orders and cancellations that were sent.
    pub rows: u64,
    /// Latest instant at which one of them is due.
    pub last_deadline: Option<Instant>,
}

/// Sends invoices.
pub struct Sender<'a> {
    pool: Pool,
    habits: Habits,
    orders: Orders,
    unusable: &'a mut Unusable,
    payments: JoinSet<Result<String>>,
    /// What came of it.
    pub sent: Sent,
    /// How long orders took.
    pub place: Record,
}

impl<'a> Sender<'a> {
    /// A sender over `pool`.
    pub fn new(pool: Pool, habits: Habits, orders: Orders, unusable: &'a mut Unusable) -> Self {
        Self { pool, habits, orders, unusable, payments: JoinSet::new(), sent: Sent::default(), place: Record::new() }
    }

    /// Sends one invoice.
    ///
    /// # Errors
    /// [`Failure::Unreachable`]; [`Failure::Work`] for an answer the contract does not know.
    pub async fn send(&mut self, invoice: &Invoice, catalogue: &mut Catalogue) -> Result {
        if invoice.is_cancellation() {
            return self.cancel(invoice).await;
        }
        catalogue.price(invoice).await?;
        self.sent.rows += invoice.rows();
        let mut random = Random::named(self.habits.seed, &invoice.number);
        let accepted = self.place(invoice, random.chance(DOUBLE)).await?;
        self.orders.placed(invoice, accepted.is_some());
        if let Some(order) = accepted
            && order.status == "pending"
            && random.chance(self.habits.pay_ratio)
        {
            while self.payments.len() >= PAYMENTS {
                self.one_payment().await?;
            }
            self.payments.spawn(pay(self.pool.clone(), order.id));
        }
        Ok(())
    }

    /// Places the order; gives it back if the server has it.
    async fn place(&mut self, invoice: &Invoice, twice: bool) -> Result<Option<Order>> {
        let lines: Vec<_> =
            invoice.lines.iter().map(|line| json!({"sku": line.sku.as_str(), "quantity": line.quantity})).collect();
        let body = json!({"order_id": invoice.number, "buyer_id": invoice.buyer(), "lines": lines, "hold_seconds": self.habits.hold_seconds});
        let body = Bytes::from(body.to_string());
        let began = Instant::now();
        let answer = self.pool.send(Method::POST, "/v1/orders", Some(body.clone())).await?;
        self.place.add(answer.status, began.elapsed());
        let order: Order = match answer.status {
            200 | 201 => answer.json().map_err(|e| Failure::Work(e.to_string()))?,
            409 | 422 => {
                let code = problem(&answer).code;
                *self.sent.refused.entry(code).or_default() += 1;
                return Ok(None);
            }
            _ => return Err(unknown("POST /v1/orders", &answer)),
        };
        if answer.status == 201 {
            self.sent.placed += 1
        } else {
            self.sent.replayed += 1
        }
        if twice {
            let again = self.pool.send(Method::POST, "/v1/orders", Some(body)).await?;
            self.sent.duplicates += u64::from(again.status == 201);
        }
        if order.status == "pending" {
            // The hold as the server told it, from before the call: never earlier than the server's own deadline by
            // more than the call took, which the wait at the end allows for.
            let hold = u64::try_from(order.release_at - order.placed_at).unwrap_or(0);
            let due = Instant::now() + Duration::from_millis(hold);
            self.sent.last_deadline = self.sent.last_deadline.max(Some(due));
        }
        let lines = digest(invoice.lines.iter().map(|line| (line.sku.as_str(), line.quantity)));
        let fresh = answer.status == 201;
        self.sent.accepted.push(Accepted { id: invoice.number.clone(), total: Some(invoice.total()), lines, fresh });
        Ok(Some(order))
    }

    async fn cancel(&mut self, invoice: &Invoice) -> Result {
        let matched = self.orders.cancel(invoice);
        for (place, reason) in matched.unusable {
            self.unusable.add(place, reason)?;
        }
        if !matched.cancel.is_empty() {
            // A payment under way and a cancel of the same order would race; the file says which came first.
            self.payments_done().await?;
        }
        for (number, rows) in matched.cancel {
            let body = Bytes::from(json!({"reason": format!("cancellation {}", invoice.number)}).to_string());
            let answer =
                self.pool.send(Method::POST, &format!("/v1/orders/{}/cancel", segment(&number)), Some(body)).await?;
            match answer.status {
                200 => self.sent.rows += rows.len() as u64,
                409 => rows
                    .into_iter()
                    .try_for_each(|place| self.unusable.add(place, Reason::CancellationOfRefusedOrder))?,
                _ => return Err(unknown("POST /v1/orders/{id}/cancel", &answer)),
            }
        }
        Ok(())
    }

    async fn one_payment(&mut self) -> Result {
        if let Some(done) = self.payments.join_next().await {
            let outcome = done.map_err(|e| Failure::Work(format!("a payment was lost: {e}")))??;
            *self.sent.paid.entry(outcome).or_default() += 1;
        }
        Ok(())
    }

    /// Waits for the payments under way.
    ///
    /// # Errors
    /// As [`Sender::send`].
    pub async fn payments_done(&mut self) -> Result {
        while !self.payments.is_empty() {
            self.one_payment().await?;
        }
        Ok(())
    }
}

/// Pays the whole order, once however often the replay is repeated; gives the outcome.
async fn pay(pool: Pool, number: String) -> Result<String> {
    let body = Bytes::from(json!({"payment_id": format!("replay-{number}")}).to_string());
    let answer = pool.send(Method::POST, &format!("/v1/orders/{}/payments", segment(&number)), Some(body)).await?;
    match answer.status {
        200 => Ok(answer.json::<Paid>().map_err(|e| Failure::Work(e.to_string()))?.outcome),
        _ => Err(unknown("POST /v1/orders/{id}/payments", &answer)),
    }
}

fn problem(answer: &Answer) -> Problem {
    answer.json().unwrap_or_else(|_| Problem { code: format!("status-{}", answer.status), detail: String::new() })
}

fn unknown(what: &str, answer: &Answer) -> Failure {
    let Problem { code, detail } = problem(answer);
    match answer.status {
        401 | 403 => Failure::Usage(format!(
            "{what}: {code}: {detail}; give a token with the role ops with --token or TIDEGATE_TOKEN"
        )),
        status => Failure::Work(format!("{what} answered {status} {code}: {detail}")),
    }
}
