//! The community's own rules, and pages made by walks against its pages.

use proptest::prelude::*;

use super::model::{Community, Edited, Followed, Published};
use super::*;
use crate::Millis;

const NOW: Millis = Millis(1_800_000_000_000);

fn user(name: &str) -> UserId {
    UserId::parse(name).expect("a name")
}

fn post(name: &str) -> PostId {
    PostId::parse(name).expect("a name")
}

fn text(author: &str, id: &str, ago: i64) -> NewPost {
    NewPost {
        id: post(id),
        author: user(author),
        content: Content::Body(Body::parse("hello").expect("a body")),
        published_at: Some(NOW.plus(-ago)),
        visibility: Visibility::Public,
    }
}

fn repost(author: &str, id: &str, of: &str, ago: i64) -> NewPost {
    NewPost { content: Content::Repost(post(of)), ..text(author, id, ago) }
}

fn ask(viewer: &str, limit: usize) -> Ask {
    Ask { viewer: user(viewer), order: Order::Newest, since: None, until: None, limit, after: None }
}

fn community(posts: &[NewPost], follows: &[(&str, &str)]) -> Community {
    let mut all = Community::new(10);
    for new in posts {
        assert!(matches!(all.publish(NOW, new), Published::New(_)), "{new:?}");
    }
    for (one, other) in follows {
        assert!(matches!(all.follow(NOW, &user(one), &user(other)), Followed::Since(_)));
    }
    all
}

/// Roots of a page with the users of their reasons.
fn shown(page: &Page) -> Vec<(String, Vec<String>)> {
    let users = |item: &Item| item.reasons.iter().map(|reason| reason.user.to_string()).collect();
    page.items.iter().map(|item| (item.root.id.to_string(), users(item))).collect()
}

fn line(root: &str, users: &[&str]) -> (String, Vec<String>) {
    (root.to_owned(), users.iter().map(|user| (*user).to_owned()).collect())
}

#[test]
fn f1_undoing_a_repost_keeps_the_others() {
    let posts = [text("eve", "p", 50), repost("ann", "a", "p", 40), repost("bob", "b", "p", 30)];
    let mut all = community(&posts, &[("me", "ann"), ("me", "bob")]);
    assert_eq!(shown(&all.page(NOW, &ask("me", 5)).unwrap()), [line("p", &["bob", "ann"])]);
    assert!(all.delete(&post("a")));
    assert_eq!(shown(&all.page(NOW, &ask("me", 5)).unwrap()), [line("p", &["bob"])]);
    assert!(all.delete(&post("b")));
    assert_eq!(all.page(NOW, &ask("me", 5)).unwrap(), Page { items: vec![], next: Err(End::Complete) });
}

#[test]
fn f4_posts_stand_at_their_time_and_the_future_is_now() {
    let six_hours = 6 * 3_600_000;
    let mut all = community(&[text("me", "new", 5), text("me", "imported", six_hours)], &[]);
    let Published::New(future) = all.publish(NOW, &text("me", "future", -60_000)) else { panic!("it is new") };
    assert_eq!(future.published_at, NOW);
    let page = all.page(NOW, &ask("me", 5)).unwrap();
    let at: Vec<i64> = page.items.iter().map(|item| NOW.since(item.place().at)).collect();
    assert_eq!(at, [0, 5, six_hours]);
}

#[test]
fn f9_own_posts_and_reposted_ones_stay_after_an_unfollow() {
    let posts = [text("me", "mine", 1), text("tom", "his", 2), repost("bob", "again", "his", 1)];
    let mut all = community(&posts, &[("me", "tom"), ("me", "bob")]);
    assert_eq!(shown(&all.page(NOW, &ask("me", 5)).unwrap()), [line("mine", &["me"]), line("his", &["bob", "tom"])]);
    all.unfollow(&user("me"), &user("tom"));
    assert_eq!(shown(&all.page(NOW, &ask("me", 5)).unwrap()), [line("mine", &["me"]), line("his", &["bob"])]);
}

