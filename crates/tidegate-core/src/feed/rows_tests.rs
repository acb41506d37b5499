//! What commands do to rows, against the community; copies that are told changes late, twice, out of order or never,
//! against the rows.

use proptest::prelude::*;

use super::copy::{Copies, Copy};
use super::model::Community;
use super::*;
use crate::{Map, Millis};

const NOW: Millis = Millis(1_800_000_000_000);

fn user(n: u8) -> UserId {
    UserId::parse(["ann", "bob", "cy", "dee"][usize::from(n % 4)]).expect("a name")
}

fn post(n: u8) -> PostId {
    PostId::parse(&format!("p{}", n % 12)).expect("a name")
}

fn command() -> impl Strategy<Value = Command> {
    let visibility =
        prop_oneof![4 => Just(Visibility::Public), 1 => Just(Visibility::Private), 1 => Just(Visibility::Hidden)];
    let content = prop_oneof![
        (0u8..3).prop_map(|n| Content::Body(Body::parse(["x", "y", "z"][usize::from(n)]).expect("a body"))),
        any::<u8>().prop_map(|n| Content::Repost(post(n))),
    ];
    let published_at = prop_oneof![Just(None), (-50i64..50).prop_map(|by| Some(NOW.plus(by * 20_000_000)))];
    let publish = (any::<u8>(), any::<u8>(), content, published_at, visibility.clone()).prop_map(
        |(id, author, content, published_at, visibility)| {
            Command::Publish(NewPost { id: post(id), author: user(author), content, published_at, visibility })
        },
    );
    let edit = (any::<u8>(), any::<bool>(), proptest::option::of(visibility)).prop_map(|(id, body, visibility)| {
        let body = body.then(|| Body::parse("edited").expect("a body"));
        Command::Edit(post(id), PostEdit { body, visibility })
    });
    let pair = || (any::<u8>(), any::<u8>()).prop_map(|(a, b)| (user(a), user(b)));
    prop_oneof![
        6 => publish,
        2 => edit,
        2 => any::<u8>().prop_map(|id| Command::Delete(post(id))),
        2 => pair().prop_map(|(user, other)| Command::Follow { user, other, since: None }),
        1 => pair().prop_map(|(user, other)| Command::Unfollow(user, other)),
        1 => pair().prop_map(|(user, other)| Command::Block(user, other)),
        1 => pair().prop_map(|(user, other)| Command::Unblock(user, other)),
    ]
}

fn run(all: &mut Community, now: Millis, command: &Command) -> Outcome {
    match command {
        Command::Publish(new) => Outcome::Published(all.publish(now, new)),
        Command::Edit(id, edit) => Outcome::Edited(all.edit(now, id, edit)),
        Command::Delete(id) => Outcome::Deleted(all.delete(id)),
        Command::Follow { user, other, .. } => Outcome::Followed(all.follow(now, user, other)),
        Command::Unfollow(user, other) => {
            all.unfollow(user, other);
            Outcome::Ended
        }
        Command::Block(user, other) => Outcome::Blocked(all.block(user, other)),
        Command::Unblock(user, other) => {
            all.unblock(user, other);
            Outcome::Ended
        }
    }
}

/// Every version that is known is right, and says what the rows say.
fn check_copies(copies: &Copies, table: &Table) {
    let versions = table.versions();
    let is_current = |subject: Subject, version: Version| versions.get(&subject).copied().unwrap_or(0) == version;
    for n in 0..4 {
        let user = user(n);
        if let Some(head) = copies.head(&user)
            && is_current(Subject::Author(user.clone()), head.version)
        {
            let set = table.author(&user, head.from);
            assert_eq!(head, set.head(), "{user}");
            let part =
                copies.part(&user, Order::Newest, &Edge::Instant(NOW.plus(1_000_000)), 100).expect("it is known");
            assert_eq!((part.entries, part.more), (set.entries, false), "{user}");
        }
        match copies.ties(&user) {
            Some(ties) if is_current(Subject::User(user.clone()), ties.version) => assert_eq!(*ties, table.ties(&user)),
            _ => {}
        }
    }
    for n in 0..12 {
        let root = post(n);
        let (version, want) = table.reposts(&root);
        if let Some(Copy::Known(known, reposts)) = copies.roots.get(&root)
            && *known == version
            && version > 0
        {
            let mut have: Vec<Repost> = reposts.values().cloned().collect();
            have.sort_unstable_by(|a, b| a.user.cmp(&b.user));
            assert_eq!(have, want);
        }
    }
}

