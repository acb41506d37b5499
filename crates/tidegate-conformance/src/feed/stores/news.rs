//! What stores are told, and what they missed; leases; many at once.

use std::time::Duration;

use super::*;

/// Everybody is told everything once its call was answered, in the order in which each subject changed, and nothing twice.
pub async fn news_are_told_to_everybody(open: Open<'_>) {
    let feed = Feed::open(open).await;
    let other = feed.harness.another().await;
    // Where nobody has looked before, something may have happened.
    for store in [&feed.store, &other] {
        assert_eq!(news(&**store).await.events, []);
        assert_eq!(events(&**store).await, []);
    }
    let all = [
        posts("ann", (0, v(0)), &[entry(5, "a"), entry(90, "b")], &[]),
        posts("ann", (v(0), v(1)), &[], &[entry(5, "a")]),
        follows("ann", (0, v(0)), &["bob"], &[]),
        reposts("a", (0, v(0)), &[repost("bob", 3, "c")], &["eve"]),
        floor(Subject::Author(user("\u{e9} {x}")), v(7)),
        floor(Subject::User(user("ann")), v(8)),
        floor(Subject::Root(post("a")), v(9)),
        // For which the copy has no use.
        posts("ann", (v(4), v(5)), &[entry(4, "d")], &[]),
        posts("ann", (v(0), v(1)), &[], &[entry(5, "a")]),
    ];
    let by_subject = |mut events: Vec<Event>| {
        events.sort_by(|a, b| a.subject.cmp(&b.subject));
        events
    };
    feed.apply(&all[..4]).await;
    let told = by_subject(all[..4].iter().map(Event::of).collect());
    for store in [&feed.store, &other] {
        assert_eq!(by_subject(events(&**store).await), told);
        assert_eq!(events(&**store).await, []);
    }
    for change in &all[4..] {
        other.apply(std::slice::from_ref(change), NOW).await.expect("the store answers");
    }
    let told = by_subject(all[4..].iter().map(Event::of).collect());
    // With reads beside them.
    let reads = Reads { news: true, heads: users(&["ann"]), users: users(&["bob"]), ..Reads::default() };
    for store in [&feed.store, &other] {
        let found = read(&**store, reads.clone()).await;
        assert_eq!((found.news.lost, by_subject(found.news.events)), (false, told.clone()));
        assert_eq!((found.heads.len(), found.users.len()), (1, 1));
    }
    // Who does not ask is told nothing, and nothing is lost to him.
    feed.apply(&all[4..5]).await;
    assert_eq!(read(&*other, Reads { heads: users(&["ann"]), ..Reads::default() }).await.news, News::default());
    assert_eq!(events(&*other).await, [Event::of(&all[4])]);
}

/// Who asks too seldom is told that some are lost, and is told again from then on.
pub async fn a_reader_that_fell_behind_is_told(open: Open<'_>) {
    let feed = Feed::open(open).await;
    let other = feed.harness.another().await;
    news(&*other).await;
    let change = |n: u64| follows("ann", (v(n), v(n + 1)), &["bob"], &[]);
    let many: Vec<Change> = (0..20 * NEWS_KEPT as u64).map(change).collect();
    // As many as are kept are not lost.
    feed.apply(&many[..NEWS_KEPT - 10]).await;
    assert_eq!(events(&*other).await.len(), NEWS_KEPT - 10);
    feed.apply(&many).await;
    assert!(news(&*other).await.lost);
    feed.apply(&many[..1]).await;
    assert_eq!(events(&*other).await, [Event::of(&many[0])]);
}

/// A store that loses everything says so to everybody, and takes what it is told and given from then on.
pub async fn what_is_lost_is_unknown_and_said(open: Open<'_>) {
    let feed = Feed::open(open).await;
    let other = feed.harness.another().await;
    for store in [&feed.store, &other] {
        news(&**store).await;
    }
    for round in 0..3_u64 {
        for kind in kinds() {
            assert!(feed.fill(kind.fill(v(3), &[1, 2])).await);
            feed.apply(&[kind.change(v(3), v(4), 3)]).await;
        }
        assert_eq!(events(&*other).await.len(), 3);
        if round == 1 {
            // Some that were not read yet, too.
            feed.apply(&[Kind::User.change(v(4), v(5), 9)]).await;
        }
        if !feed.harness.lose().await {
            return;
        }
        if round == 2 {
            feed.apply(&[Kind::User.change(v(4), v(5), 9)]).await;
        }
        for kind in kinds() {
            feed.knows_nothing(kind).await;
        }
        for store in [&feed.store, &other] {
            assert!(news(&**store).await.lost, "round {round}");
            assert!(!news(&**store).await.lost);
        }
        let event = floor(Subject::Author(user("x")), v(1));
        feed.apply(std::slice::from_ref(&event)).await;
        assert_eq!(events(&*other).await, [Event::of(&event)]);
        for kind in kinds() {
            feed.apply(&[kind.change(0, v(1_000 * (round + 1)), 4)]).await;
            feed.has(kind, v(1_000 * (round + 1)), &[4]).await;
        }
        feed.harness.lose().await;
        news(&*feed.store).await;
        news(&*other).await;
    }
}

