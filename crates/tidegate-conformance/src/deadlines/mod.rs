//! The cases every deadline queue passes.
//!
//! A shared index takes up what is scheduled and cancelled within milliseconds; `len` waits for that, so each case asks for
//! it where it matters.

mod model;

pub use model::random_runs_agree_with_the_model;

use std::any::Any;
use std::collections::HashSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tidegate_backend::{Claim, DeadlineQueue, IndexState, Retry};
use tidegate_core::{Millis, OrderNo};

/// A fresh queue, and what must live as long as it.
pub struct Opened {
    /// The queue.
    pub queue: Arc<dyn DeadlineQueue>,
    /// A server: whatever it needs.
    pub kept: Box<dyn Any + Send>,
}

/// Opens a fresh, empty queue.
pub type Open<'a> = &'a (dyn Fn() -> Pin<Box<dyn Future<Output = Opened> + Send>> + Sync);

const QUIET: Duration = Duration::from_millis(150);
const SOON: Duration = Duration::from_secs(5);

/// A queue under test, with the words the cases use.
struct Subject {
    queue: Arc<dyn DeadlineQueue>,
    _kept: Box<dyn Any + Send>,
}

impl Subject {
    async fn open(open: Open<'_>) -> Self {
        let Opened { queue, kept } = open().await;
        let subject = Self { queue, _kept: kept };
        subject.make_whole().await;
        subject
    }

    async fn make_whole(&self) {
        let IndexState::Incomplete(token) = self.queue.state() else {
            panic!("a fresh queue is incomplete: {:?}", self.queue.state())
        };
        self.queue.rebuilt(token).await.expect("the queue answers");
        assert_eq!(self.queue.state(), IndexState::Whole);
    }

    async fn schedule(&self, deadlines: &[(i64, i64)]) {
        self.queue.schedule(&pairs(deadlines)).await.expect("the queue answers");
        self.len().await;
    }

    async fn cancel(&self, deadlines: &[(i64, i64)]) {
        self.queue.cancel(&pairs(deadlines)).await.expect("the queue answers");
        self.len().await;
    }

    async fn claim(&self, now: i64, max: usize, lease: i64) -> Vec<Claim> {
        self.queue.claim(Millis(now), max, lease).await.expect("the queue answers")
    }

    /// The only claim there is.
    async fn one(&self, now: i64, lease: i64) -> Claim {
        let claims = self.claim(now, 8, lease).await;
        let [claim] = &claims[..] else { panic!("one claim was expected: {claims:?}") };
        claim.clone()
    }

    async fn ack(&self, claim: &Claim) {
        self.queue.ack(&[(claim.order, claim.receipt)]).await.expect("the queue answers");
    }

    async fn retry(&self, claim: &Claim, at: i64, charge: bool) {
        let retry = Retry { order: claim.order, receipt: claim.receipt, at: Millis(at), charge };
        self.queue.retry(&[retry]).await.expect("the queue answers");
    }

    async fn len(&self) -> usize {
        self.queue.len().await.expect("the queue answers")
    }

    async fn next_at(&self) -> Option<i64> {
        self.queue.next_at().await.expect("the queue answers").map(|at| at.0)
    }

    async fn contains(&self, deadlines: &[(i64, i64)]) -> Vec<bool> {
        self.queue.contains(&pairs(deadlines)).await.expect("the queue answers")
    }

    async fn wakes(&self, within: Duration) -> bool {
        tokio::time::timeout(within, self.queue.earlier()).await.is_ok()
    }
}

fn pairs(deadlines: &[(i64, i64)]) -> Vec<(OrderNo, Millis)> {
    deadlines.iter().map(|(order, at)| (OrderNo(*order), Millis(*at))).collect()
}

fn orders(claims: &[Claim]) -> Vec<i64> {
    claims.iter().map(|claim| claim.order.0).collect()
}

