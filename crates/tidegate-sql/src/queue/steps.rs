//! Steps on a queue in a transaction: what `tidegate_core::queue::Queue` does in memory, as statements. Rows are locked in the
//! order of their ids, decided on here, and written together.

use std::collections::BTreeMap;

use bytes::Bytes;
use tidegate_core::Millis;
use tidegate_core::queue::rules::{replaces, retry_delay_ms};
use tidegate_core::queue::{Receipt, Schedule, Scheduled, Settle, Settled, Task, TaskId, TaskState, Verdict};

use super::head::{Head, PAST_MS};
use crate::bulk::{Bulk, Kind, Table};
use crate::dialect::Dialect;
use crate::fault::{Fault, Result};
use crate::fetched::Row;
use crate::row;
use crate::session::Session;
use crate::value::Value;

/// Columns that [`Stored::read`] reads, of `tg_tasks t`, without the payload.
const COLUMNS: &str = "t.id, t.dead, t.leased, t.at, t.due_at, t.attempt, t.receipt, t.error";
/// The same with it.
pub(super) const WHOLE: &str = "t.id, t.dead, t.leased, t.at, t.due_at, t.attempt, t.receipt, t.error, t.payload";

const KEY: &[&str] = &["queue_no", "id"];
const ALL: &[(&str, Kind)] = &[
    ("queue_no", Kind::Int),
    ("id", Kind::Bytes),
    ("dead", Kind::Int),
    ("leased", Kind::Int),
    ("at", Kind::Int),
    ("due_at", Kind::Int),
    ("attempt", Kind::Int),
    ("receipt", Kind::Int),
    ("error", Kind::Text),
    ("payload", Kind::Bytes),
];
/// Rows that are new.
static NEW: Table = Table { name: "tg_tasks", columns: ALL, key: &[], update: &[] };
/// Rows that are there, with another payload.
static REPLACED: Table = Table {
    name: "tg_tasks",
    columns: ALL,
    key: KEY,
    update: &["dead", "leased", "at", "due_at", "attempt", "receipt", "error", "payload"],
};
/// Rows that are there and keep their payload.
static CHANGED: Table = Table {
    name: "tg_tasks",
    columns: ALL,
    key: KEY,
    update: &["dead", "leased", "at", "due_at", "attempt", "receipt", "error"],
};

/// A row of `tg_tasks`.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) id: TaskId,
    pub(super) dead: bool,
    pub(super) leased: bool,
    pub(super) at: Millis,
    pub(super) due_at: Millis,
    pub(super) attempt: u32,
    pub(super) receipt: Receipt,
    pub(super) error: Option<String>,
    /// Empty where it was not read.
    pub(super) payload: Bytes,
}

/// A number of attempts.
pub(super) fn attempts(row: &Row, column: usize) -> Result<u32> {
    u32::try_from(row.int(column)?).map_err(|_| Fault::corrupt("a task has an impossible number of attempts"))
}

impl Stored {
    pub(super) fn fresh(id: &TaskId, due_at: Millis, payload: Bytes) -> Self {
        let (at, receipt) = (due_at, Receipt(0));
        Self { id: id.clone(), dead: false, leased: false, at, due_at, attempt: 0, receipt, error: None, payload }
    }

    /// A row that begins with [`COLUMNS`], or [`WHOLE`].
    pub(super) fn read(row: &Row, whole: bool) -> Result<Self> {
        Ok(Self {
            id: row::id(row, 0)?,
            dead: row.int(1)? != 0,
            leased: row.int(2)? != 0,
            at: row::millis(row, 3)?,
            due_at: row::millis(row, 4)?,
            attempt: attempts(row, 5)?,
            receipt: Receipt(row.int(6)?.cast_unsigned()),
            error: row.opt_text(7)?.map(str::to_owned),
            payload: if whole { Bytes::copy_from_slice(row.bytes(8)?) } else { Bytes::new() },
        })
    }

