//! Which column of a file is which.

use crate::failure::{Failure, Result};

/// The columns a replay reads, by their short and their usual name.
const COLUMNS: [(&str, &str); 6] = [
    ("invoice", "InvoiceNo"),
    ("sku", "StockCode"),
    ("quantity", "Quantity"),
    ("date", "InvoiceDate"),
    ("price", "UnitPrice"),
    ("customer", "CustomerID"),
];

/// The columns of the usual header that are not read; naming them in `--map` is allowed.
const UNREAD: [(&str, &str); 2] = [("description", "Description"), ("country", "Country")];

/// The names of the columns to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names([String; 6]);

impl Default for Names {
    fn default() -> Self {
        Self(COLUMNS.map(|(_, usual)| usual.to_owned()))
    }
}

impl Names {
    /// The usual names, changed by `map`: `invoice=order_no,price=unit` (the usual names may stand on the left too).
    ///
    /// # Errors
    /// [`Failure::Usage`] when a pair is none, or names a column there is not.
    pub fn parse(map: Option<&str>) -> Result<Self> {
        let mut names = Self::default();
        for pair in map.into_iter().flat_map(|map| map.split(',')) {
            let Some((column, name)) = pair.split_once('=').filter(|(_, name)| !name.is_empty()) else {
                return Err(Failure::Usage(format!("--map: {pair:?} is not of the form column=name; {}", known())));
            };
            let is = |(short, usual): &(&str, &str)| *short == column || *usual == column;
            match COLUMNS.iter().position(is) {
                Some(at) => names.0[at] = name.to_owned(),
                None if UNREAD.iter().any(is) => {}
                None => return Err(Failure::Usage(format!("--map: there is no column {column:?}; {}", known()))),
            }
        }
        Ok(names)
    }

    /// Where these columns are in a file with this header.
    ///
    /// # Errors
    /// The first column that is missing, or that the header has twice.
    pub fn find(&self, header: &csv::StringRecord) -> std::result::Result<Columns, String> {
        let mut at = [0; 6];
        for (slot, name) in at.iter_mut().zip(&self.0) {
            let mut places = header.iter().enumerate().filter(|(_, title)| *title == name).map(|(i, _)| i);
            *slot = places.next().ok_or_else(|| {
                let has: Vec<&str> = header.iter().collect();
                format!("the header has no column {name:?}; it has {has:?}; name the columns with --map (such as --map invoice={:?})", has.first().copied().unwrap_or("order_no"))
            })?;
            if places.next().is_some() {
                return Err(format!("the header has two columns {name:?}"));
            }
        }
        Ok(Columns { count: header.len(), at })
    }
}

fn known() -> String {
    let names: Vec<_> = COLUMNS.iter().chain(&UNREAD).map(|(short, _)| *short).collect();
    format!("the columns are {}", names.join(", "))
}

/// Where the columns of one file are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Columns {
    count: usize,
    at: [usize; 6],
}

/// The fields of a row that are read, as they stand in the file.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a> {
    /// The invoice number.
    pub invoice: &'a str,
    /// The stock code.
    pub sku: &'a str,
    /// Units.
    pub quantity: &'a str,
    /// When.
    pub date: &'a str,
    /// Price of one unit.
    pub price: &'a str,
    /// Who; may be empty.
    pub customer: &'a str,
}

impl Columns {
    /// The fields of `row`, or `None` when it has more or fewer than the header.
    pub fn fields<'a>(&self, row: &'a csv::StringRecord) -> Option<Fields<'a>> {
        let [invoice, sku, quantity, date, price, customer] = self.at.map(|i| row.get(i).unwrap_or_default());
        (row.len() == self.count).then_some(Fields { invoice, sku, quantity, date, price, customer })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps() {
        let header =
            csv::StringRecord::from(vec!["no", "StockCode", "q", "InvoiceDate", "UnitPrice", "CustomerID", "note"]);
        let names = Names::parse(Some("invoice=no,Quantity=q,description=note")).unwrap();
        assert_eq!(names.find(&header).unwrap().at, [0, 1, 2, 3, 4, 5]);
        assert!(Names::default().find(&header).unwrap_err().contains("InvoiceNo"));
        for wrong in ["a", "a=b", "invoice=", ""] {
            assert!(matches!(Names::parse(Some(wrong)), Err(Failure::Usage(_))), "{wrong}");
        }
    }
}
