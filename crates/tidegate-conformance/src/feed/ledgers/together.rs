//! Several writers at once: whatever order their commits end up in, no change is lost.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use rand::SeedableRng;
use rand::rngs::StdRng;
use tidegate_core::feed::What;
use tidegate_core::feed::copy::Copies;

use super::*;
use crate::workload::Entropy;

/// Writers.
const WRITERS: u64 = 8;

async fn at_once(feed: &Arc<dyn FeedLedger>, batches: Vec<Vec<Command>>) -> Vec<FeedCommit> {
    let commits: Vec<_> = batches
        .into_iter()
        .map(|batch| {
            let feed = feed.clone();
            tokio::spawn(async move { feed.commit(batch.into()).await })
        })
        .collect();
    let mut answers = Vec::new();
    for commit in commits {
        answers.push(commit.await.expect("no task panics").expect("it commits"));
    }
    answers
}

/// One id by many at once: one of them is new, the others find it.
pub async fn an_id_published_at_once_is_one_post(open: Open<'_>) {
    let twin = Twin::open(open).await;
    for round in 0..12 {
        let id = format!("p{round}");
        // Half of them say something else; ids around it are everybody's own.
        let batch = |n: u64| {
            let author = if n.is_multiple_of(2) { "ann" } else { "bob" };
            vec![publish(author, &format!("a{round}-{n}"), None), publish(author, &id, None), follow(author, "cy")]
        };
        let commits = at_once(&twin.feed, (0..WRITERS).map(batch).collect()).await;
        let kind = |wanted: fn(&Published) -> bool| {
            let outcomes = commits.iter().map(|commit| &commit.outcomes[1]);
            outcomes.filter(|outcome| matches!(outcome, Outcome::Published(published) if wanted(published))).count()
        };
        let found = (
            kind(|published| matches!(published, Published::New(_))),
            kind(|published| matches!(published, Published::Same(_))),
            kind(|published| matches!(published, Published::Mismatch)),
        );
        assert_eq!(found, (1, 3, 4));
    }
    let shown = (0..WRITERS).map(|n| vec![repost("dee", &format!("r{n}"), "p0")]).collect();
    let commits = at_once(&twin.feed, shown).await;
    let ids: Set<PostId> = commits.iter().map(|commit| published(&commit.outcomes[0]).id.clone()).collect();
    assert_eq!(ids.len(), 1, "all of them are answered with the one repost");
    assert_eq!(twin.feed.reposts(&post("p0"), None, 9).await.expect("readable").1.len(), 1);
}

/// The limit of follows holds, however many ask at once.
pub async fn the_limit_of_follows_holds_at_once(open: Open<'_>) {
    let twin = Twin::following(open, 20).await;
    let batch = |n: u64| (0..6).map(|i| follow("ann", &format!("u{n}-{i}"))).collect();
    let commits = at_once(&twin.feed, (0..WRITERS).map(batch).collect()).await;
    let outcomes = commits.iter().flat_map(|commit| &commit.outcomes);
    let followed = outcomes.filter(|outcome| matches!(outcome, Outcome::Followed(Followed::Since(_)))).count();
    assert_eq!((followed, twin.follows(&user("ann"), 50).await.len()), (20, 20));
}

/// Changes of each subject, in the order of their versions.
fn by_subject(commits: &[FeedCommit]) -> BTreeMap<Subject, BTreeMap<Version, (Change, Millis)>> {
    let mut all: BTreeMap<Subject, BTreeMap<Version, (Change, Millis)>> = BTreeMap::new();
    for commit in commits {
        for change in &commit.changes {
            let of = all.entry(change.subject()).or_default();
            let twice = of.insert(change.version, (change.clone(), commit.now));
            assert_eq!(twice, None, "two commits made the same version");
        }
    }
    all
}

