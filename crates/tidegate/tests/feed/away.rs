//! A store that loses everything, or does not answer.

use std::sync::Arc;
use std::time::Duration;

use tidegate::feed::*;
use tidegate_core::Map;

use crate::common::*;

/// Five on, five off, five on: fifteen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f11_what_is_published_while_the_store_is_away_leaves_no_hole() {
    let world = World::new(2, exact());
    world.follow("me", "ann").await;
    let mut right = Vec::new();
    for part in 0..3 {
        world.nodes.iter().for_each(|node| node.store.faults.set_down(part == 1));
        for n in 0..5 {
            let name = format!("p{part}{n}");
            world.text("ann", &name, 100 - 5 * part - n).await;
            right.insert(0, name);
            let page = world.feed().page(&ask("me", 20)).await.unwrap();
            let roots: Vec<_> = page.items.iter().map(|item| item.root.id.to_string()).collect();
            assert_eq!(roots, right, "part {part}");
        }
    }
    world.settle().await;
    assert_eq!(world.roots("me", 20).await, right);
    assert_eq!(world.nodes[1].feed.page(&ask("me", 20)).await.unwrap().items.len(), 15);
}

/// Not even where a process needs longer for all it lacks than a lease lasts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_slow_ledger_each_author_is_read_once() {
    let mut options = exact();
    options.ledger_reads = 1;
    let world = World::new(2, options);
    let authors = 6 * 512;
    let follow = |n: usize| Command::Follow { user: user("me"), other: user(&format!("u{n}")), since: None };
    world.feed().batch((0..authors).map(follow).collect()).await.unwrap();
    world.text("u77", "p", 5).await;
    world.nodes[0].store.flush();
    world.ledger.authors_read.lock().unwrap().clear();
    world.ledger.authors_take.store(900, std::sync::atomic::Ordering::SeqCst);
    // Both processes are asked at once.
    let [one, other] = [0, 1].map(|node| {
        let feed = world.nodes[node].feed.clone();
        tokio::spawn(async move { feed.page(&ask("me", 20)).await.unwrap() })
    });
    for page in [one.await.unwrap(), other.await.unwrap()] {
        assert_eq!(shown(&page), [line("p", &["u77"])]);
    }
    let mut read = world.ledger.authors_read.lock().unwrap().clone();
    let all = read.len();
    read.sort_unstable();
    read.dedup();
    assert!(read.len() >= authors, "{}", read.len());
    assert_eq!(all, read.len(), "some were read twice");
}

/// However many pages of however many processes lack it, a set is read from the ledger once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_flush_each_author_is_read_from_the_ledger_once() {
    let world = World::new(3, exact());
    let authors = 150;
    for viewer in 0..6 {
        let follow = |n: usize| Command::Follow {
            user: user(&format!("v{viewer}")),
            other: user(&format!("u{n}")),
            since: None,
        };
        world.feed().batch((0..authors).map(follow).collect()).await.unwrap();
    }
    let publish = |n: usize| {
        Command::Publish(text(&format!("u{}", n % authors), &format!("p{n}"), world.now().plus(-(n as i64))))
    };
    world.feed().batch((0..450).map(publish).collect()).await.unwrap();
    let right = world.roots("v0", 50).await;
    for round in 0..3 {
        world.nodes[0].store.flush();
        world.ledger.authors_read.lock().unwrap().clear();
        let mut pages = Vec::new();
        for task in 0..36 {
            let feed = world.nodes[task % 3].feed.clone();
            let ask = ask(&format!("v{}", task % 6), 50);
            pages.push(tokio::spawn(async move { feed.page(&ask).await.unwrap() }));
        }
        for page in pages {
            let page = page.await.unwrap();
            let roots: Vec<_> = page.items.iter().map(|item| item.root.id.to_string()).collect();
            assert_eq!(roots, right);
        }
        let mut counts: Map<UserId, usize> = Map::default();
        for author in world.ledger.authors_read.lock().unwrap().iter() {
            *counts.entry(author.clone()).or_default() += 1;
        }
        let most = counts.values().max().copied().unwrap_or(0);
        assert!(most == 1 && counts.len() >= authors, "round {round}: {most}, {}", counts.len());
    }
    // Back to speed by itself.
    let (_, cost) = world.feed().page_and_cost(&Ask { limit: 49, ..ask("v0", 50) }).await.unwrap();
    assert!(cost.ledger_reads == 0 && cost.heads == 0, "{cost:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_store_and_ledger_there_is_an_error_and_then_there_is_none() {
    let world = World::new(1, exact());
    world.follow("me", "ann").await;
    world.text("ann", "p", 5).await;
    let node = &world.nodes[0];
    node.store.faults.set_down(true);
    assert_eq!(world.roots("me", 5).await, ["p"]);
    world.ledger.faults.set_down(true);
    let failed = node.feed.page(&ask("me", 5)).await;
    assert!(matches!(failed, Err(FeedError::Failed(tidegate::Error::LedgerUnavailable(_)))), "{failed:?}");
    let failed = node.feed.publish(text("ann", "q", world.now())).await;
    assert!(matches!(failed, Err(FeedError::Failed(tidegate::Error::LedgerUnavailable(_)))), "{failed:?}");
    world.ledger.faults.set_down(false);
    assert_eq!(world.roots("me", 5).await, ["p"]);
    node.store.faults.set_down(false);
    tokio::time::sleep(Duration::from_millis(1_000)).await;
    let direct = node.feed.stats().direct;
    assert_eq!(world.roots("me", 5).await, ["p"]);
    assert_eq!(node.feed.stats().direct, direct, "the store is asked again");
}

/// A process that dies between its commit and telling anybody: the relay of another tells it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_told_is_told_by_the_relay() {
    use tidegate_backend::FeedLedger as _;
    let world = World::new(2, exact());
    world.follow("me", "ann").await;
    world.text("ann", "p", 50).await;
    assert_eq!(world.roots("me", 5).await, ["p"]);
    let command = |command: Command| -> Arc<[Command]> { vec![command].into() };
    let edit = PostEdit { body: Some(Body::parse("other").unwrap()), visibility: None };
    world.ledger.commit(command(Command::Edit(post("p"), edit))).await.unwrap();
    world.ledger.commit(command(Command::Publish(text("ann", "q", world.now())))).await.unwrap();
    world.ledger.commit(command(Command::Follow { user: user("me"), other: user("bob"), since: None })).await.unwrap();
    world.ledger.commit(command(Command::Publish(text("bob", "b", world.now().plus(-99))))).await.unwrap();
    world.settle().await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(world.roots("me", 5).await, ["q", "p", "b"]);
    for node in &world.nodes {
        let page = node.feed.page(&ask("me", 5)).await.unwrap();
        assert_eq!(page.items[1].root.version, 2);
    }
}

/// Everything that this process has told itself is marked, and not told again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_told_is_marked() {
    let world = World::new(1, exact());
    world.follow("me", "ann").await;
    for n in 0..20 {
        world.text("ann", &format!("p{n}"), 50 - n).await;
    }
    world.hide("p3", Visibility::Hidden).await;
    world.settle().await;
    let stats = world.feed().stats();
    assert!(stats.left == 0 && stats.told >= 22, "{stats:?}");
    assert_eq!(world.nodes[0].store.faults.calls.load(std::sync::atomic::Ordering::SeqCst), 22);
}
