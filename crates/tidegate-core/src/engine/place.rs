//! Placing an order: all lines or none.

use super::work::{Move, Work, illegal, mismatch, unknown_order};
use crate::command::{Outcome, Place, Rejection, Verdict};
use crate::money::MAX_AMOUNT;
use crate::order::OrderState;
use crate::{
    CancelReason, EventKind, Line, Money, Order, OrderId, PaymentOutcome, RefundReason, Refusal, RefusalCode, Sku,
    SkuId, Status,
};

impl Work<'_> {
    pub(super) fn place(&mut self, place: &Place) -> Verdict {
        if let Some(id) = self.earlier(place)? {
            return Ok(Outcome::Placed { order: self.known_order(&id)?.clone(), replayed: true });
        }
        if self.slot(&place.order_id).is_some_and(|slot| slot.tombstone.is_some()) {
            let detail = "this order was cancelled before it was placed; place it under a new id";
            return Err(Refusal::new(RefusalCode::AlreadyCancelled, detail).order(&place.order_id).into());
        }
        let superseded = self.superseded(place)?;
        let (lines, total) = self.priced_lines(place, superseded.as_ref())?;
        if let Some((id, true)) = &superseded {
            self.can_move(id, Move::RELEASE)?;
        }

        if let Some((id, pending)) = superseded {
            if pending {
                self.end_pending(&id, CancelReason::Superseded, EventKind::OrderCancelled, None);
            } else {
                self.close(&id);
            }
        }
        let id = place.order_id.clone();
        let order = self.new_order(place, lines, total);
        self.insert_order(order);
        if let Some(key) = &place.key {
            self.alias(key, &id);
        }
        self.order_event(&id, EventKind::OrderPlaced);
        if total.is_some_and(|total| total.amount == 0) {
            self.move_stock(&id, Move::SELL);
            let now = self.now;
            let order = self.touch(&id);
            order.state.status = Status::Paid;
            order.state.paid_at = Some(now);
            self.order_event(&id, EventKind::OrderPaid);
        } else {
            self.move_stock(&id, Move::HOLD);
        }
        self.count_buyer(&id, 1);
        self.match_money(&id);
        self.seal();
        Ok(Outcome::Placed { order: self.known_order(&id)?.clone(), replayed: false })
    }

    /// The order that the same command placed before, if it did; a mismatch when its id or key was used otherwise.
    fn earlier(&mut self, place: &Place) -> Result<Option<OrderId>, Rejection> {
        let alias = place.key.as_ref().and_then(|key| self.rows.order_keys.get(key).cloned().flatten());
        let by_id = self.order(&place.order_id).map(|order| order.id.clone());
        let found = match (alias, by_id) {
            (Some(bound), _) if place.chosen && bound != place.order_id => {
                return Err(mismatch("this Idempotency-Key belongs to another order_id; use a new key")
                    .order(&bound)
                    .into());
            }
            (Some(bound), _) => bound,
            (None, Some(id)) => id,
            (None, None) => return Ok(None),
        };
        if !same_command(self.known_order(&found)?, place) {
            let detail =
                "this order was placed before with other content; repeat it unchanged, or use a new order_id and key";
            return Err(mismatch(detail).order(&found).into());
        }
        if let Some(key) = &place.key {
            self.alias(key, &found);
        }
        Ok(Some(found))
    }

    fn alias(&mut self, key: &crate::IdempotencyKey, id: &OrderId) {
        let held = self.rows.order_keys.insert(key.clone(), Some(id.clone()));
        if held.flatten().is_none() {
            self.changes.order_keys.push((key.clone(), id.clone()));
        }
    }

    /// The order to take the place of, and whether it is pending.
    fn superseded(&self, place: &Place) -> Result<Option<(OrderId, bool)>, Rejection> {
        let Some(id) = &place.supersedes else { return Ok(None) };
        let order = self.order(id).filter(|order| order.buyer_id == place.buyer_id).ok_or_else(|| unknown_order(id))?;
        match order.state.status {
            Status::Pending => Ok(Some((id.clone(), true))),
            Status::Cancelled => Ok(Some((id.clone(), false))),
            Status::Paid | Status::Fulfilled => Err(illegal(order, "superseded").into()),
        }
    }

    /// Judges every line, in the order of refusals: unknown, prices, archived, sale window, limits, stock.
    fn priced_lines(
        &self,
        place: &Place,
        superseded: Option<&(OrderId, bool)>,
    ) -> Result<(Vec<Line>, Option<Money>), Rejection> {
        let mut skus: Vec<(&Sku, i64)> = Vec::with_capacity(place.lines.len());
        for (sku, quantity) in &place.lines {
            skus.push((self.sku(sku).ok_or_else(|| Refusal::unknown_sku(sku))?, *quantity));
        }
        let total = total_of(&skus)?;
        if let Some((sku, _)) = skus.iter().find(|(sku, _)| sku.archived) {
            let detail = "this SKU is archived and not sold any more; leave it out";
            return Err(Refusal::new(RefusalCode::Archived, detail).sku(&sku.id).into());
        }
        if let Some((sku, _)) = skus.iter().find(|(sku, _)| sku.on_sale_from.is_some_and(|from| self.now < from)) {
            let detail = "this SKU is not on sale yet; its on_sale_from says from when";
            return Err(Refusal::new(RefusalCode::NotOnSale, detail).sku(&sku.id).into());
        }
        let given_back = |sku: &SkuId| -> i64 {
            let old = superseded.filter(|(_, pending)| *pending).and_then(|(id, _)| self.order(id));
            old.into_iter()
                .flat_map(|order| &order.lines)
                .filter(|line| line.sku == *sku)
                .map(|line| line.quantity)
                .sum()
        };
        for (sku, quantity) in &skus {
            let already = self.rows.buyers.get(&(sku.id.clone(), place.buyer_id.clone())).copied().unwrap_or(0)
                - given_back(&sku.id);
            check_limits(sku, *quantity, already)?;
        }
        for (sku, quantity) in &skus {
            let available = sku.counts.available() + given_back(&sku.id);
            if available < *quantity {
                return Err(Refusal::insufficient_stock(&sku.id, available, *quantity).into());
            }
        }
        let lines =
            skus.iter().map(|(sku, quantity)| Line { sku: sku.id.clone(), quantity: *quantity, unit_price: sku.price });
        Ok((lines.collect(), total))
    }

    fn new_order(&mut self, place: &Place, lines: Vec<Line>, total: Option<Money>) -> Order {
        let of_skus = lines.iter().filter_map(|line| self.sku(&line.sku)?.hold_seconds).min();
        let hold =
            place.hold_seconds.or(of_skus).unwrap_or(self.settings.hold_seconds).min(self.settings.max_hold_seconds);
        let pay_by = self.now.plus_seconds(hold);
        Order {
            no: self.source.order_no(),
            id: place.order_id.clone(),
            buyer_id: place.buyer_id.clone(),
            lines,
            total,
            placed_at: self.now,
            metadata: place.metadata.clone(),
            requested_hold: place.hold_seconds,
            supersedes: place.supersedes.clone(),
            state: OrderState {
                status: Status::Pending,
                pay_by,
                release_at: pay_by.plus_seconds(self.settings.grace_seconds),
                paid_at: None,
                cancelled_at: None,
                cancel_reason: None,
                fulfilled_at: None,
                version: 1,
            },
            closed: false,
            last_seq: 0,
            payments: Vec::new(),
        }
    }

    /// Money that arrived before the order: applied now, oldest first, as if it were reported now.
    fn match_money(&mut self, id: &OrderId) {
        let slot = self.rows.ids.get_mut(id).expect("the order was just inserted");
        let waiting = std::mem::take(&mut slot.unmatched);
        if waiting.is_empty() {
            return;
        }
        let unmatched: Vec<_> =
            waiting.iter().filter(|p| p.outcome == PaymentOutcome::Unmatched).map(|p| p.id.clone()).collect();
        let order = slot.order.as_mut().expect("the order was just inserted");
        order.payments = waiting;
        for payment in unmatched {
            let order = self.order(id).expect("the order was just inserted");
            let row = self.payment(id, &payment).expect("it was just moved to the order");
            let foreign = matches!((row.currency, order.total), (Some(c), Some(total)) if c != total.currency);
            if foreign {
                self.owe_unmatched(&payment, id, RefundReason::Unmatched);
            } else {
                self.apply_money(id, &payment);
            }
        }
    }
}

