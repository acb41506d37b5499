//! Which servers hold the keys, and the way to all of them.
//!
//! In a Cluster each is asked by a key of its own. The client's list of masters does not do: it changes only when a key is asked
//! for where it no longer lies, so it names a server that is gone for as long as nobody asks for one of its keys; and what names no
//! key goes to any server when the one that is meant is away.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use redis::Value;
use tidegate_backend::{Error, ErrorKind, Result};

use super::{Call, Connector};
use crate::keys::Keys;
use crate::reply;
use crate::scripts;

/// About how many keys a server looks at in one step.
const STEP: &str = "1000";
/// The cursor that a walk begins with, and ends with.
const START: &[u8] = b"0";
/// How often a walk through a server's keys begins anew because it has become another server.
const WALKS: usize = 3;
/// Most slots whose keys are remembered.
const MAX_PROBES: usize = 1_024;

/// A key in each slot that was needed: looking for one takes a millisecond.
#[derive(Debug, Default)]
pub(super) struct Probes(Mutex<HashMap<u16, Vec<u8>>>);

impl Probes {
    fn of(&self, name: &str, slot: u16) -> Vec<u8> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_PROBES {
            known.clear();
        }
        known.entry(slot).or_insert_with(|| Keys::new(name).in_slot(slot)).clone()
    }
}

/// The servers that hold keys.
#[derive(Debug)]
pub(crate) struct Holders {
    /// What tells each from every other, from itself before it was started again, and from itself before another had its place.
    pub(crate) ids: HashSet<Vec<u8>>,
    /// Whether all have answered.
    pub(crate) all: bool,
}

impl Connector {
    /// A key of every server that holds some; nothing is stored there.
    async fn a_key_of_each(&self) -> Result<Vec<Vec<u8>>> {
        let name = &self.options().name;
        if !self.is_cluster() {
            return Ok(vec![Keys::new(name).in_slot(0)]);
        }
        let masters = self.masters().await?;
        if masters.is_empty() {
            return Err(Error::new(ErrorKind::Unavailable, "no server of the Cluster holds keys"));
        }
        Ok(masters.iter().map(|master| self.shared.probes.of(name, master.slot)).collect())
    }

    /// Asks who holds the keys now.
    ///
    /// # Errors
    /// Nobody answers.
    pub(crate) async fn holders(&self) -> Result<Holders> {
        let keys = self.a_key_of_each().await?;
        let calls = keys.into_iter().map(|key| Call::script(&scripts::SERVER, vec![key], Vec::new()));
        let mut holders = Holders { ids: HashSet::new(), all: true };
        let mut failed = None;
        for answer in self.run(calls.collect()).await {
            match answer.and_then(|answer| Ok(reply::bytes(&answer)?.to_vec())) {
                Ok(id) => {
                    holders.ids.insert(id);
                }
                Err(e) => failed = Some(e),
            }
        }
        holders.all = failed.is_none();
        match failed {
            Some(e) if holders.ids.is_empty() => Err(e),
            _ => Ok(holders),
        }
    }

    /// A walk through every key that looks like `pattern`.
    ///
    /// # Errors
    /// Nobody says which servers there are.
    pub(crate) async fn walk(&self, pattern: Vec<u8>) -> Result<Walk<'_>> {
        let parts = self.a_key_of_each().await?;
        Ok(Walk { connector: self, pattern, parts, cursor: START.to_vec(), server: None, walks: 1 })
    }
}

/// A walk through the keys of all servers.
pub(crate) struct Walk<'a> {
    connector: &'a Connector,
    pattern: Vec<u8>,
    /// A key of each server that is not walked through yet; the last one is being walked through.
    parts: Vec<Vec<u8>>,
    cursor: Vec<u8>,
    /// Who gave the cursor: to every other it means something else.
    server: Option<Vec<u8>>,
    walks: usize,
}

impl Walk<'_> {
    /// Some more keys; `None`: that was all. A key may come more than once. One that a Cluster moves from one server to another
    /// meanwhile may be seen on neither.
    ///
    /// # Errors
    /// A server does not answer, or is replaced again and again.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<Value>>> {
        while let Some(part) = self.parts.last() {
            let arguments = vec![self.cursor.clone(), self.pattern.clone(), STEP.into()];
            let answer = self.connector.one(Call::script(&scripts::SCAN, vec![part.clone()], arguments)).await?;
            let [server, next, keys] = reply::parts::<3>(&answer)?;
            let server = reply::bytes(server)?;
            if self.server.get_or_insert_with(|| server.to_vec()) != server {
                if self.walks >= WALKS {
                    let why = "the Cluster's servers are being replaced; try again when it has settled";
                    return Err(Error::new(ErrorKind::Unavailable, why));
                }
                (self.cursor, self.server) = (START.to_vec(), None);
                self.walks += 1;
                continue;
            }
            self.cursor = reply::bytes(next)?.to_vec();
            if self.cursor == START {
                self.parts.pop();
                (self.server, self.walks) = (None, 1);
            }
            return Ok(Some(reply::list(keys)?.to_vec()));
        }
        Ok(None)
    }
}
