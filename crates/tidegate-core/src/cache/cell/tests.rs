use super::*;
use crate::cache::entry::{Codec, Failed, Header, Packing};
use crate::cache::life::Stamp;

const A: EntryId = EntryId([1; 16]);
const B: EntryId = EntryId([2; 16]);

fn header(id: EntryId, version: Option<u64>) -> Header {
    let version = version.and_then(RowVersion::new);
    Header { id, version, schema: 0, stamp: Stamp::default(), cost_us: 0, tags: Vec::new() }
}

fn value(id: EntryId, version: Option<u64>) -> Bytes {
    header(id, version).value(b"k", Codec(0), Packing::Plain, b"v").into()
}

fn at(cell: &mut Cell, now: i64, op: Op) -> Reply {
    cell.apply(0, &op, Millis(now)).0
}

fn lease(token: EntryId) -> Op {
    Op::Lease { token, for_ms: 100 }
}

fn fill(holder: Holder, bytes: Bytes) -> Op {
    Op::Fill { holder, bytes, ttl_ms: 1_000 }
}

fn invalidate(floor: Option<u64>) -> Op {
    Op::Invalidate { floor: floor.and_then(RowVersion::new), keep_floor_ms: 500 }
}

#[test]
fn one_lease_at_a_time_and_it_ends_by_itself() {
    let mut cell = Cell::default();
    assert_eq!(at(&mut cell, 0, lease(A)), Reply::Granted(Notes::default()));
    let Reply::Present(bytes) = at(&mut cell, 50, lease(B)) else { panic!("it is taken") };
    assert_eq!(entry::lease_waited(&bytes), Some(true));
    assert_eq!(at(&mut cell, 60, Op::Renew { holder: Holder::Lease(A), for_ms: 100 }), Reply::Held);
    assert!(matches!(at(&mut cell, 159, lease(B)), Reply::Present(_)));
    assert_eq!(at(&mut cell, 160, lease(B)), Reply::Granted(Notes::default()), "its holder is dead");
    assert_eq!(at(&mut cell, 161, fill(Holder::Lease(A), value(A, None))), Reply::Lost);
    assert_eq!(at(&mut cell, 161, fill(Holder::Lease(B), value(B, None))), Reply::Held);
    assert!(cell.is_dead(Millis(1_161)));
}

#[test]
fn whoever_waits_is_woken_once_the_lease_is_over() {
    let error: Bytes = Failed { id: A, retry_at: Millis(9), class: 0, message: "no".into() }.bytes().into();
    let holder = Holder::Lease(A);
    for over in [
        fill(holder, value(A, None)),
        Op::Release { holder },
        Op::Fail { holder, error, for_ms: 50 },
        Op::Put { bytes: value(B, Some(1)), ttl_ms: 50, keep_floor_ms: 50 },
        invalidate(None),
    ] {
        let mut cell = Cell::default();
        at(&mut cell, 0, lease(A));
        let mut alone = cell.clone();
        assert!(!alone.apply(0, &over, Millis(1)).1, "nobody waits: {over:?}");
        at(&mut cell, 0, lease(B));
        assert_eq!(cell.apply(0, &over, Millis(1)), (Reply::Held, true), "{over:?}");
    }
}

#[test]
fn an_invalidation_revokes_lease_refresh_and_value_of_every_schema() {
    let mut cell = Cell::default();
    for schema in 0..SCHEMA_SLOTS {
        cell.apply(schema, &lease(A), Millis(0));
    }
    cell.apply(1, &fill(Holder::Lease(A), value(A, None)), Millis(1));
    assert_eq!(
        cell.apply(1, &Op::Refresh { fill: A, token: B, for_ms: 100 }, Millis(2)).0,
        Reply::Granted(Notes::default())
    );
    at(&mut cell, 3, invalidate(None));
    assert!(cell.is_dead(Millis(3)));
    for schema in 0..SCHEMA_SLOTS {
        let filled = cell.apply(schema, &fill(Holder::Lease(A), value(A, None)), Millis(4)).0;
        assert_eq!(filled, Reply::Lost);
    }
    let refreshed = fill(Holder::Refresh { fill: A, token: B }, value(B, None));
    assert_eq!(cell.apply(1, &refreshed, Millis(4)).0, Reply::Lost);
}

#[test]
fn the_floor_refuses_what_is_older_and_is_told_to_the_next_loader() {
    let mut cell = Cell::default();
    at(&mut cell, 0, invalidate(Some(7)));
    at(&mut cell, 0, invalidate(Some(5)));
    let floor = RowVersion::new(7);
    assert_eq!(at(&mut cell, 1, lease(A)), Reply::Granted(Notes { floor, failures: 0 }));
    let below = Reply::Below(RowVersion::new(7).expect("small"));
    let holder = Holder::Lease(A);
    assert_eq!(at(&mut cell, 2, fill(holder, value(A, Some(6)))), below);
    assert_eq!(
        at(&mut cell, 2, fill(holder, header(A, None).absent(b"k").into())),
        below,
        "a replica may lack the row"
    );
    assert_eq!(at(&mut cell, 2, fill(holder, value(A, Some(7)))), Reply::Held);
    assert_eq!(
        at(&mut cell, 500, Op::Put { bytes: value(B, Some(6)), ttl_ms: 9, keep_floor_ms: 9 }),
        below,
        "there is a newer one"
    );
    at(&mut cell, 600, invalidate(None));
    assert_eq!(at(&mut cell, 601, lease(B)), Reply::Granted(Notes::default()), "a floor is not kept for ever");
}

