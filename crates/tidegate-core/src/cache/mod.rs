//! The rules of the cache: what a stored entry says, how long it lives, who may write it, how many loads may run.
//!
//! - [`key`]: [`Key`], fields into bytes without ambiguity.
//! - [`entry`]: [`Entry`], the stored bytes: a value, "there is none", a lease, or an error to be shared.
//! - [`life`]: [`Ttl`], [`Life`]: freshness, staleness, jitter, early refresh.
//! - [`cell`]: [`Cell`], everything stored under one key, and [`Op`], everything that may be done to it: the oracle that
//!   every store is held against. The embedded store runs it as it is.
//! - [`products`]: under what the pages of products are cached.
//! - [`membership`]: which ids surely do not exist.
//! - [`defence`]: back-off, the governor of loads, the breaker in front of a store.
//!
//! The protocol in one paragraph. A miss takes a *lease* by writing its token where the value will be; the load starts
//! after that; the fill replaces the lease only if it is still there. An invalidation deletes whatever is there. A commit
//! before the load's read is seen by it; a commit after it is followed by a delete after the lease was taken, which either
//! revokes the lease or removes the value. So no delayed second delete is needed, and any client's plain delete will do.
//! Leases of this kind are described in Nishtala et al., "Scaling Memcache at Facebook", NSDI 2013, section 3.2.1.

pub mod cell;
pub mod defence;
pub mod entry;
pub mod key;
mod key_list;
pub mod life;
pub mod membership;
pub mod products;

pub use cell::{Cell, Op, Reply};
pub use defence::{Admission, Breaker, Governor, backoff_ms};
pub use entry::{Codec, Entry, EntryId, Failed, Header, Packing, RowVersion, TagStamp, Unreadable};
pub use key::{Key, KeyError, KeyReader, KeyWriter, MAX_KEY_BYTES, key_hash};
pub use key_list::{read_list, write_list};
pub use life::{Freshness, Life, Stamp, Ttl, ZeroTtl};

/// How many schema numbers of one namespace can have entries of their own at a time. A key of schema `n` lies in slot
/// `n % SCHEMA_SLOTS`; an invalidation deletes all slots, so it reaches old and new binaries alike without a registry. Two
/// schemas in one slot see each other's entries as misses.
pub const SCHEMA_SLOTS: u32 = 4;
