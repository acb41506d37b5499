//! Who asks with a token of the caller's own. A caller that lost its connection asks again with the same one: what the first
//! call was granted, or is about to be, is then the second's, and the first must not give it back.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_core::lock::{LockName, LockToken};

type Key = (LockName, LockToken);

/// The calls of this process by name and token.
#[derive(Default)]
pub(super) struct Askers(Mutex<HashMap<Key, Calls>>);

#[derive(Default)]
struct Calls {
    open: usize,
    last: u64,
}

/// One call, until its caller has the lock, or has given up.
pub(super) struct Asker {
    askers: Arc<Askers>,
    key: Key,
    number: u64,
}

impl Askers {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Calls>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin(self: &Arc<Self>, name: &LockName, token: &LockToken) -> Asker {
        let key = (name.clone(), token.clone());
        let mut askers = self.lock();
        let calls = askers.entry(key.clone()).or_default();
        calls.open += 1;
        calls.last += 1;
        let number = calls.last;
        drop(askers);
        Asker { askers: self.clone(), key, number }
    }
}

impl Asker {
    /// Whether nobody has asked with this token since: then what it got is nobody else's.
    pub(super) fn is_last(&self) -> bool {
        self.askers.lock().get(&self.key).is_none_or(|calls| calls.last == self.number)
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        let mut askers = self.askers.lock();
        if let Some(calls) = askers.get_mut(&self.key) {
            calls.open -= 1;
            if calls.open == 0 {
                askers.remove(&self.key);
            }
        }
    }
}
