//! Claims: what is due is locked row by row, past whatever others have locked, and handed out in one transaction.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use tidegate_backend::{Handout, Want};
use tidegate_core::queue::model::lapsed_error;
use tidegate_core::queue::rules::{batch_with_lapsed, is_suspect, newest_of, next_receipt};
use tidegate_core::queue::{Claimed, MAX_BATCH, MAX_BATCH_BYTES, QueueName, Receipt, TaskId};
use tidegate_core::{Map, Millis};

use super::head::{Head, QueueClock, clock_of, name};
use super::steps::{Step, Stored, WHOLE, by_ids};
use crate::dialect::Dialect;
use crate::fault::{Fault, Result};
use crate::fetched::Row;
use crate::row;
use crate::session::Session;
use crate::value::Value;

/// Longer payloads are read once it is known that the task is handed out.
const BRIEF_BYTES: i64 = 1_024;
/// Queues that one statement asks when something is due, on MySQL.
const HEADS: usize = 16;
/// What is due, by its index.
const DUE: &str = "t.queue_no = ? AND t.dead = 0 AND t.at >= ? AND t.at <= ?";

/// The last receipt that this process gave: those of a process grow and are never the same.
#[derive(Debug, Default)]
pub(super) struct Receipts(Mutex<u64>);

impl Receipts {
    fn give(&self, tasks: &mut [Candidate], us: i64) {
        let us = us.max(0).unsigned_abs();
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for candidate in tasks {
            *last = next_receipt(candidate.task.receipt.0.max(*last), us);
            candidate.task.receipt = Receipt(*last);
        }
    }
}

/// What a claim needs beside its session.
#[derive(Debug)]
pub(super) struct Claims<'a> {
    pub(super) clock: &'a QueueClock,
    pub(super) receipts: &'a Receipts,
    pub(super) max_attempts: u32,
}

/// A task that is due and locked.
struct Candidate {
    task: Stored,
    visible_at: Millis,
    bytes: usize,
    payload: Option<Bytes>,
    /// As `rules::is_suspect`.
    suspect: bool,
}

impl Candidate {
    fn read(row: &Row) -> Result<Self> {
        let task = Stored::read(row, false)?;
        let bytes = usize::try_from(row.int(8)?).map_err(|_| Fault::corrupt("a payload has a negative length"))?;
        let payload = row.opt_bytes(9)?.map(Bytes::copy_from_slice);
        Ok(Self { visible_at: task.at, task, bytes, payload, suspect: false })
    }
}

/// When each of these queues has something next; those that have not begun are left out.
pub(super) async fn heads(
    session: &mut Session,
    clock: &QueueClock,
    queues: &[&QueueName],
    all: bool,
) -> Result<Map<QueueName, (Head, Option<Millis>)>> {
    let names: Vec<&[u8]> = queues.iter().map(|queue| queue.as_str().as_bytes()).collect();
    let dialect = session.dialect();
    let low = if all { "CAST(-9223372036854775807 AS BIGINT)" } else { "q.low" };
    let next = format!(
        "(SELECT t.at FROM tg_tasks t WHERE t.queue_no = q.queue_no AND t.dead = 0 AND t.at >= {low} ORDER BY t.at LIMIT 1)"
    );
    let next = dialect.pick("NULL", next.as_str());
    let sql =
        format!("SELECT q.name, q.queue_no, q.low, {}, {next} FROM tg_queues q WHERE q.name IN ?", clock_of(dialect));
    let asked = Instant::now();
    let rows = session.rows(&sql, &[Value::Blobs(&names)]).await?;
    let mut heads = Map::default();
    for row in &rows {
        let us = clock.heard(asked, row.int(3)?);
        let low = if all { Millis::MIN } else { row::millis(row, 2)? };
        let head = Head { no: row.int(1)?, low, us };
        heads.insert(name(row, 0)?, (head, row::opt_millis(row, 4)?));
    }
    if dialect == Dialect::MySql {
        // It takes an index's range only from constants.
        let asked: Vec<Head> = heads.values().map(|(head, _)| *head).collect();
        let mut next = Map::default();
        for some in asked.chunks(HEADS) {
            mysql_heads(session, some, &mut next).await?;
        }
        for (head, at) in heads.values_mut() {
            *at = next.get(&head.no).copied();
        }
    }
    Ok(heads)
}

