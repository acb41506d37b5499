//! Where Redis is, and how to be let in.

use std::fmt;
use std::time::Duration;

use tidegate_backend::{Error, ErrorKind, Result};

const REDIS_PORT: u16 = 6_379;
const SENTINEL_PORT: u16 = 26_379;
/// Longest name of a shop's keys.
const MAX_NAME_BYTES: usize = 64;
const FORMS: &str = "redis://[user:password@]host[:port][/database], redis-sentinel://[user:password@]host[:port],..\
                     /service[/database] or redis-cluster://[user:password@]host[:port],.. (rediss.. for TLS)";

/// One address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) port: u16,
}

impl Host {
    /// As messages name it: `host:port`.
    pub(crate) fn address(&self) -> String {
        if self.name.contains(':') {
            format!("[{}]:{}", self.name, self.port)
        } else {
            format!("{}:{}", self.name, self.port)
        }
    }
}

/// Who finds the server that holds a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mode {
    /// One server.
    Standalone(Host),
    /// The master that sentinels name.
    Sentinel { hosts: Vec<Host>, service: String, login: Login },
    /// The masters of a Cluster, learnt from any of these.
    Cluster(Vec<Host>),
}

/// A name and a password; never shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.password.is_some() { "Login(..)" } else { "Login(none)" })
    }
}

/// Where Redis or Valkey is and how to be let in, from a URL:
///
/// - `redis://[user:password@]host[:port][/database]`: one server; port 6379 and database 0 unless given;
/// - `redis-sentinel://[user:password@]host[:port],host[:port]../service[/database]`: the master that these sentinels
///   (port 26379 unless given) name for `service`; `?sentinel_user=..&sentinel_password=..` when they ask who is asking;
/// - `redis-cluster://[user:password@]host[:port],host[:port]..`: a Cluster, learnt from any of these nodes.
///
/// `rediss://`, `rediss-sentinel://` and `rediss-cluster://` are the same over TLS. `%XX` stands for a byte in users and
/// passwords; `:password@` alone logs in as the default user. Neither `Debug` nor any error shows a password.
#[derive(Debug, Clone)]
pub struct RedisOptions {
    pub(crate) mode: Mode,
    pub(crate) login: Login,
    pub(crate) database: i64,
    pub(crate) tls: bool,
    pub(crate) authority: Option<Vec<u8>>,
    pub(crate) name: String,
    pub(crate) response_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) role: Role,
}

/// What a server is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// What must not be lost while the server runs.
    State,
    /// What may be lost at any time.
    Cache,
}

impl Role {
    /// The store's name in metrics and messages.
    pub(crate) fn store(self) -> &'static str {
        match self {
            Role::State => "redis",
            Role::Cache => "redis-cache",
        }
    }
}

fn wrong(why: impl fmt::Display) -> Error {
    Error::new(ErrorKind::Configuration, format!("the Redis URL {why}; it must look like {FORMS}"))
}

