//! Queues and their tasks on the wire.

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use tidegate::core::Millis;
use tidegate::queue::{Claimed, QueueName, Receipt, Scheduled, Settled, Stats, Task};
use utoipa::ToSchema;
use utoipa::openapi::schema::{Schema, SchemaType};
use utoipa::openapi::{ObjectBuilder, RefOr};

use super::instant::Instant;
use super::names::TaskStateName;

/// A JSON value of a caller's, as it was written.
#[derive(Clone, Copy)]
pub(crate) struct Raw<'a>(&'a RawValue);

impl Serialize for Raw<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(to)
    }
}

impl utoipa::PartialSchema for Raw<'_> {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(SchemaType::AnyValue)
            .description(Some("Any JSON value, as it was written; absent if it is not JSON."))
            .into()
    }
}
impl ToSchema for Raw<'_> {}

/// A payload as JSON, or (put in by the library, which takes any bytes) as base64.
fn payload(bytes: &[u8]) -> (Option<Raw<'_>>, Option<String>) {
    let text: &[u8] = if bytes.is_empty() { b"null" } else { bytes };
    match serde_json::from_slice(text) {
        Ok(raw) => (Some(Raw(raw)), None),
        Err(_) => (None, Some(base64(bytes))),
    }
}

/// RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4_usize {
            let letter = LETTERS[(bits >> (18 - 6 * at)) as usize & 63];
            text.push(if at <= three.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

/// A receipt as text.
pub(crate) fn receipt_text(receipt: Receipt) -> String {
    format!("{:x}", receipt.0)
}

/// A receipt from its text: one that was never given out is nobody's, as one that is over.
pub(crate) fn receipt(text: &str) -> Receipt {
    let digits = text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    // Receipts are above 0.
    Receipt(u64::from_str_radix(text, 16).ok().filter(|_| digits).unwrap_or(0))
}

/// A task as it lies in its queue.
#[derive(Serialize, ToSchema)]
#[schema(as = Task)]
pub(crate) struct TaskShape<'a> {
    /// Unique in the queue.
    #[schema(example = "cart-17")]
    id: &'a str,
    #[schema(example = "mail")]
    queue: &'a str,
    #[schema(inline)]
    state: TaskStateName,
    /// What it was scheduled for; retries and leases do not move it.
    #[schema(inline)]
    due_at: Instant,
    /// When it can be handed out next; the end of the lease while it is leased.
    #[schema(inline)]
    visible_at: Instant,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    payload: Option<Raw<'a>>,
    /// The payload, if it is not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    /// How often it was handed out and not handed back.
    attempt: u32,
    /// What the last retry, or the death, gave as its reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    dead_at: Option<Instant>,
}

impl<'a> TaskShape<'a> {
    /// Borrows `task` of `queue`.
    pub(crate) fn new(queue: &'a QueueName, task: &'a Task) -> Self {
        let (payload, payload_base64) = payload(&task.payload);
        Self {
            id: task.id.as_str(),
            queue: queue.as_str(),
            state: TaskStateName(task.state),
            due_at: Instant(task.due_at),
            visible_at: Instant(task.visible_at),
            payload,
            payload_base64,
            attempt: task.attempt,
            last_error: task.last_error.as_deref(),
            dead_at: task.dead_at.map(Instant),
        }
    }
}

/// What scheduling did.
#[derive(Serialize, ToSchema)]
#[schema(as = Scheduled)]
pub(crate) struct ScheduledShape<'a> {
    /// The task is as asked; false: `if` said no, and nothing changed.
    scheduled: bool,
    task: TaskShape<'a>,
}

impl<'a> ScheduledShape<'a> {
    /// Borrows what scheduling in `queue` did.
    pub(crate) fn new(queue: &'a QueueName, scheduled: &'a Scheduled) -> Self {
        Self { scheduled: scheduled.scheduled, task: TaskShape::new(queue, &scheduled.task) }
    }
}

/// A task that was handed to the caller.
#[derive(Serialize, ToSchema)]
#[schema(as = ClaimedTask)]
pub(crate) struct ClaimedShape<'a> {
    id: &'a str,
    /// What it was scheduled for.
    #[schema(inline)]
    due_at: Instant,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    payload: Option<Raw<'a>>,
    /// The payload, if it is not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    /// 1 the first time.
    #[schema(minimum = 1)]
    attempt: u32,
    /// What every answer about the task needs; worthless once it is handed out again.
    receipt: String,
    /// Then another may have it.
    #[schema(inline)]
    lease_until: Instant,
}

