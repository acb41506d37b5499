use proptest::prelude::*;

use super::super::rules::MAX_FENCE;
use super::*;

const TTL: i64 = 1_000;

fn token(n: u64) -> LockToken {
    LockToken::parse(&format!("token-of-caller-{n}")).expect("a token")
}

fn ask(n: u64, wait: bool) -> Acquire {
    Acquire { token: token(n), ask: AskId(n), process: Process(n), ttl_ms: TTL, floor: None, wait }
}

fn at(now: i64, alive: &dyn Fn(Process) -> bool) -> Step<'_> {
    Step { now: Millis(now), now_us: u64::try_from(now).expect("after 1970") * 1_000, alive }
}

const ALL: &dyn Fn(Process) -> bool = &|_| true;

fn handed(n: u64) -> Vec<Handed> {
    vec![Handed { process: Process(n), token: token(n) }]
}

/// Another call with the token of caller `n`, at another process.
fn repeat(n: u64, call: u64, wait: bool) -> Acquire {
    Acquire { ask: AskId(call), process: Process(call), ..ask(n, wait) }
}

fn leave(lock: &mut Lock, now: i64, n: u64) -> Released {
    lock.leave(at(now, ALL), &token(n), AskId(n), Leave::Untold)
}

fn fence(acquired: (Acquired, Vec<Handed>)) -> Fence {
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
    assert_eq!(
        lock.acquire(at(520, ALL), &ask(2, false)).0,
        Acquired::Held { for_ms: 500, before: None, joined: false }
    );
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
        assert_eq!(
            lock.acquire(at(10, ALL), &ask(n, true)).0,
            Acquired::Held { for_ms: TTL, before: Some(before), joined: true }
        );
    }
    assert_eq!(lock.release(at(20, ALL), &token(1)), Released { held: true, wake: handed(2) });
    assert!(matches!(
        lock.acquire(at(20, ALL), &ask(9, false)).0,
        Acquired::Held { for_ms: CONFIRM_MS, before: None, .. }
    ));
    let second = fence(lock.acquire(at(21, ALL), &ask(2, true)));
    assert_eq!(lock.look(Millis(21)), Look { held: Some((second, TTL)), waiters: 2 });
    assert_eq!(leave(&mut lock, 22, 3), Released { held: false, wake: Vec::new() });
    assert_eq!(lock.release(at(23, ALL), &token(2)).wake, handed(4));
    assert_eq!(leave(&mut lock, 24, 4), Released { held: true, wake: Vec::new() });
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
    assert!(matches!(answer, Acquired::Granted { .. }) && wake.is_empty());
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
    assert_eq!(lock.renew(Millis(500), &token(1), Some(AskId(1)), TTL), Some((first, Millis(500 + TTL))));
    assert_eq!(lock.renew(Millis(501), &token(1), Some(AskId(1)), 100), Some((first, Millis(601))));
    assert_eq!(lock.renew(Millis(502), &token(1), Some(AskId(1)), TTL - 2), Some((first, Millis(500 + TTL))));
    assert_eq!(lock.renew(Millis(500 + TTL), &token(1), Some(AskId(1)), TTL), None);
    assert_eq!(lock.renew(Millis(500), &token(2), Some(AskId(2)), TTL), None);
    lock.release(at(501, ALL), &token(1));
    assert_eq!(lock.renew(Millis(502), &token(1), Some(AskId(1)), TTL), None);
    assert!(lock.is_idle(Millis(502)));
}

#[test]
fn a_call_that_ends_untold_takes_nothing_from_its_repeat() {
    // K1 of the third breaker: the first call is cut off, its repeat is answered, the first cleans up. In every order.
    for late in [false, true] {
        let mut lock = Lock::default();
        let mut calls = [ask(1, false), repeat(1, 11, false)];
        if late {
            calls.reverse();
        }
        let first = lock.acquire(at(10, ALL), &calls[0]).0;
        assert!(matches!(first, Acquired::Granted { again: false, .. }), "{first:?}");
        let second = lock.acquire(at(10, ALL), &calls[1]).0;
        assert!(matches!(second, Acquired::Granted { again: true, .. }), "{second:?}");
        assert!(!leave(&mut lock, 11, 1).held && lock.look(Millis(11)).held.is_some(), "late: {late}");
        assert!(lock.leave(at(12, ALL), &token(1), AskId(11), Leave::Untold).held, "and nobody is left");
        assert!(lock.is_idle(Millis(12)));
    }
}

