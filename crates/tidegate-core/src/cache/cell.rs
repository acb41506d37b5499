//! Everything stored under one key, and everything that may be done to it.
//!
//! A store holds a [`Cell`] a key. [`Cell::apply`] is the meaning of every operation; the embedded store runs it as it is,
//! the scripts of `tidegate-redis` are replayed against it. Reads of a value look at one slot and at nothing else.

use bytes::Bytes;

use super::SCHEMA_SLOTS;
use super::entry::{self, EntryId, PREFIX_BYTES, Prefix, RowVersion};
use crate::Millis;

/// How long the failures of a key are remembered after the last, milliseconds.
pub const FAILURES_KEPT_MS: i64 = 60_000;

/// Who may write: the writer's proof that nothing has happened to the key since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// The key still holds the lease with this token.
    Lease(EntryId),
    /// The key still holds the value of this fill. `token` is what [`Op::Refresh`] was given.
    Refresh {
        /// Id of the value that is refreshed.
        fill: EntryId,
        /// Of the refresh.
        token: EntryId,
    },
}

impl Holder {
    /// What the entry must begin with.
    #[must_use]
    pub fn prefix(&self) -> Prefix {
        match self {
            Self::Lease(token) => token.lease(),
            Self::Refresh { fill, .. } => fill.value(),
        }
    }

    /// The token of the attempt.
    #[must_use]
    pub fn token(&self) -> EntryId {
        match self {
            Self::Lease(token) | Self::Refresh { token, .. } => *token,
        }
    }
}

/// An operation on one key; all but `Invalidate` are about one schema's slot. Lives are milliseconds, 1 or more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Takes a lease if nothing is there; else says what is there, and marks another's lease as waited for.
    /// -> `Granted`, `Present`.
    Lease {
        /// Of the lease.
        token: EntryId,
        /// Its life.
        for_ms: i64,
    },
    /// Becomes the one who refreshes this value. -> `Granted`, `Busy`, `Lost`.
    Refresh {
        /// Id of the value.
        fill: EntryId,
        /// Of the refresh.
        token: EntryId,
        /// After this another may try.
        for_ms: i64,
    },
    /// Lengthens a lease or a refresh to `for_ms` from now. -> `Held`, `Lost`.
    Renew {
        /// Whose.
        holder: Holder,
        /// From now.
        for_ms: i64,
    },
    /// Stores what was loaded; forgets failures. -> `Held`, `Lost`, `Below`. A value must not be older than the floor or
    /// than the value it refreshes; an absence without a version is not stored while there is a floor.
    Fill {
        /// Whose.
        holder: Holder,
        /// A value or an absence.
        bytes: Bytes,
        /// Its life.
        ttl_ms: i64,
    },
    /// Gives a lease or a refresh up; `Held`: it was there until now, so what was loaded under it is not invalidated.
    Release {
        /// Whose.
        holder: Holder,
    },
    /// The load failed: a lease becomes the entry `error` for `for_ms`; a refresh is not tried again for as long.
    /// Counts the failure. -> `Held`, `Lost`.
    Fail {
        /// Whose.
        holder: Holder,
        /// The bytes of an error.
        error: Bytes,
        /// How long.
        for_ms: i64,
    },
    /// Stores a value that carries a version, unless a newer one is there or the floor is above it; the floor rises to it.
    /// Other schemas' entries go. -> `Held`, `Below`.
    Put {
        /// The value.
        bytes: Bytes,
        /// Its life.
        ttl_ms: i64,
        /// Life of the floor.
        keep_floor_ms: i64,
    },
    /// Deletes every schema's entry and revokes every lease and refresh. -> `Held`.
    Invalidate {
        /// Nothing older than this version may be stored any more.
        floor: Option<RowVersion>,
        /// Life of the floor.
        keep_floor_ms: i64,
    },
}

/// What an operation found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// The lease or refresh is the caller's.
    Granted(Notes),
    /// This is there.
    Present(Bytes),
    /// Another refreshes it.
    Busy,
    /// It was still the caller's, and it is done.
    Held,
    /// It is no longer the caller's; nothing was done.
    Lost,
    /// Older than this version; nothing was done.
    Below(RowVersion),
}

/// What is remembered beside the entries of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Notes {
    /// Nothing older may be stored.
    pub floor: Option<RowVersion>,
    /// Loads that failed in a row.
    pub failures: u32,
}

#[derive(Debug, Clone)]
struct Stored {
    bytes: Bytes,
    until: Millis,
}

/// All that is stored under one key.
#[derive(Debug, Clone, Default)]
pub struct Cell {
    slots: [Option<Stored>; SCHEMA_SLOTS as usize],
    /// Tokens of the refreshes that run, a slot each; a failed one holds its place without a token's worth.
    refreshers: [Option<Stored>; SCHEMA_SLOTS as usize],
    notes: Notes,
    notes_until: Millis,
}

fn slot_of(schema: u32) -> usize {
    (schema % SCHEMA_SLOTS) as usize
}