async fn mysql_heads(session: &mut Session, heads: &[Head], next: &mut Map<i64, Millis>) -> Result<()> {
    let one = "(SELECT t.queue_no, t.at FROM tg_tasks t FORCE INDEX (tg_tasks_order) \
        WHERE t.queue_no = ? AND t.dead = 0 AND t.at >= ? ORDER BY t.at LIMIT 1)";
    // Few wordings: the last one fills the places left over.
    let places = heads.len().next_power_of_two();
    let sql = vec![one; places].join(" UNION ALL ");
    let padded = (0..places).filter_map(|at| heads.get(at).or(heads.last()));
    let values: Vec<Value<'_>> = padded.flat_map(|head| [head.no.into(), head.low.into()]).collect();
    for row in session.rows(&sql, &values).await? {
        next.insert(row.int(0)?, row::millis(&row, 1)?);
    }
    Ok(())
}

impl Claims<'_> {
    /// As `Queue::claim`, and when something more can be handed out; in the transaction of `session`. `from`: where the first
    /// task lay a moment ago. What was put before it since then was put while this look was under way, which wakes.
    pub(super) async fn claim(&self, session: &mut Session, head: Head, from: Millis, want: &Want) -> Result<Handout> {
        let max = want.max.min(MAX_BATCH);
        let asked = Instant::now();
        let (candidates, us) = candidates(session, &head, from, max).await?;
        let us = us.map_or(head.us, |us| self.clock.heard(asked, us));
        let mut step = Step::new(session, Head { us, ..head }, self.max_attempts);
        let now = step.head.now();
        let (mut taken, dead) = self.choose(candidates, max, now);
        self.receipts.give(&mut taken, us);
        let until = now.plus(want.lease_ms);
        for Candidate { task, .. } in &mut taken {
            (task.leased, task.at) = (true, until);
            task.attempt += 1;
        }
        read_payloads(&mut step, &mut taken).await?;
        let changed: Vec<Stored> = dead.into_iter().chain(taken.iter().map(|taken| taken.task.clone())).collect();
        if !taken.is_empty() {
            step.put(until);
        }
        step.change(&changed).await?;
        step.keep_low().await?;
        let next_at = next_at(step.session, head.no, from).await?;
        let tasks = taken.into_iter().map(|candidate| claimed(candidate, until)).collect();
        Ok(Handout { tasks, next_at, failed: None })
    }

    /// Who is handed out, and who dies: the rules of `Queue::claim`.
    fn choose(&self, candidates: Vec<Candidate>, max: usize, now: Millis) -> (Vec<Candidate>, Vec<Stored>) {
        let (mut taken, mut dead) = (Vec::<Candidate>::new(), Vec::new());
        let (mut limit, mut bytes) = (max, 0);
        for candidate in candidates {
            let task = &candidate.task;
            if task.leased && task.attempt >= self.max_attempts {
                let error = Some(lapsed_error(self.max_attempts));
                dead.push(Stored { dead: true, leased: false, at: now, error, ..candidate.task });
                continue;
            }
            let allowed = if task.leased { batch_with_lapsed(max, task.attempt, self.max_attempts) } else { max };
            if taken.len() >= limit.min(allowed) {
                continue;
            }
            if !taken.is_empty() && bytes + candidate.bytes > MAX_BATCH_BYTES {
                break;
            }
            limit = limit.min(allowed);
            bytes += candidate.bytes;
            let suspect = is_suspect(task.leased, task.attempt, self.max_attempts);
            taken.push(Candidate { suspect, ..candidate });
        }
        (taken, dead)
    }
}

fn claimed(candidate: Candidate, until: Millis) -> Claimed {
    let Candidate { task, visible_at, payload, suspect, .. } = candidate;
    Claimed {
        id: task.id,
        due_at: task.due_at,
        visible_at,
        payload: payload.unwrap_or_default(),
        attempt: task.attempt,
        receipt: task.receipt,
        lease_until: until,
        suspect,
    }
}

