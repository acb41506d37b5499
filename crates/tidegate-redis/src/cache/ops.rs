//! Operations as commands, and what they answer.

use redis::Value;
use tidegate_backend::{CacheKey, Error, ErrorKind, Result};
use tidegate_core::cache::cell::{FAILURES_KEPT_MS, Holder, Notes, Op, Reply};
use tidegate_core::cache::entry::{self, EntryId, RowVersion};

use super::Inner;
use super::wire;
use crate::connect::Call;
use crate::reply;
use crate::scripts::{self, Script};

/// Longest entry, bytes: a payload of 16 MiB and all that stands before it.
pub(super) const MAX_ENTRY_BYTES: usize = 17 << 20;

fn decimal(number: i64) -> Vec<u8> {
    number.to_string().into_bytes()
}

fn version(version: Option<RowVersion>) -> Vec<u8> {
    version.map_or_else(Vec::new, |version| version.get().to_string().into_bytes())
}

/// What the entry must begin with, and the token of a refresh.
fn holder(holder: &Holder) -> [Vec<u8>; 2] {
    let token = match holder {
        Holder::Lease(_) => Vec::new(),
        Holder::Refresh { token, .. } => token.0.to_vec(),
    };
    [holder.prefix().to_vec(), token]
}

/// How many bytes of values `op` sends.
pub(super) fn weight(op: &Op) -> usize {
    match op {
        Op::Fill { bytes, .. } | Op::Put { bytes, .. } => bytes.len(),
        _ => 0,
    }
}

impl Inner {
    /// `op` as a command.
    ///
    /// # Errors
    /// [`ErrorKind::Command`]: its value is too long.
    pub(super) fn call(&self, key: &CacheKey, op: &Op) -> Result<Call> {
        let bytes = weight(op);
        if bytes > MAX_ENTRY_BYTES {
            let why =
                format!("an entry of {bytes} bytes is more than the {MAX_ENTRY_BYTES} that a cache stores in Redis");
            return Err(Error::new(ErrorKind::Command, why));
        }
        let keys = &self.keys;
        let slot = || keys.slot(key, key.schema);
        let refresher = || keys.refresher(key, key.schema);
        let all = || std::iter::once(keys.notes(key)).chain(keys.entries(key)).collect();
        let woken = || [self.woken.clone().into_bytes(), wire::woken(key)];
        let script = |script: &'static Script, keys, arguments| Ok(Call::script(script, keys, arguments));
        match op {
            Op::Lease { token, for_ms } => script(
                &scripts::CACHE_LEASE,
                vec![slot(), keys.notes(key)],
                vec![entry::lease(*token), decimal(*for_ms)],
            ),
            Op::Refresh { fill, token, for_ms } => {
                let arguments = vec![fill.value().to_vec(), token.0.to_vec(), decimal(*for_ms)];
                script(&scripts::CACHE_REFRESH, vec![slot(), refresher(), keys.notes(key)], arguments)
            }
            Op::Renew { holder: who, for_ms } => {
                let arguments = holder(who).into_iter().chain([decimal(*for_ms)]).collect();
                script(&scripts::CACHE_RENEW, vec![slot(), refresher()], arguments)
            }
            Op::Fill { holder: who, bytes, ttl_ms } => {
                let new = [bytes.to_vec(), decimal(*ttl_ms), version(entry::version_of(bytes))];
                let arguments = holder(who).into_iter().chain(new).chain(woken()).collect();
                script(&scripts::CACHE_FILL, vec![slot(), refresher(), keys.notes(key)], arguments)
            }
            Op::Release { holder: who } => {
                let arguments = holder(who).into_iter().chain(woken()).collect();
                script(&scripts::CACHE_RELEASE, vec![slot(), refresher()], arguments)
            }
            Op::Fail { holder: who, error, for_ms } => {
                let new = [error.to_vec(), decimal(*for_ms), decimal(FAILURES_KEPT_MS)];
                let arguments = holder(who).into_iter().chain(new).chain(woken()).collect();
                script(&scripts::CACHE_FAIL, vec![slot(), refresher(), keys.notes(key)], arguments)
            }
            Op::Put { bytes, ttl_ms, keep_floor_ms } => {
                let mut all: Vec<Vec<u8>> = all();
                // The slot that is written comes first.
                all.swap(1, 1 + (key.schema % tidegate_core::cache::SCHEMA_SLOTS) as usize);
                let new =
                    [bytes.to_vec(), decimal(*ttl_ms), version(entry::version_of(bytes)), decimal(*keep_floor_ms)];
                script(&scripts::CACHE_PUT, all, new.into_iter().chain(woken()).collect())
            }
            Op::Invalidate { floor: None, .. } => {
                let all: Vec<Vec<u8>> = keys.entries(key).collect();
                let rest: Vec<&[u8]> = all[1..].iter().map(Vec::as_slice).collect();
                Ok(Call::plain("UNLINK", &all[0], &rest))
            }
            Op::Invalidate { floor, keep_floor_ms } => {
                let arguments = [version(*floor), decimal(*keep_floor_ms)].into_iter().chain(woken()).collect();
                script(&scripts::CACHE_INVALIDATE, all(), arguments)
            }
        }
    }

    /// Raises the floor and does no more.
    pub(super) fn floor(&self, key: &CacheKey, floor: RowVersion, keep_ms: i64) -> Call {
        let arguments = vec![version(Some(floor)), decimal(keep_ms)];
        Call::script(&scripts::CACHE_FLOOR, vec![self.keys.notes(key)], arguments)
    }

    /// Deletes what is no cell's under the keys of `key`.
    pub(super) fn mend(&self, key: &CacheKey) -> Call {
        let keys = std::iter::once(self.keys.notes(key)).chain(self.keys.entries(key)).collect();
        Call::script(&scripts::CACHE_MEND, keys, Vec::new())
    }
}

/// What an operation's command answered.
pub(super) fn answer(value: Value) -> Result<Reply> {
    let parts = match value {
        // Of a plain delete.
        Value::Int(_) => return Ok(Reply::Held),
        Value::Array(parts) => parts,
        other => return Err(reply::strange(&other)),
    };
    let mut rest = parts.into_iter();
    let kind = rest.next().unwrap_or(Value::Nil);
    match reply::bytes(&kind)? {
        b"H" => Ok(Reply::Held),
        b"L" => Ok(Reply::Lost),
        b"Y" => Ok(Reply::Busy),
        b"P" => match rest.next() {
            Some(Value::BulkString(bytes)) => Ok(Reply::Present(bytes.into())),
            _ => Err(reply::strange(&kind)),
        },
        b"B" => number(rest.next()).and_then(RowVersion::new).map(Reply::Below).ok_or_else(|| reply::strange(&kind)),
        b"G" => {
            let floor = number(rest.next()).and_then(RowVersion::new);
            let failures = number(rest.next()).map_or(0, |failures| u32::try_from(failures).unwrap_or(u32::MAX));
            Ok(Reply::Granted(Notes { floor, failures }))
        }
        _ => Err(reply::strange(&kind)),
    }
}

fn number(value: Option<Value>) -> Option<u64> {
    u64::try_from(reply::integer(&value?).ok()?).ok()
}

/// A random id.
pub(super) fn random_id() -> EntryId {
    EntryId(uuid::Uuid::new_v4().into_bytes())
}
