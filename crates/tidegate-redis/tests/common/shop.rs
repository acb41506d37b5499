//! A ledger in memory and nodes that work on it as Tidegate does: claim, decide again from the row, acknowledge; rebuild
//! when told; sweep every second.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tidegate_backend::clock::host_now;
use tidegate_backend::{DeadlineQueue, IndexState, Retry};
use tidegate_core::{Millis, OrderNo};
use tidegate_redis::RedisDeadlines;
use tokio::task::JoinSet;

const LEASE_MS: i64 = 5_000;

#[derive(Debug, Clone, Copy)]
pub struct Row {
    pub due: Millis,
    pub done: Option<Millis>,
    /// How often a worker held it, whether or not anything was left to do.
    pub deliveries: u32,
}

/// The ledger, and the tasks of its nodes.
#[derive(Default)]
pub struct Shop {
    rows: Arc<Mutex<BTreeMap<i64, Row>>>,
    rebuilds: Arc<AtomicUsize>,
    tasks: JoinSet<()>,
}

impl Shop {
    fn rows(&self) -> MutexGuard<'_, BTreeMap<i64, Row>> {
        self.rows.lock().unwrap()
    }

    /// Commits an order and schedules its deadline; the index may lose it, the ledger does not.
    pub async fn place(&self, queue: &RedisDeadlines, order: i64, in_ms: i64) {
        let due = host_now().plus(in_ms);
        self.commit(order, due);
        queue.schedule(&[(OrderNo(order), due)]).await.unwrap();
    }

    /// Commits an order only.
    pub fn commit(&self, order: i64, due: Millis) {
        self.rows().insert(order, Row { due, done: None, deliveries: 0 });
    }

    /// Starts the workers of a node.
    pub fn run(&mut self, queue: &Arc<RedisDeadlines>) {
        self.tasks.spawn(work(Arc::clone(queue), Arc::clone(&self.rows)));
        self.tasks.spawn(rebuild(Arc::clone(queue), Arc::clone(&self.rows), Arc::clone(&self.rebuilds)));
        self.tasks.spawn(sweep(Arc::clone(queue), Arc::clone(&self.rows)));
    }

    /// Waits until every order's deadline was acted on; the latest lateness, in milliseconds.
    pub async fn all_done(&self, limit: Duration) -> i64 {
        super::until("every deadline is acted on", limit, || self.rows().values().all(|row| row.done.is_some())).await;
        let rows = self.rows();
        let lateness = |row: &Row| row.done.unwrap().since(row.due);
        assert!(rows.values().all(|row| lateness(row) >= 0), "nothing is early");
        rows.values().map(lateness).max().unwrap_or(0)
    }

    /// The lateness of one order.
    pub fn lateness(&self, order: i64) -> Option<i64> {
        let row = *self.rows().get(&order)?;
        Some(row.done?.since(row.due))
    }

    /// How often an index was filled again.
    pub fn rebuilds(&self) -> usize {
        self.rebuilds.load(Ordering::SeqCst)
    }

    pub fn undone(&self) -> usize {
        self.rows().values().filter(|row| row.done.is_none()).count()
    }
}

type Rows = Arc<Mutex<BTreeMap<i64, Row>>>;

async fn work(queue: Arc<RedisDeadlines>, rows: Rows) {
    loop {
        match queue.claim(host_now(), 512, LEASE_MS).await {
            Ok(claims) if claims.is_empty() => wait(&queue).await,
            Ok(claims) => {
                let mut done = Vec::new();
                let mut retries = Vec::new();
                let now = host_now();
                for claim in claims {
                    let mut rows = rows.lock().unwrap();
                    let Some(row) = rows.get_mut(&claim.order.0) else { continue };
                    row.deliveries += 1;
                    if now < row.due {
                        retries.push(Retry { order: claim.order, receipt: claim.receipt, at: row.due, charge: false });
                        continue;
                    }
                    row.done.get_or_insert(now);
                    done.push((claim.order, claim.receipt));
                }
                // What cannot be acknowledged is delivered again, and nothing is left to do then.
                let _ = queue.ack(&done).await;
                let _ = queue.retry(&retries).await;
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn wait(queue: &RedisDeadlines) {
    let due = async {
        match queue.next_at().await {
            Ok(Some(at)) => {
                let left = u64::try_from(at.since(host_now())).unwrap_or(0);
                tokio::time::sleep(Duration::from_millis(left)).await;
            }
            _ => std::future::pending().await,
        }
    };
    tokio::select! {
        () = queue.earlier() => {}
        () = due => {}
        () = tokio::time::sleep(Duration::from_millis(500)) => {}
    }
}

async fn rebuild(queue: Arc<RedisDeadlines>, rows: Rows, rebuilds: Arc<AtomicUsize>) {
    loop {
        tokio::time::sleep(Duration::from_millis(20)).await;
        if let IndexState::Incomplete(token) = queue.state() {
            let all: Vec<_> = pending(&rows, Millis(i64::MAX));
            let _ = queue.schedule(&all).await;
            if queue.rebuilt(token).await.is_ok() {
                rebuilds.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
}

async fn sweep(queue: Arc<RedisDeadlines>, rows: Rows) {
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let overdue = pending(&rows, host_now().plus(-500));
        let Ok(there) = queue.contains(&overdue).await else { continue };
        let missed: Vec<_> = overdue.iter().zip(there).filter(|(_, there)| !there).map(|(d, _)| *d).collect();
        let _ = queue.schedule(&missed).await;
    }
}

fn pending(rows: &Rows, before: Millis) -> Vec<(OrderNo, Millis)> {
    let rows = rows.lock().unwrap();
    rows.iter()
        .filter(|(_, row)| row.done.is_none() && row.due < before)
        .map(|(n, row)| (OrderNo(*n), row.due))
        .collect()
}
