//! What the configuration says of a namespace and its origin, checked.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use reqwest::Url;
use tidegate::cache::Ttl;
use tidegate::core::cache::products::NAMESPACE as PRODUCTS;

use super::client::OriginClient;
use super::template::Template;

/// Most namespaces of a server.
pub const MAX_NAMESPACES: usize = 64;
/// Most headers of an origin.
const MAX_HEADERS: usize = 32;
/// Longest value of a header, bytes.
const MAX_HEADER_BYTES: usize = 8_192;
/// Headers that the connection or the cache decides.
const RESERVED: &[&str] = &[
    "accept-encoding",
    "connection",
    "content-length",
    "expect",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "range",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Where a namespace's values come from: a URL with a place for the key, and what is sent along.
#[derive(Clone)]
pub struct Origin {
    template: Template,
    headers: HeaderMap,
    allow_private: bool,
}

impl Origin {
    /// The origin at `url`, such as `https://catalogue.example/items/{key}?lang=en`. `{key}` stands in the path or the query,
    /// 1 to 8 times, and nowhere else. `allow_private`: also connect to addresses that are not public.
    ///
    /// # Errors
    /// What the URL must be; never the URL itself, which may hold a secret.
    pub fn new(url: &str, allow_private: bool) -> Result<Self, String> {
        Ok(Self { template: Template::parse(url)?, headers: HeaderMap::new(), allow_private })
    }

    /// Sends this header along, at most 32 of them. The value is a secret: it is never shown or logged.
    ///
    /// # Errors
    /// What is wrong with the name or the value; never the value itself.
    pub fn header(mut self, name: &str, value: &str) -> Result<Self, String> {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| "is no name of a header".to_owned())?;
        if RESERVED.contains(&name.as_str()) {
            return Err("is decided by the connection or the cache; leave it out".to_owned());
        }
        if self.headers.len() == MAX_HEADERS {
            return Err(format!("is one header too many: at most {MAX_HEADERS} are sent"));
        }
        if self.headers.contains_key(&name) {
            return Err("is given twice; keep one of them".to_owned());
        }
        let value = HeaderValue::from_str(value).ok().filter(|value| value.len() <= MAX_HEADER_BYTES);
        let mut value = value.ok_or_else(|| format!("must be visible ASCII of at most {MAX_HEADER_BYTES} bytes"))?;
        value.set_sensitive(true);
        self.headers.insert(name, value);
        Ok(self)
    }

    pub(super) fn url(&self, key: &str) -> Option<Url> {
        self.template.url(key)
    }

    pub(super) fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    pub(super) fn base(&self) -> &str {
        self.template.base()
    }

    pub(super) fn is_https(&self) -> bool {
        self.template.is_https()
    }

    pub(super) fn allows_private(&self) -> bool {
        self.allow_private
    }

    /// Whether its host is written as an address that `client` will not ask.
    pub(super) fn is_closed(&self, client: &OriginClient) -> bool {
        self.url("k").is_some_and(|url| client.refuses(&url))
    }
}

/// Without the headers' values and the rest of the URL, which may be secrets.
impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.headers.keys().map(HeaderName::as_str).collect();
        f.debug_struct("Origin")
            .field("base", &self.template.base())
            .field("headers", &names)
            .field("allow_private", &self.allow_private)
            .finish_non_exhaustive()
    }
}

/// A namespace of `/v1/cache`. [`tidegate::cache::CacheBuilder`] says what each setting means.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Namespace {
    /// Its name, see [`check_namespace_name`].
    pub name: String,
    /// Where its values come from.
    pub origin: Origin,
    /// 60 s unless set.
    pub fresh_for: Ttl,
    /// 10 min unless set.
    pub stale_for: Option<Ttl>,
    /// 5 s unless set.
    pub absent_for: Option<Ttl>,
    /// 0.1 unless set.
    pub jitter: f64,
    /// 1.0 unless set.
    pub early_refresh: f64,
    /// 16 unless set: a quarter of what all caches of a process may load at once, so that one origin that hangs leaves room
    /// for the others.
    pub load_budget: usize,
    /// No bound unless set.
    pub load_rate: Option<NonZeroU32>,
    /// 10 s unless set; a tenth of it is the soft one.
    pub load_timeout: Duration,
    /// 256 KiB unless set.
    pub max_value: usize,
    /// 60 s unless set; `None`: no copies in process. The namespaces that have them share equally what other caches have left of
    /// the process' memory for copies.
    pub local_for: Option<Ttl>,
}

impl Namespace {
    /// The namespace `name` of `origin`.
    #[must_use]
    pub fn new(name: impl Into<String>, origin: Origin) -> Self {
        Self {
            name: name.into(),
            origin,
            fresh_for: Ttl::seconds::<60>(),
            stale_for: Some(Ttl::seconds::<600>()),
            absent_for: Some(Ttl::seconds::<5>()),
            jitter: 0.1,
            early_refresh: 1.0,
            load_budget: 16,
            load_rate: None,
            load_timeout: Duration::from_secs(10),
            max_value: 256 << 10,
            local_for: Some(Ttl::seconds::<60>()),
        }
    }
}

/// Whether a namespace may have this name: 1 to 64 of `a-z 0-9 . _ -`, and not one that Tidegate's own caches have.
///
/// # Errors
/// What it must be.
pub fn check_namespace_name(name: &str) -> Result<(), String> {
    let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b);
    if !(1..=64).contains(&name.len()) || !name.bytes().all(good) {
        return Err("must be 1 to 64 of a-z 0-9 . _ -".to_owned());
    }
    if name == "." || name == ".." {
        return Err("must not be . or .., which clients take out of paths".to_owned());
    }
    if name == PRODUCTS || name.starts_with("tidegate") {
        return Err("is the name of a cache of Tidegate's own; take another (not products, not tidegate..)".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_headers_are_checked() {
        for (name, good) in [
            ("items", true),
            (".", false),
            ("..", false),
            ("a.b_c-9", true),
            ("", false),
            ("Items", false),
            ("a/b", false),
            ("products", false),
            ("tidegate.x", false),
        ] {
            assert_eq!(check_namespace_name(name).is_ok(), good, "{name}");
        }
        assert!(check_namespace_name(&"x".repeat(65)).is_err());
        let origin = || Origin::new("http://h/{key}", false).expect("an origin");
        for (name, value, want) in [
            ("Host", "x", "is decided by"),
            ("transfer-encoding", "x", "is decided by"),
            ("Content-Length", "1", "is decided by"),
            ("CONNECTION", "close", "is decided by"),
            ("a b", "x", "is no name"),
            ("x", "sesame\r\nopen: 1", "must be visible ASCII"),
            ("x", &"s".repeat(9_000), "must be visible ASCII"),
        ] {
            let refused = origin().header(name, value).err().unwrap_or_else(|| panic!("{name} is taken"));
            assert!(refused.starts_with(want) && !refused.contains("sesame"), "{name}: {refused}");
        }
        let origin = origin().header("Authorization", "Bearer sesame").expect("a header");
        assert!(origin.clone().header("authorization", "x").is_err(), "twice");
        let shown = format!("{origin:?} {:?} {:?}", origin.headers, Namespace::new("x", origin.clone()));
        assert!(!shown.contains("sesame"), "{shown}");
        let full = (0..32).try_fold(Origin::new("http://h/{key}", false).expect("an origin"), |origin, n| {
            origin.header(&format!("x-{n}"), "v")
        });
        assert!(full.expect("32 headers").header("x", "v").is_err());
    }
}