/// All that a copy knows must be current: every change was told in the end.
fn check_all_current(copies: &Copies, table: &Table) {
    let versions = table.versions();
    let current = |subject: Subject, known: Option<Version>| {
        if let Some(known) = known {
            assert_eq!(known, versions.get(&subject).copied().unwrap_or(0), "{subject:?}");
        }
    };
    for n in 0..4 {
        let user = user(n);
        current(Subject::Author(user.clone()), copies.head(&user).map(|head| head.version));
        current(Subject::User(user.clone()), copies.ties(&user).map(|ties| ties.version));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn rows_come_to_what_the_community_does(
        batches in proptest::collection::vec(proptest::collection::vec(command(), 1..8), 1..25),
    ) {
        let (mut all, mut table, mut copies) = (Community::new(2), Table::new(2), Copies::default());
        let mut rows: Map<PostId, Version> = Map::default();
        for (n, batch) in batches.iter().enumerate() {
            let now = NOW.plus(n as i64);
            let before = table.clone();
            let decision = table.commit(now, batch);
            let want: Vec<Outcome> = batch.iter().map(|command| run(&mut all, now, command)).collect();
            prop_assert_eq!(&decision.outcomes, &want);
            // Each subject once, and each change leads from what was to what is.
            let (was, is) = (before.versions(), table.versions());
            let mut told = std::collections::BTreeSet::new();
            for change in &decision.changes {
                let subject = change.subject();
                prop_assert!(told.insert(subject.clone()), "{:?} twice", subject);
                let current = is.get(&subject).copied().unwrap_or(0);
                prop_assert!(change.version > was.get(&subject).copied().unwrap_or(0));
                if !matches!(change.what, What::Floor(_)) {
                    prop_assert_eq!(change.prev, was.get(&subject).copied().unwrap_or(0));
                    prop_assert_eq!(change.version, current);
                }
                copies.apply(change, now);
            }
            for (subject, version) in &is {
                prop_assert!(was.get(subject).copied().unwrap_or(0) == *version || told.contains(subject), "{:?} untold", subject);
            }
            // Every post whose row is another is named, with a version above all before.
            let ids: std::collections::BTreeSet<&PostId> = before.posts.keys().chain(table.posts.keys()).collect();
            for id in ids {
                let (old, new) = (before.posts.get(id), table.posts.get(id));
                let seen = |stored: Option<&StoredPost>| stored.map(|s| (s.post.clone(), s.reposts > 0));
                if seen(old) != seen(new) {
                    let stale = decision.stale.iter().find(|(stale, _)| stale == id);
                    let floor = stale.expect("it is old in caches").1;
                    prop_assert!(rows.get(id).is_none_or(|before| floor > *before));
                    if let Some(new) = new {
                        prop_assert_eq!(new.row, floor);
                    }
                    rows.insert(id.clone(), floor);
                }
            }
            check_copies(&copies, &table);
            check_all_current(&copies, &table);
        }
        for n in 0..12 {
            prop_assert_eq!(table.posts.get(&post(n)).map(|stored| &stored.post), all.get(&post(n)));
        }
    }

    /// Changes late, twice and out of order; some never, with a floor instead; fills that were read at any time.
    #[test]
    fn copies_never_say_what_is_not(
        steps in proptest::collection::vec((proptest::collection::vec(command(), 1..4), any::<[u8; 4]>()), 1..40),
    ) {
        let (mut table, mut copies) = (Table::new(3), Copies::default());
        let (mut late, mut fills): (Vec<(Change, Millis)>, Vec<Fill>) = (Vec::new(), Vec::new());
        for (n, (batch, [how, which, late_one, filled])) in steps.iter().enumerate() {
            let now = NOW.plus(n as i64);
            if how % 16 == 15 {
                // Before the next batch: what the ledger said may be old by the time it is filled in.
                table.delete_user(now, &user(*which)).changes.iter().for_each(|change| late.push((change.clone(), now)));
            }
            let decision = table.commit(now, batch);
            for change in decision.changes {
                match how % 4 {
                    0 => copies.apply(&change, now),
                    1 => late.push((change, now)),
                    2 => {
                        copies.apply(&change, now);
                        late.push((change, now));
                    }
                    _ => {
                        let floor = Change { what: What::Floor(change.subject()), prev: 0, ..change };
                        late.push((floor, now));
                    }
                }
            }
            if !late.is_empty() && late_one % 2 == 0 {
                let (change, at) = late.remove(usize::from(*late_one) % late.len());
                copies.apply(&change, at);
            }
            if !fills.is_empty() && filled % 2 == 0 {
                copies.fill(fills.remove(usize::from(*filled) % fills.len()));
            }
            let name = user(*filled);
            let from = now.plus(-(WINDOW_MS + copy::KEEP_MS));
            fills.push(Fill::Author(name.clone(), table.author(&name, from)));
            fills.push(Fill::User(name.clone(), table.ties(&name)));
            let (version, reposts) = table.reposts(&post(*filled));
            fills.push(Fill::Root(post(*filled), version, reposts));
            check_copies(&copies, &table);
        }
        for (change, at) in late {
            copies.apply(&change, at);
        }
        check_copies(&copies, &table);
        check_all_current(&copies, &table);
    }
}

/// A post that is deleted and published anew in one batch, as a repost of another root: who shows it again has shown that root
/// before, and is answered with what he has.
#[test]
fn a_name_with_another_root_finds_who_has_shown_that() {
    let publish = |author: u8, id: u8, content: Content| {
        let (published_at, visibility) = (None, Visibility::Public);
        Command::Publish(NewPost { id: post(id), author: user(author), content, published_at, visibility })
    };
    let body = || Content::Body(Body::parse("x").expect("a body"));
    let mut table = Table::new(9);
    let begin = [publish(0, 0, body()), publish(0, 1, body()), publish(2, 2, Content::Repost(post(1)))];
    table.commit(NOW, &begin);
    let again =
        [Command::Delete(post(0)), publish(1, 0, Content::Repost(post(1))), publish(2, 3, Content::Repost(post(0)))];
    let decision = table.commit(NOW.plus(1), &again);
    let Outcome::Published(model::Published::Same(there)) = &decision.outcomes[2] else {
        panic!("{:?}", decision.outcomes)
    };
    assert_eq!(there.id, post(2));
    assert_eq!(table.reposts(&post(1)).1.len(), 2);
}
