//! What answers and errors say about a connection.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use redis::{ErrorKind as Kind, RedisError, ServerErrorKind as Server};
use tidegate_backend::ErrorKind;

/// Silent answers in a row after which a connection is given up.
const MAX_TIMEOUTS: u32 = 3;
/// Most keys under watch: one for each partition that fails, and some.
const MAX_FAILING: usize = 256;

/// What an answer says about its connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Symptom {
    /// It works.
    None,
    /// It was silent, or asked for patience: so once is nothing.
    Slow(String),
    /// It is cut off, or leads to a server that may not write: it must be replaced.
    Lost(String),
}

pub(super) fn is_no_script(e: &RedisError) -> bool {
    e.kind() == Kind::Server(Server::NoScript)
}

pub(super) fn symptom(e: &RedisError) -> Symptom {
    match e.kind() {
        _ if e.is_timeout() => Symptom::Slow("it does not answer in time".to_owned()),
        Kind::Server(Server::ReadOnly) => Symptom::Lost("it has become a replica".to_owned()),
        Kind::Extension if refuses_to_write(e) => {
            Symptom::Lost(format!("it refuses to write ({})", e.code().unwrap_or_default()))
        }
        Kind::Server(Server::MasterDown) => Symptom::Lost("it has lost its master".to_owned()),
        Kind::Server(Server::BusyLoading) => Symptom::Slow("it is loading its data".to_owned()),
        // A slot on its way from one server to another: both work, and only the caller knows what to do without its keys.
        Kind::Server(Server::TryAgain | Server::Ask) => Symptom::None,
        Kind::Server(Server::ClusterDown | Server::Moved) => {
            Symptom::Slow("the Cluster is rearranging itself".to_owned())
        }
        Kind::ClusterConnectionNotFound => Symptom::Slow("a node of the Cluster cannot be reached".to_owned()),
        Kind::Io => Symptom::Lost(format!("the connection is lost ({e})")),
        _ if e.is_connection_dropped() || e.is_unrecoverable_error() => {
            Symptom::Lost(format!("the connection is lost ({e})"))
        }
        // Refused as it stands, by a server that works.
        _ => Symptom::None,
    }
}

/// The same of a server that holds a cache: while it refuses to write (its memory is full, it cannot save) it may be read.
pub(super) fn of_a_cache(e: &RedisError) -> Symptom {
    if refuses_to_write(e) { Symptom::None } else { symptom(e) }
}

/// Whether a server that works says that it writes nothing now.
pub(super) fn refuses_to_write(e: &RedisError) -> bool {
    matches!(e.code(), Some("OOM" | "MISCONF" | "NOREPLICAS"))
}

/// Why a server that answers does not do it, and what to do about that.
pub(super) fn advice(e: &RedisError) -> Option<&'static str> {
    match e.code() {
        Some("OOM") => Some(
            "Redis is full and takes nothing that adds to it (OOM): give it more memory (`maxmemory`), or remove what it need not keep",
        ),
        Some("MISCONF") => Some(
            "Redis cannot save to its disk and therefore takes no writes (MISCONF): its log says why; mostly the disk is full",
        ),
        Some("NOREPLICAS") => Some(
            "Redis has too few replicas and therefore takes no writes (NOREPLICAS): start them, or lower `min-replicas-to-write`",
        ),
        _ if is_wrong_type(e) => Some(
            "a key of Tidegate's in Redis is of another type (WRONGTYPE), so another program wrote it: delete that key (what was in it \
             is lost), and give each program a name or a database of its own",
        ),
        _ => None,
    }
}

fn is_wrong_type(e: &RedisError) -> bool {
    // The second is how servers before 7.0 say it of a script.
    e.code() == Some("WRONGTYPE") || e.to_string().contains("WRONGTYPE")
}

/// What to do about an error that no waiting mends.
pub(super) fn next(e: &RedisError) -> Option<&'static str> {
    const LOGIN: &str = "check user and password in the store's URL";
    if e.kind() == Kind::AuthenticationFailed || matches!(e.code(), Some("WRONGPASS" | "NOAUTH")) {
        return Some(LOGIN);
    }
    let words = e.to_string();
    let has = |part: &str| words.contains(part);
    if has("refused to switch database") && (has("out of range") || has("invalid DB index") || has("not allowed")) {
        Some(
            "check the database's number at the end of the store's URL: a server has 16 (`databases`), a Cluster only 0",
        )
    } else if has("cluster support disabled") {
        Some("the server is no Cluster: write redis:// instead of redis-cluster://")
    } else if has("unknown command") && has("SENTINEL") {
        Some("the server is no sentinel: name the sentinels (their port is mostly 26379), or write redis://")
    } else {
        None
    }
}

