//! Why an origin gave nothing.

use std::error::Error as StdError;
use std::fmt;
use std::time::Instant;

use tidegate::cache::LoadTimedOut;

/// Why an origin gave nothing. Its words go to callers, also through other servers: they hold no address, no key and no
/// header.
#[derive(Debug)]
pub(crate) struct OriginError {
    pub(crate) why: Why,
    /// When this was known: who asked later made no call to the origin.
    pub(crate) at: Instant,
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Why {
    /// No whole answer in time.
    TooSlow(LoadTimedOut),
    /// Another status than a value's or an absence's.
    Status(u16),
    /// More than an answer may have: of the body, or of its head.
    TooLarge,
    /// A redirect to another host, or too many.
    Redirect(&'static str),
    /// Its address is not one that this namespace may ask.
    Closed,
    /// No connection, or no TLS.
    Unreachable,
    /// The connection was lost before the answer began.
    Lost,
    /// What came is not what was asked for.
    Malformed(&'static str),
}

impl OriginError {
    pub(crate) fn new(why: Why) -> Self {
        Self { why, at: Instant::now() }
    }

    pub(crate) fn too_slow() -> Self {
        Self::new(Why::TooSlow(LoadTimedOut))
    }

    /// For the metric's label.
    pub(crate) fn outcome(&self) -> &'static str {
        match self.why {
            Why::TooSlow(_) => "timeout",
            Why::Status(_) => "status",
            Why::TooLarge => "too-large",
            Why::Redirect(_) => "redirect",
            Why::Closed => "closed",
            Why::Unreachable => "unreachable",
            Why::Lost => "lost",
            Why::Malformed(_) => "malformed",
        }
    }
}

impl fmt::Display for OriginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.why {
            Why::TooSlow(_) => f.write_str("the origin gave no whole answer within load_timeout"),
            Why::Status(status) => write!(f, "the origin answered with the status {status}"),
            Why::TooLarge => f.write_str("the origin's answer is larger than a cache takes (16 MiB, headers 64 KiB)"),
            Why::Redirect(what) => write!(f, "the origin redirects {what}"),
            Why::Closed => f.write_str(
                "the origin has a private, loopback, link-local or otherwise not public address, and its namespace does not \
                 set allow_private",
            ),
            Why::Unreachable => f.write_str("the origin cannot be reached"),
            Why::Lost => f.write_str("the origin ended the connection before its answer, or answered no HTTP, or with more than 100 headers"),
            Why::Malformed(what) => write!(f, "the origin's answer {what}"),
        }
    }
}

impl StdError for OriginError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.why {
            Why::TooSlow(limit) => Some(limit),
            _ => None,
        }
    }
}
