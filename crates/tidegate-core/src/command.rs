//! What can be asked of the ledger, and what comes back.

use crate::{
    BuyerId, Currency, IdempotencyKey, JsonObject, Millis, Order, OrderId, OrderNo, PaymentId, PaymentOutcome, Refund,
    RefundId, Sku, SkuId, SkuPatch,
};

/// One thing to decide. Every field is well formed; the rules judge it against the rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Place an order.
    Place(Place),
    /// Report money.
    Pay(Pay),
    /// Cancel an order at somebody's request (an unknown id leaves a tombstone).
    Cancel(Cancel),
    /// The deadline worker: cancel it if it is due.
    Expire(OrderNo),
    /// Move `pay_by`.
    Extend(Extend),
    /// The goods have left the house.
    Fulfil(OrderId),
    /// Create or change a SKU.
    PutSku(PutSku),
    /// Count stock by hand.
    Adjust(Adjust),
    /// Archive a SKU.
    ArchiveSku(SkuId),
    /// Make unmatched or surplus money due back by hand.
    RefundPayment(RefundPayment),
    /// Report a refund as paid back.
    SettleRefund(SettleRefund),
    /// Give up on an order's deadline for now: event, list.
    Park(Park),
    /// Take an order from the parked list.
    Unpark(OrderId),
    /// Money that has matched no order for a day: one event.
    FlagUnmatched(PaymentId),
}

/// An order as it was asked for: lines of one SKU merged, defaults filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Its id: chosen by the caller, or made for this request.
    pub order_id: OrderId,
    /// Whether the caller chose `order_id` (a repeat must then name the same).
    pub chosen: bool,
    /// An alias of the id.
    pub key: Option<IdempotencyKey>,
    /// Who buys.
    pub buyer_id: BuyerId,
    /// SKU and units, merged in order of first appearance; `1..=`[`crate::order::MAX_LINES`], units `1..=`[`crate::order::MAX_QUANTITY`].
    pub lines: Vec<(SkuId, i64)>,
    /// Hold time, seconds, `1..=max_hold_seconds`.
    pub hold_seconds: Option<i64>,
    /// An order of the same buyer to cancel in the same commit.
    pub supersedes: Option<OrderId>,
    /// The caller's own data.
    pub metadata: JsonObject,
}

/// A payment report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pay {
    /// The order it names.
    pub order_id: OrderId,
    /// The provider's id of it.
    pub payment_id: PaymentId,
    /// Minor units, >= 1; left out: the total.
    pub amount: Option<i64>,
    /// Left out: the order's.
    pub currency: Option<Currency>,
    /// When the provider took it.
    pub captured_at: Option<Millis>,
}

/// A cancel at somebody's request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cancel {
    /// The order.
    pub order_id: OrderId,
    /// Free text, kept with the event.
    pub reason: Option<String>,
    /// For a paid order: whether its units come back (default true).
    pub restock: bool,
}

/// A longer hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extend {
    /// The order.
    pub order_id: OrderId,
    /// Seconds from now, >= 1.
    pub hold_seconds: i64,
}

/// A SKU to create or change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutSku {
    /// The SKU.
    pub sku: SkuId,
    /// What to change of the card.
    pub patch: SkuPatch,
    /// Units of a new SKU (left out: 0).
    pub on_hand: Option<i64>,
    /// `If-Match`: the version the caller knows.
    pub if_version: Option<i64>,
}

/// A stock count by hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adjust {
    /// The SKU.
    pub sku: SkuId,
    /// Units to add (or, below 0, to take); not 0.
    pub delta: i64,
    /// Why.
    pub reason: String,
    /// Makes a repeat harmless.
    pub key: IdempotencyKey,
}

/// Money to give back by hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefundPayment {
    /// The payment.
    pub payment_id: PaymentId,
    /// Makes a repeat harmless.
    pub key: Option<IdempotencyKey>,
}

/// A refund that was paid back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettleRefund {
    /// The refund.
    pub refund_id: RefundId,
    /// Makes a repeat harmless.
    pub key: Option<IdempotencyKey>,
}

/// An order whose deadline cannot be acted on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Park {
    /// The order.
    pub order: OrderNo,
    /// Tries so far.
    pub tries: i64,
    /// What went wrong the last time.
    pub reason: String,
}

/// An order on the parked list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parked {
    /// The ledger's number of the order.
    pub order: OrderNo,
    /// The order.
    pub order_id: OrderId,
    /// Since when.
    pub at: Millis,
    /// Tries so far.
    pub tries: i64,
    /// What went wrong the last time.
    pub reason: String,
}

/// The answer to one command of a batch.
pub type Verdict = Result<Outcome, Rejection>;

/// Why a command changed nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rejection {
    /// The rules say no; the caller can act on it.
    Refused(Box<Refusal>),
    /// The rows contradict each other; nothing was changed, an operator must look.
    Failed(Failure),
}

/// Rows that contradict each other, as found while deciding one command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What was found.
    pub detail: String,
}

