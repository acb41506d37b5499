//! What a server says of itself: the text of `INFO`.
//!
//! Fields are found by name, never by section: sections differ between versions. A field that is not there, that is no
//! number, or that counted below zero on the server (2^63 and above) is unknown, and nothing is judged by it.

use std::collections::BTreeSet;
use std::ops::Range;

/// Longest text that is read, bytes; what lies behind is unknown.
const MAX_TEXT: usize = 1 << 20;
/// Most fields of a text that are read.
const MAX_FIELDS: usize = 16_384;
/// Numbers from here on are counters that went below zero.
const UNDERFLOW: u64 = 1 << 63;

/// The fields of one `INFO` answer.
#[derive(Debug, Clone, Default)]
pub struct Info {
    text: String,
    /// Name and value of each, by name; of those with one name the first.
    fields: Vec<(Range<usize>, Range<usize>)>,
}

/// Which program serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Redis.
    Redis,
    /// Valkey.
    Valkey,
    /// Something that speaks their protocol and says so.
    Other,
}

impl Kind {
    /// Its name in answers.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Redis => "redis",
            Kind::Valkey => "valkey",
            Kind::Other => "other",
        }
    }
}

/// What a server is: its kind and its own version (not the version of Redis that Valkey says it is compatible with).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// The program.
    pub kind: Kind,
    /// Its version as it was written; empty where it says none.
    pub version: String,
    /// Major and minor version; `None` where they are no numbers.
    pub number: Option<(u32, u32)>,
}

/// One database of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keyspace {
    /// Its number.
    pub db: u32,
    /// Keys in it, expired ones that were not removed yet included.
    pub keys: u64,
    /// Of these, keys with a time to live.
    pub expires: u64,
}

/// A replica, as its master sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaSeen {
    /// `ip:port`.
    pub address: String,
    /// `online`, or how far its first copy is.
    pub state: String,
    /// What it has confirmed of the replication stream.
    pub offset: Option<u64>,
    /// Seconds since it last confirmed anything.
    pub lag: Option<u64>,
}

