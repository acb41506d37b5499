//! Late, repeated, missing changes, floors, fills: what every kind of subject does with them.

use super::*;

/// What had no row is known from its first commit on, without a read of the ledger.
pub async fn a_subject_is_known_from_its_first_commit(open: Open<'_>) {
    let feed = Feed::open(open).await;
    for kind in kinds() {
        feed.knows_nothing(kind).await;
        feed.apply(&[kind.change(0, v(0), 1)]).await;
        feed.has(kind, v(0), &[1]).await;
        feed.apply(&[kind.change(v(0), v(1), 2)]).await;
        feed.has(kind, v(1), &[1, 2]).await;
    }
    let head = feed.head("ann").await.expect("it is known");
    assert_eq!((head.newest, head.oldest), (Some(NOW.plus(-1)), Some(NOW.plus(-2))));
    assert_eq!(head.from, tidegate_core::feed::copy::lowest(NOW));
}

/// Who is told the same twice passes over it.
pub async fn what_comes_again_or_late_changes_nothing(open: Open<'_>) {
    let feed = Feed::open(open).await;
    for kind in kinds() {
        let all: Vec<Change> = (0..4).map(|n| kind.change(if n == 0 { 0 } else { v(n - 1) }, v(n), n + 1)).collect();
        for change in &all {
            feed.apply(std::slice::from_ref(change)).await;
            feed.apply(std::slice::from_ref(change)).await;
        }
        for change in all.iter().rev() {
            feed.apply(std::slice::from_ref(change)).await;
        }
        feed.has(kind, v(3), &[1, 2, 3, 4]).await;
        // A floor that the copy is above of.
        feed.apply(&[floor(kind.subject(), v(3)), floor(kind.subject(), v(1))]).await;
        feed.has(kind, v(3), &[1, 2, 3, 4]).await;
    }
}

/// Case F11: a copy with a hole is never taken for the whole, whatever comes after, until it is filled with what is new enough.
pub async fn f11_what_misses_a_change_is_unknown(open: Open<'_>) {
    let feed = Feed::open(open).await;
    for kind in kinds() {
        feed.apply(&[kind.change(0, v(0), 1)]).await;
        // The change to v(1) comes late.
        feed.apply(&[kind.change(v(1), v(2), 3)]).await;
        feed.knows_nothing(kind).await;
        feed.apply(&[kind.change(v(0), v(1), 2)]).await;
        feed.knows_nothing(kind).await;
        assert!(!feed.fill(kind.fill(v(1), &[1, 2])).await, "older than what was told");
        feed.knows_nothing(kind).await;
        feed.apply(&[kind.change(v(2), v(3), 4)]).await;
        feed.knows_nothing(kind).await;
        assert!(!feed.fill(kind.fill(v(2), &[1, 2, 3])).await);
        assert!(feed.fill(kind.fill(v(3), &[1, 2, 3, 4])).await);
        feed.has(kind, v(3), &[1, 2, 3, 4]).await;
        feed.apply(&[kind.change(v(3), v(4), 5)]).await;
        feed.has(kind, v(4), &[1, 2, 3, 4, 5]).await;
    }
}

/// Floors: of the outbox, in place of changes that nobody lived to tell, and of what was deleted.
pub async fn a_floor_ends_what_is_older(open: Open<'_>) {
    let feed = Feed::open(open).await;
    for kind in kinds() {
        assert!(feed.fill(kind.fill(v(3), &[1, 2])).await);
        feed.apply(&[floor(kind.subject(), v(5))]).await;
        feed.knows_nothing(kind).await;
        // An older floor does not lower it.
        feed.apply(&[floor(kind.subject(), v(4))]).await;
        assert!(!feed.fill(kind.fill(v(4), &[1, 2])).await);
        assert!(feed.fill(kind.fill(v(5), &[1, 2, 3])).await);
        feed.has(kind, v(5), &[1, 2, 3]).await;
        feed.apply(&[floor(kind.subject(), v(9))]).await;
        // A change from the floor on tells nothing of what was before.
        feed.apply(&[kind.change(v(9), v(10), 7)]).await;
        feed.knows_nothing(kind).await;
        assert!(!feed.fill(kind.fill(v(9), &[1])).await);
        assert!(feed.fill(kind.fill(v(12), &[1, 7])).await);
        feed.apply(&[kind.change(v(11), v(12), 8)]).await;
        feed.has(kind, v(12), &[1, 7]).await;
        // Deleted, and begun anew above the floor.
        feed.apply(&[floor(kind.subject(), v(13)), kind.change(0, v(2_000), 9)]).await;
        feed.has(kind, v(2_000), &[9]).await;
        assert!(!feed.fill(kind.fill(v(12), &[1, 7])).await);
        // A first commit that is not above what is known.
        feed.apply(&[kind.change(0, v(1_999), 3)]).await;
        feed.has(kind, v(2_000), &[9]).await;
    }
}

