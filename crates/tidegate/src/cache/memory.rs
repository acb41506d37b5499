//! What a process remembers of keys that failed: the loader's own error while others must not load, and when the next
//! refresh may be tried. Bounded, so that a million failing keys leave nothing behind.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use quick_cache::sync::Cache;
use tidegate_core::Set;
use tidegate_core::cache::EntryId;

use super::errors::CacheError;

/// Most keys whose failure is remembered.
const MAX_REMEMBERED: usize = 1_024;
/// Most keys reported as too large.
const MAX_REPORTED: usize = 1_024;

#[derive(Clone)]
struct Memo {
    /// No load or refresh of this process before this instant (its own clock).
    hold_until: i64,
    failures: u32,
    failed: Option<(EntryId, CacheError)>,
}

pub(super) struct Memory {
    memos: Cache<Bytes, Memo>,
    reported: Mutex<Set<Box<[u8]>>>,
}

impl Memory {
    pub(super) fn new() -> Self {
        Self { memos: Cache::new(MAX_REMEMBERED), reported: Mutex::default() }
    }

    /// A load failed: what is said to who asks before `hold_until`.
    pub(super) fn failed(&self, key: &Bytes, hold_until: i64, failures: u32, id: EntryId, error: &CacheError) {
        self.memos.insert(key.clone(), Memo { hold_until, failures, failed: Some((id, error.clone())) });
    }

    /// Another refreshes: not worth trying before `hold_until`.
    pub(super) fn hold(&self, key: &Bytes, hold_until: i64) {
        let failures = self.failures(key);
        self.memos.insert(key.clone(), Memo { hold_until, failures, failed: None });
    }

    pub(super) fn loaded(&self, key: &[u8]) {
        self.memos.remove(key);
    }

    pub(super) fn holds(&self, key: &[u8], now: i64) -> bool {
        self.memos.peek(key).is_some_and(|memo| now < memo.hold_until)
    }

    /// Failures in a row, as far as remembered.
    pub(super) fn failures(&self, key: &[u8]) -> u32 {
        self.memos.peek(key).map_or(0, |memo| memo.failures)
    }

    /// The error of a load that failed here and must not be tried again yet.
    pub(super) fn error(&self, key: &[u8], now: i64) -> Option<CacheError> {
        let memo = self.memos.peek(key).filter(|memo| now < memo.hold_until)?;
        memo.failed.map(|(_, error)| error)
    }

    /// The loader's own error behind an error found in the store, if it was this process'.
    pub(super) fn own_error(&self, key: &[u8], id: EntryId) -> Option<CacheError> {
        self.memos.peek(key)?.failed.filter(|(own, _)| *own == id).map(|(_, error)| error)
    }

    /// Whether to report this key as too large: once, and not for ever more keys.
    pub(super) fn reports(&self, key: &[u8]) -> bool {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        reported.len() < MAX_REPORTED && reported.insert(key.into())
    }
}
