//! Random commands on the rows of a ledger in memory; what they change is told to the store now, late, twice, out of order, or
//! only by a floor, and it is filled with what was read at any time. Each answer is held against [`Copies`].

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidegate_core::feed::copy::{Copies, lowest};
use tidegate_core::feed::table::Table;
use tidegate_core::feed::{Body, Command, Content, NewPost, PostEdit};

use super::*;

/// Runs and steps in the suite. With `TIDEGATE_TEST_LONG` there are a million steps.
const RUNS: u64 = 2;
const STEPS: usize = 1_500;
/// A run ends before floors do.
const LONGEST: Duration = Duration::from_secs(40);
const USERS: usize = 6;
const POSTS: usize = 24;

struct Replay {
    dice: StdRng,
    feed: Feed,
    other: Arc<dyn FeedStore>,
    table: Table,
    copies: Copies,
    now: Millis,
    late: Vec<(Change, Millis)>,
    fills: Vec<Fill>,
    /// Told since the other store was asked for the news last.
    told: Vec<Event>,
    seen: BTreeMap<&'static str, u32>,
}

/// Random operations; see the module's text.
pub async fn random_operations_agree_with_the_copies(open: Open<'_>) {
    let runs = if std::env::var_os("TIDEGATE_TEST_LONG").is_some() { 1_000_000 / STEPS as u64 } else { RUNS };
    let mut seen: BTreeMap<&'static str, u32> = BTreeMap::new();
    for seed in 0..runs {
        let feed = Feed::open(open).await;
        let other = feed.harness.another().await;
        news(&*other).await;
        let mut replay = Replay {
            dice: StdRng::seed_from_u64(seed),
            feed,
            other,
            table: Table::new(4),
            copies: Copies::default(),
            now: NOW,
            late: Vec::new(),
            fills: Vec::new(),
            told: Vec::new(),
            seen: BTreeMap::new(),
        };
        let began = Instant::now();
        for _ in 0..STEPS {
            replay.step().await;
            if began.elapsed() > LONGEST {
                break;
            }
        }
        for (kind, times) in replay.seen {
            *seen.entry(kind).or_insert(0) += times;
        }
    }
    let kinds =
        ["set", "no set", "parts with more", "ties", "no ties", "reposts", "no reposts", "taken", "refused", "news"];
    for kind in kinds {
        assert!(seen.get(kind).is_some_and(|times| *times >= 20), "the replay is poor in {kind}: {seen:?}");
    }
}

impl Replay {
    fn count(&mut self, kind: &'static str) {
        *self.seen.entry(kind).or_insert(0) += 1;
    }

    fn user(&mut self) -> UserId {
        user(&format!("u{}", self.dice.random_range(0..USERS)))
    }

    fn post(&mut self) -> PostId {
        post(&format!("p{}", self.dice.random_range(0..POSTS)))
    }

    async fn step(&mut self) {
        // Minutes, mostly; now and then half a day, so that sets are trimmed.
        let by = if self.dice.random_ratio(1, 60) { 43_200_000 } else { self.dice.random_range(1..120_000) };
        self.now = self.now.plus(by);
        match self.dice.random_range(0..100) {
            0..45 => self.commit().await,
            45..60 => self.tell_late().await,
            60..75 => self.fill().await,
            75..95 => self.look().await,
            _ => self.hear().await,
        }
        // The ledger is read at any time, for fills to come.
        if self.dice.random_ratio(1, 2) {
            let (name, root) = (self.user(), self.post());
            self.fills.push(match self.dice.random_range(0..3) {
                0 => Fill::Author(name.clone(), self.table.author(&name, lowest(self.now))),
                1 => Fill::User(name.clone(), self.table.ties(&name)),
                _ => {
                    let (version, reposts) = self.table.reposts(&root);
                    Fill::Root(root, version, reposts)
                }
            });
        }
    }

    fn command(&mut self) -> Command {
        let visibility = match self.dice.random_range(0..6) {
            0 => Visibility::Private,
            1 => Visibility::Hidden,
            _ => Visibility::Public,
        };
        let (user, other) = (self.user(), self.user());
        match self.dice.random_range(0..16) {
            0..7 => {
                let content = if self.dice.random_ratio(1, 2) {
                    Content::Repost(self.post())
                } else {
                    Content::Body(Body::parse("words").expect("a body"))
                };
                // Some share a millisecond, some are older than the window.
                let at = match self.dice.random_range(0..4) {
                    0 => None,
                    1 => Some(Millis(self.now.0 / 3_600_000 * 3_600_000)),
                    _ => Some(self.now.plus(-self.dice.random_range(0..9 * 86_400_000))),
                };
                Command::Publish(NewPost { id: self.post(), author: user, content, published_at: at, visibility })
            }
            7 => Command::Edit(self.post(), PostEdit { body: None, visibility: Some(visibility) }),
            8..11 => Command::Delete(self.post()),
            11 | 12 => Command::Follow { user, other, since: None },
            13 => Command::Unfollow(user, other),
            14 => Command::Block(user, other),
            _ => Command::Unblock(user, other),
        }
    }

