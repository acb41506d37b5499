//! A second opinion: the rules again, in the plainest form. It keeps orders and stock on hand, and recomputes every
//! count by adding up all orders each time. It shares no code with the engine but the types.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_core::command::{Adjust, Cancel, Extend, Pay, Place, PutSku, Rejection};
use tidegate_core::{
    BuyerId, CancelReason, Command, Counts, IdempotencyKey, LatePayment, Millis, Money, OrderId, OrderNo, Outcome,
    Patch, PaymentId, PaymentOutcome, RefusalCode as R, Settings, SkuId, Status, Verdict,
};

#[derive(Clone, Default)]
struct Card {
    on_hand: i64,
    price: Option<Money>,
    per_order: Option<i64>,
    per_buyer: Option<i64>,
    hold: Option<i64>,
    archived: bool,
}

struct Order {
    no: OrderNo,
    place: Place,
    total: Option<i64>,
    status: Status,
    by_clock: bool,
    closed: bool,
    placed_at: Millis,
    pay_by: Millis,
    /// Money that counts, by payment.
    kept: BTreeMap<PaymentId, i64>,
}

struct Report {
    order: OrderId,
    amount: Option<i64>,
    currency: Option<String>,
    waiting: bool,
}

pub struct Model {
    settings: Settings,
    skus: BTreeMap<SkuId, Card>,
    orders: BTreeMap<OrderId, Order>,
    tombstones: BTreeSet<OrderId>,
    keys: BTreeMap<IdempotencyKey, OrderId>,
    reports: BTreeMap<PaymentId, Report>,
    /// Order in which payments arrived.
    arrived: Vec<PaymentId>,
    adjusted: BTreeMap<IdempotencyKey, (Adjust, Millis)>,
    placed: i64,
}

pub type Opinion = Result<&'static str, R>;

