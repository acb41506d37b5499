//! What a replay will do, from two readings of the files: the invoices in order of time, what they sell in all, and
//! who cancels something. Memory grows with invoices and SKUs, not with rows.

use std::fs::File;
use std::path::PathBuf;

use tidegate::core::{BuyerId, Currency, Map, Set, SkuId};

use super::columns::Names;
use super::index::{Entry, Index};
use super::invoice::Invoice;
use super::source::{self, Source};
use super::unusable::Unusable;
use crate::failure::{Failure, Result};
use crate::progress::Progress;

/// The files, ready to be read a last time, and what they hold.
pub struct Plan {
    /// The files.
    pub sources: Vec<Source<File>>,
    /// Their invoices in order of time.
    pub entries: Vec<Entry>,
    /// Every SKU that is sold, in order of first appearance.
    pub skus: Vec<Sold>,
    /// Customers who cancel something.
    pub cancelling: Set<BuyerId>,
    /// Rows there are, the header not counted.
    pub rows: u64,
    /// Invoices that are orders.
    pub orders: u64,
    /// Invoices that are cancellations.
    pub cancellations: u64,
    /// Orders without a customer.
    pub guests: u64,
}

/// What is sold of a SKU.
#[derive(Debug, Clone)]
pub struct Sold {
    /// The SKU.
    pub sku: SkuId,
    /// Units in all.
    pub units: i64,
    /// The first price, minor units.
    pub price: i64,
}

impl Plan {
    /// Reads `files` twice. What cannot be used is noted in `unusable`.
    ///
    /// # Errors
    /// [`Failure::Usage`] for a file that cannot be opened or has no such columns; [`Failure::Work`].
    pub fn read(
        files: &[PathBuf],
        names: &Names,
        currency: Currency,
        unusable: &mut Unusable,
        quiet: bool,
    ) -> Result<Self> {
        let digits = currency.minor_digits();
        let progress = Progress::new("reading", Some(files.len() as u64), quiet);
        let mut sources = Vec::with_capacity(files.len());
        let mut index = Index::default();
        for (at, path) in files.iter().enumerate() {
            let mut source = source::open(path, names)?;
            let file = u32::try_from(at).map_err(|_| Failure::Usage("too many files".to_owned()))?;
            index
                .add(file, &mut source, digits, |place, reason| unusable.add(place, reason).map_err(Fault::from))
                .map_err(|fault| fault.at(path))?;
            sources.push(source);
            progress.add(1);
        }
        let rows = index.rows;
        let mut plan = Self {
            sources,
            entries: index.in_time_order(),
            skus: Vec::new(),
            cancelling: Set::default(),
            rows,
            orders: 0,
            cancellations: 0,
            guests: 0,
        };
        plan.second_reading(digits, unusable).map_err(|fault| fault.at(std::path::Path::new("a file")))?;
        Ok(plan)
    }

    fn second_reading(&mut self, digits: u32, unusable: &mut Unusable) -> std::result::Result<(), Fault> {
        let mut at_of: Map<SkuId, usize> = Map::default();
        for entry in &self.entries {
            let Some(invoice) = Invoice::read(entry, &mut self.sources, digits, |place, reason| {
                unusable.add(place, reason).map_err(Fault::from)
            })?
            else {
                continue;
            };
            if invoice.is_cancellation() {
                self.cancellations += 1;
                self.cancelling.extend(invoice.customer);
                continue;
            }
            self.orders += 1;
            self.guests += u64::from(invoice.customer.is_none());
            for line in invoice.lines {
                let at = *at_of.entry(line.sku.clone()).or_insert_with(|| {
                    self.skus.push(Sold { sku: line.sku, units: 0, price: line.price });
                    self.skus.len() - 1
                });
                self.skus[at].units = self.skus[at].units.saturating_add(line.quantity);
            }
        }
        Ok(())
    }
}

/// A file that cannot be read, or a note that cannot be written.
pub enum Fault {
    /// The file.
    Read(std::io::Error),
    /// The note.
    Note(Failure),
}

