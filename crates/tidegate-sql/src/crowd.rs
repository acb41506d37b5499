//! For tests: a ledger full of rows, and how many of them a session looks at.

use tidegate_conformance::servers::{MariaDb, Postgres};

use crate::dialect::Dialect;
use crate::session::Session;

/// Orders, and about as many payments, refunds, events, SKUs and order lines.
pub(crate) const ROWS: i64 = 50_000;

/// Times each read is run before it is judged: by the sixth time PostgreSQL may have made one plan for all values.
pub(crate) const RUNS: usize = 7;

/// Runs a read some times and holds what the last one looked at against what it may.
macro_rules! looks_at {
    ($session:ident, $most:expr, $read:expr) => {{
        for _ in 1..$crate::crowd::RUNS {
            let _ = $read.await.unwrap();
        }
        let start = $crate::crowd::rows_read($session).await;
        let own = $crate::crowd::rows_read($session).await - start;
        let found = $read.await.unwrap();
        let looked_at = $crate::crowd::rows_read($session).await - start - 2 * own;
        let most: i64 = $most;
        assert!(looked_at <= most, "{} looks at {looked_at} rows, not {most}", stringify!($read));
        found
    }};
}
pub(crate) use looks_at;

/// A server that syncs nothing: these tests lose no power.
pub(crate) fn mariadb() -> MariaDb {
    MariaDb::start_with(&[("innodb-flush-log-at-trx-commit", "0")])
}

/// The same; its tables have no statistics until a test asks for them.
pub(crate) fn postgres() -> Postgres {
    Postgres::start_with(&[("fsync", "off"), ("autovacuum", "off")])
}

/// Tables full of rows: of a thousand orders each, ten are pending, five cancelled, one is of buyer `rare` and of the
/// SKU `s7` beside its own. All pending ones are due at two instants.
pub(crate) async fn fill(session: &mut Session) {
    let (numbers, text) = match session.dialect() {
        Dialect::MySql => (format!("(SELECT seq AS n FROM seq_1_to_{ROWS}) q"), "CONCAT('{}', n)"),
        Dialect::Postgres => (format!("generate_series(1, {ROWS}) n"), "CAST('{}' || n AS BYTEA)"),
    };
    let name = |prefix: &str| text.replace("{}", prefix);
    let empty_lines = session.dialect().pick("x'01'", "'\\x01'");
    let (order, payment, sku, buyer) = (name("o"), name("p"), name("s"), name("b"));
    let (refund, key) = (name("r"), name("k"));
    let status = "CASE WHEN n % 1000 < 10 THEN 0 WHEN n % 1000 < 15 THEN 2 ELSE 1 END";
    let buyer = format!(
        "CASE WHEN n % 1000 = 1 THEN {} ELSE {buyer} END",
        session.dialect().pick("'rare'", "CAST('rare' AS BYTEA)")
    );
    let tables = [
        format!(
            "skus (sku, on_hand, held, sold, stock_version, version, archived, changed_at)
            SELECT {sku}, 1000000, 0, 0, 1, 1, 0, 0 FROM {numbers}"
        ),
        format!("order_ids (id, order_no) SELECT {order}, n FROM {numbers}"),
        format!("order_keys (order_key, order_no) SELECT {key}, n FROM {numbers}"),
        format!(
            "orders (order_no, id, buyer_id, status, placed_at, pay_by, release_at, version, closed, last_seq,
            payment_count, line_items)
            SELECT n, {order}, {buyer}, {status}, 0, n % 2, n % 2, 1, 0, 1, 1, {empty_lines} FROM {numbers}"
        ),
        format!("order_lines (sku_no, order_no, quantity) SELECT 1, n, 1 FROM {numbers}"),
        format!("order_lines (sku_no, order_no, quantity) SELECT 7, n, 1 FROM {numbers} WHERE n % 1000 = 1"),
        format!(
            "stock_changes (sku_no, stock_version, at, kind, on_hand_delta, held_delta, sold_delta, on_hand, held, sold)
            SELECT 1, n, 0, 0, 0, 0, 0, 0, 0, 0 FROM {numbers}"
        ),
        format!("events (event_no, order_no, seq, kind, at) SELECT n, n, 1, 0, 0 FROM {numbers}"),
        format!(
            "payments (payment_id, order_id, received_at, outcome)
            SELECT {payment}, {order}, n, CASE WHEN n % 1000 = 0 THEN 6 ELSE 0 END FROM {numbers}"
        ),
        format!(
            "refunds (refund_id, payment_no, order_id, status, reason, due_at)
            SELECT {refund}, n, {order}, CASE WHEN n % 1000 = 0 THEN 0 ELSE 1 END, 0, 0 FROM {numbers}"
        ),
        format!("parked (order_no, at, tries, reason) SELECT n, 0, 20, 'stuck' FROM {numbers} WHERE n % 1000 = 2"),
    ];
    for table in tables {
        session.script(&format!("INSERT INTO {table}")).await.unwrap();
    }
    // The next batch numbers its orders and its events from above these.
    let numbers = session.dialect().pick("AUTO_INCREMENT = 1000", "ALTER COLUMN batch_no RESTART WITH 1000");
    session.script(&format!("ALTER TABLE batches {numbers}; UPDATE counters SET newest = {ROWS}")).await.unwrap();
}

/// Tells the server what its tables hold.
pub(crate) async fn analyze(session: &mut Session) {
    let tables = "ANALYZE TABLE orders, order_ids, order_lines, payments, refunds, events, skus, stock_changes, parked";
    session.rows(session.dialect().pick(tables, "ANALYZE"), &[]).await.unwrap();
}

/// Rows that this session has read so far: entries of indexes, and rows of tables that it walked.
pub(crate) async fn rows_read(session: &mut Session) -> i64 {
    match session.dialect() {
        Dialect::MySql => {
            let rows = session.rows("SHOW SESSION STATUS LIKE 'Handler_read%'", &[]).await.unwrap();
            rows.iter().map(|r| r.text(1).unwrap().parse::<i64>().unwrap()).sum()
        }
        Dialect::Postgres => {
            session.rows("SELECT pg_stat_force_next_flush()", &[]).await.unwrap();
            let sum = "SELECT CAST((SELECT sum(seq_tup_read) FROM pg_stat_user_tables) \
                + (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes) AS BIGINT)";
            session.one(sum, &[]).await.unwrap().unwrap().int(0).unwrap()
        }
    }
}