#[test]
fn f16_a_repost_between_two_pages_repeats_nothing() {
    let mut all = community(&[text("ann", "a", 30), text("ann", "b", 20), text("ann", "c", 10)], &[("me", "ann")]);
    all.follow(NOW, &user("me"), &user("bob"));
    let first = all.page(NOW, &ask("me", 2)).unwrap();
    assert_eq!(shown(&first), [line("c", &["ann"]), line("b", &["ann"])]);
    // In the very millisecond of the first page.
    for (id, of) in [("z1", "c"), ("z2", "a")] {
        all.publish(NOW, &repost("bob", id, of, 0));
    }
    let rest = all.page(NOW, &Ask { after: first.next.ok(), ..ask("me", 2) }).unwrap();
    assert_eq!(shown(&rest), [line("a", &["ann"])]);
    let anew = all.page(NOW, &ask("me", 5)).unwrap();
    assert_eq!(shown(&anew)[0].0, "a");
}

#[test]
fn blocks_hide_posts_and_reposts_both_ways() {
    let posts = [text("ann", "a", 30), repost("bob", "b", "a", 20), text("bob", "own", 10)];
    let mut all = community(&posts, &[("me", "ann"), ("me", "bob")]);
    for (one, other) in [("me", "bob"), ("bob", "me")] {
        assert!(all.block(&user(one), &user(other)) && all.is_blocked(&user("me"), &user("bob")));
        assert_eq!(shown(&all.page(NOW, &ask("me", 5)).unwrap()), [line("a", &["ann"])]);
        all.unblock(&user(one), &user(other));
    }
    all.block(&user("ann"), &user("me"));
    assert_eq!(shown(&all.page(NOW, &ask("me", 5)).unwrap()), [line("own", &["bob"])]);
    assert!(!all.block(&user("me"), &user("me")));
}

#[test]
fn who_may_be_reposted_and_what_a_repeat_answers() {
    let mut all = community(&[text("ann", "a", 30)], &[]);
    let hidden = NewPost { visibility: Visibility::Hidden, ..text("ann", "hidden", 5) };
    assert!(matches!(all.publish(NOW, &hidden), Published::New(_)));
    assert_eq!(all.publish(NOW, &repost("bob", "x", "hidden", 0)), Published::UnknownRoot);
    assert_eq!(all.publish(NOW, &repost("bob", "x", "nobody", 0)), Published::UnknownRoot);
    let Published::New(first) = all.publish(NOW, &repost("bob", "b", "a", 3)) else { panic!("it is new") };
    assert_eq!(all.publish(NOW, &repost("bob", "again", "a", 0)), Published::Same(first));
    let Published::New(second) = all.publish(NOW, &repost("eve", "e", "b", 0)) else { panic!("it is new") };
    assert_eq!(second.content, Content::Repost(post("a")), "one of its root");
    let edit = PostEdit { body: Some(Body::parse("other").unwrap()), visibility: None };
    let Edited::Done(edited) = all.edit(NOW, &post("a"), &edit) else { panic!("it is there") };
    assert_eq!((edited.version, edited.edited_at), (2, Some(NOW)));
    assert_eq!(all.edit(NOW.plus(5), &post("a"), &edit), Edited::Done(edited.clone()), "nothing changes");
    assert_eq!(all.publish(NOW, &text("ann", "a", 30)), Published::Same(edited));
    assert_eq!(all.publish(NOW, &text("ann", "a", 31)), Published::Mismatch);
    assert_eq!(all.edit(NOW, &post("b"), &edit), Edited::NoBody);
    assert_eq!(all.edit(NOW, &post("nobody"), &edit), Edited::Unknown);
}

