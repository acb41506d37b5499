//! The SQLite ledger with the rules: batches, reads, what a reopen keeps.
#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, reason = "a test ends where something is wrong")]

mod common;

use std::collections::BTreeSet;

use common::*;
use tidegate_backend::{Deadline, ErrorKind, Ledger, OrderFilter, PageRequest, PaymentFilter, Probe, RefundFilter};
use tidegate_core::command::{Extend, Park, RefundPayment, SettleRefund};
use tidegate_core::{
    BuyerId, Command, EventKind, IdempotencyKey, JsonObject, OrderId, Outcome, PaymentId, PaymentOutcome, RefundStatus,
    Status,
};

fn page(limit: usize, cursor: Option<String>) -> PageRequest {
    PageRequest { cursor, limit }
}

#[tokio::test]
async fn a_hot_sku_sells_out_exactly() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = open(folder.path()).await;
    all_well(&ledger, vec![put("hot", 300, Some(500), None)]).await;
    let commands: Vec<_> = (0..512).map(|i| place(&format!("o{i}"), &format!("b{i}"), &[("hot", 1)])).collect();
    let commit = commit(&ledger, commands).await;
    let placed = commit.verdicts.iter().filter(|v| v.is_ok()).count();
    assert_eq!((placed, commit.verdicts.len()), (300, 512));
    assert_eq!((commit.copies.len(), commit.copies[0].1.available, commit.deadlines.len()), (1, 0, 300));
    assert_eq!(commit.last_cursor, Some(300));
    let due = ledger.deadlines(None, None, 1_000).await.unwrap();
    assert_eq!(due.len(), 300);
    let rest = ledger.deadlines(None, Some((due[99].1, due[99].0)), 1_000).await.unwrap();
    assert_eq!(rest, due[100..]);
    assert!(ledger.deadlines(Some(due[0].1), None, 10).await.unwrap().is_empty());
    audit(&ledger).await;
    ledger.advance(1_800_000).await.unwrap();
    let expired = all_well(&ledger, due.iter().map(|(no, _)| Command::Expire(*no)).collect()).await;
    assert!(expired.iter().all(|o| matches!(o, Outcome::Expired(_))));
    assert!(ledger.deadlines(None, None, 10).await.unwrap().is_empty());
    assert_eq!(ledger.copies(None, 10).await.unwrap()[0].1.available, 300);
    audit(&ledger).await;
}

#[tokio::test]
async fn everything_comes_back_after_a_reopen() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = open(folder.path()).await;
    let id = ledger.id();
    let mut keyed = place_of("a1", "anna", &[("x", 2), ("É/2", 1)]);
    keyed.key = Some(IdempotencyKey::parse("key-1").unwrap());
    keyed.metadata = JsonObject::new(&serde_json::json!({"z": 1, "a": ["é"]}), 4_096).unwrap();
    keyed.hold_seconds = Some(60);
    let mut second = place_of("a2", "anna", &[("x", 1)]);
    second.supersedes = Some(order_id("a1"));
    all_well(
        &ledger,
        vec![
            put("x", 10, Some(250), Some(5)),
            put("É/2", 5, Some(1), None),
            Command::Place(keyed),
            Command::Place(second),
            place("b1", "bob", &[("x", 1)]),
            pay("b1", "p1", Some(100)),
            pay("b1", "p2", Some(200)),
            pay("late", "p3", Some(7)),
            cancel("never"),
            adjust("x", 5, "adj-1"),
            Command::Extend(Extend { order_id: order_id("a2"), hold_seconds: 3_000 }),
            Command::Fulfil(order_id("b1")),
        ],
    )
    .await;
    let no = ledger.order(order_id("a2")).await.unwrap().unwrap().no;
    all_well(&ledger, vec![Command::Park(Park { order: no, tries: 20, reason: "stuck".into() })]).await;
    audit(&ledger).await;
    let before = snapshot(&ledger).await;
    ledger.close().await.unwrap();
    assert_eq!(ledger.order(order_id("a1")).await.unwrap_err().kind(), ErrorKind::Unavailable);
    let ledger = open(folder.path()).await;
    assert_eq!(ledger.id(), id);
    assert_eq!(snapshot(&ledger).await, before);
    audit(&ledger).await;

    let a1 = ledger.order(order_id("a1")).await.unwrap().unwrap();
    assert_eq!(
        (a1.metadata.as_str(), a1.requested_hold, a1.total.unwrap().amount),
        (r#"{"a":["é"],"z":1}"#, Some(60), 501)
    );
    assert_eq!(a1.state.status, Status::Cancelled);
    let b1 = ledger.order(order_id("b1")).await.unwrap().unwrap();
    assert_eq!(b1.payments.len(), 2);
    assert_eq!(b1.payments[1].refunds[0].amount, Some(50));
    assert_eq!(b1.payments[0].id.as_str(), "p1");

    // Numbers go on where they were; the retry of a keyed order finds it.
    let again = all_well(&ledger, vec![place("c1", "carl", &[("x", 1)])]).await;
    let Outcome::Placed { order, replayed: false } = &again[0] else { panic!("{again:?}") };
    assert_eq!(order.no.0, 4);
    let refused = commit(&ledger, vec![place("never", "x", &[("x", 1)])]).await;
    assert!(refused.verdicts[0].is_err());
    let met = all_well(&ledger, vec![place("late", "dora", &[("É/2", 1)])]).await;
    let Outcome::Placed { order, .. } = &met[0] else { panic!("{met:?}") };
    assert_eq!((order.state.status, order.payments.len()), (Status::Paid, 1));
    audit(&ledger).await;
}

