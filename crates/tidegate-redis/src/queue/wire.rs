//! Tasks as scripts take and give them. The scripts' headers say what each part is.

use bytes::Bytes;
use redis::Value;
use tidegate_backend::Result;
use tidegate_core::Millis;
use tidegate_core::queue::model::Place;
use tidegate_core::queue::{
    Claimed, Condition, Due, MAX_BATCH_BYTES, QueueName, Receipt, Schedule, Scheduled, Settle, Settled, Stats, Task,
    TaskId, TaskState, Verdict,
};

use super::PIECE;
use crate::reply;

/// Bytes of an entry before its error and its payload.
const HEADER: usize = 20;

pub(super) fn decimal(number: i64) -> Vec<u8> {
    number.to_string().into_bytes()
}

/// A score as an instant; scores are whole numbers below 2^53.
#[expect(clippy::cast_possible_truncation, reason = "scripts write whole numbers")]
pub(super) fn instant(score: f64) -> Millis {
    Millis(score as i64)
}

pub(super) fn ids(ids: &[TaskId]) -> Vec<Vec<u8>> {
    ids.iter().map(|id| id.as_str().into()).collect()
}

/// Runs of tasks that one call may carry.
pub(super) fn batches(tasks: &[Schedule]) -> Vec<&[Schedule]> {
    let (mut batches, mut from, mut bytes) = (Vec::new(), 0, 0);
    for (at, task) in tasks.iter().enumerate() {
        let full = at - from >= PIECE || bytes + task.payload.len() > MAX_BATCH_BYTES;
        if at > from && full {
            batches.push(&tasks[from..at]);
            (from, bytes) = (at, 0);
        }
        bytes += task.payload.len();
    }
    if from < tasks.len() {
        batches.push(&tasks[from..]);
    }
    batches
}

pub(super) fn schedule(task: &Schedule) -> [Vec<u8>; 4] {
    let due = match task.due {
        Due::At(at) => decimal(at.0),
        Due::In(delay) => format!("+{delay}").into_bytes(),
    };
    let condition = match task.condition {
        Condition::Absent => "a",
        Condition::Earlier => "e",
        Condition::Later => "l",
        Condition::Always => "w",
    };
    [task.id.as_str().into(), due, condition.into(), task.payload.to_vec()]
}

/// Whether all are acknowledged, and nothing else is said.
pub(super) fn is_acks(tasks: &[Settle]) -> bool {
    tasks.iter().all(|task| task.verdict == Verdict::Ack)
}

/// Id and receipt of each.
pub(super) fn acks(tasks: &[Settle]) -> Vec<Vec<u8>> {
    tasks.iter().flat_map(|task| [task.id.as_str().into(), task.receipt.0.to_be_bytes().to_vec()]).collect()
}

pub(super) fn settle(task: &Settle) -> [Vec<u8>; 5] {
    let (verdict, ms, error) = match &task.verdict {
        Verdict::Ack => ("a", Vec::new(), Vec::new()),
        Verdict::Release => ("r", Vec::new(), Vec::new()),
        Verdict::Extend(lease_ms) => ("e", decimal(*lease_ms), Vec::new()),
        Verdict::Retry { delay_ms, spread, error } => {
            let ms = delay_ms.map_or_else(|| format!("~{spread}").into_bytes(), decimal);
            ("t", ms, error.clone().unwrap_or_default().into_bytes())
        }
    };
    [task.id.as_str().into(), task.receipt.0.to_string().into_bytes(), verdict.into(), ms, error]
}

/// What an entry says; a task without one has nothing but its score.
struct Entry {
    due_at: Millis,
    attempt: u32,
    error: Option<String>,
    payload: Bytes,
}

