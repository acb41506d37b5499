//! One queue's verbs.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidegate_backend::queue::{Listing, MAX_QUEUE_PAGE};
use tidegate_core::Millis;
use tidegate_core::queue::model::Place;
use tidegate_core::queue::{
    Condition, Due, MAX_BATCH, MAX_DELAY_MS, QueueName, Schedule, Scheduled, Stats, Task, TaskError, TaskId,
};

use super::metrics::Counters;
use super::worker::WorkerBuilder;
use super::{QueueError, Queues};

/// One queue, for payloads of type `T`, which lie in the store as JSON.
pub struct Queue<T> {
    pub(super) queues: Queues,
    pub(super) name: QueueName,
    pub(super) counters: Counters,
    payload: PhantomData<fn() -> T>,
}

impl<T> Clone for Queue<T> {
    fn clone(&self) -> Self {
        Self::new(self.queues.clone(), self.name.clone(), self.counters.clone())
    }
}

impl<T> fmt::Debug for Queue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A task to schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTask<T> {
    id: String,
    due: Due,
    payload: T,
    condition: Condition,
}

impl<T> NewTask<T> {
    /// Due at an instant: milliseconds since 1970 (UTC). The past is now. A task that is there already stays.
    #[must_use]
    pub fn at(id: impl Into<String>, due_at: Millis, payload: T) -> Self {
        Self { id: id.into(), due: Due::At(due_at), payload, condition: Condition::Absent }
    }

    /// Due after a delay from the store's now, up to a hundred years, to the millisecond (parts of one count as one).
    #[must_use]
    pub fn after(id: impl Into<String>, delay: Duration, payload: T) -> Self {
        let ms = i64::try_from(delay.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX);
        Self { id: id.into(), due: Due::In(ms), payload, condition: Condition::Absent }
    }

    /// What becomes of a task that is there already.
    #[must_use]
    pub fn when(mut self, condition: Condition) -> Self {
        self.condition = condition;
        self
    }
}

impl<T: Serialize> NewTask<T> {
    fn encode(&self) -> Result<Schedule, QueueError> {
        let payload = serde_json::to_vec(&self.payload)?.into();
        let task = Schedule { id: TaskId::parse(&self.id)?, due: self.due, payload, condition: self.condition };
        task.check()?;
        Ok(task)
    }
}

/// A task as it stands, its payload decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedTask<T> {
    /// All but the payload.
    pub task: Task,
    /// The payload.
    pub payload: T,
}

/// A payload as it lies in the store, decoded; no bytes are JSON's null.
pub(super) fn decode<T: DeserializeOwned>(payload: &Bytes) -> Result<T, serde_json::Error> {
    serde_json::from_slice(if payload.is_empty() { b"null" } else { payload })
}

pub(super) fn delay_ms(delay: Duration) -> Result<i64, QueueError> {
    let ms = i64::try_from(delay.as_millis()).ok().filter(|ms| *ms <= MAX_DELAY_MS);
    ms.ok_or(QueueError::Task(TaskError::Delay))
}

impl<T> Queue<T> {
    pub(super) fn new(queues: Queues, name: QueueName, counters: Counters) -> Self {
        Self { queues, name, counters, payload: PhantomData }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &QueueName {
        &self.name
    }

    /// Removes a task in any state; whether it was there. Whoever holds it has lost it.
    ///
    /// # Errors
    /// [`QueueError::Id`], [`QueueError::Store`].
    pub async fn cancel(&self, id: &str) -> Result<bool, QueueError> {
        let answers = self.queues.store.cancel(&self.name, &[TaskId::parse(id)?]).await?;
        Ok(answers.first().copied().unwrap_or(false))
    }

    /// The queue in numbers; `None` if it never had a task.
    ///
    /// # Errors
    /// [`QueueError::Store`].
    pub async fn stats(&self) -> Result<Option<Stats>, QueueError> {
        let all = self.queues.store.stats(std::slice::from_ref(&self.name)).await?;
        Ok(all.first().copied().flatten())
    }

    /// A page of tasks, payloads as bytes, and where the next begins.
    ///
    /// # Errors
    /// [`QueueError::Store`].
    pub async fn list(
        &self,
        listing: Listing,
        after: Option<Place>,
        limit: usize,
    ) -> Result<(Vec<Task>, Option<Place>), QueueError> {
        Ok(self.queues.store.list(&self.name, listing, after, limit.clamp(1, MAX_QUEUE_PAGE)).await?)
    }

    /// Gives a dead task a new life, due after `delay`; `None` if no dead task has this id.
    ///
    /// # Errors
    /// [`QueueError::Id`], [`QueueError::Task`] (the delay), [`QueueError::Store`].
    pub async fn requeue(&self, id: &str, delay: Duration) -> Result<Option<Task>, QueueError> {
        Ok(self.queues.store.requeue(&self.name, &TaskId::parse(id)?, delay_ms(delay)?).await?)
    }

    /// Removes dead tasks that died before `before` (all without it), the oldest first, at most [`super::MAX_PURGE`] a
    /// call; how many, and whether there are more.
    ///
    /// # Errors
    /// [`QueueError::Store`].
    pub async fn purge(&self, before: Option<Millis>) -> Result<(usize, bool), QueueError> {
        Ok(self.queues.store.purge(&self.name, before).await?)
    }
}

impl<T: Serialize> Queue<T> {
    /// Schedules a task; durable, as far as the store is, before the answer.
    ///
    /// # Errors
    /// [`QueueError::Id`], [`QueueError::Task`] and [`QueueError::Payload`]: nothing was scheduled. [`QueueError::Store`].
    pub async fn schedule(&self, task: NewTask<T>) -> Result<Scheduled, QueueError> {
        let mut answers = self.schedule_all(&[task]).await?;
        Ok(answers.remove(0))
    }

    /// The same for up to [`MAX_BATCH`] tasks, in order. A fault in one of them refuses all.
    ///
    /// # Errors
    /// As [`Queue::schedule`]; [`QueueError::Batch`].
    pub async fn schedule_all(&self, tasks: &[NewTask<T>]) -> Result<Vec<Scheduled>, QueueError> {
        if tasks.len() > MAX_BATCH {
            return Err(QueueError::Batch(tasks.len()));
        }
        let tasks = tasks.iter().map(NewTask::encode).collect::<Result<Vec<_>, _>>()?;
        let answers = self.queues.store.schedule(&self.name, &tasks).await?;
        let scheduled = answers.iter().filter(|answer| answer.scheduled).count();
        self.counters.scheduled.increment(scheduled as u64);
        Ok(answers)
    }

    /// Moves a task to another instant (or adds it); its payload is replaced, its attempts count from the start again.
    ///
    /// # Errors
    /// As [`Queue::schedule`].
    pub async fn reschedule(&self, task: NewTask<T>) -> Result<Scheduled, QueueError> {
        self.schedule(task.when(Condition::Always)).await
    }
}

impl<T: DeserializeOwned> Queue<T> {
    /// A task as it stands.
    ///
    /// # Errors
    /// [`QueueError::Id`], [`QueueError::Payload`], [`QueueError::Store`].
    pub async fn get(&self, id: &str) -> Result<Option<QueuedTask<T>>, QueueError> {
        let mut found = self.queues.store.get(&self.name, &[TaskId::parse(id)?]).await?;
        let Some(task) = found.pop().flatten() else { return Ok(None) };
        let payload = decode(&task.payload)?;
        Ok(Some(QueuedTask { task, payload }))
    }

    /// A worker for this queue.
    #[must_use]
    pub fn worker(&self) -> WorkerBuilder<T> {
        WorkerBuilder::new(self.clone())
    }
}
