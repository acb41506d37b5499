//! Why a lock is not held.

use std::time::Duration;

use tidegate_core::id::IdError;

/// Why a lock is not held.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// The lock's name.
    #[error("the lock's name {0}")]
    Name(IdError),
    /// A time is out of its bounds.
    #[error("{what} must be {least:?} to {most:?}")]
    Time {
        /// Which.
        what: &'static str,
        /// The shortest.
        least: Duration,
        /// The longest.
        most: Duration,
    },
    /// The floor of the fence is above [`super::MAX_FLOOR`].
    #[error("the floor of the fence must be at most {}", super::MAX_FLOOR)]
    Floor,
    /// Another has it, and the caller did not want to wait.
    #[error("another holds the lock, for {retry_after:?} more at most unless it is renewed")]
    Held {
        /// What is left of the holder's time.
        retry_after: Duration,
    },
    /// Another has it still after the wait.
    #[error("another still holds the lock after the wait, for {retry_after:?} more at most unless it is renewed")]
    Timeout {
        /// What is left of the holder's time.
        retry_after: Duration,
    },
    /// Too many wait for it already.
    #[error("too many wait for the lock; come back later")]
    Crowded,
    /// The next fence would not be below 2^53: the lock is granted to nobody. Fences grow by one a grant, or follow the store's
    /// clock, so this comes of a clock or a floor that was far in the future; a store on Redis forgets the fences of a lock
    /// that nobody was granted for two days.
    #[error(
        "no fence is left for the lock: the next would not be below 2^53; use another name, or wait until the store has \
         forgotten its fences"
    )]
    Spent,
    /// The store does not answer: whether the lock is held is not known. What was granted meanwhile is given back.
    #[error("the store of the locks does not answer: {0}")]
    Unreachable(#[source] tidegate_backend::Error),
    /// It was granted, but not to so many replicas as were asked for ([`super::Ask::sync`]); it was given back.
    #[error("the grant reached {reached} of the {wanted} replicas that were asked for")]
    NotReplicated {
        /// How many were asked for.
        wanted: usize,
        /// How many have it.
        reached: usize,
    },
    /// It ran out, was taken or given back.
    #[error("the lock is lost: it ran out, was taken or given back")]
    Lost,
    /// The locks were closed.
    #[error("the locks are being closed")]
    Stopping,
}

impl From<IdError> for LockError {
    fn from(e: IdError) -> Self {
        Self::Name(e)
    }
}
