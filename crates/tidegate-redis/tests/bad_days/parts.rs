//! A part of the index cannot be used: it costs that part only, and comes back by itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_backend::clock::host_now;
use tidegate_backend::{DeadlineQueue, IndexState};
use tidegate_conformance::servers::{Cluster, Engine, Redis};
use tidegate_core::{Millis, OrderNo};
use tidegate_redis::RedisDeadlines;

use crate::common::{open_whole, until};

const PARTITIONS: i64 = 16;
const SECOND: Duration = Duration::from_secs(1);

/// Orders of every partition, all due.
fn due(orders: std::ops::Range<i64>) -> Vec<(OrderNo, Millis)> {
    let now = host_now();
    orders.map(|order| (OrderNo(order), now.plus(-1))).collect()
}

/// Claims until nothing more comes: the partitions of what came, and how long the slowest claim took.
async fn claimed(q: &RedisDeadlines) -> (Vec<i64>, Duration) {
    let (mut orders, mut slowest) = (Vec::new(), Duration::ZERO);
    loop {
        let began = Instant::now();
        let claims = q.claim(host_now(), 512, 60_000).await.unwrap();
        slowest = slowest.max(began.elapsed());
        if claims.is_empty() {
            break;
        }
        q.ack(&claims.iter().map(|claim| (claim.order, claim.receipt)).collect::<Vec<_>>()).await.unwrap();
        orders.extend(claims.into_iter().map(|claim| claim.order.0));
    }
    orders.sort_unstable();
    (orders, slowest)
}

/// Partition 0 fails from now on: only its orders do, calls of the others go on, and what it was told meanwhile reaches it
/// once `mend` has mended it.
async fn only_the_first_fails(q: &Arc<RedisDeadlines>, mend: impl AsyncFnOnce()) {
    let orders = due(1_000..1_000 + 2 * PARTITIONS);
    q.schedule(&orders).await.unwrap();
    assert_eq!(q.contains(&orders).await.unwrap().len(), orders.len());
    q.next_at().await.unwrap();
    until("it is noticed", 2 * SECOND, || q.failing().is_some()).await;
    assert!(q.failing().unwrap().contains("{tg:shop:d0}"), "{:?}", q.failing());
    for order in 0..2 * PARTITIONS {
        assert_eq!(q.fails(OrderNo(order)), order % PARTITIONS == 0, "{order}");
    }
    assert_eq!(q.state(), IndexState::Whole);
    let is_first = |(order, _): &&(OrderNo, Millis)| order.0 % PARTITIONS == 0;
    let others: Vec<i64> = orders.iter().filter(|order| !is_first(order)).map(|(order, _)| order.0).collect();
    let (got, slowest) = claimed(q).await;
    assert_eq!(got, others);
    assert!(slowest < SECOND / 4, "nobody waits for it: {slowest:?}");
    // It stays out, however often it is tried.
    let began = Instant::now();
    while began.elapsed() < 4 * SECOND {
        assert!(q.fails(OrderNo(0)) && !q.fails(OrderNo(1)) && q.next_at().await.unwrap().is_none());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(
        q.contains(&orders).await.unwrap(),
        vec![true; orders.len()].iter().zip(&orders).map(|(_, order)| is_first(&order)).collect::<Vec<_>>()
    );
    mend().await;
    until("it is back", 5 * SECOND, || q.failing().is_none()).await;
    let first: Vec<i64> = orders.iter().filter(is_first).map(|(order, _)| order.0).collect();
    until_claimed(q, &first).await;
}

async fn until_claimed(q: &RedisDeadlines, wanted: &[i64]) {
    let began = Instant::now();
    let mut got = Vec::new();
    while got.len() < wanted.len() {
        got.extend(claimed(q).await.0);
        assert!(began.elapsed() < 3 * SECOND, "only {got:?} came");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(got, wanted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_holds_something_else() {
    let redis = Redis::start();
    for key in ["{tg:shop:d0}:due", "{tg:shop:d0}:held"] {
        redis.tell(&["FLUSHALL"]);
        let q = open_whole(&redis.url()).await;
        redis.tell(&["SET", key, "x"]);
        only_the_first_fails(&q, async || drop(redis.tell(&["DEL", key]))).await;
        q.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_stays_half_moved() {
    let cluster = tokio::task::spawn_blocking(|| Cluster::start(Engine::default(), false)).await.unwrap();
    let q = open_whole(&cluster.url()).await;
    // Every key of the partition is there, so that one can be moved.
    q.schedule(&due(0..1)).await.unwrap();
    assert_eq!(q.contains(&due(0..1)).await.unwrap().len(), 1);
    until_claimed(&q, &[0]).await;
    let slot = cluster.slot("{tg:shop:d0}:due");
    let from = cluster.owner(slot, 0).unwrap();
    let to = (from + 1) % 3;
    cluster.open_slot(slot, from, to);
    cluster.move_key("{tg:shop:d0}:held", from, to);
    only_the_first_fails(&q, async || cluster.move_slot_of(slot, from, to)).await;
}
