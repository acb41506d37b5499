//! What it costs: commands, keys, memory.

use std::collections::BTreeMap;
use std::time::Instant;

use tidegate_backend::FeedStore;
use tidegate_backend::feed::Reads;
use tidegate_conformance::servers::Redis;
use tidegate_core::feed::{AuthorSet, Change, Entry, Fill, Place, Repost, Subject, Ties, Visibility, What};

use super::shelf::{NOW, author_fill, entry, floor, followed, newest, news, open, post, published, user};

/// How often the server ran each command, scripts and what they do with them.
fn commands(redis: &Redis) -> BTreeMap<String, u64> {
    let stats = redis.tell(&["INFO", "commandstats"]);
    let one = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(':')?;
        let calls = rest.strip_prefix("calls=")?.split_once(',')?.0.parse().ok()?;
        Some((name.to_owned(), calls))
    };
    stats
        .lines()
        .filter_map(one)
        .filter(|(name, _)| !["info", "config|resetstat", "set"].contains(&&name[..]))
        .collect()
}

/// What `step` makes the server do.
async fn counted<T>(redis: &Redis, step: impl Future<Output = T>) -> (T, BTreeMap<String, u64>) {
    redis.tell(&["CONFIG", "RESETSTAT"]);
    let done = step.await;
    (done, commands(redis))
}

/// Case F7: an unfollow reads and writes nothing of the author, however much he posted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f7_an_unfollow_is_one_script_whatever_the_author_posted() {
    let redis = Redis::start();
    let feed = open(&redis.url(), "x").await;
    feed.apply(&[followed("ann", 0, 10, "star"), followed("ann", 10, 11, "bob")], NOW).await.unwrap();
    // As many as a set has.
    let many: Vec<Entry> = (0..2_000).map(|n| entry(n, &format!("p{n}"))).collect();
    feed.fill(vec![author_fill("star", 5, &many)]).await.unwrap();
    let what =
        What::Ties { user: user("ann"), follow: vec![], unfollow: vec![user("star")], hide: vec![], show: vec![] };
    let change = [Change { prev: 11, version: 12, what }];
    let sent = feed.connector().commands_sent();
    let ((), done) = counted(&redis, async { feed.apply(&change, NOW).await.unwrap() }).await;
    assert_eq!(feed.connector().commands_sent() - sent, 1);
    assert_eq!(done.get("evalsha"), Some(&1), "{done:?}");
    assert!(!done.contains_key("zrange") && done.values().sum::<u64>() <= 9, "{done:?}");
    let found = feed.read(Reads { users: vec![user("ann")], ..Reads::default() }).await.unwrap();
    assert_eq!(found.users[0].as_ref().unwrap().follows, [user("bob")]);
}

/// A publish is one script, whoever follows; a page's reads are one command for the news, one for heads and one for each set.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_is_a_command_for_each_set_and_two() {
    let redis = Redis::start();
    let feed = open(&redis.url(), "x").await;
    for n in 0..50 {
        let posts: Vec<Entry> = (0..40).map(|m| entry(m, &format!("p{n}-{m}"))).collect();
        feed.apply(&[published(&format!("u{n}"), 0, 7, &posts)], NOW).await.unwrap();
    }
    news(&feed).await;
    let sets = (0..50).map(|n| newest(&format!("u{n}"), 20)).collect();
    let reads = Reads { news: true, sets, ..Reads::default() };
    let (found, done) = counted(&redis, async { feed.read(reads).await.unwrap() }).await;
    assert!(found.sets.iter().all(|part| part.as_ref().is_some_and(|part| part.more && part.entries.len() == 20)));
    let want = [("mget", 1), ("xrange", 1), ("zrange", 50)].map(|(name, count)| (name.to_owned(), count));
    assert_eq!(done, BTreeMap::from(want));
    let heads = (0..500).map(|n| user(&format!("u{n}"))).collect();
    let (found, done) = counted(&redis, async { feed.read(Reads { heads, ..Reads::default() }).await.unwrap() }).await;
    assert_eq!(found.heads.iter().flatten().count(), 50);
    assert_eq!(done, BTreeMap::from([("mget".to_owned(), 1)]));
    let next = [published("u0", 7, 8, &[entry(0, "new")])];
    let ((), done) = counted(&redis, async { feed.apply(&next, NOW).await.unwrap() }).await;
    assert_eq!(done.get("evalsha"), Some(&1));
    assert!(done.values().sum::<u64>() < 15, "{done:?}");
}

