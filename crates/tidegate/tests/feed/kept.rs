//! Pages from memory.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tidegate::feed::*;
use tidegate_core::feed::WINDOW_MS;

use crate::common::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unchanged_first_page_reads_no_set_and_no_post() {
    let mut options = options();
    options.news_within = Duration::from_secs(3_600);
    let world = World::new(2, options);
    world.follow("me", "ann").await;
    for n in 0..30 {
        world.text("ann", &format!("p{n:02}"), 100 - n).await;
    }
    let node = &world.nodes[1];
    let (first, cost) = node.feed.page_and_cost(&ask("me", 20)).await.unwrap();
    assert!(!cost.kept);
    let calls = node.store.faults.calls.load(Ordering::SeqCst);
    let posts = world.ledger.posts_read.load(Ordering::SeqCst);
    for _ in 0..100 {
        let (page, cost) = node.feed.page_and_cost(&ask("me", 20)).await.unwrap();
        assert!(cost.kept && page == first);
    }
    assert_eq!(node.store.faults.calls.load(Ordering::SeqCst), calls);
    assert_eq!(world.ledger.posts_read.load(Ordering::SeqCst), posts);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_older_news_one_question_comes_first() {
    let world = World::new(2, options());
    world.follow("me", "ann").await;
    world.text("ann", "p", 5).await;
    let node = &world.nodes[1];
    node.feed.page(&ask("me", 20)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(150)).await;
    let sets = node.store.sets_read.lock().unwrap().len();
    let alone = node.feed.stats().news_alone;
    let pages = futures_of(node, 50).await;
    assert!(pages.iter().all(|kept| *kept));
    assert_eq!(node.store.sets_read.lock().unwrap().len(), sets);
    let asked = node.feed.stats().news_alone - alone;
    // One, unless this took longer than the news are good for.
    assert!((1..5).contains(&asked), "{asked}");
}

async fn futures_of(node: &Node, count: usize) -> Vec<bool> {
    let mut tasks = Vec::new();
    for _ in 0..count {
        let feed = node.feed.clone();
        tasks.push(tokio::spawn(async move { feed.page_and_cost(&ask("me", 20)).await.unwrap().1.kept }));
    }
    let mut kept = Vec::new();
    for task in tasks {
        kept.push(task.await.unwrap());
    }
    kept
}

/// What this process commits is in its next page; what others do, within the bound.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_changes_show_at_once_and_others_within_the_bound() {
    let world = World::new(2, options());
    world.follow("me", "ann").await;
    let own = |page: &Page| page.items.iter().map(|item| item.root.id.to_string()).collect::<Vec<_>>();
    let mut right = Vec::new();
    for n in 0..60 {
        let name = format!("p{n:02}");
        world.text("ann", &name, 100 - n).await;
        right.insert(0, name);
        right.truncate(10);
        assert_eq!(own(&world.feed().page(&ask("me", 10)).await.unwrap()), right);
        let published = Instant::now();
        loop {
            let asked = Instant::now();
            let page = world.nodes[1].feed.page(&ask("me", 10)).await.unwrap();
            if own(&page) == right {
                break;
            }
            assert!(asked - published < Duration::from_millis(100), "it is old for too long");
        }
    }
    assert!(world.nodes[1].feed.stats().kept > 0);
}