/// Earliest first, an eighth of the newest.
pub async fn claims_come_earliest_first_with_a_share_of_the_newest(open: Open<'_>) {
    let q = Subject::open(open).await;
    let all: Vec<_> = (0..100).map(|i| (i, i)).collect();
    q.schedule(&all).await;
    assert_eq!(orders(&q.claim(89, 16, 1_000).await), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 89, 88]);
    assert_eq!(orders(&q.claim(89, 1, 1_000).await), [14]);
    assert_eq!(q.len().await, 100);
    let rest = orders(&q.claim(89, 512, 1_000).await);
    assert_eq!(rest.iter().collect::<HashSet<_>>(), (15..88).collect::<Vec<i64>>().iter().collect());
}

/// In one instant, the lower number first; instants keep their milliseconds in any year.
pub async fn ties_go_by_number(open: Open<'_>) {
    let q = Subject::open(open).await;
    // 2045-01-01T00:00:00.123Z
    let at = 2_366_841_600_123;
    q.schedule(&[(3, at), (1, at), (255, at), (256, at), (2, at + 1), (0, at - 1)]).await;
    assert_eq!(orders(&q.claim(at, 5, 1_000).await), [0, 1, 3, 255, 256]);
    assert_eq!(q.one(at + 1, 1_000).await.due_at, Millis(at + 1));
}

/// Not a millisecond early, whatever the fraction of the second.
pub async fn nothing_is_early(open: Open<'_>) {
    let q = Subject::open(open).await;
    let start = 1_764_448_000_000;
    let all: Vec<_> = (0..1_000).map(|i| (i, start + (i * 7_919) % 1_000)).collect();
    q.schedule(&all).await;
    let mut claimed = 0;
    for now in (start - 1..start + 1_037).step_by(37) {
        let claims = q.claim(now, 512, 1_000_000).await;
        claimed += claims.len();
        assert!(claims.iter().all(|claim| claim.due_at.0 <= now), "{claims:?} at {now}");
        assert_eq!(claimed, all.iter().filter(|(_, at)| *at <= now).count(), "nor late");
    }
    assert_eq!(claimed, 1_000);
}

/// A lease ends by itself; the next claim makes the old receipt worthless.
pub async fn a_lease_runs_out_and_its_receipt_dies_with_the_next_claim(open: Open<'_>) {
    let q = Subject::open(open).await;
    q.schedule(&[(1, 10)]).await;
    let first = q.one(10, 50).await;
    assert_eq!(q.next_at().await, Some(60));
    assert!(q.claim(59, 8, 50).await.is_empty());
    let second = q.one(60, 50).await;
    assert_eq!((second.attempt, second.due_at), (2, Millis(10)));
    assert!(second.receipt.0 > first.receipt.0, "receipts grow");
    q.ack(&first).await;
    q.retry(&first, 0, false).await;
    assert_eq!((q.len().await, q.next_at().await), (1, Some(110)));
    q.ack(&second).await;
    assert_eq!((q.len().await, q.next_at().await), (0, None));
}

/// An acknowledgement that comes after the lease's end, and before another claim, counts.
pub async fn a_late_acknowledgement_counts_while_nobody_else_has_claimed(open: Open<'_>) {
    let q = Subject::open(open).await;
    q.schedule(&[(1, 10), (2, 10)]).await;
    let claims = q.claim(10, 8, 50).await;
    q.ack(&claims[0]).await;
    q.ack(&claims[0]).await;
    assert_eq!(orders(&q.claim(1_000, 8, 50).await), [2]);
    assert_eq!(q.len().await, 1);
}

