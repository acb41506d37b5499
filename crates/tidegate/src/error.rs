//! The library's error.

use std::fmt;

use tidegate_backend::ErrorKind as StoreErrorKind;
use tidegate_core::{Failure, FieldError, Refusal, Rejection};

/// Why a call did not do what was asked. Nothing was changed, unless the variant says otherwise.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// Fields of the request are wrong; each says what it must be.
    Invalid(Vec<FieldError>),
    /// The rules say no; the refusal says what to do next.
    Refused(Box<Refusal>),
    /// The queue in front of the ledger is full; try again after about a second.
    Overloaded,
    /// The ledger cannot be reached or cannot write. After a connection broke during a commit the change may have been
    /// made; repeating the call is safe.
    LedgerUnavailable(String),
    /// The deadline index (the store beside the ledger) cannot be read or told something. Orders go on, and so do their
    /// deadlines, from the ledger.
    Index(String),
    /// The library is stopping.
    Stopping,
    /// A page cursor that the ledger never gave out.
    BadCursor,
    /// The ledger's rows contradict each other, or one row cannot be written; an operator must look.
    Broken(String),
    /// A Redis or Valkey that is to be looked at does not answer, or not as it should.
    Redis(String),
    /// The options and the store do not fit, or another process owns the store.
    Configuration(String),
}

/// The result of every call of the library.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Whether the same call may succeed later without any change.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Error::Overloaded | Error::LedgerUnavailable(_) | Error::Index(_) | Error::Redis(_) | Error::Stopping
        )
    }

    /// A failure of the deadline index; every other failure of a back end is the ledger's.
    pub(crate) fn index(e: tidegate_backend::Error) -> Self {
        let next = match e.kind() {
            StoreErrorKind::Corrupt => {
                " (something in the store is not as Tidegate left it: delete the keys of this name there, they are made again \
                 from the ledger)"
            }
            _ => "",
        };
        Error::Index(format!("{e}{next}"))
    }

    /// The refusal, if this is one.
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Error::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Invalid(faults) => {
                f.write_str("the request is not valid:")?;
                faults.iter().try_for_each(|fault| write!(f, " {fault};"))
            }
            Error::Refused(refusal) => write!(f, "{}: {}", refusal.code.name(), refusal.detail),
            Error::Overloaded => f.write_str("the queue in front of the ledger is full; try again in a second"),
            Error::LedgerUnavailable(why) => write!(f, "the ledger is unavailable: {why}"),
            Error::Index(why) => write!(f, "the deadline index cannot be used: {why}"),
            Error::Stopping => f.write_str("stopping; try another node, or again after the restart"),
            Error::BadCursor => f.write_str("the cursor is not one this list gave out; start without a cursor"),
            Error::Broken(why) => write!(
                f,
                "the ledger is damaged: {why}; reconcile tells what still holds; if it does not open, restore a backup"
            ),
            Error::Redis(why) | Error::Configuration(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Error {}

impl From<Rejection> for Error {
    fn from(rejection: Rejection) -> Self {
        match rejection {
            Rejection::Refused(refusal) => Error::Refused(refusal),
            Rejection::Failed(Failure { detail }) => Error::Broken(detail),
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Error::Refused(Box::new(refusal))
    }
}

impl From<Vec<FieldError>> for Error {
    fn from(faults: Vec<FieldError>) -> Self {
        Error::Invalid(faults)
    }
}

impl From<tidegate_backend::Error> for Error {
    fn from(e: tidegate_backend::Error) -> Self {
        match e.kind() {
            StoreErrorKind::BadCursor => Error::BadCursor,
            StoreErrorKind::Corrupt | StoreErrorKind::Command => Error::Broken(e.to_string()),
            StoreErrorKind::Configuration | StoreErrorKind::Owned | StoreErrorKind::NewerSchema => {
                Error::Configuration(e.to_string())
            }
            _ => Error::LedgerUnavailable(e.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_which_store_it_is_of() {
        for (kind, retryable) in [(StoreErrorKind::Corrupt, false), (StoreErrorKind::Unavailable, true)] {
            let fault = || tidegate_backend::Error::new(kind, "Redis says no");
            let (ledger, index) = (Error::from(fault()), Error::index(fault()));
            assert!(ledger.to_string().starts_with("the ledger is "), "{ledger}");
            assert!(index.to_string().starts_with("the deadline index cannot be used: Redis says no"), "{index}");
            assert!(!index.to_string().contains("backup") && index.is_retryable(), "{index}");
            assert_eq!(ledger.is_retryable(), retryable);
        }
    }
}