impl Model {
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            skus: BTreeMap::new(),
            orders: BTreeMap::new(),
            tombstones: BTreeSet::new(),
            keys: BTreeMap::new(),
            reports: BTreeMap::new(),
            arrived: Vec::new(),
            adjusted: BTreeMap::new(),
            placed: 0,
        }
    }

    /// Whether this model, given the same command, says the same; it then moves on.
    pub fn agrees(&mut self, command: &Command, verdict: &Verdict, now: Millis) -> Result<(), String> {
        let opinion = match command {
            Command::Place(place) => self.place(place, now),
            Command::Pay(pay) => self.pay(pay),
            Command::Cancel(cancel) => self.cancel(cancel),
            Command::Expire(no) => Ok(self.expire(*no, now)),
            Command::Extend(extend) => self.extend(extend, now),
            Command::Fulfil(id) => self.fulfil(id),
            Command::PutSku(put) => self.put(put),
            Command::Adjust(adjust) => self.adjust(adjust, now),
            Command::ArchiveSku(sku) => self.skus.get_mut(sku).ok_or(R::UnknownSku).map(|card| {
                card.archived = true;
                "archived"
            }),
            Command::RefundPayment(ask) => {
                // Known by its effect: the money must never be matched later.
                if let (Ok(_), Some(report)) = (verdict, self.reports.get_mut(&ask.payment_id)) {
                    report.waiting = false;
                }
                return Ok(());
            }
            // Settling, parking and flagging change nothing this model keeps; the auditor watches them.
            _ => return Ok(()),
        };
        if said(verdict) == opinion { Ok(()) } else { Err(format!("the model says {opinion:?}")) }
    }

    /// The counts of a SKU, added up from all orders.
    pub fn counts(&self, sku: &SkuId) -> Option<Counts> {
        let card = self.skus.get(sku)?;
        let units = |status| self.orders.values().filter(|o| o.status == status).map(|o| units_of(&o.place, sku)).sum();
        Some(Counts { on_hand: card.on_hand, held: units(Status::Pending), sold: units(Status::Paid) })
    }

    fn available(&self, sku: &SkuId) -> i64 {
        self.counts(sku).map_or(0, |counts| counts.available())
    }

    fn bought(&self, sku: &SkuId, buyer: &BuyerId) -> i64 {
        let live = self.orders.values().filter(|o| o.status != Status::Cancelled && o.place.buyer_id == *buyer);
        live.map(|o| units_of(&o.place, sku)).sum()
    }

    fn place(&mut self, place: &Place, now: Millis) -> Opinion {
        let bound = place.key.as_ref().and_then(|key| self.keys.get(key)).cloned();
        if let Some(bound) = &bound
            && place.chosen
            && *bound != place.order_id
        {
            return Err(R::IdempotencyMismatch);
        }
        if let Some(id) = bound.or_else(|| self.orders.contains_key(&place.order_id).then(|| place.order_id.clone())) {
            let first = &self.orders[&id].place;
            let same = (&first.buyer_id, &first.lines, first.hold_seconds, &first.supersedes)
                == (&place.buyer_id, &place.lines, place.hold_seconds, &place.supersedes);
            if !same {
                return Err(R::IdempotencyMismatch);
            }
            place.key.iter().for_each(|key| {
                self.keys.insert(key.clone(), id.clone());
            });
            return Ok("replayed");
        }
        if self.tombstones.contains(&place.order_id) {
            return Err(R::AlreadyCancelled);
        }
        let old = match &place.supersedes {
            None => None,
            Some(id) => {
                let old = self.orders.get(id).filter(|o| o.place.buyer_id == place.buyer_id).ok_or(R::UnknownOrder)?;
                if matches!(old.status, Status::Paid | Status::Fulfilled) {
                    return Err(R::IllegalTransition);
                }
                Some(id.clone())
            }
        };
        if place.lines.iter().any(|(sku, _)| !self.skus.contains_key(sku)) {
            return Err(R::UnknownSku);
        }
        let priced = place.lines.iter().filter(|(sku, _)| self.skus[sku].price.is_some()).count();
        if priced != 0 && priced != place.lines.len() {
            return Err(R::Invalid);
        }
        if place.lines.iter().any(|(sku, _)| self.skus[sku].archived) {
            return Err(R::Archived);
        }
        let back = |sku: &SkuId| {
            let old = old.as_ref().map(|id| &self.orders[id]).filter(|o| o.status == Status::Pending);
            old.map_or(0, |o| units_of(&o.place, sku))
        };
        let over = |(sku, q): &(SkuId, i64)| {
            let card = &self.skus[sku];
            card.per_order.is_some_and(|limit| *q > limit)
                || card.per_buyer.is_some_and(|limit| self.bought(sku, &place.buyer_id) - back(sku) + q > limit)
        };
        if place.lines.iter().any(over) {
            return Err(R::LimitReached);
        }
        if place.lines.iter().any(|(sku, q)| self.available(sku) + back(sku) < *q) {
            return Err(R::InsufficientStock);
        }
        if let Some(old) = old.and_then(|id| self.orders.get_mut(&id)) {
            old.closed |= old.by_clock;
            old.status = Status::Cancelled;
            old.kept.clear();
        }
        self.placed += 1;
        let price = |sku: &SkuId| self.skus[sku].price.map_or(0, |price| price.amount);
        let total = (priced > 0).then(|| place.lines.iter().map(|(sku, q)| price(sku) * q).sum());
        let hold = place.lines.iter().filter_map(|(sku, _)| self.skus[sku].hold).min();
        let hold = place.hold_seconds.or(hold).unwrap_or(self.settings.hold_seconds);
        let order = Order {
            no: OrderNo(self.placed),
            place: place.clone(),
            total,
            status: if total == Some(0) { Status::Paid } else { Status::Pending },
            by_clock: false,
            closed: false,
            placed_at: now,
            pay_by: now.plus_seconds(hold),
            kept: BTreeMap::new(),
        };
        self.orders.insert(place.order_id.clone(), order);
        place.key.iter().for_each(|key| {
            self.keys.insert(key.clone(), place.order_id.clone());
        });
        for id in self.arrived.clone() {
            let report = &self.reports[&id];
            if report.waiting && report.order == place.order_id {
                self.reports.get_mut(&id).expect("it is there").waiting = false;
                let foreign = total.is_some() && self.reports[&id].currency.as_deref().is_some_and(|c| c != "EUR");
                if !foreign {
                    let amount = self.reports[&id].amount.or(total);
                    let report = self.reports.get_mut(&id).expect("it is there");
                    report.amount = amount;
                    if total.is_some() {
                        report.currency = Some("EUR".to_owned());
                    }
                    self.apply(&place.order_id, &id, amount);
                }
            }
        }
        Ok("placed")
    }

    fn apply(&mut self, id: &OrderId, payment: &PaymentId, amount: Option<i64>) -> &'static str {
        let order = &self.orders[id];
        let money = amount.unwrap_or(0);
        let kept: i64 = order.kept.values().sum();
        let covers = |money| order.total.is_none_or(|total| money >= total);
        let revivable = order.by_clock
            && !order.closed
            && self.settings.late_payment == LatePayment::Revive
            && order.place.lines.iter().all(|(sku, q)| {
                let within =
                    self.skus[sku].per_buyer.is_none_or(|limit| self.bought(sku, &order.place.buyer_id) + q <= limit);
                within && self.available(sku) >= *q
            });
        let (outcome, keep) = match order.status {
            Status::Pending if covers(kept + money) => ("applied", order.total.map_or(money, |total| total - kept)),
            Status::Pending => ("partial", money),
            Status::Paid | Status::Fulfilled => return "surplus",
            Status::Cancelled if revivable && covers(money) => ("revived", order.total.unwrap_or(money)),
            Status::Cancelled => return "refund due",
        };
        let order = self.orders.get_mut(id).expect("it is there");
        order.kept.insert(payment.clone(), keep);
        if outcome != "partial" {
            order.status = Status::Paid;
            order.by_clock = false;
        }
        outcome
    }

    fn pay(&mut self, pay: &Pay) -> Opinion {
        let total = self.orders.get(&pay.order_id).and_then(|o| o.total);
        if let Some(first) = self.reports.get(&pay.payment_id) {
            let currency = pay.currency.map(|c| c.code().to_owned());
            let total = self.orders.get(&first.order).and_then(|o| o.total);
            let same = first.order == pay.order_id
                && first.amount == pay.amount.or(total)
                && (currency.is_none() || first.currency.is_none() || currency == first.currency);
            return if same { Ok("duplicate") } else { Err(R::PaymentIdReused) };
        }
        let known = self.orders.contains_key(&pay.order_id);
        if total.is_some() && pay.currency.is_some_and(|c| c.code() != "EUR") {
            return Err(R::CurrencyMismatch);
        }
        let mut report = Report {
            order: pay.order_id.clone(),
            amount: pay.amount,
            currency: pay.currency.map(|c| c.code().to_owned()),
            waiting: false,
        };
        if total.is_some() {
            report.currency = Some("EUR".to_owned());
        }
        self.arrived.push(pay.payment_id.clone());
        if known {
            report.amount = pay.amount.or(total);
            let amount = report.amount;
            self.reports.insert(pay.payment_id.clone(), report);
            return Ok(self.apply(&pay.order_id, &pay.payment_id, amount));
        }
        report.waiting = !self.tombstones.contains(&pay.order_id);
        let outcome = if report.waiting { "unmatched" } else { "refund due" };
        self.reports.insert(pay.payment_id.clone(), report);
        Ok(outcome)
    }

    fn cancel(&mut self, cancel: &Cancel) -> Opinion {
        let Some(order) = self.orders.get_mut(&cancel.order_id) else {
            self.tombstones.insert(cancel.order_id.clone());
            for report in self.reports.values_mut().filter(|r| r.order == cancel.order_id) {
                report.waiting = false;
            }
            return Ok("tombstoned");
        };
        match order.status {
            Status::Fulfilled => return Err(R::IllegalTransition),
            Status::Cancelled => order.closed |= order.by_clock,
            Status::Paid if !cancel.restock => {
                for (sku, q) in &order.place.lines {
                    self.skus.get_mut(sku).expect("it is there").on_hand -= q;
                }
            }
            Status::Paid | Status::Pending => {}
        }
        order.status = Status::Cancelled;
        order.kept.clear();
        Ok("cancelled")
    }

    fn expire(&mut self, no: OrderNo, now: Millis) -> &'static str {
        let grace = self.settings.grace_seconds;
        match self.orders.values_mut().find(|o| o.no == no) {
            Some(order) if order.status == Status::Pending && now < order.pay_by.plus_seconds(grace) => "not due",
            Some(order) if order.status == Status::Pending => {
                order.status = Status::Cancelled;
                order.by_clock = true;
                order.kept.clear();
                "expired"
            }
            _ => "settled",
        }
    }

    fn extend(&mut self, extend: &Extend, now: Millis) -> Opinion {
        let order = self.orders.get_mut(&extend.order_id).ok_or(R::UnknownOrder)?;
        if order.status != Status::Pending || now >= order.pay_by.plus_seconds(self.settings.grace_seconds) {
            return Err(R::IllegalTransition);
        }
        let new = now.plus_seconds(extend.hold_seconds);
        if new > order.placed_at.plus_seconds(self.settings.max_hold_seconds) {
            return Err(R::HoldCapExceeded);
        }
        order.pay_by = order.pay_by.max(new);
        Ok("extended")
    }

    fn fulfil(&mut self, id: &OrderId) -> Opinion {
        let order = self.orders.get_mut(id).ok_or(R::UnknownOrder)?;
        match order.status {
            Status::Paid => {
                order.status = Status::Fulfilled;
                for (sku, q) in &order.place.lines {
                    self.skus.get_mut(sku).expect("it is there").on_hand -= q;
                }
                Ok("fulfilled")
            }
            Status::Fulfilled => Ok("fulfilled"),
            _ => Err(R::IllegalTransition),
        }
    }

    fn put(&mut self, put: &PutSku) -> Opinion {
        let created = !self.skus.contains_key(&put.sku);
        if let Some(card) = self.skus.get(&put.sku)
            && put.on_hand.is_some_and(|n| n != card.on_hand)
        {
            return Err(R::StockExists);
        }
        let fresh = Card { on_hand: put.on_hand.unwrap_or(0), ..Card::default() };
        let card = self.skus.entry(put.sku.clone()).or_insert(fresh);
        card.archived = false;
        set(&put.patch.price, &mut card.price);
        set(&put.patch.max_per_order, &mut card.per_order);
        set(&put.patch.max_per_buyer, &mut card.per_buyer);
        set(&put.patch.hold_seconds, &mut card.hold);
        Ok(if created { "created" } else { "put" })
    }

    fn adjust(&mut self, adjust: &Adjust, now: Millis) -> Opinion {
        if let Some((first, at)) = self.adjusted.get(&adjust.key)
            && now.since(*at) <= 7 * 86_400_000
        {
            return if first == adjust { Ok("adjustment replayed") } else { Err(R::IdempotencyMismatch) };
        }
        if !self.skus.contains_key(&adjust.sku) {
            return Err(R::UnknownSku);
        }
        if self.available(&adjust.sku) + adjust.delta < 0 {
            return Err(R::BelowCommitted);
        }
        self.skus.get_mut(&adjust.sku).expect("it is there").on_hand += adjust.delta;
        self.adjusted.insert(adjust.key.clone(), (adjust.clone(), now));
        Ok("adjusted")
    }
}

