use proptest::prelude::*;

use super::*;

const TTL: i64 = 1_000;

fn token(n: u64) -> LockToken {
    LockToken::parse(&format!("token-of-caller-{n}")).expect("a token")
}

fn ask(n: u64, wait: bool) -> Acquire {
    Acquire { token: token(n), process: Process(n), ttl_ms: TTL, floor: None, wait }
}

fn at(now: i64, alive: &dyn Fn(Process) -> bool) -> Step<'_> {
    Step { now: Millis(now), now_us: u64::try_from(now).expect("after 1970") * 1_000, alive }
}

const ALL: &dyn Fn(Process) -> bool = &|_| true;

fn handed(n: u64) -> Option<Handed> {
    Some(Handed { process: Process(n), token: token(n) })
}

fn fence(acquired: (Acquired, Option<Handed>)) -> Fence {
    match acquired.0 {
        Acquired::Granted { fence, .. } => fence,
        other => panic!("not granted: {other:?}"),
    }
}

#[test]
fn asking_again_is_the_same_request() {
    let mut lock = Lock::default();
    let first = fence(lock.acquire(at(10, ALL), &ask(1, false)));
    assert_eq!(fence(lock.acquire(at(20, ALL), &ask(1, false))), first);
    assert_eq!(lock.look(Millis(20)).held, Some((first, TTL)));
    assert_eq!(lock.acquire(at(520, ALL), &ask(2, false)).0, Acquired::Held { for_ms: 500, before: None });
    assert!(fence(lock.acquire(at(1_020, ALL), &ask(1, false))) > first, "it ran out: a new grant");
}

#[test]
fn a_floor_lifts_the_fence() {
    let mut lock = Lock::default();
    let first = fence(lock.acquire(at(10, ALL), &ask(1, false)));
    let lifted = fence(lock.acquire(at(11, ALL), &Acquire { floor: Some(Fence(1 << 50)), ..ask(1, false) }));
    assert!(lifted > first && lifted == Fence((1 << 50) + 1));
    assert!(lock.release(at(12, ALL), &token(1)).held);
    assert!(fence(lock.acquire(at(13, ALL), &ask(2, false))) > lifted);
}

#[test]
fn the_line_is_served_in_order_and_nobody_barges_in() {
    let mut lock = Lock::default();
    lock.acquire(at(10, ALL), &ask(1, false));
    for n in 2..5 {
        let before = usize::try_from(n - 2).expect("small");
        assert_eq!(lock.acquire(at(10, ALL), &ask(n, true)).0, Acquired::Held { for_ms: TTL, before: Some(before) });
    }
    assert_eq!(lock.release(at(20, ALL), &token(1)), Released { held: true, wake: handed(2) });
    assert!(matches!(lock.acquire(at(20, ALL), &ask(9, false)).0, Acquired::Held { for_ms: CONFIRM_MS, before: None }));
    let second = fence(lock.acquire(at(21, ALL), &ask(2, true)));
    assert_eq!(lock.look(Millis(21)), Look { held: Some((second, TTL)), waiters: 2 });
    assert_eq!(lock.leave(at(22, ALL), &token(3)), Released { held: false, wake: None });
    assert_eq!(lock.release(at(23, ALL), &token(2)).wake, handed(4));
    assert_eq!(lock.leave(at(24, ALL), &token(4)), Released { held: true, wake: None });
    assert!(lock.is_idle(Millis(24)));
}

#[test]
fn the_dead_are_skipped() {
    let mut lock = Lock::default();
    lock.acquire(at(10, ALL), &ask(1, false));
    for n in 2..52 {
        lock.acquire(at(10, ALL), &ask(n, true));
    }
    let only = |process: Process| process == Process(51);
    assert_eq!(lock.release(at(20, &only), &token(1)), Released { held: true, wake: handed(51) });
    assert_eq!(lock.look(Millis(20)).waiters, 0);
}

