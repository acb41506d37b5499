//! Sets, ties and reposts, and parts of sets.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidegate_backend::feed::{MAX_FEED_READS, MAX_PART};
use tidegate_core::feed::copy::{Copies, KEEP_MS, lowest};
use tidegate_core::feed::{MAX_SET, MAX_WHOLE_REPOSTS, WINDOW_MS};

use super::*;

/// Which post is the oldest of all decides whether a page ends with the window: after a deletion only the ledger knows.
pub async fn the_oldest_post_is_never_guessed(open: Open<'_>) {
    let feed = Feed::open(open).await;
    let [a, b, c] = [entry(9, "a"), entry(7, "b"), entry(7, "c")];
    feed.apply(&[posts("ann", (0, v(0)), &[a.clone(), b.clone(), c.clone()], &[])]).await;
    feed.apply(&[posts("ann", (v(0), v(1)), &[], std::slice::from_ref(&b))]).await;
    assert_eq!(feed.set("ann").await, Some(vec![c.clone(), a.clone()]));
    feed.apply(&[posts("ann", (v(1), v(2)), &[], std::slice::from_ref(&a))]).await;
    assert_eq!(feed.head("ann").await, None);
    assert!(!feed.fill(author_fill("ann", v(1), &[a, c.clone()])).await);
    assert!(feed.fill(author_fill("ann", v(2), std::slice::from_ref(&c))).await);
    assert_eq!(feed.head("ann").await.and_then(|head| head.oldest), Some(c.place.at));
    // The last one goes, and one that was never there.
    feed.apply(&[posts("ann", (v(2), v(3)), &[], &[entry(3, "x")])]).await;
    assert_eq!(feed.set("ann").await, Some(vec![c.clone()]));
    feed.apply(&[posts("ann", (v(3), v(4)), &[entry(2, "d")], &[c])]).await;
    assert_eq!(feed.head("ann").await, None);
}

/// An imported post from long ago.
pub async fn posts_before_the_set_count_as_the_oldest(open: Open<'_>) {
    let feed = Feed::open(open).await;
    let (old, new) = (entry(WINDOW_MS + KEEP_MS + 5, "old"), entry(5, "new"));
    feed.apply(&[posts("ann", (0, v(0)), &[old.clone(), new.clone()], &[])]).await;
    let head = feed.head("ann").await.expect("it is known");
    assert_eq!((head.oldest, head.newest), (Some(old.place.at), Some(new.place.at)));
    assert_eq!(feed.set("ann").await, Some(vec![new.clone()]));
    // Just on the edge.
    let (edge, before) = (entry(WINDOW_MS + KEEP_MS, "edge"), entry(WINDOW_MS + KEEP_MS + 1, "before"));
    feed.apply(&[posts("ann", (v(0), v(1)), &[edge.clone(), before], &[])]).await;
    assert_eq!(feed.set("ann").await, Some(vec![new, edge]));
}

