//! The outbox on bad days, with several nodes: exactly what was committed is delivered, whoever dies.
#![cfg(all(feature = "mysql", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test ends where something is wrong")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{Server, audit, commit, commit_at_last, open, place, put};
use rand::{Rng, SeedableRng, rngs::StdRng};
use tidegate_backend::outbox::{MAX_OUTBOX_BATCH, Relayed};
use tidegate_backend::{BoxFuture, Deliver, ErrorKind, Ledger, OutboxEntry, OutboxState};
use tidegate_conformance::servers::Proxy;
use tidegate_core::Command;
use tidegate_sql::SqlLedger;
use tokio::sync::Notify;

on_both!(
    another_node_passes_over_what_a_relay_has_in_its_hands,
    a_relay_whose_network_is_silent_gives_its_entries_back,
    connections_killed_while_relaying_lose_nothing,
    answers_cut_off_anywhere_leave_what_was_committed,
    a_batch_that_cannot_be_written_leaves_nothing,
    rows_of_others_are_passed_over_and_block_nobody,
);

/// Counts what it is given, and takes its time.
#[derive(Default)]
struct Counts(Mutex<BTreeMap<i64, usize>>);

impl Counts {
    fn ids(&self) -> BTreeSet<i64> {
        self.0.lock().unwrap().keys().copied().collect()
    }
}

impl Deliver for Counts {
    fn deliver<'a>(&'a self, entries: &'a [OutboxEntry]) -> BoxFuture<'a, Vec<i64>> {
        let mut seen = self.0.lock().unwrap();
        for entry in entries {
            *seen.entry(entry.id).or_default() += 1;
        }
        drop(seen);
        Box::pin(async {
            tokio::time::sleep(Duration::from_millis(3)).await;
            entries.iter().map(|entry| entry.id).collect()
        })
    }
}

/// Has entries in its hands until it is told to let go; then they have arrived.
#[derive(Default)]
struct Holds {
    taken: Notify,
    go_on: Notify,
}

impl Deliver for Holds {
    fn deliver<'a>(&'a self, entries: &'a [OutboxEntry]) -> BoxFuture<'a, Vec<i64>> {
        self.taken.notify_one();
        Box::pin(async {
            self.go_on.notified().await;
            entries.iter().map(|entry| entry.id).collect()
        })
    }
}

async fn fill(ledger: &SqlLedger, count: usize) -> Vec<i64> {
    let commit = commit(ledger, (0..count).map(|n| put(&format!("s{n}"), 1, Some(5))).collect()).await;
    commit.outbox.iter().map(|entry| entry.id).collect()
}

async fn relay(ledger: &SqlLedger, max: usize, to: &dyn Deliver) -> tidegate_backend::Result<Relayed> {
    ledger.outbox().relay(max, to).await
}

async fn waiting(ledger: &SqlLedger) -> usize {
    ledger.outbox().pending().await.unwrap().count
}

/// Relays until nothing waits; at most for `bound`.
async fn drain(ledger: &SqlLedger, bound: Duration) -> Counts {
    let (counts, begun) = (Counts::default(), Instant::now());
    while waiting(ledger).await > 0 {
        assert!(begun.elapsed() < bound, "{} entries are stuck", waiting(ledger).await);
        relay(ledger, MAX_OUTBOX_BATCH, &counts).await.unwrap();
    }
    counts
}

fn hold(
    ledger: &Arc<SqlLedger>,
    max: usize,
) -> (Arc<Holds>, tokio::task::JoinHandle<tidegate_backend::Result<Relayed>>) {
    let (ledger, holds) = (ledger.clone(), Arc::new(Holds::default()));
    let held = holds.clone();
    (holds, tokio::spawn(async move { relay(&ledger, max, &*held).await }))
}

async fn another_node_passes_over_what_a_relay_has_in_its_hands(server: Arc<Server>) {
    let url = server.database();
    let nodes = [open(&url).await, open(&url).await];
    let ids = fill(&nodes[0], 30).await;
    let (holds, held) = hold(&nodes[0], 10);
    holds.taken.notified().await;
    let begun = Instant::now();
    let counts = Counts::default();
    assert_eq!(relay(&nodes[1], 100, &counts).await.unwrap(), Relayed { taken: 20, delivered: 20 });
    assert_eq!(relay(&nodes[1], 100, &counts).await.unwrap(), Relayed::default());
    nodes[1].outbox().mark_delivered(&ids).await.unwrap();
    assert!(!nodes[1].outbox().prune(Duration::ZERO).await.unwrap());
    commit(&nodes[1], vec![put("more", 1, Some(5))]).await;
    assert!(begun.elapsed() < Duration::from_secs(1), "nobody waits for a relay: {:?}", begun.elapsed());
    assert_eq!(waiting(&nodes[1]).await, 11);
    holds.go_on.notify_one();
    assert_eq!(held.await.unwrap().unwrap(), Relayed { taken: 10, delivered: 10 });
    assert_eq!(waiting(&nodes[1]).await, 1);
    assert_eq!(counts.ids().len(), 20);
}

