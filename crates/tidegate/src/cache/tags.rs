//! Tags: what one word makes old many entries. A tag has a counter in the store; an entry carries the counters that its
//! tags had before its load began, and is old once one of them differs. Counters, not times: no two clocks are compared.
//!
//! A process knows counters from the store and from notices. It believes them only while it hears the bus; a gap in the
//! notices makes all of them unknown.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use tidegate_core::Map;
use tidegate_core::cache::TagStamp;

/// Most tags of one namespace that a process remembers; entries with further ones are not kept in process.
pub const MAX_KNOWN_TAGS: usize = 100_000;

const UNKNOWN: u64 = 0;

/// A tag's counter as known here.
#[derive(Debug, Default)]
pub(super) struct TagCell(AtomicU64);

/// A tag of an in-process copy.
#[derive(Debug, Clone)]
pub(super) struct Tagged {
    cell: Arc<TagCell>,
    counter: u64,
}

impl Tagged {
    /// Whether the copy is not made old by it, as far as known here.
    pub(super) fn is_current(&self) -> bool {
        self.cell.0.load(Ordering::Acquire) == self.counter
    }
}

#[derive(Debug, Default)]
struct Known {
    cells: Map<u64, Arc<TagCell>>,
    /// Moves whenever an answer that is on its way from the store may be older than what was heard meanwhile.
    epoch: u64,
}

/// The counters of a namespace's tags as known here.
#[derive(Debug, Default)]
pub(super) struct TagCells(RwLock<Known>);

impl TagCells {
    fn read(&self) -> std::sync::RwLockReadGuard<'_, Known> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Known> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be taken before the store is asked, for [`TagCells::learn`].
    pub(super) fn epoch(&self) -> u64 {
        self.read().epoch
    }

    /// What the store said, if nothing was missed since it was asked.
    pub(super) fn learn(&self, stamps: impl IntoIterator<Item = TagStamp>, epoch: u64) {
        let mut known = self.write();
        if known.epoch != epoch {
            return;
        }
        for stamp in stamps {
            if known.cells.len() >= MAX_KNOWN_TAGS && !known.cells.contains_key(&stamp.tag) {
                known.cells.retain(|_, cell| Arc::strong_count(cell) > 1);
                known.epoch += 1;
                if known.cells.len() >= MAX_KNOWN_TAGS {
                    return;
                }
            }
            known.cells.entry(stamp.tag).or_default().0.fetch_max(stamp.counter, Ordering::AcqRel);
        }
    }

    /// A notice, or the answer to one's own bump. Old notices lower nothing. Of a tag that is not known here nothing is
    /// kept, but an answer that is on its way, and may say what the counter was before, is not believed.
    pub(super) fn moved(&self, tag: u64, counter: u64) {
        if let Some(cell) = self.read().cells.get(&tag) {
            cell.0.fetch_max(counter, Ordering::AcqRel);
            return;
        }
        let mut known = self.write();
        known.epoch += 1;
        if let Some(cell) = known.cells.get(&tag) {
            cell.0.fetch_max(counter, Ordering::AcqRel);
        }
    }

    /// Notices were missed: nothing is known any more.
    pub(super) fn forget(&self) {
        let mut known = self.write();
        known.epoch += 1;
        for cell in known.cells.values() {
            cell.0.store(UNKNOWN, Ordering::Release);
        }
        known.cells.clear();
    }

    /// Whether an entry with these stamps is current; `None`: not known here.
    pub(super) fn judge(&self, stamps: &[TagStamp]) -> Option<bool> {
        let known = self.read();
        let mut current = true;
        for stamp in stamps {
            match known.cells.get(&stamp.tag).map(|cell| cell.0.load(Ordering::Acquire)) {
                None | Some(UNKNOWN) => return None,
                Some(counter) => current &= counter == stamp.counter,
            }
        }
        Some(current)
    }

    /// What an in-process copy keeps of its stamps; `None`: one of them is not known here.
    pub(super) fn tie(&self, stamps: &[TagStamp]) -> Option<Arc<[Tagged]>> {
        let known = self.read();
        let tie =
            |stamp: &TagStamp| Some(Tagged { cell: Arc::clone(known.cells.get(&stamp.tag)?), counter: stamp.counter });
        stamps.iter().map(tie).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(tag: u64, counter: u64) -> TagStamp {
        TagStamp { tag, counter }
    }

    #[test]
    fn a_moved_counter_makes_old_whatever_carries_another() {
        let cells = TagCells::default();
        assert_eq!(cells.judge(&[stamp(1, 5)]), None);
        assert_eq!(cells.judge(&[]), Some(true));
        cells.learn([stamp(1, 5), stamp(2, 7)], cells.epoch());
        assert_eq!(cells.judge(&[stamp(1, 5), stamp(2, 7)]), Some(true));
        let tied = cells.tie(&[stamp(1, 5)]).expect("known");
        assert!(tied[0].is_current());
        cells.moved(1, 6);
        cells.moved(1, 5);
        assert!(!tied[0].is_current(), "a late notice lowers nothing");
        assert_eq!(cells.judge(&[stamp(1, 5), stamp(2, 7)]), Some(false));
        assert_eq!(cells.judge(&[stamp(1, 6)]), Some(true));
    }

    #[test]
    fn a_gap_unlearns_also_what_is_on_its_way() {
        let cells = TagCells::default();
        cells.learn([stamp(1, 5)], 0);
        let tied = cells.tie(&[stamp(1, 5)]).expect("known");
        let asked = cells.epoch();
        cells.forget();
        assert!(!tied[0].is_current());
        cells.learn([stamp(1, 5)], asked);
        assert_eq!(cells.judge(&[stamp(1, 5)]), None, "an answer from before the gap");
        cells.learn([stamp(1, 6)], cells.epoch());
        assert_eq!(cells.judge(&[stamp(1, 5)]), Some(false));
    }

    #[test]
    fn an_answer_that_a_notice_overtook_is_not_believed() {
        let cells = TagCells::default();
        let asked = cells.epoch();
        cells.moved(1, 6);
        cells.learn([stamp(1, 5)], asked);
        assert_eq!(cells.judge(&[stamp(1, 5)]), None);
        cells.learn([stamp(1, 6)], cells.epoch());
        assert_eq!(cells.judge(&[stamp(1, 5)]), Some(false));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let cells = TagCells::default();
        cells.learn((0..MAX_KNOWN_TAGS as u64 + 500).map(|tag| stamp(tag, 1)), 0);
        assert!(cells.read().cells.len() <= MAX_KNOWN_TAGS);
    }
}
