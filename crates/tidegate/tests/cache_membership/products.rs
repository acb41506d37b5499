//! Product pages of two nodes of one ledger that share a store: no SKU that is committed is refused.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate::cache::*;
use tidegate::core::command::PutSku;
use tidegate::core::{Command, SkuId, SkuPatch};
use tidegate::{Embedded, Options, Parts, Tidegate};
use tidegate_backend::Ledger;
use tidegate_conformance::Faulty;
use tidegate_embedded::{EmbeddedDeadlines, EmbeddedGate};

use super::common::memory;

struct Nodes {
    nodes: Vec<Tidegate>,
    ledger: Arc<dyn Ledger>,
    _folder: tempfile::TempDir,
}

/// As many nodes as there are options; they share a ledger and a store.
async fn nodes(options: &[Options]) -> Nodes {
    let folder = tempfile::tempdir().unwrap();
    let opened = Embedded::at(folder.path().join("ledger.db")).full_sync(false).open().await.unwrap();
    let store = memory();
    let mut nodes = Vec::new();
    for options in options {
        let parts = Parts {
            ledger: Arc::new(Faulty::one_of_several(Arc::clone(&opened.ledger))),
            gate: Arc::new(EmbeddedGate::new()),
            deadlines: Arc::new(EmbeddedDeadlines::new()),
            bus: None,
            cache: Some(Arc::new(store.handle())),
            hot_keys: None,
            queues: None,
            locks: None,
            feed: None,
            feed_store: None,
            settings: opened.settings,
        };
        nodes.push(Tidegate::start(parts, *options).await.unwrap());
    }
    Nodes { nodes, ledger: opened.ledger, _folder: folder }
}

fn put(sku: &str) -> PutSku {
    let sku = SkuId::parse(sku).unwrap();
    PutSku { sku, patch: SkuPatch::default(), on_hand: Some(3), if_version: None }
}

async fn complete(node: &Tidegate) {
    let began = Instant::now();
    while !node.products().membership().await.unwrap().is_some_and(|filter| filter.complete) {
        assert!(began.elapsed() < Duration::from_secs(10), "no filter is complete");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Where the answer about a SKU came from, and whether there is one.
async fn page(node: &Tidegate, sku: &str) -> (Source, bool) {
    let page = node.products().get(&SkuId::parse(sku).unwrap(), true).await.unwrap();
    (page.card.source, page.card.value.is_some())
}

impl Nodes {
    async fn stop(self) {
        for node in self.nodes {
            node.stop(Duration::from_secs(5)).await.unwrap();
        }
    }
}

/// A new SKU is known to every node when the call that made it returns; it was added before the commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_sku_is_known_to_all_nodes_at_once() {
    let all = nodes(&[Options::default(), Options::default()]).await;
    let (a, b) = (&all.nodes[0], &all.nodes[1]);
    a.catalog().put(put("first")).await.unwrap();
    complete(a).await;
    complete(b).await;
    for n in 0..50 {
        let sku = format!("new-{n}");
        assert_eq!(page(b, &sku).await, (Source::Filter, false));
        a.catalog().put(put(&sku)).await.unwrap();
        assert!(page(b, &sku).await.1, "{sku} was refused");
    }
    let many: Vec<String> = (0..500).map(|n| format!("many-{n}")).collect();
    for answer in a.catalog().put_many(many.iter().map(|sku| put(sku)).collect()).await {
        answer.unwrap();
    }
    for sku in &many {
        assert!(page(b, sku).await.1, "{sku} was refused");
    }
    assert_eq!(page(a, "none").await, (Source::Filter, false));
    all.stop().await;
}

/// A node whose own filter is off adds what it writes to those of others; and so does the outbox of whoever died after its
/// commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_write_is_known_within_a_second_or_two() {
    let mut off = Options::default();
    off.cache.products.membership = false;
    let all = nodes(&[off, Options::default()]).await;
    let (a, b) = (&all.nodes[0], &all.nodes[1]);
    complete(b).await;
    assert_eq!(page(a, "none").await, (Source::Load, false), "its own filter is off");
    a.catalog().put(put("new")).await.unwrap();
    assert!(page(b, "new").await.1);

    // Of a process that died before it told anybody.
    let commands: Arc<[Command]> = Arc::new([Command::PutSku(put("left"))]);
    all.ledger.commit(commands).await.unwrap();
    let began = Instant::now();
    while !page(b, "left").await.1 {
        assert!(began.elapsed() < Duration::from_secs(5), "it is refused for ever");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    all.stop().await;
}

/// The SKUs of a ledger that is there already are all in its first filter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_filter_has_every_sku_of_the_ledger() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let count = 2_500;
    for round in 0..2 {
        let parts = Embedded::at(&path).full_sync(false).open().await.unwrap();
        let node = Tidegate::start(parts, Options::default()).await.unwrap();
        if round == 0 {
            let puts = |from: usize| (from..from + 500).map(|n| put(&format!("sku-{n}"))).collect();
            for from in (0..count).step_by(500) {
                node.catalog().put_many(puts(from)).await.into_iter().for_each(|answer| drop(answer.unwrap()));
            }
        } else {
            complete(&node).await;
            let status = node.products().membership().await.unwrap().unwrap();
            assert!((2_500..2_510).contains(&status.ids), "{status:?}");
            for n in 0..count {
                assert!(page(&node, &format!("sku-{n}")).await.1, "sku-{n} was refused");
            }
            assert_eq!(page(&node, "sku").await, (Source::Filter, false));
        }
        node.stop(Duration::from_secs(5)).await.unwrap();
    }
}
