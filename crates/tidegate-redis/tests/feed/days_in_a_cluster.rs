//! A Cluster whose slots move and whose masters are replaced.

use std::time::{Duration, Instant};

use tidegate_backend::FeedStore;
use tidegate_backend::feed::{Event, Reads};
use tidegate_conformance::servers::{Cluster, Engine};
use tidegate_core::feed::Change;

use super::common::until;
use super::shelf::{NOW, SECOND, author_fill, entry, followed, news, open, part, published, until_read, user};

fn ask_news() -> Reads {
    Reads { news: true, ..Reads::default() }
}

/// Some of every partition.
fn all(prev: u64, version: u64) -> Vec<Change> {
    (0..60).map(|n| published(&format!("u{n}"), prev, version, &[entry(5, &format!("p{n}-{version}"))])).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_moves_with_its_copies_and_news() {
    let cluster = Cluster::start(Engine::default(), false);
    let (a, b) = (open(&cluster.url(), "x").await, open(&cluster.url(), "x").await);
    for feed in [&a, &b] {
        news(feed).await;
    }
    a.apply(&all(0, 9), NOW).await.unwrap();
    assert_eq!(news(&b).await.events.len(), 60);
    let slot = cluster.slot("{tg:x:f3}:news");
    let from = cluster.owner(slot, 0).unwrap();
    cluster.move_slot(slot, (from + 1) % 3);
    a.apply(&all(9, 10), NOW).await.unwrap();
    let told = until_read(&b, ask_news()).await.news;
    // That it is another server may have been seen already: then nobody knows whether it has everything.
    assert!(told.lost || told.events.len() >= 60, "{} of 60", told.events.len());
    for n in 0..60 {
        let part = part(&b, &format!("u{n}")).await.unwrap();
        assert_eq!((part.version, part.entries.len()), (10, 2));
    }
    // Open, with some of its keys here and some there: a call fails or is done whole, never by half.
    cluster.open_slot(slot, (from + 1) % 3, from);
    cluster.move_key("{tg:x:f3}:news", (from + 1) % 3, from);
    let began = Instant::now();
    let answer = a.apply(&all(10, 11), NOW).await;
    assert!(began.elapsed() < 10 * SECOND, "{answer:?}");
    let read = b.read(Reads { heads: (0..60).map(|n| user(&format!("u{n}"))).collect(), ..Reads::default() }).await;
    if let Ok(found) = read {
        assert!(found.heads.iter().flatten().all(|head| [10, 11].contains(&head.version)));
    }
    cluster.move_slot_of(slot, (from + 1) % 3, from);
    // The relay repeats what was not answered.
    let began = Instant::now();
    while let Err(e) = a.apply(&all(10, 11), NOW).await {
        assert!(began.elapsed() < 10 * SECOND, "{e}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    until_read(&b, ask_news()).await;
    for n in 0..60 {
        assert!(part(&b, &format!("u{n}")).await.is_none_or(|part| part.version == 11), "u{n}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_is_replaced() {
    let cluster = Cluster::start(Engine::default(), true);
    let (a, b) = (open(&cluster.url(), "x").await, open(&cluster.url(), "x").await);
    for feed in [&a, &b] {
        news(feed).await;
    }
    a.apply(&all(0, 9), NOW).await.unwrap();
    assert_eq!(news(&b).await.events.len(), 60);
    let slot = cluster.slot("{tg:x:f0}:news");
    let master = cluster.owner(slot, 5).unwrap();
    // What comes now never reaches the replica: it cannot come back after it was cut off.
    cluster.nodes[master + 3].freeze();
    cluster.nodes[master].tell(&["CLIENT", "KILL", "TYPE", "replica"]);
    a.apply(&all(9, 10), NOW).await.unwrap();
    cluster.nodes[master].kill();
    cluster.nodes[master + 3].thaw();
    let asked = (master + 1) % 3;
    until("the replica is promoted", 20 * SECOND, || cluster.owner(slot, asked).is_some_and(|n| n != master)).await;
    // The one that told it knows that it is gone.
    assert!(until_read(&a, ask_news()).await.news.lost);
    let began = Instant::now();
    while let Err(e) = a.apply(&all(10, 11), NOW).await {
        assert!(began.elapsed() < 20 * SECOND, "{e}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let told = until_read(&b, ask_news()).await.news;
    assert!(told.lost || all(10, 11).iter().all(|change| told.events.contains(&Event::of(change))));
    // The other one hears of it within seconds, though it has told nothing and its connection is the same.
    let (mut lost, began) = (told.lost, Instant::now());
    while !lost {
        assert!(began.elapsed() < 20 * SECOND, "it is never said");
        tokio::time::sleep(Duration::from_millis(50)).await;
        lost = until_read(&b, ask_news()).await.news.lost;
    }
    for n in 0..60 {
        // Unknown where a change is missing.
        assert!(part(&b, &format!("u{n}")).await.is_none_or(|part| part.version == 11), "u{n}");
    }
    assert!(a.fill(vec![author_fill("new", 9, &[])]).await.unwrap()[0]);
    a.apply(&[followed("ann", 0, 9, "bob")], NOW).await.unwrap();
}
