//! Versions that this process has committed and the store was not told yet: what the store has of these subjects is too old
//! for this process' own pages.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_core::Map;
use tidegate_core::feed::{Change, PostId, Subject, UserId, Version};

/// What is owed of a subject.
#[derive(Debug, Clone, Copy, Default)]
struct Debt {
    entries: usize,
    version: Version,
}

/// As many as a relay keeps open, so they are bounded.
#[derive(Debug, Default)]
pub(super) struct Owed {
    count: AtomicUsize,
    overflowed: AtomicBool,
    debts: Mutex<Map<Subject, Debt>>,
}

impl Owed {
    fn lock(&self) -> MutexGuard<'_, Map<Subject, Debt>> {
        self.debts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A version was committed.
    pub(super) fn owe(&self, floor: &Change) {
        let mut debts = self.lock();
        let debt = debts.entry(floor.subject()).or_default();
        debt.entries += 1;
        debt.version = debt.version.max(floor.version);
        self.count.store(debts.len(), Ordering::Release);
    }

    /// One of a subject's versions is known to the store.
    pub(super) fn paid(&self, subject: &Subject) {
        let mut debts = self.lock();
        if let Some(debt) = debts.get_mut(subject) {
            debt.entries -= 1;
            if debt.entries == 0 {
                debts.remove(subject);
            }
        }
        self.count.store(debts.len(), Ordering::Release);
    }

    /// Whether more is owed than is remembered.
    pub(super) fn set_overflowed(&self, overflowed: bool) {
        self.overflowed.store(overflowed, Ordering::Release);
    }

    /// Nothing that the store says can be told from what is too old.
    pub(super) fn is_overflowed(&self) -> bool {
        self.overflowed.load(Ordering::Acquire)
    }

    /// The oldest version of a subject that counts.
    fn least(&self, subject: impl FnOnce() -> Subject) -> Version {
        if self.count.load(Ordering::Acquire) == 0 {
            return 0;
        }
        self.lock().get(&subject()).map_or(0, |debt| debt.version)
    }

    /// Of an author's posts.
    pub(super) fn author(&self, author: &UserId) -> Version {
        self.least(|| Subject::Author(author.clone()))
    }

    /// Of a user's ties.
    pub(super) fn user(&self, user: &UserId) -> Version {
        self.least(|| Subject::User(user.clone()))
    }

    /// Whether reposts of a root are owed.
    pub(super) fn has_root(&self, root: &PostId) -> bool {
        self.least(|| Subject::Root(root.clone())) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::feed::What;

    #[test]
    fn a_debt_counts_until_all_of_it_is_paid() {
        let ann = UserId::parse("ann").expect("a name");
        let floor = |version| {
            let what = What::Floor(Subject::Author(ann.clone()));
            Change { prev: 0, version, what }
        };
        let owed = Owed::default();
        assert_eq!((owed.author(&ann), owed.user(&ann)), (0, 0));
        owed.owe(&floor(7));
        owed.owe(&floor(6));
        assert_eq!((owed.author(&ann), owed.user(&ann)), (7, 0));
        let subject = Subject::Author(ann.clone());
        owed.paid(&subject);
        assert_eq!(owed.author(&ann), 7);
        owed.paid(&subject);
        owed.paid(&subject);
        assert_eq!(owed.author(&ann), 0);
    }
}
