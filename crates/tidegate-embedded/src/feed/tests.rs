//! Bounds of the copies in memory, and their contract.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::table::FLOOR;
use super::*;
use tidegate_conformance::feed::stores::{Harness, NEWS_KEPT};
use tidegate_core::feed::{AuthorSet, Head, Place};

struct InMemory(Arc<MemoryFeed>);

impl Harness for InMemory {
    fn store(&self) -> Arc<dyn FeedStore> {
        self.0.clone()
    }

    fn another(&self) -> BoxFuture<'_, Arc<dyn FeedStore>> {
        ready(Arc::new(self.0.another()))
    }
}

async fn open() -> InMemory {
    let options = MemoryFeedOptions { news_kept: NEWS_KEPT, ..MemoryFeedOptions::default() };
    InMemory(Arc::new(MemoryFeed::new(&options).unwrap()))
}

tidegate_conformance::feed_store_conformance!(open);

const NOW: Millis = Millis(1_800_000_000_000);

fn user(n: usize) -> UserId {
    UserId::parse(&format!("u{n}")).unwrap()
}

fn set(n: usize, version: u64, posts: i64) -> Fill {
    let entry = |at: i64| {
        let post = PostId::parse(&format!("p{n}-{at}")).unwrap();
        Entry { place: Place { at: NOW.plus(-at), post }, root: None }
    };
    let entries: Vec<Entry> = (0..posts).map(entry).collect();
    Fill::Author(
        user(n),
        AuthorSet { version, from: NOW.plus(-1_000_000), oldest: Some(NOW.plus(-posts + 1)), entries },
    )
}

async fn heads(feed: &MemoryFeed, users: std::ops::Range<usize>) -> Vec<Option<Head>> {
    let mut all = Vec::new();
    for n in users {
        let reads = Reads { heads: vec![user(n)], ..Reads::default() };
        all.extend(feed.read(reads).await.unwrap().heads);
    }
    all
}

fn floor(n: usize, version: u64) -> Change {
    Change { prev: 0, version, what: What::Floor(Subject::Author(user(n))) }
}

#[test]
fn options_are_checked() {
    let o = MemoryFeedOptions::default;
    for bad in [MemoryFeedOptions { max_bytes: 5, ..o() }, MemoryFeedOptions { news_kept: 5, ..o() }] {
        assert_eq!(MemoryFeed::new(&bad).unwrap_err().kind(), ErrorKind::Configuration);
    }
}

/// What is used stays, what is not goes, and what went does not come back older than it was.
#[tokio::test(start_paused = true)]
async fn memory_is_bounded_and_what_was_used_last_stays() {
    let options = MemoryFeedOptions { max_bytes: 4 << 20, ..MemoryFeedOptions::default() };
    let feed = MemoryFeed::new(&options).unwrap();
    for n in 0..2_000 {
        assert!(feed.fill(vec![set(n, 9, 100)]).await.unwrap()[0]);
        assert!(feed.bytes() <= options.max_bytes + 20_000, "{}", feed.bytes());
        heads(&feed, 0..20).await;
    }
    let known = heads(&feed, 0..2_000).await;
    assert!(known[..20].iter().all(Option::is_some), "used all the time");
    let count = known.iter().flatten().count();
    assert!((100..500).contains(&count), "{count} of 10 kB each in 4 MB");
    // A fill that was read before is refused for a minute.
    let gone = (20..2_000).find(|n| known[*n].is_none()).unwrap();
    assert_eq!(feed.fill(vec![set(gone, 8, 1)]).await.unwrap(), [false]);
    assert_eq!(feed.fill(vec![set(gone, 9, 1)]).await.unwrap(), [true]);
}

/// Case F6: nothing is left of a user who was deleted.
#[tokio::test(start_paused = true)]
async fn f6_floors_end_after_a_minute() {
    let feed = MemoryFeed::new(&MemoryFeedOptions::default()).unwrap();
    feed.fill((0..500).map(|n| set(n, 9, 3)).collect()).await.unwrap();
    feed.apply(&(0..500).map(|n| floor(n, 10)).collect::<Vec<_>>(), NOW).await.unwrap();
    tokio::time::advance(FLOOR - Duration::from_secs(1)).await;
    assert_eq!(feed.subjects(), 500);
    assert_eq!(feed.fill(vec![set(7, 9, 3)]).await.unwrap(), [false], "the floor is still there");
    tokio::time::advance(Duration::from_secs(2)).await;
    // Whatever changes sweeps a few.
    for n in 0..1_000 {
        feed.apply(&[floor(1_000 + n % 400, 5)], NOW).await.unwrap();
    }
    assert!(heads(&feed, 0..500).await.iter().all(Option::is_none));
    assert!(feed.subjects() <= 420, "{}", feed.subjects());
    tokio::time::advance(FLOOR).await;
    feed.forget();
    assert_eq!((feed.subjects(), feed.bytes()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn leases_end_and_are_not_piled_up() {
    let feed = MemoryFeed::new(&MemoryFeedOptions::default()).unwrap();
    for round in 0..20 {
        let subjects: Vec<Subject> = (0..512).map(|n| Subject::Author(user(round * 512 + n))).collect();
        assert!(feed.lease(&subjects).await.unwrap().into_iter().all(|granted| granted));
        assert!(feed.lease(&subjects).await.unwrap().into_iter().all(|granted| !granted));
        tokio::time::advance(LEASE).await;
        assert!(feed.lease(&subjects[..1]).await.unwrap()[0]);
    }
    assert!(locked(&feed.shared.leases).until.len() <= 2 * MANY_LEASES + 512);
}
