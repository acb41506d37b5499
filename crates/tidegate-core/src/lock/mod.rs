//! Locks: who holds a name, until when, with which fence, and who is next.
//!
//! - [`rules`]: bounds, fences, what a holder may rely on.
//! - [`model`]: one lock in memory: the meaning of every operation. The embedded store runs it, the scripts of
//!   `tidegate-redis` are replayed against it.
//!
//! A lock on a clock can only save work: its holder may be paused for longer than its time. What protects data is the
//! *fence*, a number that grows with every grant, checked where the data is (Kleppmann, "How to do distributed locking", 2016).

pub mod model;
pub mod rules;

pub use model::{Acquire, Acquired, Handed, Leave, Lock, Look, Released};
pub use rules::{
    AskId, CONFIRM_MS, Fence, LockName, LockToken, MAX_FENCE, MAX_FLOOR, MAX_TTL_MS, MAX_WAIT_MS, MIN_TTL_MS, Process,
    TokenError, relied_ms,
};
