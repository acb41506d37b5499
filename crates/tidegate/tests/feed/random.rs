//! Anything in any order, against the community.

use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tidegate::Clock;
use tidegate::feed::*;
use tidegate_core::Millis;
use tidegate_core::feed::WINDOW_MS;
use tidegate_core::feed::model::Community;

use crate::common::*;

const USERS: [&str; 8] = ["ann", "bob", "cy", "dee", "eve", "fay", "gus", "hal"];
const NAMES: usize = 160;
const DAY: i64 = 86_400_000;

pub struct Run {
    feeds: Vec<Feed>,
    clock: Arc<dyn Clock>,
    all: Community,
    pub chance: StdRng,
    scope: Scope,
    /// Changes go through any process, and every page of every process is right at once.
    anywhere: bool,
    /// The world stands still between two pages.
    is_still: bool,
}

impl Run {
    pub fn new(seed: u64, feeds: Vec<Feed>, clock: Arc<dyn Clock>) -> Self {
        Self {
            feeds,
            clock,
            all: Community::new(20_000),
            chance: StdRng::seed_from_u64(seed),
            scope: Scope::default(),
            anywhere: true,
            is_still: false,
        }
    }

    fn on(seed: u64, world: &World) -> Self {
        Self::new(seed, world.nodes.iter().map(|node| node.feed.clone()).collect(), world.ledger.clock())
    }

    fn advance(&self, ms: i64) {
        self.clock.advance_to(self.clock.now().plus(ms)).unwrap();
    }

    pub fn user(&mut self) -> UserId {
        user(USERS[self.chance.random_range(0..USERS.len())])
    }

    pub fn post(&mut self) -> PostId {
        post(&format!("p{}", self.chance.random_range(0..NAMES)))
    }

    fn instant(&mut self) -> Millis {
        let now = self.clock.now();
        match self.chance.random_range(0..6) {
            0 => now,
            1 => now.plus(-self.chance.random_range(0..5_i64)),
            2 => now.plus(-WINDOW_MS + self.chance.random_range(-2..3_i64)),
            3 => now.plus(self.chance.random_range(0..DAY)),
            _ => now.plus(-self.chance.random_range(0..9 * DAY)),
        }
    }

    fn visibility(&mut self) -> Visibility {
        match self.chance.random_range(0..8) {
            0 => Visibility::Private,
            1 => Visibility::Hidden,
            _ => Visibility::Public,
        }
    }

    fn feed(&mut self) -> Feed {
        let at = if self.anywhere { self.chance.random_range(0..self.feeds.len()) } else { 0 };
        self.feeds[at].clone()
    }

    /// One change, in both.
    pub async fn change(&mut self) {
        let feed = self.feed();
        let now = self.clock.now();
        match self.chance.random_range(0..100) {
            0..45 => {
                let content = if self.chance.random_bool(0.4) {
                    Content::Repost(self.post())
                } else {
                    Content::Body(Body::parse(["x", "y", "z"][self.chance.random_range(0..3)]).unwrap())
                };
                let published_at = if self.chance.random_bool(0.3) { None } else { Some(self.instant()) };
                let (id, author, visibility) = (self.post(), self.user(), self.visibility());
                let new = NewPost { id, author, content, published_at, visibility };
                let published = feed.publish(new.clone()).await.unwrap();
                assert_eq!(published, self.all.publish(now, &new), "{new:?}");
            }
            45..55 => {
                let id = self.post();
                let body = self.chance.random_bool(0.5).then(|| Body::parse("edited").unwrap());
                let visibility = if self.chance.random_bool(0.7) { Some(self.visibility()) } else { None };
                let edit = PostEdit { body, visibility };
                let edited = feed.edit(id.clone(), edit.clone()).await.unwrap();
                assert_eq!(edited, self.all.edit(now, &id, &edit));
            }
            55..68 => {
                let id = self.post();
                assert_eq!(feed.delete(id.clone()).await.unwrap(), self.all.delete(&id));
            }
            68..82 => {
                let (one, other) = (self.user(), self.user());
                let followed = feed.follow(one.clone(), other.clone(), None).await.unwrap();
                assert_eq!(followed, self.all.follow(now, &one, &other));
            }
            82..87 => {
                let (one, other) = (self.user(), self.user());
                feed.unfollow(one.clone(), other.clone()).await.unwrap();
                self.all.unfollow(&one, &other);
            }
            87..91 => {
                let (one, other) = (self.user(), self.user());
                assert_eq!(feed.block(one.clone(), other.clone()).await.unwrap(), self.all.block(&one, &other));
            }
            91..96 => {
                let (one, other) = (self.user(), self.user());
                feed.unblock(one.clone(), other.clone()).await.unwrap();
                self.all.unblock(&one, &other);
            }
            96 => {
                let user = self.user();
                feed.delete_user(&user).await.unwrap();
                self.all.delete_user(&user);
            }
            97 => {
                let ms = self.chance.random_range(0..2 * DAY);
                self.advance(ms);
            }
            _ => {
                let ms = self.chance.random_range(0..3);
                self.advance(ms);
            }
        }
    }

