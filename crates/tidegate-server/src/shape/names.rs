//! Names of states on the wire: one table each for answers, for filters and for the OpenAPI document.

use serde::{Serialize, Serializer};
use tidegate::core::{CancelReason, PaymentOutcome, RefundReason, RefundStatus, Status, StockKind};
use tidegate::queue::TaskState;
use utoipa::openapi::{ObjectBuilder, RefOr, Type, schema::Schema};
use utoipa::{PartialSchema, ToSchema};

/// What can be told by its name, in a filter.
pub(crate) trait FromName {
    /// The state.
    type State;

    /// The state with this name.
    fn parse(name: &str) -> Result<Self::State, String>;
}

macro_rules! names {
    ($(#[$doc:meta])* $wrapper:ident($inner:ident) $($variant:ident $name:literal)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(crate) struct $wrapper(pub(crate) $inner);

        impl $wrapper {
            /// Every name.
            pub(crate) const NAMES: &'static [&'static str] = &[$($name),*];

            /// The name.
            pub(crate) fn name(self) -> &'static str {
                match self.0 {
                    $($inner::$variant => $name),*
                }
            }
        }

        impl FromName for $wrapper {
            type State = $inner;

            fn parse(name: &str) -> Result<$inner, String> {
                match name {
                    $($name => Ok($inner::$variant),)*
                    _ => Err(format!("must be one of {}", Self::NAMES.join(", "))),
                }
            }
        }

        impl Serialize for $wrapper {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(self.name())
            }
        }

        impl PartialSchema for $wrapper {
            fn schema() -> RefOr<Schema> {
                ObjectBuilder::new().schema_type(Type::String).enum_values(Some(Self::NAMES.iter().copied())).into()
            }
        }
        impl ToSchema for $wrapper {}
    };
}

names! {
    /// Where a task stands.
    TaskStateName(TaskState)
    Pending "pending" Leased "leased" Dead "dead"
}

names! {
    /// Where an order stands.
    StatusName(Status)
    Pending "pending" Paid "paid" Cancelled "cancelled" Fulfilled "fulfilled"
}

names! {
    /// Why an order was cancelled.
    CancelReasonName(CancelReason)
    PaymentTimeout "payment_timeout" Requested "requested" Superseded "superseded" Refunded "refunded"
}

names! {
    /// What a payment report did.
    OutcomeName(PaymentOutcome)
    Applied "applied" Partial "partial" Duplicate "duplicate" Revived "revived" Surplus "surplus"
    RefundDue "refund_due" Unmatched "unmatched"
}

names! {
    /// Whether a refund is still owed.
    RefundStatusName(RefundStatus)
    Due "due" Settled "settled"
}

names! {
    /// Why money is due back.
    RefundReasonName(RefundReason)
    Excess "excess" Surplus "surplus" OrderCancelled "order_cancelled" Unmatched "unmatched" Requested "requested"
}

names! {
    /// What kind of change a stock-ledger item records.
    StockKindName(StockKind)
    Created "created" Held "held" Released "released" Sold "sold" Returned "returned" WrittenOff "written_off"
    Fulfilled "fulfilled" Adjusted "adjusted"
}
