//! Which keys of Redis and Valkey take the most memory: [`look`], once, at every key of a server or a Cluster.
//!
//! A server is asked for its replication snapshot, which is read as it comes and costs it little but a fork; where it gives none, or has
//! no room for one, its keys are looked at by SCAN in small steps. The report says which way was taken, and why.

pub use tidegate_redis::bigkeys::{
    BigKey, BigKeysOptions, Histogram, Kind, MAX_PREFIXES, MAX_TOP, Pace, Progress, Report, Route, Sum, escaped,
};

use tidegate_backend::ErrorKind;

use crate::{Error, Result};

/// Looks at every key of what `url` names: `redis://`, `rediss://`, `redis-sentinel://`, `redis-cluster://`.
///
/// # Errors
/// [`Error::Configuration`]: the URL is wrong, the server does not let us in or has no such route. [`Error::Redis`]: a server does not
/// answer, or gives no snapshot where nothing else was asked for; the text says what to do.
pub async fn look(url: &str, options: &BigKeysOptions) -> Result<Report> {
    look_at_all(&[url.to_owned()], None, options).await
}

/// The same for what each of `urls` names, added up in one report. `authority` (PEM) is what TLS trusts instead of the system's.
///
/// # Errors
/// As [`look`], for the first of them that cannot be looked at.
pub async fn look_at_all(urls: &[String], authority: Option<&[u8]>, options: &BigKeysOptions) -> Result<Report> {
    tidegate_redis::bigkeys::big_keys_of(&servers(urls, authority)?, options).await.map_err(failed)
}

/// Whether what `urls` name can be looked at by `route`, as far as that is known at once: [`Route::KeySizes`] needs servers that keep
/// such sizes.
///
/// # Errors
/// As [`look`].
pub async fn allow(urls: &[String], authority: Option<&[u8]>, route: Route) -> Result<()> {
    tidegate_redis::bigkeys::allow(&servers(urls, authority)?, route).await.map_err(failed)
}

/// What `urls` name, with the authority that TLS trusts.
pub(crate) fn servers(urls: &[String], authority: Option<&[u8]>) -> Result<Vec<tidegate_redis::RedisOptions>> {
    let server = |url: &String| {
        let redis = tidegate_redis::RedisOptions::parse(url).map_err(failed)?;
        Ok(match authority {
            Some(pem) => redis.authority(pem),
            None => redis,
        })
    };
    urls.iter().map(server).collect()
}

/// Why servers cannot be looked at.
pub(crate) fn failed(e: tidegate_backend::Error) -> Error {
    match e.kind() {
        ErrorKind::Configuration => Error::Configuration(e.to_string()),
        _ => Error::Redis(e.to_string()),
    }
}
