//! What may be done to one key.

use tidegate_core::cache::cell::FAILURES_KEPT_MS;
use tidegate_core::cache::{Op, Reply, SCHEMA_SLOTS};

use super::*;

/// One holder at a time; the second marks the lease as waited for; only the first's fill is taken.
pub async fn one_lease_at_a_time(open: Open<'_>) {
    let s = Subject::open(open).await;
    let k = key("k");
    assert_eq!(s.read(&k).await, None);
    assert_eq!(s.apply(&k, lease(1)).await, GRANTED);
    assert_eq!(s.read(&k).await, Some(entry::lease(id(1)).into()));
    for n in [2, 3, 1] {
        assert_eq!(s.apply(&k, lease(n)).await, Reply::Present(waited_lease(1)));
    }
    assert_eq!(s.read(&k).await, Some(waited_lease(1)));
    assert_eq!(s.apply(&k, fill(by_lease(2), &value(&k, 2, None))).await, Reply::Lost);
    let bytes = value(&k, 1, None);
    assert_eq!(s.apply(&k, fill(by_lease(1), &bytes)).await, Reply::Held);
    assert_eq!(s.read(&k).await, Some(bytes.clone()));
    assert_eq!(s.apply(&k, lease(2)).await, Reply::Present(bytes));
    assert_eq!(s.apply(&k, fill(by_lease(1), &value(&k, 9, None))).await, Reply::Lost, "once");
}

/// Whatever has a life ends by itself: a lease whose holder died, a value, an absence, an error, a refresh, a floor.
pub async fn everything_ends_by_itself(open: Open<'_>) {
    let s = Subject::open(open).await;
    let names = ["lease", "value", "absence", "error", "refresh", "floor", "put"];
    let keys = names.map(key);
    let [of_lease, of_value, of_absence, of_error, of_refresh, of_floor, of_put] = &keys;
    let brief = |holder, bytes: Bytes| Op::Fill { holder, bytes, ttl_ms: SHORT };
    for k in [of_value, of_absence, of_error] {
        assert_eq!(s.apply(k, lease(1)).await, GRANTED);
    }
    s.filled(of_refresh, 1, None).await;
    assert_eq!(s.apply(of_lease, Op::Lease { token: id(1), for_ms: SHORT }).await, GRANTED);
    // Waiting for it does not lengthen it.
    s.apply(of_lease, lease(2)).await;
    assert_eq!(s.apply(of_value, brief(by_lease(1), value(of_value, 1, None))).await, Reply::Held);
    assert_eq!(s.apply(of_absence, brief(by_lease(1), absence(of_absence, 1, None))).await, Reply::Held);
    let fail = Op::Fail { holder: by_lease(1), error: error(1), for_ms: SHORT };
    assert_eq!(s.apply(of_error, fail).await, Reply::Held);
    assert_eq!(s.apply(of_refresh, Op::Refresh { fill: id(1), token: id(2), for_ms: SHORT }).await, GRANTED);
    let floor = RowVersion::new(9);
    assert_eq!(s.apply(of_floor, Op::Invalidate { floor, keep_floor_ms: SHORT }).await, Reply::Held);
    let put = Op::Put { bytes: value(of_put, 1, Some(9)), ttl_ms: SHORT, keep_floor_ms: SHORT };
    assert_eq!(s.apply(of_put, put).await, Reply::Held);
    s.outlive().await;
    for k in [of_lease, of_value, of_absence, of_error, of_floor, of_put] {
        assert_eq!(s.read(k).await, None, "{k:?}");
    }
    assert_eq!(s.apply(of_lease, fill(by_lease(1), &value(of_lease, 1, None))).await, Reply::Lost, "it came too late");
    for k in [of_lease, of_value, of_absence, of_floor, of_put] {
        assert_eq!(s.apply(k, lease(3)).await, GRANTED, "{k:?}");
    }
    assert_eq!(s.apply(of_error, lease(3)).await, noted(None, 1), "the failure is remembered longer");
    assert_eq!(s.apply(of_refresh, refresh(1, 3)).await, GRANTED);
}

