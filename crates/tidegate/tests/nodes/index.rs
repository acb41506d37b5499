//! The shared index on bad days: away, empty, holding what nobody hands out.

use std::time::Duration;

use tidegate::core::Status;
use tidegate_backend::{DeadlineQueue, IndexState};

use crate::pair::{pair, until};

const HOLD_MS: i64 = 1_800_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_index_is_away_orders_go_on_and_end_on_time() {
    let pair = pair(true, 10, [None, None]).await;
    pair.a.place("before").await.expect("there is stock");
    pair.index.set_down(true);
    pair.b.place("during").await.expect("orders go on");
    pair.a.cancel("during").await;
    pair.a.place("during2").await.expect("orders go on");
    assert!(pair.a.degraded().iter().any(|r| r.starts_with("store-unavailable: the test")), "{:?}", pair.a.degraded());
    pair.b.advance(HOLD_MS - 1).await;
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!(pair.a.status("before").await, Status::Pending, "never early");
    pair.b.advance(1).await;
    for id in ["before", "during2"] {
        let ended = async || pair.a.status(id).await == Status::Cancelled;
        let took = until(id, Duration::from_secs(5), ended).await;
        assert!(took < Duration::from_millis(1_500), "{took:?}");
    }
    pair.a.place("after").await.expect("there is stock");
    pair.index.set_down(false);
    let whole = async || pair.index.state() == IndexState::Whole && pair.a.degraded().is_empty();
    until("filled again", Duration::from_secs(5), whole).await;
    assert_eq!(pair.index.len().await.expect("it answers"), 1);
    pair.check().await;
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emptied_index_is_filled_from_the_ledger_and_acts() {
    let pair = pair(true, 5_000, [None, None]).await;
    let places = (0..2_000).map(|i| pair.a.order(&format!("o{i}"), 1_800)).collect::<Vec<_>>();
    for some in places.chunks(500) {
        let placed = pair.a.tidegate.orders().place_many(some.to_vec()).await;
        assert!(placed.iter().all(Result::is_ok));
    }
    pair.index.flush_all();
    let full = async || pair.index.len().await.is_ok_and(|len| len == 2_000);
    until("filled again", Duration::from_secs(5), full).await;
    pair.check().await;
    pair.b.advance(HOLD_MS).await;
    let empty = async || pair.index.len().await.is_ok_and(|len| len == 0);
    until("all have ended", Duration::from_secs(10), empty).await;
    assert_eq!(pair.a.status("o1999").await, Status::Cancelled);
    pair.check().await;
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_that_a_frozen_node_has_claimed_ends_within_the_lag_bound() {
    let pair = pair(false, 5, [None, None]).await;
    let placed = pair.a.tidegate.orders().place(pair.a.order("o", 1)).await.expect("there is stock");
    let due = placed.order.state.release_at;
    // A node claims it far too early (its clock is an hour ahead), freezes, and its lease is an hour.
    let claims = pair.index.claim(due.plus(1), 512, 3_600_000).await.expect("it answers");
    assert_eq!(claims.len(), 1);
    let ended = async || pair.b.status("o").await == Status::Cancelled;
    until("ended", Duration::from_secs(10), ended).await;
    let order = pair.a.tidegate.orders().get(placed.order.id.clone()).await.expect("readable").expect("it exists");
    let late = order.state.cancelled_at.expect("it is cancelled").since(due);
    assert!((0..=5_000).contains(&late), "{late} ms late");
    // The frozen node comes back: its receipt is worth nothing and changes nothing.
    let receipts: Vec<_> = claims.iter().map(|claim| (claim.order, claim.receipt)).collect();
    pair.index.ack(&receipts).await.expect("it answers");
    pair.check().await;
    pair.stop().await;
}