#[test]
fn a_renewal_by_the_token_alone_counts_as_an_answer() {
    let mut lock = Lock::default();
    lock.acquire(at(10, ALL), &ask(1, false));
    assert!(lock.renew(Millis(11), &token(1), None, TTL).is_some());
    assert!(!leave(&mut lock, 12, 1).held);
    assert!(lock.release(at(13, ALL), &token(1)).held, "an explicit release needs no call");
}

#[test]
fn a_repeat_of_a_waiter_takes_its_place_to_where_it_waits() {
    // K2: the first call's process dies, or its call ends; the repeat at another keeps the rank.
    for dies in [false, true] {
        let mut lock = Lock::default();
        lock.acquire(at(10, ALL), &ask(1, false));
        lock.acquire(at(10, ALL), &ask(2, true));
        lock.acquire(at(10, ALL), &ask(3, true));
        let again = lock.acquire(at(11, ALL), &repeat(2, 12, true)).0;
        assert_eq!(again, Acquired::Held { for_ms: TTL - 1, before: Some(0), joined: false });
        if !dies {
            assert!(!leave(&mut lock, 12, 2).held && lock.look(Millis(12)).waiters == 2);
        }
        let alive = |process: Process| process != Process(2);
        let wake = lock.release(at(13, &alive), &token(1)).wake;
        assert_eq!(wake, vec![Handed { process: Process(12), token: token(2) }]);
        assert!(matches!(lock.acquire(at(14, &alive), &repeat(2, 12, true)).0, Acquired::Granted { again: false, .. }));
    }
}

#[test]
fn two_calls_that_wait_are_both_told() {
    let mut lock = Lock::default();
    lock.acquire(at(10, ALL), &ask(1, false));
    lock.acquire(at(10, ALL), &ask(2, true));
    lock.acquire(at(10, ALL), &repeat(2, 12, true));
    assert_eq!(lock.release(at(11, ALL), &token(1)).wake.len(), 2);
    assert!(!leave(&mut lock, 12, 2).held, "the other may be there");
    assert!(lock.leave(at(12, ALL), &token(2), AskId(12), Leave::Untold).held);
}

#[test]
fn a_lock_without_fences_is_granted_to_nobody() {
    // K3: fences grow and stay below 2^53, whatever floor was asked for.
    let mut lock = Lock::default();
    let floor = |floor: u64| Acquire { floor: Some(Fence(floor)), ..ask(1, false) };
    assert_eq!(lock.acquire(at(10, ALL), &floor(u64::MAX)).0, Acquired::Spent);
    assert_eq!(fence(lock.acquire(at(10, ALL), &floor(MAX_FENCE - 1))), Fence(MAX_FENCE));
    lock.acquire(at(10, ALL), &ask(2, true));
    assert_eq!(lock.acquire(at(10, ALL), &floor(MAX_FENCE)).0, Acquired::Spent);
    assert_eq!(lock.release(at(11, ALL), &token(1)), Released { held: true, wake: Vec::new() });
    assert_eq!(lock.acquire(at(11, ALL), &ask(2, true)).0, Acquired::Spent);
    assert!(lock.is_idle(Millis(11)));
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
                    let call = if pass % 3 == 0 { 10 + n } else { n };
                    let (answer, _) = lock.acquire(at(now, ALL), &repeat(n, call, what > 0));
                    if let Acquired::Granted { fence, .. } = answer {
                        if owner != Some((n, fence)) {
                            prop_assert!(fence > highest);
                        }
                        highest = highest.max(fence);
                        owner = Some((n, fence));
                    }
                }
                3 => { lock.release(at(now, ALL), &token(n)); }
                4 => { leave(&mut lock, now, n); }
                _ => { lock.renew(Millis(now), &token(n), Some(AskId(n)), TTL); }
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