#[test]
fn a_refresh_never_goes_back() {
    let mut cell = Cell::default();
    at(&mut cell, 0, lease(A));
    at(&mut cell, 0, fill(Holder::Lease(A), value(A, Some(5))));
    let refresh = |token| Op::Refresh { fill: A, token, for_ms: 100 };
    assert_eq!(at(&mut cell, 1, refresh(A)), Reply::Granted(Notes::default()));
    assert_eq!(at(&mut cell, 1, refresh(B)), Reply::Busy);
    let holder = Holder::Refresh { fill: A, token: A };
    assert_eq!(at(&mut cell, 2, fill(holder, value(B, Some(4)))), Reply::Below(RowVersion::new(5).expect("small")));
    assert_eq!(at(&mut cell, 3, fill(holder, value(B, Some(5)))), Reply::Held);
    assert_eq!(at(&mut cell, 4, refresh(A)), Reply::Lost, "it is another value now");
    let holder = Holder::Refresh { fill: B, token: A };
    assert_eq!(at(&mut cell, 5, fill(holder, header(B, None).absent(b"k").into())), Reply::Held, "the row is gone");
}

#[test]
fn failures_are_counted_until_a_load_works() {
    let mut cell = Cell::default();
    let error: Bytes = Failed { id: A, retry_at: Millis(9), class: 0, message: "no".into() }.bytes().into();
    for failures in 0..3 {
        let now = i64::from(failures) * 100;
        assert_eq!(at(&mut cell, now, lease(A)), Reply::Granted(Notes { floor: None, failures }));
        assert_eq!(
            at(&mut cell, now, Op::Fail { holder: Holder::Lease(A), error: error.clone(), for_ms: 50 }),
            Reply::Held
        );
        assert_eq!(at(&mut cell, now + 49, lease(B)), Reply::Present(error.clone()), "all share it");
    }
    at(&mut cell, 300, lease(A));
    at(&mut cell, 300, fill(Holder::Lease(A), value(A, None)));
    // A failed refresh leaves the value and is not tried again for a while.
    let (refresh, holder) = (Op::Refresh { fill: A, token: B, for_ms: 100 }, Holder::Refresh { fill: A, token: B });
    assert_eq!(at(&mut cell, 301, refresh.clone()), Reply::Granted(Notes::default()));
    assert_eq!(at(&mut cell, 302, Op::Fail { holder, error, for_ms: 50 }), Reply::Held);
    assert_eq!(at(&mut cell, 351, refresh.clone()), Reply::Busy);
    assert_eq!(at(&mut cell, 352, refresh), Reply::Granted(Notes { floor: None, failures: 1 }));
    assert_eq!(cell.read(0, Millis(352)), Some(&value(A, None)));
}

#[test]
fn a_clear_takes_entries_and_leaves_the_floor() {
    let mut cell = Cell::default();
    at(&mut cell, 0, invalidate(Some(7)));
    at(&mut cell, 0, lease(A));
    cell.apply(1, &Op::Lease { token: B, for_ms: 10 }, Millis(0));
    assert_eq!(cell.clear(Millis(20)), 1, "the other's time was over");
    assert_eq!(at(&mut cell, 21, fill(Holder::Lease(A), value(A, Some(7)))), Reply::Lost);
    assert_eq!(at(&mut cell, 21, lease(B)), Reply::Granted(Notes { floor: RowVersion::new(7), failures: 0 }));
}

#[test]
fn a_foreign_delete_revokes_and_a_sweep_frees_only_the_dead() {
    let mut cell = Cell::default();
    at(&mut cell, 0, lease(A));
    cell.delete(0);
    assert_eq!(at(&mut cell, 1, fill(Holder::Lease(A), value(A, None))), Reply::Lost);
    cell.overwrite(0, Bytes::from_static(b"garbage"), Millis(50));
    cell.overwrite(1, Bytes::from_static(b"L"), Millis(60));
    assert_eq!(at(&mut cell, 2, lease(B)), Reply::Present(Bytes::from_static(b"garbage")));
    assert_eq!(
        cell.apply(1, &lease(B), Millis(2)).0,
        Reply::Present(Bytes::from_static(b"L")),
        "too short to be marked"
    );
    assert!(cell.sweep(Millis(55)));
    assert_eq!((cell.bytes(), cell.read(1, Millis(55)).is_some()), (1, true));
    assert!(!cell.sweep(Millis(60)));
    assert_eq!(cell.bytes(), 0);
}
