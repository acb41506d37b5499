//! Whether a server may be used at all.

use tidegate_backend::{Error, ErrorKind, Result};

use super::failed;
use super::link::Link;
use super::options::Role;

/// The oldest version with the commands we use.
const OLDEST: (u32, u32) = (6, 2);

/// Checks every server that `link` leads to; whether any of them would evict keys that expire.
///
/// # Errors
/// [`ErrorKind::Configuration`]: it must not be used, and what to do about it.
pub(super) async fn usable(link: &Link, role: Role) -> Result<bool> {
    for info in link.info("server").await.map_err(failed)? {
        version(&info)?;
    }
    let mut evicts = false;
    for info in link.info("memory").await.map_err(failed)? {
        match role {
            Role::State => eviction(&info)?,
            Role::Cache => room(&info),
        }
        evicts |= evicts_expiring(&info);
    }
    Ok(evicts)
}

/// Whether any server that `link` leads to would evict keys that expire.
pub(super) async fn evicts(link: &Link) -> Result<bool> {
    Ok(link.info("memory").await.map_err(failed)?.iter().any(|info| evicts_expiring(info)))
}

/// A cache works under any policy. One that evicts nothing is right where deadlines lie beside it, and then `maxmemory` must
/// leave room for both: said once, as a note.
fn room(info: &str) {
    static TOLD: std::sync::Once = std::sync::Once::new();
    let bounded = field(info, "maxmemory").is_some_and(|bytes| bytes != "0");
    if bounded && field(info, "maxmemory_policy") == Some("noeviction") {
        TOLD.call_once(|| {
            tracing::info!(
                "the cache's server evicts nothing: with its memory full it would refuse to write. That is right beside \
                 deadlines, with a `maxmemory` that leaves room; a server that holds the cache alone may evict (allkeys-lru)"
            );
        });
    }
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

fn version(info: &str) -> Result<()> {
    // Valkey says which Redis it is compatible with.
    let text = field(info, "redis_version").unwrap_or_default();
    let mut parts = text.split('.').map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (parts.next(), parts.next()) else {
        tracing::warn!(version = text, "the server does not tell its version; Redis 6.2 or Valkey 7.2 is needed");
        return Ok(());
    };
    if (major, minor) < OLDEST {
        let why = format!("the server is Redis {text}; Redis 6.2 or Valkey 7.2 or newer is needed");
        return Err(Error::new(ErrorKind::Configuration, why));
    }
    Ok(())
}

/// Whether keys that have an end may go before it.
fn evicts_expiring(info: &str) -> bool {
    field(info, "maxmemory_policy").is_some_and(|policy| policy != "noeviction")
}

fn eviction(info: &str) -> Result<()> {
    match field(info, "maxmemory_policy") {
        Some(policy) if policy.starts_with("allkeys-") => Err(Error::new(
            ErrorKind::Configuration,
            format!(
                "the server's maxmemory-policy is {policy}: under pressure it would delete deadlines. Set `maxmemory-policy \
                 noeviction` (or volatile-..: none of these keys expires), or give Tidegate a server of its own"
            ),
        )),
        Some(_) => Ok(()),
        None => {
            tracing::warn!(
                "the server does not tell its maxmemory-policy; make sure that it is noeviction or volatile-.."
            );
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_policies() {
        for (text, ok) in [("6.2.0", true), ("7.0.15", true), ("10.0.1", true), ("6.0.16", false), ("?", true)] {
            assert_eq!(version(&format!("# Server\r\nredis_version:{text}\r\n")).is_ok(), ok, "{text}");
        }
        for (policy, ok) in [("noeviction", true), ("volatile-lru", true), ("allkeys-lru", false)] {
            assert_eq!(eviction(&format!("maxmemory_policy:{policy}\r\n")).is_ok(), ok, "{policy}");
        }
        for (policy, evicts) in [("noeviction", false), ("volatile-ttl", true), ("allkeys-lru", true)] {
            assert_eq!(evicts_expiring(&format!("maxmemory_policy:{policy}\r\n")), evicts, "{policy}");
        }
        assert!(!evicts_expiring(""));
        assert!(eviction("").is_ok() && version("").is_ok());
    }
}
