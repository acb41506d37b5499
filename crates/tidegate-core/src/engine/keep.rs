//! What keeps an order going: extend, fulfil; and the parked list.

use super::work::{Move, Work, illegal, unknown_order};
use crate::command::{Extend, Outcome, Park, Parked, Verdict};
use crate::{EventKind, OrderId, Refusal, RefusalCode, Status};

impl Work<'_> {
    pub(super) fn extend(&mut self, extend: &Extend) -> Verdict {
        let id = &extend.order_id;
        let order = self.known_order(id)?;
        if order.state.status != Status::Pending || self.now >= order.state.release_at {
            return Err(illegal(order, "extended").into());
        }
        let pay_by = self.now.plus_seconds(extend.hold_seconds);
        if pay_by > order.placed_at.plus_seconds(self.settings.max_hold_seconds) {
            let detail =
                format!("a hold lasts at most {} s from placed_at; ask for less", self.settings.max_hold_seconds);
            let cap = Some(self.settings.max_hold_seconds);
            return Err(Refusal { limit: cap, ..Refusal::new(RefusalCode::HoldCapExceeded, detail).order(id) }.into());
        }
        let grace = order.state.release_at.since(order.state.pay_by);
        if pay_by > order.state.pay_by {
            let state = &mut self.touch(id).state;
            state.pay_by = pay_by;
            state.release_at = pay_by.plus(grace);
            self.order_event(id, EventKind::OrderExtended);
            self.seal();
        }
        Ok(Outcome::Extended(self.known_order(id)?.clone()))
    }

    pub(super) fn fulfil(&mut self, id: &OrderId) -> Verdict {
        let order = self.known_order(id)?;
        match order.state.status {
            Status::Paid => {}
            Status::Fulfilled => return Ok(Outcome::Fulfilled(order.clone())),
            Status::Pending | Status::Cancelled => return Err(illegal(order, "fulfilled").into()),
        }
        self.can_move(id, Move::FULFIL)?;
        self.move_stock(id, Move::FULFIL);
        let now = self.now;
        let state = &mut self.touch(id).state;
        state.status = Status::Fulfilled;
        state.fulfilled_at = Some(now);
        self.order_event(id, EventKind::OrderFulfilled);
        self.seal();
        Ok(Outcome::Fulfilled(self.known_order(id)?.clone()))
    }

    pub(super) fn park(&mut self, park: &Park) -> Verdict {
        let id = self.rows.numbers.get(&park.order).cloned().flatten();
        let pending =
            id.as_ref().and_then(|id| self.order(id)).is_some_and(|order| order.state.status == Status::Pending);
        let listed = self.rows.parked.get(&park.order).is_some_and(Option::is_some);
        if let Some(order_id) = id.filter(|_| pending && !listed) {
            let parked = Parked {
                order: park.order,
                order_id: order_id.clone(),
                at: self.now,
                tries: park.tries,
                reason: park.reason.clone(),
            };
            self.rows.parked.insert(park.order, Some(parked));
            self.changes.parked.insert(park.order);
            self.event(Some(order_id), EventKind::OrderParked, None, None, Some(park.reason.clone()));
            self.seal();
        }
        Ok(Outcome::Parked)
    }

    pub(super) fn unpark(&mut self, id: &OrderId) -> Verdict {
        let order = self.order(id).ok_or_else(|| unknown_order(id))?;
        let no = order.no;
        if self.rows.parked.get(&no).is_none_or(Option::is_none) {
            return Ok(Outcome::Settled);
        }
        self.rows.parked.insert(no, None);
        self.rows.numbers.insert(no, Some(id.clone()));
        self.changes.parked.insert(no);
        Ok(Outcome::Unparked(self.known_order(id)?.clone()))
    }
}
