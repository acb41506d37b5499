//! Where a look at what is due begins.
//!
//! What was handed out or deleted stays in the index until the database cleans it up, and while somebody holds an old snapshot
//! it cannot: a look from the index's beginning would walk past more and more of it. So a queue remembers an instant, `low`,
//! before which no live task lies. It is raised by whoever claims, a few times a second at most, and lowered by whoever puts a task
//! before it (`steps.rs`).

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidegate_core::Millis;

use super::head::{Head, PAST_MS};
use crate::fault::Result;
use crate::row;
use crate::session::Session;

/// It is raised by this much at least, milliseconds.
const STEP_MS: i64 = 250;
/// Between two looks without it.
const ALL_EVERY: Duration = Duration::from_secs(10);
/// A look without it may be slow: this many times what it took passes before the next, up to a minute.
const ALL_SHARE: u32 = 50;
const ALL_AT_LEAST_EVERY: Duration = Duration::from_secs(60);

/// Whether the queue's `low` can be raised, when the next task lies at `next_at`.
pub(super) fn is_worth_it(head: &Head, next_at: Option<Millis>) -> bool {
    highest(head.now(), next_at).since(head.low) >= STEP_MS
}

/// It stays behind the present: a task that is put meanwhile lies above it.
fn highest(now: Millis, next_at: Option<Millis>) -> Millis {
    let present = now.plus(-PAST_MS);
    next_at.map_or(present, |next| next.min(present))
}

/// Raises `low`, in the transaction of `session`: the queue's row is locked, so a task of the past that is not seen here
/// is put by somebody who has yet to look at `low`.
pub(super) async fn raise(session: &mut Session, head: &Head) -> Result<()> {
    let sql = "SELECT low FROM tg_queues WHERE queue_no = ? FOR UPDATE SKIP LOCKED";
    let Some(row) = session.one(sql, &[head.no.into()]).await? else {
        // Somebody else is at it.
        return Ok(());
    };
    let low = row::millis(&row, 0)?;
    let next_at = super::claim::next_at(session, head.no, low).await?;
    let highest = highest(head.now(), next_at);
    if highest.since(low) >= STEP_MS {
        let sql = "UPDATE tg_queues SET low = ? WHERE queue_no = ?";
        session.execute(sql, &[highest.into(), head.no.into()]).await?;
    }
    Ok(())
}

/// When to look without `low`.
#[derive(Debug)]
pub(super) struct Rounds(Mutex<(Instant, Duration)>);

impl Rounds {
    pub(super) fn new() -> Self {
        Self(Mutex::new((Instant::now(), ALL_EVERY)))
    }

    /// Whether the look that begins is one without `low`.
    pub(super) fn is_for_all(&self) -> bool {
        let mut rounds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due = rounds.0.elapsed() >= rounds.1;
        if due {
            rounds.0 = Instant::now();
        }
        due
    }

    /// A look without `low` took this long.
    pub(super) fn took(&self, time: Duration) {
        let mut rounds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rounds.1 = (time * ALL_SHARE).clamp(ALL_EVERY, ALL_AT_LEAST_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_passes_a_task_or_comes_near_the_present() {
        let now = Millis(1_000_000);
        let head = |low| Head { no: 1, low: Millis(low), us: now.0 * 1_000 };
        assert_eq!(highest(now, None), Millis(999_000));
        assert_eq!(highest(now, Some(Millis(5_000_000))), Millis(999_000));
        assert_eq!(highest(now, Some(Millis(7))), Millis(7));
        assert!(is_worth_it(&head(998_750), None) && !is_worth_it(&head(998_751), None));
        assert!(!is_worth_it(&head(500), Some(Millis(7))), "it is never lowered here");
    }

    #[test]
    fn looks_without_it_are_rare_and_rarer_when_they_are_slow() {
        let rounds = Rounds::new();
        assert!(!rounds.is_for_all());
        rounds.took(Duration::from_millis(1));
        assert_eq!(rounds.0.lock().unwrap().1, ALL_EVERY);
        rounds.took(Duration::from_millis(400));
        assert_eq!(rounds.0.lock().unwrap().1, Duration::from_secs(20));
        rounds.took(Duration::from_secs(5));
        assert_eq!(rounds.0.lock().unwrap().1, ALL_AT_LEAST_EVERY);
    }
}
