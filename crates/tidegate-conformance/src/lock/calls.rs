//! Several calls with one token: a request that was sent again. What one of them was told, another's clean-up does not take back.

use tidegate_core::lock::{Acquire, Acquired, AskId, Fence, Leave, MAX_FENCE};

use super::{LONG, Open, Subject, acquire, ask, granted, leave, name, repeat, token, wait, woken};

fn again(acquired: Acquired) -> (Fence, bool) {
    match acquired {
        Acquired::Granted { fence, again, .. } => (fence, again),
        other => panic!("not granted: {other:?}"),
    }
}

/// The first call is cut off, its repeat is answered, at the same process or another, then the first cleans up; or the first
/// is heard after its repeat. The lock stays the caller's until the repeat, too, ends untold.
pub async fn a_call_that_ends_untold_takes_nothing_from_its_repeat(open: Open<'_>) {
    let it = Subject::open(open).await;
    let other = it.harness.another().await;
    for (lock, store, calls) in
        [("a", &it.store, [1, 2]), ("b", &other, [1, 2]), ("c", &it.store, [2, 1]), ("d", &other, [2, 1])]
    {
        let [first, second] = calls.map(|call| repeat(if call == 1 { &**store } else { &*it.store }, 1, call, false));
        let (fence, told) = again(acquire(&*it.store, lock, first).await);
        assert!(!told, "{lock}");
        assert_eq!(again(acquire(&*it.store, lock, second).await), (fence, true), "{lock}");
        leave(&**store, lock, 1, 1, Leave::Untold).await;
        leave(&**store, lock, 1, 1, Leave::Untold).await;
        assert!(matches!(it.acquire(lock, 9).await, Acquired::Held { .. }), "{lock}: the repeat has it");
        leave(&*it.store, lock, 1, 2, Leave::Untold).await;
        assert!(it.granted(lock, 9).await > fence, "{lock}: nobody is left");
    }
    other.close().await;
}

/// A grant is its caller's until each call that was told of it ended; a release by the token needs no call.
pub async fn a_release_by_the_token_is_unconditional(open: Open<'_>) {
    let it = Subject::open(open).await;
    for call in 1..=3 {
        acquire(&*it.store, "a", repeat(&*it.store, 1, call, false)).await;
    }
    assert!(it.release("a", 1).await);
    it.granted("a", 9).await;
    leave(&*it.store, "a", 1, 3, Leave::Untold).await;
    assert!(matches!(it.acquire("a", 8).await, Acquired::Held { .. }), "it is another's");
}

/// Whoever is done with a lock is done with what it asked before, but not with what it asked since.
pub async fn who_is_done_takes_its_earlier_calls_with_it(open: Open<'_>) {
    let it = Subject::open(open).await;
    for (lock, done, free) in [("a", 2, true), ("b", 1, false)] {
        for call in [1, 2] {
            acquire(&*it.store, lock, repeat(&*it.store, 1, call, false)).await;
        }
        leave(&*it.store, lock, 1, done, Leave::Done).await;
        let held = it.store.look(&name(lock)).await.expect("the store answers").held;
        assert_eq!(held.is_none(), free, "{lock}");
    }
}

/// A renewal by the token alone is an answer that the lock is held: no call's clean-up ends it then.
pub async fn a_renewal_by_the_token_alone_is_an_answer(open: Open<'_>) {
    let it = Subject::open(open).await;
    let fence = it.granted("a", 1).await;
    let renewal = tidegate_backend::Renewal { ask: None, ..super::renewal("a", 1, LONG) };
    let renewed = it.store.renew(&[renewal]).await.remove(0).expect("the store answers");
    assert_eq!(renewed.map(|(fence, _)| fence), Some(fence));
    leave(&*it.store, "a", 1, 1, Leave::Untold).await;
    assert!(matches!(it.acquire("a", 2).await, Acquired::Held { .. }));
    assert!(it.release("a", 1).await);
}

/// Of many calls with one token the oldest are no longer told apart; then none of them gives back what one was told.
pub async fn many_calls_with_one_token_are_bounded(open: Open<'_>) {
    let it = Subject::open(open).await;
    let calls = tidegate_core::lock::rules::MAX_CALLS as u64 + 2;
    for call in 1..=calls {
        acquire(&*it.store, "a", repeat(&*it.store, 1, call, false)).await;
        acquire(&*it.store, "b", repeat(&*it.store, 1, call, false)).await;
    }
    for call in 1..=calls {
        leave(&*it.store, "a", 1, call, Leave::Untold).await;
    }
    assert!(matches!(it.acquire("a", 2).await, Acquired::Held { .. }), "the first may have been told");
    leave(&*it.store, "b", 1, calls, Leave::Done).await;
    it.granted("b", 2).await;
}

