//! The feed over HTTP on two nodes while Redis is emptied, killed, frozen, fails over, and while a node is killed: what a
//! node has answered is on its own pages at once, and on the other's soon.
//!
//! Each reader follows authors whom nobody else writes for, so he knows what his page must be.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;
use tidegate_conformance::servers::{Engine, MariaDb, Postgres, Redis, Sentinel};

use crate::server::{Api, Start};
use crate::shop::{Shop, now};

const READERS: u64 = 3;
const AUTHORS: usize = 12;
/// How long another node may lack what one has answered: a failover, a look of the relay, and a busy machine.
const ELSEWHERE: Duration = Duration::from_secs(10);

/// What a reader's page must be.
struct World {
    reader: u64,
    chance: StdRng,
    follows: Vec<bool>,
    /// Posts with their authors, the newest first.
    posts: Vec<(String, usize)>,
    made: u64,
    /// When the first post was published, so that the nodes' clocks do not decide which of two is newer.
    began: i64,
    /// What was done, for whoever has to understand a wrong page.
    done: Vec<String>,
}

impl World {
    fn author(&self, n: usize) -> String {
        format!("author-{}-{n}", self.reader)
    }

    fn page(&self) -> Vec<String> {
        let shown = self.posts.iter().filter(|(_, author)| self.follows[*author]);
        shown.map(|(post, _)| post.clone()).take(20).collect()
    }

    /// One change at a node; whether it was answered. What was not may have been done, so it is repeated until it is.
    fn change(&mut self, api: &Api) -> bool {
        let author = self.chance.random_range(0..AUTHORS);
        let follow = format!("/v1/users/reader-{}/follows/{}", self.reader, self.author(author));
        let done = |status: Option<u16>| status.is_some_and(|status| (200..300).contains(&status));
        match self.chance.random_range(0..10) {
            0..6 => {
                let post = format!("post-{}-{}", self.reader, self.made);
                let at = jiff::Timestamp::from_millisecond(self.began + i64::try_from(self.made).expect("few"));
                let at = at.expect("an instant").to_string();
                let body = json!({"post_id": post, "body": "hello", "published_at": at});
                let reply = api.post(&format!("/v1/users/{}/posts", self.author(author)), &body);
                if !done(reply.map(|reply| reply.status)) {
                    return false;
                }
                self.made += 1;
                self.done.push(format!("{post} by {author}"));
                self.posts.insert(0, (post, author));
            }
            6 if !self.posts.is_empty() => {
                let at = self.chance.random_range(0..self.posts.len().min(25));
                if !done(api.delete(&format!("/v1/posts/{}", self.posts[at].0)).map(|reply| reply.status)) {
                    return false;
                }
                let (post, _) = self.posts.remove(at);
                self.done.push(format!("no {post}"));
            }
            7 => {
                if !done(api.delete(&follow).map(|reply| reply.status)) {
                    return false;
                }
                self.follows[author] = false;
                self.done.push(format!("unfollows {author}"));
            }
            _ => {
                if !done(api.put(&follow, &json!({})).map(|reply| reply.status)) {
                    return false;
                }
                self.follows[author] = true;
                self.done.push(format!("follows {author}"));
            }
        }
        true
    }

    /// The page at a node; `None`: it gives none.
    fn seen(&self, api: &Api) -> Option<Vec<String>> {
        let page = api.get(&format!("/v1/users/reader-{}/feed", self.reader)).filter(|page| page.status == 200)?;
        let items = page.json["items"].as_array().expect("a list");
        Some(items.iter().map(|item| item["post"]["post_id"].as_str().expect("a name").to_owned()).collect())
    }
}

/// Readers that change and read until they are sent home.
struct Readers {
    stop: Arc<AtomicBool>,
    pages: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    fn start(shop: &Shop) -> Self {
        let (stop, pages) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let apis: Vec<Api> = (0..shop.nodes.len()).map(|node| shop.api(node).clone()).collect();
        let thread = |reader| {
            let (stop, pages, apis) = (Arc::clone(&stop), Arc::clone(&pages), apis.clone());
            std::thread::spawn(move || read(reader, &apis, &stop, &pages))
        };
        let threads = (0..READERS).map(thread).collect();
        Self { stop, pages, threads }
    }

    /// How many pages were right.
    fn home(self) -> u64 {
        self.stop.store(true, Ordering::SeqCst);
        self.threads.into_iter().for_each(|thread| thread.join().expect("every page was right"));
        self.pages.load(Ordering::SeqCst)
    }
}

