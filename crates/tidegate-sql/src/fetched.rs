//! A row as it was read, whatever the dialect. Columns are taken by their place.

use crate::fault::{Fault, Result};

/// One row of an answer.
pub(crate) enum Row {
    #[cfg(feature = "mysql")]
    MySql(sqlx::mysql::MySqlRow),
    #[cfg(feature = "postgres")]
    Postgres(sqlx::postgres::PgRow),
}

macro_rules! column {
    ($row:expr, $at:expr, $type:ty) => {{
        use sqlx::Row as _;
        // Unchecked: a BIGINT expression may be typed as a smaller integer, a byte string as text.
        let value: std::result::Result<$type, sqlx::Error> = match $row {
            #[cfg(feature = "mysql")]
            Row::MySql(row) => row.try_get_unchecked($at),
            #[cfg(feature = "postgres")]
            Row::Postgres(row) => row.try_get_unchecked($at),
        };
        value.map_err(|e| Fault::from_driver(e).while_doing(format!("column {} of a row cannot be read", $at)))
    }};
}

fn there<T>(at: usize, value: Option<T>) -> Result<T> {
    value.ok_or_else(|| Fault::corrupt(format!("column {at} of a row has no value")))
}

impl Row {
    /// A number, or `None` for NULL.
    pub(crate) fn opt_int(&self, at: usize) -> Result<Option<i64>> {
        column!(self, at, Option<i64>)
    }

    /// A number.
    pub(crate) fn int(&self, at: usize) -> Result<i64> {
        there(at, self.opt_int(at)?)
    }

    /// Bytes, or `None` for NULL.
    pub(crate) fn opt_bytes(&self, at: usize) -> Result<Option<&[u8]>> {
        column!(self, at, Option<&[u8]>)
    }

    /// Bytes.
    pub(crate) fn bytes(&self, at: usize) -> Result<&[u8]> {
        there(at, self.opt_bytes(at)?)
    }

    /// Text, or `None` for NULL.
    pub(crate) fn opt_text(&self, at: usize) -> Result<Option<&str>> {
        column!(self, at, Option<&str>)
    }

    /// Text.
    pub(crate) fn text(&self, at: usize) -> Result<&str> {
        there(at, self.opt_text(at)?)
    }
}
