//! A caller's own transactions, for `tidegate_backend::outbox::invalidate_in`. The connection must be one to the ledger's
//! database, whose tables its statements name without a schema.

use sqlx::Executor as _;
use tidegate_backend::outbox::{Parameter, SqlDialect};
use tidegate_backend::{BoxFuture, Execute, Result};

use crate::fault::Fault;

macro_rules! transaction {
    ($(#[$doc:meta])* $name:ident, $connection:ty, $arguments:ty, $dialect:ident) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name<'a>(&'a mut $connection);

        impl<'a> $name<'a> {
            /// `transaction` is a `sqlx::Transaction` (`&mut tx`, or `&mut *tx`), or a connection in the middle of one.
            #[must_use]
            pub fn new(transaction: &'a mut $connection) -> Self {
                Self(transaction)
            }
        }

        impl Execute for $name<'_> {
            fn dialect(&self) -> SqlDialect {
                SqlDialect::$dialect
            }

            fn execute<'b>(&'b mut self, statement: &'b str, parameters: Vec<Parameter>) -> BoxFuture<'b, Result<()>> {
                Box::pin(async move {
                    use sqlx::Arguments as _;
                    let mut arguments = <$arguments>::default();
                    for parameter in parameters {
                        match parameter {
                            Parameter::Int(number) => arguments.add(number),
                            Parameter::Bytes(bytes) => arguments.add(bytes),
                        }
                        .map_err(|e| Fault::from_driver(sqlx::Error::Encode(e)))?;
                    }
                    let query = sqlx::query_with(sqlx::AssertSqlSafe(statement), arguments);
                    self.0.execute(query).await.map_err(Fault::from_driver)?;
                    Ok(())
                })
            }
        }
    };
}

#[cfg(feature = "mysql")]
transaction!(
    /// A transaction on MySQL or MariaDB.
    MySqlTransaction, sqlx::MySqlConnection, sqlx::mysql::MySqlArguments, MySql
);
#[cfg(feature = "postgres")]
transaction!(
    /// A transaction on PostgreSQL.
    PostgresTransaction, sqlx::PgConnection, sqlx::postgres::PgArguments, Postgres
);