impl RedisOptions {
    /// Reads `url`.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`]: what is wrong in it (never the password).
    pub fn parse(url: &str) -> Result<Self> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("has no scheme"))?;
        let (tls, kind) = match scheme.strip_prefix("rediss") {
            Some(kind) => (true, kind),
            None => (false, scheme.strip_prefix("redis").ok_or_else(|| wrong("has another scheme"))?),
        };
        if tls && !cfg!(feature = "tls") {
            return Err(wrong("asks for TLS, which this build lacks (its feature `tls`)"));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (login, rest) = match rest.rsplit_once('@') {
            Some((login, rest)) => (login_of(login)?, rest),
            None => (Login::default(), rest),
        };
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (mode, database) = mode_of(kind, hosts, path, query)?;
        Ok(Self {
            mode,
            login,
            database,
            tls,
            authority: None,
            name: "shop".to_owned(),
            response_timeout: Duration::from_millis(500),
            connect_timeout: Duration::from_secs(1),
            role: Role::State,
        })
    }

    /// What the keys' names begin with, so that several shops share a Redis: 1..=64 of `A-Z a-z 0-9 . _ -`; `shop` unless
    /// set.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`] when the name has other characters.
    pub fn name(mut self, name: &str) -> Result<Self> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(allowed) {
            let why = format!("the name of a shop's keys in Redis must be 1..={MAX_NAME_BYTES} of A-Z a-z 0-9 . _ -");
            return Err(Error::new(ErrorKind::Configuration, why));
        }
        name.clone_into(&mut self.name);
        Ok(self)
    }

    /// How long an answer may take (500 ms unless set). Every command ends within it, whatever the server does.
    #[must_use]
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout;
        self
    }

    /// How long a connection attempt may take (1 s unless set).
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Which server, for messages.
    pub(crate) fn address(&self) -> String {
        let of = |host: &Host| format!("{}:{}", host.name, host.port);
        match &self.mode {
            Mode::Standalone(host) => of(host),
            Mode::Sentinel { service, .. } => service.clone(),
            Mode::Cluster(hosts) => hosts.iter().map(of).collect::<Vec<_>>().join(","),
        }
    }

    /// Whether `other` names a server or a set that this names: the same server, service, or a node of the same Cluster, as far as
    /// the URLs say. Who is let in and which database it is makes no other server.
    #[must_use]
    pub fn names_same(&self, other: &Self) -> bool {
        let shares = |ours: &[Host], theirs: &[Host]| ours.iter().any(|host| theirs.contains(host));
        match (&self.mode, &other.mode) {
            (Mode::Standalone(ours), Mode::Standalone(theirs)) => ours == theirs,
            (Mode::Cluster(ours), Mode::Cluster(theirs)) => shares(ours, theirs),
            (
                Mode::Sentinel { hosts: ours, service: our_service, .. },
                Mode::Sentinel { hosts: theirs, service: their_service, .. },
            ) => our_service == their_service && shares(ours, theirs),
            _ => false,
        }
    }

    /// Trusts the authority in `pem` instead of the system's.
    #[must_use]
    pub fn authority(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.authority = Some(pem.into());
        self
    }
}

fn mode_of(kind: &str, hosts: &str, path: &str, query: &str) -> Result<(Mode, i64)> {
    match kind {
        "" => {
            no_query(query)?;
            let [host] = &hosts_of(hosts, REDIS_PORT)?[..] else { return Err(wrong("names several servers")) };
            Ok((Mode::Standalone(host.clone()), database_of(path)?))
        }
        "-sentinel" => {
            let (service, database) = path.split_once('/').unwrap_or((path, ""));
            if service.is_empty() {
                return Err(wrong("names no service for the sentinels"));
            }
            let mut login = Login::default();
            for pair in query.split('&').filter(|pair| !pair.is_empty()) {
                match pair.split_once('=') {
                    Some(("sentinel_user", user)) => login.user = Some(decoded(user)?),
                    Some(("sentinel_password", word)) => login.password = Some(decoded(word)?),
                    _ => return Err(wrong("has a parameter other than sentinel_user and sentinel_password")),
                }
            }
            let hosts = hosts_of(hosts, SENTINEL_PORT)?;
            Ok((Mode::Sentinel { hosts, service: decoded(service)?, login }, database_of(database)?))
        }
        "-cluster" if !cfg!(feature = "cluster") => Err(wrong("asks for a Cluster, which this build lacks")),
        "-cluster" => {
            no_query(query)?;
            if database_of(path)? != 0 {
                return Err(wrong("names a database, which a Cluster does not have"));
            }
            Ok((Mode::Cluster(hosts_of(hosts, REDIS_PORT)?), 0))
        }
        _ => Err(wrong("has another scheme")),
    }
}

fn no_query(query: &str) -> Result<()> {
    if query.is_empty() { Ok(()) } else { Err(wrong("has parameters")) }
}

fn database_of(path: &str) -> Result<i64> {
    let path = path.trim_end_matches('/');
    if path.is_empty() {
        return Ok(0);
    }
    let database = path.parse::<u16>().map_err(|_| wrong("has a database that is not a number"))?;
    Ok(i64::from(database))
}

fn hosts_of(text: &str, default_port: u16) -> Result<Vec<Host>> {
    text.split(',').map(|host| host_of(host, default_port)).collect()
}

fn host_of(text: &str, default_port: u16) -> Result<Host> {
    // `[::1]:6379`
    let (name, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (name, port) = rest.split_once(']').ok_or_else(|| wrong("has a `[` without `]`"))?;
            (name, port.strip_prefix(':'))
        }
        None => text.rsplit_once(':').map_or((text, None), |(name, port)| (name, Some(port))),
    };
    if name.is_empty() {
        return Err(wrong("has an empty host"));
    }
    let port = match port {
        None => default_port,
        Some(port) => port.parse().map_err(|_| wrong("has a port that is not a number below 65536"))?,
    };
    Ok(Host { name: name.to_owned(), port })
}

