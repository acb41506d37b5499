//! Grants, fences, ends, renewals.

use tidegate_core::lock::{Acquire, Acquired, Fence, Look};

use super::{LONG, Open, SHORT, Subject, acquire, ask, granted, name, renewal, token};

/// One holder at a time; its end is told; fences grow with every grant.
pub async fn one_holder_at_a_time(open: Open<'_>) {
    let it = Subject::open(open).await;
    let mut last = Fence(0);
    for round in 0..5 {
        let fence = it.granted("a", round).await;
        assert!(fence > last, "{fence:?} after {last:?}");
        last = fence;
        let Acquired::Held { for_ms, before: None, .. } = it.acquire("a", 100).await else { panic!("it is held") };
        assert!((1..=LONG).contains(&for_ms) && for_ms > LONG - 10_000, "{for_ms}");
        assert!(!it.release("a", 100).await, "not its own");
        assert!(it.release("a", round).await);
        assert!(!it.release("a", round).await, "only once");
    }
    assert!(it.granted("b", 1).await.0 > 0, "another name is another lock");
}

/// The same token is the same request: the same fence, its time begins anew.
pub async fn asking_again_is_the_same_request(open: Open<'_>) {
    let it = Subject::open(open).await;
    let first = acquire(&*it.store, "a", ask(&*it.store, 1, 5_000)).await;
    let Acquired::Granted { fence, until, again: false } = first else { panic!("{first:?}") };
    it.harness.pass(std::time::Duration::from_millis(20)).await;
    let again = acquire(&*it.store, "a", ask(&*it.store, 1, 5_000)).await;
    let Acquired::Granted { fence: same, until: later, .. } = again else { panic!("{again:?}") };
    assert_eq!(same, fence);
    assert!(later > until);
}

/// A fence is above the floor that was asked for, also for who holds the lock already.
pub async fn a_floor_lifts_the_fence(open: Open<'_>) {
    let it = Subject::open(open).await;
    let first = it.granted("a", 1).await;
    let floor = Some(Fence(1 << 52));
    let lifted = granted(acquire(&*it.store, "a", Acquire { floor, ..ask(&*it.store, 1, LONG) }).await);
    assert!(lifted > first && lifted > Fence(1 << 52));
    assert!(it.release("a", 1).await);
    assert!(it.granted("a", 2).await > lifted, "it is remembered");
}

/// A lock ends by itself. What ended is not renewed, and renewing takes nothing.
pub async fn a_lock_ends_by_itself(open: Open<'_>) {
    let it = Subject::open(open).await;
    let first = granted(acquire(&*it.store, "a", ask(&*it.store, 1, SHORT)).await);
    let renewed = it.renew("a", 1, SHORT).await.expect("it is held");
    assert_eq!(renewed.0, first);
    it.outlive().await;
    assert_eq!(it.renew("a", 1, LONG).await, None);
    assert_eq!(it.store.look(&name("a")).await.expect("the store answers").held, None);
    assert!(!it.release("a", 1).await);
    let second = it.granted("a", 2).await;
    assert!(second > first);
    assert_eq!(it.renew("a", 1, LONG).await, None, "it is another's");
    assert!(it.release("a", 2).await);
    assert_eq!(it.renew("a", 2, LONG).await, None, "it is nobody's");
    assert_eq!(it.renew("never", 2, LONG).await, None);
}

/// Each lock of a batch of renewals has an answer of its own.
pub async fn renewals_are_each_their_own(open: Open<'_>) {
    let it = Subject::open(open).await;
    let mut all = Vec::new();
    for n in 0..200u64 {
        let lock = format!("lock-{n}");
        it.granted(&lock, n).await;
        all.push(renewal(&lock, if n % 3 == 0 { n + 1_000 } else { n }, LONG));
    }
    let answers = it.store.renew(&all).await;
    assert_eq!(answers.len(), 200);
    for (n, answer) in answers.into_iter().enumerate() {
        assert_eq!(answer.expect("the store answers").is_some(), n % 3 != 0, "lock-{n}");
    }
}

/// A look tells the fence and what is left, never more.
pub async fn a_look_shows_the_holder(open: Open<'_>) {
    let it = Subject::open(open).await;
    let look = async |lock: &str| it.store.look(&name(lock)).await.expect("the store answers");
    assert_eq!(look("a").await, Look { held: None, waiters: 0 });
    let fence = it.granted("a", 1).await;
    it.wait("a", 2).await;
    let Look { held: Some((shown, left)), waiters: 1 } = look("a").await else { panic!("it is held") };
    assert_eq!(shown, fence);
    assert!((LONG - 10_000..=LONG).contains(&left), "{left}");
}

/// Names are any bytes they may be, and tokens are compared whole.
pub async fn names_are_bytes(open: Open<'_>) {
    let it = Subject::open(open).await;
    let long = "é".repeat(64);
    let names = ["a", "A", "a b", "{a}", "a}", "{", "ä", "a\u{308}", "%7B", "h:a", long.as_str()];
    for (n, lock) in names.iter().enumerate() {
        it.granted(lock, n as u64).await;
    }
    for (n, lock) in names.iter().enumerate() {
        assert!(matches!(it.acquire(lock, 99).await, Acquired::Held { .. }), "{lock}");
        assert!(it.release(lock, n as u64).await, "{lock}");
    }
    it.granted("t", 1).await;
    assert!(!it.release("t", 11).await && !it.release("t", 10).await);
    assert!(it.store.release(&name("t"), &token(1)).await.expect("the store answers"));
}

/// A store that lost everything gives fences that are larger still.
pub async fn fences_survive_the_loss_of_the_store(open: Open<'_>) {
    let it = Subject::open(open).await;
    let before = it.granted("a", 1).await;
    if !it.harness.lose().await {
        return;
    }
    assert_eq!(it.renew("a", 1, LONG).await, None, "what vanished is lost");
    assert!(it.granted("a", 2).await > before);
}
