//! More than one key, and what no well-behaved client does.

use std::collections::HashSet;
use std::sync::Arc;

use tidegate_backend::cache::MAX_CACHE_BATCH;
use tidegate_core::cache::MAX_KEY_BYTES;

use super::*;

/// A thousand reads and operations at once, answered in order, repeated keys included.
pub async fn a_thousand_at_once_are_answered_in_order(open: Open<'_>) {
    let s = Subject::open(open).await;
    assert!(s.store.apply(&[]).await.is_empty());
    assert!(s.store.read_many(&[]).await.expect("the store answers").is_empty());
    let keys: Vec<_> = (0..MAX_CACHE_BATCH).map(|n| key(&(n / 2).to_string())).collect();
    let leases: Vec<_> = keys.iter().enumerate().map(|(n, k)| (k.clone(), lease(n as u8 % 2))).collect();
    for (n, reply) in s.store.apply(&leases).await.into_iter().enumerate() {
        let expected = if n % 2 == 0 { GRANTED } else { Reply::Present(waited_lease(0)) };
        assert_eq!(reply.expect("the store answers"), expected, "{n}");
    }
    let bytes = |n: usize| value(&keys[n], (n / 2 % 250) as u8, Some(n as u64 / 2));
    let fills: Vec<_> = (0..keys.len()).map(|n| (keys[n].clone(), fill(by_lease(0), &bytes(n)))).collect();
    for (n, reply) in s.store.apply(&fills).await.into_iter().enumerate() {
        let expected = if n % 2 == 0 { Reply::Held } else { Reply::Lost };
        assert_eq!(reply.expect("the store answers"), expected, "{n}");
    }
    let asked: Vec<_> = (0..MAX_CACHE_BATCH).map(|n| keys[(n * 7) % 996].clone()).collect();
    let mut asked_with_gaps = asked.clone();
    asked_with_gaps[500] = key("nothing is here");
    asked_with_gaps[501] = asked[0].clone();
    let found = s.store.read_many(&asked_with_gaps).await.expect("the store answers");
    assert_eq!(found.len(), MAX_CACHE_BATCH);
    for (n, found) in found.into_iter().enumerate() {
        let expected = match n {
            500 => None,
            501 => Some(bytes(0)),
            _ => Some(bytes((n * 7) % 996)),
        };
        assert_eq!(found, expected, "{n}");
    }
}

/// Values of 1 MB, and one of 8 MB, come back as they were.
pub async fn large_values_come_back_whole(open: Open<'_>) {
    let s = Subject::open(open).await;
    let keys: Vec<_> = (0..9).map(|n| key(&n.to_string())).collect();
    let large = |n: usize| {
        let payload: Vec<u8> =
            (0..if n == 8 { 8_usize << 20 } else { 1 << 20 }).map(|at| ((at * (n + 3)) >> 3) as u8).collect();
        Bytes::from(header(&keys[n], n as u8, None).value(&keys[n].key, Codec(0), Packing::Plain, &payload))
    };
    for (n, k) in keys.iter().enumerate() {
        assert_eq!(s.apply(k, lease(n as u8)).await, GRANTED);
        assert_eq!(s.apply(k, fill(by_lease(n as u8), &large(n))).await, Reply::Held);
        assert!(s.read(k).await.is_some_and(|found| found == large(n)), "{n}");
    }
    let found = s.store.read_many(&keys).await.expect("the store answers");
    assert!(found.iter().enumerate().all(|(n, found)| found.as_ref().is_some_and(|found| *found == large(n))));
}

