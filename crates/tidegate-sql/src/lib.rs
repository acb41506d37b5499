//! The ledger and the delay queue on MySQL/MariaDB and PostgreSQL: any number of nodes, any number of batches in flight.
//!
//! - `options.rs`, `open.rs`, `connect.rs`, `migrate.rs`: an address becomes a ledger. `pool.rs`: bounded connections.
//! - `session.rs`, `dialect.rs`, `value.rs`, `fetched.rs`, `bulk.rs`, `fault.rs`: one small way to talk to both dialects.
//! - `ledger.rs`: what the seam asks for. `write/`: a batch. `upkeep.rs`: small writes. `read/`, `row.rs`, `reading.rs`: reads.
//! - `outbox.rs`: what commits made old in caches, of a ledger or of a caller's own database. `transaction.rs`: the same
//!   from a caller's own transaction.
//! - `feed/`: users, posts, follows and blocks.
//! - `queue/`: the delay queue, beside a ledger or alone.
//! - `fences.rs`: the newest fence of each lock.
//! - `scratch.rs`: databases of a bench's own.
//! - `clock.rs`: an estimate of the database's clock. `write/ceiling.rs` (feature `ceiling`): what the bench compares with.

#[cfg(not(any(feature = "mysql", feature = "postgres")))]
compile_error!("tidegate-sql needs one of its features `mysql` and `postgres`");

#[macro_use]
mod reading;

mod bulk;
mod clock;
mod connect;
#[cfg(test)]
#[cfg(all(feature = "mysql", feature = "postgres"))]
mod crowd;
mod dialect;
mod fault;
mod feed;
mod fences;
mod fetched;
mod ledger;
mod migrate;
mod open;
mod options;
mod outbox;
mod pool;
mod queue;
mod read;
mod row;
#[cfg(feature = "ceiling")]
pub mod scratch;
mod session;
mod transaction;
mod upkeep;
mod value;
mod write;

pub use ledger::SqlLedger;
pub use options::SqlOptions;
pub use outbox::SqlOutbox;
pub use queue::{SqlQueueOptions, SqlQueues};
#[cfg(feature = "mysql")]
pub use transaction::MySqlTransaction;
#[cfg(feature = "postgres")]
pub use transaction::PostgresTransaction;
#[cfg(feature = "ceiling")]
pub use write::ceiling::{Ceiling, ceiling, one_by_one};