/// What has left the window goes by the clock of the ledger that is passed, with an hour to spare.
pub async fn sets_are_trimmed_by_the_ledgers_clock(open: Open<'_>) {
    let feed = Feed::open(open).await;
    let entries: Vec<Entry> = (0..10).map(|day| entry(day * 86_400_000, &format!("d{day}"))).collect();
    let set = AuthorSet { from: NOW.plus(-100 * 86_400_000), ..set_of(v(0), &entries) };
    assert!(feed.fill(Fill::Author(user("ann"), set)).await);
    assert_eq!(feed.set("ann").await.map(|set| set.len()), Some(10));
    for (version, later) in (0..).zip([0, 10, 86_400_000, 3 * 86_400_000, 86_400_000]) {
        let now = NOW.plus(later);
        let next = posts("ann", (v(version), v(version + 1)), &[entry(1, &format!("n{version}"))], &[]);
        feed.store.apply(&[next], now).await.expect("the store answers");
        let head = feed.head("ann").await.expect("it is known");
        // Never back.
        let low = lowest(now).max(if version == 4 { lowest(NOW.plus(3 * 86_400_000)) } else { Millis(0) });
        assert_eq!((head.from, head.oldest), (low, Some(entries[9].place.at)));
        let set = feed.set("ann").await.expect("it is known");
        let old = entries.iter().filter(|entry| entry.place.at >= low).count();
        assert_eq!(set.len(), old + 1 + usize::try_from(version).expect("small"));
        assert!(set.iter().all(|entry| entry.place.at >= low));
    }
    // A delete may take the last of all that were kept.
    feed.apply(&[posts("bob", (0, v(0)), &[entry(50, "old"), entry(9, "only")], &[])]).await;
    feed.apply(&[posts("bob", (v(0), v(1)), &[], &[entry(9, "only")])]).await;
    let later = NOW.plus(8 * 86_400_000);
    feed.store.apply(&[posts("bob", (v(1), v(2)), &[], &[entry(9, "x")])], later).await.expect("the store answers");
    let head = feed.head("bob").await.expect("it is known");
    assert_eq!((head.version, head.newest, head.oldest), (v(2), None, Some(NOW.plus(-50))));
    assert_eq!(feed.set("bob").await, Some(vec![]));
}

/// A set is bounded, and says from when on it is whole.
pub async fn sets_are_cut_when_they_are_long(open: Open<'_>) {
    let feed = Feed::open(open).await;
    let most = i64::try_from(2 * MAX_SET).expect("small");
    // Two of each instant, so that the cut goes through a pair.
    let one = |n: i64| entry((most - n) / 2 * 10 + 100, &format!("p{n:05}"));
    let mut copies = Copies::default();
    for (version, from) in (0..).zip((0..most + 1).step_by(500)) {
        let added: Vec<Entry> = (from..(from + 500).min(most + 1)).map(one).collect();
        let prev = if version == 0 { 0 } else { v(version - 1) };
        let change = posts("ann", (prev, v(version)), &added, &[]);
        feed.apply(std::slice::from_ref(&change)).await;
        copies.apply(&change, NOW);
        assert_eq!(feed.head("ann").await, copies.head(&user("ann")));
    }
    let head = feed.head("ann").await.expect("it is known");
    assert!(head.from > one(most / 2 - 2).place.at && head.oldest == Some(one(0).place.at), "{head:?}");
    let (mut all, mut beyond) = (Vec::new(), Edge::Instant(NOW));
    loop {
        let part = feed.part("ann", Order::Newest, beyond, 700).await.expect("it is known");
        all.extend(part.entries);
        if !part.more {
            break;
        }
        beyond = Edge::Before(all.last().expect("a full part").place.clone());
    }
    let mut want: Vec<Entry> = (0..=most).map(one).filter(|entry| entry.place.at >= head.from).collect();
    want.sort_unstable_by(|a, b| b.cmp(a));
    assert!(want.len() <= MAX_SET && want.len() > MAX_SET - 3, "{}", want.len());
    assert_eq!(all, want);
}

/// Deleted and published anew in one commit: at another place, or as a repost.
pub async fn a_post_may_change_its_place_and_its_kind(open: Open<'_>) {
    let feed = Feed::open(open).await;
    let old = entry(500, "old");
    let shown = |ago: i64, root: &str| Entry { root: Some(post(root)), ..entry(ago, "p") };
    feed.apply(&[posts("ann", (0, v(0)), &[old.clone(), entry(50, "p")], &[])]).await;
    let steps: [(Entry, &[Entry]); 5] = [
        (shown(50, "r"), &[]),
        (shown(50, "s"), &[]),
        (shown(40, "s"), &[shown(50, "s")]),
        (entry(40, "p"), &[]),
        (entry(60, "p"), &[entry(40, "p")]),
    ];
    for (n, (next, gone)) in steps.into_iter().enumerate() {
        let n = n as u64;
        feed.apply(&[posts("ann", (v(n), v(n + 1)), std::slice::from_ref(&next), gone)]).await;
        assert_eq!(feed.set("ann").await, Some(vec![next, old.clone()]), "step {n}");
    }
    // Names of which one begins with the other, at one instant.
    let names = ["p", "p-1", "p-1-1", "p1"].map(|name| entry(60, name));
    feed.apply(&[posts("ann", (v(5), v(6)), &names, &[])]).await;
    feed.apply(&[posts("ann", (v(6), v(7)), &[], &names[..1])]).await;
    let left = [&names[3], &names[2], &names[1], &old].map(Clone::clone);
    assert_eq!(feed.set("ann").await, Some(left.to_vec()));
}

