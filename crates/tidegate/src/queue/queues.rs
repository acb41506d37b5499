//! The queues of one store.

use std::fmt;
use std::sync::Arc;

use tidegate_backend::{QueueCapabilities, QueueStore};
use tidegate_core::Millis;
use tidegate_core::queue::{QueueName, Stats};

use super::claims::Claims;
use super::handle::Queue;
use super::{QueueError, metrics};

/// The queues of one store. Cloning it is cheap; every clone shares one loop that claims for all workers.
#[derive(Clone)]
pub struct Queues {
    pub(super) store: Arc<dyn QueueStore>,
    pub(super) claims: Arc<Claims>,
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
        let claims = Claims::new(store.clone());
        Self { store, claims }
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
    /// been due for longer than two seconds though a worker was free. Cheap; for a liveness probe.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.claims.trouble()
    }

    /// Ends the loop and the store's tasks; stop the workers first.
    pub async fn close(&self) {
        self.claims.close().await;
        self.store.close().await;
    }
}
