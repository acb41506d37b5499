//! Why a cache has no answer.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::cache::{KeyError, RowVersion};

/// Why a call did not do what was asked. Everybody who waited for the same load gets the same error. Reads never fail
/// because of the store.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum CacheError {
    /// The load failed: the loader's own error, to be downcast; [`LoadFailed`] when another process loaded;
    /// [`LoaderPanicked`] when the loader panicked.
    Load(Arc<dyn StdError + Send + Sync>),
    /// Not within the reader's deadline, or the load took longer than its hard time limit.
    Timeout,
    /// Too many loads run or wait, and there is no older value to be had.
    Overloaded {
        /// Worth asking again after this.
        retry_after: Duration,
    },
    /// A loader asked its own cache for the key that it loads.
    Recursion,
    /// The store did not acknowledge a write. It may have been done; repeating it is safe. Reads never say this.
    Store(Arc<tidegate_backend::Error>),
    /// The caller's own transaction did not take an invalidation: roll it back.
    Database(Arc<tidegate_backend::Error>),
    /// The encoded key is longer than a cache takes.
    KeyTooLong(KeyError),
    /// The cache is being closed.
    Stopping,
    /// The row is older than a version that is known to be committed: the loader reads a replica that lags. A loader is
    /// told the floor, so that it can ask the primary.
    Behind {
        /// Known to be committed.
        floor: RowVersion,
        /// Loaded or put.
        version: RowVersion,
    },
    /// The options of a cache contradict each other.
    Configuration(String),
}

impl CacheError {
    /// Whether the same call may succeed later without any change.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Load(_)
                | Self::Timeout
                | Self::Overloaded { .. }
                | Self::Store(_)
                | Self::Stopping
                | Self::Behind { .. }
        )
    }

    /// The loader's own error, if it is an `E`.
    #[must_use]
    pub fn loader_error<E: StdError + 'static>(&self) -> Option<&E> {
        match self {
            Self::Load(error) => error.downcast_ref(),
            _ => None,
        }
    }

    pub(super) fn load(error: impl StdError + Send + Sync + 'static) -> Self {
        Self::Load(Arc::new(error))
    }

    pub(super) fn store(error: tidegate_backend::Error) -> Self {
        Self::Store(Arc::new(error))
    }
}

impl fmt::Display for CacheError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(error) => write!(f, "the load failed: {error}"),
            Self::Timeout => f.write_str("no answer in time; the load may go on, ask again"),
            Self::Overloaded { retry_after } => {
                write!(f, "too many loads run or wait; ask again in {} ms", retry_after.as_millis())
            }
            Self::Recursion => f.write_str("a loader must not ask its cache for the key that it loads"),
            Self::Store(error) => write!(f, "the cache's store did not acknowledge the write, repeat it: {error}"),
            Self::Database(error) => write!(f, "the transaction did not take the invalidation: {error}"),
            Self::KeyTooLong(error) => error.fmt(f),
            Self::Stopping => f.write_str("the cache is being closed"),
            Self::Behind { floor, version } => write!(
                f,
                "version {} of the row is older than the committed version {}; let the loader ask the primary",
                version.get(),
                floor.get()
            ),
            Self::Configuration(what) => f.write_str(what),
        }
    }
}

impl StdError for CacheError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Load(error) => Some(&**error),
            Self::Store(error) | Self::Database(error) => Some(&**error),
            Self::KeyTooLong(error) => Some(error),
            _ => None,
        }
    }
}

impl From<KeyError> for CacheError {
    fn from(error: KeyError) -> Self {
        Self::KeyTooLong(error)
    }
}

/// Another process' load failed: its words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadFailed {
    /// What its loader said, cut to 512 bytes.
    pub message: String,
    /// No process loads before this has passed.
    pub retry_after: Duration,
}

impl fmt::Display for LoadFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (loaded by another process; next try in {} ms)", self.message, self.retry_after.as_millis())
    }
}

impl StdError for LoadFailed {}

/// A loader's own time limit passed. Where it is a loader's error, or among the sources of one, other processes are told
/// [`CacheError::Timeout`] instead of [`LoadFailed`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadTimedOut;

impl fmt::Display for LoadTimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the load took too long")
    }
}

impl StdError for LoadTimedOut {}

impl LoadTimedOut {
    /// Most sources of an error that are looked at.
    const DEPTH: usize = 8;

    /// Whether it is behind `error`.
    pub(super) fn is_behind(error: &(dyn StdError + 'static)) -> bool {
        let mut looked_at = Some(error);
        for _ in 0..Self::DEPTH {
            match looked_at {
                Some(error) if error.is::<Self>() => return true,
                Some(error) => looked_at = error.source(),
                None => return false,
            }
        }
        false
    }
}

/// The loader panicked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoaderPanicked {
    /// What it said.
    pub message: String,
}

impl fmt::Display for LoaderPanicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the loader panicked: {}", self.message)
    }
}

impl StdError for LoaderPanicked {}
