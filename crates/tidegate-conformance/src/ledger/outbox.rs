//! The outbox: exactly what was committed is in it, and what is in it is delivered, whoever dies.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use tidegate_backend::outbox::{MAX_OUTBOX_BATCH, Relayed};
use tidegate_backend::{BoxFuture, Deliver, OutboxEntry, OutboxState, Result, Ticket};
use tidegate_core::cache::{RowVersion, products};
use tokio::sync::Notify;

use super::*;

/// A program that keeps its own tables in the ledger's database.
pub trait Caller: Send + Sync {
    /// In a transaction of its own: invalidates `key` of the cache `namespace`, waits for `meanwhile`, then commits, or
    /// rolls back. `meanwhile` only reads.
    fn transact<'a>(
        &'a self,
        namespace: &'a str,
        key: &'a [u8],
        floor: Option<RowVersion>,
        meanwhile: BoxFuture<'a, ()>,
        commit: bool,
    ) -> BoxFuture<'a, Result<Ticket>>;
}

/// Counts what it is given, and says that all of it arrived.
#[derive(Default)]
struct Counts {
    seen: Mutex<BTreeMap<i64, (usize, OutboxEntry)>>,
}

impl Counts {
    fn note(&self, entries: &[OutboxEntry]) {
        assert!(entries.is_sorted_by_key(|entry| (entry.committed_at, entry.id)), "oldest first");
        let mut seen = self.seen.lock().expect("no test panics in between");
        for entry in entries {
            seen.entry(entry.id).or_insert((0, entry.clone())).0 += 1;
        }
    }

    fn times(&self) -> Vec<usize> {
        self.seen.lock().expect("no test panics in between").values().map(|(times, _)| *times).collect()
    }

    fn entries(&self) -> Vec<OutboxEntry> {
        self.seen.lock().expect("no test panics in between").values().map(|(_, entry)| entry.clone()).collect()
    }
}

impl Deliver for Counts {
    fn deliver<'a>(&'a self, entries: &'a [OutboxEntry]) -> BoxFuture<'a, Vec<i64>> {
        self.note(entries);
        Box::pin(async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            ids(entries)
        })
    }
}

/// Takes entries and never says what became of them.
#[derive(Default)]
struct Hangs {
    taken: Mutex<Vec<OutboxEntry>>,
    has_taken: Notify,
}

impl Deliver for Hangs {
    fn deliver<'a>(&'a self, entries: &'a [OutboxEntry]) -> BoxFuture<'a, Vec<i64>> {
        *self.taken.lock().expect("no test panics in between") = entries.to_vec();
        self.has_taken.notify_one();
        Box::pin(std::future::pending())
    }
}

/// Of each batch the first half arrives; the answer names it twice, and others' entries.
#[derive(Default)]
struct Half(Mutex<Vec<i64>>);

impl Deliver for Half {
    fn deliver<'a>(&'a self, entries: &'a [OutboxEntry]) -> BoxFuture<'a, Vec<i64>> {
        let arrived = ids(&entries[..entries.len() / 2]);
        *self.0.lock().expect("no test panics in between") = arrived.clone();
        Box::pin(async move { [&arrived[..], &[-1, 77], &arrived].concat() })
    }
}

fn ids(entries: &[OutboxEntry]) -> Vec<i64> {
    entries.iter().map(|entry| entry.id).collect()
}

fn by_id(mut entries: Vec<OutboxEntry>) -> Vec<OutboxEntry> {
    entries.sort_unstable_by_key(|entry| entry.id);
    entries
}

fn sku_id(text: &str) -> SkuId {
    SkuId::parse(text).expect("a SKU")
}

