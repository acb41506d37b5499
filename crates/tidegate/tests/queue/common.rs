//! Queues under test.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate::queue::{MemoryQueues, Queue, QueueOptions, QueueStore, Queues};
use tidegate_backend::SystemClock;

pub const MS: Duration = Duration::from_millis(1);

pub fn in_memory() -> Queues {
    on(Arc::new(MemoryQueues::new(Arc::new(SystemClock), QueueOptions { max_attempts: 3, max_queues: 10 })))
}

pub fn on(store: Arc<dyn QueueStore>) -> Queues {
    Queues::new(store)
}

pub fn mail(queues: &Queues) -> Queue<String> {
    queues.queue("mail").unwrap()
}

/// Waits until `ready`; returns how long it took.
pub async fn until(what: &str, mut ready: impl AsyncFnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !ready().await {
        assert!(began.elapsed() < Duration::from_secs(20), "{what}: not within 20 s");
        tokio::time::sleep(2 * MS).await;
    }
    began.elapsed()
}