/// Charged tries count, others do not; the deadline scheduled again does not shorten a retry's delay.
pub async fn retry_counts_only_charged_tries(open: Open<'_>) {
    let q = Subject::open(open).await;
    q.schedule(&[(1, 10)]).await;
    let mut at = 10;
    for (charge, attempt) in [(true, 1), (true, 2), (false, 3), (false, 3), (true, 3), (true, 4)] {
        let claim = q.one(at, 1_000).await;
        assert_eq!((claim.attempt, claim.due_at), (attempt, Millis(10)));
        at += 100;
        q.retry(&claim, at, charge).await;
        q.schedule(&[(1, 10)]).await;
        assert!(q.claim(at - 1, 8, 1_000).await.is_empty());
        assert_eq!(q.next_at().await, Some(at));
        assert_eq!(q.contains(&[(1, 10)]).await, [true]);
    }
    q.cancel(&[(1, 10)]).await;
    assert_eq!(q.len().await, 0);
}

/// The same deadline again, while it waits and while it is leased, changes nothing.
pub async fn the_same_deadline_again_changes_nothing(open: Open<'_>) {
    let q = Subject::open(open).await;
    q.schedule(&[(1, 10)]).await;
    q.schedule(&[(1, 10), (1, 10)]).await;
    assert_eq!(q.len().await, 1);
    let claim = q.one(10, 1_000).await;
    q.schedule(&[(1, 10)]).await;
    assert!(q.claim(500, 8, 1_000).await.is_empty());
    q.ack(&claim).await;
    assert_eq!(q.len().await, 0);
}

/// A later deadline scheduled during a lease waits for its end, and outlives it.
pub async fn a_schedule_during_a_lease_outlives_its_acknowledgement(open: Open<'_>) {
    let q = Subject::open(open).await;
    q.schedule(&[(1, 10)]).await;
    let claim = q.one(10, 1_000).await;
    q.schedule(&[(1, 20)]).await;
    assert!(q.claim(20, 8, 1_000).await.is_empty(), "one lease an order");
    assert_eq!(q.contains(&[(1, 20), (1, 10)]).await, [true, true]);
    q.ack(&claim).await;
    let claim = q.one(20, 1_000).await;
    assert_eq!((claim.due_at, claim.attempt), (Millis(20), 1));
}

/// What waits inside a lease comes back with a retry too, and can be cancelled there.
pub async fn what_waits_inside_a_lease_is_not_lost(open: Open<'_>) {
    let q = Subject::open(open).await;
    q.schedule(&[(1, 10)]).await;
    let claim = q.one(10, 1_000).await;
    q.schedule(&[(1, 20)]).await;
    assert!(q.claim(20, 8, 1_000).await.is_empty());
    q.retry(&claim, 500, false).await;
    let claim = q.one(20, 1_000).await;
    assert_eq!(claim.due_at, Millis(20), "the earlier one will do");
    q.ack(&claim).await;
    assert_eq!(q.len().await, 0);

    q.schedule(&[(2, 10)]).await;
    let claim = q.one(10, 1_000).await;
    q.schedule(&[(2, 20)]).await;
    assert!(q.claim(20, 8, 1_000).await.is_empty());
    q.cancel(&[(2, 20)]).await;
    q.ack(&claim).await;
    assert_eq!((q.len().await, q.contains(&[(2, 20)]).await), (0, vec![false]));
}

/// Scheduled at two instants, an order is claimable at the earlier, in whichever order they came.
pub async fn the_earliest_of_several_instants_counts(open: Open<'_>) {
    let q = Subject::open(open).await;
    q.schedule(&[(1, 20), (2, 10)]).await;
    q.schedule(&[(1, 10), (2, 20)]).await;
    assert!(q.claim(9, 8, 1_000).await.is_empty());
    assert_eq!(orders(&q.claim(10, 8, 1_000).await), [1, 2]);
}

/// A deadline that is moved (the new one scheduled, the old one cancelled) is neither early nor lost.
pub async fn a_moved_deadline_is_neither_early_nor_lost(open: Open<'_>) {
    let q = Subject::open(open).await;
    q.schedule(&[(1, 10), (2, 30)]).await;
    q.queue.schedule(&pairs(&[(1, 20), (2, 15)])).await.expect("the queue answers");
    q.cancel(&[(1, 10), (2, 30)]).await;
    assert_eq!((q.len().await, q.next_at().await), (2, Some(15)));
    assert_eq!(orders(&q.claim(19, 8, 1_000).await), [2]);
    assert_eq!(orders(&q.claim(20, 8, 1_000).await), [1]);
}

