//! How an order ends unpaid, or is given back: cancel, expire, supersede.

use super::work::{Move, Work, illegal};
use crate::command::{Cancel, Outcome, Verdict};
use crate::{CancelReason, EventKind, OrderId, OrderNo, PaymentOutcome, RefundReason, Status};

impl Work<'_> {
    pub(super) fn cancel(&mut self, cancel: &Cancel) -> Verdict {
        let id = &cancel.order_id;
        let Some(order) = self.order(id) else {
            return Ok(self.entomb(id));
        };
        match order.state.status {
            Status::Pending => {
                self.can_move(id, Move::RELEASE)?;
                self.end_pending(id, CancelReason::Requested, EventKind::OrderCancelled, cancel.reason.clone());
            }
            Status::Paid => {
                let back = if cancel.restock { Move::RETURN } else { Move::WRITE_OFF };
                self.can_move(id, back)?;
                self.move_stock(id, back);
                self.mark_cancelled(id, CancelReason::Refunded, EventKind::OrderCancelled, cancel.reason.clone());
            }
            Status::Cancelled => self.close(id),
            Status::Fulfilled => return Err(illegal(order, "cancelled").into()),
        }
        self.seal();
        Ok(Outcome::Cancelled(self.known_order(id)?.clone()))
    }

    pub(super) fn expire(&mut self, no: OrderNo) -> Verdict {
        let Some(id) = self.rows.numbers.get(&no).cloned().flatten() else {
            return Ok(Outcome::Settled);
        };
        let Some(order) = self.order(&id) else {
            return Ok(Outcome::Settled);
        };
        if order.state.status != Status::Pending {
            return Ok(Outcome::Settled);
        }
        if self.now < order.state.release_at {
            return Ok(Outcome::NotDue(order.state.release_at));
        }
        self.can_move(&id, Move::RELEASE)?;
        self.end_pending(&id, CancelReason::PaymentTimeout, EventKind::OrderExpired, None);
        self.seal();
        Ok(Outcome::Expired(self.known_order(&id)?.clone()))
    }

    /// pending -> cancelled; the caller has checked that its stock can be released.
    pub(super) fn end_pending(&mut self, id: &OrderId, cause: CancelReason, event: EventKind, reason: Option<String>) {
        self.move_stock(id, Move::RELEASE);
        self.mark_cancelled(id, cause, event, reason);
    }

    fn mark_cancelled(&mut self, id: &OrderId, cause: CancelReason, event: EventKind, reason: Option<String>) {
        self.count_buyer(id, -1);
        let now = self.now;
        let state = &mut self.touch(id).state;
        state.status = Status::Cancelled;
        state.cancelled_at = Some(now);
        state.cancel_reason = Some(cause);
        self.event(Some(id.clone()), event, None, None, reason);
        self.owe_all(id);
    }

    /// An order that the clock cancelled is made final, once: later money is due back.
    pub(super) fn close(&mut self, id: &OrderId) {
        let order = self.order(id).expect("the caller has found this order");
        if order.state.cancel_reason == Some(CancelReason::PaymentTimeout) && !order.closed {
            self.touch(id).closed = true;
            self.order_event(id, EventKind::OrderClosed);
        }
    }

    /// Takes an id out of use before any order has it; money that waits for it is due back.
    fn entomb(&mut self, id: &OrderId) -> Outcome {
        let now = self.now;
        let slot = self.rows.ids.entry(id.clone()).or_default();
        if slot.tombstone.is_none() {
            slot.tombstone = Some(now);
            let waiting = slot.unmatched.iter().filter(|p| p.outcome == PaymentOutcome::Unmatched);
            let waiting: Vec<_> = waiting.map(|p| p.id.clone()).collect();
            self.changes.tombstones.push(id.clone());
            for payment in waiting {
                self.owe_unmatched(&payment, id, RefundReason::OrderCancelled);
            }
            self.seal();
        }
        Outcome::Tombstoned(id.clone())
    }
}
