//! What a server is started with, and its bounds.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::origins::Namespace;
use crate::redis::RedisWatch;

/// What a server is started with.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Where to listen. Without tokens only a loopback address is accepted.
    pub listen: SocketAddr,
    /// Who may call. Empty: everybody who can reach the loopback address.
    pub tokens: Vec<Token>,
    /// Whether `POST /v1/admin/clock` exists.
    pub manual_clock: bool,
    /// The server's bounds.
    pub limits: Limits,
    /// What it answers.
    pub surface: Surface,
    /// The namespaces of `/v1/cache`, at most [`MAX_NAMESPACES`](crate::MAX_NAMESPACES). A process that only does
    /// background work makes none of them.
    pub namespaces: Vec<Namespace>,
    /// What `/v1/redis` shows; `None`: 404 `no-redis`.
    pub redis: Option<RedisWatch>,
}

/// What a server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Surface {
    /// The whole API and its pages.
    #[default]
    Whole,
    /// `/healthz`, `/readyz` and `/metrics` alone: a process that does background work.
    Probes,
}

/// A token of the configuration: kept as a hash, never as itself.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// Whose it is, for the log.
    pub name: String,
    /// [`hash_token`] of it.
    pub sha256: [u8; 32],
    /// What it may do.
    pub role: Role,
}

/// Without the hash: of a token that somebody made up it tells enough to guess it.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("name", &self.name).field("role", &self.role).finish_non_exhaustive()
    }
}

/// What a token may do; each role may do what those before it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Read orders, stock, events and metrics.
    Read,
    /// Also place, pay, cancel, extend and fulfil orders and settle refunds.
    Shop,
    /// Everything: SKUs, adjustments, refunds by hand, parked orders, administration.
    Ops,
}

impl Role {
    /// Its name in the configuration and in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Role::Read => "read",
            Role::Shop => "shop",
            Role::Ops => "ops",
        }
    }
}

/// The SHA-256 of a token, as [`Token::sha256`] wants it.
#[must_use]
pub fn hash_token(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// The server's bounds. Every queue, wait and size has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once. When all are taken the longest idle ones are closed. Default: three quarters of the
    /// process's descriptors, at most 16,384; an idle one costs 1.3 KiB before its first request and 12 KiB after.
    pub max_connections: usize,
    /// From the first byte of a request's head to its end; then 408. Default 10 s.
    pub header_read_timeout: Duration,
    /// Largest request line and headers, bytes; beyond it 431. Default 32 KiB.
    pub max_header_bytes: usize,
    /// Longest pause in a request's body; then 408. Default 10 s.
    pub body_idle_timeout: Duration,
    /// For a request's whole body, and again for its answer from the ledger. Default 30 s.
    pub request_timeout: Duration,
    /// Longest time a client may leave an answer unread while it is being sent; then the connection is closed. Default 20 s.
    pub write_stall_timeout: Duration,
    /// Longest pause between requests of a connection. Default 75 s.
    pub keep_alive_timeout: Duration,
    /// Bytes of large bodies (over 64 KiB) that are in memory at once; beyond it 503 `overloaded`. Default 64 MiB.
    pub body_budget_bytes: usize,
    /// Bytes of large answers of `/v1/cache` (over 64 KiB) that are being sent at once, each value once however many get
    /// it; beyond it 503 `overloaded`. Default 256 MiB.
    pub answer_budget_bytes: usize,
    /// Event streams at once; beyond it 503 `overloaded`. Default 1,000.
    pub max_event_streams: usize,
    /// Claims and requests for locks that wait at once; beyond it 503 `overloaded`. Default 2,000.
    pub max_long_polls: usize,
    /// The longest a lock is granted for. Default a day.
    pub max_lock_ttl: Duration,
    /// At stop, how long idle connections are kept to answer a late request with 503 `stopping`. Default 250 ms.
    pub stop_notice: Duration,
    /// At stop, how long requests that were begun may take to end. Default 4 s.
    pub stop_patience: Duration,
}