fn live(stored: &Option<Stored>, now: Millis) -> Option<&Bytes> {
    stored.as_ref().filter(|stored| now < stored.until).map(|stored| &stored.bytes)
}

impl Cell {
    /// What a read of `schema` finds.
    #[must_use]
    pub fn read(&self, schema: u32, now: Millis) -> Option<&Bytes> {
        live(&self.slots[slot_of(schema)], now)
    }

    /// Whether nothing of it is alive: it may be forgotten.
    #[must_use]
    pub fn is_dead(&self, now: Millis) -> bool {
        let gone = |all: &[Option<Stored>]| all.iter().all(|one| live(one, now).is_none());
        gone(&self.slots) && gone(&self.refreshers) && now >= self.notes_until
    }

    /// Frees what is no longer alive; whether anything still is.
    pub fn sweep(&mut self, now: Millis) -> bool {
        for stored in self.slots.iter_mut().chain(&mut self.refreshers) {
            if live(stored, now).is_none() {
                *stored = None;
            }
        }
        !self.is_dead(now)
    }

    /// Clearing a namespace: every entry, lease and refresh goes, what is remembered beside them stays (a floor must outlive
    /// it). How many entries went.
    pub fn clear(&mut self, now: Millis) -> usize {
        let entries = self.slots.iter().filter(|stored| live(stored, now).is_some()).count();
        self.slots = Default::default();
        self.refreshers = Default::default();
        entries
    }

    /// What a foreign client does that writes over an entry, knowing none of the rules.
    pub fn overwrite(&mut self, schema: u32, bytes: Bytes, until: Millis) {
        self.slots[slot_of(schema)] = Some(Stored { bytes, until });
    }

    /// What a foreign client does that deletes an entry. It revokes a lease, and lets no refresh end well.
    pub fn delete(&mut self, schema: u32) {
        self.slots[slot_of(schema)] = None;
    }

