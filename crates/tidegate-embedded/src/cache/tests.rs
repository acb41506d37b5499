use tidegate_backend::ManualClock;
use tidegate_core::cache::EntryId;
use tidegate_core::cache::cell::{Holder, Notes};

use super::*;

fn key(name: &str) -> CacheKey {
    CacheKey { namespace: "ns".into(), schema: 0, key: Bytes::copy_from_slice(name.as_bytes()) }
}

fn open(max_bytes: usize) -> (EmbeddedCache, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(Millis(1_000_000)));
    let cache = EmbeddedCache::with_clock(EmbeddedCacheOptions { max_bytes }, clock.clone()).unwrap();
    (cache, clock)
}

async fn pass(clock: &ManualClock, ms: i64) {
    clock.advance_to(clock.now().plus(ms)).unwrap();
}

fn put(cache: &EmbeddedCache, name: &str, bytes: usize) {
    cache.overwrite(&key(name), vec![b'x'; bytes].into(), Duration::from_secs(60));
}

#[tokio::test]
async fn it_stays_within_its_bytes_and_keeps_what_is_used() {
    let (cache, _) = open(1 << 20);
    put(&cache, "hot", 100);
    for n in 0..10_000 {
        put(&cache, &n.to_string(), 1_000);
        assert!(cache.bytes() <= 1 << 20);
        assert!(cache.read(&key("hot")).await.unwrap().is_some(), "it is read all the time: {n}");
    }
    let left = (0..10_000).filter(|n| cache.store.read(&key(&n.to_string())).is_some()).count();
    assert!((300..1_000).contains(&left), "{left}");
    assert_eq!(cache.evictions(), 10_000 - left as u64);
    put(&cache, "too large", 2 << 20);
    assert!(cache.bytes() <= 1 << 20);
    assert!(cache.read(&key("too large")).await.unwrap().is_none());
}

#[tokio::test]
async fn the_dead_are_freed_by_what_comes_later() {
    let (cache, clock) = open(64 << 20);
    for n in 0..20_000 {
        put(&cache, &n.to_string(), 100);
    }
    let full = cache.bytes();
    pass(&clock, 60_001).await;
    // Chance spreads changes over the shards: twice as many as would do if it were even.
    for n in 0..10_000 {
        cache.delete(&key(&n.to_string()));
    }
    assert_eq!((cache.bytes(), cache.evictions()), (0, 0), "of {full}");
    let shards = cache.store.cells.shards_for_tests();
    assert!(shards.iter().all(|(ids, taken)| *ids == 0 && *taken == 0), "{shards:?}");
}

#[tokio::test]
async fn bytes_add_up_after_changes_of_every_kind() {
    let (cache, clock) = open(64 << 20);
    for n in 0..2_000_usize {
        put(&cache, &(n % 97).to_string(), n % 501);
        cache.apply(&[(key(&(n % 89).to_string()), Op::Invalidate { floor: None, keep_floor_ms: 1 })]).await;
        let token = EntryId([n as u8; 16]);
        cache.apply(&[(key(&(n % 83).to_string()), Op::Lease { token, for_ms: 5 })]).await;
        pass(&clock, 1).await;
        if n % 500 == 499 {
            cache.clear("ns").await.unwrap();
        }
        assert_eq!(cache.bytes(), cache.store.cells.weighed_for_tests(), "{n}");
    }
}

#[tokio::test]
async fn a_lease_that_was_waited_for_wakes_every_handle() {
    let (cache, _) = open(1 << 20);
    let other = cache.handle();
    assert!(cache.capabilities().shared && other.capabilities().shared);
    let lease = |n| (key("k"), Op::Lease { token: EntryId([n; 16]), for_ms: 1_000 });
    assert_eq!(cache.apply(&[lease(1)]).await[0].as_ref().unwrap(), &Reply::Granted(Notes::default()));
    assert!(matches!(other.apply(&[lease(2)]).await[0], Ok(Reply::Present(_))));
    cache.apply(&[(key("k"), Op::Release { holder: Holder::Lease(EntryId([1; 16])) })]).await;
    let woken = vec![CacheNotice::Woken { namespace: "ns".into(), key: key("k").key }];
    assert_eq!((cache.heard().await, other.heard().await), (woken.clone(), woken));
}

#[tokio::test]
async fn a_handle_that_does_not_listen_hears_of_a_gap_and_says_how_long_it_has_been_deaf() {
    let (cache, _) = open(1 << 20);
    assert_eq!(cache.silence(), Duration::ZERO);
    let other = cache.handle();
    let notice = CacheNotice::Cleared { namespace: "ns".into() };
    for _ in 0..=MAX_NOTICES {
        cache.tell(std::slice::from_ref(&notice)).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(other.silence() >= Duration::from_millis(20));
    assert_eq!(cache.silence(), Duration::ZERO, "nobody told it anything");
    assert_eq!(other.heard().await, [CacheNotice::Gap]);
    assert_eq!(other.silence(), Duration::ZERO);
    cache.tell(std::slice::from_ref(&notice)).await.unwrap();
    assert_eq!(other.heard().await, [notice], "it goes on after a gap");
    let inboxes = || cache.store.inboxes.read().unwrap().len();
    assert_eq!(inboxes(), 2);
    drop(other);
    assert_eq!(inboxes(), 1);
}

#[test]
fn no_bytes_is_no_cache() {
    let error = EmbeddedCache::open(EmbeddedCacheOptions { max_bytes: 0 }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Configuration);
}
