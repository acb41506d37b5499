//! Databases of a bench's own, on the server that a URL names.

use tidegate_backend::{Error, ErrorKind, Result};

use crate::connect::{Address, Role};
use crate::dialect::Dialect;

/// Longest name.
const MAX_NAME: usize = 60;

/// Makes the empty database `name` (1..=60 of `a-z 0-9 _`) on the server at `url`; gives its URL.
///
/// # Errors
/// [`ErrorKind::Configuration`] for a URL or a name that cannot be used; [`ErrorKind::Unavailable`] when the server cannot
/// be reached, does not allow it, or has a database of that name.
pub async fn create(url: &str, name: &str) -> Result<String> {
    let made = beside(url, name)?;
    run(url, &format!("CREATE DATABASE {name}")).await?;
    Ok(made)
}

/// Deletes the database `name` with all that is in it, if there is one.
///
/// # Errors
/// As [`create`].
pub async fn delete(url: &str, name: &str) -> Result<()> {
    beside(url, name)?;
    let force = match Address::parse(url)?.dialect() {
        Dialect::MySql => "",
        // Whoever was killed a moment ago may still be connected.
        Dialect::Postgres => " WITH (FORCE)",
    };
    run(url, &format!("DROP DATABASE IF EXISTS {name}{force}")).await
}

async fn run(url: &str, statement: &str) -> Result<()> {
    let mut session = Address::parse(url)?.connect(Role::Audit).await?;
    Ok(session.script(statement).await?)
}

/// The URL of the database `name` on the server at `url`.
fn beside(url: &str, name: &str) -> Result<String> {
    let unusable = |why: &str| Err(Error::new(ErrorKind::Configuration, why));
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    if !(1..=MAX_NAME).contains(&name.len()) || !name.bytes().all(allowed) {
        return unusable("the name of a database must be 1..=60 of a-z 0-9 _");
    }
    let Some((scheme, rest)) = url.split_once("://") else { return unusable("the database's address has no scheme") };
    let (rest, query) = rest.split_once('?').map_or((rest, String::new()), |(rest, query)| (rest, format!("?{query}")));
    let server = rest.split_once('/').map_or(rest, |(server, _)| server);
    Ok(format!("{scheme}://{server}/{name}{query}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_database_is_replaced_in_the_url() {
        for (url, want) in [
            ("mysql://u:p@h:3306/shop", "mysql://u:p@h:3306/b_1"),
            ("postgres://h/shop?sslmode=require", "postgres://h/b_1?sslmode=require"),
            ("postgres://h", "postgres://h/b_1"),
        ] {
            assert_eq!(beside(url, "b_1").unwrap(), want);
        }
        for name in ["", "a b", "A", "x;drop", &"x".repeat(61)] {
            assert_eq!(beside("postgres://h/d", name).unwrap_err().kind(), ErrorKind::Configuration, "{name}");
        }
    }

    #[cfg(all(feature = "mysql", feature = "postgres"))]
    #[tokio::test]
    async fn it_is_made_and_deleted() {
        use tidegate_conformance::servers::{MariaDb, Postgres};
        let (mariadb, postgres) = (MariaDb::start(), Postgres::start());
        for url in [mariadb.database(), postgres.database()] {
            let made = create(&url, "t_scratch").await.unwrap();
            assert!(create(&url, "t_scratch").await.is_err(), "it is there already");
            let ledger = crate::SqlLedger::open(crate::SqlOptions::new(&made)).await.unwrap();
            tidegate_backend::Ledger::close(&*ledger).await.unwrap();
            delete(&url, "t_scratch").await.unwrap();
            delete(&url, "t_scratch").await.unwrap();
            assert!(crate::SqlLedger::open(crate::SqlOptions::new(&made)).await.is_err(), "it is gone");
        }
    }
}