fn set<T: Clone>(patch: &Patch<T>, field: &mut Option<T>) {
    match patch {
        Patch::Keep => {}
        Patch::Clear => *field = None,
        Patch::Set(value) => *field = Some(value.clone()),
    }
}

fn units_of(place: &Place, sku: &SkuId) -> i64 {
    place.lines.iter().filter(|(id, _)| id == sku).map(|(_, q)| q).sum()
}

/// A verdict in the words of this model.
pub fn said(verdict: &Verdict) -> Opinion {
    match verdict {
        Ok(outcome) => Ok(name(outcome)),
        Err(Rejection::Refused(refusal)) => Err(refusal.code),
        Err(Rejection::Failed(failure)) => panic!("the rows contradict each other: {failure:?}"),
    }
}

fn name(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Placed { replayed: true, .. } => "replayed",
        Outcome::Placed { .. } => "placed",
        Outcome::Paid { outcome, .. } => match outcome {
            PaymentOutcome::Applied => "applied",
            PaymentOutcome::Partial => "partial",
            PaymentOutcome::Duplicate => "duplicate",
            PaymentOutcome::Revived => "revived",
            PaymentOutcome::Surplus => "surplus",
            PaymentOutcome::RefundDue => "refund due",
            PaymentOutcome::Unmatched => "unmatched",
        },
        Outcome::Cancelled(order) => {
            assert!(matches!(
                order.state.cancel_reason,
                Some(
                    CancelReason::PaymentTimeout
                        | CancelReason::Requested
                        | CancelReason::Superseded
                        | CancelReason::Refunded
                )
            ));
            "cancelled"
        }
        Outcome::Tombstoned(_) => "tombstoned",
        Outcome::Expired(_) => "expired",
        Outcome::NotDue(_) => "not due",
        Outcome::Settled => "settled",
        Outcome::Extended(_) => "extended",
        Outcome::Fulfilled(_) => "fulfilled",
        Outcome::SkuPut { created: true, .. } => "created",
        Outcome::SkuPut { .. } => "put",
        Outcome::Adjusted { replayed: true, .. } => "adjustment replayed",
        Outcome::Adjusted { .. } => "adjusted",
        Outcome::Archived(_) => "archived",
        _ => "other",
    }
}
