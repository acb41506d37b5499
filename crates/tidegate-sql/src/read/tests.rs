//! How much a read looks at: with 50,000 rows of everything around it, none may read more than its page calls for.

use tidegate_backend::{OrderFilter, PaymentFilter, Probe, RefundFilter};
use tidegate_core::{
    BuyerId, IdempotencyKey, Millis, OrderId, OrderNo, PaymentId, PaymentOutcome, RefundStatus, SkuId, Status,
};

use super::{audit, events, filter, money, orders, probe, stock};
use crate::connect::{Address, Role};
use crate::crowd::{self, ROWS, analyze, fill, looks_at};
use crate::migrate;
use crate::session::Session;

/// Items of a page.
const PAGE: usize = 50;
fn buyer(text: &str) -> BuyerId {
    BuyerId::parse(text).unwrap()
}

fn sku(text: &str) -> SkuId {
    SkuId::parse(text).unwrap()
}

fn id(text: &str) -> OrderId {
    OrderId::parse(text).unwrap()
}

/// A page of orders reads each with its payment and its refund, through one row of an index for each.
const ORDERS: i64 = PAGE as i64 * 12 + 200;

async fn every_read_looks_at_its_page_only(session: &mut Session) {
    let due = looks_at!(session, ORDERS, orders::deadlines(session, None, None, PAGE));
    assert!(due.is_sorted_by_key(|(no, at)| (*at, *no)) && due.len() == PAGE);
    assert!(due.iter().all(|(no, at)| *at == Millis(0) && no.0 % 1000 < 10 && no.0 % 1000 != 2));
    let after = Some((Millis(0), OrderNo(ROWS - 2_000)));
    let rest = looks_at!(session, ORDERS, orders::deadlines(session, Some(Millis(1)), after, PAGE));
    assert_eq!(rest.len(), 8, "of two thousand orders, ten are due at the first instant, two of them parked");
    let all = looks_at!(session, 5_000, orders::deadlines(session, Some(Millis(9)), None, 100_000));
    assert_eq!(all.len() as i64, ROWS / 1_000 * 9);

    let all = OrderFilter::default();
    let page = looks_at!(session, ORDERS, filter::orders(session, &all, None, PAGE));
    assert_eq!(page.items.len(), PAGE);
    assert!(page.items.iter().all(|order| order.payments.len() == 1 && order.payments[0].refunds.len() == 1));
    let statuses = [(Status::Pending, PAGE), (Status::Paid, PAGE), (Status::Cancelled, PAGE), (Status::Fulfilled, 0)];
    for (status, found) in statuses {
        let of = OrderFilter { status: Some(status), ..all.clone() };
        let page = looks_at!(session, ORDERS, filter::orders(session, &of, Some(ROWS / 2), PAGE));
        assert_eq!(page.items.len(), found);
    }
    for (of, found) in [("rare", ROWS as usize / 1_000), ("b9", 1), ("nobody", 0)] {
        let of = OrderFilter { buyer_id: Some(buyer(of)), ..all.clone() };
        let page = looks_at!(session, ORDERS, filter::orders(session, &of, None, PAGE));
        assert_eq!(page.items.len(), found.min(PAGE));
    }
    for (of, found) in [("s1", PAGE), ("s7", PAGE), ("s8", 0), ("none", 0)] {
        let of = OrderFilter { sku: Some(sku(of)), ..all.clone() };
        let page = looks_at!(session, ORDERS, filter::orders(session, &of, None, PAGE));
        assert_eq!(page.items.len(), found);
    }
    // A combined filter looks at so many candidates at most, and says where it has got to.
    let rare = OrderFilter { status: Some(Status::Fulfilled), sku: Some(sku("s1")), ..all.clone() };
    let page = looks_at!(session, 60_000, filter::orders(session, &rare, None, PAGE));
    assert!(page.items.is_empty() && page.next.is_some());
    let both = OrderFilter { status: Some(Status::Pending), buyer_id: Some(buyer("rare")), sku: Some(sku("s7")) };
    let page = looks_at!(session, ORDERS, filter::orders(session, &both, None, PAGE));
    assert_eq!(page.items.len(), PAGE);

    let order = looks_at!(session, 20, orders::order(session, &id("o777")));
    assert_eq!(order.unwrap().payments.len(), 1);
    let parked = looks_at!(session, 300, orders::parked(session, None, PAGE - 1));
    assert_eq!((parked.items.len(), parked.next.is_some()), (PAGE - 1, true));
    let log = looks_at!(session, 300, events::events(session, ROWS / 2, PAGE));
    assert_eq!((log.len(), log[0].cursor), (PAGE, ROWS / 2 + 1));
    let own = looks_at!(session, 20, events::order_events(session, &id("o777"), 0, PAGE));
    assert_eq!(own.unwrap().items.len(), 1);
    assert_eq!(looks_at!(session, 20, events::newest_cursor(session)), ROWS);
    money_looks_at_its_page_only(session).await;
    stock_looks_at_its_page_only(session).await;
}

