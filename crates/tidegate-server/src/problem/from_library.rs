//! What becomes of the library's errors.

use std::time::Duration;

use tidegate::Error;
use tidegate::cache::CacheError;
use tidegate::core::{FieldError, Refusal, RefusalCode};
use tidegate::lock::LockError;
use tidegate::queue::{QueueError, StoreError, StoreErrorKind};

use super::catalogue as c;
use super::{Kind, Problem, invalid, invalid_at};

impl From<Error> for Problem {
    fn from(e: Error) -> Self {
        match e {
            Error::Invalid(faults) => invalid(faults),
            Error::Refused(refusal) => refused(*refusal),
            Error::Overloaded => Problem::new(
                &c::OVERLOADED,
                "More requests wait than the server takes; send this one again in a second.",
            )
            .retry_after(1),
            Error::LedgerUnavailable(why) => {
                // One line each would drown the log; the library tells when this begins and when it ends.
                tracing::debug!(error = %why, "a request was refused: the ledger is unavailable");
                Problem::new(
                    &c::LEDGER_UNAVAILABLE,
                    "The ledger cannot be reached or cannot write; send the same request again in a few seconds.",
                )
                .retry_after(2)
            }
            Error::Index(why) => {
                tracing::warn!(error = %why, "a request failed at the deadline index");
                let detail = "The store of the deadline index does not answer as it should; orders go on without it. Send the same \
                              request again once `/readyz` says ready.";
                Problem::new(&c::LEDGER_UNAVAILABLE, detail).retry_after(2)
            }
            Error::Redis(why) => {
                Problem::new(&c::STORE_UNAVAILABLE, format!("A watched Redis cannot be looked at: {why}."))
                    .retry_after(2)
            }
            Error::Stopping => stopping(),
            Error::BadCursor => invalid_at("/cursor", "is not a cursor that this list gave out; begin without one"),
            Error::Broken(why) => {
                tracing::error!(error = %why, "the ledger contradicts itself");
                Problem::of(&c::LEDGER_BROKEN)
            }
            other => {
                tracing::error!(error = %other, "the library answered with an error no request should meet");
                Problem::of(&c::INTERNAL)
            }
        }
    }
}

impl From<CacheError> for Problem {
    fn from(e: CacheError) -> Self {
        if let Some(e) = e.loader_error::<Error>() {
            return e.clone().into();
        }
        match e {
            CacheError::Overloaded { retry_after } => {
                let detail =
                    "More loads wait than the source is asked for at a time; send this request again in a moment.";
                Problem::new(&c::OVERLOADED, detail).retry_after(whole_seconds(retry_after))
            }
            CacheError::Stopping => stopping(),
            // Another process' failure comes as its words; a load that lags or takes too long is the ledger's, too.
            CacheError::Load(_) | CacheError::Timeout | CacheError::Behind { .. } => {
                Error::LedgerUnavailable(e.to_string()).into()
            }
            other => {
                tracing::error!(error = %other, "the cache answered with an error no request should meet");
                Problem::of(&c::INTERNAL)
            }
        }
    }
}

/// A store of queues or locks that did not do what it was asked.
fn of_store(e: &StoreError) -> Problem {
    match e.kind() {
        StoreErrorKind::Limit => return Problem::new(&c::TOO_MANY_QUEUES, format!("In the store {e}.")),
        StoreErrorKind::Unavailable => {
            tracing::debug!(error = %e, "a request was refused: the store of queues and locks is unavailable");
        }
        StoreErrorKind::Configuration => {
            tracing::warn!(error = %e, "a request was refused: the store must not be used as it is");
            return Problem::new(&c::STORE_UNAVAILABLE, format!("The store cannot be used: {e}.")).retry_after(60);
        }
        _ => tracing::error!(error = %e, "the store of queues and locks does not answer as it should"),
    }
    if let Some(advice) = e.advice() {
        let detail = format!(
            "The store of queues and locks answers, but does not do this; a part of it may have been done. {}{}. Send the same \
             request again after that.",
            advice[..1].to_uppercase(),
            &advice[1..],
        );
        return Problem::new(&c::STORE_UNAVAILABLE, detail).retry_after(2);
    }
    store_unavailable(
        "The store of queues and locks does not answer; a change may have been made. Send the same request again in a few \
         seconds.",
        2,
    )
}

/// The store of queues and locks is away, or there is none.
pub(crate) fn store_unavailable(detail: &'static str, retry_after: u32) -> Problem {
    Problem::new(&c::STORE_UNAVAILABLE, detail).retry_after(retry_after)
}

impl From<QueueError> for Problem {
    fn from(e: QueueError) -> Self {
        match e {
            QueueError::Name(e) => invalid_at("/queue", e.to_string()),
            QueueError::Id(e) => invalid_at("/id", e.to_string()),
            QueueError::Reserved(_) => reserved_queue(),
            QueueError::Store(e) => of_store(&e),
            // These are judged, field by field, before the library is asked.
            QueueError::Task(_) | QueueError::Batch(_) | QueueError::Payload(_) => invalid_at("", e.to_string()),
            other => {
                tracing::error!(error = %other, "the queue answered with an error no request should meet");
                Problem::of(&c::INTERNAL)
            }
        }
    }
}

