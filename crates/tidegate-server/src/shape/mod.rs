//! What the server answers: borrowed shapes, serialized straight from the library's values and described for OpenAPI.

pub(crate) mod event;
pub(crate) mod feed;
pub(crate) mod hot_keys;
pub(crate) mod instant;
pub(crate) mod lock;
pub(crate) mod names;
pub(crate) mod operations;
pub(crate) mod order;
pub(crate) mod page;
pub(crate) mod payment;
pub(crate) mod queue;
pub(crate) mod redis;
pub(crate) mod sku;

use serde::{Serialize, Serializer};
use tidegate::core::{JsonObject, Money};
use utoipa::ToSchema;

/// An amount of one currency, in minor units.
#[derive(Serialize, ToSchema)]
#[schema(as = Money)]
pub(crate) struct MoneyShape<'a> {
    /// Minor units: cents for EUR.
    #[schema(minimum = 0, example = 1299)]
    pub(crate) amount: i64,
    /// A code of ISO 4217.
    #[schema(example = "EUR")]
    pub(crate) currency: &'a str,
}

impl<'a> MoneyShape<'a> {
    /// Borrows `money`.
    pub(crate) fn new(money: &'a Money) -> Self {
        Self { amount: money.amount, currency: money.currency.code() }
    }
}

/// A caller's JSON object, kept as text.
pub(crate) struct Kept<'a>(pub(crate) &'a JsonObject);

impl Serialize for Kept<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if self.0.is_empty() {
            return serde::ser::SerializeMap::end(to.serialize_map(Some(0))?);
        }
        let value: serde_json::Value = serde_json::from_str(self.0.as_str()).map_err(serde::ser::Error::custom)?;
        value.serialize(to)
    }
}

impl utoipa::PartialSchema for Kept<'_> {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        utoipa::openapi::ObjectBuilder::new()
            .description(Some("Anything the caller wants to keep; JSON numbers are 64-bit integers or doubles."))
            .additional_properties(Some(utoipa::openapi::schema::AdditionalProperties::FreeForm(true)))
            .into()
    }
}
impl ToSchema for Kept<'_> {}