/// Keys are bytes: none, every one, braces, escapes of escapes; distinct keys never meet.
pub async fn keys_are_any_bytes(open: Open<'_>) {
    let s = Subject::open(open).await;
    let mut keys: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    keys.extend((0..=255).map(|byte| vec![b'a', byte, b'b']));
    let odd = ["", "{", "}", "{}", "{{}}", "}{", "{}{}", "a{b}c", "%7B", "%7b", "%7D", "%", "%%", "%25", "\\", "\\{"];
    let more = ["{a}:0", "{a}:n", "a:0", "a:n", ":", "::", "{:a", "a\u{0}", "a\u{0}\u{0}", "0", "1", "r0", "n"];
    keys.extend(odd.iter().chain(&more).map(|odd| odd.as_bytes().to_vec()));
    keys.extend([vec![b'{'; MAX_KEY_BYTES], vec![0; MAX_KEY_BYTES], vec![255; MAX_KEY_BYTES - 1]]);
    keys.sort();
    keys.dedup();
    let keys: Vec<_> = keys.into_iter().map(|bytes| CacheKey { key: bytes.into(), ..key("") }).collect();
    let bytes = |n: usize| value(&keys[n], n as u8, Some(n as u64));
    for (n, k) in keys.iter().enumerate() {
        assert_eq!(s.apply(k, lease(n as u8)).await, GRANTED, "{k:?}");
        assert_eq!(s.apply(k, fill(by_lease(n as u8), &bytes(n))).await, Reply::Held, "{k:?}");
    }
    for (n, k) in keys.iter().enumerate() {
        assert_eq!(s.read(k).await, Some(bytes(n)), "{k:?}");
    }
    let some: Vec<_> = (0..keys.len()).step_by(3).map(|n| (keys[n].clone(), invalidate(None))).collect();
    assert!(s.store.apply(&some).await.into_iter().all(|reply| reply.expect("the store answers") == Reply::Held));
    let found = s.store.read_many(&keys).await.expect("the store answers");
    for (n, found) in found.into_iter().enumerate() {
        assert_eq!(found, (n % 3 != 0).then(|| bytes(n)), "{:?}", keys[n]);
    }
}

/// A touch says what is there, in order and by schema, and changes nothing.
pub async fn touched_keys_say_whether_they_are_there(open: Open<'_>) {
    let s = Subject::open(open).await;
    let keys: Vec<_> = (0..1_000).map(|n| key(&format!("{{{n}}}"))).collect();
    for (n, k) in keys.iter().enumerate().filter(|(n, _)| n % 3 == 0) {
        s.filled(k, (n % 200) as u8, None).await;
    }
    assert_eq!(s.apply(&keys[1], lease(7)).await, GRANTED);
    let there = s.store.touch(&keys).await.expect("the store answers");
    let want: Vec<bool> = (0..1_000).map(|n| n % 3 == 0 || n == 1).collect();
    assert_eq!(there, want);
    assert_eq!(s.apply(&keys[1], lease(8)).await, Reply::Present(waited_lease(7)));
    let others: Vec<_> = keys[..6].iter().map(|k| of_schema(k, 1)).collect();
    assert_eq!(s.store.touch(&others).await.expect("the store answers"), [false; 6]);
    assert!(s.store.touch(&[]).await.expect("the store answers").is_empty());
}

/// Namespaces that begin alike, or read like patterns, hold entries of their own.
pub async fn a_clear_leaves_other_namespaces(open: Open<'_>) {
    let s = Subject::open(open).await;
    let of = |namespace: &str, name: &str| CacheKey { namespace: namespace.into(), ..key(name) };
    let others = ["a", "a.b", "a.bcd", "b.c", "a-b.c", "a_b.c", "axbc", "a.bc.a.bc"];
    for namespace in others {
        s.filled(&of(namespace, "a.bc"), 1, None).await;
    }
    for n in 0..3_000 {
        let k = of_schema(&of("a.bc", &(n / 2).to_string()), n % 2);
        s.harness.write_raw(&k, &value(&k, 1, None), Duration::from_secs(600)).await;
    }
    let (leased, floored, value_too) = (of("a.bc", "leased"), of("a.bc", "floored"), of("a.bc", "{value}"));
    assert_eq!(s.apply(&leased, lease(1)).await, GRANTED);
    s.apply(&floored, invalidate(Some(7))).await;
    s.filled(&value_too, 1, None).await;
    assert_eq!(s.apply(&value_too, refresh(1, 2)).await, GRANTED);
    let other = s.harness.another().await;
    assert_eq!(other.clear("a.bc").await.expect("the store answers"), 3_002);
    assert_eq!(other.clear("a.bc").await.expect("the store answers"), 0);
    let gone: Vec<_> = (0..1_000).map(|n| of_schema(&of("a.bc", &n.to_string()), n % 2)).collect();
    let found = s.store.read_many(&gone).await.expect("the store answers");
    assert!(found.iter().all(Option::is_none));
    assert_eq!(s.apply(&leased, fill(by_lease(1), &value(&leased, 1, None))).await, Reply::Lost, "leases are revoked");
    assert_eq!(s.apply(&value_too, fill(by_refresh(1, 2), &value(&value_too, 3, None))).await, Reply::Lost);
    assert_eq!(s.apply(&floored, lease(1)).await, noted(Some(7), 0), "a floor stays");
    for namespace in others {
        assert!(s.read(&of(namespace, "a.bc")).await.is_some(), "{namespace}");
    }
    assert_eq!(other.clear("nothing").await.expect("the store answers"), 0);
}

