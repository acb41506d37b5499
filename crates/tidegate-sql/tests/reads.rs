//! Reads on bad days and beside commits: of one instant, bounded in time, and back as soon as the server is.
#![cfg(all(feature = "mysql", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test ends where something is wrong")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{Server, cancel, commit, open, order_id, pay, place, put, sku_id};
use tidegate_backend::{ErrorKind, Ledger, OrderFilter, PageRequest, PaymentFilter, Probe};
use tidegate_core::{PaymentOutcome, Status};
use tidegate_sql::SqlLedger;

on_both!(
    a_reader_sees_whole_commits_only,
    reads_outlive_a_restart_of_the_server,
    reads_go_on_where_nothing_can_be_written,
    a_frozen_server_is_waited_for_no_longer_than_told,
    reads_that_are_given_up_leave_nothing_behind,
);

/// Reads that take several statements, that take one of several parts, and that take one.
async fn read_all(ledger: &SqlLedger) -> tidegate_backend::Result<()> {
    let page = || PageRequest { cursor: None, limit: 50 };
    let probe = Probe { order_id: Some(order_id("o1")), key: None, skus: vec![sku_id("a"), sku_id("b")] };
    ledger.orders(OrderFilter::default(), page()).await?;
    ledger.payments(PaymentFilter::default(), page()).await?;
    ledger.order(order_id("o1")).await?;
    ledger.probe(vec![probe]).await?;
    ledger.events(0, 50).await?;
    ledger.deadlines(None, None, 50).await?;
    ledger.newest_cursor().await?;
    Ok(())
}

/// `o0`.. of both SKUs, the odd ones paid.
async fn fill(ledger: &SqlLedger, orders: usize) {
    commit(ledger, vec![put("a", 1_000, Some(5)), put("b", 1_000, Some(7))]).await;
    let mut commands = Vec::new();
    for i in 0..orders {
        let id = format!("o{i}");
        commands.push(place(&id, &[("a", 1), ("b", 1)]));
        if i % 2 == 1 {
            commands.push(pay(&id, &id));
        }
    }
    commit(ledger, commands).await;
}

/// Both SKUs always move together, and money together with its order: no reader may see one without the other.
async fn a_reader_sees_whole_commits_only(server: Arc<Server>) {
    let ledger = open(&server.database()).await;
    fill(&ledger, 4).await;
    let done = Arc::new(AtomicBool::new(false));
    let writer = {
        let (ledger, done) = (ledger.clone(), done.clone());
        tokio::spawn(async move {
            for i in 0..150 {
                let id = format!("n{i}");
                commit(&ledger, vec![place(&id, &[("a", 1), ("b", 1)])]).await;
                commit(&ledger, vec![if i % 2 == 0 { pay(&id, &id) } else { cancel(&id) }]).await;
            }
            done.store(true, Ordering::SeqCst);
        })
    };
    let (mut looks, mut versions) = (0, 0);
    while !done.load(Ordering::SeqCst) {
        // More SKUs than one statement takes, so that it is several in one snapshot.
        let many = (0..600).map(|i| sku_id(&format!("none-{i:04}")));
        let skus = [sku_id("a")].into_iter().chain(many).chain([sku_id("zz"), sku_id("b")]);
        for skus in [vec![sku_id("a"), sku_id("b")], skus.collect()] {
            let answers = ledger.probe(vec![Probe { order_id: None, key: None, skus }]).await.unwrap();
            let (a, b) = (answers[0].copies.first().cloned().flatten(), answers[0].copies.last().cloned().flatten());
            let (a, b) = (a.unwrap(), b.unwrap());
            assert_eq!((a.available, a.stock_version), (b.available, b.stock_version));
            versions = versions.max(a.stock_version);
        }
        let page = ledger.orders(OrderFilter::default(), PageRequest { cursor: None, limit: 20 }).await.unwrap();
        let newest = ledger.order(page.items[0].id.clone()).await.unwrap().unwrap();
        for order in page.items.iter().chain([&newest]) {
            let applied = order.payments.iter().filter(|p| p.outcome == PaymentOutcome::Applied).count();
            assert_eq!(order.state.status == Status::Paid, applied == 1, "{order:?}");
        }
        looks += 1;
    }
    writer.await.unwrap();
    assert!(looks > 10 && versions > 100, "the reader was there while commits were: {looks} looks, version {versions}");
}