/// A lease, and a refresh, that is renewed outlives its first life; others cannot renew it.
pub async fn a_renewed_lease_outlives_its_first_life(open: Open<'_>) {
    let s = Subject::open(open).await;
    let (k, r) = (key("lease"), key("refresh"));
    s.filled(&r, 1, None).await;
    s.apply(&k, Op::Lease { token: id(1), for_ms: SHORT }).await;
    s.apply(&r, Op::Refresh { fill: id(1), token: id(2), for_ms: SHORT }).await;
    let renew = |holder| Op::Renew { holder, for_ms: LONG };
    assert_eq!(s.apply(&k, renew(by_lease(1))).await, Reply::Held);
    assert_eq!(s.apply(&r, renew(by_refresh(1, 2))).await, Reply::Held);
    for (k, other) in
        [(&k, by_lease(2)), (&k, by_refresh(1, 2)), (&r, by_refresh(1, 3)), (&r, by_refresh(2, 2)), (&r, by_lease(1))]
    {
        assert_eq!(s.apply(k, renew(other)).await, Reply::Lost, "{other:?}");
    }
    s.outlive().await;
    assert_eq!(s.apply(&k, lease(2)).await, Reply::Present(waited_lease(1)));
    assert_eq!(s.apply(&r, refresh(1, 3)).await, Reply::Busy);
    assert_eq!(s.apply(&k, fill(by_lease(1), &value(&k, 1, None))).await, Reply::Held, "waited for, yet the holder's");
}

/// An invalidation reaches entries, leases and refreshes of every schema, and no other key.
pub async fn an_invalidation_revokes_every_schema(open: Open<'_>) {
    let s = Subject::open(open).await;
    for floor in [None, Some(5)] {
        let (k, other) = (key(&format!("k{floor:?}")), key(&format!("other{floor:?}")));
        let kept = s.filled(&other, 1, None).await;
        let all: Vec<_> = (0..SCHEMA_SLOTS).map(|schema| of_schema(&k, schema)).collect();
        for k in &all[..2] {
            s.filled(k, 1, None).await;
            assert_eq!(s.apply(k, refresh(1, 2)).await, GRANTED);
        }
        for k in &all[2..] {
            assert_eq!(s.apply(k, lease(1)).await, GRANTED);
        }
        assert_eq!(s.apply(&k, invalidate(floor)).await, Reply::Held);
        for k in &all {
            assert_eq!(s.read(k).await, None);
            for holder in [by_lease(1), by_refresh(1, 2)] {
                assert_eq!(s.apply(k, fill(holder, &value(k, 3, Some(9)))).await, Reply::Lost);
                assert_eq!(s.apply(k, Op::Release { holder }).await, Reply::Lost);
                assert_eq!(s.apply(k, Op::Renew { holder, for_ms: LONG }).await, Reply::Lost);
                assert_eq!(s.apply(k, Op::Fail { holder, error: error(1), for_ms: LONG }).await, Reply::Lost);
            }
            assert_eq!(s.apply(k, refresh(1, 2)).await, Reply::Lost);
            assert_eq!(s.apply(k, lease(4)).await, noted(floor, 0));
        }
        assert_eq!(s.read(&other).await, Some(kept));
    }
}

/// Schemas side by side have entries of their own; those a multiple of [`SCHEMA_SLOTS`] apart share one.
pub async fn schemas_have_entries_of_their_own(open: Open<'_>) {
    let s = Subject::open(open).await;
    let k = key("k");
    let bytes = s.filled(&of_schema(&k, 6), 1, None).await;
    assert_eq!(s.read(&of_schema(&k, 6 + SCHEMA_SLOTS)).await, Some(bytes.clone()));
    assert_eq!(s.apply(&of_schema(&k, 2), lease(2)).await, Reply::Present(bytes));
    for schema in [5, 0, u32::MAX] {
        let k = of_schema(&k, schema);
        assert_eq!(s.read(&k).await, None);
        s.filled(&k, 2, None).await;
    }
}