/// Everything a reader can see, as text.
async fn snapshot(ledger: &tidegate_embedded::SqliteLedger) -> String {
    let events = ledger.events(0, 500).await.unwrap();
    let orders = ledger.orders(OrderFilter::default(), page(500, None)).await.unwrap().items;
    let payments = ledger.payments(PaymentFilter::default(), page(500, None)).await.unwrap().items;
    let refunds = ledger.refunds(RefundFilter::default(), page(500, None)).await.unwrap().items;
    let parked = ledger.parked(page(10, None)).await.unwrap().items;
    let skus = ledger.skus(page(10, None)).await.unwrap().items;
    let mut stock = Vec::new();
    for sku in &skus {
        stock.push(ledger.stock_changes(sku.id.clone(), page(500, None)).await.unwrap().unwrap().items);
    }
    assert!(!events.is_empty() && !payments.is_empty() && !refunds.is_empty() && !parked.is_empty());
    assert!(events.iter().enumerate().all(|(i, e)| e.cursor == i as i64 + 1));
    format!("{events:#?}{orders:#?}{payments:#?}{refunds:#?}{parked:#?}{skus:#?}{stock:#?}")
}

#[tokio::test]
async fn an_event_shows_the_order_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = open(folder.path()).await;
    all_well(&ledger, vec![put("x", 10, Some(100), None), place("a", "anna", &[("x", 2)])]).await;
    all_well(&ledger, vec![pay("a", "p1", Some(150))]).await;
    all_well(&ledger, vec![pay("a", "p2", Some(100))]).await;
    all_well(&ledger, vec![cancel("a")]).await;
    let events = ledger.order_events(order_id("a"), page(500, None)).await.unwrap().unwrap();
    let seen: Vec<_> = events.items.iter().map(|e| (e.event.seq, e.event.kind)).collect();
    assert_eq!(seen[0], (1, EventKind::OrderPlaced));
    let first = events.items[0].order.as_ref().unwrap();
    assert_eq!((first.state.status, first.payments.len(), first.state.version), (Status::Pending, 0, 1));
    let last = events.items.last().unwrap();
    assert!(last.event.refund.is_some() && last.event.payment.is_some(), "{last:?}");
    // Page by page it is the same.
    let (mut cursor, mut paged) = (None, Vec::new());
    loop {
        let next = ledger.order_events(order_id("a"), page(1, cursor)).await.unwrap().unwrap();
        paged.extend(next.items.iter().map(|e| (e.event.seq, e.event.kind)));
        cursor = next.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(paged, seen);
    assert!(ledger.order_events(order_id("b"), page(1, None)).await.unwrap().is_none());
    assert!(ledger.events(2, 1).await.unwrap()[0].cursor == 3);
}

