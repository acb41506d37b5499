//! The cases every store of membership filters passes.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidegate_backend::membership::{Agreed, Bits, Change, Held, MAX_BITS_A_CALL, MAX_BUCKETS_A_CALL, MembershipStore};
use tidegate_backend::{BoxFuture, CacheStore};
use tidegate_core::Millis;
use tidegate_core::cache::membership::{BUCKET_BYTES, Generation, Members, Shape, State, home};

/// A fresh, empty store under test, with what its tests need beside the trait.
pub trait Harness: Send + Sync {
    /// The cache's store whose filters are under test.
    fn store(&self) -> Arc<dyn CacheStore>;

    /// Loses one bucket, as a server that is short of memory does.
    fn evict<'a>(&'a self, namespace: &'a str, generation: u64, bucket: u32) -> BoxFuture<'a, ()>;
}

/// Opens a fresh, empty store.
pub type Open<'a> = &'a (dyn Fn() -> BoxFuture<'static, Box<dyn Harness>> + Sync);

const NS: &str = "ns";
const KEEP: Duration = Duration::from_secs(600);

struct Subject {
    harness: Box<dyn Harness>,
    cache: Arc<dyn CacheStore>,
}

impl Subject {
    async fn open(open: Open<'_>) -> Self {
        let harness = open().await;
        Self { cache: harness.store(), harness }
    }

    fn store(&self) -> &dyn MembershipStore {
        self.cache.membership().expect("it keeps filters")
    }

    async fn look(&self, generation: u64, buckets: &[u32]) -> Held {
        self.store().look(NS, generation, buckets).await.expect("the store answers")
    }

    async fn prepare(&self, generation: u64, buckets: Range<u32>) {
        self.store().prepare(NS, generation, buckets, KEEP).await.expect("the store answers");
    }

    async fn add(&self, state: &State, bits: &[Bits]) -> Agreed {
        self.store().add(NS, &state.bytes(), bits).await.expect("the store answers")
    }

    /// Replaces a state as nobody in particular.
    async fn replace(&self, state: &State, new: &State) -> Agreed {
        self.replace_as(state, new, 0, b"").await
    }

    async fn replace_as(&self, state: &State, new: &State, leader: u64, home: &[u8]) -> Agreed {
        let (state, new) = (state.bytes(), new.bytes());
        let change = Change { state: &state, new: &new, home, leader, keep: KEEP };
        self.store().replace(NS, change).await.expect("the store answers")
    }

    /// A generation that is current.
    async fn current(&self, id: u64) -> (Generation, State) {
        let generation = generation(id);
        self.prepare(id, 0..generation.shape.buckets).await;
        let state = State { current: Some(generation), building: None };
        assert_eq!(self.replace(&State::default(), &state).await, Agreed::Done);
        (generation, state)
    }
}

fn generation(id: u64) -> Generation {
    let shape = Shape { buckets: 5, hashes: 13 };
    Generation { id, seed: id * 31, shape, capacity: 2_000, begun: Millis(1), home: 1, layout: shape.layout() }
}

fn id(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

fn bits(generation: &Generation, n: u64) -> Bits {
    let place = generation.place(&id(n));
    Bits { generation: generation.id, bucket: place.bucket, offsets: generation.offsets(place) }
}

fn changed(state: &State) -> Agreed {
    Agreed::Changed(state.bytes().into())
}

/// Nothing is there; then a generation whose buckets are empty; then what was added is in it.
pub async fn a_generation_is_made_filled_and_found(open: Open<'_>) {
    let s = Subject::open(open).await;
    let nothing = s.look(7, &[0, 3]).await;
    assert_eq!((nothing.state.as_ref(), nothing.added), (&b""[..], 0));
    assert_eq!(nothing.buckets, [None, None]);
    assert!(!nothing.home.is_empty(), "it must be told from another");

    let (generation, state) = s.current(7).await;
    let found = s.look(7, &[0, 1, 2, 3, 4, 5]).await;
    assert_eq!((found.state.as_ref(), &found.home), (state.bytes().as_slice(), &nothing.home));
    let empty = Some(Bytes::from(vec![0; BUCKET_BYTES]));
    assert!(found.buckets[..5].iter().all(|bucket| *bucket == empty));
    assert_eq!(found.buckets[5], None);

    assert_eq!(s.add(&state, &[bits(&generation, 1), bits(&generation, 2)]).await, Agreed::Done);
    for n in [1, 2, 3] {
        let place = generation.place(&id(n));
        let held = s.look(7, &[place.bucket]).await;
        let bucket = held.buckets[0].as_ref().expect("it is there");
        assert_eq!(generation.may_hold(place, bucket), Some(n < 3), "{n}");
        assert_eq!(held.added, 2);
    }
    // Prepared again it keeps what is in.
    s.prepare(7, 0..5).await;
    let place = generation.place(&id(1));
    let held = s.look(7, &[place.bucket]).await;
    assert_eq!(generation.may_hold(place, held.buckets[0].as_ref().expect("it is there")), Some(true));
}

/// Bits set one by one, and those of whole buckets, are the bits of the filter.
pub async fn bits_and_whole_buckets_agree(open: Open<'_>) {
    let s = Subject::open(open).await;
    let (generation, state) = s.current(9).await;
    let (all, half) = (Members::new(generation.shape), Members::new(generation.shape));
    let mut one_by_one = Vec::new();
    for n in 0..400 {
        all.insert(generation.place(&id(n)));
        if n % 2 == 0 {
            half.insert(generation.place(&id(n)));
        } else {
            one_by_one.push(bits(&generation, n));
        }
    }
    for part in one_by_one.chunks(MAX_BITS_A_CALL) {
        assert_eq!(s.add(&state, part).await, Agreed::Done);
    }
    let whole: Vec<(u32, Bytes)> =
        (0..5).map(|at| (at, half.bytes(at).expect("every bucket has some").into())).collect();
    let merged = s.store().merge(NS, &state.bytes(), 9, &whole, Some(400)).await;
    assert_eq!(merged.expect("the store answers"), Agreed::Done);
    let held = s.look(9, &[0, 1, 2, 3, 4]).await;
    for (at, bucket) in held.buckets.iter().enumerate() {
        assert_eq!(bucket.as_deref(), all.bytes(at as u32).as_deref(), "{at}");
    }
    assert_eq!(held.added, 400);
}

/// Additions, merges and replacements name the state they believe in; where another is, they do nothing and are told it.
pub async fn nothing_is_done_under_another_state(open: Open<'_>) {
    let s = Subject::open(open).await;
    let none = State::default();
    assert_eq!(s.add(&none, &[]).await, Agreed::Done);
    let (generation, state) = s.current(3).await;
    assert_eq!(s.add(&none, &[]).await, changed(&state));
    let other = State { building: Some(self::generation(4)), ..state };
    assert_eq!(s.add(&other, &[bits(&generation, 1)]).await, changed(&state));
    let whole = [(0, Bytes::from(vec![255; BUCKET_BYTES]))];
    let merged = s.store().merge(NS, &other.bytes(), 3, &whole, Some(5)).await;
    assert_eq!(merged.expect("the store answers"), changed(&state));
    assert_eq!(s.replace(&other, &none).await, changed(&state));
    let held = s.look(3, &[0, 1, 2, 3, 4]).await;
    assert_eq!((held.state.as_ref(), held.added), (state.bytes().as_slice(), 0));
    assert!(held.buckets.iter().all(|bucket| bucket.as_ref().is_some_and(|bytes| bytes.iter().all(|byte| *byte == 0))));
    // Both generations of a state are added to.
    s.prepare(4, 0..5).await;
    assert_eq!(s.replace(&state, &other).await, Agreed::Done);
    let building = self::generation(4);
    assert_eq!(s.add(&other, &[bits(&generation, 1), bits(&building, 1)]).await, Agreed::Done);
    for generation in [generation, building] {
        let place = generation.place(&id(1));
        let held = s.look(generation.id, &[place.bucket]).await;
        assert_eq!(generation.may_hold(place, held.buckets[0].as_ref().expect("it is there")), Some(true));
    }
    assert_eq!(s.replace(&other, &none).await, Agreed::Done);
    assert_eq!(s.look(0, &[]).await.state.as_ref(), b"");
}

/// Neither additions nor merges make a bucket anew: it would lack what it had.
pub async fn what_is_lost_stays_lost(open: Open<'_>) {
    let s = Subject::open(open).await;
    let (generation, state) = s.current(5).await;
    assert_eq!(s.add(&state, &[bits(&generation, 1)]).await, Agreed::Done);
    let lost = generation.place(&id(1)).bucket;
    s.harness.evict(NS, 5, lost).await;
    assert_eq!(s.look(5, &[lost]).await.buckets, [None]);
    let again: Vec<Bits> = (1..50).map(|n| bits(&generation, n)).collect();
    assert_eq!(s.add(&state, &again).await, Agreed::Done);
    let whole = [(lost, Bytes::from(vec![255; BUCKET_BYTES]))];
    let merged = s.store().merge(NS, &state.bytes(), 5, &whole, None).await;
    assert_eq!(merged.expect("the store answers"), Agreed::Done);
    let held = s.look(5, &[0, 1, 2, 3, 4]).await;
    for (at, bucket) in held.buckets.iter().enumerate() {
        assert_eq!(bucket.is_none(), at as u32 == lost, "{at}");
    }
}

/// A discarded generation is gone.
pub async fn what_was_discarded_is_lost(open: Open<'_>) {
    let s = Subject::open(open).await;
    let (_, state) = s.current(5).await;
    let next = State { current: Some(generation(6)), building: None };
    s.prepare(6, 0..5).await;
    assert_eq!(s.replace(&state, &next).await, Agreed::Done);
    for part in [0..3, 3..5] {
        s.store().discard(NS, 5, part).await.expect("the store answers");
    }
    assert_eq!(s.look(5, &[0, 4]).await.buckets, [None, None]);
    assert!(s.look(6, &[0, 4]).await.buckets.iter().all(Option::is_some));
}

/// Of many who replace one state at once one does.
pub async fn one_of_many_replaces_a_state(open: Open<'_>) {
    let s = Subject::open(open).await;
    let (_, state) = s.current(1).await;
    let next: Vec<State> = (2..12).map(|id| State { current: Some(generation(id)), building: None }).collect();
    let tries = next.iter().map(|next| {
        let (cache, state, next) = (Arc::clone(&s.cache), state.bytes(), next.bytes());
        tokio::spawn(async move {
            let change = Change { state: &state, new: &next, home: b"", leader: 0, keep: KEEP };
            cache.membership().expect("it keeps filters").replace(NS, change).await.expect("the store answers")
        })
    });
    let mut answers = Vec::new();
    for tried in tries.collect::<Vec<_>>() {
        answers.push(tried.await.expect("it does not panic"));
    }
    let done: Vec<usize> = (0..10).filter(|at| answers[*at] == Agreed::Done).collect();
    assert_eq!(done.len(), 1, "{answers:?}");
    let there = &next[done[0]];
    assert_eq!(s.look(0, &[]).await.state.as_ref(), there.bytes());
    assert!((0..10).filter(|at| *at != done[0]).all(|at| answers[at] == changed(there)));
}

/// The lead is one caller's until it gives it back, or its time is over.
pub async fn one_leads_until_it_ends(open: Open<'_>) {
    let s = Subject::open(open).await;
    let store = s.store();
    let lead = |who: u64, ms: u64| async move {
        store.lead(NS, who, Duration::from_millis(ms)).await.expect("the store answers")
    };
    assert!(lead(1, 60_000).await);
    assert!(!lead(2, 60_000).await);
    assert!(lead(1, 60_000).await);
    // Who does not lead has nothing to give back.
    assert!(!lead(2, 0).await);
    assert!(!lead(2, 60_000).await);
    assert!(lead(1, 0).await);
    assert!(lead(2, 200).await);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(lead(3, 60_000).await);
}

/// Who builds replaces the state only while it leads, on the store it began on.
pub async fn a_builder_replaces_only_while_it_leads(open: Open<'_>) {
    let s = Subject::open(open).await;
    let (_, state) = s.current(1).await;
    let next = State { building: Some(generation(2)), ..state };
    let home_now = s.look(0, &[]).await.home;
    assert_ne!(home(&home_now), home(b"another"));
    assert_eq!(s.replace_as(&state, &next, 8, &home_now).await, changed(&state));
    assert!(s.store().lead(NS, 8, KEEP).await.expect("the store answers"));
    assert_eq!(s.replace_as(&state, &next, 9, &home_now).await, changed(&state));
    assert_eq!(s.replace_as(&state, &next, 8, b"another").await, changed(&state));
    assert_eq!(s.replace_as(&state, &next, 8, &home_now).await, Agreed::Done);
    assert!(s.store().lead(NS, 8, Duration::ZERO).await.expect("the store answers"));
    assert_eq!(s.replace_as(&next, &state, 8, &home_now).await, changed(&next));
}

/// What happens to one namespace is nothing to another.
pub async fn namespaces_are_apart(open: Open<'_>) {
    let s = Subject::open(open).await;
    let (generation, state) = s.current(1).await;
    assert_eq!(s.add(&state, &[bits(&generation, 1)]).await, Agreed::Done);
    let other = s.store().look("ns2", 1, &[0, 1, 2, 3, 4]).await.expect("the store answers");
    assert_eq!((other.state.as_ref(), other.added), (&b""[..], 0));
    assert!(other.buckets.iter().all(Option::is_none));
    assert!(s.store().lead(NS, 1, KEEP).await.expect("the store answers"));
    assert!(s.store().lead("ns2", 2, KEEP).await.expect("the store answers"));
    // Clearing the cache's entries leaves the filter.
    s.cache.clear(NS).await.expect("the store answers");
    assert_eq!(s.look(1, &[]).await.state.as_ref(), state.bytes());
}

/// An id that was in before is no addition.
pub async fn additions_are_counted_once(open: Open<'_>) {
    let s = Subject::open(open).await;
    let (generation, state) = s.current(1).await;
    for _ in 0..3 {
        let all: Vec<Bits> = (0..50).map(|n| bits(&generation, n)).collect();
        assert_eq!(s.add(&state, &all).await, Agreed::Done);
    }
    assert_eq!(s.look(1, &[]).await.added, 50);
}

/// As many as one call takes; more are refused.
pub async fn many_at_once_and_no_more(open: Open<'_>) {
    let s = Subject::open(open).await;
    let shape = Shape { buckets: 300, hashes: 13 };
    let generation = Generation { shape, ..generation(1) };
    let most = MAX_BUCKETS_A_CALL as u32;
    s.prepare(1, 0..most).await;
    s.prepare(1, most..300).await;
    let state = State { current: Some(generation), building: None };
    assert_eq!(s.replace(&State::default(), &state).await, Agreed::Done);
    let all: Vec<Bits> = (0..MAX_BITS_A_CALL as u64).map(|n| bits(&generation, n)).collect();
    assert_eq!(s.add(&state, &all).await, Agreed::Done);
    let buckets: Vec<u32> = (0..most).collect();
    let held = s.look(1, &buckets).await;
    assert!(held.buckets.iter().all(Option::is_some));
    for n in 0..MAX_BITS_A_CALL as u64 {
        let place = generation.place(&id(n));
        let Some(bucket) = held.buckets.get(place.bucket as usize) else { continue };
        assert_eq!(generation.may_hold(place, bucket.as_ref().expect("it is there")), Some(true), "{n}");
    }
    let whole: Vec<(u32, Bytes)> = buckets.iter().map(|at| (*at, Bytes::from(vec![1; BUCKET_BYTES]))).collect();
    assert_eq!(s.store().merge(NS, &state.bytes(), 1, &whole, None).await.expect("the store answers"), Agreed::Done);
    assert_eq!(s.look(1, &[255]).await.buckets[0].as_ref().map(|bucket| bucket[BUCKET_BYTES - 1] & 1), Some(1));

    let more: Vec<u32> = (0..=most).collect();
    assert!(s.store().look(NS, 1, &more).await.is_err());
    assert!(s.store().prepare(NS, 1, 0..most + 1, KEEP).await.is_err());
    let more: Vec<Bits> = (0..=MAX_BITS_A_CALL as u64).map(|n| bits(&generation, n)).collect();
    assert!(s.store().add(NS, &state.bytes(), &more).await.is_err());
}
