//! A ledger's database with a row that a lock protects. The row remembers its last writer's fence, and counts writes that came
//! after a newer one's.

use std::path::PathBuf;
use std::sync::Arc;

use sqlx::{Connection as _, Executor as _, Row as _};
use tidegate::lock::{FenceError, Fences, Guard, MySqlTransaction, PostgresTransaction, SqliteTransaction, fenced_tx};
use tidegate_backend::{Error, ErrorKind, Ledger};
use tidegate_conformance::servers::{MariaDb, Postgres};
use tidegate_embedded::{Options, SqliteLedger, Synchronous};
use tidegate_sql::{SqlLedger, SqlOptions};

/// Where the row is.
#[derive(Debug, Clone)]
pub enum Target {
    Sqlite(PathBuf),
    MySql(String),
    Postgres(String),
}

pub struct Shop {
    pub target: Target,
    pub ledger: Arc<dyn Ledger>,
    pub fences: Arc<dyn Fences>,
    _alive: Box<dyn std::any::Any + Send + Sync>,
}

const TABLE: &str = "CREATE TABLE protected (id BIGINT PRIMARY KEY, fence BIGINT NOT NULL, writes BIGINT NOT NULL, late BIGINT NOT NULL)";
const ROW: &str = "INSERT INTO protected VALUES (1, 0, 0, 0)";

/// `late` comes first: MySQL does assignments from left to right.
fn update(fence: u64) -> String {
    format!(
        "UPDATE protected SET late = late + CASE WHEN fence > {fence} THEN 1 ELSE 0 END, writes = writes + 1, fence = {fence} \
         WHERE id = 1"
    )
}

fn failed(e: impl std::error::Error + Send + Sync + 'static) -> FenceError {
    FenceError::Database(Error::new(ErrorKind::Unavailable, "the test's statement").because(e))
}

pub async fn sqlite() -> Shop {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let mut options = Options::new(&path);
    // No machine stops here: commits need not reach the disk.
    options.synchronous = Synchronous::Normal;
    let ledger = SqliteLedger::open(options).await.unwrap();
    let conn = rusqlite::Connection::open(&path).unwrap();
    conn.execute_batch(&format!("{TABLE}; {ROW}")).unwrap();
    Shop { target: Target::Sqlite(path), ledger: ledger.clone(), fences: ledger, _alive: Box::new(folder) }
}

pub async fn mariadb() -> Shop {
    let server = MariaDb::shared();
    let url = server.database();
    let ledger = SqlLedger::open(SqlOptions::new(&url)).await.unwrap();
    let target = Target::MySql(url.replace("mariadb://", "mysql://"));
    target.run(&[TABLE, ROW]).await;
    Shop { target, ledger: ledger.clone(), fences: ledger, _alive: Box::new(server) }
}

pub async fn postgres() -> Shop {
    let server = Postgres::shared();
    let url = server.database();
    let ledger = SqlLedger::open(SqlOptions::new(&url)).await.unwrap();
    let target = Target::Postgres(url);
    target.run(&[TABLE, ROW]).await;
    Shop { target, ledger: ledger.clone(), fences: ledger, _alive: Box::new(server) }
}

impl Shop {
    /// Writes, and the transaction's fence is checked if `checked`.
    pub async fn write(&self, guard: &Guard, checked: bool) -> Result<(), FenceError> {
        self.target.write(guard, checked).await
    }

    /// Writes, and how many of them were late.
    pub async fn counts(&self) -> (i64, i64) {
        let sql = "SELECT writes, late FROM protected WHERE id = 1";
        match &self.target {
            Target::Sqlite(path) => {
                let conn = rusqlite::Connection::open(path).unwrap();
                conn.query_row(sql, [], |r| Ok((r.get(0)?, r.get(1)?))).unwrap()
            }
            Target::MySql(url) => {
                let mut conn = sqlx::MySqlConnection::connect(url).await.unwrap();
                let row = conn.fetch_one(sql).await.unwrap();
                (row.get(0), row.get(1))
            }
            Target::Postgres(url) => {
                let mut conn = sqlx::PgConnection::connect(url).await.unwrap();
                let row = conn.fetch_one(sql).await.unwrap();
                (row.get(0), row.get(1))
            }
        }
    }

    pub async fn close(self) {
        self.ledger.close().await.unwrap();
    }
}

impl Target {
    pub fn parse(text: &str) -> Self {
        if text.starts_with("mysql:") {
            Self::MySql(text.to_owned())
        } else if text.starts_with("postgres") {
            Self::Postgres(text.to_owned())
        } else {
            Self::Sqlite(text.into())
        }
    }

    pub fn text(&self) -> String {
        match self {
            Self::Sqlite(path) => path.display().to_string(),
            Self::MySql(url) | Self::Postgres(url) => url.clone(),
        }
    }

    async fn run(&self, statements: &[&'static str]) {
        match self {
            Self::Sqlite(_) => unreachable!("done by hand"),
            Self::MySql(url) => {
                let mut conn = sqlx::MySqlConnection::connect(url).await.unwrap();
                for sql in statements {
                    conn.execute(*sql).await.unwrap();
                }
            }
            Self::Postgres(url) => {
                let mut conn = sqlx::PgConnection::connect(url).await.unwrap();
                for sql in statements {
                    conn.execute(*sql).await.unwrap();
                }
            }
        }
    }

    pub async fn write(&self, guard: &Guard, checked: bool) -> Result<(), FenceError> {
        let sql = update(guard.fence().0);
        match self {
            Self::Sqlite(path) => tokio::task::block_in_place(|| {
                let mut conn = rusqlite::Connection::open(path).map_err(failed)?;
                conn.busy_timeout(std::time::Duration::from_secs(5)).map_err(failed)?;
                conn.pragma_update(None, "synchronous", "OFF").map_err(failed)?;
                let tx = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).map_err(failed)?;
                if checked {
                    let mut own = SqliteTransaction::new(&tx);
                    tokio::runtime::Handle::current().block_on(fenced_tx(guard, &mut own))?;
                }
                tx.execute(&sql, []).map_err(failed)?;
                tx.commit().map_err(failed)
            }),
            Self::MySql(url) => {
                let mut conn = sqlx::MySqlConnection::connect(url).await.map_err(failed)?;
                let mut tx = conn.begin().await.map_err(failed)?;
                if checked {
                    fenced_tx(guard, &mut MySqlTransaction::new(&mut tx)).await?;
                }
                tx.execute(sqlx::AssertSqlSafe(sql)).await.map_err(failed)?;
                tx.commit().await.map_err(failed)
            }
            Self::Postgres(url) => {
                let mut conn = sqlx::PgConnection::connect(url).await.map_err(failed)?;
                let mut tx = conn.begin().await.map_err(failed)?;
                if checked {
                    fenced_tx(guard, &mut PostgresTransaction::new(&mut tx)).await?;
                }
                tx.execute(sqlx::AssertSqlSafe(sql)).await.map_err(failed)?;
                tx.commit().await.map_err(failed)
            }
        }
    }
}