/// What a command did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Placed, or found placed before by the same command.
    Placed {
        /// As it is now.
        order: Order,
        /// True when this repeats an earlier command.
        replayed: bool,
    },
    /// A payment was stored.
    Paid {
        /// What it did.
        outcome: PaymentOutcome,
        /// The order as it is now, if there is one.
        order: Option<Order>,
        /// The money that is due back because of it.
        refund: Option<Refund>,
    },
    /// The order is cancelled (now or before).
    Cancelled(Order),
    /// No such order yet; the id is taken out of use.
    Tombstoned(OrderId),
    /// The deadline: cancelled now.
    Expired(Order),
    /// The deadline: too early, due at this instant.
    NotDue(Millis),
    /// The deadline: nothing to do (paid, cancelled, or no such order).
    Settled,
    /// The order after an extend.
    Extended(Order),
    /// The order after a fulfil.
    Fulfilled(Order),
    /// The SKU after a put.
    SkuPut {
        /// As it is now.
        sku: Sku,
        /// True when it is new.
        created: bool,
    },
    /// The SKU after an adjustment.
    Adjusted {
        /// As it is now.
        sku: Sku,
        /// True when this repeats an earlier adjustment.
        replayed: bool,
    },
    /// The SKU is archived.
    Archived(Sku),
    /// The refund after a refund or settle call.
    Refund {
        /// As it is now.
        refund: Refund,
        /// True when this repeats an earlier call.
        replayed: bool,
    },
    /// On the parked list now (or before).
    Parked,
    /// Off the parked list; its deadline is to be tried again.
    Unparked(Order),
    /// Flagged now, or nothing left to flag.
    Flagged,
}

/// The codes of refusals the rules give; [`RefusalCode::name`] is contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is its wire name; docs/reference/problems.md says what it means")]
pub enum RefusalCode {
    Invalid,
    IdempotencyMismatch,
    AlreadyCancelled,
    UnknownOrder,
    UnknownSku,
    UnknownPayment,
    UnknownRefund,
    Archived,
    NotOnSale,
    LimitReached,
    InsufficientStock,
    IllegalTransition,
    HoldCapExceeded,
    CurrencyMismatch,
    PaymentIdReused,
    NotRefundable,
    AlreadySettled,
    StockExists,
    Stale,
    BelowCommitted,
}

impl RefusalCode {
    /// The wire name, such as `insufficient-stock`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::IdempotencyMismatch => "idempotency-mismatch",
            Self::AlreadyCancelled => "already-cancelled",
            Self::UnknownOrder => "unknown-order",
            Self::UnknownSku => "unknown-sku",
            Self::UnknownPayment => "unknown-payment",
            Self::UnknownRefund => "unknown-refund",
            Self::Archived => "archived",
            Self::NotOnSale => "not-on-sale",
            Self::LimitReached => "limit-reached",
            Self::InsufficientStock => "insufficient-stock",
            Self::IllegalTransition => "illegal-transition",
            Self::HoldCapExceeded => "hold-cap-exceeded",
            Self::CurrencyMismatch => "currency-mismatch",
            Self::PaymentIdReused => "payment-id-reused",
            Self::NotRefundable => "not-refundable",
            Self::AlreadySettled => "already-settled",
            Self::StockExists => "stock-exists",
            Self::Stale => "stale",
            Self::BelowCommitted => "below-committed",
        }
    }
}

/// A refusal: a place in the documented precedence (orders.md section 3), with what the caller needs to act.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Which.
    pub code: RefusalCode,
    /// One sentence that says what to do next.
    pub detail: String,
    /// The SKU it is about.
    pub sku: Option<SkuId>,
    /// Units of it that are available.
    pub available: Option<i64>,
    /// The limit that was reached.
    pub limit: Option<i64>,
    /// Units counted against it already (the request's own not included).
    pub already: Option<i64>,
    /// The order it is about.
    pub order_id: Option<OrderId>,
    /// JSON pointer to the field of the request it is about.
    pub pointer: Option<String>,
}

impl Refusal {
    /// A refusal with a code and a sentence.
    #[must_use]
    pub fn new(code: RefusalCode, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
            sku: None,
            available: None,
            limit: None,
            already: None,
            order_id: None,
            pointer: None,
        }
    }

    /// The same, about this SKU.
    #[must_use]
    pub fn sku(mut self, sku: &SkuId) -> Self {
        self.sku = Some(sku.clone());
        self
    }

    /// The same, about this order.
    #[must_use]
    pub fn order(mut self, id: &OrderId) -> Self {
        self.order_id = Some(id.clone());
        self
    }

    /// The refusal for a SKU of which `available` units are left and more were asked for.
    #[must_use]
    pub fn insufficient_stock(sku: &SkuId, available: i64, asked: i64) -> Self {
        let detail = format!(
            "{asked} units were asked for and {available} are available; order fewer, or wait for units to be released"
        );
        Self { available: Some(available), ..Self::new(RefusalCode::InsufficientStock, detail).sku(sku) }
    }

    /// The refusal for a SKU nobody has created.
    #[must_use]
    pub fn unknown_sku(sku: &SkuId) -> Self {
        Self::new(RefusalCode::UnknownSku, "no such SKU; create it with PUT /v1/skus/{sku}, or correct the id").sku(sku)
    }
}

impl From<Refusal> for Rejection {
    fn from(r: Refusal) -> Self {
        Rejection::Refused(Box::new(r))
    }
}

impl From<Failure> for Rejection {
    fn from(f: Failure) -> Self {
        Rejection::Failed(f)
    }
}
