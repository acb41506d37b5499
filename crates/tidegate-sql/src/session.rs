//! One connection, whatever the dialect.
//!
//! A session knows whether it may be used again: one whose call was cancelled, that was left inside a transaction or
//! that lost its server is dirty, and the pool throws it away. Every call has a bound.

use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use sqlx::{AssertSqlSafe, Executor};

use crate::bulk::Bulk;
use crate::connect::STATEMENT_BOUND;
use crate::dialect::Dialect;
use crate::fault::{Class, Fault, Result};
use crate::fetched::Row;
use crate::value::Value;

/// Longest wait for one statement's answer: the server's own bound, and a little for the way.
const ANSWER_BOUND: Duration = STATEMENT_BOUND.saturating_add(ON_THE_WAY);
const ON_THE_WAY: Duration = Duration::from_secs(1);

/// Longest wait for the next row of a long read.
const STREAM_BOUND: Duration = Duration::from_secs(60);

/// What a transaction sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Isolation {
    /// READ COMMITTED, to write: each statement sees what is committed when it begins; locked rows are the newest.
    Write,
    /// REPEATABLE READ, read only: every statement sees one instant.
    Snapshot,
}

pub(crate) enum Link {
    #[cfg(feature = "mysql")]
    MySql(sqlx::MySqlConnection),
    #[cfg(feature = "postgres")]
    Postgres(sqlx::PgConnection),
}

/// One connection.
pub(crate) struct Session {
    link: Link,
    /// In the middle of a call: set when a call's future was dropped before its end.
    calling: bool,
    /// Between `begin` and `commit` or `rollback`.
    open: bool,
    lost: bool,
    used: Instant,
    /// Largest statement to send, bytes.
    #[cfg_attr(not(feature = "mysql"), expect(dead_code, reason = "PostgreSQL takes a table's rows in one statement"))]
    largest: usize,
    /// Longest wait for what [`Session::execute`] runs.
    patience: Duration,
}

/// Runs `$body` on the driver's connection `$conn` of either dialect; the answer is a `sqlx` result.
macro_rules! on_link {
    ($session:expr, $bound:expr, $conn:ident => $body:expr) => {{
        $session.begin_call()?;
        let answer = tokio::time::timeout($bound, async {
            match &mut $session.link {
                #[cfg(feature = "mysql")]
                Link::MySql($conn) => $body,
                #[cfg(feature = "postgres")]
                Link::Postgres($conn) => $body,
            }
        })
        .await;
        $session.end_call(answer)
    }};
}

impl Session {
    /// A session on a fresh connection; `largest` is the size of the largest statement it may send, in bytes.
    pub(crate) fn new(link: Link, largest: usize) -> Self {
        Self { link, calling: false, open: false, lost: false, used: Instant::now(), largest, patience: ANSWER_BOUND }
    }

    /// Sets the size of the largest statement to send, bytes.
    #[cfg(feature = "mysql")]
    pub(crate) fn send_at_most(&mut self, bytes: usize) {
        self.largest = bytes;
    }

    /// The server's dialect.
    pub(crate) fn dialect(&self) -> Dialect {
        match self.link {
            #[cfg(feature = "mysql")]
            Link::MySql(_) => Dialect::MySql,
            #[cfg(feature = "postgres")]
            Link::Postgres(_) => Dialect::Postgres,
        }
    }

    /// Whether it may serve another caller.
    pub(crate) fn is_clean(&self) -> bool {
        !(self.calling || self.open || self.lost)
    }

    /// How long it has not been used.
    pub(crate) fn idle(&self) -> Duration {
        self.used.elapsed()
    }

    fn begin_call(&mut self) -> Result<()> {
        if self.calling || self.lost {
            return Err(Fault::new(Class::Lost, "the connection to the database is not usable any more"));
        }
        self.calling = true;
        Ok(())
    }

    fn end_call<T>(
        &mut self,
        answer: std::result::Result<std::result::Result<T, sqlx::Error>, tokio::time::error::Elapsed>,
    ) -> Result<T> {
        self.calling = false;
        self.used = Instant::now();
        let result = match answer {
            Ok(result) => result.map_err(Fault::from_driver),
            Err(_) => Err(Fault::new(Class::Lost, "the database does not answer")),
        };
        if result.as_ref().is_err_and(|fault| fault.class == Class::Lost) {
            self.lost = true;
        }
        result
    }

