//! Lists: every filter, page by page, in order.

use super::*;

macro_rules! all_pages {
    ($limit:expr, |$page:ident| $call:expr) => {{
        let mut items = Vec::new();
        let mut $page = first_page($limit);
        loop {
            let got = $call.await.expect("readable");
            assert!(got.items.len() <= $limit);
            items.extend(got.items);
            match got.next {
                Some(next) => $page.cursor = Some(next),
                None => break items,
            }
        }
    }};
}

/// Payments and refunds: each filter, newest first, page by page.
pub async fn money_lists_filter_and_page(open: Open<'_>) {
    let (mut twin, _kept) = fresh(open).await;
    twin.commit(vec![put("x", 99, priced(100))]).await;
    for i in 0..11 {
        let (o, p) = (format!("o{i}"), format!("p{i}"));
        twin.commit(vec![place(&o, &[("x", 1)]), pay(&o, &p, None), pay(&o, &format!("{p}-twice"), None)]).await;
    }
    let all = all_pages!(4, |page| twin.ledger.payments(PaymentFilter::default(), page.clone()));
    assert_eq!(all.len(), 22);
    assert_eq!((all[0].id.as_str(), all[21].id.as_str()), ("p10-twice", "p0"));
    let surplus = PaymentFilter { outcome: Some(PaymentOutcome::Surplus), ..PaymentFilter::default() };
    assert_eq!(all_pages!(4, |page| twin.ledger.payments(surplus.clone(), page.clone())).len(), 11);
    let one = PaymentFilter { payment_id: Some(PaymentId::parse("p3").expect("an id")), ..PaymentFilter::default() };
    assert_eq!(all_pages!(4, |page| twin.ledger.payments(one.clone(), page.clone())).len(), 1);
    let of_order = PaymentFilter { order_id: Some(oid("o3")), ..PaymentFilter::default() };
    assert_eq!(all_pages!(1, |page| twin.ledger.payments(of_order.clone(), page.clone())).len(), 2);
    let due = RefundFilter { status: Some(RefundStatus::Due), order_id: None };
    assert_eq!(all_pages!(3, |page| twin.ledger.refunds(due.clone(), page.clone())).len(), 11);
    let settled = RefundFilter { status: Some(RefundStatus::Settled), order_id: None };
    assert!(all_pages!(3, |page| twin.ledger.refunds(settled.clone(), page.clone())).is_empty());
    twin.compare().await;
}

/// Orders: every combination of filters agrees with a plain scan, newest first.
pub async fn order_lists_filter_and_page(open: Open<'_>) {
    let (mut twin, _kept) = fresh(open).await;
    twin.commit(vec![put("x", 999, priced(1)), put("y", 999, priced(1))]).await;
    for i in 0..60 {
        let lines: &[(&str, i64)] = [&[("x", 1)][..], &[("y", 1)], &[("x", 1), ("y", 2)]][i % 3];
        let id = format!("o{i}");
        twin.commit(vec![Command::Place(place_as(&id, &format!("b{}", i % 2), lines))]).await;
        match i % 4 {
            0 => twin.commit(vec![pay(&id, &id, None)]).await,
            1 => twin.commit(vec![cancel(&id)]).await,
            _ => Vec::new(),
        };
    }
    for status in [None, Some(Status::Pending), Some(Status::Paid), Some(Status::Cancelled), Some(Status::Fulfilled)] {
        for buyer in [None, Some("b0"), Some("nobody")] {
            for sku in [None, Some("x"), Some("y"), Some("none")] {
                let filter = OrderFilter {
                    status,
                    buyer_id: buyer.map(|b| tidegate_core::BuyerId::parse(b).expect("a buyer")),
                    sku: sku.map(|s| SkuId::parse(s).expect("a SKU")),
                };
                let mut expected: Vec<_> = twin
                    .oracle
                    .orders()
                    .filter(|o| status.is_none_or(|s| o.state.status == s))
                    .filter(|o| filter.buyer_id.as_ref().is_none_or(|b| o.buyer_id == *b))
                    .filter(|o| filter.sku.as_ref().is_none_or(|s| o.lines.iter().any(|l| l.sku == *s)))
                    .map(|o| o.id.clone())
                    .collect();
                expected.reverse();
                let got = all_pages!(7, |page| twin.ledger.orders(filter.clone(), page.clone()));
                assert_eq!(got.into_iter().map(|o| o.id).collect::<Vec<_>>(), expected, "{filter:?}");
            }
        }
    }
}

