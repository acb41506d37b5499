//! The schema: numbered steps, each applied once and remembered with its checksum.
//!
//! One node at a time, under an advisory lock. PostgreSQL takes a step in one transaction. MySQL commits every statement
//! that changes a table by itself, so a step's statements can be run again: a node killed in the middle leaves a step
//! that is not remembered, and the next node runs it once more.

use std::time::Duration;

use sha2::{Digest, Sha256};
use tidegate_backend::{Error, ErrorKind};

use crate::dialect::Dialect;
use crate::fault::{Class, Fault, Result};
use crate::session::{Isolation, Session};

/// Every step, in order, for MySQL and for PostgreSQL; its version is its place from 1. A step that was released is never
/// edited.
const STEPS: [(&str, &str); 4] = [
    (include_str!("../migrations/0001_orders.mysql.sql"), include_str!("../migrations/0001_orders.postgres.sql")),
    (include_str!("../migrations/0002_outbox.mysql.sql"), include_str!("../migrations/0002_outbox.postgres.sql")),
    (include_str!("../migrations/0003_fences.mysql.sql"), include_str!("../migrations/0003_fences.postgres.sql")),
    (include_str!("../migrations/0004_feed.mysql.sql"), include_str!("../migrations/0004_feed.postgres.sql")),
];

/// Which of them makes the outbox, from 0.
const OUTBOX: usize = 1;

/// The newest schema this build knows.
pub(crate) const NEWEST: i64 = STEPS.len() as i64;

/// The same of queues, which may lie beside a ledger or alone.
const QUEUE_STEPS: [(&str, &str); 1] = [(
    include_str!("../migrations/queue/0001_tasks.mysql.sql"),
    include_str!("../migrations/queue/0001_tasks.postgres.sql"),
)];

/// What steps make.
struct Schema {
    /// In messages.
    what: &'static str,
    steps: &'static [(&'static str, &'static str)],
    /// The table that remembers the steps; a database with it has the schema.
    remembered: &'static str,
    /// Tables of the first step whose names another program may use, too.
    common: &'static str,
}

static LEDGER: Schema = Schema { what: "ledger", steps: &STEPS, remembered: "tidegate_schema", common: COMMON };
static QUEUES: Schema = Schema {
    what: "set of queues",
    steps: &QUEUE_STEPS,
    remembered: "tg_queue_schema",
    common: "'tg_queues','tg_tasks'",
};

impl Schema {
    fn newest(&self) -> i64 {
        self.steps.len() as i64
    }
}

/// Tables of the first step whose names another program may use, too.
const COMMON: &str = "'meta','batches','counters','skus','sku_attributes','order_ids','orders','order_lines','order_keys',\
    'request_keys','buyer_counters','stock_changes','events','payments','refunds','parked'";
/// Tries for the advisory lock, a pause apart: 60 s.
const LOCK_TRIES: usize = 600;
const LOCK_PAUSE: Duration = Duration::from_millis(100);
/// Longest time for one statement of a step.
const STEP_BOUND: Duration = Duration::from_secs(600);
/// The number of PostgreSQL's advisory lock ("TgLg").
const LOCK_NUMBER: i64 = 0x5467_4c67;
/// The name of MySQL's, which is shared by all databases of a server.
const LOCK_NAME: &str = "CONCAT('tidegate:', LEFT(SHA1(DATABASE()), 32))";

/// Brings the database up to [`NEWEST`]; one that is no ledger yet only with `create`. `session` is one for long statements.
///
/// # Errors
/// Configuration when it is another program's, or no ledger and must not be made one, corrupt when a step was applied in another wording.
pub(crate) async fn run(session: &mut Session, create: bool) -> Result<i64> {
    let applied = applied(session, &LEDGER).await?;
    if !create && applied.unwrap_or(0) == 0 {
        let text =
            "there is no Tidegate ledger in this database; name another, or start `tidegate serve` on it to make one";
        return Err(Fault::new(Class::Configuration, text));
    }
    bring_up(session, &LEDGER, applied).await
}