/// A tag keeps its counter until it is moved, and never has the same twice; a missing one is made.
pub async fn counters_of_tags_never_repeat(open: Open<'_>) {
    let s = Subject::open(open).await;
    let other = s.harness.another().await;
    let keep = Duration::from_millis(LONG.unsigned_abs());
    let tags: Vec<u64> = [0, 1, u64::MAX, 1 << 63].into_iter().chain(1_000..1_046).collect();
    let counters = async |store: &Arc<dyn CacheStore>, namespace: &str| {
        store.tags(namespace, &tags, keep).await.expect("the store answers")
    };
    assert!(s.store.tags("ns", &[], keep).await.expect("the store answers").is_empty());
    let first = counters(&s.store, "ns").await;
    assert_eq!(first.len(), tags.len());
    assert_eq!(counters(&other, "ns").await, first, "asking changes nothing");
    counters(&s.store, "other").await;
    let mut seen: Vec<HashSet<u64>> = first.iter().map(|counter| HashSet::from([*counter])).collect();
    for round in 0..5 {
        for at in [0, 2, 3, 17] {
            let store = if round % 2 == 0 { &s.store } else { &other };
            let bumped = store.bump_tag("ns", tags[at], keep).await.expect("the store answers");
            assert!(seen[at].insert(bumped), "{} had {bumped} before", tags[at]);
            assert_eq!(counters(&s.store, "ns").await[at], bumped);
        }
    }
    let now = counters(&other, "ns").await;
    assert!((0..tags.len()).all(|at| [0, 2, 3, 17].contains(&at) || now[at] == first[at]), "the others stay");
    // Twice in one question; a namespace of its own.
    let twice = s.store.tags("ns", &[tags[1], tags[1]], keep).await.expect("the store answers");
    assert_eq!(twice, [first[1], first[1]]);
    let elsewhere = counters(&s.store, "other").await;
    s.store.bump_tag("other", tags[1], keep).await.expect("the store answers");
    assert_ne!(counters(&s.store, "other").await[1], elsewhere[1]);
    assert_eq!(counters(&s.store, "ns").await[1], first[1]);
    // Clearing a namespace forgets no counter: what carries an older one is old for ever.
    s.store.clear("ns").await.expect("the store answers");
    assert_eq!(counters(&s.store, "ns").await, now);
}

/// A counter is kept as long as was asked last; one that was forgotten does not come back with a number it had.
pub async fn a_forgotten_counter_starts_anew(open: Open<'_>) {
    let s = Subject::open(open).await;
    let (brief, long) = (Duration::from_millis(SHORT.unsigned_abs()), Duration::from_millis(LONG.unsigned_abs()));
    let ask = async |tag, keep| s.store.tags("ns", &[tag], keep).await.expect("the store answers")[0];
    let (kept, forgotten) = (ask(1, brief).await, ask(2, brief).await);
    assert_eq!(ask(1, long).await, kept);
    let bumped = s.store.bump_tag("ns", 3, long).await.expect("the store answers");
    assert_eq!(ask(3, brief).await, bumped, "asking never shortens");
    s.outlive().await;
    assert_eq!(ask(1, brief).await, kept);
    assert_eq!(ask(3, brief).await, bumped);
    assert_ne!(ask(2, brief).await, forgotten);
}

/// Of bumps at once, over several processes, no two give the same counter, and the last one given is the one that stays.
pub async fn bumps_at_once_are_distinct(open: Open<'_>) {
    let s = Subject::open(open).await;
    let stores = [s.store.clone(), s.harness.another().await];
    let keep = Duration::from_millis(LONG.unsigned_abs());
    let mut bumping = tokio::task::JoinSet::new();
    for n in 0..200 {
        let store = stores[n % 2].clone();
        bumping.spawn(async move { store.bump_tag("ns", 5, keep).await.expect("the store answers") });
    }
    let counters = bumping.join_all().await;
    let distinct: HashSet<_> = counters.iter().collect();
    assert_eq!(distinct.len(), 200);
    let now = s.store.tags("ns", &[5], keep).await.expect("the store answers");
    assert!(distinct.contains(&now[0]));
}

