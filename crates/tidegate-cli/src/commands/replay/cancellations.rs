//! Which order a cancellation means.
//!
//! A row of a cancellation is matched to the same customer's latest earlier order with that SKU that is not cancelled
//! yet. Rows of one cancellation that mean the same order belong together; together they must be the whole order.

use tidegate::core::{BuyerId, Map, Set, SkuId};

use super::invoice::{Invoice, Line};
use super::reason::{Place, Reason};

/// The orders of customers who cancel something, by customer, oldest first.
#[derive(Debug, Default)]
pub struct Orders {
    cancelling: Set<BuyerId>,
    of: Map<BuyerId, Vec<Known>>,
}

#[derive(Debug)]
struct Known {
    number: String,
    accepted: bool,
    cancelled: bool,
    units: Map<SkuId, i64>,
}

/// What a cancellation does.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Matched {
    /// Orders to cancel, with the rows that say so.
    pub cancel: Vec<(String, Vec<Place>)>,
    /// Rows that cannot be used.
    pub unusable: Vec<(Place, Reason)>,
}

impl Orders {
    /// No orders yet. Only those of customers who cancel something (`cancelling`) will be remembered.
    pub fn of(cancelling: Set<BuyerId>) -> Self {
        Self { cancelling, of: Map::default() }
    }

    /// Remembers an order of `customer`; `accepted` is whether the server took it.
    pub fn placed(&mut self, invoice: &Invoice, accepted: bool) {
        let Some(customer) = invoice.customer.as_ref().filter(|customer| self.cancelling.contains(*customer)) else {
            return;
        };
        let units = invoice.lines.iter().map(|line| (line.sku.clone(), line.quantity)).collect();
        let known = Known { number: invoice.number.clone(), accepted, cancelled: false, units };
        self.of.entry(customer.clone()).or_default().push(known);
    }

    /// Matches a cancellation to the orders before it; those it covers count as cancelled from now on.
    pub fn cancel(&mut self, cancellation: &Invoice) -> Matched {
        let mut matched = Matched::default();
        let known = cancellation.customer.as_ref().and_then(|customer| self.of.get_mut(customer));
        let mut meant: Vec<(usize, Vec<&Line>)> = Vec::new();
        let orders = known.map(Vec::as_mut_slice).unwrap_or_default();
        for line in &cancellation.lines {
            let latest = orders.iter().rposition(|order| !order.cancelled && order.units.contains_key(&line.sku));
            match latest {
                None => unusable(&mut matched, [line], Reason::CancellationWithoutOrder),
                Some(order) => match meant.iter_mut().find(|(at, _)| *at == order) {
                    Some((_, lines)) => lines.push(line),
                    None => meant.push((order, vec![line])),
                },
            }
        }
        for (at, lines) in meant {
            let order = &mut orders[at];
            match verdict(order, &lines) {
                Ok(()) => {
                    order.cancelled = true;
                    let rows = lines.iter().flat_map(|line| line.rows.iter().copied()).collect();
                    matched.cancel.push((order.number.clone(), rows));
                }
                Err(reason) => unusable(&mut matched, lines, reason),
            }
        }
        matched
    }
}

fn unusable<'a>(matched: &mut Matched, lines: impl IntoIterator<Item = &'a Line>, reason: Reason) {
    let rows = lines.into_iter().flat_map(|line| &line.rows);
    matched.unusable.extend(rows.map(|place| (*place, reason)));
}

fn verdict(order: &Known, lines: &[&Line]) -> Result<(), Reason> {
    let of_line = |line: &&Line| order.units.get(&line.sku).copied().unwrap_or(0);
    if lines.iter().any(|line| line.quantity > of_line(line)) {
        Err(Reason::ExcessCancellation)
    } else if lines.len() < order.units.len() || lines.iter().any(|line| line.quantity < of_line(line)) {
        Err(Reason::PartialCancellation)
    } else if !order.accepted {
        Err(Reason::CancellationOfRefusedOrder)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invoice(number: &str, customer: &str, lines: &[(&str, i64)]) -> Invoice {
        let line = |(i, (sku, quantity)): (usize, &(&str, i64))| Line {
            sku: SkuId::parse(sku).unwrap(),
            quantity: *quantity,
            price: 1,
            rows: vec![Place { file: 0, line: i as u64 }],
        };
        let customer = BuyerId::parse(customer).ok();
        Invoice { number: number.to_owned(), at: 0, customer, lines: lines.iter().enumerate().map(line).collect() }
    }

    fn everyone() -> Orders {
        Orders::of(["ann", "eve"].into_iter().map(|name| BuyerId::parse(name).unwrap()).collect())
    }

    #[test]
    fn matching() {
        use Reason::{
            CancellationOfRefusedOrder as Refused, CancellationWithoutOrder as Without, ExcessCancellation as Excess,
            PartialCancellation as Partial,
        };
        type Case<'a> = (&'a str, &'a [(&'a str, i64)], &'a [&'a str], &'a [Reason]);
        let cases: &[Case] = &[
            ("ann", &[("A", 6), ("B", 1)], &["2"], &[]),
            ("ann", &[("B", 1), ("A", 6)], &["2"], &[]),
            ("ann", &[("A", 6)], &[], &[Partial]),
            ("ann", &[("A", 5), ("B", 1)], &[], &[Partial, Partial]),
            ("ann", &[("A", 7), ("B", 1)], &[], &[Excess, Excess]),
            ("ann", &[("Z", 1)], &[], &[Without]),
            ("ann", &[("C", 2), ("Z", 1)], &["1"], &[Without]),
            ("ann", &[("C", 2), ("A", 6), ("B", 1)], &["1", "2"], &[]),
            ("bob", &[("A", 6), ("B", 1)], &[], &[Without, Without]),
            ("", &[("A", 6), ("B", 1)], &[], &[Without, Without]),
            ("eve", &[("A", 1)], &[], &[Refused]),
        ];
        for (customer, lines, cancelled, reasons) in cases {
            let mut orders = everyone();
            orders.placed(&invoice("1", "ann", &[("C", 2)]), true);
            orders.placed(&invoice("2", "ann", &[("A", 6), ("B", 1)]), true);
            orders.placed(&invoice("3", "eve", &[("A", 1)]), false);
            let matched = orders.cancel(&invoice("C9", customer, lines));
            let numbers: Vec<_> = matched.cancel.iter().map(|(number, _)| number.as_str()).collect();
            let why: Vec<_> = matched.unusable.iter().map(|(_, reason)| *reason).collect();
            assert_eq!((numbers.as_slice(), why.as_slice()), (*cancelled, *reasons), "{customer} {lines:?}");
        }
    }

    #[test]
    fn the_latest_order_first_then_the_one_before() {
        let mut orders = everyone();
        orders.placed(&invoice("1", "ann", &[("A", 6)]), true);
        orders.placed(&invoice("2", "ann", &[("A", 6)]), true);
        for want in [Some("2"), Some("1"), None] {
            let matched = orders.cancel(&invoice("C", "ann", &[("A", 6)]));
            assert_eq!(matched.cancel.first().map(|(number, _)| number.as_str()), want);
        }
    }
}