async fn a_relay_whose_network_is_silent_gives_its_entries_back(server: Arc<Server>) {
    let url = server.database();
    let proxy = Proxy::start(server.port());
    let frozen = open(&url.replace(&format!(":{}/", server.port()), &format!(":{}/", proxy.port()))).await;
    let other = open(&url).await;
    let ids = fill(&other, 10).await;
    let (holds, held) = hold(&frozen, 10);
    holds.taken.notified().await;
    // As if its host was gone: the server hears nothing more.
    proxy.silence(true);
    let counts = drain(&other, Duration::from_secs(8)).await;
    assert_eq!(counts.ids(), ids.iter().copied().collect());
    let error = held.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

async fn connections_killed_while_relaying_lose_nothing(server: Arc<Server>) {
    let url = server.database();
    let nodes = [open(&url).await, open(&url).await];
    let stop = Arc::new(AtomicBool::new(false));
    let counts = Arc::new(Counts::default());
    let relays = nodes.clone().map(|node| {
        let (stop, counts) = (stop.clone(), counts.clone());
        tokio::spawn(async move {
            while !stop.load(Ordering::SeqCst) {
                if let Err(e) = relay(&node, 5, &*counts).await {
                    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
                }
            }
        })
    });
    let commits = tokio::spawn({
        let (node, stop) = (nodes[0].clone(), stop.clone());
        async move {
            let mut told = BTreeSet::new();
            for n in 0.. {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                let puts = (0..8).map(|sku| put(&format!("s{sku}"), 1, Some(n))).collect();
                told.extend(commit_at_last(&node, puts).await.0.outbox.iter().map(|entry| entry.id));
            }
            told
        }
    });
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        tokio::task::block_in_place(|| server.kill_connections());
    }
    stop.store(true, Ordering::SeqCst);
    let told = commits.await.unwrap();
    for relay in relays {
        relay.await.unwrap();
    }
    let fresh = open(&url).await;
    let rest = drain(&fresh, Duration::from_secs(10)).await;
    let seen: BTreeSet<i64> = counts.ids().union(&rest.ids()).copied().collect();
    assert!(told.len() > 50, "{}", told.len());
    assert!(told.is_subset(&seen), "{} entries were never delivered", told.difference(&seen).count());
}

/// A commit whose answer is lost, or that is tried again inside, tells exactly the entries that are in the table.
async fn answers_cut_off_anywhere_leave_what_was_committed(server: Arc<Server>) {
    let url = server.database();
    let proxy = Proxy::start(server.port());
    let ledger = open(&url.replace(&format!(":{}/", server.port()), &format!(":{}/", proxy.port()))).await;
    let mut random = StdRng::seed_from_u64(3);
    let mut told = BTreeSet::new();
    for round in 0..60 {
        let commands: Arc<[Command]> = (0..10).map(|n| put(&format!("s{n}"), 1, Some(round))).collect();
        let committing = tokio::spawn({
            let ledger = ledger.clone();
            async move { ledger.commit(commands).await }
        });
        tokio::time::sleep(Duration::from_micros(random.random_range(0..8_000))).await;
        proxy.cut_replies(1);
        let commit = committing.await.unwrap().unwrap();
        assert_eq!(commit.outbox.len(), 10);
        told.extend(commit.outbox.iter().map(|entry| entry.id));
        proxy.cut_replies(0);
    }
    let direct = open(&url).await;
    assert_eq!(drain(&direct, Duration::from_secs(10)).await.ids(), told);
    audit(&direct).await;
}

async fn a_batch_that_cannot_be_written_leaves_nothing(server: Arc<Server>) {
    let url = server.database();
    let ledger = open(&url).await;
    fill(&ledger, 1).await;
    // The batch is refused by the database after its card and its entry were written.
    server.sql(&url, "ALTER TABLE events ADD CONSTRAINT no_third_event CHECK (event_no <> 2)");
    commit(&ledger, vec![put("a", 9, None), place("first", &[("a", 1)])]).await;
    let before = waiting(&ledger).await;
    let bad = vec![put("s0", 1, Some(77)), put("new", 1, None), place("second", &[("a", 1)])];
    let error = ledger.commit(bad.into()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Command, "{error}");
    assert_eq!(waiting(&ledger).await, before);
    let entries = commit(&ledger, vec![put("s0", 1, Some(77))]).await.outbox;
    assert_eq!(ledger.outbox().states(&[entries[0].id]).await.unwrap(), [OutboxState::Waiting]);
}

async fn rows_of_others_are_passed_over_and_block_nobody(server: Arc<Server>) {
    let url = server.database();
    let ledger = open(&url).await;
    // One that nobody can read, older than all; one of a kind that a later Tidegate may know.
    let bytes = if server.is_mariadb() { "x'ff'" } else { "'\\xff'" };
    for row in [format!("(1, 0, {bytes}, NULL, 0)"), format!("(2, 9, {bytes}, NULL, 0)")] {
        server.sql(&url, &format!("INSERT INTO tg_outbox (id, kind, entry_key, floor, committed_at) VALUES {row}"));
    }
    let ids = fill(&ledger, 3).await;
    let counts = Counts::default();
    assert_eq!(relay(&ledger, 1, &counts).await.unwrap(), Relayed { taken: 1, delivered: 0 });
    assert_eq!(relay(&ledger, 100, &counts).await.unwrap(), Relayed { taken: 3, delivered: 3 });
    assert_eq!((counts.ids(), waiting(&ledger).await), (ids.iter().copied().collect(), 0));
    let replayed = ledger.outbox().replay(Duration::from_secs(60), None, 100).await.unwrap();
    assert_eq!(replayed.entries.len(), 3);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!ledger.outbox().prune(Duration::ZERO).await.unwrap());
    assert_eq!(server.sql(&url, "SELECT id FROM tg_outbox").trim(), "2", "what is not known is left alone");
}