/// A caller that waits asks again at another process: it keeps its place, and is told there; the first call leaves alone.
pub async fn a_repeat_of_a_waiter_waits_where_it_is(open: Open<'_>) {
    let it = Subject::open(open).await;
    let other = it.harness.another().await;
    it.granted("a", 1).await;
    for n in [2, 3] {
        it.wait("a", n).await;
    }
    let there = acquire(&*other, "a", repeat(&*other, 2, 12, true)).await;
    assert!(matches!(there, Acquired::Held { before: Some(0), .. }), "{there:?}");
    leave(&*it.store, "a", 2, 2, Leave::Untold).await;
    assert_eq!(it.store.look(&name("a")).await.expect("the store answers").waiters, 2);
    for store in [&it.store, &other] {
        store.sign(&[name("a")]).await.expect("the store answers");
    }
    assert!(it.release("a", 1).await);
    woken(&*other, "a", 2).await;
    let (fence, told) = again(acquire(&*other, "a", repeat(&*other, 2, 12, true)).await);
    assert!(!told);
    // The first is heard late, and goes again: it changes nothing.
    assert_eq!(again(acquire(&*it.store, "a", repeat(&*it.store, 2, 2, true)).await), (fence, true));
    leave(&*it.store, "a", 2, 2, Leave::Untold).await;
    assert!(it.renew("a", 2, LONG).await.is_some());
    leave(&*other, "a", 2, 12, Leave::Untold).await;
    woken(&*it.store, "a", 3).await;
    granted(it.wait("a", 3).await);
    other.close().await;
}

/// Two calls that wait with one token: what is handed over when both are there stays with the one that remains.
pub async fn what_is_handed_over_stays_with_the_call_that_remains(open: Open<'_>) {
    let it = Subject::open(open).await;
    it.granted("a", 1).await;
    for call in [2, 12] {
        acquire(&*it.store, "a", repeat(&*it.store, 2, call, true)).await;
    }
    wait(&*it.store, "a", 3).await;
    assert!(it.release("a", 1).await);
    leave(&*it.store, "a", 2, 2, Leave::Untold).await;
    assert!(!again(acquire(&*it.store, "a", repeat(&*it.store, 2, 12, true)).await).1);
    leave(&*it.store, "a", 2, 2, Leave::Untold).await;
    assert!(it.renew("a", 2, LONG).await.is_some(), "it is the other's");
    assert!(it.release("a", 2).await);
    // Both of the next leave: it is handed on.
    granted(it.wait("a", 3).await);
    for call in [4, 14] {
        acquire(&*it.store, "a", repeat(&*it.store, 4, call, true)).await;
    }
    assert!(it.release("a", 3).await);
    for call in [4, 14] {
        leave(&*it.store, "a", 4, call, Leave::Untold).await;
    }
    it.granted("a", 5).await;
}

/// Fences grow and stay below 2^53; a lock that has none left is granted to nobody.
pub async fn fences_stay_below_two_to_the_53(open: Open<'_>) {
    let it = Subject::open(open).await;
    let above = |n: u64, floor: u64| Acquire { floor: Some(Fence(floor)), ..ask(&*it.store, n, LONG) };
    assert_eq!(acquire(&*it.store, "a", above(1, MAX_FENCE)).await, Acquired::Spent);
    assert_eq!(granted(acquire(&*it.store, "a", above(1, MAX_FENCE - 1)).await), Fence(MAX_FENCE));
    assert_eq!(acquire(&*it.store, "a", above(1, MAX_FENCE)).await, Acquired::Spent);
    assert_eq!(granted(acquire(&*it.store, "a", repeat(&*it.store, 1, 1, false)).await), Fence(MAX_FENCE));
    it.wait("a", 2).await;
    assert!(it.release("a", 1).await);
    assert_eq!(it.wait("a", 2).await, Acquired::Spent);
    assert_eq!(it.acquire("a", 3).await, Acquired::Spent);
    let look = it.store.look(&name("a")).await.expect("the store answers");
    assert!(look.held.is_none() && look.waiters == 0, "{look:?}");
    it.store.leave(&name("a"), &token(3), AskId(3), Leave::Untold).await.expect("the store answers");
}
