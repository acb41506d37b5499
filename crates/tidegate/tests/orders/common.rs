//! A shop on the embedded back ends with a manual clock and a ledger that can be made to fail.

use std::sync::Arc;
use std::time::Duration;

use tidegate::core::command::{Adjust, Cancel, Extend, Place, PutSku};
use tidegate::core::request::{PayRequest, PlaceRequest};
use tidegate::core::{
    Currency, IdempotencyKey, Money, Order, OrderId, Patch, RefusalCode, Settings, SkuId, SkuPatch, Status,
};
use tidegate::{Cancelled, Embedded, Error, Options, PageRequest, Paid, Placed, Tidegate};
use tidegate_conformance::Faulty;

pub const MINUTE: i64 = 60_000;

pub struct Shop {
    pub tidegate: Tidegate,
    pub ledger: Arc<Faulty>,
    _folder: tempfile::TempDir,
}

/// A shop with SKU `x`, five units, one euro each.
pub async fn shop() -> Arc<Shop> {
    let shop = empty_shop(Settings::default()).await;
    shop.stock("x", 5).await;
    shop
}

pub async fn empty_shop(settings: Settings) -> Arc<Shop> {
    shop_with(settings, Options::default()).await
}

pub async fn shop_with(settings: Settings, options: Options) -> Arc<Shop> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let embedded = Embedded::at(folder.path().join("ledger.db")).settings(settings).manual_clock(true);
    let mut parts = embedded.open().await.expect("a new ledger opens");
    let ledger = Arc::new(Faulty::new(parts.ledger));
    parts.ledger = Arc::clone(&ledger) as _;
    let tidegate = Tidegate::start(parts, options).await.expect("it starts");
    Arc::new(Shop { tidegate, ledger, _folder: folder })
}

pub fn oid(id: &str) -> OrderId {
    OrderId::parse(id).expect("an order id")
}

pub fn sid(id: &str) -> SkuId {
    SkuId::parse(id).expect("a SKU")
}

pub fn key(text: &str) -> IdempotencyKey {
    IdempotencyKey::parse(text).expect("a key")
}

pub fn euro(amount: i64) -> Patch<Money> {
    Patch::Set(Money { amount, currency: Currency::parse("EUR").expect("ISO 4217 lists it") })
}

pub fn code<T>(answer: &tidegate::Result<T>) -> Option<RefusalCode> {
    answer.as_ref().err().and_then(Error::refusal).map(|refusal| refusal.code)
}

impl Shop {
    pub async fn stock(&self, sku: &str, on_hand: i64) {
        self.sku(sku, on_hand, SkuPatch { price: euro(100), ..SkuPatch::default() }).await;
    }

    pub async fn sku(&self, sku: &str, on_hand: i64, patch: SkuPatch) {
        let put = PutSku { sku: sid(sku), patch, on_hand: Some(on_hand), if_version: None };
        self.tidegate.catalog().put(put).await.expect("a SKU is created");
    }

    pub fn order(&self, id: &str, lines: &[(&str, i64)]) -> Place {
        let request = PlaceRequest {
            order_id: Some(id.to_owned()),
            buyer_id: "b".to_owned(),
            lines: lines.iter().map(|(sku, q)| ((*sku).to_owned(), *q)).collect(),
            ..PlaceRequest::default()
        };
        self.tidegate.orders().check(request).expect("a valid request")
    }

    pub async fn place(&self, id: &str, lines: &[(&str, i64)]) -> tidegate::Result<Placed> {
        self.tidegate.orders().place(self.order(id, lines)).await
    }

    pub async fn try_pay(&self, id: &str, payment: &str) -> tidegate::Result<Paid> {
        let request = PayRequest { payment_id: payment.to_owned(), ..PayRequest::default() };
        self.tidegate.orders().pay(request.check(oid(id)).expect("a valid payment")).await
    }

    pub async fn pay(&self, id: &str, payment: &str) -> Paid {
        self.try_pay(id, payment).await.expect("money is stored")
    }

    pub async fn cancel(&self, id: &str) -> tidegate::Result<Cancelled> {
        self.tidegate.orders().cancel(Cancel { order_id: oid(id), reason: None, restock: true }).await
    }

    pub async fn extend(&self, id: &str, hold_seconds: i64) -> tidegate::Result<Order> {
        self.tidegate.orders().extend(Extend { order_id: oid(id), hold_seconds }).await
    }

    pub async fn adjust(&self, sku: &str, delta: i64, k: &str) -> tidegate::Result<i64> {
        let adjust = Adjust { sku: sid(sku), delta, reason: "count".to_owned(), key: key(k) };
        self.tidegate.catalog().adjust(adjust).await.map(|(sku, _)| sku.counts.on_hand)
    }

    pub async fn advance(&self, ms: i64) {
        self.tidegate.operations().advance_clock(ms).await.expect("a manual clock");
    }

    /// Past the hold, and until the order has ended.
    pub async fn expire(&self, id: &str) {
        self.advance(31 * MINUTE).await;
        self.wait_status(id, Status::Cancelled).await;
    }

    pub async fn get(&self, id: &str) -> Order {
        self.tidegate.orders().get(oid(id)).await.expect("readable").expect("it exists")
    }

    pub async fn counts(&self, sku: &str) -> [i64; 3] {
        let sku = self.tidegate.catalog().get(sid(sku)).await.expect("readable").expect("it exists");
        [sku.counts.available(), sku.counts.held, sku.counts.sold]
    }

    pub async fn wait_status(&self, id: &str, status: Status) {
        for _ in 0..2_000 {
            if self.get(id).await.state.status == status {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{id} did not become {status:?} within 10 s");
    }

    pub async fn wait_counts(&self, sku: &str, counts: [i64; 3]) {
        for _ in 0..2_000 {
            if self.counts(sku).await == counts {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{sku} is {:?}, not {counts:?}, after 10 s", self.counts(sku).await);
    }

    pub async fn events(&self, id: &str) -> Vec<&'static str> {
        let page = PageRequest { cursor: None, limit: 500 };
        let page = self.tidegate.orders().events(oid(id), page).await.expect("readable").expect("it exists");
        page.items.iter().map(|e| e.event.kind.name()).collect()
    }

    /// After an outage the gate and the index may have missed a commit that went through: they are repaired.
    pub async fn check_after_outage(&self) {
        let report = self.tidegate.operations().reconcile().await.expect("readable");
        assert!(report.findings.iter().all(|finding| finding.invariant == "I9"), "{:?}", report.findings);
        self.check().await;
    }

    /// Every invariant holds, and the gate agrees with the ledger.
    pub async fn check(&self) {
        let report = self.tidegate.operations().reconcile().await.expect("readable");
        assert!(report.invariants.values().all(|held| *held), "{:?}", report.findings);
        assert!(report.findings.is_empty(), "{:?}", report.findings);
    }
}

/// Runs `n` tasks at once and gives their answers in order.
pub async fn parallel<T, F, Fut>(n: usize, task: F) -> Vec<T>
where
    T: Send + 'static,
    F: Fn(usize) -> Fut,
    Fut: Future<Output = T> + Send + 'static,
{
    let tasks: Vec<_> = (0..n).map(|i| tokio::spawn(task(i))).collect();
    let mut answers = Vec::with_capacity(n);
    for task in tasks {
        answers.push(task.await.expect("no panic"));
    }
    answers
}