/// What was read from the ledger before a change is not filled in after it.
pub async fn a_fill_never_goes_back(open: Open<'_>) {
    let feed = Feed::open(open).await;
    for kind in kinds() {
        assert!(feed.fill(kind.fill(v(3), &[1, 2, 3])).await, "nothing is known");
        assert!(!feed.fill(kind.fill(v(2), &[1])).await);
        feed.has(kind, v(3), &[1, 2, 3]).await;
        assert!(feed.fill(kind.fill(v(3), &[1, 2, 3])).await, "the same again");
        feed.has(kind, v(3), &[1, 2, 3]).await;
        feed.apply(&[kind.change(v(3), v(4), 4)]).await;
        assert!(!feed.fill(kind.fill(v(3), &[1, 2, 3])).await);
        assert!(feed.fill(kind.fill(v(6), &[5])).await, "what was left out is gone");
        feed.has(kind, v(6), &[5]).await;
        // The ledger has no row of it: a fill all the same, and the oldest of all.
        assert!(!feed.fill(kind.fill(0, &[])).await);
        assert!(feed.fill(kind.fill(v(7), &[])).await);
        feed.has(kind, v(7), &[]).await;
    }
    for (kind, name) in [(Kind::Author, "nobody"), (Kind::User, "nobody")] {
        let nothing = match kind {
            Kind::Author => author_fill(name, 0, &[]),
            _ => Fill::User(user(name), Ties::default()),
        };
        assert!(feed.fill(nothing).await);
    }
    assert_eq!(feed.head("nobody").await.map(|head| (head.version, head.newest, head.oldest)), Some((0, None, None)));
    assert_eq!(feed.ties("nobody").await, Some(Ties::default()));
    feed.apply(&[posts("nobody", (0, v(1)), &[entry(1, "first")], &[])]).await;
    assert_eq!(feed.set("nobody").await, Some(vec![entry(1, "first")]));
}

/// A batch of many kinds and subjects, some of them twice, is applied in its order.
pub async fn a_batch_is_applied_whole(open: Open<'_>) {
    let feed = Feed::open(open).await;
    let mut changes = Vec::new();
    for n in 0..300_u64 {
        let name = format!("user-{n}");
        changes.push(posts(&name, (0, v(0)), &[entry(7, &format!("p{n}"))], &[]));
        changes.push(follows(&name, (0, v(0)), &["a", "b"], &[]));
        changes.push(posts(&name, (v(0), v(1)), &[entry(5, &format!("q{n}"))], &[]));
        changes.push(reposts(&format!("root-{n}"), (0, v(0)), &[repost("a", 1, "r")], &[]));
        if n % 3 == 0 {
            changes.push(floor(Subject::User(user(&name)), v(3)));
        }
    }
    feed.apply(&changes).await;
    for n in 0..300_u64 {
        let name = format!("user-{n}");
        let set = feed.set(&name).await.expect("it is known");
        assert_eq!(set, [entry(5, &format!("q{n}")), entry(7, &format!("p{n}"))]);
        assert_eq!(feed.ties(&name).await.is_some(), n % 3 != 0);
        assert!(feed.reposts(&format!("root-{n}"), None).await.is_some());
    }
}
