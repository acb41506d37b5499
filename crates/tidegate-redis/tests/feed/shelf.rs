//! What the tests of the feed's copies share.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_backend::FeedStore;
use tidegate_backend::feed::{Found, News, Reads, SetRead};
use tidegate_core::Millis;
use tidegate_core::feed::{
    AuthorSet, Change, Edge, Entry, Fill, Order, Place, PostId, SetPart, Subject, UserId, Version, What,
};
use tidegate_redis::{Connector, RedisFeed, RedisFeedOptions, RedisOptions};

pub const NOW: Millis = Millis(1_800_000_000_000);
pub const SECOND: Duration = Duration::from_secs(1);

pub async fn open(url: &str, name: &str) -> Arc<RedisFeed> {
    open_with(url, name, RedisFeedOptions::default()).await
}

pub async fn open_with(url: &str, name: &str, options: RedisFeedOptions) -> Arc<RedisFeed> {
    let connector = Connector::start(RedisOptions::parse(url).unwrap().name(name).unwrap()).await.unwrap();
    Arc::new(RedisFeed::open(connector, options).unwrap())
}

pub fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

pub fn post(name: &str) -> PostId {
    PostId::parse(name).unwrap()
}

pub fn entry(ago: i64, name: &str) -> Entry {
    Entry { place: Place { at: NOW.plus(-ago), post: post(name) }, root: None }
}

pub fn published(author: &str, prev: Version, version: Version, added: &[Entry]) -> Change {
    let what = What::Posts { author: user(author), added: added.to_vec(), removed: vec![], touched: vec![] };
    Change { prev, version, what }
}

pub fn followed(who: &str, prev: Version, version: Version, whom: &str) -> Change {
    let (follow, unfollow, hide, show) = (vec![user(whom)], vec![], vec![], vec![]);
    Change { prev, version, what: What::Ties { user: user(who), follow, unfollow, hide, show } }
}

pub fn floor(subject: Subject, version: Version) -> Change {
    Change { prev: 0, version, what: What::Floor(subject) }
}

pub fn author_fill(author: &str, version: Version, entries: &[Entry]) -> Fill {
    let mut entries = entries.to_vec();
    entries.sort_unstable_by(|a, b| b.cmp(a));
    let oldest = entries.last().map(|entry| entry.place.at);
    Fill::Author(user(author), AuthorSet { version, from: NOW.plus(-8 * 86_400_000), oldest, entries })
}

pub async fn news(feed: &RedisFeed) -> News {
    feed.read(Reads { news: true, ..Reads::default() }).await.unwrap().news
}

pub fn newest(author: &str, max: usize) -> SetRead {
    SetRead { author: user(author), order: Order::Newest, beyond: Edge::Instant(NOW.plus(1)), max }
}

pub async fn part(feed: &RedisFeed, author: &str) -> Option<SetPart> {
    let reads = Reads { sets: vec![newest(author, 100)], ..Reads::default() };
    feed.read(reads).await.unwrap().sets.remove(0)
}

/// Asks until it is answered.
pub async fn until_read(feed: &RedisFeed, reads: Reads) -> Found {
    let began = Instant::now();
    loop {
        match feed.read(reads.clone()).await {
            Ok(found) => return found,
            Err(e) => assert!(began.elapsed() < 20 * SECOND, "{e}"),
        }
        // What whoever keeps the outbox does; where floors matter, the test tells them.
        if feed.wants_repeat() {
            feed.repeated().await.ok();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
