//! Rows by two names: who follows whom, who blocks whom, who shows what again.
//!
//! No server takes a set of pairs by its index in the same words: MySQL gets them one by one in a condition, PostgreSQL as two
//! arrays.

use tidegate_core::feed::{PostId, UserId};

use crate::dialect::{Dialect, padded};
use crate::fault::Result;
use crate::fetched::Row;
use crate::session::Session;
use crate::value::Value;

/// Pairs of one statement on MySQL; a power of two.
const MYSQL_PAIRS: usize = 64;

/// A table with an index on two names.
pub(super) struct Pairs {
    table: &'static str,
    /// Of MySQL, which may walk a short table otherwise.
    index: &'static str,
    columns: [&'static str; 2],
}

pub(super) const FOLLOWS: Pairs = Pairs { table: "feed_follows", index: "PRIMARY", columns: ["follower", "followee"] };
pub(super) const BLOCKS: Pairs = Pairs { table: "feed_blocks", index: "PRIMARY", columns: ["blocker", "blocked"] };
pub(super) const REPOSTS: Pairs = Pairs { table: "feed_posts", index: "feed_posts_root", columns: ["root", "author"] };

/// Two names as bytes.
pub(super) type Pair<'a> = (&'a [u8], &'a [u8]);

/// Two users.
pub(super) fn of_users(pair: &(UserId, UserId)) -> Pair<'_> {
    (pair.0.as_str().as_bytes(), pair.1.as_str().as_bytes())
}

/// A root and a user.
pub(super) fn of_repost(pair: &(PostId, UserId)) -> Pair<'_> {
    (pair.0.as_str().as_bytes(), pair.1.as_str().as_bytes())
}

impl Pairs {
    /// The rows with these names, in any order. `columns` are of `t`.
    pub(super) async fn rows(&self, session: &mut Session, columns: &str, pairs: &[Pair<'_>]) -> Result<Vec<Row>> {
        if pairs.is_empty() {
            return Ok(Vec::new());
        }
        let Self { table, index, columns: [one, other] } = self;
        match session.dialect() {
            Dialect::MySql => {
                let mut rows = Vec::new();
                for some in pairs.chunks(MYSQL_PAIRS) {
                    let (condition, values) = self.each(some);
                    let sql = format!("SELECT {columns} FROM {table} t FORCE INDEX ({index}) WHERE {condition}");
                    rows.extend(session.rows(&sql, &values).await?);
                }
                Ok(rows)
            }
            Dialect::Postgres => {
                let (ones, others): (Vec<&[u8]>, Vec<&[u8]>) = pairs.iter().copied().unzip();
                // OFFSET keeps each look-up by itself, so that no plan can walk the table.
                let sql = format!(
                    "SELECT {columns} FROM UNNEST(?::BYTEA[], ?::BYTEA[]) w (one, other) CROSS JOIN LATERAL \
                    (SELECT * FROM {table} x WHERE x.{one} = w.one AND x.{other} = w.other OFFSET 0) t"
                );
                session.rows(&sql, &[Value::List(&ones), Value::List(&others)]).await
            }
        }
    }

    /// Deletes the rows with these names.
    pub(super) async fn delete(&self, session: &mut Session, pairs: &[Pair<'_>]) -> Result<()> {
        if pairs.is_empty() {
            return Ok(());
        }
        let Self { table, index, columns: [one, other] } = self;
        match session.dialect() {
            Dialect::MySql => {
                for some in pairs.chunks(MYSQL_PAIRS) {
                    let (condition, values) = self.each(some);
                    // In this form a DELETE takes an index hint.
                    let sql = format!("DELETE t FROM {table} t FORCE INDEX ({index}) WHERE {condition}");
                    session.execute(&sql, &values).await?;
                }
                Ok(())
            }
            Dialect::Postgres => {
                let (ones, others): (Vec<&[u8]>, Vec<&[u8]>) = pairs.iter().copied().unzip();
                let sql = format!(
                    "DELETE FROM {table} t USING UNNEST(?::BYTEA[], ?::BYTEA[]) w (one, other) \
                    WHERE t.{one} = w.one AND t.{other} = w.other"
                );
                session.execute(&sql, &[Value::List(&ones), Value::List(&others)]).await.map(drop)
            }
        }
    }

    /// A condition on `t`; the last pair fills the places left over, so that few wordings exist.
    fn each<'a>(&self, pairs: &[Pair<'a>]) -> (String, Vec<Value<'a>>) {
        let [one, other] = self.columns;
        let count = padded(pairs.len());
        let condition = vec![format!("(t.{one} = ? AND t.{other} = ?)"); count].join(" OR ");
        let filled = (0..count).filter_map(|at| pairs.get(at).or(pairs.last()));
        (condition, filled.flat_map(|(one, other)| [Value::from(*one), Value::from(*other)]).collect())
    }
}
