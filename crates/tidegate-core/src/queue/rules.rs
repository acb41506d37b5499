//! The decisions of a queue.

use super::task::{Condition, TaskError};
use crate::Millis;

/// Most tasks of one call.
pub const MAX_BATCH: usize = 512;
/// Most bytes of payload that one call schedules or hands out, unless a single task has more.
pub const MAX_BATCH_BYTES: usize = 1024 * 1024;
/// Most bytes of a payload.
pub const MAX_PAYLOAD_BYTES: usize = 64 * 1024;
/// Most bytes of a reason.
pub const MAX_ERROR_BYTES: usize = 1_024;
/// Longest delay: a hundred years, milliseconds.
pub const MAX_DELAY_MS: i64 = 3_155_760_000_000;
/// Shortest lease, milliseconds.
pub const MIN_LEASE_MS: i64 = 100;
/// Longest lease, milliseconds.
pub const MAX_LEASE_MS: i64 = 3_600_000;
/// Attempts a task has, unless its queue says otherwise.
pub const DEFAULT_MAX_ATTEMPTS: u32 = 20;
/// Delay after the first failed attempt, milliseconds; it doubles with each.
pub const FIRST_RETRY_MS: i64 = 1_000;
/// Longest delay between attempts unless the caller says one, milliseconds.
pub const LONGEST_RETRY_MS: i64 = 3_600_000;
/// The largest `spread` of [`retry_delay_ms`].
pub const SPREAD: u16 = 400;
/// One of so many tasks of a claim is the newest due instead of the earliest, so that a pile does not hold up the rest.
pub const NEWEST_SHARE: usize = 8;

/// Checks a lease's length.
///
/// # Errors
/// [`TaskError::Lease`].
pub fn check_lease(lease_ms: i64) -> Result<(), TaskError> {
    if (MIN_LEASE_MS..=MAX_LEASE_MS).contains(&lease_ms) { Ok(()) } else { Err(TaskError::Lease) }
}

/// Whether a task that is there with `old` as its `due_at` gives way to one with `new`.
#[must_use]
pub fn replaces(condition: Condition, old: Millis, new: Millis) -> bool {
    match condition {
        Condition::Absent => false,
        Condition::Earlier => new < old,
        Condition::Later => new > old,
        Condition::Always => true,
    }
}

/// How long a task waits after its `attempt`th failure when nobody said: 1 s, doubling to 1 h, 20 % more or less by `spread`
/// (0 to [`SPREAD`]; 200 is neither), so that tasks that failed together do not come back together.
#[must_use]
pub fn retry_delay_ms(attempt: u32, spread: u16) -> i64 {
    let doublings = attempt.saturating_sub(1).min(12);
    let delay = (FIRST_RETRY_MS << doublings).min(LONGEST_RETRY_MS);
    delay * (800 + i64::from(spread.min(SPREAD))) / 1_000
}

/// How many tasks a claim of `max` may hand out together with one whose lease ran out unanswered after its `attempt`th
/// attempt: an eighth, then an eighth of that, and alone when the next attempt is its last. A task that kills its process
/// is soon alone, and takes nobody with it to the dead.
#[must_use]
pub fn batch_with_lapsed(max: usize, attempt: u32, max_attempts: u32) -> usize {
    if attempt.saturating_add(1) >= max_attempts {
        return 1;
    }
    let shift = attempt.saturating_mul(3).min(usize::BITS - 1);
    (max >> shift).max(1)
}

/// Whether a task may be what its holders die of: its lease ran out unanswered (`lapsed`), and that after its second
/// attempt at least, or before its last. Claims hand out few beside it ([`batch_with_lapsed`]), but a process may hold those
/// of several claims: it handles such a task when it holds nothing else.
#[must_use]
pub fn is_suspect(lapsed: bool, attempt: u32, max_attempts: u32) -> bool {
    lapsed && (attempt >= 2 || attempt.saturating_add(1) >= max_attempts)
}

/// How many of a claim of `max` are taken from the newest due when more are due than fit.
#[must_use]
pub fn newest_of(max: usize) -> usize {
    max / NEWEST_SHARE
}

/// The receipt after `last`, on a store whose clock says `now_us` (microseconds since 1970): receipts grow even if the
/// store forgot the last.
#[must_use]
pub fn next_receipt(last: u64, now_us: u64) -> u64 {
    (last + 1).max(now_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_and_end() {
        assert_eq!(retry_delay_ms(1, 200), 1_000);
        assert_eq!(retry_delay_ms(2, 200), 2_000);
        assert_eq!(retry_delay_ms(12, 200), 2_048_000);
        assert_eq!(retry_delay_ms(13, 200), LONGEST_RETRY_MS);
        assert_eq!(retry_delay_ms(u32::MAX, 200), LONGEST_RETRY_MS);
        assert_eq!(retry_delay_ms(1, 0), 800);
        assert_eq!(retry_delay_ms(1, u16::MAX), 1_200);
    }

    #[test]
    fn a_killer_is_soon_alone() {
        assert_eq!(batch_with_lapsed(512, 1, 20), 64);
        assert_eq!(batch_with_lapsed(512, 2, 20), 8);
        assert_eq!(batch_with_lapsed(512, 3, 20), 1);
        assert_eq!(batch_with_lapsed(512, 40, 100), 1);
        assert_eq!(batch_with_lapsed(4, 1, 20), 1);
        assert_eq!(batch_with_lapsed(512, 1, 2), 1, "its next attempt is its last");
    }

    #[test]
    fn one_death_is_no_suspicion_and_two_are() {
        assert!(!is_suspect(true, 1, 20) && is_suspect(true, 2, 20) && is_suspect(true, 19, 20));
        assert!(is_suspect(true, 1, 2), "its next attempt is its last");
        assert!(!is_suspect(false, 19, 20), "its handlers have said so");
    }

    #[test]
    fn receipts_only_grow() {
        assert_eq!(next_receipt(7, 3), 8);
        assert_eq!(next_receipt(0, 1_700_000_000_000_000), 1_700_000_000_000_000);
        assert_eq!(next_receipt(1_800_000_000_000_000, 1_700_000_000_000_000), 1_800_000_000_000_001);
    }
}