    /// As the rules see it.
    pub(super) fn view(&self, now: Millis) -> Task {
        let state = match (self.dead, self.leased && self.at > now) {
            (true, _) => TaskState::Dead,
            (false, true) => TaskState::Leased,
            (false, false) => TaskState::Pending,
        };
        Task {
            id: self.id.clone(),
            state,
            due_at: self.due_at,
            visible_at: self.at,
            payload: self.payload.clone(),
            attempt: self.attempt,
            last_error: self.error.clone().filter(|error| !error.is_empty()),
            dead_at: self.dead.then_some(self.at),
        }
    }

    fn write(&self, queue_no: i64, rows: &mut Bulk) {
        rows.int(queue_no).bytes(self.id.as_str().as_bytes());
        rows.int(i64::from(self.dead)).int(i64::from(self.leased)).int(self.at.0).int(self.due_at.0);
        rows.int(i64::from(self.attempt)).int(self.receipt.0.cast_signed());
        rows.text(self.error.as_deref()).bytes(&self.payload[..]);
    }
}

/// Rows of the second value's ids, of the queue that is the first, in their order; `end` ends the read of one row. By key,
/// whatever the statistics say: those of a table that was empty a moment ago make the planner read all of a queue.
pub(super) fn by_ids(dialect: Dialect, columns: &str, end: &str) -> String {
    match dialect {
        Dialect::MySql => format!(
            "SELECT {columns} FROM tg_tasks t FORCE INDEX (PRIMARY) WHERE t.queue_no = ? AND t.id IN ? ORDER BY t.id {end}"
        ),
        Dialect::Postgres => format!(
            "SELECT t.* FROM UNNEST(CAST($2 AS BYTEA[])) AS u(id) CROSS JOIN LATERAL \
            (SELECT {columns} FROM tg_tasks t WHERE t.queue_no = $1 AND t.id = u.id {end}) t"
        ),
    }
}

/// What becomes of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Same,
    Changed,
    /// The payload, too.
    Replaced,
}

/// A row that was locked, or that nobody had; and what it is now.
#[derive(Debug)]
struct Slot {
    was_there: bool,
    now: Option<Stored>,
    change: Change,
}

/// Rows under way, in the order of their ids.
type Slots = BTreeMap<TaskId, Slot>;

/// A queue in a transaction.
pub(super) struct Step<'a> {
    pub(super) session: &'a mut Session,
    pub(super) head: Head,
    pub(super) max_attempts: u32,
    /// The earliest instant at which something that this step changed can be handed out.
    pub(super) first: Option<Millis>,
}

impl<'a> Step<'a> {
    pub(super) fn new(session: &'a mut Session, head: Head, max_attempts: u32) -> Self {
        Self { session, head, max_attempts, first: None }
    }

    /// Locks the rows of `ids` that there are.
    async fn lock(&mut self, ids: impl Iterator<Item = &TaskId>, whole: bool) -> Result<Slots> {
        let empty = || Slot { was_there: false, now: None, change: Change::Same };
        let mut slots: Slots = ids.map(|id| (id.clone(), empty())).collect();
        if slots.is_empty() {
            return Ok(slots);
        }
        let columns = if whole { WHOLE } else { COLUMNS };
        let sql = by_ids(self.session.dialect(), columns, "FOR UPDATE");
        let keys: Vec<&[u8]> = slots.keys().map(|id| id.as_str().as_bytes()).collect();
        let rows = self.session.rows(&sql, &[self.head.no.into(), Value::Blobs(&keys)]).await?;
        for row in rows {
            let task = Stored::read(&row, whole)?;
            let slot = Slot { was_there: true, now: Some(task.clone()), change: Change::Same };
            slots.insert(task.id.clone(), slot);
        }
        Ok(slots)
    }

