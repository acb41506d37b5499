//! A workload: random commands over few ids, so that they collide; the same entropy gives the same commands.

use tidegate_core::command::{Adjust, Cancel, Extend, Park, Pay, Place, PutSku, RefundPayment, SettleRefund};
use tidegate_core::request::PlaceRequest;
use tidegate_core::{
    BuyerId, Command, Currency, IdempotencyKey, Money, OrderId, OrderNo, Patch, PaymentId, RefundId, Settings, SkuId,
    SkuPatch,
};

/// Where choices come from: a seeded generator, or a list that a property test can shrink.
pub trait Entropy {
    /// A number below `n` (`n >= 1`).
    fn below(&mut self, n: u64) -> u64;
}

impl<R: rand::RngCore> Entropy for R {
    fn below(&mut self, n: u64) -> u64 {
        self.next_u64() % n
    }
}

/// Choices from a list; 0 when it is used up.
#[derive(Debug)]
pub struct Listed<'a>(pub std::slice::Iter<'a, u32>);

impl Listed<'_> {
    /// Whether the list is used up.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.as_slice().is_empty()
    }
}

/// Makes random commands.
#[derive(Debug)]
pub struct Workload {
    settings: Settings,
    /// How many different SKUs, buyers, orders, payments are named.
    pub skus: u64,
    /// Different buyers.
    pub buyers: u64,
    /// Different order ids.
    pub orders: u64,
    /// Different payment ids.
    pub payments: u64,
}

/// A SKU of the workload.
#[must_use]
pub fn sku(i: u64) -> SkuId {
    SkuId::parse(&format!("sku-{i}")).expect("letters and digits")
}

/// A buyer of the workload.
#[must_use]
pub fn buyer(i: u64) -> BuyerId {
    BuyerId::parse(&format!("buyer-{i}")).expect("letters and digits")
}

/// An order id of the workload.
#[must_use]
pub fn order(i: u64) -> OrderId {
    OrderId::parse(&format!("order-{i}")).expect("letters and digits")
}

/// A payment id of the workload.
#[must_use]
pub fn payment(i: u64) -> PaymentId {
    PaymentId::parse(&format!("payment-{i}")).expect("letters and digits")
}

fn key(i: u64) -> IdempotencyKey {
    IdempotencyKey::parse(&format!("key-{i}")).expect("letters and digits")
}

/// Euro cents.
#[must_use]
pub fn euro(amount: i64) -> Money {
    Money { amount, currency: Currency::parse("EUR").expect("ISO 4217 lists it") }
}

impl Workload {
    /// A small world in which almost everything collides.
    #[must_use]
    pub fn small(settings: Settings) -> Self {
        Self { settings, skus: 4, buyers: 3, orders: 24, payments: 30 }
    }

    /// The next command.
    pub fn command(&self, e: &mut impl Entropy) -> Command {
        match e.below(100) {
            0..=37 => Command::Place(self.place(e)),
            38..=57 => Command::Pay(self.pay(e)),
            58..=65 => Command::Cancel(Cancel {
                order_id: order(e.below(self.orders)),
                reason: (e.below(3) == 0).then(|| "changed my mind".to_owned()),
                restock: e.below(3) != 0,
            }),
            66..=75 => Command::Expire(OrderNo(1 + i64::try_from(e.below(self.orders)).expect("small"))),
            76..=79 => Command::Extend(Extend {
                order_id: order(e.below(self.orders)),
                hold_seconds: 1 + i64::try_from(e.below(100_000)).expect("small"),
            }),
            80..=83 => Command::Fulfil(order(e.below(self.orders))),
            84..=90 => Command::PutSku(self.put(e)),
            91..=94 => Command::Adjust(Adjust {
                sku: sku(e.below(self.skus)),
                delta: [-3, -1, 1, 2, 5][usize::try_from(e.below(5)).expect("small")],
                reason: "counted".to_owned(),
                key: key(e.below(60)),
            }),
            95 => Command::ArchiveSku(sku(e.below(self.skus))),
            96 => Command::RefundPayment(RefundPayment {
                payment_id: payment(e.below(self.payments)),
                key: (e.below(2) == 0).then(|| key(e.below(9))),
            }),
            97 => Command::SettleRefund(SettleRefund {
                refund_id: RefundId::parse(&format!("r{}", 1 + e.below(9))).expect("letters and digits"),
                key: (e.below(2) == 0).then(|| key(e.below(9))),
            }),
            98 => Command::Park(Park {
                order: OrderNo(1 + i64::try_from(e.below(self.orders)).expect("small")),
                tries: 20,
                reason: "test".to_owned(),
            }),
            _ => match e.below(2) {
                0 => Command::Unpark(order(e.below(self.orders))),
                _ => Command::FlagUnmatched(payment(e.below(self.payments))),
            },
        }
    }

    fn place(&self, e: &mut impl Entropy) -> Place {
        let id = order(e.below(self.orders));
        let chosen = e.below(5) != 0;
        let count = 1 + e.below(3);
        let lines = (0..count)
            .map(|_| (sku(e.below(self.skus)).to_string(), 1 + i64::try_from(e.below(3)).expect("small")))
            .collect();
        let request = PlaceRequest {
            order_id: chosen.then(|| id.to_string()),
            key: (!chosen || e.below(3) == 0).then(|| key(e.below(20))),
            buyer_id: buyer(e.below(self.buyers)).to_string(),
            lines,
            hold_seconds: (e.below(4) == 0).then_some(60),
            supersedes: (e.below(6) == 0).then(|| order(e.below(self.orders)).to_string()),
            metadata: None,
        };
        let fresh = format!("made-{:x}", e.below(u64::MAX));
        request
            .check(&self.settings, || OrderId::parse(&fresh).expect("letters and digits"))
            .expect("the workload makes valid requests")
    }

    fn pay(&self, e: &mut impl Entropy) -> Pay {
        Pay {
            order_id: order(e.below(self.orders)),
            payment_id: payment(e.below(self.payments)),
            amount: (e.below(2) == 0).then(|| 1 + i64::try_from(e.below(4_000)).expect("small")),
            currency: match e.below(8) {
                0 => Currency::parse("GBP"),
                1..=4 => Currency::parse("EUR"),
                _ => None,
            },
            captured_at: None,
        }
    }

    fn put(&self, e: &mut impl Entropy) -> PutSku {
        let mut patch = SkuPatch::default();
        match e.below(6) {
            0 => patch.price = Patch::Set(euro(i64::try_from(e.below(3)).expect("small") * 500)),
            1 => {
                patch.max_per_buyer = if e.below(3) == 0 {
                    Patch::Clear
                } else {
                    Patch::Set(1 + i64::try_from(e.below(4)).expect("small"))
                }
            }
            2 => {
                patch.max_per_order = if e.below(3) == 0 {
                    Patch::Clear
                } else {
                    Patch::Set(1 + i64::try_from(e.below(4)).expect("small"))
                }
            }
            3 => patch.hold_seconds = Patch::Set(120),
            _ => {}
        }
        PutSku {
            sku: sku(e.below(self.skus)),
            patch,
            on_hand: (e.below(2) == 0).then(|| i64::try_from(e.below(12)).expect("small")),
            if_version: None,
        }
    }
}
