//! Several nodes on one database: the same rows at once, and nobody is told anything that does not hold.
#![cfg(all(feature = "mysql", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test ends where something is wrong")]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Server, audit, cancel, commit, open, open_manual, order_id, pay, place, placed, put};
use rand::SeedableRng;
use rand::rngs::StdRng;
use tidegate_backend::Ledger;
use tidegate_conformance::Workload;
use tidegate_core::{Command, Outcome, RefusalCode, Settings};
use tidegate_sql::SqlLedger;

on_both!(
    random_batches_of_two_nodes_collide_and_stay_sound,
    the_last_units_go_to_as_many_as_there_are_on_two_nodes,
    one_id_of_two_nodes_is_one_order,
    one_payment_id_for_two_orders_counts_once,
    an_order_and_its_money_may_cross,
    a_deadlock_with_another_program_is_tried_again,
    new_skus_of_two_nodes_meet,
    a_manual_clock_is_one_for_all_nodes,
);

/// Batches of one task, seeded; commands that expire name orders that are really due.
async fn hammer(ledger: Arc<SqlLedger>, seed: u64, batches: usize) -> Vec<(String, i64)> {
    let mut random = StdRng::seed_from_u64(seed);
    let workload = Workload::small(Settings::default());
    let mut new = Vec::new();
    for _ in 0..batches {
        let due = ledger.deadlines(None, None, 5).await.unwrap();
        let mut due = due.iter().cycle();
        let commands: Vec<Command> = (0..20)
            .map(|_| match workload.command(&mut random) {
                Command::Expire(no) => Command::Expire(due.next().map_or(no, |(no, _)| *no)),
                other => other,
            })
            .collect();
        for verdict in commit(&ledger, commands).await.verdicts {
            if let Ok(Outcome::Placed { order, replayed: false }) = verdict {
                new.push((order.id.to_string(), order.no.0));
            }
        }
        if seed == 0 {
            ledger.advance(200_000).await.unwrap();
        }
    }
    new
}

async fn random_batches_of_two_nodes_collide_and_stay_sound(server: Arc<Server>) {
    let url = server.database();
    let nodes = [open_manual(&url).await, open_manual(&url).await];
    let stock = (0..4).map(|n| put(&format!("sku-{n}"), 200, Some(250))).collect();
    commit(&nodes[0], stock).await;
    let tasks: Vec<_> = (0..4).map(|n| tokio::spawn(hammer(nodes[n % 2].clone(), n as u64, 30))).collect();
    let mut all = BTreeMap::new();
    for task in tasks {
        for (id, no) in task.await.unwrap() {
            assert_eq!(all.insert(id.clone(), no), None, "{id} was new twice");
        }
    }
    assert!(all.len() > 10, "{}", all.len());
    for (id, no) in &all {
        let order = nodes[1].order(order_id(id)).await.unwrap().unwrap();
        assert_eq!(order.no.0, *no);
    }
    audit(&nodes[0]).await;
}

async fn the_last_units_go_to_as_many_as_there_are_on_two_nodes(server: Arc<Server>) {
    let url = server.database();
    let nodes = [open(&url).await, open(&url).await];
    commit(&nodes[0], vec![put("hot", 333, None), put("warm", 1_000, None)]).await;
    let sell = |task: usize| {
        let ledger = nodes[task % 2].clone();
        async move {
            let mut sold = 0;
            for batch in 0..10 {
                let commands = (0..20).map(|n| {
                    let lines: &[_] = if n % 2 == 0 { &[("hot", 1), ("warm", 1)] } else { &[("warm", 1), ("hot", 1)] };
                    place(&format!("o-{task}-{batch}-{n}"), lines)
                });
                let verdicts = commit(&ledger, commands.collect()).await.verdicts;
                sold += verdicts.iter().filter(|v| v.is_ok()).count();
            }
            sold
        }
    };
    let tasks: Vec<_> = (0..4).map(|n| tokio::spawn(sell(n))).collect();
    let mut sold = 0;
    for task in tasks {
        sold += task.await.unwrap();
    }
    assert_eq!(sold, 333);
    let hot = nodes[1].sku(common::sku_id("hot")).await.unwrap().unwrap();
    assert_eq!((hot.counts.held, hot.counts.available()), (333, 0));
    audit(&nodes[0]).await;
}

async fn one_id_of_two_nodes_is_one_order(server: Arc<Server>) {
    let url = server.database();
    let nodes = [open(&url).await, open(&url).await];
    commit(&nodes[0], vec![put("a", 1_000, None), put("b", 1_000, None)]).await;
    for round in 0..20 {
        let id = format!("same-{round}");
        let one = tokio::spawn(race(nodes[0].clone(), place(&id, &[("a", 1)])));
        let two = tokio::spawn(race(nodes[1].clone(), place(&id, &[("a", 1)])));
        let (one, two) = (placed(&one.await.unwrap()), placed(&two.await.unwrap()));
        assert!(one.1 != two.1, "one placed it, the other found it");
        assert_eq!(one.0.no, two.0.no);
    }
    // Other content under the same id, and no row in common that is locked: the id itself must tell.
    for round in 0..20 {
        let id = format!("other-{round}");
        let one = tokio::spawn(race(nodes[0].clone(), place(&id, &[("a", 1)])));
        let two = tokio::spawn(race(nodes[1].clone(), place(&id, &[("b", 1)])));
        let verdicts = [one.await.unwrap(), two.await.unwrap()];
        let refused = verdicts.iter().filter_map(|v| v.as_ref().err());
        let codes: Vec<_> = refused.map(|r| format!("{r:?}")).collect();
        assert_eq!(codes.len(), 1, "{verdicts:?}");
        assert!(codes[0].contains(&format!("{:?}", RefusalCode::IdempotencyMismatch)), "{codes:?}");
    }
    audit(&nodes[1]).await;
}

