//! The rules of Tidegate, as pure functions: no I/O, no async, no clock, no randomness.
//!
//! - [`id`], [`money`], [`time`], [`json`]: validated values; a value that exists is well formed.
//! - [`sku`], [`order`], [`payment`], [`event`], [`stock`]: the things the rules speak of.
//! - [`request`]: requests as they arrive, judged field by field before any row is looked at.
//! - [`command`]: what can be asked ([`Command`]) and what comes back ([`Verdict`]).
//! - [`engine`]: [`engine::missing`] says which rows a batch needs, [`engine::decide`] decides it.
//! - [`gate`]: the soft filter in front of the ledger.
//! - [`cache`]: what a cache stores, how long it lives, who may write it.
//! - [`queue`]: the delay queue: tasks, leases, attempts, the dead.
//! - [`lock`]: locks: holders, fences, the line.
//! - [`feed`]: posts, follows, pages of a home timeline.
//! - [`hot`]: which names are read most, lately.
//! - [`watch`]: the watch over Redis and Valkey: from samples of a server to findings.
//! - [`doctor`]: how servers of Redis and Valkey are set up, against what they are for.
//! - [`audit`]: the invariants I1..I8, over plain rows; demo, replay, reconcile and tests share it.
//!
//! Time arrives as an argument, ids that are not the caller's come from an injected source.

pub mod audit;
pub mod cache;
pub mod command;
pub mod doctor;
pub mod engine;
pub mod event;
pub mod feed;
pub mod gate;
pub mod hot;
pub mod id;
pub mod json;
pub mod lock;
pub mod money;
pub mod order;
pub mod payment;
pub mod queue;
pub mod request;
pub mod settings;
pub mod sku;
pub mod stock;
pub mod time;
pub mod watch;

pub use command::{Command, Failure, Outcome, Refusal, RefusalCode, Rejection, Verdict};
pub use event::{Event, EventKind};
pub use id::{BuyerId, IdError, IdempotencyKey, OrderId, OrderNo, PaymentId, RefundId, SkuId};
pub use json::JsonObject;
pub use money::{Currency, Money};
pub use order::{CancelReason, Line, Order, Status};
pub use payment::{Payment, PaymentOutcome, Refund, RefundReason, RefundStatus};
pub use request::FieldError;
pub use settings::{LatePayment, Settings};
pub use sku::{Patch, Sku, SkuPatch};
pub use stock::{Counts, StockChange, StockKind};
pub use time::Millis;

/// A hash map with the fast hasher every crate of the workspace uses (in process only, never persisted).
pub type Map<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;
/// The set beside [`Map`].
pub type Set<K> = std::collections::HashSet<K, foldhash::fast::RandomState>;
