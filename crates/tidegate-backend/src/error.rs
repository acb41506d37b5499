//! The one error of every back end: a failure of the world, never a refusal of the rules.

use std::fmt;

/// What failed, as far as a caller can act on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The store cannot be reached or cannot write now (disk full, read-only, busy, I/O error). Nothing was changed;
    /// the same call may work later.
    Unavailable,
    /// One command of the batch cannot be written, though the store works. The batch was rolled back whole; its
    /// caller tries the commands in smaller batches.
    Command,
    /// The store's own data contradict each other or cannot be read.
    Corrupt,
    /// The store was written by a newer Tidegate.
    NewerSchema,
    /// Another process owns the store.
    Owned,
    /// The store and the start options do not fit (such as a manual clock without its flag).
    Configuration,
    /// A page cursor that this store never gave out.
    BadCursor,
    /// A bound of the store is reached, such as the number of queues. Nothing was changed; free something, or raise it.
    Limit,
}

/// A failure of a store, with what was being done.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    context: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
    advice: Option<&'static str>,
}

/// The result of every call across the seam.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of `kind`; `context` says what was being done and, where it helps, what to do.
    #[must_use]
    pub fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Self { kind, context: context.into(), source: None, advice: None }
    }

    /// The same, caused by `source`.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The same of a store that can be reached and said no: why, and what whoever runs it does about that. Anybody may read it.
    #[must_use]
    pub fn advise(mut self, advice: Option<&'static str>) -> Self {
        self.advice = advice;
        self
    }

    /// Why a store that can be reached does not do it, and what to do, where that is known.
    #[must_use]
    pub fn advice(&self) -> Option<&'static str> {
        self.advice
    }

    /// What failed.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What was being done.
    #[must_use]
    pub fn context(&self) -> &str {
        &self.context
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.context)?;
        if let Some(source) = &self.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|s| s as _)
    }
}
