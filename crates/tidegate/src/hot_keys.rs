//! Which keys of Redis and Valkey are read most: [`look`], over the last seconds.
//!
//! Redis 8.6 and newer counts itself, and is asked to for a while. For all others the processes that use Tidegate's cache tell what they
//! read, copies in process included, which no server could know. Nothing is ever asked with `MONITOR`, and no eviction policy is switched.

pub use tidegate_redis::bigkeys::escaped;
pub use tidegate_redis::hotkeys::{HotKey, HotKeysOptions, MAX_SECONDS, MAX_TOP, Report, Source};

use crate::{Result, big_keys};

/// Looks at what `url` names: `redis://`, `rediss://`, `redis-sentinel://`, `redis-cluster://`. Takes [`HotKeysOptions::seconds`] where the
/// servers count, else it is answered at once.
///
/// # Errors
/// [`Error::Configuration`](crate::Error::Configuration): the URL is wrong, or a server does not let us in. [`Error::Redis`](crate::Error::Redis): a server does not answer; the text says
/// what to do.
pub async fn look(url: &str, options: &HotKeysOptions) -> Result<Report> {
    look_at_all(&[url.to_owned()], None, options).await
}

/// The same for what each of `urls` names, added up in one report. `authority` (PEM) is what TLS trusts instead of the system's.
///
/// # Errors
/// As [`look`], for the first of them that cannot be looked at.
pub async fn look_at_all(urls: &[String], authority: Option<&[u8]>, options: &HotKeysOptions) -> Result<Report> {
    let redis = big_keys::servers(urls, authority)?;
    tidegate_redis::hotkeys::hot_keys_of(&redis, options).await.map_err(big_keys::failed)
}
