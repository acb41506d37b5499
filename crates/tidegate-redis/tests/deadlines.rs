//! The contract of deadline queues on real servers.

mod common;

use std::sync::Arc;

use tidegate_backend::DeadlineQueue;
use tidegate_conformance::servers::{Cluster, Redis};

mod standalone {
    use super::*;

    async fn open() -> (Arc<dyn DeadlineQueue>, Redis) {
        let redis = Redis::start();
        (Arc::new(common::open(&redis.url()).await), redis)
    }

    tidegate_conformance::deadline_conformance!(open);
}

mod cluster {
    use super::*;

    async fn open() -> (Arc<dyn DeadlineQueue>, Arc<Cluster>) {
        let cluster = common::shared_cluster();
        (Arc::new(common::open_named(&cluster.url()).await), cluster)
    }

    tidegate_conformance::deadline_conformance!(open);
}
