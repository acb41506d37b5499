//! What locks count.

use metrics::counter;

pub(super) fn granted() {
    counter!("tidegate_lock_granted_total").increment(1);
}

pub(super) fn lost() {
    counter!("tidegate_lock_lost_total").increment(1);
}

pub(super) fn timeout() {
    counter!("tidegate_lock_timeouts_total").increment(1);
}

pub(super) fn stale() {
    counter!("tidegate_lock_stale_total").increment(1);
}