impl Entry {
    fn read(value: &Value, score: Millis) -> Result<Self> {
        let bytes = reply::bytes(value)?;
        if bytes.is_empty() {
            return Ok(Self { due_at: score, attempt: 0, error: None, payload: Bytes::new() });
        }
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() else { return Err(reply::strange(value)) };
        let short = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let due = header.first_chunk().map_or(0, |due| i64::from_be_bytes(*due));
        let Some((error, payload)) = rest.split_at_checked(usize::from(short(18))) else {
            return Err(reply::strange(value));
        };
        let error = (!error.is_empty()).then(|| String::from_utf8_lossy(error).into_owned());
        let payload = Bytes::copy_from_slice(payload);
        Ok(Self { due_at: Millis(due), attempt: u32::from(short(16)), error, payload })
    }

    fn receipt(value: &Value) -> Result<u64> {
        let receipt = reply::bytes(value)?.get(8..).and_then(<[u8]>::first_chunk);
        receipt.map(|receipt| u64::from_be_bytes(*receipt)).ok_or_else(|| reply::strange(value))
    }

    fn task(self, id: TaskId, state: TaskState, score: Millis, now: Millis) -> Task {
        let lapsed = state == TaskState::Leased && score <= now;
        Task {
            id,
            state: if lapsed { TaskState::Pending } else { state },
            due_at: self.due_at,
            visible_at: score,
            payload: self.payload,
            attempt: self.attempt,
            last_error: self.error.filter(|error| !error.is_empty()),
            dead_at: (state == TaskState::Dead).then_some(score),
        }
    }
}

pub(super) fn score(value: &Value) -> Result<Millis> {
    reply::score(value)?.map(instant).ok_or_else(|| reply::strange(value))
}

fn text(value: &Value) -> Result<&str> {
    std::str::from_utf8(reply::bytes(value)?).map_err(|_| reply::strange(value))
}

fn id(value: &Value) -> Result<TaskId> {
    TaskId::parse(text(value)?).map_err(|_| reply::strange(value))
}

pub(super) fn name(value: &Value) -> Result<QueueName> {
    QueueName::parse(text(value)?).map_err(|_| reply::strange(value))
}

fn state(value: &Value) -> Result<Option<TaskState>> {
    match reply::bytes(value)? {
        b"" => Ok(None),
        b"W" => Ok(Some(TaskState::Pending)),
        b"L" => Ok(Some(TaskState::Leased)),
        b"D" => Ok(Some(TaskState::Dead)),
        _ => Err(reply::strange(value)),
    }
}

/// What was done to each task of a batch.
pub(super) fn scheduled(
    batch: &[Schedule],
    mut answer: &[Value],
    now: Millis,
    scheduled: &mut Vec<Scheduled>,
) -> Result<()> {
    for asked in batch {
        let [code, rest @ ..] = answer else { return Err(reply::strange(&Value::Nil)) };
        let what = reply::bytes(code)?;
        let (one, rest) = match (what, rest) {
            (b"N" | b"C", [due, rest @ ..]) => {
                let due_at = score(due)?;
                let entry = Entry { due_at, attempt: 0, error: None, payload: asked.payload.clone() };
                let task = entry.task(asked.id.clone(), TaskState::Pending, due_at, now);
                (Scheduled { new: what == b"N", scheduled: true, task }, rest)
            }
            (_, [at, entry, rest @ ..]) => {
                let at = score(at)?;
                let state = state(code)?.ok_or_else(|| reply::strange(code))?;
                let task = Entry::read(entry, at)?.task(asked.id.clone(), state, at, now);
                (Scheduled { new: false, scheduled: false, task }, rest)
            }
            _ => return Err(reply::strange(code)),
        };
        scheduled.push(one);
        answer = rest;
    }
    Ok(())
}

/// Id, score before and entry of each, leased `until`.
pub(super) fn claimed(answer: &[Value], until: Millis) -> Result<Vec<Claimed>> {
    let one = |parts: &[Value]| {
        let [name, visible, entry] = parts else { return Err(reply::strange(&Value::Nil)) };
        let visible = reply::bytes(visible)?;
        let (suspect, visible) = visible.strip_prefix(b"!").map_or((false, visible), |visible| (true, visible));
        let visible = std::str::from_utf8(visible).ok().and_then(|score| score.parse().ok());
        let receipt = Receipt(Entry::receipt(entry)?);
        // What is leased has an entry.
        let Entry { due_at, attempt, payload, .. } = Entry::read(entry, until)?;
        Ok(Claimed {
            id: id(name)?,
            due_at,
            visible_at: visible.map(instant).ok_or_else(|| reply::strange(name))?,
            payload,
            attempt,
            receipt,
            lease_until: until,
            suspect,
        })
    };
    answer.chunks_exact(3).map(one).collect()
}