    /// Writes what became of the rows.
    async fn write(&mut self, slots: &Slots) -> Result<()> {
        let no = self.head.no;
        let (mut new, mut changed, mut replaced) = (Bulk::new(&NEW), Bulk::new(&CHANGED), Bulk::new(&REPLACED));
        let mut gone: Vec<&[u8]> = Vec::new();
        for (id, slot) in slots {
            match (&slot.now, slot.was_there, slot.change) {
                (None, true, _) => gone.push(id.as_str().as_bytes()),
                (None, false, _) | (Some(_), true, Change::Same) => continue,
                (Some(task), false, _) => task.write(no, &mut new),
                (Some(task), true, Change::Changed) => task.write(no, &mut changed),
                (Some(task), true, Change::Replaced) => task.write(no, &mut replaced),
            }
            if let Some(task) = slot.now.as_ref().filter(|task| !task.dead) {
                self.put(task.at);
            }
        }
        if !gone.is_empty() {
            self.delete(&gone).await?;
        }
        for rows in [&new, &changed, &replaced] {
            self.session.write(rows).await?;
        }
        self.keep_low().await
    }

    /// Something can be handed out from `at` on.
    pub(super) fn put(&mut self, at: Millis) {
        self.first = Some(self.first.map_or(at, |first| first.min(at)));
    }

    /// Rows that are locked.
    async fn delete(&mut self, ids: &[&[u8]]) -> Result<()> {
        let sql = match self.session.dialect() {
            Dialect::MySql => {
                "DELETE t FROM tg_tasks t FORCE INDEX (PRIMARY) WHERE t.queue_no = ? AND t.id IN ?".to_owned()
            }
            // Rows that are locked stay in their place.
            Dialect::Postgres => {
                format!(
                    "DELETE FROM tg_tasks WHERE ctid = ANY(ARRAY({}))",
                    by_ids(Dialect::Postgres, "t.ctid", "OFFSET 0")
                )
            }
        };
        self.session.execute(&sql, &[self.head.no.into(), Value::Blobs(ids)]).await?;
        Ok(())
    }

    /// Rows that are locked keep their payload.
    pub(super) async fn change(&mut self, tasks: &[Stored]) -> Result<()> {
        let mut changed = Bulk::new(&CHANGED);
        for task in tasks {
            task.write(self.head.no, &mut changed);
        }
        self.session.write(&changed).await
    }

    /// Sees to it that the queue's `low` is not above what this step has put. Whoever raises it keeps the queue's row
    /// while it looks for the lowest task and never goes beyond [`PAST_MS`] before the present; so a task of the past is
    /// put before the raiser looks, or finds `low` raised here. Others lie above it unless their transaction takes longer
    /// than that: the look without `low`, every few seconds, finds them.
    pub(super) async fn keep_low(&mut self) -> Result<()> {
        let Some(first) = self.first else { return Ok(()) };
        let mut low = self.head.low;
        if first >= low && first < self.head.now().plus(-PAST_MS) {
            let text = self.session.dialect().pick("LOCK IN SHARE MODE", "FOR SHARE");
            let sql = format!("SELECT low FROM tg_queues WHERE queue_no = ? {text}");
            let row = self.session.one(&sql, &[self.head.no.into()]).await?;
            low = row::millis(&row.ok_or_else(|| Fault::corrupt("the row of a queue is gone"))?, 0)?;
        }
        if first < low {
            let sql = "UPDATE tg_queues SET low = ? WHERE queue_no = ? AND low > ?";
            self.session.execute(sql, &[first.into(), self.head.no.into(), first.into()]).await?;
        }
        Ok(())
    }

    /// As `Queue::schedule`, task after task.
    pub(super) async fn schedule(&mut self, tasks: &[Schedule]) -> Result<Vec<Scheduled>> {
        let mut slots = self.lock(tasks.iter().map(|task| &task.id), true).await?;
        let now = self.head.now();
        let mut answers = Vec::with_capacity(tasks.len());
        for asked in tasks {
            let slot = slots.get_mut(&asked.id).expect("it was asked for");
            let due_at = asked.due.at(now);
            let new = slot.now.is_none();
            let scheduled = slot.now.as_ref().is_none_or(|old| replaces(asked.condition, old.due_at, due_at));
            if scheduled {
                slot.now = Some(Stored::fresh(&asked.id, due_at, asked.payload.clone()));
                slot.change = Change::Replaced;
            }
            let task = slot.now.as_ref().expect("it is there, or was just put").view(now);
            answers.push(Scheduled { new, scheduled, task });
        }
        self.write(&slots).await?;
        Ok(answers)
    }