#[tokio::test]
async fn lists_take_any_filter_and_page_without_gaps() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = open(folder.path()).await;
    all_well(&ledger, vec![put("x", 1_000, Some(1), None), put("y", 1_000, None, None)]).await;
    let commands = (0..120).map(|i| {
        let lines: &[(&str, i64)] = if i % 3 == 0 { &[("y", 1)] } else { &[("x", 1)] };
        place(&format!("o{i}"), &format!("b{}", i % 4), lines)
    });
    all_well(&ledger, commands.collect()).await;
    all_well(&ledger, (0..120).step_by(5).map(|i| cancel(&format!("o{i}"))).collect()).await;
    for status in [None, Some(Status::Pending), Some(Status::Cancelled), Some(Status::Fulfilled)] {
        for buyer in [None, Some("b1"), Some("nobody")] {
            for sku in [None, Some("y"), Some("none")] {
                let filter =
                    OrderFilter { status, buyer_id: buyer.map(|b| BuyerId::parse(b).unwrap()), sku: sku.map(sku_id) };
                let want: Vec<String> = (0..120)
                    .rev()
                    .filter(|i| {
                        status.is_none_or(|s| s == if i % 5 == 0 { Status::Cancelled } else { Status::Pending })
                    })
                    .filter(|i| buyer.is_none_or(|b| *b == format!("b{}", i % 4)))
                    .filter(|i| sku.is_none_or(|s| s == if i % 3 == 0 { "y" } else { "x" }))
                    .map(|i| format!("o{i}"))
                    .collect();
                for limit in [1, 7, 500] {
                    let (mut cursor, mut got) = (None, Vec::new());
                    loop {
                        let p = ledger.orders(filter.clone(), page(limit, cursor)).await.unwrap();
                        assert!(p.items.len() <= limit);
                        got.extend(p.items.iter().map(|o| o.id.to_string()));
                        cursor = p.next;
                        if cursor.is_none() {
                            break;
                        }
                    }
                    assert_eq!(got, want, "{filter:?} {limit}");
                }
            }
        }
    }
    let foreign = ledger.skus(page(1, None)).await.unwrap().next;
    assert!(foreign.is_some());
    let error = ledger.orders(OrderFilter::default(), page(1, foreign)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadCursor);
}