    async fn commit(&mut self) {
        let decision = if self.dice.random_ratio(1, 40) {
            let user = self.user();
            self.table.delete_user(self.now, &user)
        } else {
            let batch: Vec<Command> = (0..self.dice.random_range(1..5)).map(|_| self.command()).collect();
            self.table.commit(self.now, &batch)
        };
        let mut now = Vec::new();
        for change in decision.changes {
            match self.dice.random_range(0..20) {
                0 => self.late.push((change, self.now)),
                1 => {
                    self.late.push((change.clone(), self.now));
                    now.push(change);
                }
                2 => self.late.push((floor(change.subject(), change.version), self.now)),
                _ => now.push(change),
            }
        }
        self.tell(now, self.now).await;
    }

    async fn tell_late(&mut self) {
        if !self.late.is_empty() {
            let (change, at) = self.late.swap_remove(self.dice.random_range(0..self.late.len()));
            self.tell(vec![change], at).await;
        }
    }

    async fn tell(&mut self, changes: Vec<Change>, now: Millis) {
        let store = if self.dice.random_ratio(1, 2) { &self.feed.store } else { &self.other };
        store.apply(&changes, now).await.expect("the store answers");
        for change in &changes {
            self.copies.apply(change, now);
            self.told.push(Event::of(change));
        }
        if self.told.len() > NEWS_KEPT / 2 {
            self.hear().await;
        }
    }

    async fn fill(&mut self) {
        let mut fills = Vec::new();
        while fills.len() < 3 && !self.fills.is_empty() {
            fills.push(self.fills.swap_remove(self.dice.random_range(0..self.fills.len())));
        }
        self.fills.truncate(200);
        let taken = self.feed.store.fill(fills.clone()).await.expect("the store answers");
        for (fill, taken) in fills.into_iter().zip(taken) {
            assert_eq!(taken, self.copies.fill(fill.clone()), "{fill:?}");
            self.count(if taken { "taken" } else { "refused" });
        }
    }

    async fn hear(&mut self) {
        let mut events = events(&*self.other).await;
        let mut told = std::mem::take(&mut self.told);
        if !told.is_empty() {
            self.count("news");
        }
        for list in [&mut events, &mut told] {
            list.sort_by(|a, b| a.subject.cmp(&b.subject));
        }
        assert_eq!(events, told);
    }

    fn edge(&mut self) -> Edge {
        let at = self.now.plus(-self.dice.random_range(-1_000..9 * 86_400_000));
        let name = self.post();
        // Mostly about a post that there is.
        let place = match self.table.posts.get(&name) {
            Some(stored) => Place { at: stored.post.published_at, post: name },
            None => Place { at, post: name },
        };
        match self.dice.random_range(0..4) {
            0 => Edge::Instant(self.now.plus(1)),
            1 => Edge::Instant(place.at),
            2 => Edge::Before(place),
            _ => Edge::After(place),
        }
    }

    async fn look(&mut self) {
        let mut sets = Vec::new();
        for _ in 0..4 {
            let order = if self.dice.random_ratio(1, 3) { Order::Oldest } else { Order::Newest };
            let (author, beyond) = (self.user(), self.edge());
            sets.push(SetRead { author, order, beyond, max: self.dice.random_range(1..6) });
        }
        let among = |replay: &mut Self| replay.dice.random_ratio(1, 2).then(|| vec![user("u0"), user("u1")].into());
        let roots = (0..3).map(|_| RootRead { root: self.post(), among: among(self) }).collect();
        let (heads, users) = ((0..USERS).map(|n| user(&format!("u{n}"))).collect(), vec![self.user(), self.user()]);
        let reads = Reads { news: false, heads, sets, users, roots };
        let found = read(&*self.feed.store, reads.clone()).await;
        for (author, head) in reads.heads.iter().zip(&found.heads) {
            assert_eq!(*head, self.copies.head(author), "{author}");
        }
        for (read, part) in reads.sets.iter().zip(found.sets) {
            let want = self.copies.part(&read.author, read.order, &read.beyond, read.max);
            let kind = match &part {
                None => "no set",
                Some(part) if part.more => "parts with more",
                Some(_) => "set",
            };
            self.count(kind);
            // Of a set that was read while it changed, the version may be that of just before; here nothing changes.
            assert_eq!(part, want, "{read:?}");
        }
        for (user, ties) in reads.users.iter().zip(found.users) {
            // A store may forget what has become long.
            let want = self.copies.ties(user).cloned();
            self.count(if ties.is_some() { "ties" } else { "no ties" });
            assert_eq!(ties, want, "{user}");
        }
        for (read, reposts) in reads.roots.iter().zip(found.roots) {
            let want = self.copies.reposts(&read.root, read.among.as_deref()).map(sorted);
            self.count(if reposts.is_some() { "reposts" } else { "no reposts" });
            assert_eq!(reposts.map(sorted), want, "{read:?}");
        }
    }
}
