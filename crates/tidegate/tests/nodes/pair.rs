//! Two instances on one SQLite ledger.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate::core::command::{Cancel, Place, PutSku};
use tidegate::core::request::PlaceRequest;
use tidegate::core::{OrderId, SkuId, SkuPatch, Status};
use tidegate::{Embedded, Options, Parts, Placed, Readiness, Tidegate};
use tidegate_backend::{Bus, Gate, Ledger};
use tidegate_conformance::Faulty;
use tidegate_embedded::EmbeddedGate;

use crate::fakes::SharedIndex;

pub struct Node {
    pub tidegate: Tidegate,
    pub gate: Arc<EmbeddedGate>,
}

pub struct Pair {
    pub a: Node,
    pub b: Node,
    pub index: Arc<SharedIndex>,
    pub ledger: Arc<dyn Ledger>,
    _folder: tempfile::TempDir,
}

/// Two nodes with SKU `x`, `on_hand` units of it, and these ends of a link.
pub async fn pair(manual_clock: bool, on_hand: i64, ends: [Option<Arc<dyn Bus>>; 2]) -> Pair {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let opened = Embedded::at(folder.path().join("ledger.db")).manual_clock(manual_clock).full_sync(false).open().await;
    let Parts { ledger, settings, .. } = opened.expect("a new ledger opens");
    let index = SharedIndex::new();
    let node = async |bus| {
        let gate = Arc::new(EmbeddedGate::new());
        let parts = Parts {
            ledger: Arc::new(Faulty::one_of_several(Arc::clone(&ledger))),
            gate: Arc::clone(&gate) as _,
            deadlines: Arc::clone(&index) as _,
            bus,
            cache: None,
            hot_keys: None,
            queues: None,
            locks: None,
            feed: None,
            feed_store: None,
            settings,
        };
        Node { tidegate: Tidegate::start(parts, Options::default()).await.expect("it starts"), gate }
    };
    let [end_a, end_b] = ends;
    let (a, b) = (node(end_a).await, node(end_b).await);
    a.put("x", on_hand).await;
    Pair { a, b, index, ledger, _folder: folder }
}

pub fn sid(id: &str) -> SkuId {
    SkuId::parse(id).expect("a SKU")
}

impl Node {
    pub async fn put(&self, sku: &str, on_hand: i64) {
        let put = PutSku { sku: sid(sku), patch: SkuPatch::default(), on_hand: Some(on_hand), if_version: None };
        self.tidegate.catalog().put(put).await.expect("a SKU is created");
    }

    pub fn order(&self, id: &str, hold_seconds: i64) -> Place {
        let request = PlaceRequest {
            order_id: Some(id.to_owned()),
            buyer_id: "b".to_owned(),
            lines: vec![("x".to_owned(), 1)],
            hold_seconds: Some(hold_seconds),
            ..PlaceRequest::default()
        };
        self.tidegate.orders().check(request).expect("a valid request")
    }

    pub async fn place(&self, id: &str) -> tidegate::Result<Placed> {
        self.tidegate.orders().place(self.order(id, 1_800)).await
    }

    pub async fn cancel(&self, id: &str) {
        let order_id = OrderId::parse(id).expect("an order id");
        let cancel = Cancel { order_id, reason: None, restock: true };
        self.tidegate.orders().cancel(cancel).await.expect("it can be cancelled");
    }

    pub async fn status(&self, id: &str) -> Status {
        let order = self.tidegate.orders().get(OrderId::parse(id).expect("an order id")).await;
        order.expect("readable").expect("it exists").state.status
    }

    pub async fn advance(&self, ms: i64) {
        self.tidegate.operations().advance_clock(ms).await.expect("a manual clock");
    }

    /// What the gate believes is available.
    pub fn believes(&self, sku: &str) -> Option<i64> {
        self.gate.copy_of(&sid(sku)).map(|copy| copy.available)
    }

    pub fn degraded(&self) -> Vec<String> {
        match self.tidegate.operations().readiness() {
            Readiness::Ready => Vec::new(),
            Readiness::Degraded(reasons) => reasons,
            Readiness::NotReady(reasons) => panic!("not ready: {reasons:?}"),
        }
    }
}

impl Pair {
    /// Every invariant holds, and nothing has drifted.
    pub async fn check(&self) {
        for node in [&self.a, &self.b] {
            let report = node.tidegate.operations().reconcile().await.expect("readable");
            assert!(report.invariants.values().all(|held| *held), "{:?}", report.findings);
            assert!(report.findings.is_empty(), "{:?}", report.findings);
        }
    }

    /// Stops both.
    pub async fn stop(self) {
        for node in [&self.a, &self.b] {
            node.tidegate.stop(Duration::from_secs(5)).await.expect("it stops");
        }
        self.ledger.close().await.expect("it closes");
    }
}

/// Waits until `sight` is `true`; fails after `patience`. Gives how long it took.
pub async fn until<Fut: Future<Output = bool>>(what: &str, patience: Duration, sight: impl Fn() -> Fut) -> Duration {
    let begun = Instant::now();
    while !sight().await {
        assert!(begun.elapsed() < patience, "{what}: not within {patience:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    begun.elapsed()
}
