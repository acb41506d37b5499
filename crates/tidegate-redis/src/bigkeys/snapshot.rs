//! The snapshot route: asks a server for its data as a new replica would, reads the snapshot as it comes, and goes away.

use std::io;
use std::sync::Arc;

use super::collect::{Collector, Seen};
use super::rdb::{self, RdbError};
use super::weight::Model;
use super::wire::{Until, Wire, is_stop};
use super::{Pace, Progress};
use crate::connect::{Host, RedisOptions};

/// What `gentle` reads a second, bytes.
const GENTLE: u64 = 40 << 20;
/// How many keys are counted at once.
const COUNTED: u64 = 256;

/// Why there is no snapshot.
#[derive(Debug)]
pub(super) enum NoSnapshot {
    /// The server does not give one to us.
    Refused(String),
    /// It broke off, or is not to be used.
    Failed(RdbError),
    /// The time is over, or nobody waits any more.
    Stopped,
}

impl NoSnapshot {
    pub(super) fn why(&self) -> String {
        match self {
            NoSnapshot::Refused(why) => why.clone(),
            NoSnapshot::Failed(e) => e.to_string(),
            NoSnapshot::Stopped => "the time was over before the snapshot was read".to_owned(),
        }
    }
}

/// What a snapshot is asked for with.
pub(super) struct Ask {
    pub(super) host: Host,
    pub(super) options: RedisOptions,
    /// The version of a Valkey.
    pub(super) valkey: Option<String>,
    pub(super) model: Model,
    pub(super) pace: Pace,
    pub(super) until: Until,
    pub(super) progress: Arc<Progress>,
}

fn refused(what: &str, answer: &str) -> NoSnapshot {
    let answer: String = answer.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect();
    NoSnapshot::Refused(format!("{what}: {answer}"))
}

fn broken(e: io::Error) -> NoSnapshot {
    if is_stop(&e) { NoSnapshot::Stopped } else { NoSnapshot::Failed(RdbError::Read(e)) }
}

/// Reads the snapshot and counts every key of it in `into`. It takes a thread until it is done.
pub(super) fn read(ask: &Ask, mut into: Collector) -> Result<(rdb::Snapshot, Collector), NoSnapshot> {
    let mut wire = Wire::open(&ask.host, &ask.options, ask.until.clone()).map_err(broken)?;
    begin(ask, &mut wire).map_err(broken)??;
    if ask.pace == Pace::Gentle {
        wire.slow_down(GENTLE);
    }
    let (mut keys, mut bytes) = (0, 0);
    let read = rdb::read(&mut wire, &ask.model, |key| {
        into.add(&Seen {
            database: key.database,
            name: key.name,
            name_length: key.name_length,
            kind: key.kind,
            encoding: Some(key.encoding),
            elements: key.elements,
            weight: key.weight,
            expires_at: key.expires_at,
        });
        (keys, bytes) = (keys + 1, bytes + key.weight.map_or(0, |weight| weight.bytes));
        if keys % COUNTED == 0 {
            ask.progress.add(COUNTED, std::mem::take(&mut bytes));
        }
    });
    // Before anything of what comes behind the snapshot piles up for us.
    wire.close();
    ask.progress.add(keys % COUNTED, bytes);
    match read {
        Ok(snapshot) => Ok((snapshot, into)),
        Err(RdbError::Read(e)) => Err(broken(e)),
        Err(e) => Err(NoSnapshot::Failed(e)),
    }
}

/// Goes in, and asks; what comes next is the snapshot.
fn begin(ask: &Ask, wire: &mut Wire) -> io::Result<Result<(), NoSnapshot>> {
    let login = &ask.options.login;
    if let Some(password) = &login.password {
        let user = login.user.as_deref();
        let words: Vec<&[u8]> = [Some("AUTH"), user, Some(password)].into_iter().flatten().map(str::as_bytes).collect();
        let answer = wire.ask(&words)?;
        if answer != "+OK" {
            return Ok(Err(refused("AUTH", &answer)));
        }
    }
    let answer = wire.ask(&[b"REPLCONF", b"capa", b"eof", b"capa", b"psync2"])?;
    if answer != "+OK" {
        return Ok(Err(refused("REPLCONF", &answer)));
    }
    // We want nothing of what is written after the snapshot; a server that does not know this piles it up until we hang up.
    wire.ask(&[b"REPLCONF", b"rdb-only", b"1"])?;
    // Valkey gives one whose version it does not know an older snapshot, or none.
    if let Some(version) = &ask.valkey {
        wire.ask(&[b"REPLCONF", b"version", version.as_bytes()])?;
    }
    let answer = wire.ask(&[b"PSYNC", b"?", b"-1"])?;
    if !answer.starts_with("+FULLRESYNC") {
        return Ok(Err(refused("PSYNC", &answer)));
    }
    // `$length`, or `$EOF:` and what stands behind the snapshot: it says itself where it ends.
    let answer = wire.line()?;
    let is_length = answer.strip_prefix('$').is_some_and(|length| length.parse::<u64>().is_ok());
    if !is_length && !answer.starts_with("$EOF:") {
        return Ok(Err(refused("PSYNC", &answer)));
    }
    Ok(Ok(()))
}
