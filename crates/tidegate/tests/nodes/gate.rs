//! The gate on two nodes: it never says "sold out" falsely, told or not.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate::core::RefusalCode;

use crate::fakes::link;
use crate::pair::{Pair, pair, until};

fn refused(answer: &tidegate::Result<tidegate::Placed>) -> Option<RefusalCode> {
    answer.as_ref().err().and_then(tidegate::Error::refusal).map(|refusal| refusal.code)
}

/// One unit goes to and fro: what one node gives back the other sells, in the very next call.
async fn to_and_fro(pair: &Pair) {
    for round in 0..100 {
        let (seller, buyer) = if round % 2 == 0 { (&pair.a, &pair.b) } else { (&pair.b, &pair.a) };
        let (held, wanted) = (format!("held{round}"), format!("wanted{round}"));
        seller.place(&held).await.expect("the unit is free");
        assert_eq!(refused(&buyer.place(&wanted).await), Some(RefusalCode::InsufficientStock), "round {round}");
        // The buyer's gate is sure of it now.
        assert_eq!(refused(&buyer.place(&wanted).await), Some(RefusalCode::InsufficientStock), "round {round}");
        seller.cancel(&held).await;
        let released = Instant::now();
        buyer.place(&wanted).await.unwrap_or_else(|e| panic!("round {round}: a false sold out: {e}"));
        assert!(released.elapsed() < Duration::from_millis(100), "{:?}", released.elapsed());
        buyer.cancel(&wanted).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_released_unit_is_sold_on_the_other_node_at_once_without_a_link() {
    let pair = pair(true, 1, [None, None]).await;
    to_and_fro(&pair).await;
    pair.check().await;
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_released_unit_is_sold_on_the_other_node_at_once_with_a_link() {
    let (end_a, end_b, _) = link();
    let pair = pair(true, 1, [Some(end_a), Some(end_b)]).await;
    to_and_fro(&pair).await;
    pair.check().await;
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_crowds_buy_every_unit_once() {
    let (end_a, end_b, _) = link();
    let pair = Arc::new(pair(true, 300, [Some(end_a), Some(end_b)]).await);
    let buyers: Vec<_> = (0..800)
        .map(|i| {
            let pair = Arc::clone(&pair);
            tokio::spawn(async move {
                let node = if i % 2 == 0 { &pair.a } else { &pair.b };
                node.place(&format!("o{i}")).await
            })
        })
        .collect();
    let mut sold = 0;
    for buyer in buyers {
        match buyer.await.expect("no panic") {
            Ok(_) => sold += 1,
            other => assert_eq!(refused(&other), Some(RefusalCode::InsufficientStock)),
        }
    }
    assert_eq!(sold, 300);
    pair.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_other_gate_is_told_and_a_gap_makes_it_look() {
    let (end_a, end_b, cut) = link();
    let pair = pair(true, 10, [Some(end_a), Some(Arc::clone(&end_b) as _)]).await;
    until("told of the SKU", Duration::from_secs(2), async || pair.b.believes("x") == Some(10)).await;
    pair.a.place("o1").await.expect("there is stock");
    let took = until("told of the sale", Duration::from_secs(2), async || pair.b.believes("x") == Some(9)).await;
    assert!(took < Duration::from_millis(100), "{took:?}");

    cut.store(true, std::sync::atomic::Ordering::SeqCst);
    assert!(pair.b.degraded().iter().any(|reason| reason.starts_with("bus-unavailable")), "{:?}", pair.b.degraded());
    pair.a.place("o2").await.expect("there is stock");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(pair.b.believes("x"), Some(9), "nobody told it");
    cut.store(false, std::sync::atomic::Ordering::SeqCst);
    end_b.tell_of_a_gap();
    until("it has looked", Duration::from_secs(5), async || pair.b.believes("x") == Some(8)).await;
    assert_eq!(pair.b.degraded(), Vec::<String>::new());
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_comparison_under_load_finds_no_drift_that_is_none() {
    let (end_a, end_b, _) = link();
    let pair = Arc::new(pair(true, 1_000, [Some(end_a), Some(end_b)]).await);
    let load = {
        let pair = Arc::clone(&pair);
        tokio::spawn(async move {
            let begun = Instant::now();
            for i in 0.. {
                if begun.elapsed() > Duration::from_secs(3) {
                    return i;
                }
                let node = if i % 2 == 0 { &pair.a } else { &pair.b };
                node.place(&format!("o{i}")).await.expect("there is stock");
                node.cancel(&format!("o{i}")).await;
            }
            0
        })
    };
    while !load.is_finished() {
        pair.check().await;
    }
    assert!(load.await.expect("no panic") > 100);
    pair.check().await;
}
