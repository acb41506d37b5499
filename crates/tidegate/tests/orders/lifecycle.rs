//! Orders live and die on time; a stop loses nothing.

use std::time::Duration;

use tidegate::core::request::PlaceRequest;
use tidegate::core::{RefusalCode, Status};
use tidegate::{Embedded, Error, Options, Readiness, Tidegate};

use crate::common::{MINUTE, code, shop, sid};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unpaid_order_is_cancelled_on_time_and_a_paid_one_is_not() {
    let shop = shop().await;
    shop.place("a", &[("x", 2)]).await.expect("there is stock");
    shop.place("b", &[("x", 3)]).await.expect("there is stock");
    shop.pay("b", "p1").await;
    assert_eq!(shop.counts("x").await, [0, 2, 3]);
    shop.advance(30 * MINUTE - 1).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(shop.get("a").await.state.status, Status::Pending, "never early");
    shop.advance(1).await;
    shop.wait_status("a", Status::Cancelled).await;
    assert_eq!(shop.counts("x").await, [2, 0, 3]);
    assert_eq!(shop.get("b").await.state.status, Status::Paid);
    let ended = shop.get("a").await.state;
    assert_eq!(ended.cancelled_at, Some(ended.release_at));
    shop.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ledger_that_answers_nothing_is_not_ready() {
    let shop = shop().await;
    shop.ledger.hold(true);
    let waiting = {
        let shop = std::sync::Arc::clone(&shop);
        tokio::spawn(async move { shop.place("a", &[("x", 1)]).await })
    };
    tokio::time::sleep(Duration::from_millis(4_500)).await;
    assert_eq!(shop.tidegate.operations().readiness(), Readiness::Ready, "a slow commit is no fault yet");
    tokio::time::sleep(Duration::from_millis(1_000)).await;
    let Readiness::NotReady(reasons) = shop.tidegate.operations().readiness() else { panic!("it says it is ready") };
    assert!(reasons[0].starts_with("ledger-unavailable: it has not answered for 5 s"), "{reasons:?}");
    shop.ledger.hold(false);
    waiting.await.expect("no panic").expect("there is stock");
    assert_eq!(shop.tidegate.operations().readiness(), Readiness::Ready);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_gate_refuses_what_is_sold_out_and_unknown() {
    let shop = shop().await;
    shop.place("a", &[("x", 5)]).await.expect("there is stock");
    let refused = shop.place("b", &[("x", 1)]).await;
    assert_eq!(code(&refused), Some(RefusalCode::InsufficientStock));
    assert_eq!(refused.expect_err("refused").refusal().and_then(|r| r.available), Some(0));
    assert_eq!(code(&shop.place("c", &[("no-such", 1)]).await), Some(RefusalCode::UnknownSku));
    let many = vec![shop.order("a", &[("x", 5)]), shop.order("d", &[("x", 1)]), shop.order("e", &[("none", 1)])];
    let answers = shop.tidegate.orders().place_many(many).await;
    assert!(answers[0].as_ref().is_ok_and(|placed| placed.replayed));
    assert_eq!(
        [code(&answers[1]), code(&answers[2])],
        [Some(RefusalCode::InsufficientStock), Some(RefusalCode::UnknownSku)]
    );
    shop.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_52_the_last_units_are_sold_once_to_a_crowd() {
    let shop = shop().await;
    let answers = crate::common::parallel(500, |i| {
        let shop = std::sync::Arc::clone(&shop);
        async move { shop.place(&format!("o{i}"), &[("x", 1)]).await }
    })
    .await;
    assert_eq!(answers.iter().filter(|a| a.is_ok()).count(), 5);
    assert!(answers.iter().filter(|a| a.is_err()).all(|a| code(a) == Some(RefusalCode::InsufficientStock)));
    assert_eq!(shop.counts("x").await, [0, 5, 0]);
    shop.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_44_deadlines_outlive_their_worker() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("ledger.db");
    let open = async |workers| {
        let parts = Embedded::at(&path).manual_clock(true).open().await.expect("the ledger opens");
        Tidegate::start(parts, Options { workers, ..Options::default() }).await.expect("it starts")
    };
    let first = open(false).await;
    let put = tidegate::core::command::PutSku {
        sku: sid("x"),
        patch: tidegate::core::SkuPatch::default(),
        on_hand: Some(600),
        if_version: None,
    };
    first.catalog().put(put).await.expect("a SKU is created");
    for i in 0..600 {
        let request = PlaceRequest {
            order_id: Some(format!("o{i}")),
            buyer_id: "b".to_owned(),
            lines: vec![("x".to_owned(), 1)],
            ..PlaceRequest::default()
        };
        let place = first.orders().check(request).expect("a valid request");
        first.orders().place(place).await.expect("there is stock");
    }
    first.operations().advance_clock(31 * MINUTE).await.expect("a manual clock");
    first.stop(Duration::from_secs(5)).await.expect("it stops");

    let refused = first
        .orders()
        .place(
            first
                .orders()
                .check(PlaceRequest {
                    order_id: Some("late".to_owned()),
                    buyer_id: "b".to_owned(),
                    lines: vec![("x".to_owned(), 1)],
                    ..PlaceRequest::default()
                })
                .expect("valid"),
        )
        .await;
    assert!(matches!(refused, Err(Error::Stopping)));

    let second = open(true).await;
    let begun = std::time::Instant::now();
    loop {
        let sku = second.catalog().get(sid("x")).await.expect("readable").expect("it exists");
        if sku.counts.held == 0 {
            break;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(5),
            "overdue orders are cancelled within the lag bound: {:?}",
            sku.counts
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let report = second.operations().reconcile().await.expect("readable");
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    second.stop(Duration::from_secs(5)).await.expect("it stops");
}