/// Most connections by default, whatever the process's descriptors would allow.
const DEFAULT_CONNECTIONS: u64 = 16_384;

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_connections: connections_for_descriptors(),
            header_read_timeout: Duration::from_secs(10),
            max_header_bytes: 32 << 10,
            body_idle_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(30),
            write_stall_timeout: Duration::from_secs(20),
            keep_alive_timeout: Duration::from_secs(75),
            body_budget_bytes: 64 << 20,
            answer_budget_bytes: 256 << 20,
            max_event_streams: 1_000,
            max_long_polls: 2_000,
            max_lock_ttl: Duration::from_millis(tidegate::lock::MAX_TTL_MS.unsigned_abs()),
            stop_notice: Duration::from_millis(250),
            stop_patience: Duration::from_secs(4),
        }
    }
}

fn connections_for_descriptors() -> usize {
    let descriptors =
        rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(DEFAULT_CONNECTIONS * 2);
    usize::try_from((descriptors / 4 * 3).clamp(16, DEFAULT_CONNECTIONS)).unwrap_or(16)
}

/// Why a server could not start or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The address can be reached from elsewhere and nobody needs a token.
    #[error(
        "refusing to listen on {0} without tokens: anybody who can reach it could place and cancel orders; \
         configure a token (`tidegate token` makes one) or listen on 127.0.0.1"
    )]
    OpenToAll(SocketAddr),
    /// The manual clock is for tests on the same machine.
    #[error(
        "refusing to listen on {0} with a manual clock: it is for tests; listen on 127.0.0.1 or leave out --manual-clock"
    )]
    ManualClockInTheOpen(SocketAddr),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; choose another address with --listen")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// A bound is out of its range.
    #[error("{name} is {value}; it must be from {min} to {max}")]
    Limit {
        /// The bound's name.
        name: &'static str,
        /// Its value.
        value: usize,
        /// The least it may be.
        min: usize,
        /// The most it may be.
        max: usize,
    },
    /// Two tokens are the same.
    #[error("the tokens {0:?} and {1:?} are the same; make a token of its own for each caller with `tidegate token`")]
    SameToken(String, String),
    /// A namespace of `/v1/cache` cannot be made.
    #[error("[cache.namespace]: {0}")]
    Namespaces(String),
    /// Another metrics recorder is installed in this process.
    #[error(
        "the process has another metrics recorder already; install Tidegate's first, or do not call install_metrics"
    )]
    Recorder,
}

fn milliseconds(time: Duration) -> usize {
    usize::try_from(time.as_millis()).unwrap_or(usize::MAX)
}

impl Limits {
    /// Refuses bounds that could not work.
    pub(crate) fn check(&self) -> Result<(), ServerError> {
        let bounds = [
            ("max_connections", self.max_connections, 2, 1 << 20),
            ("max_header_bytes", self.max_header_bytes, 1 << 10, 1 << 20),
            ("body_budget_bytes", self.body_budget_bytes, 8 << 20, 1 << 40),
            ("answer_budget_bytes", self.answer_budget_bytes, 32 << 20, 1 << 40),
            ("max_event_streams", self.max_event_streams, 0, 1 << 20),
            ("max_long_polls", self.max_long_polls, 0, 1 << 20),
            ("max_lock_ttl (milliseconds)", milliseconds(self.max_lock_ttl), 100, 86_400_000),
        ];
        match bounds.into_iter().find(|(_, value, min, max)| !(*min..=*max).contains(value)) {
            Some((name, value, min, max)) => Err(ServerError::Limit { name, value, min, max }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_keeps_its_hash_to_itself() {
        let token = Token { name: "web".to_owned(), sha256: [83; 32], role: Role::Shop };
        let told = format!("{token:?}");
        assert!(told.contains("web") && !told.contains("83"), "{told}");
    }
}
