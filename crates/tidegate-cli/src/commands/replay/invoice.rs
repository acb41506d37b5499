//! An invoice, put together from its rows.

use std::io;

use tidegate::core::order::{MAX_LINES, MAX_QUANTITY};
use tidegate::core::{BuyerId, Map, SkuId};

use super::index::Entry;
use super::reason::{Place, Reason};
use super::row::{Row, is_cancellation};
use super::source::{Input, Source};

/// A line: rows of one SKU, added up, in order of first appearance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The SKU.
    pub sku: SkuId,
    /// Units.
    pub quantity: i64,
    /// Minor units for one.
    pub price: i64,
    /// The rows it is made of.
    pub rows: Vec<Place>,
}

/// An invoice: an order, or a cancellation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invoice {
    /// Its number.
    pub number: String,
    /// When, milliseconds since 1970.
    pub at: i64,
    /// The customer, if its rows name one.
    pub customer: Option<BuyerId>,
    /// Its lines.
    pub lines: Vec<Line>,
}

impl Invoice {
    /// Whether it cancels.
    pub fn is_cancellation(&self) -> bool {
        is_cancellation(&self.number)
    }

    /// Who buys: the customer, or a guest of this invoice alone.
    pub fn buyer(&self) -> String {
        self.customer.as_ref().map_or_else(|| format!("guest-{}", self.number), ToString::to_string)
    }

    /// Sum of the lines in minor units, as the file says.
    pub fn total(&self) -> i128 {
        self.lines.iter().map(|line| i128::from(line.price) * i128::from(line.quantity)).sum()
    }

    /// Rows it is made of.
    pub fn rows(&self) -> u64 {
        self.lines.iter().map(|line| line.rows.len() as u64).sum()
    }

    /// Reads the rows of `entry` from `sources`. Rows that contradict the invoice are given to `unusable`; rows that
    /// cannot be used on their own account were told at the first reading and are passed over. `None`: no row is left.
    ///
    /// # Errors
    /// When a file cannot be read or has changed since, or `unusable` says so.
    pub fn read<R: Input, E: From<io::Error>>(
        entry: &Entry,
        sources: &mut [Source<R>],
        digits: u32,
        mut unusable: impl FnMut(Place, Reason) -> Result<(), E>,
    ) -> Result<Option<Self>, E> {
        let mut building = Building::default();
        for stretch in &entry.stretches {
            let source = sources.get_mut(stretch.file as usize).ok_or_else(changed)?;
            let columns = source.columns();
            source.seek(stretch.mark)?;
            for _ in 0..stretch.rows {
                let record = source.next()?.ok_or_else(changed)?;
                let text = record.fields.ok_or_else(changed)?;
                let fields = columns.fields(&text).ok_or_else(changed)?;
                if fields.invoice != &*entry.number {
                    return Err(changed().into());
                }
                let Ok(row) = Row::read(&fields, digits) else { continue };
                let place = Place { file: stretch.file, line: record.line };
                if let Err(reason) = building.add(row, place) {
                    unusable(place, reason)?;
                }
            }
        }
        let Building { customer, lines, .. } = building;
        let invoice = Self { number: entry.number.to_string(), at: entry.at, customer: customer.flatten(), lines };
        Ok((!invoice.lines.is_empty()).then_some(invoice))
    }
}

fn changed() -> io::Error {
    io::Error::other("the file has changed while it was read; run the replay again on a file that stays as it is")
}

#[derive(Default)]
struct Building {
    /// The customer of the first row (`Some(None)`: it names none).
    customer: Option<Option<BuyerId>>,
    lines: Vec<Line>,
    line_of: Map<SkuId, usize>,
}

impl Building {
    fn add(&mut self, row: Row, place: Place) -> Result<(), Reason> {
        if self.customer.as_ref().is_some_and(|customer| *customer != row.customer) {
            return Err(Reason::OtherCustomer);
        }
        match self.line_of.get(&row.sku) {
            Some(&at) => {
                let line = &mut self.lines[at];
                if line.price != row.price {
                    return Err(Reason::SecondPrice);
                }
                if line.quantity + row.quantity > MAX_QUANTITY {
                    return Err(Reason::OrderTooLarge);
                }
                line.quantity += row.quantity;
                line.rows.push(place);
            }
            None if self.lines.len() == MAX_LINES => return Err(Reason::OrderTooLarge),
            None => {
                self.line_of.insert(row.sku.clone(), self.lines.len());
                self.lines.push(Line { sku: row.sku, quantity: row.quantity, price: row.price, rows: vec![place] });
            }
        }
        self.customer.get_or_insert(row.customer);
        Ok(())
    }
}
