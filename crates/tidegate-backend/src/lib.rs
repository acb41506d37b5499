//! The seam between Tidegate and its stores: one small trait per duty, one error type.
//!
//! - [`ledger`]: [`Ledger`], the only arbiter. It loads rows, runs `tidegate_core::engine`, writes, commits.
//! - [`gate`]: [`Gate`], copies of what is available; a soft filter, synchronous.
//! - [`deadlines`]: [`DeadlineQueue`], an index of what is due; losing it loses nothing.
//! - [`outbox`]: [`Outbox`], what a commit made old elsewhere, until it is delivered.
//! - [`clock`]: [`Clock`], [`SystemClock`], [`ManualClock`]; every instant on an order comes from the ledger's.
//! - [`steady`]: [`SteadyClock`], which follows another clock and survives its steps.
//! - [`bus`]: [`Bus`], what nodes tell each other; every word of it is only an optimisation.
//! - [`cache`]: [`CacheStore`], where cached entries lie, and what the processes that share them tell each other.
//! - [`membership`]: [`MembershipStore`], where processes share which ids there are.
//! - [`queue`]: [`QueueStore`], where the tasks of a delay queue lie.
//! - [`lock`]: [`LockStore`], where locks lie. [`fence`]: [`Fences`], what keeps a late holder from the data.
//! - [`feed`]: [`FeedLedger`], the truth of timelines, and [`FeedStore`], the copies that pages are made from.
//! - [`stored`]: what every SQL ledger does alike.
//! - [`watch`]: where the watch over Redis gets its samples from.
//! - [`error`]: [`Error`] and its [`ErrorKind`].
//!
//! Async methods return boxed futures, since the store is chosen at run time. No driver's type crosses this seam.

pub mod bus;
pub mod cache;
pub mod clock;
pub mod deadlines;
pub mod error;
pub mod feed;
pub mod fence;
pub mod gate;
pub mod ledger;
pub mod lock;
pub mod membership;
pub mod outbox;
pub mod queue;
pub mod steady;
pub mod stored;
pub mod watch;

pub use bus::{Bus, Notice};
pub use cache::{CacheCapabilities, CacheKey, CacheNotice, CacheStore};
pub use clock::{Clock, ClockStatus, ManualClock, SystemClock};
pub use deadlines::{Claim, DeadlineQueue, IndexState, Receipt, Retry};
pub use error::{Error, ErrorKind, Result};
pub use feed::{FeedCapabilities, FeedCommit, FeedLedger, FeedStore};
pub use fence::{Fences, Seal, Sealed};
pub use futures_util::future::BoxFuture;
pub use gate::Gate;
pub use ledger::{
    Capabilities, Commit, Deadline, EventRecord, Ledger, LedgerId, OrderFilter, Page, PageRequest, PaymentFilter,
    Probe, Probed, RefundFilter,
};
pub use lock::{Kept, LockCapabilities, LockNode, LockStore, Mend, Renewal, Renewed, Vote};
pub use membership::MembershipStore;
pub use outbox::{Deliver, Execute, Outbox, OutboxEntry, OutboxState, Ticket};
pub use queue::{Handout, Listing, QueueCapabilities, QueueOptions, QueueStore, Want};
pub use steady::SteadyClock;