    /// Pages of one viewer, from one process, one after another.
    pub async fn pages(&mut self, node: usize) {
        let feed = self.feeds[node].clone();
        let viewer = self.user();
        let order = if self.chance.random_bool(0.25) { Order::Oldest } else { Order::Newest };
        let bound = |run: &mut Self| if run.chance.random_bool(0.15) { Some(run.instant()) } else { None };
        let (since, until) = (bound(self), bound(self));
        let limit = if self.chance.random_bool(0.5) { 5 } else { self.chance.random_range(1..8) };
        let mut ask = Ask { viewer, order, since, until, limit, after: None };
        for _ in 0..3 {
            let now = self.clock.now();
            let right = self.all.page_of(now, &ask, &self.scope);
            let page = match (feed.page(&ask).await, right) {
                (Ok(page), Ok(right)) => {
                    assert_eq!(page.items, right.items, "{ask:?} at {now:?} by {node}, {:?}", feed.stats());
                    assert_eq!(page.next.as_ref().err(), right.next.as_ref().err(), "{ask:?} at {now:?}");
                    let recent = |page: &Page| page.next.as_ref().ok().and_then(|cursor| cursor.recent.clone());
                    assert_eq!(recent(&page), recent(&right), "{ask:?} at {now:?}");
                    page
                }
                (Err(FeedError::CursorExpired), Err(_)) => return,
                (made, right) => panic!("{made:?} and {right:?}"),
            };
            let Ok(cursor) = page.next.clone() else { return };
            ask.after = Some(cursor);
            // Sometimes the world goes on between two pages.
            if self.chance.random_bool(0.2) && !self.is_still {
                self.change().await;
            }
        }
    }
}

pub fn steps(few: usize, many: usize) -> usize {
    if is_long() { many } else { few }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_page_of_two_processes_is_the_communitys() {
    let world = World::new(2, exact());
    let mut run = Run::on(1, &world);
    // A change and up to three pages each: in full a million operations.
    for _ in 0..steps(4_000, 300_000) {
        run.change().await;
        let node = run.chance.random_range(0..2);
        run.pages(node).await;
    }
    let stats: Vec<_> = world.nodes.iter().map(|node| node.feed.stats()).collect();
    for stats in stats {
        assert!(stats.direct == 0 && stats.kept > 0 && stats.made > 0 && stats.left == 0, "{stats:?}");
    }
}

/// Copies that are lost, one or all, at any time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_copies_are_made_good() {
    let world = World::new(2, exact());
    let mut run = Run::on(2, &world);
    for step in 0..steps(1_500, 100_000) {
        run.change().await;
        if run.chance.random_bool(0.3) {
            let user = run.user();
            let subject = match run.chance.random_range(0..3) {
                0 => tidegate_core::feed::Subject::Author(user),
                1 => tidegate_core::feed::Subject::User(user),
                _ => tidegate_core::feed::Subject::Root(run.post()),
            };
            world.nodes[0].store.forget(&subject);
        }
        if step % 97 == 0 {
            world.nodes[0].store.flush();
        }
        let node = run.chance.random_range(0..2);
        run.pages(node).await;
    }
}

