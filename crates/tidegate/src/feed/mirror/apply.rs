//! What changes do to the mirror: the news, and what this process has committed itself.

use std::sync::atomic::Ordering;

use tidegate_backend::feed::{Event, EventKind, News};
use tidegate_core::Millis;
use tidegate_core::feed::{Change, Subject, Version, What};

use super::log::Happened;
use super::{Mirror, NO_OLDEST, NONE, State, UNKNOWN};

/// Own changes that the news have still to tell.
const MAX_OWN: usize = 65_536;

impl Mirror {
    /// Takes the news.
    pub(in crate::feed) fn take(&self, news: &News) {
        if news.events.is_empty() && !news.lost {
            return;
        }
        let mut state = self.write();
        if news.lost {
            state.lost += 1;
            state.newest.fill(UNKNOWN);
            state.log.forget();
        }
        for event in &news.events {
            self.apply(&mut state, event, None);
        }
        self.seq.store(state.log.seq(), Ordering::Release);
    }

    /// Takes what this process has committed.
    pub(in crate::feed) fn take_own(&self, changes: &[Change]) {
        if changes.is_empty() {
            return;
        }
        let mut state = self.write();
        for change in changes {
            self.apply(&mut state, &Event::of(change), Some(&change.what));
        }
        self.seq.store(state.log.seq(), Ordering::Release);
    }

    fn apply(&self, state: &mut State, event: &Event, own: Option<&What>) {
        let now = self.ticks.now();
        match (&event.subject, &event.what) {
            (Subject::Author(author), EventKind::Posts { added, removed, touched }) => {
                let number = state.numbers.get(author).copied();
                if let Some(number) = number {
                    state.advance(number as usize, event, *added, *removed, own);
                    if state.was_logged(number, event.version, own.is_some()) {
                        return;
                    }
                }
                let (added, touched) = (added.map(|(newest, _)| newest), touched.as_slice().into());
                state.log.push(Happened::Posts { author: number, added, removed: *removed, touched }, now);
            }
            (Subject::Author(author), _) => {
                // He may have written a root that is on a page, whose changes are not said: he gets a number.
                self.make_room(state, 1);
                let number = state.intern(author);
                let at = number as usize;
                if event.version > state.version[at] {
                    state.version[at] = event.version;
                    state.newest[at] = UNKNOWN;
                }
                if !state.was_logged(number, event.version, own.is_some()) {
                    state.log.push(Happened::Floor(number), now);
                }
            }
            (Subject::User(user), _) => {
                let Some(number) = state.numbers.get(user).copied() else { return };
                let at = number as usize;
                if event.version > state.ties[at] {
                    state.ties[at] = event.version;
                    self.ties_changed(state, number, event.prev, event.version, own);
                    state.log.push(Happened::Ties(number), now);
                }
            }
            (Subject::Root(root), _) => state.log.push(Happened::Root(root.clone()), now),
        }
    }
}

impl State {
    /// Whether a change of an author's posts is in the log already: it is this process' own, and now the news tell it. Nothing
    /// else is left out, least of all because of a newer version: of what others changed before an own change, the news may be
    /// heard after that.
    fn was_logged(&mut self, author: u32, version: Version, is_own: bool) -> bool {
        if !is_own {
            return self.own.remove(&(author, version));
        }
        if self.own.len() >= MAX_OWN {
            // Those are told twice: pages are made anew for nothing.
            self.own.clear();
        }
        self.own.insert((author, version));
        false
    }

    /// Posts of an author changed.
    fn advance(
        &mut self,
        at: usize,
        event: &Event,
        added: Option<(Millis, Millis)>,
        removed: bool,
        own: Option<&What>,
    ) {
        let before: Version = self.version[at];
        if event.version <= before {
            return;
        }
        self.version[at] = event.version;
        let known = self.newest[at] != UNKNOWN;
        if !known && event.prev == 0 && event.version > before {
            // A new life of the name: before this there was nothing.
            (self.newest[at], self.oldest[at]) = (NONE, NO_OLDEST);
        } else if !known || before != event.prev {
            self.newest[at] = UNKNOWN;
            return;
        }
        if let Some((newest, oldest)) = added {
            self.newest[at] = self.newest[at].max(newest.0);
            self.oldest[at] = self.oldest[at].min(oldest.0);
        }
        // Which is the newest or the oldest now, only the store knows, or the ledger.
        let at_the_edge = match own {
            Some(What::Posts { removed, .. }) => {
                removed.iter().any(|place| place.at.0 >= self.newest[at] || place.at.0 <= self.oldest[at])
            }
            _ => removed,
        };
        if at_the_edge {
            self.newest[at] = UNKNOWN;
        }
    }
}