/// Follows and blocks of a user, in any order.
pub async fn ties_are_what_was_done_last(open: Open<'_>) {
    let feed = Feed::open(open).await;
    let want = |version, follows: &[&str], hidden: &[&str]| {
        Some(Ties { version, follows: users(follows), hidden: users(hidden) })
    };
    feed.apply(&[follows("ann", (0, v(0)), &["d", "b"], &[])]).await;
    assert_eq!(feed.ties("ann").await, want(v(0), &["b", "d"], &[]));
    feed.apply(&[hides("ann", (v(0), v(1)), &["c", "b"], &[])]).await;
    assert_eq!(feed.ties("ann").await, want(v(1), &["b", "d"], &["b", "c"]));
    feed.apply(&[follows("ann", (v(1), v(2)), &["a", "c"], &["b", "nobody"])]).await;
    feed.apply(&[hides("ann", (v(2), v(3)), &[], &["c"])]).await;
    assert_eq!(feed.ties("ann").await, want(v(3), &["a", "c", "d"], &["b"]));
    // The same again and again.
    let mut version = 3;
    for _ in 0..40 {
        feed.apply(&[follows("ann", (v(version), v(version + 1)), &[], &["c"])]).await;
        feed.apply(&[follows("ann", (v(version + 1), v(version + 2)), &["c"], &[])]).await;
        version += 2;
    }
    assert_eq!(feed.ties("ann").await, want(v(version), &["a", "c", "d"], &["b"]));
}

/// Ten thousand of each.
pub async fn many_ties_come_back_whole(open: Open<'_>) {
    let feed = Feed::open(open).await;
    let names = |what: &str| (0..10_000).map(|n| user(&format!("{what} {n:05}"))).collect::<Vec<_>>();
    let mut ties = Ties { version: v(0), follows: names("followed"), hidden: names("hidden") };
    assert!(feed.fill(Fill::User(user("ann"), ties.clone())).await);
    assert_eq!(feed.ties("ann").await, Some(ties.clone()));
    feed.apply(&[follows("ann", (v(0), v(1)), &["a", "zz"], &["followed 00000", "followed 09999"])]).await;
    feed.apply(&[hides("ann", (v(1), v(2)), &["m"], &["hidden 05000"])]).await;
    ties.patch(v(1), [&users(&["a", "zz"]), &users(&["followed 00000", "followed 09999"]), &[], &[]]);
    ties.patch(v(2), [&[], &[], &users(&["m"]), &users(&["hidden 05000"])]);
    assert_eq!(feed.ties("ann").await, Some(ties));
}