/// Makes the tables of queues where there are none, and brings them up to the newest step.
///
/// # Errors
/// As [`run`]; configuration also when a newer Tidegate made them.
pub(crate) async fn queues(session: &mut Session) -> std::result::Result<(), Error> {
    let applied = applied(session, &QUEUES).await?;
    let (schema, newest) = (bring_up(session, &QUEUES, applied).await?, QUEUES.newest());
    if schema > newest {
        let text = format!(
            "the queues have schema {schema} and this Tidegate knows schemas up to {newest}; start the newer Tidegate that wrote them, or restore a backup from before the upgrade"
        );
        return Err(Error::new(ErrorKind::NewerSchema, text));
    }
    Ok(())
}

async fn bring_up(session: &mut Session, schema: &'static Schema, applied: Option<i64>) -> Result<i64> {
    if let Some(applied) = applied.filter(|applied| *applied >= schema.newest()) {
        return Ok(applied);
    }
    match session.dialect() {
        Dialect::MySql => run_mysql(session, schema).await,
        Dialect::Postgres => run_postgres(session, schema).await,
    }
}

async fn run_mysql(session: &mut Session, schema: &'static Schema) -> Result<i64> {
    for _ in 0..LOCK_TRIES {
        let taken = session.one(&format!("SELECT GET_LOCK({LOCK_NAME}, 0)"), &[]).await?;
        if taken.map(|row| row.opt_int(0)).transpose()?.flatten() == Some(1) {
            let applied = apply_all(session, schema).await?;
            session.one(&format!("SELECT RELEASE_LOCK({LOCK_NAME})"), &[]).await?;
            return Ok(applied);
        }
        tokio::time::sleep(LOCK_PAUSE).await;
    }
    Err(lock_kept())
}

async fn run_postgres(session: &mut Session, schema: &'static Schema) -> Result<i64> {
    for _ in 0..LOCK_TRIES {
        session.begin(Isolation::Write).await?;
        let taken = session.one("SELECT pg_try_advisory_xact_lock(?)", &[LOCK_NUMBER.into()]).await?;
        if taken.map(|row| row.int(0)).transpose()? == Some(1) {
            let applied = apply_all(session, schema).await?;
            session.commit().await?;
            return Ok(applied);
        }
        session.rollback().await?;
        tokio::time::sleep(LOCK_PAUSE).await;
    }
    Err(lock_kept())
}

/// Makes the table `tg_outbox` in a database that is no ledger, if it is not there.
pub(crate) async fn outbox_alone(session: &mut Session) -> Result<()> {
    let schema = session.dialect().pick("DATABASE()", "current_schema()");
    let there =
        format!("SELECT 1 FROM information_schema.tables WHERE table_schema = {schema} AND table_name = 'tg_outbox'");
    if session.one(&there, &[]).await?.is_some() {
        return Ok(());
    }
    let (mysql, postgres) = STEPS[OUTBOX];
    if session.dialect() == Dialect::MySql {
        // Each of its statements does nothing where it was run before.
        for statement in statements(mysql) {
            session.script_within(STEP_BOUND, statement).await?;
        }
        return Ok(());
    }
    for _ in 0..LOCK_TRIES {
        session.begin(Isolation::Write).await?;
        let taken = session.one("SELECT pg_try_advisory_xact_lock(?)", &[LOCK_NUMBER.into()]).await?;
        if taken.map(|row| row.int(0)).transpose()? == Some(1) {
            if session.one(&there, &[]).await?.is_none() {
                for statement in statements(postgres) {
                    session.script_within(STEP_BOUND, statement).await?;
                }
            }
            return session.commit().await;
        }
        session.rollback().await?;
        tokio::time::sleep(LOCK_PAUSE).await;
    }
    Err(lock_kept())
}

fn lock_kept() -> Fault {
    Fault::new(Class::Unavailable, "another node has been changing the schema for a minute; look what it is doing")
}

