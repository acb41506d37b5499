//! The contract of deadline queues, on the one in memory.

use std::sync::Arc;

use tidegate_backend::DeadlineQueue;
use tidegate_embedded::EmbeddedDeadlines;

async fn open() -> (Arc<dyn DeadlineQueue>, ()) {
    (Arc::new(EmbeddedDeadlines::new()), ())
}

tidegate_conformance::deadline_conformance!(open);