/// A user reposts a root once.
pub async fn reposts_are_by_user(open: Open<'_>) {
    let feed = Feed::open(open).await;
    let (a, b) = (repost("a b", 5, "p1"), repost("\u{e9}", 7, "p:2"));
    feed.apply(&[reposts("root", (0, v(0)), &[a.clone(), b.clone()], &[])]).await;
    assert_eq!(feed.reposts("root", None).await, Some(Reposts::All(vec![a.clone(), b.clone()])));
    assert_eq!(feed.reposts("root", Some(&["x"])).await, Some(Reposts::All(vec![a.clone(), b.clone()])), "few");
    for (at, visibility) in (1..).zip([Visibility::Private, Visibility::Hidden, Visibility::Public]) {
        let seen = Repost { visibility, ..b.clone() };
        feed.apply(&[floor(Subject::Root(post("root")), v(10 + 2 * at))]).await;
        assert!(feed.fill(Fill::Root(post("root"), v(10 + 2 * at), vec![a.clone(), b.clone()])).await);
        feed.apply(&[reposts("root", (v(10 + 2 * at), v(11 + 2 * at)), std::slice::from_ref(&seen), &["nobody"])])
            .await;
        assert_eq!(feed.reposts("root", None).await, Some(Reposts::All(vec![a.clone(), seen])));
    }
    feed.apply(&[floor(Subject::Root(post("root")), v(50)), reposts("root", (0, v(51)), &[a.clone(), b.clone()], &[])])
        .await;
    feed.apply(&[reposts("root", (v(51), v(52)), &[], &["a b"])]).await;
    assert_eq!(feed.reposts("root", None).await, Some(Reposts::All(vec![b])));
    feed.apply(&[reposts("root", (v(52), v(53)), &[], &["\u{e9}"])]).await;
    assert_eq!(feed.reposts("root", None).await, Some(Reposts::All(vec![])), "nobody, and that is known");
}

