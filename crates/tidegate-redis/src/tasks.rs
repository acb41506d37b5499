//! Tasks that end with their owner.

use std::sync::{Mutex, PoisonError};

use tokio::task::JoinHandle;

/// Tasks of one owner. They are aborted when it ends them, and at the latest when this is dropped.
pub(crate) struct Tasks(Mutex<Vec<JoinHandle<()>>>);

impl Tasks {
    pub(crate) fn new(tasks: Vec<JoinHandle<()>>) -> Self {
        Self(Mutex::new(tasks))
    }

    /// Aborts them.
    pub(crate) fn end(&self) {
        self.take().iter().for_each(JoinHandle::abort);
    }

    /// Aborts them and waits until none runs any more.
    pub(crate) async fn ended(&self) {
        for task in self.take() {
            task.abort();
            // It was told to end; how it ended is of no interest.
            let _ = task.await;
        }
    }

    fn take(&self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.end();
    }
}
