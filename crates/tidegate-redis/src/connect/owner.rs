//! Whose a name is: one ledger's, with one number of partitions. Two ledgers under one name would claim each other's
//! orders, and nodes that divide the index in different ways would not find each other's deadlines.
//!
//! The first node writes down what it is; every node compares on each new connection, before its first command, and with
//! each heartbeat. The number of partitions may change while no node is there: what the index held is deleted then.

use redis::Value;
use tidegate_backend::{Error, ErrorKind, LedgerId, Result};

use super::link::Link;
use super::{Call, failed};
use crate::keys::{Keys, MAX_PARTITIONS};
use crate::reply;
use crate::scripts;

/// Who uses a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) ledger: LedgerId,
    pub(crate) partitions: usize,
}

impl Owner {
    /// As Redis holds it.
    pub(crate) fn to_text(self) -> String {
        format!("{} {}", self.ledger, self.partitions)
    }

    /// What another text than [`Owner::to_text`] under `name` means.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`], always: what to do about it.
    pub(crate) fn compare(self, name: &str, there: &str) -> Result<()> {
        if there == self.to_text() {
            return Ok(());
        }
        let (ledger, partitions) = there.split_once(' ').unwrap_or((there, "?"));
        let why = if ledger == self.ledger.to_string() {
            let own = self.partitions;
            format!(
                "other nodes of this ledger have divided the index in Redis into {partitions} partitions, this one is told {own}: set \
                 `[redis] partitions` (TIDEGATE_REDIS_PARTITIONS) to {partitions}; to change it for all, stop every node first"
            )
        } else {
            format!(
                "the name {name:?} in this Redis belongs to another ledger (number {ledger}; this one has {}): set `[redis] name` \
                 (TIDEGATE_REDIS_NAME) to a name that no other ledger uses; if that ledger is gone for good, delete the keys that \
                 begin with {{tg:{name}}} or {{tg:{name}:",
                self.ledger
            )
        };
        Err(Error::new(ErrorKind::Configuration, why))
    }

    /// Takes the name, or finds that this ledger has it already.
    ///
    /// # Errors
    /// As [`Owner::compare`]; [`ErrorKind::Unavailable`] when the server does not answer.
    pub(super) async fn take(self, link: &Link, name: &str) -> Result<()> {
        let keys = Keys::new(name);
        let (there, alone) = self.ask(link, &keys, "").await?;
        let same_ledger = there.split_once(' ').is_some_and(|(ledger, _)| ledger == self.ledger.to_string());
        if there == self.to_text() || !same_ledger || !alone {
            return self.compare(name, &there);
        }
        // Deadlines lie where the old number put them, and the marks say that none is missing.
        let all = (0..MAX_PARTITIONS).flat_map(|partition| keys.partition(partition));
        for answer in link.run(all.map(|key| Call::plain("UNLINK", &key, &[]).command(false)).collect()).await {
            answer.map_err(failed)?;
        }
        let (there, _) = self.ask(link, &keys, &there).await?;
        if there == self.to_text() {
            tracing::info!(partitions = self.partitions, "the index is divided anew and is filled again");
        }
        self.compare(name, &there)
    }

    /// What is there now, and whether no node is; `instead_of` is replaced if it is there and no node is.
    async fn ask(self, link: &Link, keys: &Keys, instead_of: &str) -> Result<(String, bool)> {
        let arguments = vec![self.to_text().into_bytes(), instead_of.as_bytes().to_vec()];
        let call = Call::script(&scripts::OWNER, vec![keys.owner(), keys.nodes()], arguments);
        let answer = link.run(vec![call.command(true)]).await.pop().expect("one answer a call").map_err(failed)?;
        let [there, nodes] = reply::parts::<2>(&answer)?;
        Ok((text(there)?, reply::integer(nodes)? == 0))
    }
}

/// What [`Owner::compare`] wants to know.
pub(crate) fn text(value: &Value) -> Result<String> {
    Ok(String::from_utf8_lossy(reply::bytes(value)?).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_to_do() {
        let own = Owner { ledger: LedgerId(7), partitions: 16 };
        assert!(own.compare("shop", "0000000000000007 16").is_ok());
        for (there, words) in [
            ("0000000000000007 8", ["into 8 partitions", "`[redis] partitions`", "stop every node first"]),
            ("00000000000000ff 16", ["number 00000000000000ff", "`[redis] name`", "{tg:shop}"]),
            ("nonsense", ["another ledger", "`[redis] name`", "TIDEGATE_REDIS_NAME"]),
        ] {
            let refused = own.compare("shop", there).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Configuration);
            let told = refused.to_string();
            assert!(words.iter().all(|word| told.contains(word)), "{told}");
        }
    }
}
