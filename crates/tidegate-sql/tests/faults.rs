//! Bad days of the database: what was confirmed is there, what was not is not, and once it is back so is the ledger.
#![cfg(all(feature = "mysql", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test ends where something is wrong")]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{Server, audit, commit, commit_at_last, open, order_id, pay, place, placed, put};
use rand::{Rng, SeedableRng, rngs::StdRng};
use tidegate_backend::{ErrorKind, Ledger};
use tidegate_conformance::servers::Proxy;
use tidegate_core::{Command, Outcome};
use tidegate_sql::{SqlLedger, SqlOptions};

on_both!(
    killed_connections_lose_nothing,
    a_killed_server_loses_nothing,
    an_answer_cut_off_anywhere_changes_no_answer,
    a_lost_answer_to_a_commit_is_found_out,
    a_read_only_server_is_unavailable_until_it_writes_again,
    a_frozen_server_is_unavailable_in_time,
    a_silent_network_is_unavailable_in_time,
    a_bad_row_is_its_commands_own_fault,
    calls_that_are_dropped_leave_nothing_behind,
);

/// Places and pays until told to stop; gives every order that was confirmed, with its number.
async fn work(ledger: Arc<SqlLedger>, task: usize, stop: Arc<AtomicBool>) -> BTreeMap<String, i64> {
    let mut confirmed = BTreeMap::new();
    let mut batch = 0;
    while !stop.load(Ordering::SeqCst) {
        let ids: Vec<String> = (0..8).map(|n| format!("o-{task}-{batch}-{n}")).collect();
        let commands: Vec<Command> = ids.iter().map(|id| place(id, &[("a", 1), ("b", 2)])).collect();
        let (placed_now, _) = commit_at_last(&ledger, commands).await;
        for verdict in &placed_now.verdicts {
            let (order, _) = placed(verdict);
            assert_eq!(confirmed.insert(order.id.to_string(), order.no.0), None);
        }
        let payments = ids.iter().map(|id| pay(id, &format!("p-{id}"))).collect();
        let (paid, _) = commit_at_last(&ledger, payments).await;
        assert!(paid.verdicts.iter().all(|v| matches!(v, Ok(Outcome::Paid { .. }))), "{:?}", paid.verdicts);
        batch += 1;
    }
    confirmed
}

/// Runs four tasks on two nodes while `disturb` does its worst, then holds the ledger against what was confirmed.
async fn under(server: &Arc<Server>, disturb: impl AsyncFnOnce(&Server)) {
    let url = server.database();
    let nodes = [open(&url).await, open(&url).await];
    commit(&nodes[0], vec![put("a", 1_000_000, Some(100)), put("b", 1_000_000, Some(50))]).await;
    let stop = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..4).map(|n| tokio::spawn(work(nodes[n % 2].clone(), n, stop.clone()))).collect();
    disturb(server).await;
    stop.store(true, Ordering::SeqCst);
    let mut confirmed = BTreeMap::new();
    for task in tasks {
        confirmed.extend(task.await.unwrap());
    }
    assert!(confirmed.len() > 50, "{} orders", confirmed.len());
    let fresh = open(&url).await;
    for (id, no) in &confirmed {
        let order = fresh.order(order_id(id)).await.unwrap();
        let order = order.unwrap_or_else(|| panic!("{id} was confirmed and is gone"));
        assert_eq!((order.no.0, order.payments.len()), (*no, 1), "{id}");
    }
    let held = fresh.sku(common::sku_id("a")).await.unwrap().unwrap().counts;
    assert_eq!(held.sold, confirmed.len() as i64, "no order was placed but those that were confirmed");
    audit(&fresh).await;
}

async fn killed_connections_lose_nothing(server: Arc<Server>) {
    under(&server, async |server: &Server| {
        for _ in 0..25 {
            tokio::time::sleep(Duration::from_millis(60)).await;
            tokio::task::block_in_place(|| server.kill_connections());
        }
    })
    .await;
}

async fn a_killed_server_loses_nothing(server: Arc<Server>) {
    under(&server, async |server: &Server| {
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(700)).await;
            tokio::task::block_in_place(|| {
                server.kill();
                server.restart();
            });
        }
        tokio::time::sleep(Duration::from_millis(700)).await;
    })
    .await;
}