/// The SKU and the floor of each entry, by SKU.
fn pages(entries: &[OutboxEntry]) -> Vec<(String, Option<u64>)> {
    let sku = |entry: &OutboxEntry| {
        assert_eq!(&*entry.namespace, products::NAMESPACE);
        let text = std::str::from_utf8(&entry.key[1..]).expect("a short SKU after its length").to_owned();
        assert_eq!(*entry.key, *products::key(&sku_id(&text)).as_bytes());
        text
    };
    let mut pages: Vec<_> = entries.iter().map(|e| (sku(e), e.floor.map(RowVersion::get))).collect();
    pages.sort_unstable();
    pages
}

async fn commit(ledger: &Arc<dyn Ledger>, commands: Vec<Command>) -> Vec<OutboxEntry> {
    ledger.commit(commands.into()).await.expect("the ledger commits").outbox
}

/// `count` new SKUs, and the entries that say so.
async fn fill(ledger: &Arc<dyn Ledger>, count: usize) -> Vec<OutboxEntry> {
    let mut entries = Vec::new();
    for some in (0..count).collect::<Vec<_>>().chunks(40) {
        entries.extend(commit(ledger, some.iter().map(|i| put(&format!("s{i}"), 1, priced(5))).collect()).await);
    }
    entries
}

async fn waiting(ledger: &Arc<dyn Ledger>) -> usize {
    ledger.outbox().pending().await.expect("readable").count
}

async fn states(ledger: &Arc<dyn Ledger>, ids: &[i64]) -> Vec<OutboxState> {
    ledger.outbox().states(ids).await.expect("readable")
}

async fn relay(ledger: &Arc<dyn Ledger>, max: usize, to: &dyn Deliver) -> Result<Relayed> {
    ledger.outbox().relay(max, to).await
}

/// Creating, changing, archiving and bringing back a card makes its page old, once a batch, with the newest version; sales
/// and adjustments do not. What a commit tells is what its rows say. (The random cases hold every commit's entries against
/// the cards it changed.)
pub async fn a_changed_card_makes_its_page_old(open: Open<'_>) {
    let Opened { ledger, kept: _kept, .. } = open(Settings::default()).await;
    let titled = |title: &str| SkuPatch { title: Patch::Set(title.to_owned()), ..SkuPatch::default() };
    let mut told = commit(&ledger, vec![put("x", 9, priced(5)), put("y", 9, priced(5))]).await;
    assert_eq!(pages(&told), [("x".to_owned(), Some(1)), ("y".to_owned(), Some(1))]);
    let twice = commit(&ledger, vec![put("x", 9, titled("a")), put("y", 9, priced(5)), put("x", 9, priced(6))]).await;
    assert_eq!(pages(&twice), [("x".to_owned(), Some(3))]);
    told.extend(twice);
    let archived = commit(&ledger, vec![Command::ArchiveSku(sku_id("y")), Command::ArchiveSku(sku_id("y"))]).await;
    assert_eq!(pages(&archived), [("y".to_owned(), Some(2))]);
    told.extend(archived);
    assert_eq!(commit(&ledger, vec![Command::ArchiveSku(sku_id("y"))]).await, []);
    let back = commit(&ledger, vec![put("y", 9, SkuPatch::default()), place("o", &[("y", 1)])]).await;
    assert_eq!(pages(&back), [("y".to_owned(), Some(3))]);
    told.extend(back);
    let adjust = Adjust { sku: sku_id("x"), delta: 3, reason: "counted".to_owned(), key: key("k") };
    let sales = vec![place("p", &[("x", 1)]), pay("p", "p", None), Command::Adjust(adjust), cancel("o")];
    assert_eq!(commit(&ledger, sales).await, []);
    ledger.advance(1).await.expect("a manual clock");
    assert_eq!(waiting(&ledger).await, told.len());
    assert_eq!(states(&ledger, &ids(&told)).await, vec![OutboxState::Waiting; told.len()]);
    let all = Counts::default();
    let relayed = relay(&ledger, MAX_OUTBOX_BATCH, &all).await.expect("it relays");
    assert_eq!(relayed, Relayed { taken: told.len(), delivered: told.len() });
    assert_eq!(all.entries(), by_id(told), "the rows are what the commits told");
}

