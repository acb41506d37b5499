//! What each buyer will do: decided by the seed before the sale begins, so that a run can be repeated.

use crate::load::random::Random;

/// Share of the orders that come at once when the sale opens; the others come when the first holds run out.
const RUSH: f64 = 0.7;
/// Share of orders that are sent twice at the same moment.
const DOUBLE_CLICK: f64 = 0.04;
/// Half of all orders want one of this share of the SKUs.
const HOT: f64 = 0.2;
/// Of those who pay: who pays twice, and who pays in the last moment.
const PAYS_TWICE: f64 = 0.03;
const RACES: f64 = 0.05;
/// Of those who do not: who pays too late, and who cancels.
const LATE: f64 = 0.3;
const CANCELS: f64 = 0.2;

/// The sale, as the flags describe it.
#[derive(Debug, Clone, Copy)]
pub struct Sale {
    /// Orders in all.
    pub orders: u64,
    /// Buyers who share them.
    pub buyers: u64,
    /// SKUs on sale.
    pub skus: u64,
    /// Share of accepted orders that are paid in time.
    pub pay_ratio: f64,
    /// Hold, milliseconds.
    pub hold_ms: u64,
    /// Decides everything.
    pub seed: u64,
}

/// One order of one buyer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visit {
    /// Which, from 0.
    pub number: u64,
    /// Who.
    pub buyer: u64,
    /// Which SKU, from 0.
    pub sku: u64,
    /// How many.
    pub quantity: i64,
    /// Sent twice at the same moment.
    pub twice: bool,
    /// What happens if it is accepted.
    pub then: Then,
}

/// What a buyer does with an accepted order. Times in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// Pays after this long; `again` sends the same payment once more.
    Pay {
        /// Since the answer.
        after: u64,
        /// Whether the payment is reported twice.
        again: bool,
    },
    /// Pays in the moment of the deadline, this far from it.
    Race {
        /// Before (negative) or after.
        offset: i64,
    },
    /// Pays this long after the deadline.
    PayLate {
        /// Since the deadline.
        after: u64,
    },
    /// Cancels after this long.
    Cancel {
        /// Since the answer.
        after: u64,
    },
    /// Never comes back.
    Abandon,
}

impl Sale {
    /// Orders of the first rush.
    pub fn rush(&self) -> u64 {
        (self.orders as f64 * RUSH).ceil() as u64
    }

    /// What happens with order `number`.
    pub fn visit(&self, number: u64) -> Visit {
        let mut random = Random::of(self.seed, number);
        let hot = ((self.skus as f64 * HOT).ceil() as u64).max(1);
        let buyer = random.below(self.buyers);
        let sku = if random.chance(0.5) { random.below(hot) } else { random.below(self.skus) };
        let quantity = [1, 1, 1, 2, 2, 3][random.below(6) as usize];
        let twice = random.chance(DOUBLE_CLICK);
        let half = (self.hold_ms / 2).max(1);
        let then = if random.chance(self.pay_ratio) {
            match random.unit() {
                share if share < RACES => Then::Race { offset: random.below(31) as i64 - 15 },
                share => Then::Pay { after: random.below(half), again: share < RACES + PAYS_TWICE },
            }
        } else {
            match random.unit() {
                share if share < LATE => Then::PayLate { after: 20 + random.below(half) },
                share if share < LATE + CANCELS => Then::Cancel { after: random.below(half) },
                _ => Then::Abandon,
            }
        };
        Visit { number, buyer, sku, quantity, twice, then }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALE: Sale = Sale { orders: 20_000, buyers: 5_000, skus: 20, pay_ratio: 0.6, hold_ms: 3_000, seed: 1 };

    #[test]
    fn a_seed_decides_everything() {
        for number in [0, 1, 19_999] {
            assert_eq!(SALE.visit(number), SALE.visit(number));
        }
        let other = Sale { seed: 2, ..SALE };
        assert!((0..100).any(|n| SALE.visit(n) != other.visit(n)));
    }

    #[test]
    fn every_kind_of_buyer_comes() {
        let visits: Vec<_> = (0..SALE.orders).map(|n| SALE.visit(n)).collect();
        let share = |is: fn(&Visit) -> bool| visits.iter().filter(|v| is(v)).count() as f64 / visits.len() as f64;
        for (is, want) in [
            ((|v| matches!(v.then, Then::Pay { .. } | Then::Race { .. })) as fn(&Visit) -> bool, 0.6),
            (|v| matches!(v.then, Then::Pay { again: true, .. }), 0.018),
            (|v| matches!(v.then, Then::Race { .. }), 0.03),
            (|v| matches!(v.then, Then::PayLate { .. }), 0.12),
            (|v| matches!(v.then, Then::Cancel { .. }), 0.08),
            (|v| v.then == Then::Abandon, 0.2),
            (|v| v.twice, 0.04),
            (|v| v.sku < 4, 0.6),
        ] {
            let got = share(is);
            assert!((got - want).abs() < 0.02, "{got} for {want}");
        }
        assert!(visits.iter().all(|v| v.buyer < 5_000 && v.sku < 20 && (1..=3).contains(&v.quantity)));
    }
}
