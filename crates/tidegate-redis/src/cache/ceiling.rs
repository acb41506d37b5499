//! What `tidegate bench cache` compares with: the client by itself, on the very connection of a cache; and how the bench
//! leaves nothing behind.

use std::fmt;

use tidegate_backend::{Error, ErrorKind, Result};

use super::RedisCache;
use crate::connect::{self, Bare};

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
        self.inner.connector.erase().await
    }
}