async fn apply_all(session: &mut Session, schema: &'static Schema) -> Result<i64> {
    let applied = match applied(session, schema).await? {
        Some(applied) => applied,
        None => {
            claim(session, schema).await?;
            0
        }
    };
    for (version, step) in (1..).zip(schema.steps).skip(usize::try_from(applied).unwrap_or(0)) {
        let text = session.dialect().pick(step.0, step.1);
        for statement in statements(text) {
            session.script_within(STEP_BOUND, statement).await?;
        }
        let sum = checksum(text);
        let sql = format!("INSERT INTO {} (version, checksum) VALUES (?, ?)", schema.remembered);
        session.execute(&sql, &[version.into(), sum.as_slice().into()]).await?;
    }
    Ok(applied.max(schema.newest()))
}

/// Makes the table of steps in a database that has none, unless it is another program's.
async fn claim(session: &mut Session, of: &'static Schema) -> Result<()> {
    let schema = session.dialect().pick("DATABASE()", "current_schema()");
    let sql = format!(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = {schema} AND table_name IN ({}) ORDER BY table_name LIMIT 1",
        of.common
    );
    if let Some(row) = session.one(&sql, &[]).await? {
        let text = format!(
            "the database has a table {:?} and is no Tidegate {}; name a database of Tidegate's own",
            row.text(0)?,
            of.what
        );
        return Err(Fault::new(Class::Configuration, text));
    }
    let table = session.dialect().pick(
        "(version BIGINT PRIMARY KEY, checksum VARBINARY(32) NOT NULL) ENGINE=InnoDB",
        "(version BIGINT PRIMARY KEY, checksum BYTEA NOT NULL)",
    );
    session.script(&format!("CREATE TABLE {} {table}", of.remembered)).await
}

/// The newest step that was applied; 0 when none was, `None` when the database does not have the schema (yet).
async fn applied(session: &mut Session, of: &'static Schema) -> Result<Option<i64>> {
    let (remembered, what) = (of.remembered, of.what);
    let schema = session.dialect().pick("DATABASE()", "current_schema()");
    let sql = format!(
        "SELECT 1 FROM information_schema.tables WHERE table_schema = {schema} AND table_name = '{remembered}'"
    );
    if session.one(&sql, &[]).await?.is_none() {
        return Ok(None);
    }
    let sql = format!("SELECT version, checksum FROM {remembered} ORDER BY version");
    let mut newest = 0;
    for row in session.rows(&sql, &[]).await? {
        let (due, version) = (newest + 1, row.int(0)?);
        if version < 1 || (version <= of.newest() && version != due) {
            let text = format!(
                "the table {remembered} names step {version} where step {due} is due, which no Tidegate has written; restore the {what} from a backup, or name a database of Tidegate's own"
            );
            return Err(Fault::new(Class::Configuration, text));
        }
        newest = version;
        let ours = usize::try_from(newest - 1).ok().and_then(|at| of.steps.get(at));
        let text = ours.map(|step| session.dialect().pick(step.0, step.1));
        if text.is_some_and(|text| checksum(text).as_slice() != row.bytes(1).unwrap_or_default()) {
            return Err(Fault::corrupt(format!(
                "schema step {newest} was applied to the {what} in another wording than this Tidegate has; it comes from another build"
            )));
        }
    }
    Ok(Some(newest))
}

/// Comments end with their line, statements with a semicolon at the end of one.
fn statements(text: &str) -> impl Iterator<Item = &str> {
    let is_empty = |statement: &str| statement.lines().all(|l| l.trim().is_empty() || l.starts_with("--"));
    text.split_inclusive(";\n").filter(move |statement| !is_empty(statement))
}

fn checksum(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_fall_into_statements() {
        for (mysql, postgres) in STEPS.iter().chain(&QUEUE_STEPS) {
            assert!(statements(mysql).count() > 0 && statements(postgres).count() > 0);
            for statement in statements(mysql) {
                let again = statement.contains("IF NOT EXISTS") || statement.contains("INSERT IGNORE");
                assert!(again, "MySQL may have to run it again: {statement}");
            }
            assert!(statements(postgres).all(|s| s.contains("CREATE ") || s.contains("INSERT ")));
        }
        assert_eq!(statements("-- a; b\nSELECT 1;\n\n-- c\n").collect::<Vec<_>>(), ["-- a; b\nSELECT 1;\n"]);
    }
}
