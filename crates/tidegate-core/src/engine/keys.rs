//! Which rows a batch needs.

use super::rows::{KeyScope, Keys, Rows};
use crate::command::{Place, PutSku};
use crate::{BuyerId, Command, IdempotencyKey, Order, OrderId, OrderNo, Patch, PaymentId, RefundId, Set, SkuId};

/// The rows `commands` need that `rows` does not have. Empty when [`super::decide`] can run.
#[must_use]
pub fn missing(commands: &[Command], rows: &Rows) -> Keys {
    let mut gather = Gather { rows, keys: Keys::default(), seen: Seen::default() };
    for command in commands {
        gather.command(command);
    }
    gather.keys
}

#[derive(Default)]
struct Seen<'a> {
    ids: Set<&'a OrderId>,
    numbers: Set<OrderNo>,
    order_keys: Set<&'a IdempotencyKey>,
    request_keys: Set<(KeyScope, &'a IdempotencyKey)>,
    payments: Set<&'a PaymentId>,
    refunds: Set<&'a RefundId>,
    skus: Set<&'a SkuId>,
    recounts: Set<&'a SkuId>,
    buyers: Set<(&'a SkuId, &'a BuyerId)>,
    parked: Set<OrderNo>,
}

struct Gather<'a> {
    rows: &'a Rows,
    keys: Keys,
    seen: Seen<'a>,
}

impl<'a> Gather<'a> {
    fn command(&mut self, command: &'a Command) {
        match command {
            Command::Place(place) => self.place(place),
            Command::Pay(pay) => {
                self.payment(&pay.payment_id);
                self.order_with_stock(&pay.order_id);
            }
            Command::Cancel(cancel) => self.order_with_stock(&cancel.order_id),
            Command::Expire(no) => {
                if let Some(id) = self.number(*no) {
                    self.order_with_stock(id);
                }
            }
            Command::Extend(extend) => {
                self.id(&extend.order_id);
            }
            Command::Fulfil(id) => self.order_with_stock(id),
            Command::PutSku(put) => self.put(put),
            Command::Adjust(adjust) => {
                self.request_key(KeyScope::Adjust, &adjust.key);
                self.sku(&adjust.sku);
            }
            Command::ArchiveSku(sku) => self.sku(sku),
            Command::RefundPayment(refund) => {
                self.payment_with_order(&refund.payment_id);
                refund.key.iter().for_each(|key| self.request_key(KeyScope::RefundPayment, key));
            }
            Command::SettleRefund(settle) => {
                settle.key.iter().for_each(|key| self.request_key(KeyScope::SettleRefund, key));
                match self.rows.refunds.get(&settle.refund_id) {
                    Some(Some((_, id))) => {
                        self.id(id);
                    }
                    Some(None) => {}
                    None => {
                        if self.seen.refunds.insert(&settle.refund_id) {
                            self.keys.refunds.push(settle.refund_id.clone());
                        }
                    }
                }
            }
            Command::Park(park) => {
                if let Some(id) = self.number(park.order) {
                    self.id(id);
                }
                self.parked(park.order);
            }
            Command::Unpark(id) => {
                if let Some(order) = self.id(id) {
                    self.parked(order.no);
                }
            }
            Command::FlagUnmatched(payment) => self.payment_with_order(payment),
        }
    }

    fn place(&mut self, place: &'a Place) {
        let known = self.id(&place.order_id).is_some();
        if let Some(key) = &place.key {
            match self.rows.order_keys.get(key) {
                Some(Some(id)) => {
                    self.id(id);
                }
                Some(None) => {}
                None => {
                    if self.seen.order_keys.insert(key) {
                        self.keys.order_keys.push(key.clone());
                    }
                }
            }
        }
        if known {
            return;
        }
        for (sku, _) in &place.lines {
            self.sku_of_buyer(sku, &place.buyer_id);
        }
        if let Some(id) = &place.supersedes {
            self.order_with_stock(id);
        }
    }

    fn put(&mut self, put: &'a PutSku) {
        self.sku(&put.sku);
        let Some(row) = self.rows.skus.get(&put.sku) else {
            return;
        };
        let had_limit = row.as_ref().is_some_and(|sku| sku.max_per_buyer.is_some());
        // A limit that is cleared may be set again later in the same batch: the counters must cover what is in between.
        let counts_afresh = match put.patch.max_per_buyer {
            Patch::Keep => false,
            Patch::Set(_) => !had_limit,
            Patch::Clear => had_limit,
        };
        if counts_afresh && !self.rows.recounted.contains(&put.sku) && self.seen.recounts.insert(&put.sku) {
            self.keys.recounts.push(put.sku.clone());
        }
    }

    /// The order with this id, if it is loaded; otherwise the id is asked for.
    fn id(&mut self, id: &'a OrderId) -> Option<&'a Order> {
        match self.rows.ids.get(id) {
            Some(slot) => slot.order.as_ref(),
            None => {
                if self.seen.ids.insert(id) {
                    self.keys.ids.push(id.clone());
                }
                None
            }
        }
    }

    fn number(&mut self, no: OrderNo) -> Option<&'a OrderId> {
        match self.rows.numbers.get(&no) {
            Some(id) => id.as_ref(),
            None => {
                if self.seen.numbers.insert(no) {
                    self.keys.numbers.push(no);
                }
                None
            }
        }
    }

    fn order_with_stock(&mut self, id: &'a OrderId) {
        if let Some(order) = self.id(id) {
            for line in &order.lines {
                self.sku_of_buyer(&line.sku, &order.buyer_id);
            }
        }
    }

    fn sku(&mut self, sku: &'a SkuId) {
        if !self.rows.skus.contains_key(sku) && self.seen.skus.insert(sku) {
            self.keys.skus.push(sku.clone());
        }
    }

    fn sku_of_buyer(&mut self, sku: &'a SkuId, buyer: &'a BuyerId) {
        self.sku(sku);
        if self.rows.counts_buyers(sku)
            && !self.rows.buyers.contains_key(&(sku.clone(), buyer.clone()))
            && self.seen.buyers.insert((sku, buyer))
        {
            self.keys.buyers.push((sku.clone(), buyer.clone()));
        }
    }

    fn payment(&mut self, payment: &'a PaymentId) {
        if !self.rows.payments.contains_key(payment) && self.seen.payments.insert(payment) {
            self.keys.payments.push(payment.clone());
        }
    }

    fn payment_with_order(&mut self, payment: &'a PaymentId) {
        self.payment(payment);
        if let Some(Some(id)) = self.rows.payments.get(payment) {
            self.id(id);
        }
    }

    fn request_key(&mut self, scope: KeyScope, key: &'a IdempotencyKey) {
        if !self.rows.request_keys.contains_key(&(scope, key.clone())) && self.seen.request_keys.insert((scope, key)) {
            self.keys.request_keys.push((scope, key.clone()));
        }
    }

    fn parked(&mut self, no: OrderNo) {
        if !self.rows.parked.contains_key(&no) && self.seen.parked.insert(no) {
            self.keys.parked.push(no);
        }
    }
}
