//! A caller's own transactions, for `tidegate_backend::outbox::invalidate_in` and `tidegate_backend::fence::fence_in`. The connection must be one to the ledger's
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

            fn arguments(parameters: Vec<Parameter>) -> Result<$arguments> {
                use sqlx::Arguments as _;
                let mut arguments = <$arguments>::default();
                for parameter in parameters {
                    match parameter {
                        Parameter::Int(number) => arguments.add(number),
                        Parameter::Bytes(bytes) => arguments.add(bytes),
                    }
                    .map_err(|e| Fault::from_driver(sqlx::Error::Encode(e)))?;
                }
                Ok(arguments)
            }
        }

        impl Execute for $name<'_> {
            fn dialect(&self) -> SqlDialect {
                SqlDialect::$dialect
            }

            fn execute<'b>(&'b mut self, statement: &'b str, parameters: Vec<Parameter>) -> BoxFuture<'b, Result<()>> {
                Box::pin(async move {
                    let query = sqlx::query_with(sqlx::AssertSqlSafe(statement), Self::arguments(parameters)?);
                    self.0.execute(query).await.map_err(Fault::from_driver)?;
                    Ok(())
                })
            }

            fn ask<'b>(
                &'b mut self,
                write: (&'b str, Vec<Parameter>),
                read: (&'b str, Vec<Parameter>),
            ) -> BoxFuture<'b, Result<Option<i64>>> {
                Box::pin(async move {
                    self.execute(write.0, write.1).await?;
                    let query = sqlx::query_with(sqlx::AssertSqlSafe(read.0), Self::arguments(read.1)?);
                    let found = self.0.fetch_optional(query).await.map_err(Fault::from_driver)?;
                    let number = |row| sqlx::Row::try_get::<i64, _>(&row, 0).map_err(Fault::from_driver);
                    Ok(found.map(number).transpose()?)
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
