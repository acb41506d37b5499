//! The bodies of queues and locks, and of looks at Redis.

use tidegate::lock::{MAX_TTL_MS, MAX_WAIT_MS, MIN_TTL_MS};
use tidegate::queue::{MAX_BATCH, MAX_DELAY_MS, MAX_ERROR_BYTES, MAX_LEASE_MS, MAX_PAYLOAD_BYTES, MIN_LEASE_MS};

use super::{Field, Kind, Shape};

pub(crate) static BIG_KEYS: Shape = Shape {
    name: "BeginBigKeys",
    doc: "How to look. The body may be left out.",
    example: r#"{"route": "scan", "top": 20}"#,
    fields: &[
        Field::optional(
            "route",
            Kind::Choice(&["auto", "keysizes", "snapshot", "scan"]),
            "By `INFO keysizes` (Redis 8, sizes alone), a replication snapshot, SCAN, or whichever of them a server has room for (`auto`, the default).",
        ),
        Field::optional("top", Kind::Integer(1, 1_000), "Keys to list; 100 unless set."),
    ],
};

/// Most tasks of a batch.
pub(crate) const MAX_BATCH_TASKS: usize = 500;
/// Longest wait of a claim, milliseconds.
pub(crate) const MAX_CLAIM_WAIT_MS: i64 = 30_000;
/// Lease of a claim that names none, milliseconds.
pub(crate) const DEFAULT_LEASE_MS: i64 = 30_000;
/// So far below 2^53, the bound of fences, that no number of grants gets there.
const MAX_FLOOR: i64 = tidegate::lock::MAX_FLOOR.cast_signed();

const DUE_AT: Field =
    Field::optional("due_at", Kind::Instant, "When; the past is now. This or `delay_ms`, exactly one.");
const DELAY: Field = Field::optional(
    "delay_ms",
    Kind::Integer(0, MAX_DELAY_MS),
    "Milliseconds from now. This or `due_at`, exactly one.",
);
const PAYLOAD: Field = Field::optional(
    "payload",
    Kind::Json(MAX_PAYLOAD_BYTES),
    "Any JSON value; left out, null. It comes back as it was written.",
);
const IF: Field = Field::optional(
    "if",
    Kind::Choice(&["absent", "earlier", "later", "always"]),
    "What becomes of a task that is there already: with `absent` (default) it stays; with `earlier` and `later` it is replaced if the new instant is before or after its own; with `always` it is replaced.",
);

pub(crate) static PUT_TASK: Shape = Shape {
    name: "ScheduleTask",
    doc: "A task to schedule.",
    example: r#"{"delay_ms": 1800000, "payload": {"cart": 17}, "if": "always"}"#,
    fields: &[DUE_AT, DELAY, PAYLOAD, IF],
};

pub(crate) static PUT_TASK_ITEM: Shape = Shape {
    name: "ScheduleTaskItem",
    doc: "A task of a batch to schedule.",
    example: r#"{"id": "cart-17", "due_at": "2026-11-29T15:08:10.000Z", "payload": {"cart": 17}}"#,
    fields: &[Field::required("id", Kind::Label, "Unique in the queue."), DUE_AT, DELAY, PAYLOAD, IF],
};

pub(crate) static PUT_TASK_BATCH: Shape = Shape {
    name: "ScheduleTasks",
    doc: "Tasks to schedule, in order; each stands alone.",
    example: r#"{"tasks": [{"id": "cart-17", "delay_ms": 1800000}]}"#,
    fields: &[Field::required("tasks", Kind::List(&PUT_TASK_ITEM, 1, MAX_BATCH_TASKS), "The tasks.")],
};