/// A cancelled deadline is gone, leased or not, and its receipt worthless; unknown ones are ignored.
pub async fn cancel_ends_a_lease(open: Open<'_>) {
    let q = Subject::open(open).await;
    q.schedule(&[(1, 10), (2, 10)]).await;
    let claims = q.claim(10, 1, 1_000).await;
    q.cancel(&[(1, 10), (2, 11), (77, 10)]).await;
    assert_eq!(q.len().await, 1);
    q.retry(&claims[0], 5, true).await;
    assert_eq!(orders(&q.claim(10_000, 8, 1_000).await), [2]);
    q.cancel(&[(2, 10), (2, 10)]).await;
    assert_eq!((q.len().await, q.next_at().await), (0, None));
}

/// Waiting, leased and delayed ones are there; answers come in order.
pub async fn contains_knows_what_waits_and_what_is_leased(open: Open<'_>) {
    let q = Subject::open(open).await;
    let all: Vec<_> = (0..2_000).map(|i| (i, i / 2)).collect();
    q.schedule(&all).await;
    q.claim(100, 64, 1_000).await;
    let asked: Vec<_> = (0..4_000).map(|i| (i / 2, (i / 4) + i % 2)).collect();
    let there = q.contains(&asked).await;
    assert!(there.iter().enumerate().all(|(i, there)| *there == (i % 2 == 0)));
    assert!(q.contains(&[]).await.is_empty());
}

/// What waits, what of it is due, what is leased; a lease that ran out waits again.
pub async fn numbers_are_true(open: Open<'_>) {
    let q = Subject::open(open).await;
    let numbers = async |now| {
        let stats = q.queue.numbers(Millis(now)).await.expect("the queue answers");
        (stats.pending, stats.due, stats.leased, stats.oldest_due_at.map(|at| at.0))
    };
    assert_eq!(numbers(1_000).await, (0, 0, 0, None));
    // More leases than a page of them holds, in one partition and over sixteen.
    let all: Vec<_> = (0..30_000).map(|i| (i, 10 + i / 15_000)).collect();
    q.schedule(&all).await;
    assert_eq!(numbers(9).await, (30_000, 0, 0, None));
    assert_eq!(numbers(10).await, (30_000, 15_000, 0, Some(10)));
    let (mut leased, mut last) = (0, Vec::new());
    while leased < 12_000 {
        last = q.claim(20, 512, 1_000).await;
        leased += last.len() as u64;
    }
    assert_eq!(numbers(1_019).await, (30_000 - leased, 30_000 - leased, leased, Some(10)));
    assert_eq!(numbers(1_020).await, (30_000, 30_000, 0, Some(10)));
    q.retry(&last[0], 5_000, true).await;
    q.ack(&last[1]).await;
    assert_eq!(numbers(1_019).await, (30_001 - leased, 30_000 - leased, leased - 2, Some(10)));
    assert_eq!(numbers(4_999).await, (29_999, 29_998, 0, Some(10)));
}

/// An earlier deadline wakes who sleeps, a later one does not, and none is missed.
pub async fn earlier_is_never_missed(open: Open<'_>) {
    let q = Subject::open(open).await;
    q.schedule(&[(1, 100)]).await;
    // The link to other nodes may wake once when it is made.
    while q.next_at().await.is_none() || q.wakes(QUIET).await {}
    q.schedule(&[(2, 200)]).await;
    assert!(!q.wakes(QUIET).await, "a later one wakes nobody");
    q.schedule(&[(3, 50)]).await;
    assert!(q.wakes(SOON).await && q.wakes(SOON).await, "until somebody looks");
    assert_eq!(q.next_at().await, Some(50));
    let (woken, ()) = tokio::join!(q.wakes(SOON), q.schedule(&[(4, 40)]));
    assert!(woken);
    assert_eq!(q.next_at().await, Some(40));
    let claim = q.one(40, 1_000).await;
    q.next_at().await;
    q.retry(&claim, 30, false).await;
    assert_eq!(q.next_at().await, Some(30));
}