/// Every connection of the pool is dead after a restart; no read says so.
async fn reads_outlive_a_restart_of_the_server(server: Arc<Server>) {
    let ledger = open(&server.database()).await;
    fill(&ledger, 20).await;
    for round in 0..3 {
        let readers = (0..16).map(|_| {
            let ledger = ledger.clone();
            tokio::spawn(async move { read_all(&ledger).await })
        });
        for reader in readers.collect::<Vec<_>>() {
            reader.await.unwrap().unwrap();
        }
        match round {
            0 => server.restart(),
            1 => server.kill_connections(),
            _ => {
                server.kill();
                let began = Instant::now();
                assert_eq!(read_all(&ledger).await.unwrap_err().kind(), ErrorKind::Unavailable);
                assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
                server.restart();
            }
        }
    }
    read_all(&ledger).await.unwrap();
    common::audit(&ledger).await;
}

async fn reads_go_on_where_nothing_can_be_written(server: Arc<Server>) {
    let ledger = open(&server.database()).await;
    fill(&ledger, 4).await;
    server.set_read_only(true);
    let refused = ledger.commit(vec![place("late", &[("a", 1)])].into()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    read_all(&ledger).await.unwrap();
    common::audit(&ledger).await;
    server.set_read_only(false);
    common::commit_at_last(&ledger, vec![place("late", &[("a", 1)])]).await;
}

async fn a_frozen_server_is_waited_for_no_longer_than_told(server: Arc<Server>) {
    let ledger = open(&server.database()).await;
    fill(&ledger, 4).await;
    server.freeze();
    let began = Instant::now();
    let readers: Vec<_> = (0..12)
        .map(|_| {
            let ledger = ledger.clone();
            tokio::spawn(async move { ledger.order(order_id("o1")).await })
        })
        .collect();
    for reader in readers {
        assert_eq!(reader.await.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
    }
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    server.thaw();
    let back = Instant::now();
    while let Err(e) = read_all(&ledger).await {
        assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
        assert!(back.elapsed() < Duration::from_secs(10), "the ledger stays away: {e}");
    }
}

/// A caller that goes away in the middle of a snapshot takes its connection with it: nothing stays open on the server.
async fn reads_that_are_given_up_leave_nothing_behind(server: Arc<Server>) {
    let url = server.database();
    let ledger = open(&url).await;
    fill(&ledger, 40).await;
    for i in 0..200 {
        let bound = Duration::from_micros(i * 40);
        let _ =
            tokio::time::timeout(bound, ledger.orders(OrderFilter::default(), PageRequest { cursor: None, limit: 40 }))
                .await;
    }
    let idle = if server.is_mariadb() {
        "SELECT COUNT(*) FROM information_schema.innodb_trx"
    } else {
        "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"
    };
    let began = Instant::now();
    while server.sql(&url, idle).trim() != "0" {
        assert!(began.elapsed() < Duration::from_secs(1), "a transaction stays open");
    }
    let connections = if server.is_mariadb() {
        "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'tidegate'"
    } else {
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tidegate'"
    };
    let open: usize = server.sql(&url, connections).trim().parse().unwrap();
    assert!(open <= 16, "{open} connections");
    let page = ledger.orders(OrderFilter::default(), PageRequest { cursor: None, limit: 500 }).await.unwrap();
    assert_eq!(page.items.len(), 40);
    assert_eq!(page.items.iter().filter(|order| order.payments.len() == 1).count(), 20);
}