pub(crate) static CLAIM: Shape = Shape {
    name: "ClaimTasks",
    doc: "What to hand out. The body may be left out.",
    example: r#"{"max": 10, "lease_ms": 30000, "wait_ms": 20000}"#,
    fields: &[
        Field::optional("max", Kind::Integer(1, MAX_BATCH as i64), "Most tasks; default 1."),
        Field::optional(
            "lease_ms",
            Kind::Integer(MIN_LEASE_MS, MAX_LEASE_MS),
            "For how long they are the caller's; default 30,000. Then another gets them, unless they are settled or extended.",
        ),
        Field::optional(
            "wait_ms",
            Kind::Integer(0, MAX_CLAIM_WAIT_MS),
            "How long to wait until something is due; default 0.",
        ),
    ],
};

pub(crate) static RECEIPT: Shape = Shape {
    name: "HeldTask",
    doc: "A task that the caller holds.",
    example: r#"{"id": "cart-17", "receipt": "6f3a9c01b2d4e"}"#,
    fields: &[
        Field::required("id", Kind::Label, "The task."),
        Field::required("receipt", Kind::Text(64), "What its claim gave."),
    ],
};

const ITEMS: Field = Field::required("items", Kind::List(&RECEIPT, 1, MAX_BATCH), "The tasks.");

pub(crate) static SETTLE: Shape = Shape {
    name: "SettleTasks",
    doc: "Tasks that the caller holds.",
    example: r#"{"items": [{"id": "cart-17", "receipt": "6f3a9c01b2d4e"}]}"#,
    fields: &[ITEMS],
};

pub(crate) static EXTEND_LEASES: Shape = Shape {
    name: "ExtendLeases",
    doc: "Tasks that the caller holds, and for how much longer.",
    example: r#"{"items": [{"id": "cart-17", "receipt": "6f3a9c01b2d4e"}], "lease_ms": 60000}"#,
    fields: &[ITEMS, Field::required("lease_ms", Kind::Integer(MIN_LEASE_MS, MAX_LEASE_MS), "Milliseconds from now.")],
};

pub(crate) static RETRY_TASKS: Shape = Shape {
    name: "RetryTasks",
    doc: "Tasks that the caller holds and could not do.",
    example: r#"{"items": [{"id": "cart-17", "receipt": "6f3a9c01b2d4e"}], "delay_ms": 60000, "error": "the mail server is down"}"#,
    fields: &[
        ITEMS,
        Field::optional(
            "delay_ms",
            Kind::Integer(0, MAX_DELAY_MS),
            "Milliseconds until the next attempt; left out, 1 s that doubles with each attempt up to 1 h, 20 % more or less.",
        ),
        Field::optional("error", Kind::Text(MAX_ERROR_BYTES), "Why; shown as the task's `last_error`."),
    ],
};

pub(crate) static REQUEUE: Shape = Shape {
    name: "RequeueTask",
    doc: "When the dead task is due again. The body may be left out.",
    example: r#"{"delay_ms": 0}"#,
    fields: &[Field::optional("delay_ms", Kind::Integer(0, MAX_DELAY_MS), "Milliseconds from now; default 0.")],
};

pub(crate) static ACQUIRE: Shape = Shape {
    name: "AcquireLock",
    doc: "For how long the lock is wanted, and how long to wait for it.",
    example: r#"{"ttl_ms": 30000, "wait_ms": 10000}"#,
    fields: &[
        Field::required(
            "ttl_ms",
            Kind::Integer(MIN_TTL_MS, MAX_TTL_MS),
            "The lock ends after so many milliseconds unless it is renewed; a server may have a lower bound.",
        ),
        Field::optional("wait_ms", Kind::Integer(0, MAX_WAIT_MS), "How long to wait in the line; default 0."),
        Field::optional("floor", Kind::Integer(0, MAX_FLOOR), "The fence must be above this one."),
    ],
};

pub(crate) static RENEW: Shape = Shape {
    name: "RenewLock",
    doc: "For how much longer the lock is wanted.",
    example: r#"{"ttl_ms": 30000}"#,
    fields: &[Field::required("ttl_ms", Kind::Integer(MIN_TTL_MS, MAX_TTL_MS), "Milliseconds from now.")],
};