/// Nothing below the floor is stored, the next loader is told, the floor only rises.
pub async fn a_floor_refuses_what_is_older(open: Open<'_>) {
    let s = Subject::open(open).await;
    let k = key("k");
    for floor in [7, 5, 7] {
        assert_eq!(s.apply(&k, invalidate(Some(floor))).await, Reply::Held);
    }
    assert_eq!(s.apply(&k, invalidate(None)).await, Reply::Held, "it leaves the floor");
    assert_eq!(s.apply(&k, lease(1)).await, noted(Some(7), 0));
    for (bytes, reply) in [
        (value(&k, 1, Some(6)), below(7)),
        (absence(&k, 1, Some(6)), below(7)),
        (absence(&k, 1, None), below(7)),
        (value(&k, 1, Some(7)), Reply::Held),
    ] {
        assert_eq!(s.apply(&k, fill(by_lease(1), &bytes)).await, reply);
    }
    assert_eq!(s.apply(&k, put(&value(&k, 2, Some(6)))).await, below(7));
    let largest = RowVersion::MAX.get();
    s.apply(&k, invalidate(Some(largest - 1))).await;
    s.apply(&k, invalidate(Some(largest))).await;
    assert_eq!(s.apply(&k, lease(1)).await, noted(Some(largest), 0), "large numbers are exact");
    assert_eq!(s.apply(&k, fill(by_lease(1), &value(&k, 1, Some(largest - 1)))).await, below(largest));
    assert_eq!(s.apply(&k, fill(by_lease(1), &value(&k, 1, None))).await, Reply::Held, "no version, no question");
    assert_eq!(s.apply(&k, put(&value(&k, 2, None))).await, below(largest));
    // Numbers of different lengths are compared as numbers.
    let k = key("lengths");
    s.apply(&k, invalidate(Some(9))).await;
    s.apply(&k, invalidate(Some(10))).await;
    assert_eq!(s.apply(&k, lease(1)).await, noted(Some(10), 0));
    assert_eq!(s.apply(&k, fill(by_lease(1), &value(&k, 1, Some(9)))).await, below(10));
    let k = key("zero");
    s.apply(&k, invalidate(Some(0))).await;
    assert_eq!(s.apply(&k, lease(1)).await, noted(Some(0), 0));
    assert_eq!(s.apply(&k, fill(by_lease(1), &value(&k, 1, Some(0)))).await, Reply::Held);
}

/// One refreshes at a time; a refresh replaces only the value it began from, and never by an older one.
pub async fn a_refresh_never_goes_back(open: Open<'_>) {
    let s = Subject::open(open).await;
    let k = key("k");
    assert_eq!(s.apply(&k, refresh(1, 2)).await, Reply::Lost, "there is nothing");
    let bytes = s.filled(&k, 1, Some(5)).await;
    assert_eq!(s.apply(&k, refresh(7, 2)).await, Reply::Lost, "another value");
    assert_eq!(s.apply(&k, refresh(1, 2)).await, GRANTED);
    assert_eq!(s.apply(&k, refresh(1, 3)).await, Reply::Busy);
    assert_eq!(s.apply(&k, fill(by_refresh(1, 2), &value(&k, 4, Some(4)))).await, below(5));
    assert_eq!(s.read(&k).await, Some(bytes));
    assert_eq!(s.apply(&k, Op::Release { holder: by_refresh(1, 2) }).await, Reply::Held);
    assert_eq!(s.apply(&k, refresh(1, 3)).await, GRANTED, "it was given up");
    // Whoever began from the value that lies there may write: being the one refresher saves work, no more.
    let newer = value(&k, 4, Some(5));
    assert_eq!(s.apply(&k, fill(by_refresh(1, 2), &newer)).await, Reply::Held);
    assert_eq!(s.read(&k).await, Some(newer));
    assert_eq!(s.apply(&k, fill(by_refresh(1, 3), &value(&k, 5, Some(9)))).await, Reply::Lost);
    assert_eq!(s.apply(&k, refresh(4, 5)).await, Reply::Busy, "the other's is still marked");
    assert_eq!(s.apply(&k, Op::Release { holder: by_refresh(4, 3) }).await, Reply::Held);
    assert_eq!(s.apply(&k, refresh(4, 5)).await, GRANTED);
    let gone = absence(&k, 6, None);
    assert_eq!(s.apply(&k, fill(by_refresh(4, 5), &gone)).await, Reply::Held, "the row was deleted");
    assert_eq!(s.apply(&k, refresh(6, 7)).await, Reply::Lost, "an absence is not refreshed");
}