fn read(reader: u64, apis: &[Api], stop: &AtomicBool, pages: &AtomicU64) {
    let chance = StdRng::seed_from_u64(reader);
    let mut world = World {
        reader,
        chance,
        follows: vec![false; AUTHORS],
        posts: Vec::new(),
        made: 0,
        began: now() - 3_600_000,
        done: Vec::new(),
    };
    // What another node answered may be missing for a tenth of a second, so all that a reader changes he changes at one.
    let node = usize::try_from(reader).expect("few") % apis.len();
    while !stop.load(Ordering::SeqCst) {
        let before = world.chance.clone();
        if !world.change(&apis[node]) {
            world.done.push(format!("not done at {node}"));
            // The same again, wherever.
            world.chance = before;
            std::thread::sleep(Duration::from_millis(20));
            continue;
        }
        let right = world.page();
        if let Some(seen) = world.seen(&apis[node]) {
            assert_eq!(seen, right, "reader {reader} at {node}, which answered: {:?}", world.done);
            pages.fetch_add(1, Ordering::SeqCst);
        }
        let begun = Instant::now();
        let other = &apis[(node + 1) % apis.len()];
        loop {
            let seen = world.seen(other);
            if seen.as_ref() == Some(&right) {
                pages.fetch_add(1, Ordering::SeqCst);
                break;
            }
            // One that gives no page gives no wrong one.
            let Some(seen) = seen else { break };
            assert!(
                begun.elapsed() < ELSEWHERE,
                "reader {reader} at another node: {seen:?}, not {right:?}: {:?}",
                world.done
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn pause(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

#[test]
fn feeds_stay_right_while_everything_in_redis_is_deleted() {
    let (mariadb, redis) = (MariaDb::start(), Redis::start());
    let shop = Shop::open(mariadb.database(), redis.url(), 2);
    let readers = Readers::start(&shop);
    for _ in 0..8 {
        pause(400);
        redis.tell(&["FLUSHALL"]);
    }
    pause(400);
    let pages = readers.home();
    assert!(pages > 20, "only {pages} pages");
}

#[test]
fn feeds_stay_right_while_redis_is_away_and_when_it_is_back() {
    let (postgres, redis) = (Postgres::start(), Redis::start());
    let shop = Shop::open(postgres.database(), redis.url(), 2);
    let readers = Readers::start(&shop);
    pause(600);
    redis.kill();
    pause(1_000);
    redis.restart();
    pause(1_000);
    redis.freeze();
    pause(1_500);
    redis.thaw();
    pause(1_000);
    let pages = readers.home();
    assert!(pages > 20, "only {pages} pages");
}

/// As after a power cut: what Redis had written to its disk some moments before.
#[test]
fn feeds_stay_right_when_redis_comes_back_with_old_data() {
    let (postgres, redis) = (Postgres::start(), Redis::start());
    let shop = Shop::open(postgres.database(), redis.url(), 2);
    let readers = Readers::start(&shop);
    for _ in 0..2 {
        pause(500);
        redis.tell(&["SAVE"]);
        pause(700);
        redis.restart();
        pause(1_500);
    }
    let pages = readers.home();
    assert!(pages > 20, "only {pages} pages");
    let told = shop.api(0).readiness();
    shop.api(0).wait(&format!("ready again: {told}"), ELSEWHERE, |api| api.readiness().contains("\"ready\""));
}

#[test]
fn feeds_stay_right_through_a_failover() {
    let (mariadb, sentinel) = (MariaDb::start(), Sentinel::start(Engine::Redis));
    let shop = Shop::open(mariadb.database(), sentinel.url(), 2);
    let readers = Readers::start(&shop);
    pause(700);
    sentinel.fail_over();
    pause(3_000);
    let pages = readers.home();
    assert!(pages > 20, "only {pages} pages");
}

/// What a killed node had answered is on the pages of those that are left.
#[test]
fn feeds_stay_right_when_a_node_is_killed() {
    let (postgres, redis) = (Postgres::start(), Redis::start());
    let mut shop = Shop::open(postgres.database(), redis.url(), 3);
    for round in 0..3 {
        let readers: Vec<(String, usize)> = (0..40).map(|n| (format!("k-{n}"), n)).collect();
        let (left, right) = (shop.api(0).clone(), shop.api(2).clone());
        for (author, n) in &readers {
            let follow = format!("/v1/users/{author}-reader/follows/{author}");
            assert!(left.put(&follow, &json!({})).is_some_and(|reply| reply.status == 204), "{n}");
        }
        let victim = shop.nodes.pop().expect("three nodes");
        let count = Arc::<AtomicU64>::default();
        let counted = Arc::clone(&count);
        let writer = std::thread::spawn(move || {
            let mut told = Vec::new();
            for n in 0.. {
                let author = format!("k-{}", n % 40);
                let post = format!("{author}-{round}-{n}");
                let made = right.post(&format!("/v1/users/{author}/posts"), &json!({"post_id": post, "body": "x"}));
                match made.map(|reply| reply.status) {
                    Some(200 | 201) => {
                        told.push((author, post));
                        counted.fetch_add(1, Ordering::SeqCst);
                    }
                    _ => return told,
                }
            }
            told
        });
        left.wait("posts at the node", Duration::from_secs(30), |_| count.load(Ordering::SeqCst) > 50);
        victim.kill();
        let told = writer.join().expect("it ends with the node");
        assert!(told.len() > 50, "{}", told.len());
        for (author, post) in told.iter().rev().take(40) {
            left.wait(&format!("{post} on a page"), ELSEWHERE, |api| {
                let page = api.get(&format!("/v1/users/{author}-reader/feed?limit=100"));
                page.is_some_and(|page| page.json["items"].to_string().contains(&format!("\"{post}\"")))
            });
        }
        // Of another name each time, or its posts are there already.
        for (author, _) in &readers {
            assert!(left.delete(&format!("/v1/users/{author}")).is_some_and(|reply| reply.status == 204));
        }
        shop.nodes.push(Start::on(&shop.ledger, &shop.store).ready());
    }
}