/// Case F6: of a user who was deleted nothing is left once floors are over; every key has an end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f6_every_key_ends_and_those_of_a_deleted_user_within_a_minute() {
    let redis = Redis::start();
    let feed = open(&redis.url(), "x").await;
    news(&feed).await;
    let repost = Repost { user: user("bob"), at: NOW, post: post("q"), visibility: Visibility::Public };
    let shown = Change {
        prev: 0,
        version: 9,
        what: What::Reposts { root: post("p"), set: vec![repost.clone()], unset: vec![] },
    };
    feed.apply(&[published("ann", 0, 9, &[entry(5, "p")]), followed("ann", 0, 9, "bob"), shown], NOW).await.unwrap();
    feed.apply(&[published("eve", 3, 4, &[]), published("gone", 0, 4, &[])], NOW).await.unwrap();
    feed.fill(vec![author_fill("bob", 9, &[entry(5, "q")]), Fill::User(user("bob"), Ties::default())]).await.unwrap();
    feed.fill(vec![Fill::Root(post("r"), 9, vec![repost])]).await.unwrap();
    feed.lease(&[Subject::Author(user("x")), Subject::Root(post("x"))]).await.unwrap();
    let life = |key: &str| redis.tell(&["PTTL", key]).parse::<i64>().unwrap();
    let day = 86_400_000;
    let lives = |redis: &Redis| -> BTreeMap<String, i64> {
        redis.tell(&["KEYS", "*"]).lines().map(|key| (key.to_owned(), life(key))).collect()
    };
    let all = lives(&redis);
    for (kind, least, most) in [
        ("a:ann", 8 * day - 60_000, 8 * day),
        ("h:ann", 8 * day - 60_000, 8 * day),
        ("a:bob", 8 * day - 60_000, 8 * day),
        ("u:ann", 7 * day - 60_000, 7 * day),
        ("u:bob", 7 * day - 60_000, 7 * day),
        ("r:p", 7 * day - 60_000, 7 * day),
        ("r:r", 7 * day - 60_000, 7 * day),
        ("a:eve", 30_000, 61_000),
        ("news", day - 60_000, day),
    ] {
        let life = all.get(&format!("{{tg:x:f0}}:{kind}")).unwrap_or_else(|| panic!("{kind} is not in {all:?}"));
        assert!((least..=most).contains(life), "{kind}: {life}");
    }
    assert!(all.values().all(|life| *life > 0 || *life == -2), "{all:?}");
    // His posts, his ties, the reposts of his roots.
    feed.apply(
        &[
            floor(Subject::Author(user("ann")), 10),
            floor(Subject::User(user("ann")), 10),
            floor(Subject::Root(post("p")), 10),
        ],
        NOW,
    )
    .await
    .unwrap();
    let left = lives(&redis);
    let of_ann = |key: &str| key.ends_with(":ann") || key.ends_with(":p");
    let his: Vec<_> = left.iter().filter(|(key, _)| of_ann(key)).collect();
    assert_eq!(his.len(), 3, "{his:?}");
    assert!(his.iter().all(|(_, life)| (50_000..=61_000).contains(*life)), "{his:?}");
    if std::env::var_os("TIDEGATE_TEST_LONG").is_some() {
        tokio::time::sleep(std::time::Duration::from_secs(62)).await;
        assert!(!redis.tell(&["KEYS", "*"]).lines().any(of_ann));
    }
}

/// Empties the server at once. Valkey 8 frees what a plain `FLUSHALL` forgot in the background.
fn empty(redis: &Redis) {
    redis.tell(&["FLUSHALL", "SYNC"]);
}

/// Bytes that the server says it uses.
fn used(redis: &Redis) -> u64 {
    let info = redis.tell(&["INFO", "memory"]);
    info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap().trim().parse().unwrap()
}

/// Bytes of an author, a post and a followee, as they are with ids that Tidegate makes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_is_what_is_stated() {
    let redis = Redis::start();
    let feed = open(&redis.url(), "x").await;
    news(&feed).await;
    let id = |n: usize| post(&uuid::Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0000 + n as u128).to_string());
    let set = |author: usize, posts: usize| {
        let entry =
            |n: usize| Entry { place: Place { at: NOW.plus(-(n as i64)), post: id(author * 10_000 + n) }, root: None };
        let entries: Vec<Entry> = (0..posts).map(entry).collect();
        let set = AuthorSet { version: 1 << 50, from: NOW.plus(-604_800_000), oldest: Some(NOW), entries };
        Fill::Author(user(&format!("author-{author:06}")), set)
    };
    let mut measure = Vec::new();
    for (what, authors, posts) in
        [("author without posts", 2_000, 0), ("with 30 posts", 2_000, 30), ("with 300 posts", 200, 300)]
    {
        empty(&redis);
        news(&feed).await;
        let before = used(&redis);
        for from in (0..authors).step_by(100) {
            feed.fill((from..from + 100).map(|author| set(author, posts)).collect()).await.unwrap();
        }
        measure.push((what, (used(&redis) - before) as usize / authors));
    }
    let alone = measure[0].1;
    let (few, many) = ((measure[1].1 - alone) / 30, (measure[2].1 - alone) / 300);
    empty(&redis);
    news(&feed).await;
    let before = used(&redis);
    let ties = |n: usize| {
        let follows = (0..1_000).map(|m| user(&format!("author-{:06}", n + m))).collect();
        Fill::User(user(&format!("viewer-{n}")), Ties { version: 1 << 50, follows, hidden: vec![] })
    };
    feed.fill((0..100).map(ties).collect()).await.unwrap();
    let followee = (used(&redis) - before) as usize / 100_000;
    println!("bytes: author {alone}, post {few} (of 30) and {many} (of 300), followee {followee}");
    assert!(alone < 500 && few < 80 && many < 200 && followee < 40, "{measure:?} {followee}");
}

/// Ten thousand heads are twenty commands; sets of fifty authors come within the time of a page.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_heads_are_read_in_one_flight() {
    let redis = Redis::start();
    let feed = open(&redis.url(), "x").await;
    for from in (0..10_000).step_by(500) {
        let fill = |n: usize| author_fill(&format!("u{n}"), 9, &[entry(n as i64, &format!("p{n}"))]);
        feed.fill((from..from + 500).map(fill).collect()).await.unwrap();
    }
    let began = Instant::now();
    let reads = (0..20).map(|call| {
        let heads = (call * 500..(call + 1) * 500).map(|n| user(&format!("u{n}"))).collect();
        feed.read(Reads { heads, ..Reads::default() })
    });
    let found = futures_util::future::join_all(reads).await;
    let took = began.elapsed();
    assert!(found.into_iter().all(|found| found.unwrap().heads.iter().all(Option::is_some)));
    println!("10,000 heads: {took:?}");
}