impl Fault {
    /// As a failure of the command, about `path`.
    pub fn at(self, path: &std::path::Path) -> Failure {
        match self {
            Fault::Read(e) => Failure::Work(format!("{}: {e}", path.display())),
            Fault::Note(failure) => failure,
        }
    }
}

impl From<std::io::Error> for Fault {
    fn from(e: std::io::Error) -> Self {
        Fault::Read(e)
    }
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Self {
        Fault::Note(failure)
    }
}

#[cfg(test)]
mod tests {
    use super::super::reason::Reason;
    use super::*;

    const HEADER: &str = "InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country\n";

    fn plan(texts: &[&str]) -> (Plan, Unusable) {
        let folder = tempfile::tempdir().unwrap();
        let files: Vec<PathBuf> = (0..texts.len()).map(|i| folder.path().join(format!("{i}.csv"))).collect();
        for (file, text) in files.iter().zip(texts) {
            std::fs::write(file, format!("{HEADER}{text}")).unwrap();
        }
        let mut unusable = Unusable::new(&files, None).unwrap();
        let plan = Plan::read(&files, &Names::default(), Currency::parse("GBP").unwrap(), &mut unusable, true).unwrap();
        (plan, unusable)
    }

    fn read(plan: &mut Plan) -> Vec<Invoice> {
        let never = |_, _| Ok::<(), std::io::Error>(());
        plan.entries.iter().filter_map(|e| Invoice::read(e, &mut plan.sources, 2, never).unwrap()).collect()
    }

    #[test]
    fn invoices_come_in_order_of_time_with_their_rows_together() {
        let (mut plan, unusable) = plan(&[
            "2,A,\"x, y\",1,2010-12-01 09:00:00,2.5,17,UK\n1,A,,2,2010-12-01 08:00:00,2.5,17,UK\n2,B,\"3\"\" nail\",3,2010-12-01 09:00:00,1,17,UK\n",
            "C3,A,,-2,2010-12-01 10:00:00,2.5,17,UK\n4,A,,5,2010-12-01 08:30:00,3,,UK\n4,A,,1,2010-12-01 08:30:00,3,,UK\n",
        ]);
        assert_eq!((plan.rows, plan.orders, plan.cancellations, plan.guests, unusable.total()), (6, 3, 1, 1, 0));
        let invoices = read(&mut plan);
        let numbers: Vec<_> = invoices.iter().map(|i| i.number.as_str()).collect();
        assert_eq!(numbers, ["1", "4", "2", "C3"]);
        assert_eq!(invoices[1].buyer(), "guest-4");
        assert_eq!((invoices[1].lines.len(), invoices[1].lines[0].quantity, invoices[1].total()), (1, 6, 1_800));
        assert_eq!((invoices[2].lines.len(), invoices[2].total(), invoices[2].buyer().as_str()), (2, 550, "17"));
        let sold: Vec<_> = plan.skus.iter().map(|s| (s.sku.as_str(), s.units, s.price)).collect();
        assert_eq!(sold, [("A", 9, 250), ("B", 3, 100)]);
    }

    #[test]
    fn rows_that_contradict_their_invoice_are_told_with_their_line() {
        let (mut plan, unusable) = plan(&[
            "1,A,,1,2010-12-01 09:00:00,2.5,17,UK\n1,A,,1,2010-12-01 09:00:00,2.6,17,UK\n1,B,,1,2010-12-01 09:00:00,1,18,UK\n1,C\n1,D,,-1,2010-12-01 09:00:00,0,17,UK\n9,D,,0,2010-12-01 09:00:00,1,17,UK\n",
        ]);
        let counts: Vec<_> = unusable.counts().iter().map(|(reason, n)| (*reason, *n)).collect();
        assert_eq!(
            counts,
            [
                (Reason::WrongColumns, 1),
                (Reason::BadQuantity, 1),
                (Reason::NegativeQuantity, 1),
                (Reason::OtherCustomer, 1),
                (Reason::SecondPrice, 1)
            ]
        );
        assert_eq!(unusable.listed(Reason::SecondPrice), "0.csv:3");
        assert_eq!(unusable.listed(Reason::WrongColumns), "0.csv:5");
        assert_eq!(read(&mut plan).len(), 1);
    }
}