fn same_command(order: &Order, place: &Place) -> bool {
    order.buyer_id == place.buyer_id
        && order.lines.len() == place.lines.len()
        && order
            .lines
            .iter()
            .zip(&place.lines)
            .all(|(line, (sku, quantity))| line.sku == *sku && line.quantity == *quantity)
        && order.requested_hold == place.hold_seconds
        && order.supersedes == place.supersedes
        && order.metadata == place.metadata
}

/// The sum of the lines: all priced in one currency, or none priced.
fn total_of(skus: &[(&Sku, i64)]) -> Result<Option<Money>, Rejection> {
    let invalid = |i: Option<usize>, detail: &str| {
        let mut refusal = Refusal::new(RefusalCode::Invalid, detail);
        refusal.pointer = Some(i.map_or_else(|| "/lines".to_owned(), |i| format!("/lines/{i}/sku")));
        Rejection::from(refusal)
    };
    let currency = skus[0].0.price.map(|price| price.currency);
    if let Some(i) = skus.iter().position(|(sku, _)| sku.price.map(|price| price.currency) != currency) {
        return Err(invalid(
            Some(i),
            "the SKUs of one order must all be priced in one currency, or none of them; split the order",
        ));
    }
    let Some(currency) = currency else { return Ok(None) };
    let sum = skus.iter().try_fold(0_i64, |sum, (sku, quantity)| {
        let price = sku.price.map_or(0, |price| price.amount);
        price.checked_mul(*quantity).and_then(|line| sum.checked_add(line)).filter(|sum| *sum <= MAX_AMOUNT)
    });
    match sum {
        Some(amount) => Ok(Some(Money { amount, currency })),
        None => Err(invalid(None, "the total exceeds the largest amount (2^53 - 1 minor units); split the order")),
    }
}

fn check_limits(sku: &Sku, quantity: i64, already: i64) -> Result<(), Rejection> {
    let refuse = |limit: i64, already: i64, whose: &str| {
        let left = (limit - already).max(0);
        let advice =
            if left == 0 { "none are left for this buyer".to_owned() } else { format!("order at most {left}") };
        let detail = format!("at most {limit} units of this SKU are sold {whose}; {advice}");
        let refusal = Refusal {
            limit: Some(limit),
            already: Some(already),
            ..Refusal::new(RefusalCode::LimitReached, detail).sku(&sku.id)
        };
        Err(refusal.into())
    };
    match (sku.max_per_order, sku.max_per_buyer) {
        (Some(limit), _) if quantity > limit => refuse(limit, 0, "in one order"),
        (_, Some(limit)) if already + quantity > limit => refuse(limit, already, "to one buyer"),
        _ => Ok(()),
    }
}
