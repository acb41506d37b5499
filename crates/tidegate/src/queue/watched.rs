//! A store of tasks of which is known what it refuses.

use std::sync::Arc;
use std::time::Duration;

use tidegate_backend::{BoxFuture, Handout, Listing, QueueCapabilities, QueueStore, Result, Want};
use tidegate_core::Millis;
use tidegate_core::queue::model::Place;
use tidegate_core::queue::{QueueName, Schedule, Scheduled, Settle, Settled, Stats, Task, TaskId};

use crate::refused::Refused;

/// The same store.
pub(super) struct Watched {
    store: Arc<dyn QueueStore>,
    refused: Refused,
}

impl Watched {
    pub(super) fn new(store: Arc<dyn QueueStore>) -> Self {
        Self { store, refused: Refused::default() }
    }
}

impl QueueStore for Watched {
    fn capabilities(&self) -> QueueCapabilities {
        self.store.capabilities()
    }

    fn now(&self) -> Millis {
        self.store.now()
    }

    fn until(&self, at: Millis) -> Duration {
        self.store.until(at)
    }

    fn trouble(&self) -> Option<String> {
        self.store.trouble().or_else(|| self.refused.trouble())
    }

    fn schedule<'a>(&'a self, queue: &'a QueueName, tasks: &'a [Schedule]) -> BoxFuture<'a, Result<Vec<Scheduled>>> {
        self.refused.watch("schedule", queue.as_str(), self.store.schedule(queue, tasks))
    }

    fn cancel<'a>(&'a self, queue: &'a QueueName, ids: &'a [TaskId]) -> BoxFuture<'a, Result<Vec<bool>>> {
        self.refused.watch("cancel", queue.as_str(), self.store.cancel(queue, ids))
    }

    fn claim<'a>(&'a self, wants: &'a [Want]) -> BoxFuture<'a, Result<Vec<Handout>>> {
        match wants {
            [want] => self.refused.watch("claim", want.queue.as_str(), self.store.claim(wants)),
            // An error is nobody's matter alone, and the loop of claims tells of it.
            _ => Box::pin(async move {
                let handouts = self.store.claim(wants).await?;
                for (want, handout) in wants.iter().zip(&handouts) {
                    self.refused.tell("claim", want.queue.as_str(), handout.failed.as_deref());
                }
                Ok(handouts)
            }),
        }
    }

    fn settle<'a>(&'a self, queue: &'a QueueName, tasks: &'a [Settle]) -> BoxFuture<'a, Result<Vec<Settled>>> {
        self.refused.watch("settle", queue.as_str(), self.store.settle(queue, tasks))
    }

    fn get<'a>(&'a self, queue: &'a QueueName, ids: &'a [TaskId]) -> BoxFuture<'a, Result<Vec<Option<Task>>>> {
        self.refused.watch("get", queue.as_str(), self.store.get(queue, ids))
    }

    fn list<'a>(
        &'a self,
        queue: &'a QueueName,
        listing: Listing,
        after: Option<Place>,
        limit: usize,
    ) -> BoxFuture<'a, Result<(Vec<Task>, Option<Place>)>> {
        self.refused.watch("list", queue.as_str(), self.store.list(queue, listing, after, limit))
    }

    fn queues<'a>(&'a self, after: Option<&'a QueueName>, limit: usize) -> BoxFuture<'a, Result<Vec<QueueName>>> {
        self.refused.watch("list of queues", "", self.store.queues(after, limit))
    }

    fn stats<'a>(&'a self, queues: &'a [QueueName]) -> BoxFuture<'a, Result<Vec<Option<Stats>>>> {
        let first = queues.first().map_or("", QueueName::as_str);
        self.refused.watch("stats", first, self.store.stats(queues))
    }

    fn requeue<'a>(
        &'a self,
        queue: &'a QueueName,
        id: &'a TaskId,
        delay_ms: i64,
    ) -> BoxFuture<'a, Result<Option<Task>>> {
        self.refused.watch("requeue", queue.as_str(), self.store.requeue(queue, id, delay_ms))
    }

    fn purge<'a>(&'a self, queue: &'a QueueName, before: Option<Millis>) -> BoxFuture<'a, Result<(usize, bool)>> {
        self.refused.watch("purge", queue.as_str(), self.store.purge(queue, before))
    }

    fn earlier(&self) -> BoxFuture<'static, ()> {
        self.store.earlier()
    }

    fn losses(&self) -> u64 {
        self.store.losses()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.store.close()
    }
}