/// Every kind of change that concerns a page makes it go, and no other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_is_kept_until_something_concerns_it() {
    let world = World::new(1, exact());
    world.text("eve", "root", 60).await;
    for n in 0..6 {
        world.text("ann", &format!("a{n}"), 50 - n).await;
    }
    world.repost("bob", "again", "root", 40).await;
    for other in ["ann", "bob"] {
        world.follow("me", other).await;
    }
    let is_kept = async || world.feed().page_and_cost(&ask("me", 3)).await.unwrap().1.kept;
    assert!(!is_kept().await && is_kept().await);
    // Nobody on it, or too old for it.
    world.text("stranger", "s", 1).await;
    world.text("ann", "ancient", 5_000_000).await;
    world.hide("s", Visibility::Hidden).await;
    world.follow("stranger", "ann").await;
    assert!(is_kept().await);
    world.text("ann", "fresh", 1).await;
    assert!(!is_kept().await && is_kept().await);
    world.hide("fresh", Visibility::Hidden).await;
    assert!(!is_kept().await && is_kept().await);
    world.hide("fresh", Visibility::Public).await;
    assert!(!is_kept().await && is_kept().await);
    world.feed().delete(post("fresh")).await.unwrap();
    assert!(!is_kept().await && is_kept().await);
    world.feed().block(user("ann"), user("me")).await.unwrap();
    assert!(!is_kept().await && is_kept().await);
    world.feed().unblock(user("ann"), user("me")).await.unwrap();
    assert!(!is_kept().await && is_kept().await);
    world.feed().unfollow(user("me"), user("bob")).await.unwrap();
    assert!(!is_kept().await && is_kept().await);
    // Time passes: the last one leaves the window.
    world.ledger.hand().advance(WINDOW_MS - 60);
    assert!(is_kept().await);
    world.ledger.hand().advance(40);
    assert!(!is_kept().await);
}

/// The root is a stranger's: its edits are heard of all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edits_of_reposted_roots_show_in_every_process() {
    let world = World::new(2, exact());
    world.text("eve", "root", 60).await;
    world.repost("bob", "again", "root", 40).await;
    world.follow("me", "bob").await;
    let bodies = async |node: usize| {
        let page = world.nodes[node].feed.page(&ask("me", 3)).await.unwrap();
        page.items.iter().map(|item| item.root.version).collect::<Vec<_>>()
    };
    for version in 1..20 {
        for node in [0, 1, 0, 1] {
            assert_eq!(bodies(node).await, [version]);
        }
        let edit = PostEdit { body: Some(Body::parse(&format!("v{version}")).unwrap()), visibility: None };
        world.nodes[version as usize % 2].feed.edit(post("root"), edit).await.unwrap();
    }
    world.feed().delete(post("root")).await.unwrap();
    assert!(bodies(1).await.is_empty() && bodies(0).await.is_empty());
    // Nobody takes the name while bob still shows what had it; then it is another post, which he has not shown.
    let anew = text("mallory", "root", world.now().plus(-50));
    assert_eq!(world.nodes[1].feed.publish(anew.clone()).await.unwrap(), Published::Mismatch);
    world.nodes[1].feed.delete(post("again")).await.unwrap();
    assert!(matches!(world.nodes[1].feed.publish(anew).await.unwrap(), Published::New(_)));
    assert!(bodies(1).await.is_empty() && bodies(0).await.is_empty());
    world.repost("bob", "again", "root", 30).await;
    assert_eq!((bodies(1).await, bodies(0).await), (vec![1], vec![1]));
}

/// One root that everybody shows: its reasons are sorted once, not for each of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_root_that_thousands_show_is_one_item_soon() {
    const MANY: usize = 2_000;
    let world = World::new(1, options());
    world.text("eve", "root", 60_000).await;
    let name = |n: usize| format!("fan-{n:05}");
    for part in (0..MANY).collect::<Vec<_>>().chunks(500) {
        let fans = part.iter().flat_map(|n| {
            let at = world.now().plus(-(*n as i64));
            let shown = NewPost { content: Content::Repost(post("root")), ..text(&name(*n), &format!("r-{n}"), at) };
            [Command::Publish(shown), Command::Follow { user: user("me"), other: user(&name(*n)), since: None }]
        });
        world.feed().batch(fans.collect()).await.unwrap();
    }
    let began = std::time::Instant::now();
    let page = world.feed().page(&ask("me", 20)).await.unwrap();
    let took = began.elapsed();
    assert_eq!((page.items.len(), page.items[0].reason_count, page.next.clone()), (1, MANY, Err(End::Complete)));
    assert_eq!(page.items[0].reasons[0].user, user(&name(0)));
    // Sorting them for each of them was 2,000 times the work.
    assert!(took.as_secs() < 10, "{took:?}");
}

