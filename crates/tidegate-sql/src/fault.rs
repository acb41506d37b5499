//! What a server or its connection says, in the seam's words.

use std::fmt;

use tidegate_backend::{Error, ErrorKind};

/// What a failed statement means for the transaction it was in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// The server chose this transaction to break a deadlock, or could not serialize it. Run it again.
    Deadlock,
    /// A lock was waited for too long, or a statement took too long.
    LockTimeout,
    /// A row with this key came into being meanwhile. Run it again: it will be seen.
    Unique,
    /// The connection is gone, or no answer came in time: whether the last statement took effect is not known.
    Lost,
    /// The server cannot do it now.
    Unavailable,
    /// The database does not have what the address names, or does not let us in.
    Configuration,
    /// The statement's own data cannot be written.
    Data,
    /// What was read cannot be Tidegate's.
    Corrupt,
}

impl Class {
    fn kind(self) -> ErrorKind {
        match self {
            Self::Data | Self::Unique => ErrorKind::Command,
            Self::Corrupt => ErrorKind::Corrupt,
            Self::Configuration => ErrorKind::Configuration,
            Self::Deadlock | Self::LockTimeout | Self::Lost | Self::Unavailable => ErrorKind::Unavailable,
        }
    }

    /// The label in metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Deadlock => "deadlock",
            Self::LockTimeout => "lock_timeout",
            Self::Unique => "unique",
            Self::Lost => "connection",
            Self::Unavailable => "unavailable",
            Self::Configuration => "configuration",
            Self::Data => "data",
            Self::Corrupt => "corrupt",
        }
    }
}

/// A failed statement.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) class: Class,
    context: String,
    /// What the driver said, and what to do about it.
    said: Option<String>,
    /// Why a database that answers does not do it, and what to do about that.
    advice: Option<&'static str>,
}

/// The result of everything on a connection.
pub(crate) type Result<T> = std::result::Result<T, Fault>;

impl Fault {
    /// A fault without a cause in the driver.
    pub(crate) fn new(class: Class, context: impl Into<String>) -> Self {
        Self { class, context: context.into(), said: None, advice: None }
    }

    /// A value in a row that no Tidegate has written.
    pub(crate) fn corrupt(context: impl Into<String>) -> Self {
        Self::new(Class::Corrupt, context)
    }

    /// The same with other words for what was being done.
    pub(crate) fn while_doing(mut self, context: impl Into<String>) -> Self {
        self.context = context.into();
        self
    }

    /// What the driver said.
    pub(crate) fn from_driver(error: sqlx::Error) -> Self {
        let class = class(&error);
        let context = match class {
            Class::Lost => "the connection to the database was lost",
            Class::Deadlock | Class::LockTimeout => "the database is busy",
            Class::Unique => "a row with this key exists already",
            Class::Configuration => "the ledger's database cannot be used",
            Class::Corrupt => "the database holds what no Tidegate has written",
            Class::Data => "the database refuses a row",
            Class::Unavailable => "the database cannot do this now",
        };
        Self { class, context: context.to_owned(), said: Some(said(&error)), advice: advice(&error) }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.context)?;
        match &self.said {
            Some(said) => write!(f, ": {said}"),
            None => Ok(()),
        }
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        let error = Error::new(fault.class.kind(), fault.context).advise(fault.advice);
        match fault.said {
            Some(said) => error.because(said),
            None => error,
        }
    }
}

/// A broken row keeps its meaning where a statement's fault is expected.
impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let class = match error.kind() {
            ErrorKind::Corrupt => Class::Corrupt,
            ErrorKind::Command => Class::Data,
            ErrorKind::Configuration => Class::Configuration,
            _ => Class::Unavailable,
        };
        Self { advice: error.advice(), ..Self::new(class, error.to_string()) }
    }
}

/// The answer to calls after `close`.
pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Unavailable, "the ledger is closed")
}

/// The driver's words without its own (such as the line of PostgreSQL's source), and what to do next where that is known.
fn said(error: &sqlx::Error) -> String {
    let (words, next) = match error {
        sqlx::Error::Database(e) => (e.message().to_owned(), database_next(e.as_ref())),
        sqlx::Error::Tls(e) if no_tls(e.as_ref()) => (
            e.to_string(),
            Some("switch TLS on at the server, or leave `sslmode` (`ssl-mode`) out of the ledger's URL"),
        ),
        sqlx::Error::Protocol(words) => {
            // The driver names its own source at the end. A server that hung up "answers" with a zero.
            let words = words.split(" (sqlx_").next().unwrap_or(words);
            let next = "look whether the URL's scheme is the server's: postgres:// for PostgreSQL, mysql:// for MySQL and MariaDB";
            (words.to_owned(), (!words.ends_with("0x00")).then_some(next))
        }
        other => (other.to_string(), None),
    };
    match next {
        Some(next) => format!("{words}; {next}"),
        None => words,
    }
}

/// The server answered that it speaks no TLS.
fn no_tls(error: &(dyn std::error::Error + Send + Sync)) -> bool {
    error.to_string().contains("does not support TLS")
}