#[test]
fn follows_are_bounded_and_remember_since_when() {
    let mut all = Community::new(2);
    let [me, ann, bob, eve] = ["me", "ann", "bob", "eve"].map(user);
    assert_eq!(all.follow(NOW, &me, &me), Followed::Oneself);
    assert_eq!(all.follow(NOW, &me, &ann), Followed::Since(NOW));
    assert_eq!(all.follow(NOW.plus(5), &me, &ann), Followed::Since(NOW));
    all.follow(NOW, &me, &bob);
    assert_eq!(all.follow(NOW, &me, &eve), Followed::Limit);
    all.unfollow(&me, &bob);
    assert_eq!(all.follow(NOW, &me, &eve), Followed::Since(NOW));
    all.publish(NOW, &text("ann", "a", 1));
    all.block(&eve, &ann);
    all.delete_user(&ann);
    assert_eq!(all.follows(&me).count(), 1);
    assert!(all.get(&post("a")).is_none() && !all.is_blocked(&eve, &ann));
}

#[test]
fn the_ends_of_a_feed() {
    let mut all = community(&[text("me", "new", 5), text("me", "edge", WINDOW_MS)], &[]);
    let page = all.page(NOW, &ask("me", 5)).unwrap();
    assert_eq!((page.items.len(), page.next), (2, Err(End::Complete)));
    let page = all.page(NOW.plus(1), &ask("me", 5)).unwrap();
    assert_eq!((page.items.len(), page.next), (1, Err(End::Window)));
    let first = all.page(NOW, &ask("me", 1)).unwrap();
    let next = Ask { after: first.next.clone().ok(), ..ask("me", 1) };
    assert!(all.page(NOW, &next).is_ok());
    let late = NOW.plus(WINDOW_MS - 5);
    assert!(all.page(late, &next).is_ok(), "its place is on the edge");
    assert_eq!(all.page(late.plus(1), &next), Err(CursorExpired));
    let until = Ask { until: Some(NOW.plus(-5)), ..ask("me", 5) };
    assert_eq!(shown(&all.page(NOW, &until).unwrap()), [line("edge", &["me"])]);
    let since = Ask { since: Some(NOW.plus(-5)), order: Order::Oldest, ..ask("me", 5) };
    let page = all.page(NOW, &since).unwrap();
    assert_eq!((shown(&page), page.next), (vec![line("new", &["me"])], Err(End::Complete)));
    all.delete(&post("new"));
}

/// A page made by a walk over the community's sets. Also: how many sets were read.
fn walked(all: &Community, now: Millis, ask: &Ask, raise: i64) -> (Result<Page, CursorExpired>, usize) {
    let (range, begin) = match ask.range(now) {
        Ok(found) => found,
        Err(expired) => return (Err(expired), 0),
    };
    let sources: Vec<UserId> = all.sources(&ask.viewer).into_iter().collect();
    let set: std::collections::BTreeSet<UserId> = sources.iter().cloned().collect();
    // Heads are upper bounds: some too new. Some that are true are told late, twice even.
    let heads: Vec<(usize, Millis)> = sources
        .iter()
        .enumerate()
        .filter_map(|(n, author)| {
            let head = all.places(author).next_back()?.at;
            Some((n, if n % 2 == 0 { head.plus(raise) } else { head }))
        })
        .collect();
    let is_late = |n: usize| raise > 0 && n % 3 == 1;
    let early = heads.iter().filter(|(n, _)| !is_late(*n)).copied();
    let early = early.chain(heads.iter().filter(|(n, _)| is_late(*n)).map(|(n, head)| (*n, head.plus(-raise))));
    let mut walk = Walk::new(ask.direction(), range.clone(), &begin, ask.limit + 1, early);
    let mut late: Vec<(usize, Millis)> = heads.iter().filter(|(n, _)| is_late(*n)).copied().collect();
    let (mut items, mut first, mut reads) = (Vec::new(), None, 0);
    let more = loop {
        let step = walk.step();
        if !matches!(step, Step::Read(_)) && !late.is_empty() {
            // There was no round that could bring the news.
            assert!(first.is_none());
        }
        match step {
            Step::End if !late.is_empty() => late.drain(..).for_each(|(n, head)| walk.raise(n, head)),
            Step::End => break false,
            Step::Read(wants) => {
                assert!(!wants.is_empty());
                for want in wants {
                    reads += 1;
                    let places = all.places(&sources[want.author]);
                    let entry = |place: &Place| Entry { place: place.clone(), root: None };
                    let mut beyond: Vec<Entry> = match ask.direction() {
                        Order::Newest => places.rev().filter(|p| want.beyond.is_above(p)).map(entry).collect(),
                        Order::Oldest => places.filter(|p| !want.beyond.is_above(p)).map(entry).collect(),
                    };
                    let more = beyond.len() > want.max;
                    beyond.truncate(want.max);
                    walk.told(&want, beyond, more);
                }
                late.drain(..).for_each(|(n, head)| walk.raise(n, head));
            }
            Step::Entry(Entry { place, .. }, _) => {
                first.get_or_insert_with(|| place.clone());
                let root = all.get(&place.post).expect("it is in a set").root().clone();
                let root = all.seen(&ask.viewer, &root).cloned();
                let reasons = root.as_ref().map_or_else(Vec::new, |root| all.reasons(&ask.viewer, &set, root));
                let reasons = reasons_within(reasons, &range);
                match root.and_then(|root| item_of(&place, &root, &reasons)) {
                    None => walk.miss(),
                    Some(_) if items.len() == ask.limit => break true,
                    Some(item) => items.push(item),
                }
            }
        }
    };
    let next = match (items.last(), first) {
        (Some(last), Some(first)) if more => Ok(ask.cursor(&range, &first, last.place(), None)),
        _ => {
            let beyond = |place: &Place| match ask.direction() {
                Order::Newest => place.at < range.low,
                Order::Oldest => !range.top.is_above(place),
            };
            let cut = range.is_empty() || sources.iter().any(|author| all.places(author).any(beyond));
            Err(if cut { End::Window } else { End::Complete })
        }
    };
    (Ok(Page { items, next }), reads)
}

