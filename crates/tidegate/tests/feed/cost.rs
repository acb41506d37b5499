//! What pages read.

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tidegate::feed::*;
use tidegate_core::feed::WINDOW_MS;

use crate::common::*;

/// `authors` with up to so many posts each, all over the week; "me" follows all.
async fn community(world: &World, authors: usize, posts: usize) -> usize {
    let mut chance = StdRng::seed_from_u64(9);
    let now = world.now();
    let follow = |n: usize| Command::Follow { user: user("me"), other: user(&format!("u{n}")), since: None };
    world.feed().batch((0..authors).map(follow).collect()).await.unwrap();
    let mut all = Vec::new();
    for author in 0..authors {
        for n in 0..chance.random_range(0..=posts) {
            let at = now.plus(-chance.random_range(0..WINDOW_MS));
            all.push(Command::Publish(text(&format!("u{author}"), &format!("p{author}-{n}"), at)));
        }
    }
    for part in all.chunks(500) {
        world.feed().batch(part.to_vec()).await.unwrap();
    }
    all.len()
}

/// N x k sets for page k of N, and one for the look whether there is more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_reads_as_many_sets_as_it_has_items() {
    let world = World::new(2, exact());
    let count = community(&world, 120, 8).await;
    // Whom and what it does not know yet it learns.
    world.nodes[1].feed.page(&ask("me", 99)).await.unwrap();
    for limit in [1, 7, 20] {
        let mut next = Ask { after: None, ..ask("me", limit) };
        let (mut seen, mut page_number) = (0, 0_u64);
        loop {
            let (page, cost) = world.nodes[1].feed.page_and_cost(&next).await.unwrap();
            page_number += 1;
            let most = (limit as u64 + 1) * page_number;
            assert!(cost.sets <= most, "page {page_number} of {limit}: {cost:?}");
            assert!(cost.ledger_reads == 0 && !cost.direct, "{cost:?}");
            seen += page.items.len();
            match &page.next {
                Ok(cursor) if page_number < 12 => next.after = Some(cursor.clone()),
                _ => break,
            }
        }
        assert!(seen > 0 && seen <= count);
    }
}

/// With ties and heads known a page is a round of sets, with the news in it; whoever follows many reads no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_known_circle_costs_rounds_and_not_followees() {
    let world = World::new(1, exact());
    community(&world, 2_000, 1).await;
    let ask = ask("me", 20);
    let (_, first) = world.feed().page_and_cost(&ask).await.unwrap();
    assert!(first.sets <= 21, "{first:?}");
    // Another size of page, so that it is not from memory.
    let (page, cost) = world.feed().page_and_cost(&Ask { limit: 19, ..ask }).await.unwrap();
    assert_eq!(page.items.len(), 19);
    assert!(cost.heads == 0 && cost.sets <= 20 && cost.rounds <= 3 && cost.ledger_reads == 0, "{cost:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publishing_is_one_call_however_many_follow() {
    let world = World::new(1, exact());
    for part in 0..2 {
        let follow =
            |n: usize| Command::Follow { user: user(&format!("f{part}-{n}")), other: user("ann"), since: None };
        world.feed().batch((0..2_000).map(follow).collect()).await.unwrap();
    }
    world.text("ann", "first", 9).await;
    let calls = || world.nodes[0].store.faults.calls.load(std::sync::atomic::Ordering::SeqCst);
    let before = calls();
    world.text("ann", "p", 5).await;
    assert_eq!(calls() - before, 1);
    assert_eq!(world.roots("f1-77", 5).await, ["p", "first"]);
}