/// A pile that falls due at once is handed out once each, without an error.
pub async fn fifty_thousand_due_at_once(open: Open<'_>) {
    let q = Subject::open(open).await;
    let all: Vec<_> = (0..50_000).map(|i| (i, 1_000)).collect();
    q.schedule(&all).await;
    assert_eq!(q.len().await, 50_000);
    let mut seen = HashSet::new();
    loop {
        let claims = q.claim(5_000, 512, 1_000_000).await;
        if claims.is_empty() {
            break;
        }
        let receipts: Vec<_> = claims.iter().map(|claim| (claim.order, claim.receipt)).collect();
        q.queue.ack(&receipts).await.expect("the queue answers");
        for claim in claims {
            assert!(seen.insert(claim.order), "{claim:?} came twice");
        }
    }
    assert_eq!((seen.len(), q.len().await), (50_000, 0));
}

/// Instants at the ends of what 64 bits hold, and delays that overflow 32: due at once, or not before their time.
pub async fn extreme_instants_are_kept(open: Open<'_>) {
    let q = Subject::open(open).await;
    let now = 1_764_448_000_000;
    let day = 86_400_000;
    let far = [now + 50 * day, now + 400 * day, 253_402_300_799_999, (1 << 53) + 1, i64::MAX - 1, i64::MAX];
    for (order, at) in far.iter().enumerate() {
        q.schedule(&[(order as i64, *at)]).await;
    }
    assert!(q.claim(now, 8, 1_000).await.is_empty());
    q.schedule(&[(-1, i64::MIN), (i64::MIN, i64::MIN + 1), (i64::MAX, 0)]).await;
    let claims = q.claim(now, 8, 1_000).await;
    assert_eq!(claims.iter().map(|c| c.due_at.0).collect::<Vec<_>>().len(), 3);
    let mut due: Vec<_> = claims.iter().map(|claim| (claim.order.0, claim.due_at.0)).collect();
    due.sort_unstable();
    assert_eq!(due, [(i64::MIN, i64::MIN + 1), (-1, i64::MIN), (i64::MAX, 0)]);
    for at in far {
        assert!(q.claim(at - 1, 8, i64::MAX).await.iter().all(|claim| claim.due_at.0 < at), "{at}");
    }
}

/// It is incomplete until it was rebuilt, and what was scheduled before counts.
pub async fn it_is_incomplete_until_it_was_rebuilt(open: Open<'_>) {
    let Opened { queue, kept } = open().await;
    let q = Subject { queue, _kept: kept };
    assert!(matches!(q.queue.state(), IndexState::Incomplete(_)), "{:?}", q.queue.state());
    q.schedule(&(0..3_000).map(|i| (i, i)).collect::<Vec<_>>()).await;
    q.make_whole().await;
    assert_eq!((q.len().await, q.next_at().await), (3_000, Some(0)));
}

/// After `close`, nothing this node has claimed is held up, and no try is charged. Queues that are not shared end with it.
pub async fn close_hands_back(open: Open<'_>) {
    let q = Subject::open(open).await;
    q.schedule(&[(1, 10), (2, 20)]).await;
    q.claim(100, 8, 1_000_000).await;
    q.queue.close().await;
    if q.queue.is_shared() {
        let claims = q.claim(100, 8, 1_000).await;
        assert_eq!(claims.iter().map(|c| (c.order.0, c.attempt)).collect::<Vec<_>>(), [(1, 1), (2, 1)]);
    }
}
