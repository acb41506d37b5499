//! What SQLite says, in the seam's words.

use rusqlite::Error as Sql;
use rusqlite::ErrorCode as Code;
use tidegate_backend::{Error, ErrorKind};

/// A value in a row that no Tidegate has written. It travels as SQLite's own conversion error.
pub(super) fn bad_value(column: usize, what: impl Into<String>) -> Sql {
    Sql::FromSqlConversionFailure(column, rusqlite::types::Type::Null, what.into().into())
}

/// An error of a read of the ledger.
pub(super) fn reading(error: Sql) -> Error {
    reading_of("ledger", error)
}

/// An error of a read of `what`.
pub(super) fn reading_of(what: &str, error: Sql) -> Error {
    let kind = match store_kind(&error) {
        Some(kind) => kind,
        None => ErrorKind::Corrupt,
    };
    let advice = advice(&error);
    Error::new(kind, format!("reading the {what} failed")).because(error).advise(advice)
}

/// An error of a write of the ledger.
pub(super) fn writing(error: Sql) -> Error {
    writing_of("ledger", error)
}

/// An error of a write of `what`. What is tied to a row is the fault of one command, and the batch can be split around it.
pub(super) fn writing_of(what: &str, error: Sql) -> Error {
    let kind = store_kind(&error).unwrap_or(ErrorKind::Command);
    let hint = match &error {
        Sql::SqliteFailure(e, _) if e.code == Code::DiskFull => "; free space on its disk",
        _ => "",
    };
    let advice = advice(&error);
    Error::new(kind, format!("writing the {what} failed{hint}")).because(error).advise(advice)
}

/// Why a file that is there does not do it, and what to do about that.
fn advice(error: &Sql) -> Option<&'static str> {
    let (code, words) = match error {
        Sql::SqliteFailure(e, words) => (e.code, words.as_deref().unwrap_or_default()),
        Sql::SqlInputError { error, msg, .. } => (error.code, msg.as_str()),
        _ => return None,
    };
    match code {
        Code::DiskFull => Some("the disk of the file is full: free space there"),
        Code::ReadOnly | Code::PermissionDenied => {
            Some("the file cannot be written: look at its rights, and at how its disk is mounted")
        }
        Code::DatabaseCorrupt | Code::NotADatabase => Some("the file is damaged: restore it from a backup"),
        _ if words.starts_with("no such table") || words.starts_with("no such column") => {
            Some("a table of Tidegate's is missing in the file, or a column of one: restore it from a backup")
        }
        _ => None,
    }
}

/// The kind of an error that says something about the store as a whole.
fn store_kind(error: &Sql) -> Option<ErrorKind> {
    let Sql::SqliteFailure(e, _) = error else { return None };
    match e.code {
        Code::DatabaseCorrupt | Code::NotADatabase => Some(ErrorKind::Corrupt),
        Code::DiskFull
        | Code::SystemIoFailure
        | Code::ReadOnly
        | Code::PermissionDenied
        | Code::DatabaseBusy
        | Code::DatabaseLocked
        | Code::CannotOpen
        | Code::OutOfMemory
        | Code::OperationInterrupted
        | Code::FileLockingProtocolFailed
        | Code::NoLargeFileSupport => Some(ErrorKind::Unavailable),
        _ => None,
    }
}

/// The answer to calls after `close`.
pub(super) fn closed() -> Error {
    Error::new(ErrorKind::Unavailable, "the store is closed")
}