/// Random colliding commands of eight writers: the versions of each subject are a chain without a hole, and copies that are
/// told all changes in their order have what the ledger has.
pub async fn no_change_of_eight_writers_is_lost(open: Open<'_>) {
    let twin = Twin::following(open, 5).await;
    let batches = if std::env::var_os("TIDEGATE_TEST_LONG").is_some() { 1_500 } else { 25 };
    let writers: Vec<_> = (0..WRITERS)
        .map(|seed| {
            let (feed, now) = (twin.feed.clone(), twin.now());
            tokio::spawn(async move {
                let mut dice = StdRng::seed_from_u64(seed);
                let mut commits = Vec::new();
                for _ in 0..batches {
                    let batch: Vec<Command> = (0..1 + dice.below(6)).map(|_| random::command(&mut dice, now)).collect();
                    commits.push(feed.commit(batch.into()).await.expect("it commits"));
                }
                commits
            })
        })
        .collect();
    let mut commits = Vec::new();
    for writer in writers {
        commits.extend(writer.await.expect("no writer panics"));
    }
    let mut copies = Copies::default();
    for (subject, changes) in by_subject(&commits) {
        let mut last = 0;
        for (version, (change, now)) in changes {
            let is_floor = matches!(change.what, What::Floor(_));
            assert!(
                is_floor || change.prev == last || change.prev == 0,
                "{subject:?}: {last} is followed by {change:?}"
            );
            last = version;
            copies.apply(&change, now);
        }
    }
    compare_copies(&twin, &copies).await;
}

/// What copies know is what the ledger has; most of it is known.
async fn compare_copies(twin: &Twin, copies: &Copies) {
    let users: Vec<UserId> = copies.users.keys().chain(copies.authors.keys()).cloned().collect();
    let from = twin.now().plus(-WINDOW_MS);
    let (sets, ties) = (twin.feed.authors(&users, from), twin.feed.ties(&users));
    let (sets, ties) = (sets.await.expect("readable"), ties.await.expect("readable"));
    let mut known = 0;
    for ((user, set), ties) in users.iter().zip(sets).zip(ties) {
        if let Some(own) = copies.ties(user) {
            known += 1;
            assert_eq!(own, &ties, "{user}");
        }
        if let Some(own) = copies.part(user, Order::Newest, &Edge::Instant(Millis::MAX), usize::MAX - 1) {
            let entries: Vec<_> = own.entries.into_iter().filter(|entry| entry.place.at >= from).collect();
            assert_eq!((own.version, entries), (set.version, set.entries), "{user}");
        }
    }
    assert!(known > 0);
    for root in copies.roots.keys() {
        let (version, all) = twin.feed.reposts(root, None, 5_000).await.expect("readable");
        let Some((own, reposts)) = copies.roots[root].known() else { continue };
        if version > 0 {
            let mut reposts: Vec<_> = reposts.values().cloned().collect();
            reposts.sort_by(|a, b| a.user.cmp(&b.user));
            assert_eq!((own, reposts), (version, all), "{root}");
        }
    }
}

/// A reader never sees a set and its version of two moments.
pub async fn reads_are_of_one_moment(open: Open<'_>) {
    let twin = Twin::open(open).await;
    let begin = vec![publish("ann", "p", None), follow("ann", "u"), repost("bob", "r", "p"), follow("cy", "u")];
    twin.feed.commit(begin.into()).await.expect("it commits");
    let done = Arc::new(AtomicBool::new(false));
    let writer = {
        let (feed, done) = (twin.feed.clone(), done.clone());
        tokio::spawn(async move {
            for n in 0..60 {
                // Many in one commit: a reader between two of its rows would see some of them.
                let mut batch: Vec<Command> = (0..5).map(|i| publish("ann", &format!("p{n}-{i}"), None)).collect();
                batch.extend((0..5).map(|i| follow("ann", &format!("u{n}-{i}"))));
                batch.extend((0..5).map(|i| repost(&format!("u{n}-{i}"), &format!("r{n}-{i}"), "p")));
                feed.commit(batch.into()).await.expect("it commits");
            }
            done.store(true, Ordering::SeqCst);
        })
    };
    let names = [user("ann"), user("cy")];
    let mut first: Option<[Version; 3]> = None;
    let mut looks = 0;
    while !done.load(Ordering::SeqCst) {
        let set = twin.feed.authors(&names, Millis(0)).await.expect("readable").swap_remove(0);
        let ties = twin.feed.ties(&names).await.expect("readable").swap_remove(0);
        let (root, reposts) = twin.feed.reposts(&post("p"), None, 5_000).await.expect("readable");
        let commits = [set.entries.len(), ties.follows.len(), reposts.len()].map(|rows| (rows - 1) / 5);
        assert!([set.entries.len(), ties.follows.len(), reposts.len()].iter().all(|rows| rows % 5 == 1));
        // Each commit raises each version by one.
        let begins = [(set.version, commits[0]), (ties.version, commits[1]), (root, commits[2])];
        let begins = begins.map(|(version, commits)| version - commits as Version);
        assert_eq!(*first.get_or_insert(begins), begins);
        looks += 1;
    }
    writer.await.expect("the writer has not panicked");
    assert!(looks > 2);
}