/// A refused command leaves nothing, whether it is alone or among others; nor does a batch that is refused whole.
pub async fn what_a_batch_refuses_makes_nothing_old(open: Open<'_>) {
    let Opened { ledger, kept: _kept, .. } = open(Settings::default()).await;
    let change = |sku: &str, if_version| {
        let patch = SkuPatch { title: Patch::Set("new".to_owned()), ..SkuPatch::default() };
        Command::PutSku(PutSku { sku: sku_id(sku), patch, on_hand: None, if_version })
    };
    let first = commit(&ledger, vec![put("x", 9, priced(5))]).await;
    let none = commit(&ledger, vec![change("x", Some(7)), change("none", Some(1)), put("x", 5, priced(8))]).await;
    assert_eq!(none, []);
    assert_eq!(commit(&ledger, vec![Command::ArchiveSku(sku_id("none"))]).await, []);
    let too_many = (0..600).map(|i| put(&format!("s{i}"), 1, priced(5))).collect();
    assert_eq!(ledger.commit(too_many).await.err().map(|e| e.kind()), Some(ErrorKind::Command));
    assert_eq!(waiting(&ledger).await, 1);
    let one = commit(&ledger, vec![change("x", Some(7)), change("x", Some(1)), change("x", Some(1))]).await;
    assert_eq!(pages(&one), [("x".to_owned(), Some(2))]);
    assert_eq!(
        states(&ledger, &[one[0].id, 5, first[0].id]).await,
        [OutboxState::Waiting, OutboxState::Absent, OutboxState::Waiting]
    );
}

/// Two relays at once, and commits that go on: each entry is delivered once.
pub async fn relays_share_the_work(open: Open<'_>) {
    let Opened { ledger, kept: _kept, .. } = open(Settings::default()).await;
    let mut told = fill(&ledger, 120).await;
    let counts = Arc::new(Counts::default());
    let relays: Vec<_> = (0..2)
        .map(|_| {
            let (ledger, counts) = (ledger.clone(), counts.clone());
            tokio::spawn(async move {
                let mut delivered = 0;
                loop {
                    let relayed = relay(&ledger, 7, &*counts).await.expect("it relays");
                    assert!(relayed.taken <= 7 && relayed.delivered == relayed.taken);
                    delivered += relayed.delivered;
                    if relayed.taken == 0 && waiting(&ledger).await == 0 && counts.times().len() >= 130 {
                        return delivered;
                    }
                }
            })
        })
        .collect();
    for i in 0..10 {
        told.extend(commit(&ledger, vec![put(&format!("late-{i}"), 1, priced(5))]).await);
    }
    let mut delivered = 0;
    for relay in relays {
        delivered += relay.await.expect("no task panics");
    }
    assert_eq!(delivered, told.len());
    assert_eq!(counts.times(), vec![1; told.len()], "each once");
    assert_eq!(counts.entries(), by_id(told));
}

/// A relay that dies with entries in its hands gives them back.
pub async fn a_relay_that_dies_loses_nothing(open: Open<'_>) {
    let Opened { ledger, kept: _kept, .. } = open(Settings::default()).await;
    let told = fill(&ledger, 30).await;
    let hangs = Arc::new(Hangs::default());
    let dying = tokio::spawn({
        let (ledger, hangs) = (ledger.clone(), hangs.clone());
        async move { relay(&ledger, 10, &*hangs).await }
    });
    hangs.has_taken.notified().await;
    let taken = hangs.taken.lock().expect("no test panics in between").clone();
    assert_eq!(taken.len(), 10);
    // Its owner marks one of them, which may be the relay's to do.
    ledger.outbox().mark_delivered(&[taken[0].id]).await.expect("it does not wait for the relay");
    dying.abort();
    assert!(dying.await.is_err_and(|e| e.is_cancelled()));
    ledger.outbox().mark_delivered(&[taken[0].id]).await.expect("it marks");
    let counts = Counts::default();
    let begun = std::time::Instant::now();
    while waiting(&ledger).await > 0 {
        assert!(begun.elapsed() < Duration::from_secs(10), "{} entries are stuck", waiting(&ledger).await);
        relay(&ledger, 7, &counts).await.expect("it relays");
    }
    assert!(counts.times().iter().all(|times| *times == 1));
    assert!(counts.times().len() >= 29);
    assert_eq!(states(&ledger, &ids(&told)).await, vec![OutboxState::Delivered; 30]);
}

