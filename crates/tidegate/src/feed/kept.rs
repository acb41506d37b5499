//! First pages in memory: given again as long as nothing happened to them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tidegate_core::Millis;
use tidegate_core::feed::{Ask, Content, Order, Page, UserId};

use super::inner::{Counts, Inner};
use super::mirror::Watch;

/// Bytes of a page's items beside their texts, about.
const ITEM_BYTES: usize = 320;

/// A page that is kept.
pub(super) struct Kept {
    pub(super) page: Arc<Page>,
    /// It is as it was then.
    seq: AtomicU64,
    watch: Watch,
    /// Something on it, or why it is the last one, is beyond the window after this instant.
    until: Millis,
    bytes: u64,
}

type Key = (UserId, usize);

#[derive(Clone, Copy)]
pub(super) struct Weight;

impl Weighter<Key, Arc<Kept>> for Weight {
    fn weight(&self, _: &Key, kept: &Arc<Kept>) -> u64 {
        kept.bytes
    }
}

pub(super) type KeptCache = Cache<Key, Arc<Kept>, Weight>;

/// Kept pages, by viewer and number of items.
pub(super) struct KeptPages(KeptCache);

impl KeptPages {
    pub(super) fn new(bytes: usize) -> Self {
        Self(Cache::with_weighter((bytes >> 13).max(16), bytes as u64, Weight))
    }
}

impl Kept {
    pub(super) fn new(page: Arc<Page>, seq: u64, watch: Watch, until: Millis) -> Self {
        let text = |content: &Content| match content {
            Content::Body(body) => body.as_str().len(),
            Content::Repost(_) => 0,
        };
        let item = |item: &tidegate_core::feed::Item| ITEM_BYTES + text(&item.root.content) + 80 * item.reasons.len();
        let bytes = 256 + page.items.iter().map(item).sum::<usize>() + 64 * watch.looked_at.len();
        Self { page, seq: AtomicU64::new(seq), watch, until, bytes: bytes as u64 }
    }
}

/// Whether a page is one that is kept: the first one, from the newest on, of the whole window.
pub(super) fn is_kept(ask: &Ask) -> bool {
    ask.after.is_none() && ask.since.is_none() && ask.until.is_none() && ask.order == Order::Newest
}

impl Inner {
    /// A page from memory, if nothing has happened to it.
    pub(super) async fn kept_page(&self, ask: &Ask) -> Option<Arc<Page>> {
        let key = (ask.viewer.clone(), ask.limit);
        let kept = self.kept.0.get(&key)?;
        if !self.news_are_fresh() && self.refresh_news().await.is_err() {
            return None;
        }
        let seq = kept.seq.load(Ordering::Acquire);
        let now = self.mirror.seq();
        let unchanged = if now == seq { Some(now) } else { self.mirror.is_unchanged(&kept.watch, seq) };
        match unchanged {
            Some(now) if kept.until >= self.clock.now() => {
                kept.seq.fetch_max(now, Ordering::AcqRel);
                Counts::add(&self.counts.kept, 1);
                Some(Arc::clone(&kept.page))
            }
            _ => {
                self.kept.0.remove_if(&key, |there| Arc::ptr_eq(there, &kept));
                None
            }
        }
    }

    /// Keeps a page.
    pub(super) fn keep(&self, ask: &Ask, kept: Kept) {
        // Else it would be looked at for nothing.
        if self.mirror.may_keep(&kept.watch)
            && self.mirror.is_unchanged(&kept.watch, kept.seq.load(Ordering::Acquire)).is_some()
        {
            self.kept.0.insert((ask.viewer.clone(), ask.limit), Arc::new(kept));
        }
    }
}
