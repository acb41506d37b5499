//! One row, taken as it stands or not at all.

use tidegate::core::order::MAX_QUANTITY;
use tidegate::core::{BuyerId, OrderId, SkuId};

use super::columns::Fields;
use super::price::{PriceFault, minor_units};
use super::reason::Reason;

/// A row that can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The SKU.
    pub sku: SkuId,
    /// Units, above zero (for a cancellation: units taken back).
    pub quantity: i64,
    /// When, milliseconds since 1970 (a date without a zone is read as UTC; only differences matter).
    pub at: i64,
    /// Minor units; 0 for a cancellation, whose price means nothing.
    pub price: i64,
    /// The customer, if the row names one.
    pub customer: Option<BuyerId>,
}

/// Whether the invoice is a cancellation.
pub fn is_cancellation(invoice: &str) -> bool {
    invoice.starts_with('C')
}

impl Row {
    /// Reads `fields` with prices of `digits` minor digits.
    ///
    /// # Errors
    /// The first reason that applies.
    pub fn read(fields: &Fields<'_>, digits: u32) -> Result<Self, Reason> {
        OrderId::parse(fields.invoice).map_err(|_| Reason::BadInvoice)?;
        let sku = SkuId::parse(fields.sku).map_err(|_| Reason::BadSku)?;
        let cancellation = is_cancellation(fields.invoice);
        let quantity = match (whole(fields.quantity).ok_or(Reason::BadQuantity)?, cancellation) {
            (0, _) => return Err(Reason::BadQuantity),
            (q, false) if q < 0 => return Err(Reason::NegativeQuantity),
            (q, true) if q > 0 => return Err(Reason::PositiveCancellation),
            (q, _) if q.unsigned_abs() > MAX_QUANTITY.unsigned_abs() => return Err(Reason::QuantityTooLarge),
            (q, _) => q.abs(),
        };
        let at = instant(fields.date).ok_or(Reason::BadDate)?;
        let price = if cancellation { 0 } else { minor_units(fields.price, digits).map_err(Reason::from)? };
        let customer = match fields.customer {
            "" => None,
            text => Some(BuyerId::parse(text).map_err(|_| Reason::BadCustomer)?),
        };
        Ok(Self { sku, quantity, at, price, customer })
    }
}

impl From<PriceFault> for Reason {
    fn from(fault: PriceFault) -> Self {
        match fault {
            PriceFault::Bad => Reason::BadPrice,
            PriceFault::Negative => Reason::NegativePrice,
            PriceFault::Zero => Reason::ZeroPrice,
        }
    }
}

/// A whole number in plain digits, optionally with a `-`.
fn whole(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| text.parse().unwrap_or(i64::MAX))
}

/// An instant in a form that means one thing only. `12/1/2010` does not: it is no date here.
fn instant(text: &str) -> Option<i64> {
    if let Ok(at) = text.parse::<jiff::Timestamp>() {
        return Some(at.as_millisecond());
    }
    let shape_is_plain = text.is_ascii() && text.len() >= 16 && text.as_bytes()[4] == b'-';
    if !shape_is_plain || text.contains('[') {
        return None;
    }
    let local: jiff::civil::DateTime = text.parse().ok()?;
    jiff::tz::TimeZone::UTC.to_timestamp(local).ok().map(|at| at.as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(invoice: &str, sku: &str, quantity: &str, date: &str, price: &str, customer: &str) -> Result<Row, Reason> {
        Row::read(&Fields { invoice, sku, quantity, date, price, customer }, 2)
    }

    #[test]
    fn reasons() {
        let date = "2010-12-01 08:26:00";
        for (invoice, sku, quantity, date, price, customer, want) in [
            ("536365", "85123A", "6", date, "2.55", "17850.0", None),
            ("536365", "gift_0001_20", "6", "2010-12-01T08:26:00Z", "2.5", "", None),
            ("C536379", "D", "-1", date, "27.5", "14527.0", None),
            ("C536379", "D", "-1", date, "free", "14527.0", None),
            ("", "A", "1", date, "1", "1", Some(Reason::BadInvoice)),
            ("53 65", "A", "1", date, "1", "1", Some(Reason::BadInvoice)),
            ("1", " A", "1", date, "1", "1", Some(Reason::BadSku)),
            ("1", "A ", "1", date, "1", "1", Some(Reason::BadSku)),
            ("1", "", "1", date, "1", "1", Some(Reason::BadSku)),
            ("1", "A", "1.0", date, "1", "1", Some(Reason::BadQuantity)),
            ("1", "A", "+1", date, "1", "1", Some(Reason::BadQuantity)),
            ("1", "A", "", date, "1", "1", Some(Reason::BadQuantity)),
            ("1", "A", "0", date, "1", "1", Some(Reason::BadQuantity)),
            ("1", "A", "-3", date, "1", "1", Some(Reason::NegativeQuantity)),
            ("C1", "A", "3", date, "1", "1", Some(Reason::PositiveCancellation)),
            ("1", "A", "1000001", date, "1", "1", Some(Reason::QuantityTooLarge)),
            ("1", "A", "99999999999999999999", date, "1", "1", Some(Reason::QuantityTooLarge)),
            ("1", "A", "1", "12/1/2010 8:26", "1", "1", Some(Reason::BadDate)),
            ("1", "A", "1", "2010-12-01", "1", "1", Some(Reason::BadDate)),
            ("1", "A", "1", "2010-02-30 08:26:00", "1", "1", Some(Reason::BadDate)),
            ("1", "A", "1", "", "1", "1", Some(Reason::BadDate)),
            ("1", "A", "1", date, "0.001", "1", Some(Reason::BadPrice)),
            ("1", "A", "1", date, "-1", "1", Some(Reason::NegativePrice)),
            ("1", "A", "1", date, "0.0", "", Some(Reason::ZeroPrice)),
            ("1", "A", "1", date, "1", " 17", Some(Reason::BadCustomer)),
        ] {
            assert_eq!(
                read(invoice, sku, quantity, date, price, customer).err(),
                want,
                "{invoice:?} {sku:?} {quantity:?} {date:?} {price:?} {customer:?}"
            );
        }
    }

    #[test]
    fn values_are_kept_as_they_stand() {
        let row = read("C1", "a/b É", "-12", "1970-01-01 00:01:30", "x", "17850.0").unwrap();
        assert_eq!((row.sku.as_str(), row.quantity, row.at, row.price), ("a/b É", 12, 90_000, 0));
        assert_eq!(row.customer.unwrap().as_str(), "17850.0");
    }
}