/// Of a root with many reposts only those by some users are read.
pub async fn of_many_reposts_those_of_some(open: Open<'_>) {
    let feed = Feed::open(open).await;
    let one = |n: usize| repost(&format!("u{n}"), 5, &format!("p{n}"));
    let few: Vec<Repost> = (0..MAX_WHOLE_REPOSTS).map(one).collect();
    assert!(feed.fill(Fill::Root(post("root"), v(0), few)).await);
    assert!(matches!(feed.reposts("root", None).await, Some(Reposts::All(all)) if all.len() == MAX_WHOLE_REPOSTS));
    feed.apply(&[reposts("root", (v(0), v(1)), &[one(MAX_WHOLE_REPOSTS)], &[])]).await;
    assert_eq!(feed.reposts("root", None).await, Some(Reposts::Many(MAX_WHOLE_REPOSTS + 1)));
    assert_eq!(feed.reposts("root", Some(&[])).await, Some(Reposts::Among(vec![])));
    assert_eq!(
        feed.reposts("root", Some(&["u9", "nobody", "u512"])).await,
        Some(Reposts::Among(vec![one(512), one(9)]))
    );
    // More than one script, or one command of a script, can carry.
    let many: Vec<Repost> = (0..9_000).map(one).collect();
    assert!(feed.fill(Fill::Root(post("root"), v(2), many)).await);
    let names: Vec<String> = (0..18_000).step_by(2).map(|n| format!("u{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let Some(Reposts::Among(all)) = feed.reposts("root", Some(&names)).await else { panic!("it is known") };
    assert_eq!(all.len(), 4_500);
    feed.apply(&[reposts("root", (v(2), v(3)), &[], &["u0"])]).await;
    assert_eq!(feed.reposts("root", Some(&["u0", "u1"])).await, Some(Reposts::Among(vec![one(1)])));
}

fn edges(entries: &[Entry]) -> Vec<Edge> {
    let of = |entry: &Entry| {
        let longer = Place { post: post(&format!("{}-", entry.place.post)), ..entry.place.clone() };
        [
            Edge::Instant(entry.place.at),
            Edge::Instant(entry.place.at.plus(1)),
            Edge::Before(entry.place.clone()),
            Edge::After(entry.place.clone()),
            Edge::Before(longer.clone()),
            Edge::After(longer),
        ]
    };
    entries.iter().flat_map(of).collect()
}

/// Case F12: a part says whether it ends because the set does. Ties in one millisecond, every edge, both ways.
pub async fn f12_parts_are_complete_both_ways(open: Open<'_>) {
    let feed = Feed::open(open).await;
    let mut entries = Vec::new();
    for ago in [1_000, 999, 3, 2] {
        for (n, name) in ["a", "a-b", "ab", "b", "z9"].iter().enumerate() {
            entries.push(Entry { root: (n % 2 == 0).then(|| post("r")), ..entry(ago, &format!("{name}.{ago}")) });
        }
    }
    let mut copies = Copies::default();
    let fill = author_fill("ann", v(0), &entries);
    assert!(copies.fill(fill.clone()) && feed.fill(fill).await);
    let (ann, mut asked) = (user("ann"), Vec::new());
    for edge in edges(&entries).into_iter().chain([Edge::Instant(Millis(0)), Edge::Instant(NOW)]) {
        for order in [Order::Newest, Order::Oldest] {
            for max in [1, 4, 5, 19, 20, 21, MAX_PART] {
                asked.push(SetRead { author: ann.clone(), order, beyond: edge.clone(), max });
            }
        }
    }
    for reads in asked.chunks(200) {
        let found = read(&*feed.store, Reads { sets: reads.to_vec(), ..Reads::default() }).await;
        for (read, part) in reads.iter().zip(found.sets) {
            assert_eq!(part, copies.part(&ann, read.order, &read.beyond, read.max), "{read:?}");
        }
    }
    // Nothing beyond the edge is known, too.
    assert_eq!(feed.part("ann", Order::Oldest, Edge::Instant(NOW), 5).await.map(|part| part.entries.len()), Some(0));
    assert_eq!(feed.part("bob", Order::Oldest, Edge::Instant(NOW), 5).await, None);
    assert_eq!(feed.part("bob", Order::Newest, Edge::Instant(NOW), 5).await, None);
}

/// Case F22: sets read in parts and merged are the posts of all, none lost.
pub async fn f22_merged_sets_are_the_whole(open: Open<'_>) {
    let feed = Feed::open(open).await;
    let mut dice = StdRng::seed_from_u64(22);
    let mut all = Vec::new();
    let mut fills = Vec::new();
    for author in 0..40 {
        let count = dice.random_range(0..60);
        let entries: Vec<Entry> =
            (0..count).map(|n| entry(dice.random_range(0..200), &format!("p{author}-{n}"))).collect();
        all.extend(entries.clone());
        fills.push(author_fill(&format!("u{author}"), v(0), &entries));
    }
    all.sort_unstable_by(|a, b| b.cmp(a));
    assert!(feed.store.fill(fills).await.expect("the store answers").into_iter().all(|taken| taken));
    for order in [Order::Newest, Order::Oldest] {
        let first = if order == Order::Newest { Edge::Instant(NOW.plus(1)) } else { Edge::Instant(Millis(0)) };
        let mut left: Vec<(usize, Edge)> = (0..40).map(|author| (author, first.clone())).collect();
        let mut merged = Vec::new();
        while !left.is_empty() {
            let max = dice.random_range(1..20);
            let set = |(author, beyond): &(usize, Edge)| SetRead {
                author: user(&format!("u{author}")),
                order,
                beyond: beyond.clone(),
                max,
            };
            let sets: Vec<SetRead> = left.iter().map(set).collect();
            let found = read(&*feed.store, Reads { sets, ..Reads::default() }).await;
            let mut next = Vec::new();
            for ((author, _), part) in left.into_iter().zip(found.sets) {
                let part = part.expect("it is known");
                if let (true, Some(last)) = (part.more, part.entries.last()) {
                    let last = last.place.clone();
                    next.push((author, if order == Order::Newest { Edge::Before(last) } else { Edge::After(last) }));
                }
                merged.extend(part.entries);
            }
            left = next;
        }
        merged.sort_unstable_by(|a, b| b.cmp(a));
        assert_eq!(merged, all, "{order:?}");
    }
}

/// As much as one call may ask for, and no more.
pub async fn reads_are_bounded(open: Open<'_>) {
    let feed = Feed::open(open).await;
    let names: Vec<UserId> = (0..MAX_FEED_READS).map(|n| user(&format!("u{n}"))).collect();
    let fills: Vec<Fill> =
        names.iter().map(|name| author_fill(name.as_str(), v(1), &[entry(5, &format!("p-{name}"))])).collect();
    assert!(feed.store.fill(fills).await.expect("the store answers").into_iter().all(|taken| taken));
    let set = |author: &UserId| SetRead {
        author: author.clone(),
        order: Order::Newest,
        beyond: Edge::Instant(NOW),
        max: MAX_PART,
    };
    let reads = Reads { heads: names.clone(), sets: names.iter().map(set).collect(), ..Reads::default() };
    let found = read(&*feed.store, reads.clone()).await;
    assert!(found.heads.iter().all(|head| head.is_some_and(|head| head.newest == Some(NOW.plus(-5)))));
    assert!(found.sets.iter().all(|set| set.as_ref().is_some_and(|set| set.entries.len() == 1)));
    let mut more = reads.clone();
    more.heads.push(user("one more"));
    let mut none = Reads { sets: vec![set(&names[0])], ..Reads::default() };
    none.sets[0].max = 0;
    let mut large = none.clone();
    large.sets[0].max = MAX_PART + 1;
    for refused in [more, none, large] {
        let e = feed.store.read(refused).await.expect_err("it is too much");
        assert_eq!(e.kind(), tidegate_backend::ErrorKind::Command, "{e}");
    }
    assert_eq!(read(&*feed.store, Reads::default()).await, Found::default());
}

/// Names are compared byte for byte, whatever is in them.
pub async fn names_are_bytes(open: Open<'_>) {
    let feed = Feed::open(open).await;
    let long = "\u{1f600}".repeat(32);
    let names = ["a", "A", "a b", "{a}", "}a{", "a}b", "a:b", "*", "%25", "\u{e9}", "e\u{301}", "\u{feff}x", &long];
    let ids = ["a", "A", "a-", "a.b", "a:b", "0", &"z".repeat(64)];
    for (n, name) in names.iter().enumerate() {
        let n = n as u64;
        let own: Vec<Entry> = ids.iter().map(|id| Entry { root: Some(post(id)), ..entry(9, id) }).collect();
        feed.apply(&[posts(name, (0, v(n)), &own, &[]), follows(name, (0, v(n)), &names, &[])]).await;
        feed.apply(&[hides(name, (v(n), v(n + 1)), &names[..3], &[])]).await;
    }
    for id in ids {
        let all: Vec<Repost> = names.iter().map(|name| repost(name, 3, id)).collect();
        feed.apply(&[reposts(id, (0, v(0)), &all, &[])]).await;
    }
    let mut sorted_names = users(&names);
    sorted_names.sort_unstable();
    let mut hidden = users(&names[..3]);
    hidden.sort_unstable();
    for (n, name) in names.iter().enumerate() {
        let version = v(n as u64);
        assert_eq!(feed.head(name).await.map(|head| head.version), Some(version), "{name}");
        let mut own: Vec<Entry> = ids.iter().map(|id| Entry { root: Some(post(id)), ..entry(9, id) }).collect();
        own.sort_unstable_by(|a, b| b.cmp(a));
        assert_eq!(feed.set(name).await, Some(own), "{name}");
        let want = Ties { version: version + 1, follows: sorted_names.clone(), hidden: hidden.clone() };
        assert_eq!(feed.ties(name).await, Some(want), "{name}");
    }
    for id in ids {
        let mut all: Vec<Repost> = names.iter().map(|name| repost(name, 3, id)).collect();
        all.sort_unstable_by(|a, b| a.user.cmp(&b.user));
        assert_eq!(feed.reposts(id, None).await, Some(Reposts::All(all)), "{id}");
    }
}