/// A failure is shared as an entry, counted, remembered for a while, and forgotten by a load that works.
pub async fn failures_are_shared_and_counted(open: Open<'_>) {
    let s = Subject::open(open).await;
    let k = key("k");
    let fail = |holder, for_ms| Op::Fail { holder, error: error(1), for_ms };
    for failures in 0..3 {
        assert_eq!(s.apply(&k, lease(1)).await, noted(None, failures));
        assert_eq!(s.apply(&k, fail(by_lease(2), LONG)).await, Reply::Lost, "another's");
        assert_eq!(s.apply(&k, fail(by_lease(1), LONG)).await, Reply::Held);
        assert_eq!(s.read(&k).await, Some(error(1)));
        assert_eq!(s.apply(&k, lease(2)).await, Reply::Present(error(1)));
        assert_eq!(s.apply(&k, fail(by_lease(1), LONG)).await, Reply::Lost, "once");
        s.harness.delete_raw(&k).await;
    }
    s.filled(&k, 1, None).await;
    assert_eq!(s.apply(&k, refresh(1, 2)).await, GRANTED, "forgotten");
    assert_eq!(s.apply(&k, fail(by_refresh(1, 3), LONG)).await, Reply::Lost, "another's");
    assert_eq!(s.apply(&k, fail(by_refresh(1, 2), SHORT)).await, Reply::Held);
    s.outlive().await;
    assert_eq!(s.apply(&k, refresh(1, 3)).await, noted(None, 1), "a failed refresh holds its place for a while only");
    assert_eq!(s.apply(&k, fail(by_refresh(1, 3), LONG)).await, Reply::Held);
    assert_eq!(s.apply(&k, refresh(1, 4)).await, Reply::Busy, "and is not tried again meanwhile");
    assert_eq!(s.read(&k).await, Some(value(&k, 1, None)), "the value stays");
    if s.harness.exact() {
        s.harness.pass(Duration::from_millis(FAILURES_KEPT_MS.unsigned_abs())).await;
        s.harness.delete_raw(&k).await;
        assert_eq!(s.apply(&k, lease(5)).await, GRANTED);
    }
}

/// A put replaces what is older in every schema, revokes leases, raises the floor; never over what is newer.
pub async fn a_put_needs_to_be_newer(open: Open<'_>) {
    let s = Subject::open(open).await;
    let (k, other) = (key("k"), of_schema(&key("k"), 1));
    s.filled(&k, 1, Some(5)).await;
    assert_eq!(s.apply(&other, lease(2)).await, GRANTED);
    for (version, reply) in [(Some(4), below(5)), (None, below(5)), (Some(5), Reply::Held), (Some(8), Reply::Held)] {
        assert_eq!(s.apply(&k, put(&value(&k, 3, version))).await, reply, "{version:?}");
    }
    assert_eq!(s.read(&k).await, Some(value(&k, 3, Some(8))));
    assert_eq!(s.apply(&other, fill(by_lease(2), &value(&other, 2, Some(9)))).await, Reply::Lost);
    assert_eq!(s.apply(&other, lease(4)).await, noted(Some(8), 0));
    assert_eq!(s.apply(&other, fill(by_lease(4), &value(&other, 4, Some(7)))).await, below(8));
    // A lease is no value: a put goes over it, and its load is refused.
    let k = key("leased");
    assert_eq!(s.apply(&k, lease(1)).await, GRANTED);
    assert_eq!(s.apply(&k, put(&value(&k, 2, Some(1)))).await, Reply::Held);
    assert_eq!(s.apply(&k, fill(by_lease(1), &value(&k, 1, Some(3)))).await, Reply::Lost);
    assert_eq!(s.apply(&k, Op::Refresh { fill: id(2), token: id(3), for_ms: LONG }).await, noted(Some(1), 0));
    // It forgets failures.
    let k = key("failed");
    assert_eq!(s.apply(&k, lease(1)).await, GRANTED);
    s.apply(&k, Op::Fail { holder: by_lease(1), error: error(1), for_ms: LONG }).await;
    assert_eq!(s.apply(&k, put(&value(&k, 2, Some(1)))).await, Reply::Held);
    s.harness.delete_raw(&k).await;
    assert_eq!(s.apply(&k, lease(1)).await, noted(Some(1), 0));
}

/// Of many that ask for one lease at once, over several processes, one gets it.
pub async fn a_lease_goes_to_one_of_many(open: Open<'_>) {
    let s = Subject::open(open).await;
    let stores = [s.store.clone(), s.harness.another().await];
    for round in 0..20 {
        let k = key(&format!("k{round}"));
        let mut asking = tokio::task::JoinSet::new();
        for n in 0..16 {
            let (store, k) = (stores[n % 2].clone(), k.clone());
            asking.spawn(async move { apply(&*store, &k, lease(n as u8)).await });
        }
        let replies = asking.join_all().await;
        assert_eq!(replies.iter().filter(|reply| matches!(reply, Reply::Granted(_))).count(), 1, "{replies:?}");
    }
}
