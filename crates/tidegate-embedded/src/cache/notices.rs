//! What waits to be heard by one handle.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidegate_backend::cache::CacheNotice;
use tokio::sync::Notify;

use super::MAX_NOTICES;

/// Most notices of one answer, so that whoever hears them can yield in between.
const MAX_HEARD: usize = 1_000;

/// The notices for one handle, oldest first, each with the instant it was told.
#[derive(Default)]
pub(super) struct Inbox {
    waiting: Mutex<Waiting>,
    more: Notify,
}

#[derive(Default)]
struct Waiting {
    notices: VecDeque<(Instant, CacheNotice)>,
    /// There were too many: since when some are lost.
    gap: Option<Instant>,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn put(&self, now: Instant, notice: CacheNotice) {
        let mut waiting = self.lock();
        if waiting.gap.is_some() {
            return;
        }
        if waiting.notices.len() == MAX_NOTICES {
            // A gap says all that they say.
            let oldest = waiting.notices.front().map_or(now, |(told, _)| *told);
            *waiting = Waiting { notices: VecDeque::new(), gap: Some(oldest) };
        } else {
            waiting.notices.push_back((now, notice));
        }
        drop(waiting);
        self.more.notify_one();
    }

    /// The next notices, at least one.
    pub(super) async fn take(&self) -> Vec<CacheNotice> {
        loop {
            // Armed before the look: what is put in between wakes it.
            let more = self.more.notified();
            let heard = self.next();
            if !heard.is_empty() {
                return heard;
            }
            more.await;
        }
    }

    fn next(&self) -> Vec<CacheNotice> {
        let mut waiting = self.lock();
        if waiting.gap.take().is_some() {
            return vec![CacheNotice::Gap];
        }
        let many = waiting.notices.len().min(MAX_HEARD);
        waiting.notices.drain(..many).map(|(_, notice)| notice).collect()
    }

    /// How long the oldest has waited.
    pub(super) fn oldest(&self) -> Duration {
        let waiting = self.lock();
        let told = waiting.gap.or_else(|| waiting.notices.front().map(|(told, _)| *told));
        told.map_or(Duration::ZERO, |told| told.elapsed())
    }
}