async fn money_looks_at_its_page_only(session: &mut Session) {
    let all = PaymentFilter::default();
    let page = looks_at!(session, ORDERS, money::payments(session, &all, Some(ROWS / 2), PAGE));
    assert_eq!(page.items.len(), PAGE);
    let of = PaymentFilter { order_id: Some(id("o9")), ..all.clone() };
    assert_eq!(looks_at!(session, 50, money::payments(session, &of, None, PAGE)).items.len(), 1);
    let of = PaymentFilter { payment_id: Some(PaymentId::parse("p9").unwrap()), ..all.clone() };
    assert_eq!(looks_at!(session, 50, money::payments(session, &of, None, PAGE)).items.len(), 1);
    for (outcome, found) in
        [(PaymentOutcome::Applied, PAGE), (PaymentOutcome::Unmatched, PAGE), (PaymentOutcome::Revived, 0)]
    {
        let of = PaymentFilter { outcome: Some(outcome), ..all.clone() };
        let page = looks_at!(session, ORDERS, money::payments(session, &of, None, PAGE));
        assert_eq!(page.items.len(), found);
    }
    let all = RefundFilter::default();
    assert_eq!(looks_at!(session, ORDERS, money::refunds(session, &all, Some(ROWS / 2), PAGE)).items.len(), PAGE);
    for status in [RefundStatus::Due, RefundStatus::Settled] {
        let of = RefundFilter { status: Some(status), order_id: None };
        assert_eq!(looks_at!(session, ORDERS, money::refunds(session, &of, None, PAGE)).items.len(), PAGE);
    }
    let of = RefundFilter { status: None, order_id: Some(id("o9")) };
    assert_eq!(looks_at!(session, 50, money::refunds(session, &of, None, PAGE)).items.len(), 1);
    let stale = looks_at!(session, 300, money::stale_unmatched(session, Millis(ROWS / 2 + 1), 20));
    assert_eq!((stale.len(), stale[0].as_str()), (20, "p1000"));
}

async fn stock_looks_at_its_page_only(session: &mut Session) {
    assert!(looks_at!(session, 20, stock::sku(session, &sku("s777"))).is_some());
    assert_eq!(looks_at!(session, 300, stock::skus(session, Some(ROWS / 2), PAGE)).items.len(), PAGE);
    let changes = looks_at!(session, 300, stock::stock_changes(session, &sku("s1"), ROWS / 2, PAGE));
    assert_eq!(changes.unwrap().items[0].stock_version, ROWS / 2 + 1);
    let copies = looks_at!(session, 300, probe::copies(session, Some(&sku("s4")), PAGE));
    assert_eq!((copies.len(), copies[0].0.as_str()), (PAGE, "s40"));
    let probes: Vec<Probe> = (0..500)
        .map(|i| Probe {
            order_id: Some(id(&format!("o{}", i * 2 * ROWS / 500))),
            key: IdempotencyKey::parse(&format!("k{}", 2 * ROWS - i * 2 * ROWS / 500)).ok(),
            skus: vec![sku("s1"), sku("none"), sku(&format!("s{}", i % 3 + 5))],
        })
        .collect();
    let answers = looks_at!(session, 4_500, probe::probe(session, &probes));
    // The first half asks for an id that is known (but `o0`), the second for a key that is.
    assert!(answers.iter().enumerate().all(|(i, answer)| answer.known == (i > 0)));
    assert!(answers.iter().all(|answer| answer.copies[0].is_some() && answer.copies[1].is_none()));
    let long = Probe { order_id: None, key: None, skus: (1..=1_200).map(|i| sku(&format!("s{i}"))).collect() };
    let answers = probe::probe(session, &[long]).await.unwrap();
    assert!(answers[0].copies.iter().all(Option::is_some) && answers[0].copies.len() == 1_200);
}

async fn check(url: &str) {
    let mut session = Address::parse(url).unwrap().connect(Role::Reader).await.unwrap();
    migrate::run(&mut session, true).await.unwrap();
    fill(&mut session).await;
    // A server that knows nothing of its tables yet, and one that knows all.
    every_read_looks_at_its_page_only(&mut session).await;
    analyze(&mut session).await;
    every_read_looks_at_its_page_only(&mut session).await;
    let report = audit::audit(&mut session, Millis(0), 0).await.unwrap();
    assert!(report.checked >= 4 * ROWS as u64, "the audit sees every row");
}

#[tokio::test]
async fn no_read_walks_a_table_on_mariadb() {
    let server = crowd::mariadb();
    check(&server.database()).await;
}

#[tokio::test]
async fn no_read_walks_a_table_on_postgres() {
    let server = crowd::postgres();
    check(&server.database()).await;
}