async fn race(ledger: Arc<SqlLedger>, command: Command) -> tidegate_core::Verdict {
    commit(&ledger, vec![command]).await.verdicts.remove(0)
}

async fn one_payment_id_for_two_orders_counts_once(server: Arc<Server>) {
    let url = server.database();
    let nodes = [open(&url).await, open(&url).await];
    commit(&nodes[0], vec![put("a", 1_000, Some(100)), put("b", 1_000, Some(100))]).await;
    for round in 0..20 {
        let [a, b] = ["a", "b"].map(|sku| format!("{sku}-{round}"));
        commit(&nodes[0], vec![place(&a, &[("a", 1)]), place(&b, &[("b", 1)])]).await;
        let payment = format!("p-{round}");
        let one = tokio::spawn(race(nodes[0].clone(), pay(&a, &payment)));
        let two = tokio::spawn(race(nodes[1].clone(), pay(&b, &payment)));
        let verdicts = [one.await.unwrap(), two.await.unwrap()];
        assert_eq!(verdicts.iter().filter(|v| v.is_ok()).count(), 1, "{verdicts:?}");
    }
    audit(&nodes[1]).await;
}

async fn an_order_and_its_money_may_cross(server: Arc<Server>) {
    let url = server.database();
    let nodes = [open(&url).await, open(&url).await];
    commit(&nodes[0], vec![put("a", 1_000, Some(100))]).await;
    for round in 0..20 {
        let id = format!("x-{round}");
        let one = tokio::spawn(race(nodes[0].clone(), place(&id, &[("a", 1)])));
        let two = tokio::spawn(race(nodes[1].clone(), pay(&id, &format!("px-{round}"))));
        one.await.unwrap().unwrap();
        two.await.unwrap().unwrap();
        let order = nodes[0].order(order_id(&id)).await.unwrap().unwrap();
        assert_eq!(order.state.status, tidegate_core::Status::Paid, "whichever came first");
        // And a cancel that crosses a place leaves a tombstone or a cancelled order, never a pending one.
        let id = format!("y-{round}");
        let one = tokio::spawn(race(nodes[0].clone(), place(&id, &[("a", 1)])));
        let two = tokio::spawn(race(nodes[1].clone(), cancel(&id)));
        let (_, cancelled) = (one.await.unwrap(), two.await.unwrap());
        cancelled.unwrap();
        let order = nodes[0].order(order_id(&id)).await.unwrap();
        assert!(order.is_none_or(|o| o.state.status == tidegate_core::Status::Cancelled));
    }
    audit(&nodes[1]).await;
}

async fn a_deadlock_with_another_program_is_tried_again(server: Arc<Server>) {
    let url = server.database();
    let ledger = open(&url).await;
    commit(&ledger, vec![put("a", 1_000, None), put("b", 1_000, None)]).await;
    let (begin, pause) =
        if server.is_mariadb() { ("BEGIN", "DO SLEEP(0.3)") } else { ("BEGIN", "SELECT pg_sleep(0.3)") };
    let against = format!(
        "{begin}; UPDATE skus SET changed_at = 0 WHERE sku = 'b'; {pause}; UPDATE skus SET changed_at = 0 WHERE sku = 'a'; {pause}; COMMIT"
    );
    for round in 0..3 {
        let (server, url, against) = (server.clone(), url.clone(), against.clone());
        // The other program may be the one the server chooses.
        let other = std::thread::spawn(move || server.sql(&url, &against));
        tokio::time::sleep(Duration::from_millis(150)).await;
        let commands = (0..10).map(|n| place(&format!("d-{round}-{n}"), &[("a", 1), ("b", 1)])).collect();
        let verdicts = commit(&ledger, commands).await.verdicts;
        assert!(verdicts.iter().all(Result::is_ok), "{verdicts:?}");
        let _ = other.join();
    }
    audit(&ledger).await;
}

async fn new_skus_of_two_nodes_meet(server: Arc<Server>) {
    let url = server.database();
    let nodes = [open(&url).await, open(&url).await];
    for round in 0..10 {
        let skus = move |reverse: bool| {
            let mut all: Vec<Command> = (0..5).map(|n| put(&format!("s-{round}-{n}"), 10, None)).collect();
            if reverse {
                all.reverse();
            }
            all
        };
        let (one, two) = (nodes[0].clone(), nodes[1].clone());
        let one = tokio::spawn(async move { commit(&one, skus(false)).await });
        let two = tokio::spawn(async move { commit(&two, skus(true)).await });
        let verdicts = one.await.unwrap().verdicts.into_iter().chain(two.await.unwrap().verdicts);
        let created = verdicts.filter(|v| matches!(v, Ok(Outcome::SkuPut { created: true, .. }))).count();
        assert_eq!(created, 5);
    }
    audit(&nodes[0]).await;
}

async fn a_manual_clock_is_one_for_all_nodes(server: Arc<Server>) {
    let url = server.database();
    let nodes = [open_manual(&url).await, open_manual(&url).await];
    let before = nodes[1].clock().now();
    let at = nodes[0].advance(3_600_000).await.unwrap();
    assert_eq!(at.since(before), 3_600_000);
    let begun = Instant::now();
    nodes[1].clock().sleep_until(at).await;
    assert!(begun.elapsed() < Duration::from_secs(2), "told by a look at the row");
    assert_eq!(commit(&nodes[1], vec![put("a", 1, None)]).await.now, at);
    assert!(nodes[1].advance(-1).await.is_err() && nodes[1].advance(i64::MAX).await.is_err());
}