/// What a claim gave.
#[derive(Serialize, ToSchema)]
#[schema(as = ClaimedTasks)]
pub(crate) struct ClaimShape<'a> {
    tasks: Vec<ClaimedShape<'a>>,
}

impl<'a> ClaimShape<'a> {
    /// Borrows these tasks.
    pub(crate) fn new(tasks: &'a [Claimed]) -> Self {
        let shape = |task: &'a Claimed| {
            let (payload, payload_base64) = payload(&task.payload);
            ClaimedShape {
                id: task.id.as_str(),
                due_at: Instant(task.due_at),
                payload,
                payload_base64,
                attempt: task.attempt,
                receipt: receipt_text(task.receipt),
                lease_until: Instant(task.lease_until),
            }
        };
        Self { tasks: tasks.iter().map(shape).collect() }
    }
}

/// What was done with a task the caller holds, or held.
#[derive(Serialize, ToSchema)]
#[schema(as = SettledTask)]
pub(crate) struct SettledShape<'a> {
    id: &'a str,
    /// `ok`; `lost`: the receipt is no longer the task's, and nothing was done; `dead`: the retry was the last attempt.
    #[schema(example = "ok")]
    result: &'static str,
}

/// What was done, in order.
#[derive(Serialize, ToSchema)]
#[schema(as = SettledTasks)]
pub(crate) struct SettleShape<'a> {
    results: Vec<SettledShape<'a>>,
}

impl<'a> SettleShape<'a> {
    /// Of these tasks.
    pub(crate) fn new(settled: impl Iterator<Item = (&'a str, Settled)>) -> Self {
        let shape = |(id, settled)| {
            let result = match settled {
                Settled::Done => "ok",
                Settled::Lost => "lost",
                Settled::Dead => "dead",
            };
            SettledShape { id, result }
        };
        Self { results: settled.map(shape).collect() }
    }
}

/// A queue in numbers.
#[derive(Serialize, ToSchema)]
#[schema(as = QueueNumbers)]
pub(crate) struct QueueShape<'a> {
    #[schema(example = "mail")]
    queue: &'a str,
    /// Tasks that wait, due or not.
    pending: u64,
    /// Tasks that wait and are due.
    due: u64,
    /// Tasks that workers hold.
    leased: u64,
    /// Tasks that used up their attempts.
    dead: u64,
    /// Since when the one that waits longest could have been handed out; null when nothing is due.
    #[schema(inline, required)]
    oldest_due_at: Option<Instant>,
    /// How late that is, milliseconds; 0 when nothing is due.
    #[schema(minimum = 0)]
    lag_ms: i64,
}

impl<'a> QueueShape<'a> {
    /// Of `queue` at `now`.
    pub(crate) fn new(queue: &'a QueueName, stats: Stats, now: Millis) -> Self {
        let Stats { pending, due, leased, dead, oldest_due_at } = stats;
        Self {
            queue: queue.as_str(),
            pending,
            due,
            leased,
            dead,
            oldest_due_at: oldest_due_at.map(Instant),
            lag_ms: oldest_due_at.map_or(0, |oldest| now.since(oldest).max(0)),
        }
    }
}

/// What a purge removed.
#[derive(Serialize, ToSchema)]
#[schema(as = Purged)]
pub(crate) struct PurgedShape {
    /// Dead tasks that were removed, at most 10,000.
    pub(crate) purged: usize,
    /// There are more; send the same again.
    pub(crate) more: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_the_rfc() {
        for (bytes, want) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), want);
        }
        assert_eq!(base64(&[0xfb, 0xff]), "+/8=");
    }

    #[test]
    fn payloads() {
        let shown = |bytes: &[u8]| {
            let (json, other) = payload(bytes);
            (json.map(|raw| serde_json::to_string(&raw).expect("JSON")), other)
        };
        assert_eq!(shown(b""), (Some("null".to_owned()), None));
        assert_eq!(shown(b"{\"a\":1.50}"), (Some("{\"a\":1.50}".to_owned()), None));
        assert_eq!(shown(b"1e400"), (Some("1e400".to_owned()), None));
        assert_eq!(shown(b"\xff"), (None, Some("/w==".to_owned())));
        assert_eq!(shown(b"\"\xff\""), (None, Some("Iv8i".to_owned())));
        assert_eq!(shown(b"{"), (None, Some("ew==".to_owned())));
    }

    #[test]
    fn receipts() {
        for number in [1, 0x6f3a_9c01_b2d4, u64::MAX] {
            assert_eq!(receipt(&receipt_text(Receipt(number))), Receipt(number));
        }
        for text in ["", "+1", "xyz", "6F", "11111111111111111", "é"] {
            assert_eq!(receipt(text), Receipt(0), "{text}");
        }
    }
}
