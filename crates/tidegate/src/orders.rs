//! Orders and the money around them.

use std::sync::Arc;

use tidegate_backend::{EventRecord, OrderFilter, Page, PageRequest, PaymentFilter, RefundFilter};
use tidegate_core::command::{Cancel, Extend, Parked, Pay, Place, RefundPayment, SettleRefund};
use tidegate_core::request::{PlaceRequest, check_cancel, check_extend};
use tidegate_core::{Command, Order, OrderId, Outcome, Payment, PaymentOutcome, Refund, Refusal, RefusalCode};

use crate::tidegate::Inner;
use crate::{Error, Result};

/// Orders: a cheap handle.
#[derive(Clone)]
pub struct Orders(pub(crate) Arc<Inner>);

/// A placed order.
#[derive(Debug, Clone)]
pub struct Placed {
    /// As it is now.
    pub order: Order,
    /// True when the same command had placed it before.
    pub replayed: bool,
}

/// What a payment report did. It is stored durably.
#[derive(Debug, Clone)]
pub struct Paid {
    /// What it did.
    pub outcome: PaymentOutcome,
    /// The order, if there is one.
    pub order: Option<Order>,
    /// Money due back because of it.
    pub refund: Option<Refund>,
}

/// What a cancel did.
#[derive(Debug, Clone)]
pub enum Cancelled {
    /// The order is cancelled.
    Order(Order),
    /// There was no such order; its id is out of use now.
    Tombstone(OrderId),
}

/// An answer of a kind the command cannot have: a fault of the ledger, told rather than hidden.
pub(crate) fn unexpected(outcome: &Outcome) -> Error {
    Error::Broken(format!("the ledger answered with an outcome of another command: {outcome:?}"))
}

fn placed(outcome: Outcome) -> Result<Placed> {
    match outcome {
        Outcome::Placed { order, replayed } => Ok(Placed { order, replayed }),
        other => Err(unexpected(&other)),
    }
}

impl Orders {
    /// Checks a request and fills in what it leaves out (a time-ordered id, merged lines).
    ///
    /// # Errors
    /// [`Error::Invalid`] lists every fault.
    pub fn check(&self, request: PlaceRequest) -> Result<Place> {
        Ok(request.check(&self.0.settings, new_order_id)?)
    }

    /// Places an order: its stock is held when this returns, durably.
    ///
    /// # Errors
    /// [`Error::Refused`] with the first refusal that applies; [`Error::Overloaded`]; [`Error::LedgerUnavailable`].
    pub async fn place(&self, place: Place) -> Result<Placed> {
        self.0.place(place).await.and_then(placed)
    }

    /// Places up to 500 orders; each stands alone, answers come in order.
    pub async fn place_many(&self, places: Vec<Place>) -> Vec<Result<Placed>> {
        self.0.place_many(places).await.into_iter().map(|answer| answer.and_then(placed)).collect()
    }

    /// Stores a payment report and applies it.
    ///
    /// # Errors
    /// [`Error::Refused`]: `currency-mismatch`, `payment-id-reused`. Any other error: not stored, send it again.
    pub async fn pay(&self, pay: Pay) -> Result<Paid> {
        match self.0.submit_one(Command::Pay(pay)).await? {
            Outcome::Paid { outcome, order, refund } => Ok(Paid { outcome, order, refund }),
            other => Err(unexpected(&other)),
        }
    }

    /// Cancels an order; an id that no order has yet is taken out of use.
    ///
    /// # Errors
    /// [`Error::Refused`]: `illegal-transition` for a fulfilled order.
    pub async fn cancel(&self, cancel: Cancel) -> Result<Cancelled> {
        let cancel = check_cancel(cancel)?;
        match self.0.submit_one(Command::Cancel(cancel)).await? {
            Outcome::Cancelled(order) => Ok(Cancelled::Order(order)),
            Outcome::Tombstoned(id) => Ok(Cancelled::Tombstone(id)),
            other => Err(unexpected(&other)),
        }
    }

    /// Moves the deadline of a pending order.
    ///
    /// # Errors
    /// [`Error::Refused`]: `unknown-order`, `illegal-transition`, `hold-cap-exceeded`.
    pub async fn extend(&self, extend: Extend) -> Result<Order> {
        let extend = check_extend(extend)?;
        match self.0.submit_one(Command::Extend(extend)).await? {
            Outcome::Extended(order) => Ok(order),
            other => Err(unexpected(&other)),
        }
    }

