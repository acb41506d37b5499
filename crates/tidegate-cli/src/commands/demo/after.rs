//! What buyers do with an order that was accepted: pay, in time or not, cancel, or never come back.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde_json::json;

use super::crowd::{Crowd, host_now};
use super::plan::{Then, Visit};
use crate::load::conn::Answer;
use crate::load::shapes::{Order, Paid};

impl Crowd {
    /// What happens with an accepted order.
    pub async fn go_on(&self, visit: &Visit, order: Order) {
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
            return self.strange(&path, &answer);
        }
        if let Some(paid) = self.read::<Paid>(&answer) {
            *self.tally.told().payments.entry(paid.outcome).or_default() += 1;
        }
    }

    async fn cancel(&self, order: &Order) {
        let path = format!("/v1/orders/{}/cancel", order.id);
        let Some(answer) = self.ask(&path, json!({"reason": "changed my mind"})).await else { return };
        if answer.status != 200 {
            return self.strange(&path, &answer);
        }
        if let Some(order) = self.read::<Order>(&answer) {
            self.tally.told().cancelled += u64::from(order.cancel_reason.as_deref() == Some("requested"));
        }
    }

    async fn ask(&self, path: &str, body: serde_json::Value) -> Option<Answer> {
        match self.others().send(Method::POST, path, Some(Bytes::from(body.to_string()))).await {
            Ok(answer) => Some(answer),
            Err(e) => {
                self.tally.strange(format!("{path}: {e}"));
                None
            }
        }
    }

    fn strange(&self, path: &str, answer: &Answer) {
        let body = String::from_utf8_lossy(&answer.body);
        self.tally.strange(format!("{path} answered {}: {body}", answer.status));
    }
}

/// Waits until the host's clock shows `at`; the server of a demo runs beside it, on the same clock.
fn wait_until(at: i64) -> impl Future<Output = ()> {
    let left = at.saturating_sub(host_now());
    tokio::time::sleep(Duration::from_millis(u64::try_from(left).unwrap_or(0)))
}