/// Whatever a foreign client wrote is given back as it is, is nobody's lease, and goes with the next invalidation or put.
pub async fn foreign_bytes_are_nobodys(open: Open<'_>) {
    let s = Subject::open(open).await;
    let random: Vec<u8> = (0..1_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let garbage: [&[u8]; 11] =
        [b"", b"x", b"L", b"V", b"A", b"E", b"LLLLLLLLLLLLLLLLL", b"VVVVVVVVVVVVVVVVVVVVVVVV", b"0", &[0; 18], &random];
    for (n, garbage) in garbage.into_iter().enumerate() {
        let k = key(&n.to_string());
        s.harness.write_raw(&k, garbage, Duration::from_secs(600)).await;
        let there = Bytes::copy_from_slice(garbage);
        assert_eq!(s.read(&k).await, Some(there.clone()), "{n}");
        for _ in 0..2 {
            assert_eq!(s.apply(&k, lease(1)).await, Reply::Present(there.clone()), "{n}");
        }
        assert_eq!(s.read(&k).await, Some(there), "as it was: {n}");
        for holder in [by_lease(1), by_refresh(1, 2)] {
            assert_eq!(s.apply(&k, fill(holder, &value(&k, 1, None))).await, Reply::Lost, "{n}");
            assert_eq!(s.apply(&k, Op::Release { holder }).await, Reply::Lost, "{n}");
        }
        assert_eq!(s.apply(&k, refresh(1, 2)).await, Reply::Lost, "{n}");
        let end = if n % 2 == 0 { invalidate((n % 4 == 0).then_some(1)) } else { put(&value(&k, 3, Some(1))) };
        assert_eq!(s.apply(&k, end).await, Reply::Held, "{n}");
        assert_eq!(s.read(&k).await, (n % 2 == 1).then(|| value(&k, 3, Some(1))), "{n}");
    }
    // Over a lease: it is gone.
    let k = key("over a lease");
    assert_eq!(s.apply(&k, lease(1)).await, GRANTED);
    s.harness.write_raw(&k, &value(&k, 9, None), Duration::from_secs(600)).await;
    assert_eq!(s.apply(&k, fill(by_lease(1), &value(&k, 1, None))).await, Reply::Lost);
    assert_eq!(s.read(&k).await, Some(value(&k, 9, None)));
}

/// A plain delete by a foreign client is an invalidation of its schema: it revokes lease, value and refresh.
pub async fn a_foreign_delete_revokes(open: Open<'_>) {
    let s = Subject::open(open).await;
    let (l, v) = (key("lease"), key("value"));
    assert_eq!(s.apply(&l, lease(1)).await, GRANTED);
    s.filled(&v, 1, Some(3)).await;
    assert_eq!(s.apply(&v, refresh(1, 2)).await, GRANTED);
    for k in [&l, &v] {
        s.harness.delete_raw(k).await;
        assert_eq!(s.read(k).await, None);
    }
    assert_eq!(s.apply(&l, fill(by_lease(1), &value(&l, 1, None))).await, Reply::Lost);
    assert_eq!(s.apply(&v, fill(by_refresh(1, 2), &value(&v, 2, Some(9)))).await, Reply::Lost);
    for k in [&l, &v] {
        assert_eq!(s.apply(k, lease(3)).await, GRANTED);
        assert_eq!(s.apply(k, fill(by_lease(3), &value(k, 3, None))).await, Reply::Held);
    }
}

/// Processes agree about the store's clock, and it runs.
pub async fn clocks_agree(open: Open<'_>) {
    let s = Subject::open(open).await;
    let other = s.harness.another().await;
    assert_eq!((s.store.trouble(), other.trouble()), (None, None));
    assert_eq!(s.store.capabilities().name, other.capabilities().name);
    for _ in 0..5 {
        let (before, between, after) = (s.store.now(), other.now(), s.store.now());
        assert!(before <= after);
        assert!(between.since(before).abs() < 1_000 && between.since(after).abs() < 1_000, "{before:?} {between:?}");
        s.harness.pass(Duration::from_millis(100)).await;
        let passed = s.store.now().since(after);
        assert!((80..10_000).contains(&passed), "{passed}");
    }
    assert!(s.store.now() > Millis(1_000), "since 1970");
}
