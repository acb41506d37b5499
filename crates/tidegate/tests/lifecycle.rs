//! The library from the outside, on the embedded back ends: orders live and die on time.

use std::time::Duration;

use tidegate::core::command::{Cancel, PutSku};
use tidegate::core::request::{PayRequest, PlaceRequest};
use tidegate::core::{OrderId, PaymentOutcome, RefusalCode, SkuId, SkuPatch, Status};
use tidegate::{Embedded, Error, Options, Tidegate};

struct Shop {
    tidegate: Tidegate,
    _folder: tempfile::TempDir,
}

async fn shop() -> Shop {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let parts = Embedded::at(folder.path().join("ledger.db")).manual_clock(true).open().await.expect("a new ledger opens");
    let tidegate = Tidegate::start(parts, Options::default()).await.expect("it starts");
    Shop { tidegate, _folder: folder }
}

impl Shop {
    async fn stock(&self, sku: &str, on_hand: i64) {
        let put = PutSku { sku: SkuId::parse(sku).expect("a SKU"), patch: SkuPatch::default(), on_hand: Some(on_hand), if_version: None };
        self.tidegate.catalog().put(put).await.expect("a SKU is created");
    }

    async fn place(&self, id: &str, sku: &str, quantity: i64) -> tidegate::Result<tidegate::Placed> {
        let orders = self.tidegate.orders();
        let request = PlaceRequest {
            order_id: Some(id.to_owned()),
            buyer_id: "b".to_owned(),
            lines: vec![(sku.to_owned(), quantity)],
            ..PlaceRequest::default()
        };
        orders.place(orders.check(request)?).await
    }

    async fn pay(&self, id: &str, payment: &str) -> tidegate::Paid {
        let request = PayRequest { payment_id: payment.to_owned(), ..PayRequest::default() };
        let pay = request.check(OrderId::parse(id).expect("an id")).expect("a valid payment");
        self.tidegate.orders().pay(pay).await.expect("money is stored")
    }

    async fn counts(&self, sku: &str) -> (i64, i64, i64) {
        let sku = self.tidegate.catalog().get(SkuId::parse(sku).expect("a SKU")).await.expect("readable").expect("known");
        (sku.counts.available(), sku.counts.held, sku.counts.sold)
    }

    async fn wait_status(&self, id: &str, status: Status) {
        for _ in 0..1_000 {
            let order = self.tidegate.orders().get(OrderId::parse(id).expect("an id")).await.expect("readable").expect("known");
            if order.state.status == status {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{id} did not become {status:?} within 5 s");
    }

    async fn end(self) {
        let report = self.tidegate.operations().reconcile().await.expect("it can be read");
        assert!(report.invariants.values().all(|held| *held) && report.findings.is_empty(), "{report:?}");
        assert_eq!(report.invariants.len(), 7);
        self.tidegate.stop(Duration::from_secs(5)).await.expect("it stops");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unpaid_order_is_cancelled_on_time_and_a_paid_one_is_not() {
    let shop = shop().await;
    shop.stock("x", 5).await;
    shop.place("a", "x", 2).await.expect("there is stock");
    shop.place("b", "x", 3).await.expect("there is stock");
    assert_eq!(shop.pay("b", "p1").await.outcome, PaymentOutcome::Applied);
    assert_eq!(shop.counts("x").await, (0, 2, 3));

    let operations = shop.tidegate.operations();
    operations.advance_clock(1_800_000 - 1).await.expect("a manual clock");
    tokio::time::sleep(Duration::from_millis(100)).await;
    shop.wait_status("a", Status::Pending).await;
    operations.advance_clock(1).await.expect("a manual clock");
    shop.wait_status("a", Status::Cancelled).await;
    assert_eq!(shop.counts("x").await, (2, 0, 3));
    shop.wait_status("b", Status::Paid).await;
    shop.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_gate_refuses_what_is_sold_out_and_answers_repeats() {
    let shop = shop().await;
    shop.stock("x", 1).await;
    shop.place("a", "x", 1).await.expect("there is stock");
    let refused = shop.place("b", "x", 1).await.expect_err("it is sold out");
    assert_eq!(refused.refusal().map(|r| (r.code, r.available)), Some((RefusalCode::InsufficientStock, Some(0))));
    let unknown = shop.place("c", "no-such", 1).await.expect_err("nobody created it");
    assert_eq!(unknown.refusal().map(|r| r.code), Some(RefusalCode::UnknownSku));
    assert!(shop.place("a", "x", 1).await.expect("a repeat gets its order").replayed);

    let cancel = Cancel { order_id: OrderId::parse("a").expect("an id"), reason: None, restock: true };
    shop.tidegate.orders().cancel(cancel).await.expect("it is pending");
    shop.place("b", "x", 1).await.expect("a released unit is buyable at once");
    shop.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_last_unit_is_sold_once_to_a_crowd() {
    let shop = std::sync::Arc::new(shop().await);
    shop.stock("x", 3).await;
    let crowd = (0..500).map(|i| {
        let shop = std::sync::Arc::clone(&shop);
        tokio::spawn(async move { shop.place(&format!("o{i}"), "x", 1).await.is_ok() })
    });
    let mut won = 0;
    for buyer in crowd.collect::<Vec<_>>() {
        won += usize::from(buyer.await.expect("no panic"));
    }
    assert_eq!(won, 3);
    let Ok(shop) = std::sync::Arc::try_unwrap(shop) else { panic!("the crowd has gone") };
    shop.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_stop_calls_are_refused_and_nothing_is_lost() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("ledger.db");
    let parts = Embedded::at(&path).open().await.expect("a new ledger opens");
    let tidegate = Tidegate::start(parts, Options::default()).await.expect("it starts");
    let shop = Shop { tidegate: tidegate.clone(), _folder: tempfile::tempdir().expect("a temporary folder") };
    shop.stock("x", 5).await;
    shop.place("a", "x", 2).await.expect("there is stock");
    tidegate.stop(Duration::from_secs(5)).await.expect("it stops");
    assert!(matches!(shop.place("b", "x", 1).await, Err(Error::Stopping)));

    let parts = Embedded::at(&path).open().await.expect("it opens again");
    let tidegate = Tidegate::start(parts, Options::default()).await.expect("it starts");
    let shop = Shop { tidegate, _folder: tempfile::tempdir().expect("a temporary folder") };
    assert_eq!(shop.counts("x").await, (3, 2, 0));
    shop.end().await;
}
