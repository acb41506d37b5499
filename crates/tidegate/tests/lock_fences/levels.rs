//! Two holders at once: the row of the fence makes them take turns, and the second sees what the first wrote, whatever the
//! level of isolation.

use std::sync::Arc;
use std::time::Duration;

use sqlx::{Connection as _, Executor as _, Row as _};
use tidegate::lock::{
    Ask, EmbeddedLocks, FenceError, Guard, Locks, MySqlTransaction, PostgresTransaction, StaleFence, fenced_tx,
};
use tidegate_backend::SystemClock;

use super::data::{Target, mariadb, postgres};
use super::late::Held;

const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];
const MS: Duration = Duration::from_millis(1);

/// An older and a newer holder who both believe that they hold the lock.
async fn two(name: &str) -> (Arc<Guard>, Arc<Guard>) {
    let store = EmbeddedLocks::new(Arc::new(SystemClock));
    let of = async |ttl: u64| {
        let locks = Locks::with_time(Arc::new(store.handle()), Held::new());
        let guard = locks.acquire(name, Ask::new(Duration::from_millis(ttl)).without_renewal()).await.unwrap();
        // Kept: its tasks end with it.
        (Arc::new(guard), locks)
    };
    let (older, _) = of(100).await;
    tokio::time::sleep(120 * MS).await;
    let (newer, _) = of(60_000).await;
    assert!(older.fence() < newer.fence());
    (older, newer)
}

macro_rules! two_holders {
    ($case:ident, $open:ident, $target:ident, $connection:ty, $own:ident, $begin:expr) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            let shop = $open().await;
            let Target::$target(url) = &shop.target else { unreachable!() };
            let begin: fn(&str) -> Vec<String> = $begin;
            let open = async |level: &str| {
                let mut conn = <$connection>::connect(url).await.unwrap();
                for sql in begin(level) {
                    conn.execute(sqlx::AssertSqlSafe(sql)).await.unwrap();
                }
                conn
            };
            let read = async |conn: &mut $connection| -> Result<i64, sqlx::Error> {
                Ok(conn.fetch_one("SELECT writes FROM protected WHERE id = 1").await?.get(0))
            };
            for (n, level) in LEVELS.into_iter().enumerate() {
                let (older, newer) = two(&format!("row-{n}")).await;
                // The older one is in the middle of its transaction when the newer one comes.
                let mut first = open(level).await;
                fenced_tx(&older, &mut $own::new(&mut first)).await.unwrap();
                let before = read(&mut first).await.unwrap();
                let second = async {
                    // One that meets another may be refused; then it tries again.
                    for _ in 0..3 {
                        let mut second = open(level).await;
                        match fenced_tx(&newer, &mut $own::new(&mut second)).await {
                            Ok(()) => {}
                            Err(FenceError::Database(_)) => continue,
                            Err(e) => panic!("{level}: {e}"),
                        }
                        let seen = read(&mut second).await.unwrap();
                        let sql = format!("UPDATE protected SET writes = {} WHERE id = 1", seen + 1);
                        second.execute(sqlx::AssertSqlSafe(sql)).await.unwrap();
                        second.execute("COMMIT").await.unwrap();
                        return seen;
                    }
                    panic!("{level}: refused three times");
                };
                let first = async {
                    tokio::time::sleep(200 * MS).await;
                    let sql = format!("UPDATE protected SET writes = {} WHERE id = 1", before + 1);
                    first.execute(sqlx::AssertSqlSafe(sql)).await.unwrap();
                    first.execute("COMMIT").await.unwrap();
                };
                let (seen, ()) = tokio::join!(second, first);
                assert_eq!(seen, before + 1, "{level}: the newer one waited, and saw what the older one wrote");
                let mut late = open(level).await;
                let refused = fenced_tx(&older, &mut $own::new(&mut late)).await;
                assert!(
                    matches!(refused, Err(FenceError::Stale(StaleFence { floor })) if floor == newer.fence()),
                    "{level}: {refused:?}"
                );
                late.execute("ROLLBACK").await.unwrap();
            }
            shop.close().await;
        }
    };
}

two_holders!(holders_take_turns_on_mariadb, mariadb, MySql, sqlx::MySqlConnection, MySqlTransaction, |level| vec![
    format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}"),
    "START TRANSACTION".to_owned(),
]);
two_holders!(
    holders_take_turns_on_postgresql,
    postgres,
    Postgres,
    sqlx::PgConnection,
    PostgresTransaction,
    |level| vec![format!("BEGIN ISOLATION LEVEL {level}"),]
);