    /// As `Queue::cancel`, task after task.
    pub(super) async fn cancel(&mut self, ids: &[TaskId]) -> Result<Vec<bool>> {
        let mut slots = self.lock(ids.iter(), false).await?;
        let mut take = |id| slots.get_mut(id).and_then(|slot: &mut Slot| slot.now.take()).is_some();
        let answers = ids.iter().map(&mut take).collect();
        self.write(&slots).await?;
        Ok(answers)
    }

    /// As `Queue::settle`, task after task.
    pub(super) async fn settle(&mut self, tasks: &[Settle]) -> Result<Vec<Settled>> {
        let mut slots = self.lock(tasks.iter().map(|task| &task.id), false).await?;
        let now = self.head.now();
        let settle = |asked: &Settle| {
            let slot = slots.get_mut(&asked.id).expect("it was asked for");
            settle_one(slot, asked, now, self.max_attempts)
        };
        let answers = tasks.iter().map(settle).collect();
        self.write(&slots).await?;
        Ok(answers)
    }

    /// As `Queue::requeue`.
    pub(super) async fn requeue(&mut self, id: &TaskId, delay_ms: i64) -> Result<Option<Task>> {
        let mut slots = self.lock(std::iter::once(id), true).await?;
        let now = self.head.now();
        let slot = slots.get_mut(id).expect("it was asked for");
        let Some(task) = slot.now.take_if(|task| task.dead) else { return Ok(None) };
        let fresh = Stored::fresh(id, now.plus(delay_ms).min(Millis::MAX), task.payload);
        let view = fresh.view(now);
        (slot.now, slot.change) = (Some(fresh), Change::Changed);
        self.write(&slots).await?;
        Ok(Some(view))
    }

    /// As `Queue::purge`.
    pub(super) async fn purge(&mut self, before: Option<Millis>, max: usize) -> Result<(usize, bool)> {
        let before = before.unwrap_or(Millis(i64::MAX));
        let index = self.session.dialect().pick("FORCE INDEX (tg_tasks_order)", "");
        let some = format!("FROM tg_tasks {index} WHERE queue_no = ? AND dead = 1 AND at < ? ORDER BY at, id LIMIT ?");
        let values = [self.head.no.into(), before.into(), i64::try_from(max).unwrap_or(i64::MAX).into()];
        let rows = self.session.rows(&format!("SELECT id {some} FOR UPDATE"), &values).await?;
        let mut ids = rows.iter().map(|row| row.bytes(0)).collect::<Result<Vec<_>>>()?;
        ids.sort_unstable();
        for some in ids.chunks(tidegate_core::queue::MAX_BATCH) {
            self.delete(some).await?;
        }
        let values = [self.head.no.into(), before.into(), 1.into()];
        let more = self.session.one(&format!("SELECT id {some}"), &values).await?.is_some();
        Ok((ids.len(), more))
    }
}

fn settle_one(slot: &mut Slot, asked: &Settle, now: Millis, max_attempts: u32) -> Settled {
    let held = |task: &&mut Stored| task.leased && task.receipt == asked.receipt;
    let Some(task) = slot.now.as_mut().filter(held) else { return Settled::Lost };
    slot.change = Change::Changed;
    match &asked.verdict {
        Verdict::Ack => slot.now = None,
        Verdict::Retry { error, .. } if task.attempt >= max_attempts => {
            (task.dead, task.leased, task.at) = (true, false, now);
            task.error.clone_from(error);
            return Settled::Dead;
        }
        Verdict::Extend(lease_ms) => task.at = now.plus(*lease_ms),
        Verdict::Release => {
            task.leased = false;
            task.attempt = task.attempt.saturating_sub(1);
            task.at = task.due_at;
        }
        Verdict::Retry { delay_ms, spread, error } => {
            let delay = delay_ms.unwrap_or_else(|| retry_delay_ms(task.attempt, *spread));
            task.leased = false;
            task.at = now.plus(delay).min(Millis::MAX);
            task.error.clone_from(error);
        }
    }
    Settled::Done
}