/// SKUs, newest first; gate copies, by id.
pub async fn sku_lists_page(open: Open<'_>) {
    let (mut twin, _kept) = fresh(open).await;
    twin.commit((0..23).map(|i| put(&format!("s{i:02}"), i, SkuPatch::default())).collect()).await;
    let got = all_pages!(5, |page| twin.ledger.skus(page.clone()));
    assert_eq!(got.iter().map(|s| s.counts.on_hand).collect::<Vec<_>>(), (0..23).rev().collect::<Vec<_>>());
    let mut copies = Vec::new();
    loop {
        let page =
            twin.ledger.copies(copies.last().map(|(sku, _): &(SkuId, _)| sku.clone()), 10).await.expect("readable");
        if page.is_empty() {
            break;
        }
        copies.extend(page);
    }
    assert_eq!(copies.iter().map(|(_, c)| c.available).collect::<Vec<_>>(), (0..23).collect::<Vec<_>>());
}

/// The stock ledger of a SKU, oldest first.
pub async fn the_stock_ledger_pages_oldest_first(open: Open<'_>) {
    let (mut twin, _kept) = fresh(open).await;
    twin.commit(vec![put("x", 20, SkuPatch::default())]).await;
    for i in 0..9 {
        twin.commit(vec![place(&format!("o{i}"), &[("x", 1)]), cancel(&format!("o{i}"))]).await;
    }
    twin.compare().await;
    let none = twin.ledger.stock_changes(SkuId::parse("none").expect("a SKU"), first_page(5)).await.expect("readable");
    assert!(none.is_none());
}

/// Events: dense, oldest first, an empty page when caught up; an order's own, paged.
pub async fn events_are_dense_and_page(open: Open<'_>) {
    let (mut twin, _kept) = fresh(open).await;
    assert_eq!(twin.ledger.newest_cursor().await.expect("readable"), 0);
    twin.commit(vec![put("x", 20, priced(5)), place("o", &[("x", 1)])]).await;
    for i in 0..12 {
        twin.commit(vec![pay("o", &format!("p{i}"), Some(5))]).await;
    }
    let mut seen = Vec::new();
    loop {
        let page = twin.ledger.events(seen.last().copied().unwrap_or(0), 5).await.expect("readable");
        if page.is_empty() {
            break;
        }
        seen.extend(page.iter().map(|e| e.cursor));
    }
    assert_eq!(twin.ledger.newest_cursor().await.expect("readable"), seen.len() as i64);
    assert_eq!(seen, (1..=i64::try_from(twin.oracle.events.len()).expect("few")).collect::<Vec<_>>());
    let mut page = first_page(4);
    let mut own = Vec::new();
    loop {
        let got = twin.ledger.order_events(oid("o"), page.clone()).await.expect("readable").expect("it exists");
        own.extend(got.items.iter().map(|e| e.event.seq));
        match got.next {
            Some(next) => page.cursor = Some(next),
            None => break,
        }
    }
    assert_eq!(own, (1..=i64::try_from(own.len()).expect("few")).collect::<Vec<_>>());
    assert_eq!(own.len(), seen.len());
    assert!(twin.ledger.order_events(oid("none"), first_page(5)).await.expect("readable").is_none());
}

/// A cursor of another list, or of nobody, is an error, not a page.
pub async fn a_foreign_cursor_is_refused(open: Open<'_>) {
    let (twin, _kept) = fresh(open).await;
    for cursor in ["", "x", "-1", "99999999999999999999", "\u{e9}", "' OR 1=1"] {
        let page = PageRequest { cursor: Some(cursor.to_owned()), limit: 5 };
        let kinds = [
            twin.ledger.orders(OrderFilter::default(), page.clone()).await.err().map(|e| e.kind()),
            twin.ledger.payments(PaymentFilter::default(), page.clone()).await.err().map(|e| e.kind()),
            twin.ledger.refunds(RefundFilter::default(), page.clone()).await.err().map(|e| e.kind()),
            twin.ledger.skus(page.clone()).await.err().map(|e| e.kind()),
            twin.ledger.parked(page).await.err().map(|e| e.kind()),
        ];
        assert_eq!(kinds, [Some(ErrorKind::BadCursor); 5], "{cursor:?}");
    }
}
