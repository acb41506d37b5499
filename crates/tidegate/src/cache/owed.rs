//! Keys whose invalidation this process owes the store: committed here, and not delivered yet. Until then what the store
//! has of them is of no use to this process, and no filter refuses them: its own readers see its own commits, also while
//! the store is away and until what it has is made good.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tidegate_core::Map;

#[derive(Debug)]
struct Debt {
    /// Invalidations that are owed.
    entries: usize,
    /// Counts them all, so that what was done before the last of them is not taken for it.
    number: u64,
    /// What the store has may be from before the last of them.
    in_store: bool,
}

/// The debts of one cache. As many as a relay keeps open, so they are bounded.
#[derive(Debug, Default)]
pub(super) struct Owed {
    count: AtomicUsize,
    debts: Mutex<Map<Bytes, Debt>>,
}

impl Owed {
    fn lock(&self) -> MutexGuard<'_, Map<Bytes, Debt>> {
        self.debts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One look at a number where nothing is owed, which is nearly always.
    #[inline]
    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// An invalidation of `key` was committed.
    pub(super) fn owe(&self, key: &Bytes) {
        let mut debts = self.lock();
        let debt = debts.entry(key.clone()).or_insert(Debt { entries: 0, number: 0, in_store: true });
        debt.entries += 1;
        debt.number += 1;
        debt.in_store = true;
        self.count.store(debts.len(), Ordering::Release);
    }

    /// One of them was delivered, by whomever.
    pub(super) fn paid(&self, key: &[u8]) {
        let mut debts = self.lock();
        if let Some(debt) = debts.get_mut(key) {
            debt.entries -= 1;
            if debt.entries == 0 {
                debts.remove(key);
            }
        }
        self.count.store(debts.len(), Ordering::Release);
    }

    /// Whether an invalidation of `key` is owed.
    pub(super) fn has(&self, key: &[u8]) -> bool {
        !self.is_empty() && self.lock().contains_key(key)
    }

    /// Whether what the store has of `key` may be from before an invalidation that is owed; its number, for [`Owed::removed`].
    pub(super) fn in_store(&self, key: &[u8]) -> Option<u64> {
        if self.is_empty() {
            return None;
        }
        self.lock().get(key).filter(|debt| debt.in_store).map(|debt| debt.number)
    }

    /// What the store had was deleted after `number` was owed: what it has from now on is good.
    pub(super) fn removed(&self, key: &[u8], number: u64) {
        if let Some(debt) = self.lock().get_mut(key)
            && debt.number == number
        {
            debt.in_store = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_debt_ends_when_all_of_it_is_paid() {
        let (owed, key) = (Owed::default(), Bytes::from_static(b"k"));
        assert!(!owed.has(b"k") && owed.in_store(b"k").is_none());
        owed.owe(&key);
        let first = owed.in_store(b"k").expect("it is owed");
        owed.owe(&key);
        owed.removed(b"k", first);
        assert!(owed.in_store(b"k").is_some(), "deleted before the second was owed");
        owed.removed(b"k", owed.in_store(b"k").expect("it is owed"));
        assert!(owed.in_store(b"k").is_none() && owed.has(b"k"), "the store is good, a filter may not be");
        owed.paid(b"k");
        assert!(owed.has(b"k"));
        owed.paid(b"k");
        owed.paid(b"k");
        assert!(!owed.has(b"k"));
    }
}
