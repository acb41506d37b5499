//! Money on its way back.

use super::catalog::canonical;
use super::rows::KeyScope;
use super::work::Work;
use crate::command::{Outcome, RefundPayment, SettleRefund, Verdict};
use crate::{EventKind, OrderId, PaymentId, PaymentOutcome, RefundReason, RefundStatus, Refusal, RefusalCode};

impl Work<'_> {
    /// Unmatched or surplus money is made due back by hand. Money that is due back already answers with that refund.
    pub(super) fn refund_payment(&mut self, ask: &RefundPayment) -> Verdict {
        let command = canonical(&[ask.payment_id.as_str()]);
        let repeated = match &ask.key {
            Some(key) => self.repeats(KeyScope::RefundPayment, key, &command)?,
            None => false,
        };
        let unknown = || Refusal::new(RefusalCode::UnknownPayment, "no such payment; GET /v1/payments lists them");
        let owner: OrderId = self.rows.payments.get(&ask.payment_id).cloned().flatten().ok_or_else(unknown)?;
        let payment = self.payment(&owner, &ask.payment_id).ok_or_else(unknown)?;
        let outcome = payment.outcome;
        let refund = match (outcome, payment.refunds.last().cloned()) {
            (PaymentOutcome::Unmatched, _) => {
                let refund = self.owe_unmatched(&ask.payment_id, &owner, RefundReason::Requested);
                self.seal();
                refund
            }
            (PaymentOutcome::Surplus | PaymentOutcome::RefundDue, Some(refund)) => {
                return Ok(Outcome::Refund { refund, replayed: true });
            }
            _ => {
                let detail = "this money pays its order; cancel the order to give it back";
                return Err(Refusal::new(RefusalCode::NotRefundable, detail).order(&owner).into());
            }
        };
        if let Some(key) = &ask.key {
            self.bind(KeyScope::RefundPayment, key, command);
        }
        Ok(Outcome::Refund { refund, replayed: repeated })
    }

    pub(super) fn settle_refund(&mut self, ask: &SettleRefund) -> Verdict {
        let command = canonical(&[ask.refund_id.as_str()]);
        let repeated = match &ask.key {
            Some(key) => self.repeats(KeyScope::SettleRefund, key, &command)?,
            None => false,
        };
        let unknown = || Refusal::new(RefusalCode::UnknownRefund, "no such refund; GET /v1/refunds lists them");
        let (payment_id, order_id) = self.rows.refunds.get(&ask.refund_id).cloned().flatten().ok_or_else(unknown)?;
        let now = self.now;
        let payment = self.payment_mut(&order_id, &payment_id).ok_or_else(unknown)?;
        let refund = payment.refunds.iter_mut().find(|refund| refund.id == ask.refund_id).ok_or_else(unknown)?;
        if refund.status == RefundStatus::Settled {
            if repeated {
                return Ok(Outcome::Refund { refund: refund.clone(), replayed: true });
            }
            let detail = "this refund was settled before; nothing is owed any more";
            return Err(Refusal::new(RefusalCode::AlreadySettled, detail).order(&order_id).into());
        }
        refund.status = RefundStatus::Settled;
        refund.settled_at = Some(now);
        let refund = refund.clone();
        let payment = payment.clone();
        let order = self.order(&order_id).map(|order| order.id.clone());
        if order.is_some() {
            self.touch(&order_id);
        }
        self.changes.refunds.insert(ask.refund_id.clone(), payment_id);
        self.event(order, EventKind::RefundSettled, Some(payment), Some(refund.clone()), None);
        if let Some(key) = &ask.key {
            self.bind(KeyScope::SettleRefund, key, command);
        }
        self.seal();
        Ok(Outcome::Refund { refund, replayed: false })
    }

    /// Money that has matched no order for a day is told once.
    pub(super) fn flag_unmatched(&mut self, payment: &PaymentId) -> Verdict {
        let owner = self.rows.payments.get(payment).cloned().flatten();
        let now = self.now;
        if let Some((owner, row)) = owner.and_then(|owner| self.payment_mut(&owner, payment).map(|row| (owner, row)))
            && row.outcome == PaymentOutcome::Unmatched
            && row.flagged_at.is_none()
        {
            row.flagged_at = Some(now);
            let row = row.clone();
            self.changes.payments.insert(payment.clone(), owner);
            self.event(None, EventKind::PaymentUnmatched, Some(row), None, None);
            self.seal();
        }
        Ok(Outcome::Flagged)
    }
}
