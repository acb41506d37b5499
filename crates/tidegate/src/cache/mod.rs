//! A typed cache that cannot take the database down. However many callers of however many processes ask for a key that
//! has just expired, the database sees one load; a strong read never gives what was invalidated, a bounded one (the
//! default) for a second at most; when the store or the database is away, callers get an older value or a fast error.
//!
//! - [`Caches`]: what a process' caches share. [`CacheBuilder`]: the knobs of one. [`Cache`]: its verbs.
//! - [`Loader`], [`Loaded`]: where values come from. [`Codec`]: how they become bytes. [`CacheError`]: why there is none.
//! - `hub`: store, bus, budget and tasks of a process; `guard`: the breaker; `governor`: how many loads run.
//! - `space`: the insides of one cache; `read`, `write`: its verbs; `local`: the in-process level; `tags`.
//! - `relay`: [`Relay`], what commits of a ledger make old is invalidated, whatever dies in between; `sink`: what else its
//!   outbox says, and what a caller delivers by himself.
//! - `hot`: which keys are read most; `warm`: what is done for them; `rewarm`: how they are brought back.
//! - [`membership`]: ids that surely do not exist are not loaded.
//! - `owed`: what this process has committed and the store does not know yet.
//! - `flight`: one load a key and process; `load`, `attempt`: what it does; `chain`: loads within loads; `memory`: what
//!   is remembered of keys that failed; `batch`: many keys at once; `crowd`: many readers of one key at once.
//!
//! # Why reads are right
//!
//! A load starts after its lease was granted, and an invalidation deletes lease and value. So what the store holds at a
//! moment, and a fill that it accepts at a moment, lack nothing that was acknowledged before that moment. Every result is
//! shared with the point up to which it is proven (`load`); a reader takes it only if it asked before that point, else it
//! asks again. Its next flight begins after it, so it asks twice at most.
//!
//! A copy in process is kept only if nothing was heard of its key since before it was read, and served only while
//! everything told more than a second ago is known to have been heard, or within a second of its proof. So with every
//! message lost it is old for a second at most.

mod attempt;
mod batch;
mod builder;
mod caches;
#[cfg(feature = "ceiling")]
pub(crate) mod ceiling;
mod chain;
mod codec;
mod crowd;
mod errors;
mod flight;
mod governor;
mod guard;
mod handle;
mod hot;
mod hub;
mod load;
mod loader;
mod local;
pub mod membership;
mod memory;
mod metrics;
mod owed;
mod read;
mod relay;
mod rewarm;
pub(crate) mod sink;
mod space;
mod striped;
mod tags;
mod ticket;
mod ticks;
mod trace;
mod warm;
mod write;

pub use builder::CacheBuilder;
pub use caches::{Caches, CachesBuilder, DEFAULT_LOAD_BUDGET, DEFAULT_LOCAL_BYTES};
#[cfg(feature = "postcard")]
pub use codec::Postcard;
pub use codec::{Codec, CodecError, Json, MAX_PAYLOAD_BYTES};
pub use errors::{CacheError, LoadFailed, LoadTimedOut, LoaderPanicked};
pub use governor::MAX_WAITING_LOADS;
pub use handle::{Cache, Get, ReadRequest};
pub use hot::{DEFAULT_HOT_KEYS, HotKey, MAX_HOT_KEYS};
pub use hub::STALENESS_BOUND_MS;
pub use loader::{LoadContext, Loaded, Loader};
pub use membership::{IdSource, Membership, MembershipHandle, MembershipStatus};
pub use metrics::CacheStats;
pub use read::{Read, Source};
pub use relay::Relay;
pub use tags::MAX_KNOWN_TAGS;
pub use ticket::{Ticket, Unacknowledged};
pub use tidegate_backend::cache::{CacheCapabilities, CacheKey, CacheNotice, CacheStore, MAX_CACHE_BATCH};
pub use tidegate_backend::outbox::{Execute, Outbox, Parameter, SqlDialect};
pub use tidegate_core::cache::{Key, KeyError, KeyReader, KeyWriter, RowVersion, Ttl, ZeroTtl};
pub use tidegate_embedded::{EmbeddedCache, EmbeddedCacheOptions};
#[cfg(feature = "embedded")]
pub use tidegate_embedded::{SqliteOutbox, SqliteTransaction};
#[cfg(feature = "redis")]
pub use tidegate_redis::{RedisCache, RedisCacheOptions};
#[cfg(feature = "mysql")]
pub use tidegate_sql::MySqlTransaction;
#[cfg(feature = "postgres")]
pub use tidegate_sql::PostgresTransaction;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub use tidegate_sql::SqlOutbox;