#[tokio::test]
async fn money_lists_and_refunds() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = open(folder.path()).await;
    all_well(&ledger, vec![put("x", 10, Some(100), None), place("a", "anna", &[("x", 1)])]).await;
    all_well(
        &ledger,
        vec![pay("a", "p1", None), pay("a", "p2", None), pay("ghost", "p3", Some(5)), pay("ghost", "p4", Some(6))],
    )
    .await;
    let by = |outcome, payment: Option<&str>, order: Option<&str>| PaymentFilter {
        outcome,
        payment_id: payment.map(|p| PaymentId::parse(p).unwrap()),
        order_id: order.map(order_id),
    };
    for (filter, want) in [
        (by(None, None, None), vec!["p4", "p3", "p2", "p1"]),
        (by(Some(PaymentOutcome::Applied), None, None), vec!["p1"]),
        (by(Some(PaymentOutcome::Surplus), None, None), vec!["p2"]),
        (by(Some(PaymentOutcome::Unmatched), None, None), vec!["p4", "p3"]),
        (by(Some(PaymentOutcome::Duplicate), None, None), vec![]),
        (by(None, Some("p2"), None), vec!["p2"]),
        (by(Some(PaymentOutcome::Applied), Some("p2"), None), vec![]),
        (by(None, None, Some("ghost")), vec!["p4", "p3"]),
    ] {
        let got = ledger.payments(filter.clone(), page(500, None)).await.unwrap().items;
        let ids: Vec<_> = got.iter().map(|p| p.id.as_str()).collect();
        assert_eq!(ids, want, "{filter:?}");
    }
    let refund = ledger
        .refunds(RefundFilter { status: Some(RefundStatus::Due), order_id: None }, page(10, None))
        .await
        .unwrap()
        .items;
    assert_eq!(refund.len(), 1);
    all_well(&ledger, vec![Command::SettleRefund(SettleRefund { refund_id: refund[0].id.clone(), key: None })]).await;
    let settled = RefundFilter { status: Some(RefundStatus::Settled), order_id: Some(order_id("a")) };
    assert_eq!(ledger.refunds(settled, page(10, None)).await.unwrap().items.len(), 1);

    // Unmatched money is stale after a day, once; giving it back by hand makes it due.
    ledger.advance(86_400_001).await.unwrap();
    let now = ledger.clock().now();
    let stale = ledger.stale_unmatched(now.plus(-86_400_000), 10).await.unwrap();
    assert_eq!(stale.iter().map(PaymentId::as_str).collect::<BTreeSet<_>>(), BTreeSet::from(["p3", "p4"]));
    all_well(&ledger, vec![Command::FlagUnmatched(stale[0].clone())]).await;
    assert_eq!(ledger.stale_unmatched(now, 10).await.unwrap(), stale[1..]);
    let back = RefundPayment { payment_id: stale[0].clone(), key: Some(IdempotencyKey::parse("k").unwrap()) };
    all_well(&ledger, vec![Command::RefundPayment(back.clone())]).await;
    let again = all_well(&ledger, vec![Command::RefundPayment(back)]).await;
    assert!(matches!(again[0], Outcome::Refund { replayed: true, .. }));
    audit(&ledger).await;
}

#[tokio::test]
async fn a_limit_set_later_counts_the_orders_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = open(folder.path()).await;
    all_well(
        &ledger,
        vec![put("x", 100, None, None), place("a", "anna", &[("x", 2)]), place("b", "anna", &[("x", 2)])],
    )
    .await;
    all_well(&ledger, vec![cancel("b"), limit("x", 3)]).await;
    let verdicts =
        commit(&ledger, vec![place("c", "anna", &[("x", 1)]), place("d", "anna", &[("x", 1)])]).await.verdicts;
    assert!(verdicts[0].is_ok() && verdicts[1].is_err());
    // Set and counted in one batch with the orders around it.
    all_well(&ledger, vec![put("y", 100, None, None)]).await;
    let verdicts = commit(&ledger, vec![place("e", "bob", &[("y", 2)]), limit("y", 3), place("f", "bob", &[("y", 2)])])
        .await
        .verdicts;
    assert!(verdicts[0].is_ok() && verdicts[2].is_err(), "{verdicts:?}");
    audit(&ledger).await;
}

