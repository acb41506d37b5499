//! Money is a fact: a report is stored, then applied, in one commit.

use super::work::{Move, Work};
use crate::command::{Outcome, Pay, Rejection, Verdict};
use crate::{
    CancelReason, EventKind, LatePayment, Order, OrderId, Payment, PaymentId, PaymentOutcome, Refund, RefundReason,
    Refusal, RefusalCode, Status,
};

impl Work<'_> {
    pub(super) fn pay(&mut self, pay: &Pay) -> Verdict {
        if let Some(Some(owner)) = self.rows.payments.get(&pay.payment_id).cloned() {
            return self.seen_before(pay, &owner);
        }
        if let Some(order) = self.order(&pay.order_id) {
            if let (Some(sent), Some(total)) = (pay.currency, order.total)
                && sent != total.currency
            {
                let detail = format!("the order is in {}; report the payment in that currency", total.currency);
                return Err(Refusal::new(RefusalCode::CurrencyMismatch, detail).order(&order.id).into());
            }
            self.can_settle(&pay.order_id)?;
            self.store(pay);
            let (outcome, refund) = self.apply_money(&pay.order_id, &pay.payment_id);
            self.seal();
            let order = self.order(&pay.order_id).cloned();
            return Ok(Outcome::Paid { outcome, order, refund });
        }
        self.store(pay);
        if self.slot(&pay.order_id).is_some_and(|slot| slot.tombstone.is_some()) {
            let refund = self.owe_unmatched(&pay.payment_id, &pay.order_id, RefundReason::OrderCancelled);
            self.seal();
            return Ok(Outcome::Paid { outcome: PaymentOutcome::RefundDue, order: None, refund: Some(refund) });
        }
        Ok(Outcome::Paid { outcome: PaymentOutcome::Unmatched, order: None, refund: None })
    }

    /// A payment of a pending order moves its stock: the rows must allow that before anything is stored.
    fn can_settle(&self, id: &OrderId) -> Result<(), Rejection> {
        match self.order(id).map(|order| order.state.status) {
            Some(Status::Pending) => self.can_move(id, Move::SELL_HELD),
            _ => Ok(()),
        }
    }

    fn seen_before(&self, pay: &Pay, owner: &OrderId) -> Verdict {
        let order = self.order(owner);
        let stored = self.payment(owner, &pay.payment_id);
        let same = *owner == pay.order_id
            && stored.is_some_and(|stored| {
                let sent = pay.amount.or(order.and_then(|order| order.total).map(|total| total.amount));
                let currency = pay.currency.is_none() || stored.currency.is_none() || pay.currency == stored.currency;
                sent == stored.amount && currency
            });
        let Some(stored) = stored.filter(|_| same) else {
            let detail = "this payment_id was reported before for another order, amount or currency; give each payment its own id";
            return Err(Refusal::new(RefusalCode::PaymentIdReused, detail).order(owner).into());
        };
        let refund = stored.refunds.iter().find(|refund| came_with_the_report(stored, refund)).cloned();
        Ok(Outcome::Paid { outcome: PaymentOutcome::Duplicate, order: order.cloned(), refund })
    }

    fn store(&mut self, pay: &Pay) {
        let payment = Payment {
            id: pay.payment_id.clone(),
            order_id: pay.order_id.clone(),
            amount: pay.amount,
            currency: pay.currency,
            captured_at: pay.captured_at,
            received_at: self.now,
            outcome: PaymentOutcome::Unmatched,
            flagged_at: None,
            refunds: Vec::new(),
        };
        let slot = self.rows.ids.entry(pay.order_id.clone()).or_default();
        match &mut slot.order {
            Some(order) => order.payments.push(payment),
            None => slot.unmatched.push(payment),
        }
        self.rows.payments.insert(pay.payment_id.clone(), Some(pay.order_id.clone()));
        self.changes.payments.insert(pay.payment_id.clone(), pay.order_id.clone());
    }

    /// Applies stored money to its order and says what it did.
    pub(super) fn apply_money(&mut self, id: &OrderId, payment: &PaymentId) -> (PaymentOutcome, Option<Refund>) {
        let total = self.order(id).expect("the caller has found this order").total;
        self.touch(id);
        let row = self.payment_mut(id, payment).expect("the caller has stored this payment");
        row.amount = row.amount.or(total.map(|total| total.amount));
        row.currency = total.map(|total| total.currency).or(row.currency);
        let amount = row.amount;
        self.changes.payments.insert(payment.clone(), id.clone());

        let order = self.order(id).expect("the caller has found this order");
        let kept = order.kept();
        let covers = |money: i64| total.is_none_or(|total| money >= total.amount);
        let (outcome, counted) = match order.state.status {
            Status::Pending if covers(kept + amount.unwrap_or(0)) => {
                (PaymentOutcome::Applied, kept + amount.unwrap_or(0))
            }
            Status::Pending => (PaymentOutcome::Partial, 0),
            Status::Paid | Status::Fulfilled => (PaymentOutcome::Surplus, 0),
            Status::Cancelled if covers(amount.unwrap_or(0)) && self.can_revive(order) => {
                (PaymentOutcome::Revived, amount.unwrap_or(0))
            }
            Status::Cancelled => (PaymentOutcome::RefundDue, 0),
        };
        self.payment_mut(id, payment).expect("it was just found").outcome = outcome;
        let refund = match outcome {
            PaymentOutcome::Applied | PaymentOutcome::Revived => {
                self.settle(id, payment, outcome);
                let excess = total.map_or(0, |total| counted - total.amount);
                (excess > 0).then(|| self.owe(payment, id, Some(excess), RefundReason::Excess))
            }
            PaymentOutcome::Partial => {
                let row = self.payment(id, payment).cloned();
                self.event(Some(id.clone()), EventKind::PaymentPartial, row, None, None);
                None
            }
            _ if amount == Some(0) => None,
            PaymentOutcome::Surplus => Some(self.owe(payment, id, amount, RefundReason::Surplus)),
            _ => Some(self.owe(payment, id, amount, RefundReason::OrderCancelled)),
        };
        (outcome, refund)
    }

    /// pending -> paid, or cancelled by the deadline -> paid.
    fn settle(&mut self, id: &OrderId, payment: &PaymentId, outcome: PaymentOutcome) {
        let row = self.payment(id, payment).cloned();
        if outcome == PaymentOutcome::Revived {
            self.move_stock(id, Move::SELL);
            self.count_buyer(id, 1);
            self.event(Some(id.clone()), EventKind::OrderRevived, row.clone(), None, None);
        } else {
            self.move_stock(id, Move::SELL_HELD);
        }
        let now = self.now;
        let state = &mut self.touch(id).state;
        state.status = Status::Paid;
        state.paid_at = Some(now);
        state.cancelled_at = None;
        state.cancel_reason = None;
        self.event(Some(id.clone()), EventKind::OrderPaid, row, None, None);
    }

    /// Whether late money may bring this order back: the clock cancelled it, nobody has closed it, every line can be
    /// taken now, and the buyer's limits still hold.
    fn can_revive(&self, order: &Order) -> bool {
        let by_the_clock = order.state.cancel_reason == Some(CancelReason::PaymentTimeout) && !order.closed;
        by_the_clock
            && self.settings.late_payment == LatePayment::Revive
            && order.lines.iter().all(|line| {
                self.sku(&line.sku).is_some_and(|sku| {
                    let key = (line.sku.clone(), order.buyer_id.clone());
                    let already = self.rows.buyers.get(&key).copied().unwrap_or(0);
                    let within = sku.max_per_buyer.is_none_or(|limit| already + line.quantity <= limit);
                    within && sku.counts.available() >= line.quantity
                })
            })
    }
}

/// Whether a refund belongs to the answer its report got, not to something that happened to the order later.
fn came_with_the_report(payment: &Payment, refund: &Refund) -> bool {
    matches!(refund.reason, RefundReason::Excess | RefundReason::Surplus)
        || payment.outcome == PaymentOutcome::RefundDue
}