    /// Bytes of its entries.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.slots.iter().flatten().map(|stored| stored.bytes.len()).sum()
    }

    /// Does `op`; the second part of the answer: whether those who wait for the key's lease should look again.
    pub fn apply(&mut self, schema: u32, op: &Op, now: Millis) -> (Reply, bool) {
        let slot = slot_of(schema);
        match op {
            Op::Lease { token, for_ms } => (self.lease(slot, *token, now, *for_ms), false),
            Op::Refresh { fill, token, for_ms } => (self.refresh(slot, fill, *token, now, *for_ms), false),
            Op::Renew { holder, for_ms } => (self.renew(slot, holder, now, *for_ms), false),
            Op::Fill { holder, bytes, ttl_ms } => self.fill(slot, holder, bytes, now, *ttl_ms),
            Op::Release { holder } => self.release(slot, holder, now),
            Op::Fail { holder, error, for_ms } => self.fail(slot, holder, error, now, *for_ms),
            Op::Put { bytes, ttl_ms, keep_floor_ms } => self.put(slot, bytes, now, *ttl_ms, *keep_floor_ms),
            Op::Invalidate { floor, keep_floor_ms } => self.invalidate(*floor, now, *keep_floor_ms),
        }
    }

    fn notes(&self, now: Millis) -> Notes {
        if now < self.notes_until { self.notes } else { Notes::default() }
    }

    fn note(&mut self, now: Millis, keep_ms: i64, change: impl FnOnce(&mut Notes)) {
        self.notes = self.notes(now);
        change(&mut self.notes);
        self.notes_until = self.notes_until.max(now.plus(keep_ms));
    }

    fn begins(&self, slot: usize, holder: &Holder, now: Millis) -> bool {
        live(&self.slots[slot], now).is_some_and(|bytes| bytes.starts_with(&holder.prefix()))
    }

    fn waited(&self, slot: usize, now: Millis) -> bool {
        live(&self.slots[slot], now).and_then(|bytes| entry::lease_waited(bytes)) == Some(true)
    }

    fn lease(&mut self, slot: usize, token: EntryId, now: Millis, for_ms: i64) -> Reply {
        if let Some(bytes) = live(&self.slots[slot], now).cloned() {
            if entry::lease_waited(&bytes) != Some(false) {
                return Reply::Present(bytes);
            }
            let mut marked = bytes.to_vec();
            entry::set_waited(&mut marked);
            let marked = Bytes::from(marked);
            if let Some(stored) = &mut self.slots[slot] {
                stored.bytes = marked.clone();
            }
            return Reply::Present(marked);
        }
        self.slots[slot] = Some(Stored { bytes: entry::lease(token).into(), until: now.plus(for_ms) });
        Reply::Granted(self.notes(now))
    }

    fn refresh(&mut self, slot: usize, fill: &EntryId, token: EntryId, now: Millis, for_ms: i64) -> Reply {
        if !self.begins(slot, &Holder::Refresh { fill: *fill, token }, now) {
            return Reply::Lost;
        }
        if live(&self.refreshers[slot], now).is_some() {
            return Reply::Busy;
        }
        self.refreshers[slot] = Some(Stored { bytes: token.0.to_vec().into(), until: now.plus(for_ms) });
        Reply::Granted(self.notes(now))
    }

    /// Whether the refresh is this one's. It saves work and decides nothing else.
    fn refreshes(&self, slot: usize, token: EntryId, now: Millis) -> bool {
        live(&self.refreshers[slot], now).is_some_and(|bytes| bytes[..] == token.0)
    }

    fn renew(&mut self, slot: usize, holder: &Holder, now: Millis, for_ms: i64) -> Reply {
        if !self.begins(slot, holder, now) {
            return Reply::Lost;
        }
        let stored = match holder {
            Holder::Lease(_) => &mut self.slots[slot],
            Holder::Refresh { token, .. } if self.refreshes(slot, *token, now) => &mut self.refreshers[slot],
            Holder::Refresh { .. } => return Reply::Lost,
        };
        if let Some(stored) = stored {
            stored.until = now.plus(for_ms);
        }
        Reply::Held
    }

    fn fill(&mut self, slot: usize, holder: &Holder, bytes: &Bytes, now: Millis, ttl_ms: i64) -> (Reply, bool) {
        if !self.begins(slot, holder, now) {
            return (Reply::Lost, false);
        }
        let present = self.slots[slot].as_ref().and_then(|stored| entry::version_of(&stored.bytes));
        let floor = self.notes(now).floor;
        let below = match entry::version_of(bytes) {
            Some(version) => floor.max(present).filter(|floor| version < *floor),
            None if bytes.first() == Some(&b'A') => floor,
            None => None,
        };
        if let Some(floor) = below {
            return (Reply::Below(floor), false);
        }
        let waited = self.waited(slot, now);
        self.slots[slot] = Some(Stored { bytes: bytes.clone(), until: now.plus(ttl_ms) });
        self.end_refresh(slot, holder, now);
        self.notes.failures = 0;
        (Reply::Held, waited)
    }

    fn end_refresh(&mut self, slot: usize, holder: &Holder, now: Millis) {
        if matches!(holder, Holder::Refresh { token, .. } if self.refreshes(slot, *token, now)) {
            self.refreshers[slot] = None;
        }
    }

    fn release(&mut self, slot: usize, holder: &Holder, now: Millis) -> (Reply, bool) {
        if !self.begins(slot, holder, now) {
            return (Reply::Lost, false);
        }
        let waited = self.waited(slot, now);
        match holder {
            Holder::Lease(_) => self.slots[slot] = None,
            Holder::Refresh { .. } => self.end_refresh(slot, holder, now),
        }
        (Reply::Held, waited)
    }

    fn fail(&mut self, slot: usize, holder: &Holder, error: &Bytes, now: Millis, for_ms: i64) -> (Reply, bool) {
        if !self.begins(slot, holder, now) {
            return (Reply::Lost, false);
        }
        let waited = self.waited(slot, now);
        match holder {
            Holder::Lease(_) => {
                self.slots[slot] = Some(Stored { bytes: error.clone(), until: now.plus(for_ms) });
            }
            Holder::Refresh { token, .. } if self.refreshes(slot, *token, now) => {
                self.refreshers[slot] = Some(Stored { bytes: token.0.to_vec().into(), until: now.plus(for_ms) });
            }
            Holder::Refresh { .. } => return (Reply::Lost, false),
        }
        self.note(now, FAILURES_KEPT_MS, |notes| notes.failures = notes.failures.saturating_add(1));
        (Reply::Held, waited)
    }

    fn put(&mut self, slot: usize, bytes: &Bytes, now: Millis, ttl_ms: i64, keep_floor_ms: i64) -> (Reply, bool) {
        let version = entry::version_of(bytes);
        let present = live(&self.slots[slot], now).and_then(|bytes| entry::version_of(bytes));
        if let Some(floor) = self.notes(now).floor.max(present).filter(|floor| Some(*floor) > version) {
            return (Reply::Below(floor), false);
        }
        let waited = (0..self.slots.len()).any(|slot| self.waited(slot, now));
        self.slots = Default::default();
        self.refreshers = Default::default();
        self.slots[slot] = Some(Stored { bytes: bytes.clone(), until: now.plus(ttl_ms) });
        self.note(now, keep_floor_ms, |notes| {
            notes.floor = notes.floor.max(version);
            notes.failures = 0;
        });
        (Reply::Held, waited)
    }

    fn invalidate(&mut self, floor: Option<RowVersion>, now: Millis, keep_floor_ms: i64) -> (Reply, bool) {
        let waited = (0..self.slots.len()).any(|slot| self.waited(slot, now));
        self.slots = Default::default();
        self.refreshers = Default::default();
        if floor.is_some() {
            self.note(now, keep_floor_ms, |notes| notes.floor = notes.floor.max(floor));
        }
        (Reply::Held, waited)
    }
}

const _: () = assert!(PREFIX_BYTES == 17, "the scripts compare as many");

#[cfg(test)]
mod tests;