#[tokio::test]
async fn probes_know_ids_keys_tombstones_and_copies() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = open(folder.path()).await;
    let mut keyed = place_of("a", "anna", &[("x", 2)]);
    keyed.key = Some(IdempotencyKey::parse("key").unwrap());
    all_well(
        &ledger,
        vec![put("x", 10, None, None), Command::Place(keyed), cancel("gone"), pay("money", "p", Some(1))],
    )
    .await;
    let probe = |id: Option<&str>, key: Option<&str>, skus: &[&str]| Probe {
        order_id: id.map(order_id),
        key: key.map(|k| IdempotencyKey::parse(k).unwrap()),
        skus: skus.iter().map(|s| sku_id(s)).collect(),
    };
    let probes = vec![
        probe(Some("a"), None, &["x"]),
        probe(Some("b"), Some("key"), &["none", "x"]),
        probe(Some("gone"), None, &[]),
        probe(Some("money"), Some("other"), &[]),
        probe(None, None, &["x"]),
    ];
    let got = ledger.probe(probes).await.unwrap();
    assert_eq!(got.iter().map(|p| p.known).collect::<Vec<_>>(), [true, true, true, false, false]);
    assert!(got[1].copies[0].is_none());
    assert_eq!(got[1].copies[1].as_ref().unwrap().available, 8);
    assert_eq!(got[0].copies, got[4].copies);
    let copies = ledger.copies(Some(sku_id("w")), 10).await.unwrap();
    assert_eq!(copies.len(), 1);
    assert!(ledger.copies(Some(sku_id("x")), 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_moved_deadline_is_told_and_prune_forgets() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = open(folder.path()).await;
    all_well(
        &ledger,
        vec![put("x", 10, None, None), place("a", "anna", &[("x", 1)]), cancel("t1"), adjust("x", 1, "k1")],
    )
    .await;
    let order = ledger.order(order_id("a")).await.unwrap().unwrap();
    let moved = commit(&ledger, vec![Command::Extend(Extend { order_id: order_id("a"), hold_seconds: 9_000 })]).await;
    let new = ledger.order(order_id("a")).await.unwrap().unwrap().state.release_at;
    assert_eq!(moved.deadlines, [Deadline::Gone(order.no, order.state.release_at), Deadline::At(order.no, new)]);
    let gone = commit(&ledger, vec![cancel("a")]).await;
    assert_eq!(gone.deadlines, [Deadline::Gone(order.no, new)]);

    ledger.advance(10_000).await.unwrap();
    let now = ledger.clock().now();
    assert!(!ledger.prune(now.plus(-20_000), now.plus(-20_000)).await.unwrap());
    assert!(
        ledger.probe(vec![Probe { order_id: Some(order_id("t1")), key: None, skus: vec![] }]).await.unwrap()[0].known
    );
    assert!(!ledger.prune(now, now).await.unwrap());
    assert!(
        !ledger.probe(vec![Probe { order_id: Some(order_id("t1")), key: None, skus: vec![] }]).await.unwrap()[0].known
    );
    let again = all_well(&ledger, vec![adjust("x", 1, "k1"), place("t1", "anna", &[("x", 1)])]).await;
    assert!(matches!(&again[0], Outcome::Adjusted { replayed: false, .. }));
    ledger.probe_write().await.unwrap();
}

#[tokio::test]
async fn random_batches_keep_every_invariant() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = open(folder.path()).await;
    all_well(
        &ledger,
        vec![put("s0", 400, Some(100), Some(6)), put("s1", 300, Some(7), None), put("s2", 200, Some(0), None)],
    )
    .await;
    let mut seed = 42_u64;
    let mut roll = move |sides: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % sides
    };
    for round in 0..60 {
        let mut commands = Vec::new();
        for i in 0..40 {
            let any = OrderId::parse(&format!("o{}", roll(600))).unwrap();
            let new = format!("o{}", roll(600));
            let (sku, buyer) = (format!("s{}", roll(3)), format!("b{}", roll(40)));
            commands.push(match roll(12) {
                0..=4 => {
                    let mut lines = vec![(sku.as_str(), 1 + roll(3) as i64)];
                    if roll(2) == 0 && sku != "s1" {
                        lines.push(("s1", 1));
                    }
                    place(&new, &buyer, &lines)
                }
                5 | 6 => pay(any.as_str(), &format!("p{round}-{i}"), [None, Some(50), Some(1_000)][roll(3) as usize]),
                7 => pay(any.as_str(), &format!("p{}-{}", roll(60), roll(40)), None),
                8 => cancel(any.as_str()),
                9 => Command::Fulfil(any),
                10 => Command::Extend(Extend { order_id: any, hold_seconds: 1 + roll(4_000) as i64 }),
                _ => adjust(&sku, roll(9) as i64 - 4, &format!("adj{round}-{i}")),
            });
        }
        commands.retain(|c| !matches!(c, Command::Adjust(a) if a.delta == 0));
        commit(&ledger, commands).await;
        ledger.advance(roll(300_000) as i64).await.unwrap();
        let due = ledger.deadlines(Some(ledger.clock().now()), None, 512).await.unwrap();
        if !due.is_empty() {
            commit(&ledger, due.iter().map(|(no, _)| Command::Expire(*no)).collect()).await;
        }
    }
    audit(&ledger).await;
    ledger.close().await.unwrap();
    let ledger = open(folder.path()).await;
    audit(&ledger).await;
}
