//! The outbox of a database that is no ledger: of a program that uses the cache and keeps its rows itself.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_backend::Result;

use crate::connect::{Address, Role};
use crate::pool::Pool;
use crate::{fault, migrate};

/// Connections of each kind: a relay works on one at a time, and callers ask for tickets beside it.
const CONNECTIONS: usize = 2;

/// The outbox in a database of a caller's own, for a relay of a cache: its table `tg_outbox`, and a few connections.
/// Any number of processes may have it open.
///
/// A ledger has one already: use the ledger's there.
pub struct SqlOutbox {
    /// Taken out by [`SqlOutbox::close`].
    parts: Mutex<Option<Arc<Parts>>>,
}

pub(crate) struct Parts {
    pub(crate) writes: Pool,
    pub(crate) reads: Pool,
    pub(crate) relays: Pool,
}

impl SqlOutbox {
    /// Connects to the database at `url` (`mysql://..`, `mariadb://..` or `postgres://..`, as for a ledger) and makes the
    /// table `tg_outbox` in its default schema if there is none. Where the program may not make tables, its owner runs
    /// `migrations/0002_outbox.*.sql` of this crate once.
    ///
    /// # Errors
    /// `ErrorKind::Configuration`: an address that cannot be used; `ErrorKind::Unavailable`: a server that cannot be
    /// reached, or does not allow it.
    pub async fn open(url: &str) -> Result<Arc<Self>> {
        let address = Address::parse(url)?;
        let pool = |role| Pool::new(address.clone(), role, CONNECTIONS);
        let (writes, reads, relays) = (pool(Role::Writer)?, pool(Role::Reader)?, pool(Role::Relay)?);
        migrate::outbox_alone(&mut *writes.get().await?).await?;
        Ok(Arc::new(Self { parts: Mutex::new(Some(Arc::new(Parts { writes, reads, relays }))) }))
    }

    pub(crate) fn parts(&self) -> Result<Arc<Parts>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or_else(fault::closed)
    }

    /// Closes the connections; calls after this fail. Close the caches first.
    pub fn close(&self) {
        if let Some(parts) = self.parts.lock().unwrap_or_else(PoisonError::into_inner).take() {
            [&parts.writes, &parts.reads, &parts.relays].into_iter().for_each(Pool::close);
        }
    }
}

impl fmt::Debug for SqlOutbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlOutbox").field("open", &self.parts().is_ok()).finish_non_exhaustive()
    }
}