#[derive(Debug, Clone)]
enum Act {
    Publish(usize, i64, u8),
    Repost(usize, usize, i64),
    Delete(usize),
    Hide(usize, u8),
    Follow(usize, usize),
    Unfollow(usize, usize),
    Block(usize, usize, bool),
    Pages { viewer: usize, limit: usize, oldest: bool, since: Option<i64>, until: Option<i64>, raise: i64 },
}

fn steps() -> impl Strategy<Value = Vec<Act>> {
    let one = 0..6_usize;
    let ago = prop_oneof![0..30_i64, 0..30_i64, Just(WINDOW_MS - 1), Just(WINDOW_MS), Just(WINDOW_MS + 1)];
    let step = prop_oneof![
        6 => (one.clone(), ago.clone(), 0..5_u8).prop_map(|(a, t, v)| Act::Publish(a, t, v)),
        4 => (one.clone(), 0..60_usize, ago.clone()).prop_map(|(a, p, t)| Act::Repost(a, p, t)),
        2 => (0..60_usize).prop_map(Act::Delete),
        1 => (0..60_usize, 0..3_u8).prop_map(|(p, v)| Act::Hide(p, v)),
        4 => (one.clone(), one.clone()).prop_map(|(a, b)| Act::Follow(a, b)),
        1 => (one.clone(), one.clone()).prop_map(|(a, b)| Act::Unfollow(a, b)),
        1 => (one.clone(), one.clone(), any::<bool>()).prop_map(|(a, b, on)| Act::Block(a, b, on)),
        4 => (
            one,
            1..6_usize,
            any::<bool>(),
            prop::option::of(ago.clone()),
            prop::option::of(ago),
            prop_oneof![Just(0_i64), 0..40_i64],
        )
            .prop_map(|(viewer, limit, oldest, since, until, raise)| Act::Pages {
                viewer, limit, oldest, since, until, raise
            }),
    ];
    prop::collection::vec(step, 1..90)
}

