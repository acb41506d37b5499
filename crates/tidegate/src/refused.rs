//! What a store that can be reached does not do: it is full, a table or a key of it was destroyed. No connection tells of that,
//! only the answers to calls.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidegate_backend::{BoxFuture, Error, ErrorKind, Result};

/// A call that nobody has repeated for this long says nothing about now.
const KEPT: Duration = Duration::from_secs(60);
/// Most that are known at once.
const MOST: usize = 64;

/// What was done to whom; when it was refused last, and why.
type Calls = HashMap<(&'static str, String), (Instant, String)>;

/// Calls that the store refused, and has not done since.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    any: AtomicBool,
    calls: Mutex<Calls>,
}

impl Refused {
    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `call`, and what it came to is noted: `what` is done to `name`.
    pub(crate) fn watch<'a, T: Send + 'a>(
        &'a self,
        what: &'static str,
        name: &'a str,
        call: BoxFuture<'a, Result<T>>,
    ) -> BoxFuture<'a, Result<T>> {
        Box::pin(async move {
            let done = call.await;
            self.note(what, name, done.as_ref().err());
            done
        })
    }

    /// What a call came to.
    pub(crate) fn note(&self, what: &'static str, name: &str, error: Option<&Error>) {
        let Some(error) = error else { return self.tell(what, name, None) };
        // A key that is broken is one name's matter, all else the whole store's. What was not answered is told by the connection.
        let of = match error.kind() {
            ErrorKind::Corrupt => name,
            _ if error.advice().is_some() => "",
            _ => return,
        };
        let why = error.to_string();
        self.tell(what, of, Some(error.advice().unwrap_or(&why)));
    }

    /// The same of one name, in words.
    pub(crate) fn tell(&self, what: &'static str, name: &str, failed: Option<&str>) {
        let Some(why) = failed else {
            // Most calls, and no lock for them.
            if self.any.load(Ordering::Acquire) {
                let mut calls = self.lock();
                calls.remove(&(what, name.to_owned()));
                // What is done to one is refused to nobody.
                calls.remove(&(what, String::new()));
                self.any.store(!calls.is_empty(), Ordering::Release);
            }
            return;
        };
        let mut calls = self.lock();
        calls.retain(|_, (at, _)| at.elapsed() < KEPT);
        let call = (what, name.to_owned());
        if (calls.len() < MOST || calls.contains_key(&call))
            && calls.insert(call, (Instant::now(), why.to_owned())).is_none()
        {
            tracing::warn!(what, name, why, "a store answers, but does not do it");
        }
        self.any.store(true, Ordering::Release);
    }

    /// What is refused, in words, as far as it was asked for within the last minute.
    pub(crate) fn trouble(&self) -> Option<String> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let mut calls = self.lock();
        calls.retain(|_, (at, _)| at.elapsed() < KEPT);
        self.any.store(!calls.is_empty(), Ordering::Release);
        let ((what, name), (_, why)) = calls.iter().min_by_key(|(call, _)| *call)?;
        let of = if name.is_empty() { String::new() } else { format!(" of {name:?}") };
        let more = calls.len() - 1;
        let more = if more == 0 { String::new() } else { format!(" (and {more} more kinds of calls)") };
        Some(format!("{what}{of} fails{more}: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_is_known_until_it_is_done() {
        let refused = Refused::default();
        let full = Error::new(ErrorKind::Unavailable, "Redis").because("OOM").advise(Some("it is full"));
        let broken = Error::new(ErrorKind::Corrupt, "WRONGTYPE");
        let away = Error::new(ErrorKind::Unavailable, "it cannot be reached");
        refused.note("schedule", "a", Some(&away));
        assert_eq!(refused.trouble(), None, "the connection tells of that");
        refused.note("schedule", "a", Some(&full));
        assert_eq!(refused.trouble().as_deref(), Some("schedule fails: it is full"));
        refused.note("claim", "b", Some(&broken));
        let both = refused.trouble().unwrap();
        assert_eq!(both, "claim of \"b\" fails (and 1 more kinds of calls): WRONGTYPE");
        refused.note("claim", "a", None);
        refused.note("schedule", "b", None);
        assert_eq!(refused.trouble().as_deref(), Some("claim of \"b\" fails: WRONGTYPE"), "b is still broken");
        refused.note("claim", "b", None);
        assert_eq!(refused.trouble(), None);
        for n in 0..2 * MOST {
            refused.note("get", &n.to_string(), Some(&broken));
        }
        assert_eq!(refused.lock().len(), MOST);
    }
}
