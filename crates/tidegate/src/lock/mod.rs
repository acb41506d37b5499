//! Locks: only one of us at a time. A lock on a clock saves work; it does not by itself keep a paused holder from acting
//! late. What must not happen twice is checked where the data is, by the guard's fence.
//!
//! - [`Locks`]: the locks of one store. [`Ask`]: how long, how patient. [`Guard`]: a lock that is held.
//! - [`Advisory`], [`Quorum`], [`Fenced`]: grades. [`fenced_tx`]: a transaction that only the newest holder commits.
//! - [`LockError`]: why it is not. A store that does not answer is never "not held".
//! - `acquire`: the task that asks and waits. `renew`: the one task that renews every guard of the process. `wait`: who
//!   waits here, signs of life, and what was handed over. `watched`: what a store refuses.
//!
//! Asking is done by a task of its own: a caller that goes away (a cancelled future) still gives back what it was granted. Each call
//! has a number of its own ([`AskId`]) in the store: what it gives back is nothing that another call with its token has.

mod acquire;
mod errors;
mod fenced;
mod guard;
mod locks;
mod metrics;
pub mod quorum;
mod renew;
mod wait;
mod watched;

pub use errors::LockError;
pub(crate) use fenced::LedgerFences;
pub use fenced::{FenceError, Fenced, FencedGuard, StaleFence, fenced_tx};
pub use guard::Guard;
pub use locks::{Ask, Locks, Sync};
pub use quorum::{Quorum, QuorumOptions};

/// The grade that saves work: the locks of one store. A paused holder may act late, and a store that loses its data may grant a
/// lock twice.
pub type Advisory = Locks;

pub use tidegate_backend::fence::{Fences, Seal, Sealed};
pub use tidegate_backend::lock::{Kept, LockNode, Mend, Vote};
pub use tidegate_backend::outbox::{Execute, Parameter, SqlDialect};
pub use tidegate_backend::steady::{HostTime, TimeSource};
pub use tidegate_backend::{LockCapabilities, LockStore};
pub use tidegate_core::lock::{
    AskId, Fence, Leave, LockName, LockToken, Look, MAX_FLOOR, MAX_TTL_MS, MAX_WAIT_MS, MIN_TTL_MS, TokenError,
};
pub use tidegate_embedded::EmbeddedLocks;
#[cfg(feature = "redis")]
pub use tidegate_redis::{RedisLocks, RedisNode};

#[cfg(feature = "embedded")]
pub use tidegate_embedded::SqliteTransaction;
#[cfg(feature = "mysql")]
pub use tidegate_sql::MySqlTransaction;
#[cfg(feature = "postgres")]
pub use tidegate_sql::PostgresTransaction;