#[test]
fn a_waiter_that_does_not_answer_loses_its_turn() {
    let mut lock = Lock::default();
    lock.acquire(at(10, ALL), &ask(1, false));
    lock.acquire(at(10, ALL), &ask(2, true));
    lock.acquire(at(10, ALL), &ask(3, true));
    lock.release(at(20, ALL), &token(1));
    let (answer, wake) = lock.acquire(at(20 + CONFIRM_MS, ALL), &ask(3, true));
    assert!(matches!(answer, Acquired::Granted { .. }) && wake.is_none());
    assert!(matches!(lock.acquire(at(20 + CONFIRM_MS, ALL), &ask(2, false)).0, Acquired::Held { before: None, .. }));
}

#[test]
fn a_lock_that_ran_out_goes_to_the_line_and_not_to_who_asks() {
    let mut lock = Lock::default();
    lock.acquire(at(10, ALL), &ask(1, false));
    lock.acquire(at(10, ALL), &ask(2, true));
    let (answer, wake) = lock.acquire(at(10 + TTL, ALL), &ask(3, false));
    assert!(matches!(answer, Acquired::Held { before: None, .. }));
    assert_eq!(wake, handed(2));
}

#[test]
fn renewing_never_takes() {
    let mut lock = Lock::default();
    let first = fence(lock.acquire(at(10, ALL), &ask(1, false)));
    assert_eq!(lock.renew(Millis(500), &token(1), TTL), Some((first, Millis(500 + TTL))));
    assert_eq!(lock.renew(Millis(501), &token(1), 100), Some((first, Millis(601))));
    assert_eq!(lock.renew(Millis(502), &token(1), TTL - 2), Some((first, Millis(500 + TTL))));
    assert_eq!(lock.renew(Millis(500 + TTL), &token(1), TTL), None);
    assert_eq!(lock.renew(Millis(500), &token(2), TTL), None);
    lock.release(at(501, ALL), &token(1));
    assert_eq!(lock.renew(Millis(502), &token(1), TTL), None);
    assert!(lock.is_idle(Millis(502)));
}

#[test]
fn the_line_is_bounded() {
    let mut lock = Lock::default();
    lock.acquire(at(10, ALL), &ask(0, false));
    for n in 1..=MAX_WAITERS as u64 {
        lock.acquire(at(10, ALL), &ask(n, true));
    }
    assert_eq!(lock.acquire(at(10, ALL), &ask(MAX_WAITERS as u64 + 1, true)).0, Acquired::Full);
}

proptest! {
    /// One holder at a time, fences only grow, the line keeps its order.
    #[test]
    fn one_holder_growing_fences_first_come_first_served(steps in proptest::collection::vec((0..6u8, 0..5u64, 0..400i64), 1..150)) {
        let mut lock = Lock::default();
        let (mut now, mut highest, mut owner) = (0i64, Fence(0), None::<(u64, Fence)>);
        for (what, n, pass) in steps {
            now += pass;
            let before: Vec<_> = lock.line.iter().map(|waiter| waiter.token.clone()).collect();
            match what {
                0..=2 => {
                    let (answer, _) = lock.acquire(at(now, ALL), &ask(n, what > 0));
                    if let Acquired::Granted { fence, .. } = answer {
                        if owner != Some((n, fence)) {
                            prop_assert!(fence > highest);
                        }
                        highest = highest.max(fence);
                        owner = Some((n, fence));
                    }
                }
                3 => { lock.release(at(now, ALL), &token(n)); }
                4 => { lock.leave(at(now, ALL), &token(n)); }
                _ => { lock.renew(Millis(now), &token(n), TTL); }
            }
            if let Some((fence, left)) = lock.look(Millis(now)).held {
                prop_assert!(left > 0 && fence <= lock.last);
            }
            let after: Vec<_> = lock.line.iter().filter(|w| before.contains(&w.token)).map(|w| w.token.clone()).collect();
            let kept: Vec<_> = before.into_iter().filter(|t| after.contains(t)).collect();
            prop_assert_eq!(kept, after);
        }
    }
}
