//! Lists that an attacker or an unlucky shop makes long: each page stays bounded and nothing is left out.
#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, reason = "a test ends where something is wrong")]

mod common;

use common::*;
use tidegate_backend::{Ledger, OrderFilter, PageRequest};
use tidegate_core::{BuyerId, Command, OrderNo, Status};

#[tokio::test]
async fn a_rare_status_of_a_common_sku_is_found_page_by_page() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = open(folder.path()).await;
    all_well(&ledger, vec![put("x", 1_000_000, None, None), place("first", "anna", &[("x", 1)])]).await;
    for batch in 0..45 {
        all_well(&ledger, (0..500).map(|i| place(&format!("o{batch}-{i}"), "anna", &[("x", 1)])).collect()).await;
    }
    all_well(&ledger, vec![cancel("first")]).await;
    for buyer_id in [None, Some(BuyerId::parse("anna").unwrap())] {
        let filter = OrderFilter { status: Some(Status::Cancelled), buyer_id, sku: Some(sku_id("x")) };
        let (mut cursor, mut found, mut pages) = (None, Vec::new(), 0);
        loop {
            let page = ledger.orders(filter.clone(), PageRequest { cursor, limit: 10 }).await.unwrap();
            found.extend(page.items.into_iter().map(|o| o.id.to_string()));
            (cursor, pages) = (page.next, pages + 1);
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!((found, pages), (vec!["first".to_owned()], 2));
    }
}

#[tokio::test]
async fn deadlines_of_one_instant_are_paged_by_number() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = open(folder.path()).await;
    all_well(&ledger, vec![put("x", 1_000_000, None, None)]).await;
    for batch in 0..4 {
        all_well(&ledger, (0..500).map(|i| place(&format!("o{batch}-{i}"), "b", &[("x", 1)])).collect()).await;
        if batch == 1 {
            ledger.advance(1).await.unwrap();
        }
    }
    let (mut after, mut seen) = (None, Vec::new());
    loop {
        let page = ledger.deadlines(None, after, 333).await.unwrap();
        let Some((no, at)) = page.last().copied() else { break };
        after = Some((at, no));
        seen.extend(page.iter().map(|(no, _)| no.0));
    }
    assert_eq!(seen, (1..=2_000).collect::<Vec<_>>());
    let second = ledger.deadlines(None, None, 2_000).await.unwrap()[1_500].1;
    assert_eq!(ledger.deadlines(Some(second), None, 5_000).await.unwrap().len(), 1_000);
    assert_eq!(ledger.deadlines(Some(second), Some((second, OrderNo(0))), 5_000).await.unwrap(), []);
    all_well(&ledger, vec![Command::Expire(OrderNo(1))]).await;
    assert_eq!(ledger.deadlines(None, None, 5_000).await.unwrap().len(), 2_000);
}

#[tokio::test]
async fn a_wholesale_order_comes_back_line_by_line() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = open(folder.path()).await;
    let names: Vec<String> = (0..675).map(|i| format!("sku-{i}")).collect();
    for names in names.chunks(500) {
        all_well(&ledger, names.iter().map(|n| put(n, 1_000, Some(250), None)).collect()).await;
    }
    let lines: Vec<(&str, i64)> = names.iter().map(|n| (n.as_str(), 3)).collect();
    all_well(&ledger, vec![place("big", "shop", &lines)]).await;
    all_well(&ledger, vec![pay("big", "p", None), Command::Fulfil(order_id("big"))]).await;
    let order = ledger.order(order_id("big")).await.unwrap().unwrap();
    assert_eq!(order.lines.len(), 675);
    assert!(order.lines.iter().zip(&lines).all(|(l, (sku, n))| l.sku.as_str() == *sku && l.quantity == *n));
    assert_eq!(order.total.unwrap().amount, 675 * 3 * 250);
    audit(&ledger).await;
}