    /// The goods of a paid order have left the house.
    ///
    /// # Errors
    /// [`Error::Refused`]: `unknown-order`, `illegal-transition`.
    pub async fn fulfil(&self, id: OrderId) -> Result<Order> {
        match self.0.submit_one(Command::Fulfil(id)).await? {
            Outcome::Fulfilled(order) => Ok(order),
            other => Err(unexpected(&other)),
        }
    }

    /// An order with its payments.
    ///
    /// # Errors
    /// [`Error::LedgerUnavailable`].
    pub async fn get(&self, id: OrderId) -> Result<Option<Order>> {
        Ok(self.0.ledger.order(id).await?)
    }

    /// Orders, newest first.
    ///
    /// # Errors
    /// [`Error::BadCursor`]; [`Error::LedgerUnavailable`].
    pub async fn list(&self, filter: OrderFilter, page: PageRequest) -> Result<Page<Order>> {
        Ok(self.0.ledger.orders(filter, page).await?)
    }

    /// An order's history, oldest first; `None` when there is no such order.
    ///
    /// # Errors
    /// As [`Orders::list`].
    pub async fn events(&self, id: OrderId, page: PageRequest) -> Result<Option<Page<EventRecord>>> {
        Ok(self.0.ledger.order_events(id, page).await?)
    }

    /// Payments, newest first.
    ///
    /// # Errors
    /// As [`Orders::list`].
    pub async fn payments(&self, filter: PaymentFilter, page: PageRequest) -> Result<Page<Payment>> {
        Ok(self.0.ledger.payments(filter, page).await?)
    }

    /// Refunds, newest first.
    ///
    /// # Errors
    /// As [`Orders::list`].
    pub async fn refunds(&self, filter: RefundFilter, page: PageRequest) -> Result<Page<Refund>> {
        Ok(self.0.ledger.refunds(filter, page).await?)
    }

    /// Makes unmatched or surplus money due back. Returns the refund and whether this repeats an earlier call.
    ///
    /// # Errors
    /// [`Error::Refused`]: `unknown-payment`, `not-refundable`, `idempotency-mismatch`.
    pub async fn refund_payment(&self, refund: RefundPayment) -> Result<(Refund, bool)> {
        match self.0.submit_one(Command::RefundPayment(refund)).await? {
            Outcome::Refund { refund, replayed } => Ok((refund, replayed)),
            other => Err(unexpected(&other)),
        }
    }

    /// Reports a due refund as paid back. Returns the refund and whether this repeats an earlier call.
    ///
    /// # Errors
    /// [`Error::Refused`]: `unknown-refund`, `already-settled`, `idempotency-mismatch`.
    pub async fn settle_refund(&self, settle: SettleRefund) -> Result<(Refund, bool)> {
        match self.0.submit_one(Command::SettleRefund(settle)).await? {
            Outcome::Refund { refund, replayed } => Ok((refund, replayed)),
            other => Err(unexpected(&other)),
        }
    }

    /// Orders whose deadline could not be acted on, newest first.
    ///
    /// # Errors
    /// As [`Orders::list`].
    pub async fn parked(&self, page: PageRequest) -> Result<Page<Parked>> {
        Ok(self.0.ledger.parked(page).await?)
    }

    /// Takes an order from the parked list; its deadline is tried again at once.
    ///
    /// # Errors
    /// [`Error::Refused`]: `unknown-order` when it is not on the list.
    pub async fn retry_parked(&self, id: OrderId) -> Result<Order> {
        match self.0.submit_one(Command::Unpark(id.clone())).await? {
            Outcome::Unparked(order) => Ok(order),
            Outcome::Settled => Err(Refusal::new(
                RefusalCode::UnknownOrder,
                "this order is not on the parked list; GET /v1/parked shows the list",
            )
            .order(&id)
            .into()),
            other => Err(unexpected(&other)),
        }
    }
}

/// A time-ordered id (UUIDv7) for an order whose caller chose none.
pub(crate) fn new_order_id() -> OrderId {
    OrderId::parse(&uuid::Uuid::now_v7().to_string()).expect("a UUID is made of hex digits and hyphens")
}