fn login_of(text: &str) -> Result<Login> {
    let (user, password) = text.split_once(':').ok_or_else(|| wrong("has a user without a password"))?;
    let user = if user.is_empty() { None } else { Some(decoded(user)?) };
    Ok(Login { user, password: Some(decoded(password)?) })
}

fn decoded(text: &str) -> Result<String> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        if *byte == b'%' {
            let hex = text.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok());
            out.push(hex.ok_or_else(|| wrong("has a `%` that is not followed by two hexadecimal digits"))?);
            at += 3;
        } else {
            out.push(*byte);
            at += 1;
        }
    }
    String::from_utf8(out).map_err(|_| wrong("has bytes that are not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, port: u16) -> Host {
        Host { name: name.to_owned(), port }
    }

    #[test]
    fn urls() {
        let o = RedisOptions::parse("redis://ann:p%40ss:w@h:1/3").unwrap();
        assert_eq!((o.mode, o.database, o.tls), (Mode::Standalone(host("h", 1)), 3, false));
        assert_eq!(o.login, Login { user: Some("ann".into()), password: Some("p@ss:w".into()) });
        let o = RedisOptions::parse("rediss://:w@[::1]").unwrap();
        assert_eq!((o.mode, o.tls), (Mode::Standalone(host("::1", 6_379)), true));
        assert_eq!(o.login, Login { user: None, password: Some("w".into()) });
        let o = RedisOptions::parse("redis-sentinel://a,b:7/shop/2?sentinel_password=s").unwrap();
        let login = Login { user: None, password: Some("s".into()) };
        let hosts = vec![host("a", 26_379), host("b", 7)];
        assert_eq!((o.mode, o.database), (Mode::Sentinel { hosts, service: "shop".into(), login }, 2));
        let o = RedisOptions::parse("redis-cluster://a:1,b:2/").unwrap();
        assert_eq!(o.mode, Mode::Cluster(vec![host("a", 1), host("b", 2)]));
    }

    #[test]
    fn urls_that_name_the_same() {
        let same = |ours: &str, theirs: &str| {
            RedisOptions::parse(ours).unwrap().names_same(&RedisOptions::parse(theirs).unwrap())
        };
        for (ours, theirs) in [
            ("redis://h", "redis://ann:w@h:6379/3"),
            ("redis-sentinel://a,b/shop", "redis-sentinel://b,c/shop/2"),
            ("redis-cluster://a,b", "redis-cluster://b"),
        ] {
            assert!(same(ours, theirs) && same(theirs, ours), "{ours} {theirs}");
        }
        for (ours, theirs) in [
            ("redis://h", "redis://h:6380"),
            ("redis-sentinel://a,b/shop", "redis-sentinel://a,b/cart"),
            ("redis-cluster://a,b", "redis-cluster://c"),
            ("redis-cluster://a", "redis://a"),
        ] {
            assert!(!same(ours, theirs), "{ours} {theirs}");
        }
    }

    #[test]
    fn wrong_urls_say_what_is_wrong_and_no_secret() {
        for (url, want) in [
            ("h:1", "no scheme"),
            ("http://h", "another scheme"),
            ("redis-x://h", "another scheme"),
            ("redis://u:topsecret@h:x", "port"),
            ("redis://u:topsecret@", "empty host"),
            ("redis://topsecret@h", "without a password"),
            ("redis://u:topsecret%zz@h", "hexadecimal"),
            ("redis://u:topsecret@a,b", "several"),
            ("redis://h/x", "database"),
            ("redis://h?x=topsecret", "parameters"),
            ("redis-sentinel://h", "no service"),
            ("redis-sentinel://h/s?x=topsecret", "parameter other"),
            ("redis-cluster://h/1", "a Cluster does not have"),
        ] {
            let e = RedisOptions::parse(url).unwrap_err().to_string();
            assert!(e.contains(want) && !e.contains("topsecret"), "{url}: {e}");
        }
        let o = RedisOptions::parse("redis-sentinel://u:topsecret@h/s?sentinel_password=topsecret").unwrap();
        assert!(!format!("{o:?}").contains("topsecret"), "{o:?}");
        assert!(o.clone().name("a b").is_err() && o.clone().name("").is_err() && o.name("shop-1.eu").is_ok());
    }
}