/// One fills, the others wait: until he is done, or for two seconds.
pub async fn leases_go_to_one(open: Open<'_>) {
    let feed = Feed::open(open).await;
    let other = feed.harness.another().await;
    let all: Vec<Subject> = kinds().map(Kind::subject).into_iter().chain([Subject::Author(user("bob"))]).collect();
    let ask = async |store: &Arc<dyn FeedStore>, subjects: &[Subject]| store.lease(subjects).await.expect("it answers");
    // A busy machine may take more time than a lease lasts.
    let mut hurried = false;
    for round in 0..5_u64 {
        let began = tokio::time::Instant::now();
        let first = ask(&feed.store, &all[..3]).await;
        let second = ask(&other, &all).await;
        assert!(feed.fill(Kind::Author.fill(v(round), &[1])).await);
        let third = ask(&other, &all).await;
        hurried = began.elapsed() < Duration::from_millis(1_800);
        tokio::time::sleep(Duration::from_millis(2_050)).await;
        if hurried {
            assert_eq!(first, [true; 3]);
            assert_eq!(second, [false, false, false, true]);
            assert_eq!(third, [true, false, false, false], "free since it was filled");
            break;
        }
    }
    assert!(hurried, "no round was done while its leases lasted");
    assert_eq!(ask(&other, &all[1..3]).await, [true; 2], "their time is over");
    // Of many who ask at once one has it.
    let mut askers = tokio::task::JoinSet::new();
    for n in 0..20 {
        let (store, subject) =
            (if n % 2 == 0 { feed.store.clone() } else { other.clone() }, Subject::Root(post("many")));
        askers.spawn(async move { store.lease(&[subject]).await.expect("it answers")[0] });
    }
    assert_eq!(askers.join_all().await.into_iter().filter(|granted| *granted).count(), 1);
}

/// Writers, fills of what was read before, and readers at once: what is known in the end is the last.
pub async fn many_at_once_end_alike(open: Open<'_>) {
    const WRITERS: u64 = 6;
    const STEPS: u64 = 40;
    let feed = Feed::open(open).await;
    let other = feed.harness.another().await;
    let mut all = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let (store, other) = (feed.store.clone(), other.clone());
        all.spawn(async move {
            let name = format!("u{writer}");
            let mut own = Vec::new();
            for n in 0..STEPS {
                let next = entry(i64::try_from(1_000 - n).expect("small"), &format!("p{n}"));
                own.push(next.clone());
                let change = posts(&name, (if n == 0 { 0 } else { v(n - 1) }, v(n)), &[next], &[]);
                // What was read before the last change.
                let early = match n.checked_sub(2) {
                    Some(before) => author_fill(&name, v(before), &own[..own.len() - 2]),
                    None => author_fill(&name, 0, &[]),
                };
                let store = if n % 2 == 0 { &store } else { &other };
                let all = [change];
                let (told, filled) = tokio::join!(store.apply(&all, NOW), other.fill(vec![early]));
                told.and(filled.map(drop)).expect("the store answers");
                let reads = Reads { news: n % 3 == 0, heads: vec![user(&name)], ..Reads::default() };
                // Whoever was answered is read.
                let head = read(&**store, reads).await.heads[0];
                assert!(head.is_none_or(|head| head.version == v(n)), "{head:?} of {n}");
                if head.is_none() {
                    let fill = Fill::Author(user(&name), AuthorSet { from: NOW.plus(-9_000), ..set_of(v(n), &own) });
                    assert!(store.fill(vec![fill]).await.expect("the store answers")[0]);
                }
            }
            own.reverse();
            (name, own)
        });
    }
    for (name, own) in all.join_all().await {
        assert_eq!(feed.set(&name).await, Some(own), "{name}");
    }
}

/// What was closed may be asked: it fails, or answers as before.
pub async fn stores_close(open: Open<'_>) {
    let feed = Feed::open(open).await;
    feed.apply(&[Kind::User.change(0, v(0), 1)]).await;
    tokio::time::timeout(Duration::from_secs(5), feed.store.close()).await.expect("it closes");
    let capabilities = feed.store.capabilities();
    assert!(!capabilities.name.is_empty());
    let asked = feed.store.read(Reads { news: true, users: users(&["ann"]), ..Reads::default() });
    let answer = tokio::time::timeout(Duration::from_secs(5), asked).await.expect("it answers");
    if let Ok(found) = answer {
        assert_eq!(found.users.len(), 1);
    }
}
