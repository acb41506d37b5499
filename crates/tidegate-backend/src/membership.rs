//! Where processes share the bits of a membership filter (`tidegate_core::cache::membership`).
//!
//! A store keeps, for a namespace, the bytes of a `State`, the buckets of its generations, and who builds. What it loses is
//! seen as lost: a bucket is there as a whole or not at all, and nothing but [`MembershipStore::prepare`] makes one. Whatever
//! changes bits or the state names the state that it believes in and does nothing where another is, so that an addition
//! reaches every generation there is.
//!
//! `home` is what a store calls itself. It changes when what was acknowledged may be missing: after a restart, and where
//! another server took its place.

use std::time::Duration;

use bytes::Bytes;

use crate::{BoxFuture, Result};

/// Most buckets of one call.
pub const MAX_BUCKETS_A_CALL: usize = 256;
/// Most [`Bits`] of one [`MembershipStore::add`].
pub const MAX_BITS_A_CALL: usize = 256;

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The state; empty if there is none.
    pub state: Bytes,
    /// What the store calls itself now.
    pub home: Bytes,
    /// How many additions changed the generation that was asked for; 0 if that is not known.
    pub added: u64,
    /// The buckets asked for, in order; `None`: lost, or never made.
    pub buckets: Vec<Option<Bytes>>,
}

/// The bits of one id in one generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bits {
    /// Which generation.
    pub generation: u64,
    /// The bucket.
    pub bucket: u32,
    /// The bits within it; the first is the highest of the first byte.
    pub offsets: Vec<u32>,
}

/// What came of a call that named the state it believes in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Agreed {
    /// It was done.
    Done,
    /// Nothing was done, since this is the state; or the caller does not lead, or the store calls itself something else.
    Changed(Bytes),
}

/// A store of membership filters. Every method may be called at any time from any task, is answered, or fails, within the
/// store's time limit, and does all of its work at once: no other call comes in between.
pub trait MembershipStore: Send + Sync {
    /// The state, and up to [`MAX_BUCKETS_A_CALL`] buckets of a generation, as they were at one moment.
    fn look<'a>(&'a self, namespace: &'a str, generation: u64, buckets: &'a [u32]) -> BoxFuture<'a, Result<Held>>;

    /// Sets up to [`MAX_BITS_A_CALL`] groups of bits, if `state` is what is there. A bucket that is lost stays lost.
    fn add<'a>(&'a self, namespace: &'a str, state: &'a [u8], bits: &'a [Bits]) -> BoxFuture<'a, Result<Agreed>>;

    /// Makes up to [`MAX_BUCKETS_A_CALL`] empty buckets of a generation that no state names yet, for so long.
    fn prepare<'a>(
        &'a self,
        namespace: &'a str,
        generation: u64,
        buckets: std::ops::Range<u32>,
        keep: Duration,
    ) -> BoxFuture<'a, Result<()>>;

    /// Sets in up to [`MAX_BUCKETS_A_CALL`] buckets of a generation every bit that is set in these bytes, if `state` is
    /// what is there, and sets the count of its additions, if one is given. A bucket that is lost stays lost.
    fn merge<'a>(
        &'a self,
        namespace: &'a str,
        state: &'a [u8],
        generation: u64,
        buckets: &'a [(u32, Bytes)],
        added: Option<u64>,
    ) -> BoxFuture<'a, Result<Agreed>>;

    /// Puts `new` in the place of `state` (nothing, if it is empty) for so long, if `state` is what is there, `leader` still
    /// leads and the store still calls itself `home`. `leader` 0: whoever leads, and whatever it is called.
    fn replace<'a>(&'a self, namespace: &'a str, change: Change<'a>) -> BoxFuture<'a, Result<Agreed>>;

    /// Takes or renews the lead of who builds, for so long; whether `leader` leads now. Zero time gives it back.
    fn lead<'a>(&'a self, namespace: &'a str, leader: u64, keep: Duration) -> BoxFuture<'a, Result<bool>>;

    /// Deletes up to [`MAX_BUCKETS_A_CALL`] buckets of a generation that nobody will use.
    fn discard<'a>(
        &'a self,
        namespace: &'a str,
        generation: u64,
        buckets: std::ops::Range<u32>,
    ) -> BoxFuture<'a, Result<()>>;
}

/// A new state for an old one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change<'a> {
    /// What must be there.
    pub state: &'a [u8],
    /// What will be.
    pub new: &'a [u8],
    /// What the store must call itself.
    pub home: &'a [u8],
    /// Who must lead.
    pub leader: u64,
    /// For how long it is kept.
    pub keep: Duration,
}
