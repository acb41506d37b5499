//! A server without memory left.

use std::time::Duration;

use tidegate_backend::{DeadlineQueue, ErrorKind, QueueStore, Want};
use tidegate_conformance::servers::{Redis, Setup};
use tidegate_core::Millis;
use tidegate_core::queue::{Condition, Due, QueueName, Schedule, Settle, Settled, TaskId, Verdict};
use tidegate_redis::{Connector, RedisOptions};

use super::common;
use super::contract::open_on;

fn task(id: &str, due: Due) -> Schedule {
    Schedule { id: TaskId::parse(id).unwrap(), due, payload: vec![b'"'; 2].into(), condition: Condition::Absent }
}

/// What fills a server must be worked off without anybody's help: only what adds to it is refused.
#[tokio::test]
async fn a_full_server_refuses_new_tasks_and_lets_go_of_old_ones() {
    let redis = Redis::start_with(Setup::default().option("maxmemory-policy", "noeviction"));
    let queues = open_on(&redis.url(), "full").await;
    let queue = QueueName::parse("mail").unwrap();
    let tasks: Vec<Schedule> = (0..200).map(|n| task(&format!("t{n}"), Due::At(Millis(0)))).collect();
    queues.schedule(&queue, &tasks).await.unwrap();
    redis.tell(&["CONFIG", "SET", "maxmemory", "1"]);
    let mut left = 200;
    for round in 0..3 {
        let refused = queues.schedule(&queue, &[task("new", Due::In(0))]).await.unwrap_err();
        assert!(refused.kind() == ErrorKind::Unavailable && refused.to_string().contains("OOM"), "{refused}");
        assert_eq!(queues.connector().trouble(), None, "round {round}: it works for the rest");
        let want = Want { queue: queue.clone(), max: 60, lease_ms: 60_000 };
        let claimed = queues.claim(&[want]).await.unwrap().remove(0).tasks;
        assert_eq!(claimed.len(), 60);
        let id = |n: usize| claimed[n].id.clone();
        let settle = |n: usize, verdict: Verdict| Settle { id: id(n), receipt: claimed[n].receipt, verdict };
        let acks: Vec<Settle> = (0..50).map(|n| settle(n, Verdict::Ack)).collect();
        let settled = queues.settle(&queue, &acks).await.unwrap();
        assert!(settled.iter().all(|settled| *settled == Settled::Done), "{settled:?}");
        let back = [
            settle(50, Verdict::Release),
            settle(51, Verdict::Retry { delay_ms: Some(1_000), spread: 0, error: None }),
        ];
        assert!(queues.settle(&queue, &back).await.unwrap().iter().all(|settled| *settled == Settled::Done));
        let cancelled = queues.cancel(&queue, &[id(52), id(53)]).await.unwrap();
        assert_eq!(cancelled, [true, true]);
        left -= 52;
    }
    let stats = queues.stats(std::slice::from_ref(&queue)).await.unwrap().remove(0).unwrap();
    assert_eq!(stats.pending + stats.leased, left);
    redis.tell(&["CONFIG", "SET", "maxmemory", "0"]);
    queues.schedule(&queue, &[task("new", Due::In(0))]).await.unwrap();
}

/// An index of deadlines says of such a server that it is of no use, also where queues share its connection.
#[tokio::test]
async fn an_index_on_the_same_connection_still_gives_a_full_server_up() {
    let redis = Redis::start_with(Setup::default().option("maxmemory-policy", "noeviction"));
    let connector = Connector::start(RedisOptions::parse(&redis.url()).unwrap()).await.unwrap();
    let index = tidegate_redis::RedisDeadlines::open(connector.clone(), Default::default()).await.unwrap();
    let _queues = tidegate_redis::RedisQueues::open(connector.clone(), Default::default()).await.unwrap();
    redis.tell(&["CONFIG", "SET", "maxmemory", "1"]);
    let _ = index.schedule(&[(tidegate_core::OrderNo(1), Millis(0))]).await;
    common::until("it is given up", Duration::from_secs(5), || {
        connector.trouble().is_some_and(|why| why.contains("OOM"))
    })
    .await;
    redis.tell(&["CONFIG", "SET", "maxmemory", "0"]);
    common::until("it is used again", Duration::from_secs(10), || connector.trouble().is_none()).await;
    index.close().await;
}
