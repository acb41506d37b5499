//! The cases every store of a feed's copies passes.
//!
//! - [`changes`]: late, repeated, missing changes, floors, fills. [`contents`]: sets, ties, reposts; parts of sets.
//! - [`news`]: what stores are told, and what they missed; leases.
//! - [`replay`]: random operations, each answer held against `tidegate_core::feed::copy::Copies`.

pub mod changes;
pub mod contents;
pub mod news;
pub mod replay;

pub use changes::*;
pub use contents::*;
pub use news::*;
pub use replay::*;

use std::sync::Arc;

use tidegate_backend::feed::{Event, Found, News, Reads, RootRead, SetRead};
use tidegate_backend::{BoxFuture, FeedStore};
use tidegate_core::Millis;
use tidegate_core::feed::{
    AuthorSet, Change, Edge, Entry, Fill, Head, Order, Place, PostId, Repost, Reposts, SetPart, Subject, Ties, UserId,
    Version, Visibility, What, first_version,
};

/// One `#[tokio::test]` for every case of this module. `$open` is an async function `fn() -> impl Harness` that opens a
/// fresh, empty store.
#[macro_export]
macro_rules! feed_store_conformance {
    ($open:path) => {
        $crate::feed_store_conformance!($open;
            a_subject_is_known_from_its_first_commit, what_comes_again_or_late_changes_nothing,
            f11_what_misses_a_change_is_unknown, a_floor_ends_what_is_older, a_fill_never_goes_back,
            the_oldest_post_is_never_guessed, posts_before_the_set_count_as_the_oldest, sets_are_trimmed_by_the_ledgers_clock,
            sets_are_cut_when_they_are_long, a_post_may_change_its_place_and_its_kind, ties_are_what_was_done_last,
            many_ties_come_back_whole, reposts_are_by_user, of_many_reposts_those_of_some,
            f12_parts_are_complete_both_ways, f22_merged_sets_are_the_whole, reads_are_bounded, names_are_bytes,
            news_are_told_to_everybody, a_reader_that_fell_behind_is_told, what_is_lost_is_unknown_and_said,
            leases_go_to_one, a_batch_is_applied_whole, many_at_once_end_alike, stores_close,
            random_operations_agree_with_the_copies);
    };
    ($open:path; $($case:ident),+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $crate::feed::stores::$case(&|| Box::pin(async {
                    Box::new($open().await) as Box<dyn $crate::feed::stores::Harness>
                })).await;
            }
        )+
    };
}

/// How many changes the news of a store under test go back, about.
pub const NEWS_KEPT: usize = 100;

/// A fresh, empty store under test, with what its tests need beside the trait.
pub trait Harness: Send + Sync {
    /// The store.
    fn store(&self) -> Arc<dyn FeedStore>;

    /// The same copies, as another process would have them, or somebody else who is told the news.
    fn another(&self) -> BoxFuture<'_, Arc<dyn FeedStore>>;

    /// Makes the store lose everything; false where that cannot happen while the process lives.
    fn lose(&self) -> BoxFuture<'_, bool> {
        Box::pin(std::future::ready(false))
    }
}