/// A process changes an author's posts before it has heard what another changed: it hears that later, and of an older version
/// than its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_did_before_an_own_change_is_not_missed() {
    let world = World::new(2, exact());
    world.follow("me", "ann").await;
    for n in 0..9 {
        world.text("ann", &format!("p{n}"), 1_000 * n).await;
    }
    let first = ask("me", 5);
    for n in 0..5 {
        let (kept, made) = (world.feed().page(&first).await.unwrap(), world.feed().stats().made);
        assert_eq!(world.feed().page(&first).await.unwrap(), kept);
        assert_eq!(world.feed().stats().made, made, "it is kept");
        let between = format!("between-{n}");
        let new = text("ann", &between, world.now().plus(-500 + n));
        assert!(matches!(world.nodes[1].feed.publish(new).await.unwrap(), Published::New(_)));
        // It is on no page, and no walk came to it.
        assert!(world.feed().delete(post(&format!("p{}", 8 - n / 2))).await.is_ok());
        let page = world.feed().page(&first).await.unwrap();
        assert!(page.items.iter().any(|item| item.root.id == post(&between)), "round {n}: {:?}", shown(&page));
    }
}

/// A name that was asked for before it was published.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cached_absence_hides_no_new_post() {
    let world = World::new(2, exact());
    world.follow("me", "ann").await;
    for n in 0..10 {
        let name = format!("p{n}");
        assert!(world.nodes[1].feed.post(&post(&name)).await.unwrap().is_none());
        world.text("ann", &name, 100 - n).await;
        assert_eq!(world.roots("me", 20).await[0], name);
    }
}

/// The same once that is known for some seconds, and before any cache was told of the post: nothing else runs between the
/// answer and the page.
#[tokio::test]
async fn an_old_absence_hides_no_new_post() {
    let world = World::new(2, exact());
    world.follow("me", "ann").await;
    let names: Vec<String> = (0..5).map(|n| format!("p{n}")).collect();
    assert!(world.roots("me", 20).await.is_empty());
    for name in &names {
        assert!(world.nodes[1].feed.post(&post(name)).await.unwrap().is_none());
    }
    tokio::time::sleep(Duration::from_millis(3_000)).await;
    for (n, name) in names.iter().enumerate() {
        world.text("ann", name, 100 - n as i64).await;
        let page = world.nodes[1].feed.page(&ask("me", 20)).await.unwrap();
        assert_eq!(page.items[0].root.id, post(name));
    }
}

/// A user is gone, and another publishes under the name of one of his posts before the caches of other processes were told.
#[tokio::test]
async fn a_post_of_a_user_who_is_gone_hides_no_new_one_of_its_name() {
    let world = World::new(2, exact());
    world.follow("me", "ann").await;
    world.follow("me", "bob").await;
    for n in 0..5 {
        let name = format!("p{n}");
        world.text("bob", &name, 100 - n).await;
        world.text("ann", &format!("a{n}"), 100 - n).await;
        let asked = ask("me", 20);
        assert_eq!(world.nodes[1].feed.page(&asked).await.unwrap().items.len(), 2 + n as usize);
        world.feed().delete_user(&user("bob")).await.unwrap();
        let new = text("ann", &name, world.now().plus(-50 + n));
        assert!(matches!(world.feed().publish(new).await.unwrap(), Published::New(_)));
        let page = world.nodes[1].feed.page(&asked).await.unwrap();
        assert!(page.items.iter().any(|item| item.root.id == post(&name)), "round {n}: {:?}", shown(&page));
        world.feed().delete(post(&name)).await.unwrap();
        world.follow("me", "bob").await;
    }
}

/// At least 50,000 a second on an idle machine with optimizations; here, that it is no page that is made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_from_memory_are_made_once() {
    let world = World::new(1, options());
    world.follow("me", "ann").await;
    for n in 0..30 {
        world.text("ann", &format!("p{n:02}"), 100 - n).await;
    }
    let ask = ask("me", 20);
    world.feed().page(&ask).await.unwrap();
    let began = Instant::now();
    let count = 20_000;
    for _ in 0..count {
        world.feed().page(&ask).await.unwrap();
    }
    let took = began.elapsed();
    assert!(world.feed().stats().kept > count - 10 && took < Duration::from_secs(20), "{took:?}");
}
