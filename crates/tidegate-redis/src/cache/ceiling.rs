//! What `tidegate bench cache` compares with: the client by itself, on the very connection of a cache; and how the bench
//! leaves nothing behind.

use std::fmt;
use std::sync::Arc;

use tidegate_backend::{Error, ErrorKind, Result};

use super::{Inner, RedisCache};
use crate::connect::{self, Bare, Call};
use crate::reply;

/// About how many keys the server looks at in one step.
const STEP: u32 = 1_000;

/// The client by itself.
#[derive(Clone)]
pub struct BareReads(Bare);

impl fmt::Debug for BareReads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BareReads").finish_non_exhaustive()
    }
}

impl BareReads {
    /// A `GET`, as one writes it with the client.
    ///
    /// # Errors
    /// The client's.
    pub async fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.0.ask(redis::cmd("GET").arg(key)).await.map_err(connect::failed)
    }

    /// An `MGET`, as one writes it with the client: in a Cluster it sends one for each slot, all at once.
    ///
    /// # Errors
    /// The client's.
    pub async fn get_many(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>> {
        self.0.ask(redis::cmd("MGET").arg(keys)).await.map_err(connect::failed)
    }
}

impl RedisCache {
    /// The client by itself, on the present connection of this cache.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`]: there is none.
    pub fn bare_reads(&self) -> Result<BareReads> {
        let bare = self.inner.connector.bare();
        bare.map(BareReads).ok_or_else(|| Error::new(ErrorKind::Unavailable, "there is no connection to Redis"))
    }

    /// Deletes everything in Redis under this cache's name, what its processes tell each other included: for names that
    /// were made up for one run.
    ///
    /// # Errors
    /// Redis does not do it; what is left expires by itself.
    pub async fn erase(&self) -> Result<()> {
        erase(&self.inner).await
    }
}

async fn erase(inner: &Arc<Inner>) -> Result<()> {
    let masters = inner.connector.masters().await?;
    let slots: Vec<Option<u16>> = if inner.connector.is_cluster() {
        masters.iter().map(|master| Some(master.slot)).collect()
    } else {
        vec![None]
    };
    for slot in slots {
        let mut cursor = b"0".to_vec();
        loop {
            let mut step = redis::cmd("SCAN");
            step.arg(&cursor).arg("MATCH").arg(inner.keys.everything()).arg("COUNT").arg(STEP);
            let answer = inner.connector.on_master(slot, step).await?;
            let [next, keys] = reply::parts::<2>(&answer)?;
            let keys: Result<Vec<&[u8]>> = reply::list(keys)?.iter().map(reply::bytes).collect();
            let calls = keys?.into_iter().map(|key| Call::plain("UNLINK", key, &[])).collect();
            inner.connector.run(calls).await.into_iter().try_for_each(|answer| answer.map(|_| ()))?;
            cursor = reply::bytes(next)?.to_vec();
            if cursor == b"0" {
                break;
            }
        }
    }
    Ok(())
}