fn through(proxy: &Proxy, server: &Server, url: &str) -> String {
    url.replace(&format!(":{}/", server.port()), &format!(":{}/", proxy.port()))
}

/// One node whose answers are cut off at a random place, `COMMIT`'s included: the commit is tried again inside, or found
/// to have taken place, and its answers are those of the first time.
async fn an_answer_cut_off_anywhere_changes_no_answer(server: Arc<Server>) {
    let url = server.database();
    let proxy = Proxy::start(server.port());
    let ledger = open(&through(&proxy, &server, &url)).await;
    let direct = open(&url).await;
    commit(&direct, vec![put("a", 1_000_000, None)]).await;
    let mut random = StdRng::seed_from_u64(7);
    let mut orders = 0;
    for round in 0..60 {
        let commands: Arc<[Command]> = (0..20).map(|n| place(&format!("c-{round}-{n}"), &[("a", 1)])).collect();
        let committing = tokio::spawn({
            let ledger = ledger.clone();
            async move { ledger.commit(commands).await }
        });
        tokio::time::sleep(Duration::from_micros(random.random_range(0..12_000))).await;
        proxy.cut_replies(1);
        let verdicts = committing.await.unwrap().unwrap().verdicts;
        for verdict in &verdicts {
            assert!(!placed(verdict).1, "the answer of the first time");
            orders += 1;
        }
        proxy.cut_replies(0);
    }
    let held = direct.sku(common::sku_id("a")).await.unwrap().unwrap().counts.held;
    assert_eq!(held, orders);
    audit(&direct).await;
}

/// Exactly the answer to `COMMIT`: the batch took place, and its caller is told what it decided, not that it was a repeat.
async fn a_lost_answer_to_a_commit_is_found_out(server: Arc<Server>) {
    const DELAY: Duration = Duration::from_millis(60);
    let url = server.database();
    let proxy = Proxy::start(server.port());
    let mut options = SqlOptions::new(through(&proxy, &server, &url));
    options.writers = 1;
    let ledger = SqlLedger::open(options).await.unwrap();
    let direct = open(&url).await;
    commit(&direct, vec![put("a", 1_000, None)]).await;
    let order = |n: i32| -> Arc<[Command]> { Arc::from(vec![place(&format!("k-{n}"), &[("a", 1)])]) };
    // Every statement is prepared before answers are slow, so that each has one answer.
    ledger.commit(order(0)).await.unwrap();
    // On a busy host the cut may come at another answer, and the batch is only tried again: then once more.
    for n in 1..=8 {
        proxy.delay(DELAY);
        let begun = Instant::now();
        ledger.commit(order(10 * n)).await.unwrap();
        let usual = begun.elapsed();
        let committing = tokio::spawn({
            let (ledger, commands) = (ledger.clone(), order(10 * n + 1));
            async move { ledger.commit(commands).await }
        });
        // While the last answer before COMMIT's is held back.
        tokio::time::sleep(usual - DELAY * 3 / 2).await;
        proxy.cut_replies(1);
        let cut = Instant::now();
        let mut committed = false;
        while !committed && cut.elapsed() < DELAY * 3 {
            tokio::time::sleep(Duration::from_millis(2)).await;
            committed = direct.order(order_id(&format!("k-{}", 10 * n + 1))).await.unwrap().is_some();
        }
        proxy.delay(Duration::ZERO);
        let verdicts = committing.await.unwrap().unwrap().verdicts;
        assert!(!placed(&verdicts[0]).1, "not a repeat");
        if committed && proxy.replies_to_cut() == 0 {
            return audit(&direct).await;
        }
        proxy.cut_replies(0);
    }
    panic!("the cut never met the answer to a COMMIT");
}

