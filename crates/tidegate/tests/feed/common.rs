//! What the tests share: processes with a feed each, on one ledger and one store.

use std::sync::Arc;
use std::time::Duration;

use tidegate::cache::{Caches, EmbeddedCache, EmbeddedCacheOptions, Outbox, Relay};
use tidegate::feed::*;
use tidegate_conformance::feed::double::{MemoryLedger, MemoryStore};
use tidegate_core::Millis;

pub struct Node {
    pub caches: Caches,
    pub relay: Relay,
    pub feed: Feed,
    pub store: Arc<MemoryStore>,
}

pub struct World {
    pub ledger: Arc<MemoryLedger>,
    pub nodes: Vec<Node>,
}

pub fn options() -> FeedOptions {
    FeedOptions::default()
}

/// Pages from memory are checked each time.
pub fn exact() -> FeedOptions {
    let mut options = options();
    options.news_within = Duration::ZERO;
    options
}

impl World {
    pub fn new(processes: usize, options: FeedOptions) -> Self {
        let ledger = MemoryLedger::new(20_000);
        let cache = EmbeddedCache::open(EmbeddedCacheOptions::default()).unwrap();
        let store = MemoryStore::new();
        let node = |_| {
            let caches = Caches::builder(Arc::new(cache.handle())).start().unwrap();
            let relay = caches.relay(Arc::clone(&ledger) as Arc<dyn Outbox>);
            let store = store.handle();
            let parts = FeedParts { ledger: Arc::clone(&ledger) as _, store: Some(Arc::clone(&store) as _) };
            let feed = Feed::start(&caches, Some(relay.clone()), parts, options).unwrap();
            Node { caches, relay, feed, store }
        };
        Self { nodes: (0..processes).map(node).collect(), ledger }
    }

    pub fn feed(&self) -> &Feed {
        &self.nodes[0].feed
    }

    pub fn now(&self) -> Millis {
        self.ledger.clock().now()
    }

    /// Until nothing waits to be delivered.
    pub async fn settle(&self) {
        for _ in 0..2_000 {
            if self.ledger.pending().await.unwrap().count == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("something was never delivered");
    }

    pub async fn text(&self, author: &str, id: &str, ago: i64) {
        let new = text(author, id, self.now().plus(-ago));
        assert!(matches!(self.feed().publish(new).await.unwrap(), Published::New(_)));
    }

    pub async fn repost(&self, author: &str, id: &str, of: &str, ago: i64) {
        let new = NewPost { content: Content::Repost(post(of)), ..text(author, id, self.now().plus(-ago)) };
        assert!(matches!(self.feed().publish(new).await.unwrap(), Published::New(_)));
    }

    pub async fn follow(&self, one: &str, other: &str) {
        let followed = self.feed().follow(user(one), user(other), None).await.unwrap();
        assert!(matches!(followed, Followed::Since(_)));
    }

    pub async fn hide(&self, id: &str, visibility: Visibility) {
        let edit = PostEdit { body: None, visibility: Some(visibility) };
        assert!(matches!(self.feed().edit(post(id), edit).await.unwrap(), Edited::Done(_)));
    }

    /// What every process shows: roots with the users of their reasons.
    pub async fn shown(&self, viewer: &str, limit: usize) -> Vec<(String, Vec<String>)> {
        let mut all = Vec::new();
        for node in &self.nodes {
            all.push(shown(&node.feed.page(&ask(viewer, limit)).await.unwrap()));
        }
        assert!(all.iter().all(|page| *page == all[0]), "{all:?}");
        all.swap_remove(0)
    }

    /// The roots alone.
    pub async fn roots(&self, viewer: &str, limit: usize) -> Vec<String> {
        self.shown(viewer, limit).await.into_iter().map(|(root, _)| root).collect()
    }
}

pub fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

pub fn post(name: &str) -> PostId {
    PostId::parse(name).unwrap()
}

pub fn text(author: &str, id: &str, at: Millis) -> NewPost {
    NewPost {
        id: post(id),
        author: user(author),
        content: Content::Body(Body::parse("hello").unwrap()),
        published_at: Some(at),
        visibility: Visibility::Public,
    }
}

pub fn ask(viewer: &str, limit: usize) -> Ask {
    Ask { viewer: user(viewer), order: Order::Newest, since: None, until: None, limit, after: None }
}

pub fn shown(page: &Page) -> Vec<(String, Vec<String>)> {
    let users = |item: &Item| item.reasons.iter().map(|reason| reason.user.to_string()).collect();
    page.items.iter().map(|item| (item.root.id.to_string(), users(item))).collect()
}

pub fn line(root: &str, users: &[&str]) -> (String, Vec<String>) {
    (root.to_owned(), users.iter().map(|user| (*user).to_owned()).collect())
}

pub fn is_long() -> bool {
    std::env::var_os("TIDEGATE_TEST_LONG").is_some()
}