/// When something can be handed out next.
pub(super) async fn next_at(session: &mut Session, queue_no: i64, from: Millis) -> Result<Option<Millis>> {
    let index = session.dialect().pick("FORCE INDEX (tg_tasks_order)", "");
    let sql = format!(
        "SELECT t.at FROM tg_tasks t {index} WHERE t.queue_no = ? AND t.dead = 0 AND t.at >= ? ORDER BY t.at LIMIT 1"
    );
    let row = session.one(&sql, &[queue_no.into(), from.into()]).await?;
    row.map(|row| row::millis(&row, 0)).transpose()
}

/// Locks whoever is earliest due of up to `max`, and of a pile an eighth from its other end, the newest first; what others
/// have locked is passed over. And the database's clock after that, unless nobody is due.
async fn candidates(
    session: &mut Session,
    head: &Head,
    from: Millis,
    max: usize,
) -> Result<(Vec<Candidate>, Option<i64>)> {
    let newest = newest_of(max);
    let first = due(session, head, from, None, max - newest).await?;
    let (mut rows, full) = (first, |rows: &[Row]| rows.len() == max - newest);
    if newest > 0 && full(&rows) {
        let last = rows.last().map(|row| Ok::<_, Fault>((row::millis(row, 3)?, row::id(row, 0)?))).transpose()?;
        let mut others = due(session, head, from, last, newest).await?;
        if others.len() < newest {
            // It was no pile: these are the rest.
            others.reverse();
        }
        rows.append(&mut others);
    }
    let mut us = None;
    for row in &rows {
        us = us.max(Some(row.int(10)?));
    }
    Ok((rows.iter().map(Candidate::read).collect::<Result<_>>()?, us))
}

/// Locks the earliest due; or, `after` these, the newest.
async fn due(
    session: &mut Session,
    head: &Head,
    from: Millis,
    after: Option<(Millis, TaskId)>,
    limit: usize,
) -> Result<Vec<Row>> {
    if limit == 0 {
        return Ok(Vec::new());
    }
    let dialect = session.dialect();
    let index = dialect.pick("FORCE INDEX (tg_tasks_order)", "");
    let columns = WHOLE.trim_end_matches(", t.payload");
    let (order, rest) = match after {
        None => ("t.at, t.id", ""),
        Some(_) => ("t.at DESC, t.id DESC", "AND (t.at > ? OR t.id > ?)"),
    };
    let sql = format!(
        "SELECT {columns}, OCTET_LENGTH(t.payload), CASE WHEN OCTET_LENGTH(t.payload) <= {BRIEF_BYTES} THEN t.payload END, \
        {} FROM tg_tasks t {index} WHERE {DUE} {rest} ORDER BY {order} LIMIT ? FOR UPDATE SKIP LOCKED",
        clock_of(dialect)
    );
    let low = after.as_ref().map_or(from, |(at, _)| *at);
    let mut values: Vec<Value<'_>> = vec![head.no.into(), low.into(), head.now().into()];
    if let Some((at, id)) = &after {
        values.extend([Value::from(*at), id.as_str().as_bytes().into()]);
    }
    values.push(i64::try_from(limit).unwrap_or(i64::MAX).into());
    session.rows(&sql, &values).await
}

/// Reads the long payloads of those that are handed out.
async fn read_payloads(step: &mut Step<'_>, taken: &mut [Candidate]) -> Result<()> {
    let long: Vec<&Candidate> = taken.iter().filter(|candidate| candidate.payload.is_none()).collect();
    if long.is_empty() {
        return Ok(());
    }
    let mut ids: Vec<&[u8]> = long.iter().map(|candidate| candidate.task.id.as_str().as_bytes()).collect();
    ids.sort_unstable();
    let end = step.session.dialect().pick("", "OFFSET 0");
    let sql = by_ids(step.session.dialect(), "t.id, t.payload", end);
    let rows = step.session.rows(&sql, &[step.head.no.into(), Value::Blobs(&ids)]).await?;
    let mut payloads: Map<TaskId, Bytes> = Map::default();
    for row in &rows {
        payloads.insert(row::id(row, 0)?, Bytes::copy_from_slice(row.bytes(1)?));
    }
    for candidate in taken.iter_mut().filter(|candidate| candidate.payload.is_none()) {
        candidate.payload = payloads.remove(&candidate.task.id);
    }
    Ok(())
}