fn database_next(error: &dyn sqlx::error::DatabaseError) -> Option<&'static str> {
    const PASSWORD: &str = "check user and password in the ledger's URL";
    const DATABASE: &str = "create it: CREATE DATABASE ..., or name another in the ledger's URL";
    #[cfg(feature = "mysql")]
    if let Some(error) = error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>() {
        return match error.number() {
            1045 | 1251 | 1698 => Some(PASSWORD),
            1049 => Some(DATABASE),
            1044 | 1142 | 1227 => Some("grant the user its database: GRANT ALL ON database.* TO user"),
            _ => None,
        };
    }
    match error.code()?.as_ref() {
        "28P01" => Some(PASSWORD),
        "28000" => Some("check user and password in the ledger's URL, and pg_hba.conf of the server"),
        "3D000" => Some(DATABASE),
        "42501" | "3F000" => Some("grant the user to make tables: GRANT CREATE, USAGE ON SCHEMA public TO user"),
        _ => None,
    }
}

/// Why a database that answers does not do it, and what to do about that.
fn advice(error: &sqlx::Error) -> Option<&'static str> {
    const MISSING: &str =
        "a table of Tidegate's is missing in the database, or a column of one: restore it from a backup";
    const FULL: &str = "the database's disk is full: make room there";
    const READ_ONLY: &str = "the database is read-only: name the one that is written to, or let this one be";
    let sqlx::Error::Database(error) = error else { return None };
    #[cfg(feature = "mysql")]
    if let Some(error) = error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>() {
        // ER_BAD_FIELD_ERROR, ER_NO_SUCH_TABLE; ER_DISK_FULL, ER_RECORD_FILE_FULL; ER_OPTION_PREVENTS_STATEMENT, ER_READ_ONLY_MODE
        return match error.number() {
            1054 | 1146 => Some(MISSING),
            1021 | 1114 => Some(FULL),
            1290 | 1836 => Some(READ_ONLY),
            _ => None,
        };
    }
    match error.code()?.as_ref() {
        "42P01" | "42703" => Some(MISSING),
        "53100" => Some(FULL),
        "25006" => Some(READ_ONLY),
        _ => None,
    }
}

fn class(error: &sqlx::Error) -> Class {
    match error {
        sqlx::Error::Database(e) => {
            #[cfg(feature = "mysql")]
            if let Some(e) = e.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>() {
                return mysql(e.number());
            }
            e.code().map_or(Class::Unavailable, |code| sqlstate(&code))
        }
        sqlx::Error::Configuration(_) | sqlx::Error::InvalidArgument(_) => Class::Configuration,
        sqlx::Error::Tls(e) if no_tls(e.as_ref()) => Class::Configuration,
        sqlx::Error::Decode(_) | sqlx::Error::ColumnDecode { .. } => Class::Corrupt,
        sqlx::Error::Encode(_) => Class::Data,
        _ => Class::Lost,
    }
}

/// The class of a MySQL or MariaDB error number.
#[cfg(feature = "mysql")]
fn mysql(number: u16) -> Class {
    match number {
        // ER_LOCK_DEADLOCK, ER_CHECKREAD (a snapshot that is too old), ER_XA_RBDEADLOCK
        1213 | 1020 | 1614 => Class::Deadlock,
        // ER_LOCK_WAIT_TIMEOUT, and a statement that took too long, which is mostly for the same reason
        1205 | 1969 | 3024 => Class::LockTimeout,
        // ER_DUP_ENTRY and its variant that names the key
        1062 | 1586 => Class::Unique,
        // Shut down, killed, gone
        1053 | 1077 | 1079 | 1080 | 1152 | 1158..=1161 | 1184 | 1927 | 4031 => Class::Lost,
        // No rights, no such database
        1044 | 1045 | 1049 | 1142 | 1227 | 1251 | 1698 => Class::Configuration,
        // Too long, out of range, a check, a packet: the row's own
        1048 | 1153 | 1264 | 1292 | 1366 | 1406 | 1690 | 3819 | 4025 => Class::Data,
        // ER_NOT_KEYFILE, ER_CRASHED_ON_USAGE, ER_INDEX_CORRUPT
        1034 | 1035 | 1194 | 1712 => Class::Corrupt,
        _ => Class::Unavailable,
    }
}

/// The class of an SQLSTATE.
fn sqlstate(code: &str) -> Class {
    match code {
        "40P01" | "40001" | "40003" => Class::Deadlock,
        // lock_not_available, and a statement that took too long, which is mostly for the same reason
        "55P03" | "57014" => Class::LockTimeout,
        "23505" => Class::Unique,
        // A connection that the server ends, whatever for.
        "25P03" | "25P04" | "57P01" | "57P02" | "57P03" | "57P05" => Class::Lost,
        "28000" | "28P01" | "3D000" | "3F000" | "42501" => Class::Configuration,
        "XX001" | "XX002" => Class::Corrupt,
        _ if code.starts_with("08") => Class::Lost,
        _ if code.starts_with("22") || code.starts_with("23") || code == "54000" => Class::Data,
        _ => Class::Unavailable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_have_their_class() {
        for (code, class) in [
            ("40P01", Class::Deadlock),
            ("55P03", Class::LockTimeout),
            ("23505", Class::Unique),
            ("23514", Class::Data),
            ("57P01", Class::Lost),
            ("08006", Class::Lost),
            ("25006", Class::Unavailable),
            ("53100", Class::Unavailable),
            ("57014", Class::LockTimeout),
            ("28P01", Class::Configuration),
            ("XX001", Class::Corrupt),
        ] {
            assert_eq!(sqlstate(code), class, "{code}");
        }
    }
}