async fn a_read_only_server_is_unavailable_until_it_writes_again(server: Arc<Server>) {
    let url = server.database();
    let ledger = open(&url).await;
    commit(&ledger, vec![put("a", 1_000, None), place("before", &[("a", 1)])]).await;
    server.set_read_only(true);
    let refused = ledger.commit(Arc::from(vec![place("during", &[("a", 1)])])).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    assert_eq!(ledger.probe_write().await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(ledger.order(order_id("before")).await.unwrap().is_some(), "reads go on");
    assert!(open(&url).await.order(order_id("before")).await.unwrap().is_some(), "a node may start meanwhile");
    server.set_read_only(false);
    ledger.probe_write().await.unwrap();
    assert!(!placed(&commit(&ledger, vec![place("during", &[("a", 1)])]).await.verdicts[0]).1);
    audit(&ledger).await;
}

async fn a_frozen_server_is_unavailable_in_time(server: Arc<Server>) {
    let url = server.database();
    let ledger = open(&url).await;
    commit(&ledger, vec![put("a", 1_000, None)]).await;
    server.freeze();
    let begun = Instant::now();
    let refused = ledger.commit(Arc::from(vec![place("o", &[("a", 1)])])).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    server.thaw();
    let (again, _) = commit_at_last(&ledger, vec![place("o", &[("a", 1)])]).await;
    placed(&again.verdicts[0]);
    audit(&ledger).await;
}

async fn a_silent_network_is_unavailable_in_time(server: Arc<Server>) {
    let url = server.database();
    let proxy = Proxy::start(server.port());
    let ledger = open(&through(&proxy, &server, &url)).await;
    let direct = open(&url).await;
    commit(&ledger, vec![put("a", 1_000, None)]).await;
    // Silent while a batch is in the middle, its rows locked.
    let busy: Vec<_> = (0..3)
        .map(|task| {
            let ledger = ledger.clone();
            tokio::spawn(async move {
                for n in 0..1_000 {
                    let placed = ledger.commit(Arc::from(vec![place(&format!("s-{task}-{n}"), &[("a", 1)])])).await;
                    if let Err(e) = placed {
                        return e;
                    }
                }
                panic!("the silence was not noticed");
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(300)).await;
    proxy.silence(true);
    let begun = Instant::now();
    // Another node goes on once the server has noticed that the first one's transactions are idle.
    commit(&direct, vec![place("other", &[("a", 1)])]).await;
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    for task in busy {
        let error = task.await.unwrap();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
    proxy.silence(false);
    proxy.cut();
    commit_at_last(&ledger, vec![place("after", &[("a", 1)])]).await;
    audit(&direct).await;
}

async fn a_bad_row_is_its_commands_own_fault(server: Arc<Server>) {
    let url = server.database();
    let ledger = open(&url).await;
    commit(&ledger, vec![put("a", 1_000, None)]).await;
    // Some constraint that the rules do not know of: the batch is refused whole and may be split.
    let check = "ALTER TABLE orders ADD CONSTRAINT no_thirteens CHECK (id <> 'o13')";
    server.sql(&url, check);
    let commands: Vec<Command> = (10..16).map(|n| place(&format!("o{n}"), &[("a", 1)])).collect();
    let error = ledger.commit(commands.clone().into()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Command, "{error}");
    for command in commands {
        let alone = ledger.commit(Arc::from(vec![command])).await;
        let _ = alone.map_err(|e| assert_eq!(e.kind(), ErrorKind::Command));
    }
    let held = ledger.sku(common::sku_id("a")).await.unwrap().unwrap().counts.held;
    assert_eq!(held, 5);
    audit(&ledger).await;
}

/// A caller that goes away in the middle leaves no open transaction and no lock.
async fn calls_that_are_dropped_leave_nothing_behind(server: Arc<Server>) {
    let url = server.database();
    let mut options = SqlOptions::new(&url);
    options.writers = 1;
    let ledger = SqlLedger::open(options).await.unwrap();
    commit(&ledger, vec![put("a", 1_000_000, None)]).await;
    let mut random = StdRng::seed_from_u64(11);
    for round in 0..40 {
        let commands = (0..50).map(|n| place(&format!("d-{round}-{n}"), &[("a", 1)])).collect();
        let patience = Duration::from_micros(random.random_range(0..15_000));
        let _ = tokio::time::timeout(patience, ledger.commit(commands)).await;
    }
    let begun = Instant::now();
    commit(&ledger, vec![place("last", &[("a", 1)])]).await;
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    audit(&ledger).await;
}