pub(super) fn settled(value: &Value) -> Result<Settled> {
    match reply::bytes(value)? {
        [letter] => verdict(*letter).ok_or_else(|| reply::strange(value)),
        _ => Err(reply::strange(value)),
    }
}

/// A letter each.
pub(super) fn acked(value: &Value, settled: &mut Vec<Settled>) -> Result<()> {
    for letter in reply::bytes(value)? {
        settled.push(verdict(*letter).ok_or_else(|| reply::strange(value))?);
    }
    Ok(())
}

fn verdict(letter: u8) -> Option<Settled> {
    match letter {
        b'H' => Some(Settled::Done),
        b'L' => Some(Settled::Lost),
        b'X' => Some(Settled::Dead),
        _ => None,
    }
}

/// The queue's time, and the rest.
pub(super) fn timed(answer: &Value) -> Result<(Millis, &[Value])> {
    let [now, rest @ ..] = reply::list(answer)? else { return Err(reply::strange(answer)) };
    Ok((Millis(reply::integer(now)?), rest))
}

/// State, score and entry.
pub(super) fn task(id: &TaskId, parts: &[Value], now: Millis) -> Result<Option<Task>> {
    let [what, at, entry] = parts else { return Err(reply::strange(&Value::Nil)) };
    let Some(state) = state(what)? else { return Ok(None) };
    let at = score(at)?;
    Ok(Some(Entry::read(entry, at)?.task(id.clone(), state, at, now)))
}

/// Id, score and entry.
pub(super) fn listed(state: TaskState, parts: &[Value], now: Millis) -> Result<Task> {
    let [name, at, entry] = parts else { return Err(reply::strange(&Value::Nil)) };
    let at = score(at)?;
    Ok(Entry::read(entry, at)?.task(id(name)?, state, at, now))
}

pub(super) fn page(after: Option<&Place>, limit: usize, reverse: bool, part: &str) -> Vec<Vec<u8>> {
    let (score, id) = match after {
        Some((at, id)) => (decimal(at.0), id.as_str().into()),
        // Before and after every instant; Lua reads no infinities.
        None if reverse => (b"1e300".to_vec(), Vec::new()),
        None => (b"-1e300".to_vec(), Vec::new()),
    };
    let reverse = if reverse { b"1" } else { b"0" };
    vec![score, id, limit.to_string().into_bytes(), reverse.to_vec(), part.into()]
}

pub(super) fn stats(answer: &Value) -> Result<Option<Stats>> {
    if let Value::BulkString(text) = answer
        && text.is_empty()
    {
        return Ok(None);
    }
    let [waiting, due, leased, lapsed, dead, oldest] = reply::parts::<6>(answer)?;
    let number = |value: &Value| Ok(reply::integer(value)?.max(0).unsigned_abs());
    let lapsed = number(lapsed)?;
    Ok(Some(Stats {
        pending: number(waiting)? + lapsed,
        due: number(due)? + lapsed,
        leased: number(leased)?.saturating_sub(lapsed),
        dead: number(dead)?,
        oldest_due_at: reply::score(oldest)?.map(instant),
    }))
}

/// Instant and payload.
pub(super) fn requeued(id: &TaskId, answer: &Value) -> Result<Option<Task>> {
    if let Value::BulkString(text) = answer
        && text.is_empty()
    {
        return Ok(None);
    }
    let [due, payload] = reply::parts::<2>(answer)?;
    let due_at = score(due)?;
    let payload = Bytes::copy_from_slice(reply::bytes(payload)?);
    let entry = Entry { due_at, attempt: 0, error: None, payload };
    Ok(Some(entry.task(id.clone(), TaskState::Pending, due_at, due_at)))
}
