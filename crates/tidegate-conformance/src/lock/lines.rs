//! Waiting, hand-off, the dead.

use std::time::Duration;

use tidegate_core::lock::rules::{ALIVE_MS, CONFIRM_MS, SIGN_MS};
use tidegate_core::lock::{Acquire, Acquired, Leave};

use super::{LONG, Open, SHORT, Subject, acquire, ask, granted, is_another, leave, name, token, wait, woken};

/// First come, first served, over processes; whoever comes in between does not get it.
pub async fn the_line_is_served_in_order(open: Open<'_>) {
    let it = Subject::open(open).await;
    let other = it.harness.another().await;
    is_another(it.store.process(), other.process());
    let stores = [it.store.clone(), other.clone()];
    it.granted("a", 0).await;
    for n in 1..=6u64 {
        let store = &*stores[usize::try_from(n % 2).expect("small")];
        let place = wait(store, "a", n).await;
        let joins = |place: &Acquired, anew: bool| matches!(place, Acquired::Held { before: Some(before), joined, .. } if *before as u64 == n - 1 && *joined == anew);
        assert!(joins(&place, true), "{place:?}");
        let again = wait(store, "a", n).await;
        assert!(joins(&again, false), "{again:?}");
    }
    for n in 1..=6u64 {
        for store in &stores {
            store.sign(&[name("a")]).await.expect("the store answers");
        }
        assert!(it.release("a", n - 1).await);
        let barging = it.acquire("a", 100).await;
        assert!(matches!(barging, Acquired::Held { before: None, .. }), "{barging:?}");
        let store = &*stores[usize::try_from(n % 2).expect("small")];
        woken(store, "a", n).await;
        granted(wait(store, "a", n).await);
    }
    assert!(it.release("a", 6).await);
    it.granted("a", 100).await;
    other.close().await;
}

/// Whoever leaves the line is passed over; whoever leaves when it was handed the lock hands it on.
pub async fn whoever_leaves_holds_up_nobody(open: Open<'_>) {
    let it = Subject::open(open).await;
    it.granted("a", 1).await;
    for n in 2..=4 {
        it.wait("a", n).await;
    }
    leave(&*it.store, "a", 2, 2, Leave::Untold).await;
    assert!(it.release("a", 1).await);
    // It is 3's now, which goes, too.
    leave(&*it.store, "a", 3, 3, Leave::Untold).await;
    woken(&*it.store, "a", 4).await;
    granted(it.wait("a", 4).await);
    assert_eq!(it.store.look(&name("a")).await.expect("the store answers").waiters, 0);
    // Leaving a line one is not in is nothing.
    leave(&*it.store, "a", 77, 77, Leave::Untold).await;
    assert!(it.release("a", 4).await);
}

/// A process that gives no sign of life is passed over, however many of its callers wait.
pub async fn the_dead_are_skipped(open: Open<'_>) {
    let it = Subject::open(open).await;
    let dead = it.harness.another().await;
    it.granted("a", 1).await;
    for n in 2..50 {
        wait(&*dead, "a", n).await;
    }
    it.wait("a", 50).await;
    dead.close().await;
    let mut passed = 0;
    while passed <= ALIVE_MS + SIGN_MS {
        it.harness.pass(Duration::from_millis(SIGN_MS.unsigned_abs())).await;
        it.store.sign(&[name("a")]).await.expect("the store answers");
        passed += SIGN_MS;
    }
    assert!(it.release("a", 1).await);
    woken(&*it.store, "a", 50).await;
    granted(it.wait("a", 50).await);
}

/// A waiter that does not take what it was handed loses its turn.
pub async fn a_waiter_that_does_not_answer_loses_its_turn(open: Open<'_>) {
    let it = Subject::open(open).await;
    it.granted("a", 1).await;
    it.wait("a", 2).await;
    it.wait("a", 3).await;
    assert!(it.release("a", 1).await);
    let Acquired::Held { for_ms, before: Some(0), .. } = it.wait("a", 3).await else { panic!("it is 2's for a while") };
    assert!((1..=CONFIRM_MS).contains(&for_ms), "{for_ms}");
    it.harness.pass(Duration::from_millis(CONFIRM_MS.unsigned_abs() + 50)).await;
    it.store.sign(&[name("a")]).await.expect("the store answers");
    granted(it.wait("a", 3).await);
    assert!(matches!(it.acquire("a", 2).await, Acquired::Held { before: None, .. }));
}

/// A lock that ran out goes to the first in the line, not to who asks.
pub async fn a_lock_that_ran_out_goes_to_the_line(open: Open<'_>) {
    let it = Subject::open(open).await;
    granted(acquire(&*it.store, "a", ask(&*it.store, 1, SHORT)).await);
    it.wait("a", 2).await;
    it.outlive().await;
    it.store.sign(&[name("a")]).await.expect("the store answers");
    let newcomer = it.acquire("a", 3).await;
    assert!(matches!(newcomer, Acquired::Held { before: None, .. }), "{newcomer:?}");
    woken(&*it.store, "a", 2).await;
    granted(it.wait("a", 2).await);
}

/// A floor counts for who waits, too.
pub async fn a_waiter_is_granted_above_its_floor(open: Open<'_>) {
    let it = Subject::open(open).await;
    let first = it.granted("a", 1).await;
    let floor = Some(tidegate_core::lock::Fence(first.0 + 1_000_000_000_000));
    let asked = Acquire { floor, wait: true, ..ask(&*it.store, 2, LONG) };
    acquire(&*it.store, "a", asked.clone()).await;
    assert!(it.release("a", 1).await);
    assert!(Some(granted(acquire(&*it.store, "a", asked).await)) > floor);
}

/// After `close` nothing hangs.
pub async fn locks_close(open: Open<'_>) {
    let it = Subject::open(open).await;
    it.granted("a", 1).await;
    let closing = async {
        it.store.close().await;
        it.store.close().await;
        let _ = it.store.release(&name("a"), &token(1)).await;
    };
    tokio::time::timeout(Duration::from_secs(10), closing).await.expect("it ends");
}
