//! The building blocks, on real servers.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::time::Duration;

use tidegate_backend::ErrorKind;
use tidegate_conformance::servers::{Proxy, Redis};
use tidegate_redis::{
    Connector, OrderStatus, RedisOptions, StatusChange, StatusOutcome, StockAnswer, StockCounter, StockOperation,
};

async fn connector(url: &str) -> Connector {
    Connector::start(RedisOptions::parse(url).unwrap()).await.unwrap()
}

fn done(left: &[i64], repeated: bool) -> StockAnswer {
    StockAnswer::Done { left: left.to_vec(), repeated }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_is_done_once_and_never_below_zero() {
    let redis = Redis::start();
    let stock = StockCounter::new(connector(&redis.url()).await);
    let take = |id: &str, units| StockOperation::take(id, &[("mug", units)]);
    assert_eq!(stock.run(&take("a", 1)).await.unwrap(), StockAnswer::Unknown { sku: "mug".to_owned() });
    stock.set("mug", 10).await.unwrap();
    assert_eq!(stock.run(&take("a", 4)).await.unwrap(), done(&[6], false));
    assert_eq!(stock.run(&take("b", 3)).await.unwrap(), done(&[3], false));
    assert_eq!(stock.run(&take("a", 4)).await.unwrap(), done(&[6], true), "the first answer");
    assert_eq!(stock.run(&take("a", 3)).await.unwrap(), StockAnswer::IdReused);
    let short = StockAnswer::Short { sku: "mug".to_owned(), available: 3 };
    assert_eq!(stock.run(&take("c", 4)).await.unwrap(), short);
    let back = StockOperation::give_back("a-back", &[("mug", 4)]);
    assert_eq!(stock.run(&back).await.unwrap(), done(&[7], false));
    assert_eq!(stock.run(&back).await.unwrap(), done(&[7], true));
    assert_eq!(stock.run(&take("c", 4)).await.unwrap(), done(&[3], false), "a refusal is not remembered");
    assert_eq!(stock.available(&["mug", "cup"]).await.unwrap(), [Some(3), None]);
    let ttl: i64 = redis.tell(&["TTL", "{tg:shop:s:mug}:op:a"]).parse().unwrap();
    assert!((3_590..=3_600).contains(&ttl), "{ttl}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_skus_are_taken_together_or_not_at_all() {
    let redis = Redis::start();
    let stock = StockCounter::new(connector(&redis.url()).await);
    stock.set("{sale}mug", 5).await.unwrap();
    stock.set("{sale}cup", 1).await.unwrap();
    let take = |id: &str, mugs, cups| StockOperation::take(id, &[("{sale}mug", mugs), ("{sale}cup", cups)]);
    let short = StockAnswer::Short { sku: "{sale}cup".to_owned(), available: 1 };
    assert_eq!(stock.run(&take("a", 2, 2)).await.unwrap(), short);
    assert_eq!(stock.run(&take("a", 2, 1)).await.unwrap(), done(&[3, 0], false));
    for wrong in [
        StockOperation::take("b", &[("mug", 1), ("cup", 1)]),
        StockOperation::take("b", &[("mug", 1), ("mug", 1)]),
        StockOperation::take("b", &[("mug", 0)]),
        StockOperation::take("b", &[("mug", -1), ("mug", 1)]),
        StockOperation::take("b", &[]),
        StockOperation::take("", &[("mug", 1)]),
        StockOperation::take("b", &[("a\nb", 1)]),
        StockOperation::take("b", &[("mug", i64::MAX)]),
    ] {
        assert_eq!(stock.run(&wrong).await.unwrap_err().kind(), ErrorKind::Command, "{wrong:?}");
    }
    assert!(stock.set("mug", -1).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_takes_exactly_what_there_is() {
    let redis = Redis::start();
    let stock = StockCounter::new(connector(&redis.url()).await);
    stock.set("hot", 1_000).await.unwrap();
    let crowd = (0..20).map(|who| {
        let stock = stock.clone();
        tokio::spawn(async move {
            let operations: Vec<_> =
                (0..100).map(|n| StockOperation::take(&format!("{who}-{n}"), &[("hot", 1)])).collect();
            // Each twice, as an impatient client does.
            let twice = [stock.batch(&operations).await, stock.batch(&operations).await].concat_answers();
            twice.iter().filter(|answer| matches!(answer, StockAnswer::Done { repeated: false, .. })).count()
        })
    });
    let mut sold = 0;
    for one in crowd {
        sold += one.await.unwrap();
    }
    assert_eq!((sold, stock.available(&["hot"]).await.unwrap()), (1_000, vec![Some(0)]));
}

trait ConcatAnswers {
    fn concat_answers(self) -> Vec<StockAnswer>;
}

impl<E: std::fmt::Debug> ConcatAnswers for [Vec<Result<StockAnswer, E>>; 2] {
    fn concat_answers(self) -> Vec<StockAnswer> {
        self.into_iter().flatten().map(Result::unwrap).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_is_asked_for_again() {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.port());
    let stock = StockCounter::new(connector(&format!("redis://127.0.0.1:{}", proxy.port())).await);
    stock.set("mug", 101).await.unwrap();
    // The server knows the script from here on.
    stock.run(&StockOperation::take("first", &[("mug", 1)])).await.unwrap();
    for n in 0..20 {
        let take = StockOperation::take(&n.to_string(), &[("mug", 5)]);
        proxy.cut_replies(1);
        let mut answer = stock.run(&take).await;
        for _ in 0..100 {
            if answer.is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            answer = stock.run(&take).await;
        }
        assert_eq!(answer.unwrap(), done(&[95 - n * 5], true));
    }
    // A batch survives a server that forgot the script, too.
    redis.tell(&["SCRIPT", "FLUSH"]);
    let again: Vec<_> = (0..20).map(|n: i64| StockOperation::take(&n.to_string(), &[("mug", 5)])).collect();
    assert!(
        stock.batch(&again).await.iter().all(|answer| matches!(answer, Ok(StockAnswer::Done { repeated: true, .. })))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counters_of_a_cluster_are_spread() {
    let cluster = common::shared_cluster();
    let stock = StockCounter::new(connector(&cluster.url()).await);
    let skus: Vec<String> = (0..30).map(|n| format!("sku-{n}")).collect();
    for sku in &skus {
        stock.set(sku, 1).await.unwrap();
    }
    let all: Vec<_> = skus.iter().map(|sku| StockOperation::take(sku, &[(sku, 1)])).collect();
    for repeated in [false, true] {
        let answers = stock.batch(&all).await;
        assert!(answers.into_iter().all(|answer| answer.unwrap() == done(&[0], repeated)));
    }
    let names: Vec<&str> = skus.iter().map(String::as_str).collect();
    assert!(stock.available(&names).await.unwrap().iter().all(|units| *units == Some(0)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_changes_as_allowed_and_the_hash_lives_on() {
    let redis = Redis::start();
    let status = OrderStatus::new(connector(&redis.url()).await).ttl(Duration::from_secs(100));
    let change = |to, from| StatusChange { key: "order:7", to, from, fields: &[("by", "test")] };
    assert_eq!(status.change(&change("paid", None)).await.unwrap(), StatusOutcome::Unknown);
    redis.tell(&["HSET", "order:7", "status", "pending", "total", "5"]);
    redis.tell(&["EXPIRE", "order:7", "50"]);
    let pending = || "pending".to_owned();
    assert_eq!(status.change(&change("fulfilled", None)).await.unwrap(), StatusOutcome::Illegal { now: pending() });
    assert_eq!(
        status.change(&change("cancelled", Some("paid"))).await.unwrap(),
        StatusOutcome::Unexpected { now: pending() }
    );
    assert_eq!(redis.tell(&["HGET", "order:7", "by"]), "", "a refusal sets nothing");
    assert!(redis.tell(&["TTL", "order:7"]).parse::<i64>().unwrap() <= 50);
    assert_eq!(
        status.change(&change("paid", Some("pending"))).await.unwrap(),
        StatusOutcome::Changed { from: pending() }
    );
    assert_eq!(status.change(&change("paid", Some("pending"))).await.unwrap(), StatusOutcome::Already);
    assert_eq!(redis.tell(&["HMGET", "order:7", "status", "by", "total"]), "paid\ntest\n5");
    let ttl: i64 = redis.tell(&["TTL", "order:7"]).parse().unwrap();
    assert!((98..=100).contains(&ttl), "{ttl}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transitions_and_field_are_the_callers() {
    let redis = Redis::start();
    let status =
        OrderStatus::new(connector(&redis.url()).await).field("state").transitions(&[("new", "sent"), ("sent", "new")]);
    redis.tell(&["HSET", "o", "state", "new"]);
    let change = |to| StatusChange { key: "o", to, from: None, fields: &[] };
    for (to, from) in [("sent", "new"), ("new", "sent"), ("sent", "new")] {
        assert_eq!(status.change(&change(to)).await.unwrap(), StatusOutcome::Changed { from: from.to_owned() });
    }
    assert_eq!(status.change(&change("paid")).await.unwrap(), StatusOutcome::Illegal { now: "sent".to_owned() });
    let wrong = StatusChange { fields: &[("state", "paid")], ..change("new") };
    assert_eq!(status.change(&wrong).await.unwrap_err().kind(), ErrorKind::Command);
}
