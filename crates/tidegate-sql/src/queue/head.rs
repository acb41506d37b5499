//! A queue's row, and the database's clock beside it.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use tidegate_backend::QueueOptions;
use tidegate_backend::clock::ServerClock;
use tidegate_core::Millis;
use tidegate_core::queue::QueueName;

use crate::dialect::Dialect;
use crate::fault::{Fault, Result};
use crate::fetched::Row;
use crate::row;
use crate::session::Session;

/// The database's clock that went back is held for at most this long; then it is followed.
const HELD_US: i64 = 5_000_000;
/// A task that becomes due longer ago than this is one of the past: see [`super::steps::Step::keep_low`].
pub(super) const PAST_MS: i64 = 1_000;

/// A queue that has begun, at an instant.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    pub(super) no: i64,
    /// No live task lies before it.
    pub(super) low: Millis,
    /// The database's clock, microseconds.
    pub(super) us: i64,
}

impl Head {
    pub(super) fn now(&self) -> Millis {
        Millis(self.us.div_euclid(1_000))
    }
}

/// The database's clock as this process hears it.
#[derive(Debug)]
pub(super) struct QueueClock {
    estimate: ServerClock,
    /// The latest instant that was heard, microseconds.
    latest: Mutex<i64>,
}

impl QueueClock {
    pub(super) fn new() -> Self {
        Self { estimate: ServerClock::new(), latest: Mutex::new(0) }
    }

    /// What the database's clock shows now, as well as it is known here.
    pub(super) fn now(&self) -> Millis {
        self.estimate.now()
    }

    /// The database told `us` to a question of `asked`; what counts.
    pub(super) fn heard(&self, asked: Instant, us: i64) -> i64 {
        self.estimate.learn(asked, Instant::now(), us);
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if !(0..HELD_US).contains(&(*latest - us)) {
            *latest = us;
        }
        *latest
    }
}

/// The server's clock in microseconds, while the row it stands in is read: whatever that row was made by is past.
pub(super) fn clock_of(dialect: Dialect) -> &'static str {
    dialect.pick(
        // The session's time zone is UTC.
        "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', SYSDATE(6))",
        "CAST(floor(extract(epoch FROM clock_timestamp()) * 1000000) AS BIGINT)",
    )
}

/// The queue, if it has begun; and the clock, microseconds.
async fn look(session: &mut Session, clock: &QueueClock, queue: &QueueName) -> Result<(Option<Head>, i64)> {
    let sql = format!(
        "SELECT {}, q.queue_no, q.low FROM (SELECT 1 AS one) o LEFT JOIN tg_queues q ON q.name = ?",
        clock_of(session.dialect())
    );
    let asked = Instant::now();
    let row = session.one(&sql, &[queue.as_str().as_bytes().into()]).await?;
    let row = row.ok_or_else(|| Fault::corrupt("the server does not tell its time"))?;
    let us = clock.heard(asked, row.int(0)?);
    let head = |no| Ok::<_, Fault>(Head { no, low: row::millis(&row, 2)?, us });
    Ok((row.opt_int(1)?.map(head).transpose()?, us))
}

/// The queue, if it has begun.
pub(super) async fn find(session: &mut Session, clock: &QueueClock, queue: &QueueName) -> Result<Option<Head>> {
    Ok(look(session, clock, queue).await?.0)
}

/// The queue, which begins here if it has not; `None`: it would be one too many.
pub(super) async fn begin(
    session: &mut Session,
    clock: &QueueClock,
    queue: &QueueName,
    options: &QueueOptions,
) -> Result<Option<Head>> {
    if let (Some(head), _) = look(session, clock, queue).await? {
        return Ok(Some(head));
    }
    // Queues begin one after the other.
    session.one("SELECT version FROM tg_queue_schema WHERE version = 1 FOR UPDATE", &[]).await?;
    let (head, us) = look(session, clock, queue).await?;
    if head.is_some() {
        return Ok(head);
    }
    let count = session.one("SELECT COUNT(*) FROM tg_queues", &[]).await?;
    let count = count.ok_or_else(|| Fault::corrupt("the server does not count"))?.int(0)?;
    if usize::try_from(count).is_ok_and(|count| count >= options.max_queues) {
        return Ok(None);
    }
    let low = us.div_euclid(1_000) - PAST_MS;
    let sql = "INSERT INTO tg_queues (name, low) VALUES (?, ?)";
    session.execute(sql, &[queue.as_str().as_bytes().into(), low.into()]).await?;
    Ok(look(session, clock, queue).await?.0)
}

/// The name of a queue.
pub(super) fn name(row: &Row, column: usize) -> Result<QueueName> {
    let text = String::from_utf8_lossy(row.bytes(column)?);
    QueueName::parse(&text).map_err(|e| Fault::corrupt(format!("a queue is named {text:?}, which {e}")))
}

/// Hears the database's clock.
pub(super) async fn hear(session: &mut Session, clock: &QueueClock) -> Result<()> {
    for _ in 0..2 {
        // Once more on a connection that is warm: the first answer may have been slow.
        let asked = Instant::now();
        let row = session.one(&format!("SELECT {}", clock_of(session.dialect())), &[]).await?;
        clock.heard(asked, row.ok_or_else(|| Fault::corrupt("the server does not tell its time"))?.int(0)?);
    }
    Ok(())
}
