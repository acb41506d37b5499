//! Which keys are read most: [`hot_keys`].
//!
//! - `native.rs`: what a server itself counts (`HOTKEYS`, Redis 8.6 and newer; experimental).
//! - `told.rs`: what the processes that use Tidegate count of their own reads, copies in process included, and keep on the server.
//!
//! Nothing is ever asked with `MONITOR`, and no eviction policy is switched.

mod native;
mod told;

use std::time::Duration;

use tidegate_backend::Result;
use tidegate_core::hot::{MAX_REPORTED, WINDOW_MS, WINDOWS};

use crate::bigkeys::server;
use crate::connect::RedisOptions;

pub(crate) use self::told::tell;

/// Most keys that are listed.
pub const MAX_TOP: usize = MAX_REPORTED;
/// The longest time that is looked at, seconds.
pub const MAX_SECONDS: u32 = (WINDOW_MS * WINDOWS as i64 / 1_000) as u32;

/// What is looked for.
#[derive(Debug, Clone)]
pub struct HotKeysOptions {
    /// The last so many seconds, 1 to [`MAX_SECONDS`]; of what processes tell, whole windows of two seconds. A server that counts itself
    /// is watched for as long.
    pub seconds: u32,
    /// Keys that are listed, 1 to [`MAX_TOP`].
    pub top: usize,
}

impl Default for HotKeysOptions {
    fn default() -> Self {
        Self { seconds: 10, top: 20 }
    }
}

/// Who counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The servers, by the time that commands took.
    Native,
    /// The processes that use Tidegate, by reads.
    Sketch,
}

impl Source {
    /// As `/v1/redis/hot-keys` calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Sketch => "sketch",
        }
    }
}

/// A key that is read often.
#[derive(Debug, Clone, PartialEq)]
pub struct HotKey {
    /// Its name in Redis.
    pub name: Vec<u8>,
    /// Its part of everything that was counted, 0 to 1.
    pub share: f64,
    /// Reads a second; unknown where the server counts time.
    pub per_second: Option<f64>,
    /// There may have been so many more, a second.
    pub error: Option<f64>,
    /// What the server spent on it, microseconds a second; known where the server counts.
    pub cpu_us_per_second: Option<f64>,
    /// What it is for, if it is Tidegate's.
    pub purpose: Option<&'static str>,
}

/// What was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Who counted.
    pub source: Source,
    /// Over how long.
    pub seconds: f64,
    /// Processes that told what they read; 0 where the server counts.
    pub processes: usize,
    /// The hottest, the hottest first.
    pub items: Vec<HotKey>,
    /// Why this way, and what is not known.
    pub notes: Vec<String>,
}

/// Looks which keys of the servers that `redis` names are read most, as [`hot_keys_of`].
///
/// # Errors
/// As [`hot_keys_of`].
pub async fn hot_keys(redis: &RedisOptions, options: &HotKeysOptions) -> Result<Report> {
    hot_keys_of(std::slice::from_ref(redis), options).await
}

/// Looks which keys of the servers that `all` name are read most: by what the servers count, where all of them do, else by what
/// processes tell. The latter is answered at once, the former takes [`HotKeysOptions::seconds`].
///
/// # Errors
/// [`tidegate_backend::ErrorKind::Unavailable`]: a server does not answer. [`tidegate_backend::ErrorKind::Configuration`]: it does not let
/// us in.
pub async fn hot_keys_of(all: &[RedisOptions], options: &HotKeysOptions) -> Result<Report> {
    let options = HotKeysOptions { seconds: options.seconds.clamp(1, MAX_SECONDS), top: options.top.clamp(1, MAX_TOP) };
    let mut servers = Vec::new();
    for redis in all {
        servers.extend(server::of(redis).await?);
    }
    let mut notes = Vec::new();
    if let Some(report) = native::look(&mut servers, &options, &mut notes).await? {
        return Ok(Report { notes, ..report });
    }
    told::look(&mut servers, &options, notes).await
}

/// What `HOTKEYS` may be asked to go on for.
fn span(options: &HotKeysOptions) -> Duration {
    Duration::from_secs(u64::from(options.seconds))
}