    /// All rows of a query. `?` stands for a value, `IN ?` for a set.
    pub(crate) async fn rows(&mut self, sql: &str, values: &[Value<'_>]) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        self.each_within(ANSWER_BOUND, sql, values, |row| {
            rows.push(row);
            Ok(())
        })
        .await?;
        Ok(rows)
    }

    /// The first row of a query, if there is one. The query says so itself when it may find many (`LIMIT 1`).
    pub(crate) async fn one(&mut self, sql: &str, values: &[Value<'_>]) -> Result<Option<Row>> {
        Ok(self.rows(sql, values).await?.into_iter().next())
    }

    /// Gives each row of a long query to `visit` as it comes; memory stays bounded.
    pub(crate) async fn each(
        &mut self,
        sql: &str,
        values: &[Value<'_>],
        visit: impl FnMut(Row) -> Result<()> + Send,
    ) -> Result<()> {
        self.each_within(STREAM_BOUND, sql, values, visit).await
    }

    async fn each_within(
        &mut self,
        bound: Duration,
        sql: &str,
        values: &[Value<'_>],
        mut visit: impl FnMut(Row) -> Result<()> + Send,
    ) -> Result<()> {
        let sql = self.dialect().translate(sql, values);
        self.begin_call()?;
        // The bound is for each row, so it stands inside.
        let seen = match &mut self.link {
            #[cfg(feature = "mysql")]
            Link::MySql(conn) => {
                let query = sqlx::query_with(AssertSqlSafe(sql), mysql_arguments(values)?);
                let mut rows = conn.fetch(query);
                loop {
                    match tokio::time::timeout(bound, rows.try_next()).await {
                        Ok(Ok(Some(row))) => visit(Row::MySql(row))?,
                        Ok(Ok(None)) => break Ok(Ok(())),
                        Ok(Err(e)) => break Ok(Err(e)),
                        Err(late) => break Err(late),
                    }
                }
            }
            #[cfg(feature = "postgres")]
            Link::Postgres(conn) => {
                let query = sqlx::query_with(AssertSqlSafe(sql), postgres_arguments(values)?);
                let mut rows = conn.fetch(query);
                loop {
                    match tokio::time::timeout(bound, rows.try_next()).await {
                        Ok(Ok(Some(row))) => visit(Row::Postgres(row))?,
                        Ok(Ok(None)) => break Ok(Ok(())),
                        Ok(Err(e)) => break Ok(Err(e)),
                        Err(late) => break Err(late),
                    }
                }
            }
        };
        self.end_call(seen)
    }

    /// Runs a statement that changes rows; gives the number MySQL made for it (`AUTO_INCREMENT`, `LAST_INSERT_ID(..)`), 0 on
    /// PostgreSQL, whose statements return rows instead.
    pub(crate) async fn execute(&mut self, sql: &str, values: &[Value<'_>]) -> Result<u64> {
        let sql = self.dialect().translate(sql, values);
        self.begin_call()?;
        let answer = match &mut self.link {
            #[cfg(feature = "mysql")]
            Link::MySql(conn) => {
                let query = sqlx::query_with(AssertSqlSafe(sql), mysql_arguments(values)?);
                let answer = tokio::time::timeout(self.patience, conn.execute(query)).await;
                answer.map(|r| r.map(|d| d.last_insert_id()))
            }
            #[cfg(feature = "postgres")]
            Link::Postgres(conn) => {
                let query = sqlx::query_with(AssertSqlSafe(sql), postgres_arguments(values)?);
                let answer = tokio::time::timeout(self.patience, conn.execute(query)).await;
                answer.map(|r| r.map(|_| 0))
            }
        };
        self.end_call(answer)
    }

    /// Lets what [`Session::execute`] runs take as long as this in the present transaction, until it is called
    /// again; it must be, with the usual bound.
    pub(crate) async fn allow(&mut self, bound: Duration) -> Result<()> {
        let seconds = bound.as_secs();
        let text = match self.dialect() {
            // Only MariaDB reads the comment. MySQL has no such bound for statements that write.
            Dialect::MySql => format!("SET @tidegate = 0 /*M! , SESSION max_statement_time = {seconds} */"),
            Dialect::Postgres => format!("SET LOCAL statement_timeout = '{seconds}s'"),
        };
        self.script(&text).await?;
        self.patience = bound + ON_THE_WAY;
        Ok(())
    }

    /// Runs a text of statements as it is: settings and schema steps, never anything with a caller's data in it.
    pub(crate) async fn script(&mut self, text: &str) -> Result<()> {
        self.script_within(ANSWER_BOUND, text).await
    }

    /// The same with a bound of its own.
    pub(crate) async fn script_within(&mut self, bound: Duration, text: &str) -> Result<()> {
        on_link!(self, bound, conn => {
            conn.execute(sqlx::raw_sql(AssertSqlSafe(text))).await.map(|_| ())
        })
    }

    /// Writes all rows of `bulk` in as few statements as their size allows.
    pub(crate) async fn write(&mut self, bulk: &Bulk) -> Result<()> {
        if bulk.is_empty() {
            return Ok(());
        }
        match self.dialect() {
            #[cfg(feature = "mysql")]
            Dialect::MySql => {
                for (text, values) in bulk.mysql(self.largest)? {
                    self.begin_call()?;
                    let answer = match &mut self.link {
                        Link::MySql(conn) => {
                            let query = sqlx::query_with(AssertSqlSafe(text), values);
                            tokio::time::timeout(ANSWER_BOUND, conn.execute(query)).await
                        }
                        #[cfg(feature = "postgres")]
                        Link::Postgres(_) => unreachable!("the dialect is the link's"),
                    };
                    self.end_call(answer)?;
                }
            }
            #[cfg(feature = "postgres")]
            Dialect::Postgres => {
                self.begin_call()?;
                let answer = match &mut self.link {
                    Link::Postgres(conn) => {
                        let query = sqlx::query_with(AssertSqlSafe(bulk.postgres_text()), bulk.postgres_arguments()?);
                        tokio::time::timeout(ANSWER_BOUND, conn.execute(query)).await
                    }
                    #[cfg(feature = "mysql")]
                    Link::MySql(_) => unreachable!("the dialect is the link's"),
                };
                self.end_call(answer)?;
            }
            #[cfg(not(all(feature = "mysql", feature = "postgres")))]
            other => unreachable!("{other:?} is not built in"),
        }
        Ok(())
    }

    /// Begins a transaction.
    pub(crate) async fn begin(&mut self, isolation: Isolation) -> Result<()> {
        self.open = true;
        let text = match (self.dialect(), isolation) {
            (Dialect::MySql, Isolation::Write) => "START TRANSACTION",
            (Dialect::MySql, Isolation::Snapshot) => {
                "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"
            }
            (Dialect::Postgres, Isolation::Write) => "BEGIN ISOLATION LEVEL READ COMMITTED",
            (Dialect::Postgres, Isolation::Snapshot) => "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY",
        };
        self.script(text).await
    }

    /// Commits. After a fault of class [`Class::Lost`] it is not known whether it did.
    pub(crate) async fn commit(&mut self) -> Result<()> {
        self.script("COMMIT").await?;
        self.open = false;
        Ok(())
    }

    /// Rolls back.
    pub(crate) async fn rollback(&mut self) -> Result<()> {
        self.script("ROLLBACK").await?;
        self.open = false;
        Ok(())
    }

    /// Asks whether the server is there.
    pub(crate) async fn ping(&mut self, bound: Duration) -> Result<()> {
        use sqlx::Connection as _;
        on_link!(self, bound, conn => conn.ping().await)
    }
}

fn encoding(e: sqlx::error::BoxDynError) -> Fault {
    Fault::from_driver(sqlx::Error::Encode(e))
}

#[cfg(feature = "mysql")]
fn mysql_arguments(values: &[Value<'_>]) -> Result<sqlx::mysql::MySqlArguments> {
    use sqlx::Arguments as _;
    let mut arguments = sqlx::mysql::MySqlArguments::default();
    for value in values {
        match value {
            Value::Int(n) => arguments.add(*n).map_err(encoding)?,
            Value::Bytes(bytes) => arguments.add(*bytes).map_err(encoding)?,
            Value::Text(text) => arguments.add(*text).map_err(encoding)?,
            Value::Ints(all) => {
                // The last one fills the places left over; of an empty set nothing is found.
                for at in 0..crate::dialect::padded(all.len()) {
                    arguments.add(all.get(at).or(all.last()).copied()).map_err(encoding)?;
                }
            }
            Value::List(_) => unreachable!("MySQL has no arrays"),
            Value::Blobs(all) => {
                for at in 0..crate::dialect::padded(all.len()) {
                    arguments.add(all.get(at).or(all.last()).copied()).map_err(encoding)?;
                }
            }
        }
    }
    Ok(arguments)
}

#[cfg(feature = "postgres")]
fn postgres_arguments(values: &[Value<'_>]) -> Result<sqlx::postgres::PgArguments> {
    use sqlx::Arguments as _;
    let mut arguments = sqlx::postgres::PgArguments::default();
    for value in values {
        match value {
            Value::Int(n) => arguments.add(*n),
            Value::Bytes(bytes) => arguments.add(*bytes),
            Value::Text(text) => arguments.add(*text),
            Value::Ints(all) => arguments.add(*all),
            Value::Blobs(all) | Value::List(all) => arguments.add(*all),
        }
        .map_err(encoding)?;
    }
    Ok(arguments)
}
