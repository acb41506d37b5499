//! What the two dialects say differently in a statement's frame. Statements are written once, with `?` for a value and
//! `IN ?` for a set of them.

use crate::value::Value;

/// The dialect of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(all(feature = "mysql", feature = "postgres")), allow(dead_code))]
pub(crate) enum Dialect {
    /// MySQL 8 and MariaDB.
    MySql,
    /// PostgreSQL.
    Postgres,
}

impl Dialect {
    /// The name in metrics and messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::MySql => "mysql",
            Self::Postgres => "postgres",
        }
    }

    /// Of two wordings the one for this dialect.
    pub(crate) fn pick<T>(self, mysql: T, postgres: T) -> T {
        match self {
            Self::MySql => mysql,
            Self::Postgres => postgres,
        }
    }

    /// The statement in this dialect. `values` tells how many places a set needs where each has one of its own.
    pub(crate) fn translate(self, sql: &str, values: &[Value<'_>]) -> String {
        let mut out = String::with_capacity(sql.len() + 4 * values.len());
        let mut parts = sql.split('?');
        out.push_str(parts.next().unwrap_or_default());
        for (at, part) in parts.enumerate() {
            let set = values.get(at).and_then(Value::set_len);
            match (self, set) {
                (Self::MySql, None) => out.push('?'),
                (Self::MySql, Some(len)) => places(&mut out, padded(len)),
                (Self::Postgres, None) => out.push_str(&format!("${}", at + 1)),
                (Self::Postgres, Some(_)) => {
                    let before = out.trim_end();
                    debug_assert!(before.ends_with(" IN"), "a set follows IN: {sql}");
                    out.truncate(before.len() - "IN".len());
                    out.push_str(&format!("= ANY(${})", at + 1));
                }
            }
            out.push_str(part);
        }
        out
    }
}

/// How many places a set of `len` gets: the next power of two, so that few wordings of a statement exist.
pub(crate) fn padded(len: usize) -> usize {
    len.max(1).next_power_of_two()
}

fn places(out: &mut String, count: usize) {
    out.push('(');
    for at in 0..count {
        out.push_str(if at == 0 { "?" } else { ",?" });
    }
    out.push(')');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wording_serves_both() {
        let ids: Vec<&[u8]> = vec![b"a", b"b", b"c"];
        let values = [Value::from(7), Value::Blobs(&ids), Value::from("x")];
        let sql = "SELECT a FROM t WHERE b > ? AND id IN ? AND c = ? ORDER BY id";
        assert_eq!(
            Dialect::MySql.translate(sql, &values),
            "SELECT a FROM t WHERE b > ? AND id IN (?,?,?,?) AND c = ? ORDER BY id"
        );
        assert_eq!(
            Dialect::Postgres.translate(sql, &values),
            "SELECT a FROM t WHERE b > $1 AND id = ANY($2) AND c = $3 ORDER BY id"
        );
        let none = [Value::Ints(&[])];
        assert_eq!(Dialect::MySql.translate("DELETE FROM t WHERE n IN ?", &none), "DELETE FROM t WHERE n IN (?)");
    }
}