/// What does not arrive, or never ends, waits on; an answer about others' entries is not believed.
pub async fn what_does_not_arrive_comes_again(open: Open<'_>) {
    let Opened { ledger, kept: _kept, .. } = open(Settings::default()).await;
    let told = fill(&ledger, 8).await;
    let half = Half::default();
    assert_eq!(relay(&ledger, 5, &half).await.expect("it relays"), Relayed { taken: 5, delivered: 2 });
    let arrived = half.0.lock().expect("no test panics in between").clone();
    for entry in &told {
        let expected = if arrived.contains(&entry.id) { OutboxState::Delivered } else { OutboxState::Waiting };
        assert_eq!(states(&ledger, &[entry.id]).await, [expected]);
    }
    let begun = std::time::Instant::now();
    let error = relay(&ledger, 5, &Hangs::default()).await.expect_err("nothing arrives");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    let pending = ledger.outbox().pending().await.expect("readable");
    assert_eq!(pending.count, 6);
    let age = pending.oldest.expect("some wait");
    assert!((Duration::from_secs(2)..Duration::from_secs(60)).contains(&age), "{age:?}");
    let counts = Counts::default();
    assert_eq!(relay(&ledger, 50, &counts).await.expect("it relays"), Relayed { taken: 6, delivered: 6 });
    let pending = ledger.outbox().pending().await.expect("readable");
    assert_eq!((pending.count, pending.oldest), (0, None));
    assert_eq!(relay(&ledger, 50, &counts).await.expect("it relays"), Relayed::default());
}

/// What was delivered lately can be had again, page by page; then it is pruned. What waits is kept for ever.
pub async fn what_was_delivered_is_kept_for_a_replay(open: Open<'_>) {
    let Opened { ledger, kept: _kept, .. } = open(Settings::default()).await;
    let told = fill(&ledger, 12).await;
    let outbox = ledger.outbox();
    let minute = Duration::from_secs(60);
    assert_eq!(outbox.replay(minute, None, 5).await.expect("readable").entries, []);
    let (first, rest) = told.split_at(4);
    outbox.mark_delivered(&ids(first)).await.expect("it marks");
    tokio::time::sleep(Duration::from_millis(5)).await;
    outbox.mark_delivered(&ids(&rest[..3])).await.expect("it marks");
    outbox.mark_delivered(&[]).await.expect("it marks nothing");
    // A second time, and ids that nobody has, change nothing.
    outbox.mark_delivered(&[first[0].id, 5]).await.expect("it marks");
    let (mut after, mut replayed, mut pages) = (None, Vec::new(), 0);
    loop {
        let page = outbox.replay(minute, after, 3).await.expect("readable");
        assert!(page.entries.len() <= 3);
        replayed.extend(page.entries);
        (after, pages) = (page.next, pages + 1);
        if after.is_none() {
            break;
        }
    }
    assert_eq!(pages, 3);
    assert_eq!(by_id(replayed[..4].to_vec()), by_id(first.to_vec()), "in the order of their delivery");
    assert_eq!(by_id(replayed[4..].to_vec()), by_id(rest[..3].to_vec()));
    // The order clock may be anywhere: the outbox goes by the real one.
    ledger.advance(7_200_000).await.expect("a manual clock");
    assert!(!outbox.prune(minute).await.expect("it prunes"));
    assert_eq!(outbox.replay(minute, None, 50).await.expect("readable").entries, replayed);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(outbox.replay(Duration::from_millis(5), None, 50).await.expect("readable").entries, []);
    assert!(!outbox.prune(Duration::from_millis(5)).await.expect("it prunes"));
    assert_eq!(outbox.replay(minute, None, 50).await.expect("readable").entries, []);
    assert_eq!(
        states(&ledger, &ids(&told)).await,
        [[OutboxState::Absent; 7].as_slice(), &[OutboxState::Waiting; 5]].concat()
    );
    let too_many = vec![1; MAX_OUTBOX_BATCH + 1];
    assert_eq!(outbox.states(&too_many).await.err().map(|e| e.kind()), Some(ErrorKind::Command));
    assert_eq!(outbox.mark_delivered(&too_many).await.err().map(|e| e.kind()), Some(ErrorKind::Command));
    let events = ledger.newest_cursor().await.expect("readable");
    assert_eq!(events, 0, "events are no part of it: {events}");
}

