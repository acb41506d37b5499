//! One name, one ledger, one number of partitions.

use std::time::Duration;

use tidegate_backend::{DeadlineQueue, ErrorKind, IndexState, LedgerId, Result};
use tidegate_conformance::servers::{Cluster, Engine, Redis};
use tidegate_core::{Millis, OrderNo};
use tidegate_redis::{Connector, DeadlineOptions, RedisDeadlines, RedisOptions};

use crate::common::{deadlines, until};

const SECOND: Duration = Duration::from_secs(1);
const OURS: LedgerId = LedgerId(7);
const OTHER: LedgerId = LedgerId(0xff);

async fn open(url: &str, ledger: LedgerId, partitions: usize) -> Result<RedisDeadlines> {
    let connector = Connector::start(RedisOptions::parse(url).unwrap()).await?;
    RedisDeadlines::open(connector, DeadlineOptions { partitions, ledger: Some(ledger) }).await
}

async fn refused(url: &str, ledger: LedgerId, partitions: usize, words: &[&str]) {
    let refused = open(url, ledger, partitions).await.err().expect("refused");
    assert_eq!(refused.kind(), ErrorKind::Configuration, "{refused}");
    assert!(words.iter().all(|word| refused.to_string().contains(word)), "{refused}");
}

fn why(q: &RedisDeadlines) -> String {
    match q.state() {
        IndexState::Unavailable(why) => why,
        other => format!("{other:?}"),
    }
}

/// Fills it with `count` deadlines, as its owner would.
async fn fill(q: &RedisDeadlines, count: i64) {
    until("it wants to be filled", 3 * SECOND, || matches!(q.state(), IndexState::Incomplete(_))).await;
    let IndexState::Incomplete(token) = q.state() else { panic!("{:?}", q.state()) };
    q.schedule(&deadlines(0..count)).await.unwrap();
    q.rebuilt(token).await.unwrap();
    assert_eq!(q.state(), IndexState::Whole);
}

async fn a_name_is_one_ledgers(url: &str) {
    let q = open(url, OURS, 16).await.unwrap();
    fill(&q, 10).await;
    let second = open(url, OURS, 16).await.unwrap();
    assert_eq!(second.state(), IndexState::Whole, "another node of the same ledger");
    refused(url, OTHER, 16, &["another ledger", "00000000000000ff", "`[redis] name`"]).await;
    second.close().await;
    q.close().await;
    refused(url, OTHER, 16, &["another ledger"]).await;
    let named = RedisOptions::parse(url).unwrap().name("other").unwrap();
    let connector = Connector::start(named).await.unwrap();
    RedisDeadlines::open(connector, DeadlineOptions { partitions: 16, ledger: Some(OTHER) }).await.unwrap();
}

async fn partitions_change_while_nobody_is_there(url: &str) {
    let q = open(url, OURS, 16).await.unwrap();
    q.schedule(&deadlines(0..100)).await.unwrap();
    assert_eq!(q.len().await.unwrap(), 100);
    refused(url, OURS, 5, &["into 16 partitions", "`[redis] partitions`"]).await;
    assert_eq!(q.state(), IndexState::Whole);
    q.close().await;
    // Back again, too: what was left of the old number is nobody's idea of a whole index.
    for partitions in [5, 16] {
        let q = open(url, OURS, partitions).await.unwrap();
        assert_eq!(q.len().await.unwrap(), 0);
        fill(&q, 100).await;
        assert_eq!(q.contains(&deadlines(0..100)).await.unwrap(), vec![true; 100]);
        q.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_is_one_ledgers_and_divided_in_one_way() {
    let redis = Redis::start();
    a_name_is_one_ledgers(&redis.url()).await;
    partitions_change_while_nobody_is_there(&redis.url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_in_a_cluster() {
    let cluster = Cluster::start(Engine::default(), false);
    a_name_is_one_ledgers(&cluster.url()).await;
    partitions_change_while_nobody_is_there(&cluster.url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_another_took_while_redis_was_away() {
    let redis = Redis::start();
    redis.kill();
    let late = open(&redis.url(), OTHER, 16).await.unwrap();
    assert!(why(&late).contains("cannot be reached"), "{}", why(&late));
    redis.restart();
    redis.tell(&["SET", "{tg:shop}:owner", &format!("{OURS} 16")]);
    until("it says why", 3 * SECOND, || why(&late).contains("another ledger")).await;
    // Nothing of it gets to the other's index.
    late.schedule(&[(OrderNo(1), Millis(1))]).await.unwrap();
    assert!(late.claim(Millis(10), 5, 1_000).await.is_err());
    tokio::time::sleep(SECOND).await;
    assert_eq!(redis.tell(&["HLEN", "{tg:shop}:nodes"]), "0");
    assert_eq!(redis.tell(&["KEYS", "*:due"]), "");
    redis.tell(&["FLUSHALL"]);
    until("it takes the name that is free now", 3 * SECOND, || matches!(late.state(), IndexState::Incomplete(_))).await;
    assert_eq!(redis.tell(&["GET", "{tg:shop}:owner"]), format!("{OTHER} 16"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_another_took_after_everything_was_lost() {
    let redis = Redis::start();
    let q = open(&redis.url(), OURS, 16).await.unwrap();
    fill(&q, 10).await;
    redis.tell(&["FLUSHALL"]);
    redis.tell(&["SET", "{tg:shop}:owner", &format!("{OTHER} 16")]);
    until("it says why", SECOND, || why(&q).contains("another ledger")).await;
    redis.tell(&["DEL", "{tg:shop}:owner"]);
    fill(&q, 10).await;
    assert_eq!(q.len().await.unwrap(), 10);
}