/// So few names that they are forgotten all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_may_be_forgotten() {
    let mut options = exact();
    options.max_names = 12;
    let world = World::new(2, options);
    let mut run = Run::on(3, &world);
    for n in 0..steps(800, 50_000) {
        run.change().await;
        let other = user(&format!("stranger-{}", n % 50));
        let ask = Ask { viewer: other, ..ask("x", 3) };
        assert!(world.feed().page(&ask).await.unwrap().items.is_empty());
        let node = run.chance.random_range(0..2);
        run.pages(node).await;
    }
}

/// Half of the store's calls fail, half of those after they were done. The process that makes the changes is right at once,
/// the other once the relay has told what the store was not told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_fails_makes_no_page_wrong() {
    let world = World::new(2, exact());
    let mut run = Run::on(4, &world);
    run.anywhere = false;
    for round in 0..steps(6, 400) {
        world.nodes.iter().for_each(|node| node.store.faults.set_percent(50));
        for _ in 0..steps(150, 500) {
            run.change().await;
            run.pages(0).await;
        }
        world.nodes.iter().for_each(|node| node.store.faults.set_percent(0));
        world.settle().await;
        for _ in 0..20 {
            // No change between two pages: the second process would have to hear of it, and may think for a moment yet that its
            // store is away.
            run.is_still = true;
            run.pages(round % 2).await;
            run.is_still = false;
        }
    }
    let stats = world.feed().stats();
    assert!(stats.left > 0 && stats.told > 0 && stats.direct > 0, "{stats:?}");
}

/// Without a store pages are made of the ledger's rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_need_no_store() {
    let world = World::new(1, exact());
    let mut run = Run::on(5, &world);
    world.nodes[0].store.faults.set_down(true);
    for _ in 0..steps(400, 20_000) {
        run.change().await;
        run.pages(0).await;
    }
    let stats = world.feed().stats();
    assert!(stats.kept == 0 && stats.direct > 0, "{stats:?}");
}

fn narrow() -> [Scope; 3] {
    let all = Scope::default();
    [
        Scope { limit_to_recent: Some(2), ..all },
        Scope { limit_to_recent: Some(1), own_posts: false, ..all },
        Scope { window_ms: 30 * 3_600_000, own_posts: false, ..all },
    ]
}

/// Feeds that are limited to whoever posted last, go back a day or so, or leave out one's own posts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn narrower_feeds_are_the_communitys() {
    for (n, scope) in narrow().into_iter().enumerate() {
        let mut options = exact();
        options.scope = scope;
        let world = World::new(2, options);
        let mut run = Run::on(10 + n as u64, &world);
        run.scope = scope;
        for _ in 0..steps(1_200, 200_000) {
            run.change().await;
            let node = run.chance.random_range(0..2);
            run.pages(node).await;
        }
        let stats = world.feed().stats();
        assert!(stats.direct == 0 && stats.kept > 0, "{stats:?}");
    }
}

/// The same without a store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn narrower_feeds_need_no_store() {
    for (n, scope) in narrow().into_iter().enumerate() {
        let mut options = exact();
        options.scope = scope;
        let world = World::new(1, options);
        let mut run = Run::on(20 + n as u64, &world);
        run.scope = scope;
        world.nodes[0].store.faults.set_down(true);
        for _ in 0..steps(300, 10_000) {
            run.change().await;
            run.pages(0).await;
        }
    }
}