/// An invalidation in a caller's own transaction is there once that commits, not before, and never if it is rolled back.
pub async fn a_callers_own_transaction_counts_once_it_commits(open: Open<'_>) {
    let Opened { ledger, caller, kept: _kept } = open(Settings::default()).await;
    let key = |bytes: &'static [u8]| bytes;
    let nothing_yet = |ledger: &Arc<dyn Ledger>| {
        let ledger = ledger.clone();
        Box::pin(async move { assert_eq!(waiting(&ledger).await, 0, "not before the commit") })
    };
    let rolled_back = caller.transact("mine", key(b"\x01a"), None, nothing_yet(&ledger), false).await;
    let rolled_back = rolled_back.expect("it writes");
    assert_eq!(states(&ledger, &[rolled_back.0]).await, [OutboxState::Absent]);
    let floor = RowVersion::new(42);
    let ticket = caller.transact("mine", key(b"\x02\x00\xff"), floor, nothing_yet(&ledger), true).await;
    let ticket = ticket.expect("it writes");
    assert_ne!(ticket, rolled_back);
    assert_eq!((waiting(&ledger).await, states(&ledger, &[ticket.0]).await), (1, vec![OutboxState::Waiting]));
    let longest = vec![7; tidegate_core::cache::MAX_KEY_BYTES];
    let namespace = "n".repeat(64);
    let second = caller.transact(&namespace, &longest, None, Box::pin(async {}), true).await.expect("it writes");
    for (namespace, key) in [("Mine", &b"k"[..]), ("", b"k"), ("a\0b", b"k"), ("mine", &[7; 1_025])] {
        let refused = caller.transact(namespace, key, None, Box::pin(async {}), true).await;
        assert_eq!(refused.err().map(|e| e.kind()), Some(ErrorKind::Command), "{namespace:?}");
    }
    let counts = Counts::default();
    assert_eq!(relay(&ledger, 10, &counts).await.expect("it relays"), Relayed { taken: 2, delivered: 2 });
    let entries: BTreeMap<i64, OutboxEntry> = counts.entries().into_iter().map(|entry| (entry.id, entry)).collect();
    let (one, two) = (&entries[&ticket.0], &entries[&second.0]);
    assert_eq!((&*one.namespace, &*one.key, one.floor), ("mine", &b"\x02\x00\xff"[..], floor));
    assert_eq!((&*two.namespace, &*two.key, two.floor), (namespace.as_str(), longest.as_slice(), None));
    let now = tidegate_backend::clock::host_now();
    assert!((0..60_000).contains(&now.since(one.committed_at)), "{:?} at {now:?}", one.committed_at);
    assert_eq!(states(&ledger, &[ticket.0]).await, [OutboxState::Delivered]);
}
