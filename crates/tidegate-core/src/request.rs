//! Requests as they arrive: checked completely for shape and range before any row is looked at (the 422s of the contract).

use std::fmt;

use serde_json::Value;

use crate::command::{Adjust, Cancel, Extend, Pay, Place, PutSku};
use crate::json::JsonError;
use crate::money::MAX_AMOUNT;
use crate::order::{MAX_LINES, MAX_METADATA_BYTES, MAX_QUANTITY, MAX_REASON_BYTES};
use crate::sku::{MAX_ON_HAND, MAX_TITLE_BYTES};
use crate::{
    BuyerId, Currency, IdempotencyKey, JsonObject, Map, Millis, Money, OrderId, Patch, PaymentId, Settings, SkuId,
    SkuPatch,
};

/// Most faults a refused request lists.
pub const MAX_FIELD_ERRORS: usize = 20;

/// A fault of one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// JSON pointer (RFC 6901) to the field.
    pub pointer: String,
    /// What the field must be.
    pub detail: String,
}

impl FieldError {
    /// A fault of the field at `pointer`.
    #[must_use]
    pub fn new(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), detail: detail.into() }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.pointer, self.detail)
    }
}

/// The faults found so far, at most [`MAX_FIELD_ERRORS`].
#[derive(Debug, Default)]
pub struct Faults(Vec<FieldError>);

impl Faults {
    /// Notes a fault.
    pub fn add(&mut self, pointer: impl Into<String>, detail: impl Into<String>) {
        if self.0.len() < MAX_FIELD_ERRORS {
            self.0.push(FieldError::new(pointer, detail));
        }
    }

    /// The value, or a note of the fault.
    pub fn take<T>(&mut self, pointer: &str, value: Result<T, impl fmt::Display>) -> Option<T> {
        value.map_err(|e| self.add(pointer, e.to_string())).ok()
    }

    /// Notes a fault unless `value` lies in `range`.
    pub fn range(&mut self, pointer: &str, value: i64, range: std::ops::RangeInclusive<i64>) {
        if !range.contains(&value) {
            self.add(pointer, format!("must be a whole number from {} to {}", range.start(), range.end()));
        }
    }

    /// Notes a fault unless `text` has at most `max` bytes and no NUL.
    pub fn text(&mut self, pointer: &str, text: &str, max: usize) {
        if text.len() > max {
            self.add(pointer, format!("must be at most {max} bytes of UTF-8"));
        } else if text.contains('\0') {
            self.add(pointer, "must not contain NUL characters");
        }
    }

    /// `value` if there are no faults.
    ///
    /// # Errors
    /// The faults, if there are any.
    pub fn or<T>(self, value: impl FnOnce() -> T) -> Result<T, Vec<FieldError>> {
        if self.0.is_empty() { Ok(value()) } else { Err(self.0) }
    }
}

/// An order as it is asked for.
#[derive(Debug, Clone, Default)]
pub struct PlaceRequest {
    /// The caller's id for it.
    pub order_id: Option<String>,
    /// An alias of the id (`Idempotency-Key`).
    pub key: Option<IdempotencyKey>,
    /// Who buys.
    pub buyer_id: String,
    /// SKU and units, as sent.
    pub lines: Vec<(String, i64)>,
    /// Hold time, seconds.
    pub hold_seconds: Option<i64>,
    /// An order to take the place of.
    pub supersedes: Option<String>,
    /// The caller's own data.
    pub metadata: Option<Value>,
}

impl PlaceRequest {
    /// Checks every field, merges lines of one SKU in order of first appearance, and checks the merged quantities.
    /// `generated` is the id of an order whose caller chose none.
    ///
    /// # Errors
    /// Every fault found, with JSON pointers into the request.
    pub fn check(self, settings: &Settings, generated: impl FnOnce() -> OrderId) -> Result<Place, Vec<FieldError>> {
        let mut faults = Faults::default();
        let chosen = self.order_id.as_ref().and_then(|id| faults.take("/order_id", OrderId::parse(id)));
        let buyer_id = faults.take("/buyer_id", BuyerId::parse(&self.buyer_id));
        let lines = merged_lines(&self.lines, &mut faults);
        if let Some(seconds) = self.hold_seconds {
            faults.range("/hold_seconds", seconds, 1..=settings.max_hold_seconds);
        }
        let supersedes = self.supersedes.as_ref().and_then(|id| faults.take("/supersedes", OrderId::parse(id)));
        let metadata = match &self.metadata {
            None => Some(JsonObject::empty()),
            Some(value) => faults.take::<JsonObject>("/metadata", JsonObject::new(value, MAX_METADATA_BYTES)),
        };
        faults.or(|| Place {
            chosen: chosen.is_some(),
            order_id: chosen.unwrap_or_else(generated),
            key: self.key,
            buyer_id: buyer_id.expect("a missing buyer is a fault"),
            lines,
            hold_seconds: self.hold_seconds,
            supersedes,
            metadata: metadata.expect("bad metadata is a fault"),
        })
    }
}

