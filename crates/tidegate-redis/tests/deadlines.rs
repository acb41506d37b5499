//! The contract of deadline queues on real servers.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::sync::Arc;

use tidegate_backend::DeadlineQueue;
use tidegate_conformance::servers::{Cluster, Redis};
use tidegate_core::Millis;

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

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn scripts_that_every_node_forgot_are_sent_again() {
        let cluster = common::shared_cluster();
        let q = common::open_named(&cluster.url()).await;
        for round in 0..3 {
            for node in &cluster.nodes {
                node.tell(&["SCRIPT", "FLUSH"]);
            }
            q.schedule(&common::deadlines(0..100)).await.unwrap();
            assert_eq!(q.len().await.unwrap(), 100, "round {round}");
            for node in &cluster.nodes {
                node.tell(&["SCRIPT", "FLUSH"]);
            }
            let claims = q.claim(Millis(1_000), 512, 1_000).await.unwrap();
            assert_eq!(claims.len(), 100, "round {round}");
            q.ack(&claims.iter().map(|c| (c.order, c.receipt)).collect::<Vec<_>>()).await.unwrap();
        }
    }
}
