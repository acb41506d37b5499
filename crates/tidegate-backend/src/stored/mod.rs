//! What every SQL ledger does alike, whatever its dialect: how values lie in columns, page cursors, the bounds of a batch,
//! and what a commit tells its caller.
//!
//! - `codec.rs`: names as numbers, order lines in a short binary form, an event's extras as JSON.
//! - `cursor.rs`: page cursors, opaque to callers.
//! - `feed.rs`: the same of the feed's rows.
//! - `batch.rs`: bounds, ids, and the gate copies and deadlines that follow from a decided batch.

pub mod batch;
pub mod codec;
pub mod cursor;
pub mod feed;
