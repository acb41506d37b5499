//! Many rows of one table in few statements, all prepared. PostgreSQL gets one array a column (`UNNEST`), so that a table has
//! one statement whatever the number of rows. MySQL gets 64, 32, .. or 1 row at a time, so that a table has seven; measured,
//! that takes a third to a half of the time of literals in the text, and rows in hundreds gain nothing more.

use std::fmt::Write as _;

use crate::fault::{Fault, Result};

/// Most rows of one statement on MySQL; a power of two.
#[cfg(feature = "mysql")]
const MYSQL_ROWS: usize = 64;

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A BIGINT.
    Int,
    /// Bytes.
    Bytes,
    /// Text.
    Text,
}

/// A table as a bulk statement writes it.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) columns: &'static [(&'static str, Kind)],
    /// Columns of the unique key by which a row is updated where it exists; empty: rows are only inserted.
    #[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "MySQL tries every unique key of the table"))]
    pub(crate) key: &'static [&'static str],
    /// Columns to update where the row exists.
    pub(crate) update: &'static [&'static str],
}

#[derive(Debug)]
enum Cells {
    Ints(Vec<Option<i64>>),
    /// Bytes or text one after another, and where each ends; `None` for NULL.
    Strings {
        arena: Vec<u8>,
        ends: Vec<(usize, bool)>,
    },
}

/// Rows to write.
#[derive(Debug)]
pub(crate) struct Bulk {
    table: &'static Table,
    columns: Vec<Cells>,
    rows: usize,
    /// The column that the next value is for.
    at: usize,
}

impl Bulk {
    /// No rows yet.
    pub(crate) fn new(table: &'static Table) -> Self {
        let empty = |kind: &Kind| match kind {
            Kind::Int => Cells::Ints(Vec::new()),
            Kind::Bytes | Kind::Text => Cells::Strings { arena: Vec::new(), ends: Vec::new() },
        };
        Self { table, columns: table.columns.iter().map(|(_, kind)| empty(kind)).collect(), rows: 0, at: 0 }
    }

    /// Whether there is nothing to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows == 0
    }

    fn next(&mut self) -> &mut Cells {
        let at = self.at;
        self.at += 1;
        if self.at == self.columns.len() {
            self.at = 0;
            self.rows += 1;
        }
        &mut self.columns[at]
    }

    /// The next value of the present row: a number or NULL. Values come in the order of the table's columns.
    pub(crate) fn int(&mut self, n: impl Into<Option<i64>>) -> &mut Self {
        let n = n.into();
        match self.next() {
            Cells::Ints(all) => all.push(n),
            Cells::Strings { .. } => unreachable!("the column holds no numbers"),
        }
        self
    }

    /// The next value: bytes or NULL.
    pub(crate) fn bytes<'a>(&mut self, bytes: impl Into<Option<&'a [u8]>>) -> &mut Self {
        let bytes = bytes.into();
        match self.next() {
            Cells::Strings { arena, ends } => {
                arena.extend_from_slice(bytes.unwrap_or_default());
                ends.push((arena.len(), bytes.is_some()));
            }
            Cells::Ints(_) => unreachable!("the column holds numbers"),
        }
        self
    }

    /// The next value: text or NULL.
    pub(crate) fn text<'a>(&mut self, text: impl Into<Option<&'a str>>) -> &mut Self {
        self.bytes(text.into().map(str::as_bytes))
    }

    fn names(&self) -> String {
        self.table.columns.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(",")
    }

    /// Statements with their values, each of at most about `largest` bytes (one row may be more).
    #[cfg(feature = "mysql")]
    pub(crate) fn mysql(&self, largest: usize) -> Result<Vec<(String, sqlx::mysql::MySqlArguments)>> {
        debug_assert_eq!(self.at, 0, "a row of {} is not complete", self.table.name);
        let mut statements = Vec::new();
        let mut from = 0;
        while from < self.rows {
            let left = (self.rows - from).min(MYSQL_ROWS);
            let mut count = 1 << left.ilog2();
            while count > 1 && self.size(from, count) > largest {
                count /= 2;
            }
            statements.push((self.mysql_text(count), self.mysql_arguments(from, count)?));
            from += count;
        }
        Ok(statements)
    }

    #[cfg(feature = "mysql")]
    fn mysql_text(&self, rows: usize) -> String {
        let row = format!("({})", vec!["?"; self.columns.len()].join(","));
        let mut text = format!("INSERT INTO {} ({}) VALUES ", self.table.name, self.names());
        text.push_str(&vec![row; rows].join(","));
        for (at, column) in self.table.update.iter().enumerate() {
            let before = if at == 0 { " ON DUPLICATE KEY UPDATE " } else { "," };
            let _ = write!(text, "{before}{column}=VALUES({column})");
        }
        text
    }

    #[cfg(feature = "mysql")]
    fn mysql_arguments(&self, from: usize, rows: usize) -> Result<sqlx::mysql::MySqlArguments> {
        use sqlx::Arguments as _;
        let mut arguments = sqlx::mysql::MySqlArguments::default();
        arguments.reserve(rows * self.columns.len(), self.size(from, rows));
        for row in from..from + rows {
            for (cells, (_, kind)) in self.columns.iter().zip(self.table.columns) {
                match cells {
                    Cells::Ints(all) => arguments.add(all[row]),
                    Cells::Strings { arena, ends } => match (piece(arena, ends, row), kind) {
                        (Some(bytes), Kind::Text) => arguments.add(text(bytes)?),
                        (bytes, _) => arguments.add(bytes),
                    },
                }
                .map_err(cannot)?;
            }
        }
        Ok(arguments)
    }

    /// About the bytes of these rows.
    #[cfg(feature = "mysql")]
    fn size(&self, from: usize, rows: usize) -> usize {
        let of = |cells: &Cells| match cells {
            Cells::Ints(_) => 8 * rows,
            Cells::Strings { ends, .. } => {
                let start = if from == 0 { 0 } else { ends[from - 1].0 };
                ends[from + rows - 1].0 - start + 9 * rows
            }
        };
        self.columns.iter().map(of).sum()
    }

    /// The statement, whatever the number of rows.
    #[cfg(feature = "postgres")]
    pub(crate) fn postgres_text(&self) -> String {
        let arrays = self.table.columns.iter().enumerate().map(|(at, (_, kind))| {
            let name = match kind {
                Kind::Int => "BIGINT",
                Kind::Bytes => "BYTEA",
                Kind::Text => "TEXT",
            };
            format!("${}::{name}[]", at + 1)
        });
        let arrays = arrays.collect::<Vec<_>>().join(",");
        let mut text = format!("INSERT INTO {} ({}) SELECT * FROM UNNEST({arrays})", self.table.name, self.names());
        if !self.table.key.is_empty() {
            let set = self.table.update.iter().map(|column| format!("{column}=excluded.{column}"));
            let set = set.collect::<Vec<_>>().join(",");
            let _ = write!(text, " ON CONFLICT ({}) DO UPDATE SET {set}", self.table.key.join(","));
        }
        text
    }

    /// One array a column.
    #[cfg(feature = "postgres")]
    pub(crate) fn postgres_arguments(&self) -> Result<sqlx::postgres::PgArguments> {
        use sqlx::Arguments as _;
        debug_assert_eq!(self.at, 0, "a row of {} is not complete", self.table.name);
        let mut arguments = sqlx::postgres::PgArguments::default();
        for (cells, (_, kind)) in self.columns.iter().zip(self.table.columns) {
            match cells {
                Cells::Ints(all) => arguments.add(all.as_slice()).map_err(cannot)?,
                Cells::Strings { arena, ends } => {
                    let pieces = (0..self.rows).map(|row| piece(arena, ends, row));
                    if *kind == Kind::Text {
                        let texts = pieces.map(|p| p.map(text).transpose()).collect::<Result<Vec<_>>>()?;
                        arguments.add(texts).map_err(cannot)?;
                    } else {
                        arguments.add(pieces.collect::<Vec<_>>()).map_err(cannot)?;
                    }
                }
            }
        }
        Ok(arguments)
    }
}