/// One of the product's own queues is not the caller's to change.
pub(crate) fn reserved_queue() -> Problem {
    Problem::new(&c::RESERVED_QUEUE, "This queue is Tidegate's own: it can be read, not changed; use another name.")
}

impl From<LockError> for Problem {
    fn from(e: LockError) -> Self {
        match e {
            LockError::Name(e) => invalid_at("/name", e.to_string()),
            LockError::Time { .. } => invalid_at("/ttl_ms", e.to_string()),
            LockError::Floor => invalid_at("/floor", e.to_string()),
            LockError::Held { retry_after } | LockError::Timeout { retry_after } => {
                let detail =
                    "Another holds the lock; ask again when its time may be over, or wait for it with wait_ms.";
                let ms = i64::try_from(retry_after.as_millis()).unwrap_or(i64::MAX);
                Problem::new(&c::LOCK_HELD, detail).retry_after_ms(ms)
            }
            LockError::Crowded => {
                let detail = "As many wait for this lock as its line takes; ask again in a few seconds.";
                Problem::new(&c::OVERLOADED, detail).retry_after(5)
            }
            LockError::Spent => {
                let detail = "No fence below 2^53 is left for this lock: use another name. The store forgets the fences of a lock that \
                              nobody was granted for two days.";
                store_unavailable(detail, 3_600)
            }
            LockError::Unreachable(e) => of_store(&e),
            LockError::Lost => Problem::of(&c::LOCK_LOST),
            LockError::Stopping => stopping(),
            other => {
                tracing::error!(error = %other, "the locks answered with an error no request should meet");
                Problem::of(&c::INTERNAL)
            }
        }
    }
}

/// Whole seconds, at least one.
pub(crate) fn whole_seconds(pause: Duration) -> u32 {
    u32::try_from(pause.as_millis().div_ceil(1_000)).unwrap_or(u32::MAX).max(1)
}

/// The server is going away.
pub(crate) fn stopping() -> Problem {
    Problem::new(&c::STOPPING, "The server is stopping; send this request again in a few seconds, or to another node.")
        .retry_after(2)
}

/// The server goes away while this request still waits for the ledger.
pub(crate) fn given_up() -> Problem {
    let detail = "The server is stopping and the ledger has not answered: the change may have been made. Send the same \
                  request again, to another node or in a few seconds; repeating it is safe.";
    Problem::new(&c::STOPPING, detail).retry_after(2)
}

fn refused(refusal: Refusal) -> Problem {
    let mut problem = Problem::new(kind_of(refusal.code), refusal.detail);
    let parts = &mut *problem.0;
    if let Some(pointer) = refusal.pointer {
        parts.errors.push(FieldError::new(pointer, parts.detail.to_string()));
    }
    parts.sku = refusal.sku;
    parts.available = refusal.available;
    parts.limit = refusal.limit;
    parts.already = refusal.already;
    parts.order_id = refusal.order_id;
    problem
}

fn kind_of(code: RefusalCode) -> &'static Kind {
    match code {
        RefusalCode::Invalid => &c::INVALID,
        RefusalCode::IdempotencyMismatch => &c::IDEMPOTENCY_MISMATCH,
        RefusalCode::AlreadyCancelled => &c::ALREADY_CANCELLED,
        RefusalCode::UnknownOrder => &c::UNKNOWN_ORDER,
        RefusalCode::UnknownSku => &c::UNKNOWN_SKU,
        RefusalCode::UnknownPayment => &c::UNKNOWN_PAYMENT,
        RefusalCode::UnknownRefund => &c::UNKNOWN_REFUND,
        RefusalCode::Archived => &c::ARCHIVED,
        RefusalCode::NotOnSale => &c::NOT_ON_SALE,
        RefusalCode::LimitReached => &c::LIMIT_REACHED,
        RefusalCode::InsufficientStock => &c::INSUFFICIENT_STOCK,
        RefusalCode::IllegalTransition => &c::ILLEGAL_TRANSITION,
        RefusalCode::HoldCapExceeded => &c::HOLD_CAP_EXCEEDED,
        RefusalCode::CurrencyMismatch => &c::CURRENCY_MISMATCH,
        RefusalCode::PaymentIdReused => &c::PAYMENT_ID_REUSED,
        RefusalCode::NotRefundable => &c::NOT_REFUNDABLE,
        RefusalCode::AlreadySettled => &c::ALREADY_SETTLED,
        RefusalCode::StockExists => &c::STOCK_EXISTS,
        RefusalCode::Stale => &c::STALE,
        RefusalCode::BelowCommitted => &c::BELOW_COMMITTED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_keeps_its_code() {
        for code in [RefusalCode::Invalid, RefusalCode::LimitReached, RefusalCode::Stale, RefusalCode::BelowCommitted] {
            assert_eq!(kind_of(code).code, code.name());
        }
    }
}