/// Opens a fresh, empty store.
pub type Open<'a> = &'a (dyn Fn() -> BoxFuture<'static, Box<dyn Harness>> + Sync);

const NOW: Millis = Millis(1_800_000_000_000);

fn user(name: &str) -> UserId {
    UserId::parse(name).expect("a name")
}

fn users(names: &[&str]) -> Vec<UserId> {
    names.iter().map(|name| user(name)).collect()
}

fn post(name: &str) -> PostId {
    PostId::parse(name).expect("a name")
}

/// A post so many milliseconds ago.
fn entry(ago: i64, name: &str) -> Entry {
    Entry { place: Place { at: NOW.plus(-ago), post: post(name) }, root: None }
}

/// A version that a subject may have.
fn v(number: u64) -> Version {
    first_version(NOW) + number
}

/// A change of `author`'s posts from a version (0: there was nothing) to the next.
fn posts(author: &str, (prev, version): (Version, Version), added: &[Entry], removed: &[Entry]) -> Change {
    let removed: Vec<Place> = removed.iter().map(|entry| entry.place.clone()).collect();
    let touched = removed.iter().map(|place| place.post.clone()).collect();
    Change { prev, version, what: What::Posts { author: user(author), added: added.to_vec(), removed, touched } }
}

fn follows(who: &str, (prev, version): (Version, Version), follow: &[&str], unfollow: &[&str]) -> Change {
    let (follow, unfollow) = (users(follow), users(unfollow));
    Change { prev, version, what: What::Ties { user: user(who), follow, unfollow, hide: vec![], show: vec![] } }
}

fn hides(who: &str, (prev, version): (Version, Version), hide: &[&str], show: &[&str]) -> Change {
    let (hide, show) = (users(hide), users(show));
    Change { prev, version, what: What::Ties { user: user(who), follow: vec![], unfollow: vec![], hide, show } }
}

fn repost(who: &str, ago: i64, name: &str) -> Repost {
    Repost { user: user(who), at: NOW.plus(-ago), post: post(name), visibility: Visibility::Public }
}

fn reposts(root: &str, (prev, version): (Version, Version), set: &[Repost], unset: &[&str]) -> Change {
    Change { prev, version, what: What::Reposts { root: post(root), set: set.to_vec(), unset: users(unset) } }
}

fn floor(subject: Subject, version: Version) -> Change {
    Change { prev: 0, version, what: What::Floor(subject) }
}

fn set_of(version: Version, entries: &[Entry]) -> AuthorSet {
    let mut entries = entries.to_vec();
    entries.sort_unstable_by(|a, b| b.cmp(a));
    let oldest = entries.last().map(|entry| entry.place.at);
    AuthorSet { version, from: NOW.plus(-1_000_000), oldest, entries }
}

fn author_fill(author: &str, version: Version, entries: &[Entry]) -> Fill {
    Fill::Author(user(author), set_of(version, entries))
}

/// Each subject of a kind of its own, for rules that hold for all three.
fn kinds() -> [Kind; 3] {
    [Kind::Author, Kind::User, Kind::Root]
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Author,
    User,
    Root,
}

impl Kind {
    fn subject(self) -> Subject {
        match self {
            Self::Author => Subject::Author(user("ann")),
            Self::User => Subject::User(user("ann")),
            Self::Root => Subject::Root(post("root")),
        }
    }

    /// Something that `n` tells from others.
    fn change(self, prev: Version, version: Version, n: u64) -> Change {
        match self {
            Self::Author => {
                posts("ann", (prev, version), &[entry(i64::try_from(n).expect("small"), &format!("p{n}"))], &[])
            }
            Self::User => follows("ann", (prev, version), &[&format!("u{n}")], &[]),
            Self::Root => reposts("root", (prev, version), &[repost(&format!("u{n}"), 5, &format!("p{n}"))], &[]),
        }
    }

    /// What the ledger has when these changes were made.
    fn fill(self, version: Version, all: &[u64]) -> Fill {
        let names: Vec<String> = all.iter().map(|n| format!("u{n}")).collect();
        match self {
            Self::Author => {
                let entry = |n: &u64| entry(i64::try_from(*n).expect("small"), &format!("p{n}"));
                author_fill("ann", version, &all.iter().map(entry).collect::<Vec<_>>())
            }
            Self::User => {
                let mut follows: Vec<UserId> = names.iter().map(|name| user(name)).collect();
                follows.sort_unstable();
                Fill::User(user("ann"), Ties { version, follows, hidden: vec![] })
            }
            Self::Root => {
                let one = |(name, n): (&String, &u64)| repost(name, 5, &format!("p{n}"));
                Fill::Root(post("root"), version, names.iter().zip(all).map(one).collect())
            }
        }
    }
}

/// A store under test.
struct Feed {
    harness: Box<dyn Harness>,
    store: Arc<dyn FeedStore>,
}

impl Feed {
    async fn open(open: Open<'_>) -> Self {
        let harness = open().await;
        let store = harness.store();
        Self { harness, store }
    }

    async fn apply(&self, changes: &[Change]) {
        self.store.apply(changes, NOW).await.expect("the store answers");
    }

    async fn fill(&self, fill: Fill) -> bool {
        self.store.fill(vec![fill]).await.expect("the store answers")[0]
    }

    async fn head(&self, author: &str) -> Option<Head> {
        let reads = Reads { heads: vec![user(author)], ..Reads::default() };
        read(&*self.store, reads).await.heads[0]
    }

    async fn part(&self, author: &str, order: Order, beyond: Edge, max: usize) -> Option<SetPart> {
        let sets = vec![SetRead { author: user(author), order, beyond, max }];
        read(&*self.store, Reads { sets, ..Reads::default() }).await.sets.remove(0)
    }

    /// A whole set, the newest first.
    async fn set(&self, author: &str) -> Option<Vec<Entry>> {
        let part = self.part(author, Order::Newest, Edge::Instant(NOW.plus(1)), 1_000).await?;
        assert!(!part.more, "it is short");
        Some(part.entries)
    }

    async fn ties(&self, who: &str) -> Option<Ties> {
        read(&*self.store, Reads { users: vec![user(who)], ..Reads::default() }).await.users.remove(0)
    }

    async fn reposts(&self, root: &str, among: Option<&[&str]>) -> Option<Reposts> {
        let roots = vec![RootRead { root: post(root), among: among.map(|names| users(names).into()) }];
        let found = read(&*self.store, Reads { roots, ..Reads::default() }).await.roots.remove(0);
        found.map(sorted)
    }

    /// Which changes of [`Kind`] the store has, with the version where that is told; `None`: it does not know.
    async fn numbers(&self, kind: Kind) -> Option<(Option<Version>, Vec<u64>)> {
        let number = |name: &str| name[1..].parse().expect("a number");
        let (version, mut all): (_, Vec<u64>) = match kind {
            Kind::Author => {
                let set = self.set("ann").await;
                let head = self.head("ann").await;
                assert_eq!(set.is_some(), head.is_some());
                let set = set?;
                assert_eq!(set.first().map(|entry| entry.place.at), head?.newest);
                (head.map(|head| head.version), set.iter().map(|entry| number(entry.place.post.as_str())).collect())
            }
            Kind::User => {
                let ties = self.ties("ann").await?;
                (Some(ties.version), ties.follows.iter().map(|user| number(user.as_str())).collect())
            }
            Kind::Root => match self.reposts("root", None).await? {
                Reposts::All(all) => (None, all.iter().map(|repost| number(repost.user.as_str())).collect()),
                other => panic!("not all: {other:?}"),
            },
        };
        all.sort_unstable();
        Some((version, all))
    }

    /// That a subject is known with these changes.
    async fn has(&self, kind: Kind, version: Version, numbers: &[u64]) {
        let (told, all) = self.numbers(kind).await.unwrap_or_else(|| panic!("{kind:?} is not known"));
        assert!(told.is_none_or(|told| told == version), "{kind:?} {told:?} {version}");
        assert_eq!(all, numbers, "{kind:?}");
    }

    async fn knows_nothing(&self, kind: Kind) {
        assert_eq!(self.numbers(kind).await, None, "{kind:?}");
    }
}

async fn read(store: &dyn FeedStore, reads: Reads) -> Found {
    store.read(reads).await.expect("the store answers")
}

async fn news(store: &dyn FeedStore) -> News {
    read(store, Reads { news: true, ..Reads::default() }).await.news
}

/// The news that are left, of a store that has lost none.
async fn events(store: &dyn FeedStore) -> Vec<Event> {
    let news = news(store).await;
    assert!(!news.lost, "nothing was lost");
    news.events
}

fn sorted(reposts: Reposts) -> Reposts {
    let by_user = |mut all: Vec<Repost>| {
        all.sort_unstable_by(|a, b| a.user.cmp(&b.user));
        all
    };
    match reposts {
        Reposts::All(all) => Reposts::All(by_user(all)),
        Reposts::Among(all) => Reposts::Among(by_user(all)),
        Reposts::Many(count) => Reposts::Many(count),
    }
}