/// Whether nothing was heard of a server, as opposed to words that it said.
pub(super) fn is_unreached(e: &RedisError) -> bool {
    e.is_timeout() || e.is_connection_dropped() || matches!(e.kind(), Kind::Io | Kind::ClusterConnectionNotFound)
}

/// What a caller can do about it.
pub(super) fn kind(e: &RedisError) -> ErrorKind {
    match e.kind() {
        Kind::AuthenticationFailed
        | Kind::InvalidClientConfig
        | Kind::RESP3NotSupported
        | Kind::Server(Server::NoPerm) => ErrorKind::Configuration,
        _ if next(e).is_some() => ErrorKind::Configuration,
        _ if is_wrong_type(e) => ErrorKind::Corrupt,
        Kind::UnexpectedReturnType | Kind::Parse => ErrorKind::Corrupt,
        _ => ErrorKind::Unavailable,
    }
}

#[derive(Debug, Default)]
struct Suspect {
    key: Vec<u8>,
    failures: u32,
}

/// Keys whose holder does not answer: in a Cluster one master may be gone while the others work.
#[derive(Debug, Default)]
pub(super) struct Failing {
    any: AtomicBool,
    suspects: Mutex<HashMap<Vec<u8>, Suspect>>,
}

impl Failing {
    fn lock(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Suspect>> {
        self.suspects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes an answer; says why when the connection must be replaced.
    pub(super) fn note(&self, key: &[u8], symptom: Symptom, cluster: bool) -> Option<String> {
        if symptom == Symptom::None {
            // Most answers, and no lock for them.
            if self.any.load(Ordering::Acquire) {
                let mut suspects = self.lock();
                suspects.remove(tag(key, cluster));
                self.any.store(!suspects.is_empty(), Ordering::Release);
            }
            return None;
        }
        let mut suspects = self.lock();
        if suspects.len() >= MAX_FAILING && !suspects.contains_key(tag(key, cluster)) {
            return None;
        }
        let suspect = suspects.entry(tag(key, cluster).to_vec()).or_default();
        key.clone_into(&mut suspect.key);
        suspect.failures = suspect.failures.saturating_add(1);
        let failures = suspect.failures;
        self.any.store(true, Ordering::Release);
        match symptom {
            Symptom::Lost(why) => Some(why),
            Symptom::Slow(why) => (failures >= MAX_TIMEOUTS).then_some(why),
            Symptom::None => None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Acquire)
    }

    /// A key of each of them.
    pub(super) fn keys(&self) -> Vec<Vec<u8>> {
        self.lock().values().map(|suspect| suspect.key.clone()).collect()
    }

    pub(super) fn clear(&self) {
        let mut suspects = self.lock();
        suspects.clear();
        self.any.store(false, Ordering::Release);
    }
}

/// A key that lies where `key` does, for trying whether that server writes.
pub(super) fn probe_key(key: &[u8]) -> Vec<u8> {
    [b"{", tag(key, true), b"}:probe"].concat()
}

/// What decides who holds a key.
pub(super) fn tag(key: &[u8], cluster: bool) -> &[u8] {
    if !cluster {
        return b"";
    }
    let tagged = key.iter().position(|b| *b == b'{').and_then(|from| {
        let length = key[from + 1..].iter().position(|b| *b == b'}')?;
        (length > 0).then(|| &key[from + 1..from + 1 + length])
    });
    tagged.unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_silences_in_a_row_are_too_many() {
        let failing = Failing::default();
        let slow = || Symptom::Slow("slow".to_owned());
        assert_eq!(failing.note(b"{a}x", slow(), true), None);
        assert_eq!(failing.note(b"{a}y", slow(), true), None);
        assert_eq!(failing.note(b"{b}x", slow(), true), None);
        assert_eq!(failing.note(b"{a}x", slow(), true).as_deref(), Some("slow"));
        failing.note(b"{a}z", Symptom::None, true);
        assert_eq!(failing.keys(), [b"{b}x".to_vec()]);
        assert_eq!(failing.note(b"{a}x", slow(), true), None);
        assert_eq!(failing.note(b"{a}x", Symptom::Lost("lost".to_owned()), true).as_deref(), Some("lost"));
        failing.clear();
        assert!(failing.is_empty());
        assert_eq!(
            (tag(b"a{b}c", true), tag(b"a{}c", true), tag(b"a{b}c", false)),
            (&b"b"[..], &b"a{}c"[..], &b""[..])
        );
    }
}
