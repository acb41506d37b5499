//! Why a row could not be used, and where it stands.

use serde::{Serialize, Serializer};

/// Why a row could not be used. A row has one reason: the first that applies, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Not as many fields as the header names.
    WrongColumns,
    /// Not UTF-8.
    BadText,
    /// The invoice number cannot be an order id.
    BadInvoice,
    /// The stock code cannot be a SKU (empty, a blank at an edge, too long).
    BadSku,
    /// The quantity is no whole number, or 0.
    BadQuantity,
    /// Below zero on an invoice that is no cancellation.
    NegativeQuantity,
    /// Above zero on a cancellation.
    PositiveCancellation,
    /// More units than a line may have.
    QuantityTooLarge,
    /// The date is none of the forms that mean one thing only.
    BadDate,
    /// The price is no decimal of this currency.
    BadPrice,
    /// The price is below zero.
    NegativePrice,
    /// The price is zero.
    ZeroPrice,
    /// The customer cannot be a buyer id.
    BadCustomer,
    /// Another customer than the rows of this invoice before it.
    OtherCustomer,
    /// Another price of a SKU this invoice has already: an order has one price a SKU.
    SecondPrice,
    /// The invoice has more SKUs, or of one SKU more units, than an order may.
    OrderTooLarge,
    /// No earlier order of this customer has this SKU.
    CancellationWithoutOrder,
    /// Cancels a part of an order.
    PartialCancellation,
    /// Cancels more units than the order has.
    ExcessCancellation,
    /// The order it cancels was refused.
    CancellationOfRefusedOrder,
}

impl Reason {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Reason::WrongColumns => "wrong-columns",
            Reason::BadText => "bad-text",
            Reason::BadInvoice => "bad-invoice",
            Reason::BadSku => "bad-sku",
            Reason::BadQuantity => "bad-quantity",
            Reason::NegativeQuantity => "negative-quantity",
            Reason::PositiveCancellation => "positive-cancellation",
            Reason::QuantityTooLarge => "quantity-too-large",
            Reason::BadDate => "bad-date",
            Reason::BadPrice => "bad-price",
            Reason::NegativePrice => "negative-price",
            Reason::ZeroPrice => "zero-price",
            Reason::BadCustomer => "bad-customer",
            Reason::OtherCustomer => "other-customer",
            Reason::SecondPrice => "second-price",
            Reason::OrderTooLarge => "order-too-large",
            Reason::CancellationWithoutOrder => "cancellation-without-order",
            Reason::PartialCancellation => "partial-cancellation",
            Reason::ExcessCancellation => "excess-cancellation",
            Reason::CancellationOfRefusedOrder => "cancellation-of-refused-order",
        }
    }

    /// What it means, for people.
    pub fn meaning(self) -> &'static str {
        match self {
            Reason::WrongColumns => "not as many fields as the header names",
            Reason::BadText => "not UTF-8",
            Reason::BadInvoice => "the invoice number cannot be an order id (1..64 of A-Z a-z 0-9 . _ : -)",
            Reason::BadSku => "the stock code cannot be a SKU (empty, a blank at an edge, too long)",
            Reason::BadQuantity => "the quantity is no whole number, or 0",
            Reason::NegativeQuantity => "a quantity below zero on an invoice that is no cancellation",
            Reason::PositiveCancellation => "a quantity above zero on a cancellation",
            Reason::QuantityTooLarge => "more than 1,000,000 units",
            Reason::BadDate => "the date is none of YYYY-MM-DD HH:MM[:SS], with T or a blank, or RFC 3339",
            Reason::BadPrice => "the price is no decimal of the currency, or has more digits than its minor units",
            Reason::NegativePrice => "the price is below zero",
            Reason::ZeroPrice => "the price is zero",
            Reason::BadCustomer => "the customer cannot be a buyer id",
            Reason::OtherCustomer => "another customer than the rows of the same invoice before it",
            Reason::SecondPrice => "another price of a SKU the invoice has already; an order has one price a SKU",
            Reason::OrderTooLarge => "more than 1,000 SKUs, or 1,000,000 units of one, on one invoice",
            Reason::CancellationWithoutOrder => "no earlier order of this customer has this SKU",
            Reason::PartialCancellation => "cancels a part of an order; orders are cancelled whole",
            Reason::ExcessCancellation => "cancels more units than the order has",
            Reason::CancellationOfRefusedOrder => "the order it cancels was refused",
        }
    }
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

/// Where a row stands: a file (by its place on the command line) and the line its record begins on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Index of the file.
    pub file: u32,
    /// Line, from 1.
    pub line: u64,
}