fn merged_lines(sent: &[(String, i64)], faults: &mut Faults) -> Vec<(SkuId, i64)> {
    if sent.is_empty() {
        faults.add("/lines", "must have at least one line");
    } else if sent.len() > MAX_LINES {
        faults.add("/lines", format!("must have at most {MAX_LINES} lines; split the order"));
        return Vec::new();
    }
    let mut merged: Vec<(SkuId, i64)> = Vec::with_capacity(sent.len());
    let mut place_of: Map<SkuId, usize> = Map::default();
    for (i, (sku, quantity)) in sent.iter().enumerate() {
        let pointer = format!("/lines/{i}/quantity");
        faults.range(&pointer, *quantity, 1..=MAX_QUANTITY);
        let Some(sku) = faults.take(&format!("/lines/{i}/sku"), SkuId::parse(sku)) else {
            continue;
        };
        match place_of.get(&sku) {
            None => {
                place_of.insert(sku.clone(), merged.len());
                merged.push((sku, *quantity));
            }
            Some(&at) => {
                let sum = merged[at].1.saturating_add(*quantity);
                if sum > MAX_QUANTITY && *quantity <= MAX_QUANTITY {
                    faults.add(
                        pointer,
                        format!("lines of one SKU are added up, and their sum must be at most {MAX_QUANTITY}"),
                    );
                }
                merged[at].1 = sum;
            }
        }
    }
    merged
}

fn money(pointer: &str, price: Money, faults: &mut Faults) {
    faults.range(&format!("{pointer}/amount"), price.amount, 0..=MAX_AMOUNT);
}

/// Checks the fields of a SKU to create or change.
///
/// # Errors
/// Every fault found.
pub fn check_put(put: PutSku, settings: &Settings) -> Result<PutSku, Vec<FieldError>> {
    let mut faults = Faults::default();
    let SkuPatch { title, price, attributes: _, hold_seconds, max_per_order, max_per_buyer, on_sale_from } = &put.patch;
    if let Patch::Set(title) = title {
        faults.text("/title", title, MAX_TITLE_BYTES);
    }
    if let Patch::Set(price) = price {
        money("/price", *price, &mut faults);
    }
    if let Patch::Set(seconds) = hold_seconds {
        faults.range("/hold_seconds", *seconds, 1..=settings.max_hold_seconds);
    }
    for (pointer, limit) in [("/max_per_order", max_per_order), ("/max_per_buyer", max_per_buyer)] {
        if let Patch::Set(limit) = limit {
            faults.range(pointer, *limit, 1..=MAX_QUANTITY);
        }
    }
    if let Patch::Set(from) = on_sale_from {
        instant("/on_sale_from", *from, &mut faults);
    }
    if let Some(on_hand) = put.on_hand {
        faults.range("/on_hand", on_hand, 0..=MAX_ON_HAND);
    }
    faults.or(|| put)
}

/// Checks attributes of a SKU.
///
/// # Errors
/// The rule the value breaks.
pub fn attributes(value: &Value) -> Result<JsonObject, JsonError> {
    JsonObject::new(value, crate::sku::MAX_ATTRIBUTES_BYTES)
}

fn instant(pointer: &str, at: Millis, faults: &mut Faults) {
    if !(Millis::MIN..=Millis::MAX).contains(&at) {
        faults.add(pointer, "must lie in the years 1 to 9999");
    }
}

/// Checks a stock count by hand.
///
/// # Errors
/// Every fault found.
pub fn check_adjust(adjust: Adjust) -> Result<Adjust, Vec<FieldError>> {
    let mut faults = Faults::default();
    if adjust.delta == 0 {
        faults.add("/delta", "must not be 0");
    }
    faults.range("/delta", adjust.delta, -MAX_ON_HAND..=MAX_ON_HAND);
    faults.text("/reason", &adjust.reason, MAX_REASON_BYTES);
    if adjust.reason.trim().is_empty() {
        faults.add("/reason", "must say why");
    }
    faults.or(|| adjust)
}

/// A payment report as it is sent.
#[derive(Debug, Clone, Default)]
pub struct PayRequest {
    /// The provider's id of it.
    pub payment_id: String,
    /// Minor units.
    pub amount: Option<i64>,
    /// ISO 4217.
    pub currency: Option<String>,
    /// When the provider took it.
    pub captured_at: Option<Millis>,
}

impl PayRequest {
    /// Checks every field.
    ///
    /// # Errors
    /// Every fault found.
    pub fn check(self, order_id: OrderId) -> Result<Pay, Vec<FieldError>> {
        let mut faults = Faults::default();
        let payment_id = faults.take::<PaymentId>("/payment_id", PaymentId::parse(&self.payment_id));
        if let Some(amount) = self.amount {
            faults.range("/amount", amount, 1..=MAX_AMOUNT);
        }
        let currency = self.currency.and_then(|code| faults.take("/currency", Currency::try_from(code)));
        if let Some(at) = self.captured_at {
            instant("/captured_at", at, &mut faults);
        }
        faults.or(|| Pay {
            order_id,
            payment_id: payment_id.expect("a missing payment id is a fault"),
            amount: self.amount,
            currency,
            captured_at: self.captured_at,
        })
    }
}

/// Checks a cancel.
///
/// # Errors
/// Every fault found.
pub fn check_cancel(cancel: Cancel) -> Result<Cancel, Vec<FieldError>> {
    let mut faults = Faults::default();
    if let Some(reason) = &cancel.reason {
        faults.text("/reason", reason, MAX_REASON_BYTES);
    }
    faults.or(|| cancel)
}

/// Checks an extend. Over the cap is a refusal of the rules (`hold-cap-exceeded`), not a fault of the field.
///
/// # Errors
/// Every fault found.
pub fn check_extend(extend: Extend) -> Result<Extend, Vec<FieldError>> {
    let mut faults = Faults::default();
    faults.range("/hold_seconds", extend.hold_seconds, 1..=MAX_AMOUNT);
    faults.or(|| extend)
}
