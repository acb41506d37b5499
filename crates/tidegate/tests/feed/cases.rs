//! Reported cases, one test each.

use tidegate::feed::*;
use tidegate_core::feed::copy::Copy;
use tidegate_core::feed::{MAX_SET, WINDOW_MS};

use crate::common::*;

async fn two() -> World {
    World::new(2, exact())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f1_undoing_a_repost_keeps_the_others() {
    let world = two().await;
    world.text("eve", "p", 50).await;
    world.repost("ann", "a", "p", 40).await;
    world.repost("bob", "b", "p", 30).await;
    world.follow("me", "ann").await;
    world.follow("me", "bob").await;
    assert_eq!(world.shown("me", 5).await, [line("p", &["bob", "ann"])]);
    assert!(world.feed().delete(post("a")).await.unwrap());
    assert_eq!(world.shown("me", 5).await, [line("p", &["bob"])]);
    assert!(world.feed().delete(post("b")).await.unwrap());
    assert!(world.shown("me", 5).await.is_empty());
    // Nothing is left that tracks either of them.
    let copies = world.nodes[0].store.copies();
    assert!(copies.roots.values().all(|copy| matches!(copy, Copy::Known(_, reposts) if reposts.is_empty())));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f2_what_is_hidden_makes_room() {
    let world = two().await;
    world.follow("me", "ann").await;
    for n in 0..101 {
        world.text("ann", &format!("p{n:03}"), 1_000 - n).await;
    }
    for n in 1..101 {
        world.hide(&format!("p{n:03}"), Visibility::Hidden).await;
    }
    assert_eq!(world.roots("me", 20).await, ["p000"]);
    let page = world.feed().page(&ask("me", 20)).await.unwrap();
    assert_eq!(page.next, Err(End::Complete));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f4_posts_stand_at_their_time_and_the_future_is_now() {
    let world = two().await;
    world.text("me", "new", 5).await;
    world.text("me", "imported", 6 * 3_600_000).await;
    world.text("me", "future", -60_000).await;
    let page = world.feed().page(&ask("me", 5)).await.unwrap();
    let ago: Vec<i64> = page.items.iter().map(|item| world.now().since(item.place().at)).collect();
    assert_eq!(ago, [0, 5, 6 * 3_600_000]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f6_of_a_deleted_user_only_floors_are_left() {
    let world = two().await;
    world.text("ann", "p", 5).await;
    world.repost("bob", "b", "p", 4).await;
    world.follow("me", "ann").await;
    world.follow("ann", "me").await;
    assert_eq!(world.roots("me", 5).await, ["p"]);
    assert!(world.roots("ann", 5).await == ["p"]);
    world.feed().delete_user(&user("ann")).await.unwrap();
    assert!(world.roots("me", 5).await.is_empty() && world.roots("ann", 5).await.is_empty());
    let copies = world.nodes[0].store.copies();
    let ann = user("ann");
    assert!(!matches!(copies.authors.get(&ann), Some(Copy::Known(version, _)) if *version > 0));
    assert!(!matches!(copies.users.get(&ann), Some(Copy::Known(version, _)) if *version > 0));
    assert!(!matches!(copies.roots.get(&post("p")), Some(Copy::Known(..))));
    // The name may live again.
    world.text("ann", "again", 1).await;
    world.follow("me", "ann").await;
    assert_eq!(world.roots("me", 5).await, ["again"]);
    assert_eq!(world.roots("ann", 5).await, ["again"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f7_an_unfollow_costs_one_call_however_many_posts_there_are() {
    let world = two().await;
    world.follow("me", "ann").await;
    let commands = |part: usize| {
        let new = |n: usize| Command::Publish(text("ann", &format!("p{part}-{n}"), world.now()));
        (0..500).map(new).collect::<Vec<_>>()
    };
    for part in 0..2 {
        world.feed().batch(commands(part)).await.unwrap();
    }
    assert_eq!(world.roots("me", 100).await.len(), 100);
    let calls = || world.nodes[0].store.faults.calls.load(std::sync::atomic::Ordering::SeqCst);
    let before = calls();
    world.feed().unfollow(user("me"), user("ann")).await.unwrap();
    assert!(calls() - before <= 2, "{}", calls() - before);
    assert!(world.roots("me", 100).await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f9_own_posts_and_reposted_ones_stay_after_an_unfollow() {
    let world = two().await;
    world.text("me", "mine", 1).await;
    world.text("tom", "his", 3).await;
    world.repost("bob", "again", "his", 2).await;
    world.follow("me", "tom").await;
    world.follow("me", "bob").await;
    assert_eq!(world.shown("me", 5).await, [line("mine", &["me"]), line("his", &["bob", "tom"])]);
    world.feed().unfollow(user("me"), user("tom")).await.unwrap();
    assert_eq!(world.shown("me", 5).await, [line("mine", &["me"]), line("his", &["bob"])]);
    world.follow("me", "tom").await;
    assert_eq!(world.shown("me", 5).await, [line("mine", &["me"]), line("his", &["bob", "tom"])]);
}

/// The copy of one author goes back an hour, that of another the whole week.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f12_sets_of_different_depth_skip_nothing() {
    let world = two().await;
    world.follow("me", "loud").await;
    world.follow("me", "calm").await;
    let many = MAX_SET + 40;
    let new = |n: usize| Command::Publish(text("loud", &format!("l{n:05}"), world.now().plus(-1_000 * n as i64)));
    let all: Vec<Command> = (0..many).map(new).collect();
    for part in all.chunks(500) {
        world.feed().batch(part.to_vec()).await.unwrap();
    }
    for n in 0..5 {
        world.text("calm", &format!("c{n}"), 1_000 * (many as i64 - 20) + n * 5_000 + 500).await;
    }
    // The copy is made anew, and cut.
    world.nodes[0].store.flush();
    for node in &world.nodes {
        let mut next = ask("me", 100);
        let mut roots = Vec::new();
        loop {
            let page = node.feed.page(&next).await.unwrap();
            roots.extend(page.items.iter().map(|item| item.place()));
            match &page.next {
                Ok(cursor) => next.after = Some(cursor.clone()),
                Err(end) => {
                    assert_eq!(*end, End::Complete);
                    break;
                }
            }
        }
        assert_eq!(roots.len(), many + 5);
        assert!(roots.is_sorted_by(|a, b| a > b));
        let oldest = Ask { order: Order::Oldest, ..ask("me", 3) };
        let page = node.feed.page(&oldest).await.unwrap();
        let last = format!("l{:05}", many - 1);
        assert_eq!([0, 1].map(|at| page.items[at].root.id.to_string()), ["c4".to_owned(), last]);
    }
    assert!(world.ledger.deep_reads.load(std::sync::atomic::Ordering::SeqCst) > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f14_a_page_is_full_or_the_last() {
    let world = two().await;
    world.follow("me", "ann").await;
    for n in 0..40 {
        world.text("ann", &format!("p{n:02}"), 100 - n).await;
    }
    for n in [39, 20, 12] {
        world.hide(&format!("p{n:02}"), Visibility::Private).await;
    }
    let page = world.feed().page(&ask("me", 30)).await.unwrap();
    assert_eq!(page.items.len(), 30);
    let rest = world.feed().page(&Ask { after: page.next.clone().ok(), ..ask("me", 30) }).await.unwrap();
    assert_eq!((rest.items.len(), rest.next.clone()), (7, Err(End::Complete)));
    // As many as fit, and none is left: there is no cursor.
    let all = world.feed().page(&ask("me", 37)).await.unwrap();
    assert_eq!((all.items.len(), all.next.clone()), (37, Err(End::Complete)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f16_a_repost_between_two_pages_repeats_nothing() {
    let world = two().await;
    for (id, ago) in [("a", 30), ("b", 20), ("c", 10)] {
        world.text("ann", id, ago).await;
    }
    world.follow("me", "ann").await;
    world.follow("me", "bob").await;
    let first = world.feed().page(&ask("me", 2)).await.unwrap();
    assert_eq!(shown(&first), [line("c", &["ann"]), line("b", &["ann"])]);
    world.repost("bob", "z1", "c", 0).await;
    world.repost("bob", "z2", "a", 0).await;
    for node in &world.nodes {
        let rest = node.feed.page(&Ask { after: first.next.clone().ok(), ..ask("me", 2) }).await.unwrap();
        assert_eq!(shown(&rest), [line("a", &["ann"])]);
    }
    assert_eq!(world.roots("me", 5).await, ["a", "c", "b"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f17_the_last_page_costs_no_more_than_the_first() {
    let world = two().await;
    for author in 0..60 {
        let name = format!("u{author}");
        world.follow("me", &name).await;
        for n in 0..10 {
            let ago = (author * 10 + n) * 997_001 % WINDOW_MS;
            world.text(&name, &format!("p{author}-{n}"), ago).await;
        }
    }
    let (page, _) = world.feed().page_and_cost(&ask("me", 20)).await.unwrap();
    let (mut next, mut last, mut count) = (page.next.clone(), None, page.items.len());
    while let Ok(cursor) = next {
        let (page, cost) = world.feed().page_and_cost(&Ask { after: Some(cursor), ..ask("me", 20) }).await.unwrap();
        // No set is read much more than once, however far back the page is.
        assert!(cost.rounds <= 4 && cost.sets <= 70, "{cost:?}");
        (next, last) = (page.next.clone(), Some(cost));
        count += page.items.len();
    }
    assert_eq!(count, 600);
    let last = last.unwrap();
    assert!(last.ledger_reads == 0 && last.heads == 0, "{last:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f19_a_commit_between_a_page_and_its_cursor_is_not_lost() {
    let world = two().await;
    world.follow("me", "ann").await;
    for n in 0..6 {
        world.text("ann", &format!("p{n}"), 100 - n).await;
    }
    let first = world.nodes[1].feed.page(&ask("me", 3)).await.unwrap();
    // Below the cursor, told after the page.
    world.text("ann", "late", 99).await;
    let rest = Ask { after: first.next.clone().ok(), ..ask("me", 10) };
    let roots: Vec<_> =
        world.nodes[1].feed.page(&rest).await.unwrap().items.iter().map(|item| item.root.id.to_string()).collect();
    assert_eq!(roots, ["p2", "p1", "late", "p0"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f21_twenty_reposts_are_one_item_with_twenty_reasons() {
    let world = two().await;
    world.text("eve", "p", 100).await;
    for n in 0..25 {
        world.follow("me", &format!("u{n}")).await;
        world.repost(&format!("u{n}"), &format!("r{n}"), "p", 50 - n).await;
        let page = world.nodes[1].feed.page(&ask("me", 5)).await.unwrap();
        assert_eq!(page.items.len(), 1);
        assert_eq!(page.items[0].reason_count, n as usize + 1);
        assert_eq!(page.items[0].reasons.len(), (n as usize + 1).min(20));
    }
}

/// A root that more have shown again than are read whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_root_with_very_many_reposts_shows_those_of_followees() {
    let world = two().await;
    world.text("eve", "p", 10_000).await;
    let new = |n: i64| {
        let content = Content::Repost(post("p"));
        Command::Publish(NewPost { content, ..text(&format!("u{n}"), &format!("r{n}"), world.now().plus(-n - 1)) })
    };
    let all: Vec<Command> = (0..700).map(new).collect();
    for part in all.chunks(350) {
        world.feed().batch(part.to_vec()).await.unwrap();
    }
    for n in [600, 3, 77] {
        world.follow("me", &format!("u{n}")).await;
    }
    let right = [line("p", &["u3", "u77", "u600"])];
    assert_eq!(world.shown("me", 5).await, right);
    world.nodes[0].store.flush();
    assert_eq!(world.shown("me", 5).await, right);
    world.nodes.iter().for_each(|node| node.store.faults.set_down(true));
    assert_eq!(world.shown("me", 5).await, right);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_is_refused() {
    let world = two().await;
    for limit in [0, 101] {
        let refused = world.feed().page(&ask("me", limit)).await;
        assert!(matches!(refused, Err(FeedError::Invalid(_))), "{refused:?}");
    }
    let too_many = vec![Command::Unfollow(user("a"), user("b")); MAX_FEED_COMMANDS + 1];
    assert!(matches!(world.feed().batch(too_many).await, Err(FeedError::Invalid(_))));
    let posts = (0..=MAX_FEED_POSTS).map(|n| Command::Publish(text("a", &format!("p{n}"), world.now())));
    assert!(matches!(world.feed().batch(posts.collect()).await, Err(FeedError::Invalid(_))));
    let node = &world.nodes[0];
    let parts = FeedParts { ledger: std::sync::Arc::clone(&world.ledger) as _, store: None };
    let again = Feed::start(&node.caches, Some(node.relay.clone()), parts, options());
    assert!(again.is_err(), "one a process");
}
