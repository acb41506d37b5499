//! The queues of one store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidegate_backend::{QueueCapabilities, QueueStore};
use tidegate_core::Millis;
use tidegate_core::queue::{QueueName, Stats};

use super::claims::Claims;
use super::handle::Queue;
use super::watched::Watched;
use super::{QueueError, RawQueue, metrics};
use crate::pending::Pending;

/// How long a close waits for what is handed back.
const HANDS_BACK_WITHIN: Duration = Duration::from_secs(1);

/// The queues of one store. Cloning it is cheap; every clone shares one loop that claims for all workers.
#[derive(Clone)]
pub struct Queues {
    pub(super) store: Arc<dyn QueueStore>,
    pub(super) claims: Arc<Claims>,
    /// Claims of callers that may be gone, and what is handed back for them.
    pub(super) pending: Arc<Pending>,
}

impl fmt::Debug for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queues").field("store", &self.store.capabilities().name).finish_non_exhaustive()
    }
}

impl Queues {
    /// The queues of `store`.
    #[must_use]
    pub fn new(store: Arc<dyn QueueStore>) -> Self {
        let store: Arc<dyn QueueStore> = Arc::new(Watched::new(store));
        let claims = Claims::new(store.clone());
        Self { store, claims, pending: Arc::default() }
    }

    /// One queue; it begins with its first task.
    ///
    /// # Errors
    /// [`QueueError::Name`]; [`QueueError::Reserved`] for the product's own.
    pub fn queue<T>(&self, name: &str) -> Result<Queue<T>, QueueError> {
        let name = QueueName::parse(name)?;
        if name.is_reserved() {
            return Err(QueueError::Reserved(name.to_string()));
        }
        let counters = metrics::Counters::of(&name);
        Ok(Queue::new(self.clone(), name, counters))
    }

    /// One queue as bytes; the product's own can be looked at.
    #[must_use]
    pub fn raw(&self, name: QueueName) -> RawQueue {
        RawQueue::new(self.clone(), name)
    }

    /// Names of queues after `after`, in the order of bytes, at most `limit` (`1..=`[`super::MAX_QUEUE_PAGE`]).
    ///
    /// # Errors
    /// [`QueueError::Store`].
    pub async fn names(&self, after: Option<&QueueName>, limit: usize) -> Result<Vec<QueueName>, QueueError> {
        Ok(self.store.queues(after, limit.clamp(1, super::MAX_QUEUE_PAGE)).await?)
    }

    /// Queues in numbers, in order; `None` for one that never had a task.
    ///
    /// # Errors
    /// [`QueueError::Store`].
    pub async fn stats(&self, names: &[QueueName]) -> Result<Vec<Option<Stats>>, QueueError> {
        Ok(self.store.stats(names).await?)
    }

    /// What the store can promise.
    #[must_use]
    pub fn capabilities(&self) -> QueueCapabilities {
        self.store.capabilities()
    }

    /// The store's clock, as well as it is known here.
    #[must_use]
    pub fn now(&self) -> Millis {
        self.store.now()
    }

    /// Why due tasks do not come to the workers of this process, if they do not: the store cannot be asked, or something has
    /// been due for longer than two seconds though a worker was free. And what a store that can be asked refused within the last
    /// minute and has not done since: it is full, a table or a key of it was destroyed. Cheap; for a liveness probe.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.store.trouble().or_else(|| self.claims.trouble())
    }

    /// Ends the loop and the store's tasks; stop the workers first. What callers that are gone have claimed is handed back,
    /// unless that takes longer than a second.
    pub async fn close(&self) {
        // First: a round of claims that is under way may have something for them.
        let _ = tokio::time::timeout(HANDS_BACK_WITHIN, self.pending.none()).await;
        self.claims.close().await;
        self.store.close().await;
    }
}