fn cannot(e: sqlx::error::BoxDynError) -> Fault {
    Fault::from_driver(sqlx::Error::Encode(e))
}

fn text(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|e| cannot(e.into()))
}

fn piece<'a>(arena: &'a [u8], ends: &[(usize, bool)], row: usize) -> Option<&'a [u8]> {
    let (end, there) = ends[row];
    let start = if row == 0 { 0 } else { ends[row - 1].0 };
    there.then(|| &arena[start..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    static TABLE: Table = Table {
        name: "t",
        columns: &[("id", Kind::Bytes), ("n", Kind::Int), ("note", Kind::Text)],
        key: &["id"],
        update: &["n", "note"],
    };

    fn three() -> Bulk {
        let mut bulk = Bulk::new(&TABLE);
        bulk.bytes(&b"a'"[..]).int(-1).text(None);
        bulk.bytes(&b""[..]).int(None).text("\u{e9}");
        bulk.bytes(&b"\\"[..]).int(i64::MIN).text("");
        bulk
    }

    #[cfg(feature = "mysql")]
    #[test]
    fn a_table_has_a_statement_for_each_power_of_two() {
        use sqlx::Arguments as _;
        let tail = " ON DUPLICATE KEY UPDATE n=VALUES(n),note=VALUES(note)";
        let head = "INSERT INTO t (id,n,note) VALUES ";
        let texts = |largest| {
            let statements = three().mysql(largest).unwrap();
            statements.into_iter().map(|(text, values)| (text, values.len())).collect::<Vec<_>>()
        };
        let (one, two) = (format!("{head}(?,?,?){tail}"), format!("{head}(?,?,?),(?,?,?){tail}"));
        assert_eq!(texts(1_000), [(two, 6), (one.clone(), 3)]);
        assert_eq!(texts(1), [(one.clone(), 3), (one.clone(), 3), (one, 3)], "every row has a statement of its own");
        let mut many = Bulk::new(&TABLE);
        for n in 0..200 {
            many.bytes(&b"x"[..]).int(n).text("y");
        }
        let counts = many.mysql(1 << 20).unwrap().iter().map(|(_, values)| values.len() / 3).collect::<Vec<_>>();
        assert_eq!(counts, [64, 64, 64, 8]);
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn a_table_has_one_statement() {
        let text = "INSERT INTO t (id,n,note) SELECT * FROM UNNEST($1::BYTEA[],$2::BIGINT[],$3::TEXT[]) \
            ON CONFLICT (id) DO UPDATE SET n=excluded.n,note=excluded.note";
        assert_eq!(three().postgres_text(), text);
        assert!(three().postgres_arguments().is_ok());
    }
}