fn visibility(number: u8) -> Visibility {
    match number {
        0 => Visibility::Private,
        1 => Visibility::Hidden,
        _ => Visibility::Public,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Pages made by walks are those of the community: no gap, no duplicate, no misorder; and a whole walk shows each root
    /// once.
    #[test]
    fn walks_give_the_pages_that_the_rules_say(steps in steps()) {
        let mut all = Community::new(5);
        let users: Vec<UserId> = (0..6).map(|n| user(&format!("u{n}"))).collect();
        let name = |n: usize| format!("p{n}");
        let mut posts = 0;
        for step in steps {
            match step {
                Act::Publish(author, ago, seen) => {
                    let new = NewPost { visibility: visibility(seen), ..text(users[author].as_str(), &name(posts), ago) };
                    posts += 1;
                    all.publish(NOW, &new);
                }
                Act::Repost(author, of, ago) => {
                    all.publish(NOW, &repost(users[author].as_str(), &name(posts), &name(of), ago));
                    posts += 1;
                }
                Act::Delete(which) => { all.delete(&post(&name(which))); }
                Act::Hide(which, seen) => {
                    all.edit(NOW, &post(&name(which)), &PostEdit { body: None, visibility: Some(visibility(seen)) });
                }
                Act::Follow(one, other) => { all.follow(NOW, &users[one], &users[other]); }
                Act::Unfollow(one, other) => all.unfollow(&users[one], &users[other]),
                Act::Block(one, other, true) => { all.block(&users[one], &users[other]); }
                Act::Block(one, other, false) => all.unblock(&users[one], &users[other]),
                Act::Pages { viewer, limit, oldest, since, until, raise } => {
                    let order = if oldest { Order::Oldest } else { Order::Newest };
                    let instant = |ago: Option<i64>| ago.map(|ago| NOW.plus(-ago));
                    let mut ask = Ask { order, since: instant(since), until: instant(until),
                        ..ask(users[viewer].as_str(), limit) };
                    let mut roots = Vec::new();
                    loop {
                        let right = all.page(NOW, &ask).expect("the clock stands");
                        let (made, reads) = walked(&all, NOW, &ask, raise);
                        let made = made.expect("the clock stands");
                        prop_assert_eq!(&made.items, &right.items);
                        prop_assert_eq!(made.next.as_ref().err(), right.next.as_ref().err());
                        prop_assert!(made.items.len() == limit || made.next.is_err(), "full, or the last");
                        if raise == 0 && !oldest {
                            let filtered = all.places(&users[viewer]).count() + posts;
                            prop_assert!(reads <= limit + 1 + filtered, "{} reads", reads);
                        }
                        roots.extend(made.items.iter().map(|item| item.root.id.clone()));
                        match made.next {
                            Ok(cursor) => ask.after = Some(cursor),
                            Err(_) => break,
                        }
                    }
                    let all_at_once = Ask { limit: MAX_PAGE_ITEMS, after: None, ..ask };
                    let once: Vec<PostId> =
                        all.page(NOW, &all_at_once).expect("the clock stands").items.into_iter().map(|i| i.root.id).collect();
                    prop_assert_eq!(roots, once);
                }
            }
        }
    }

    /// With true heads and nothing hidden, a page of `limit` items reads no more sets than items it looks at.
    #[test]
    fn a_page_reads_as_many_sets_as_it_has_items(
        counts in prop::collection::vec(0..40_usize, 1..200),
        limit in 1..30_usize,
    ) {
        let mut all = Community::new(1_000);
        let me = user("me");
        let mut n = 0_i64;
        for (who, count) in counts.iter().enumerate() {
            let author = format!("u{who}");
            all.follow(NOW, &me, &user(&author));
            for _ in 0..*count {
                n += 1;
                // All over the week, in no order.
                all.publish(NOW, &text(&author, &format!("p{n}"), n * 7_919_993 % WINDOW_MS));
            }
        }
        let (page, reads) = walked(&all, NOW, &ask("me", limit), 0);
        prop_assert_eq!(&page.as_ref().unwrap().items, &all.page(NOW, &ask("me", limit)).unwrap().items);
        prop_assert!(reads <= limit + 1, "{} reads for {} items", reads, limit);
    }
}