impl Info {
    /// Reads `text`. Every text can be read: lines that are no field are passed over.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut end = text.len().min(MAX_TEXT);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let text = text[..end].to_owned();
        let mut fields = Vec::with_capacity(256);
        let mut at = 0;
        for line in text.split('\n') {
            let begin = at;
            at += line.len() + 1;
            if line.starts_with('#') || fields.len() == MAX_FIELDS {
                continue;
            }
            // A value may have colons of its own.
            if let Some(colon) = line.find(':').filter(|colon| *colon > 0) {
                let value = line[colon + 1..].trim_end_matches('\r');
                let from = begin + colon + 1;
                fields.push((begin..begin + colon, from..from + value.len()));
            }
        }
        // Stable, so that of equal names the first stays.
        fields.sort_by(|(a, _), (b, _)| text[a.clone()].cmp(&text[b.clone()]));
        fields.dedup_by(|(later, _), (first, _)| text[later.clone()] == text[first.clone()]);
        Self { text, fields }
    }

    /// Whether it says nothing at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// A field as it was written.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        let at = self.fields.binary_search_by(|(field, _)| self.text[field.clone()].cmp(name)).ok()?;
        Some(&self.text[self.fields[at].1.clone()])
    }

    /// A whole number: bytes, a count, seconds. Numbers below zero and from 2^63 on are unknown.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        number(self.text(name)?)
    }

    /// A number with a point. One that is below zero, or no number of this world, is unknown.
    #[must_use]
    pub fn ratio(&self, name: &str) -> Option<f64> {
        let ratio: f64 = self.text(name)?.trim_end_matches('%').parse().ok()?;
        (ratio.is_finite() && (0.0..1e15).contains(&ratio)).then_some(ratio)
    }

    /// `1` or `yes`; `None` where it does not say.
    #[must_use]
    pub fn is_on(&self, name: &str) -> Option<bool> {
        match self.text(name)? {
            "1" | "yes" => Some(true),
            "0" | "no" => Some(false),
            _ => None,
        }
    }

    /// Fields whose names begin with `prefix`: what follows it, and the value.
    pub fn beginning<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let from = self.fields.partition_point(|(field, _)| &self.text[field.clone()] < prefix);
        self.fields[from..].iter().map_while(move |(name, value)| {
            self.text[name.clone()].strip_prefix(prefix).map(|rest| (rest, &self.text[value.clone()]))
        })
    }

    /// Which program answers, and its version.
    #[must_use]
    pub fn server(&self) -> Server {
        let is_valkey = self.text("valkey_version").is_some() || self.text("server_name") == Some("valkey");
        let (kind, version) = match (is_valkey, self.text("server_name")) {
            (true, _) => (Kind::Valkey, self.text("valkey_version").or(self.text("redis_version"))),
            (false, None | Some("redis")) if self.text("dragonfly_version").is_none() => {
                (Kind::Redis, self.text("redis_version"))
            }
            _ => (Kind::Other, self.text("redis_version")),
        };
        let version = version.unwrap_or_default().to_owned();
        let mut parts = version.split('.').map(str::parse::<u32>);
        let number = match (parts.next(), parts.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => Some((major, minor)),
            _ => None,
        };
        Server { kind, version, number }
    }

    /// The databases that have keys.
    pub fn keyspaces(&self) -> impl Iterator<Item = Keyspace> {
        self.beginning("db").filter_map(|(db, value)| {
            let db = db.parse().ok()?;
            Some(Keyspace { db, keys: part_number(value, "keys")?, expires: part_number(value, "expires")? })
        })
    }

    /// The replicas that a master knows.
    pub fn replicas(&self) -> impl Iterator<Item = ReplicaSeen> {
        self.beginning("slave").filter_map(|(at, value)| {
            at.parse::<u32>().ok()?;
            let state = part(value, "state")?.to_owned();
            let address = format!("{}:{}", part(value, "ip")?, part(value, "port")?);
            Some(ReplicaSeen { address, state, offset: part_number(value, "offset"), lag: part_number(value, "lag") })
        })
    }

    /// The same without those who only read a snapshot (`tidegate big-keys`, `redis-cli --rdb`) and leave: these have no port to be
    /// reached at. One that has two connections while it is copied to counts once.
    pub fn standing_replicas(&self) -> impl Iterator<Item = ReplicaSeen> {
        let mut seen = BTreeSet::new();
        self.replicas().filter(move |replica| !replica.address.ends_with(":0") && seen.insert(replica.address.clone()))
    }

    /// How often an error was answered, by its first word, such as `OOM`. Zero while it was not; `None` where the server
    /// counts none (before 6.2).
    #[must_use]
    pub fn errors(&self, word: &str) -> Option<u64> {
        match self.text(&format!("errorstat_{word}")) {
            Some(value) => part_number(value, "count"),
            None => self.number("total_error_replies").map(|_| 0),
        }
    }

    /// How often a command was called; zero while it was not. Only an answer with the section `commandstats` says so.
    #[must_use]
    pub fn calls(&self, command: &str) -> u64 {
        self.text(&format!("cmdstat_{command}")).and_then(|value| part_number(value, "calls")).unwrap_or_default()
    }

    /// Whether it is a replica; `None` where it does not say.
    #[must_use]
    pub fn is_replica(&self) -> Option<bool> {
        match self.text("role")? {
            "master" | "primary" => Some(false),
            "slave" | "replica" => Some(true),
            _ => None,
        }
    }
}

fn number(text: &str) -> Option<u64> {
    text.parse::<u64>().ok().filter(|number| *number < UNDERFLOW)
}

/// A part of a value such as `keys=3,expires=1`.
fn part<'a>(value: &'a str, name: &str) -> Option<&'a str> {
    value.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
}

fn part_number(value: &str, name: &str) -> Option<u64> {
    number(part(value, name)?)
}
