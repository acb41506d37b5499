//! Events and the manual clock on two nodes, told and untold.

use std::time::Duration;

use crate::fakes::link;
use crate::pair::{pair, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_events_wake_on_every_node() {
    for linked in [true, false] {
        let (end_a, end_b, _) = link();
        let ends: [Option<std::sync::Arc<dyn tidegate_backend::Bus>>; 2] =
            if linked { [Some(end_a), Some(end_b)] } else { [None, None] };
        let pair = pair(true, 10, ends).await;
        let mut newest = pair.b.tidegate.operations().newest_event();
        let before = *newest.borrow_and_update();
        pair.a.place("o").await.expect("there is stock");
        let patience = if linked { Duration::from_millis(100) } else { Duration::from_millis(1_500) };
        tokio::time::timeout(patience, newest.wait_for(|cursor| *cursor > before))
            .await
            .unwrap_or_else(|_| panic!("linked {linked}: not woken within {patience:?}"))
            .expect("the instance lives");
        pair.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadline_set_on_one_node_is_acted_on_while_the_other_stops() {
    let (end_a, end_b, _) = link();
    let pair = pair(true, 10, [Some(end_a), Some(end_b)]).await;
    pair.a.place("o").await.expect("there is stock");
    pair.a.tidegate.stop(Duration::from_secs(5)).await.expect("it stops");
    assert_eq!(pair.index.closed.load(std::sync::atomic::Ordering::SeqCst), 1, "leases are handed back");
    pair.b.advance(1_800_000).await;
    let cancelled = async || pair.b.status("o").await == tidegate::core::Status::Cancelled;
    until("the other node acts", Duration::from_secs(2), cancelled).await;
    pair.b.tidegate.stop(Duration::from_secs(5)).await.expect("it stops");
}
