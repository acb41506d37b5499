//! Opens a ledger: connections, schema, clock.

use std::sync::Arc;
use std::time::Duration;

use tidegate_backend::{Error, ErrorKind, LedgerId, Result};
use tidegate_core::Settings;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::clock::{LOOK, LOOK_MANUAL, SqlClock};
use crate::connect::{Address, Role};
use crate::dialect::Dialect;
use crate::fault::Fault;
use crate::options::SqlOptions;
use crate::pool::Pool;
use crate::session::Session;
use crate::{migrate, upkeep};

/// Most audits at once.
const AUDITS: usize = 2;
/// Most relays of the outbox at once.
const RELAYS: usize = 2;
/// Most commits at once; more wait for their turn, and then for a connection.
const COMMITS: u32 = 4_096;
/// Longest wait of `close` for the commits in flight.
const CLOSE_BOUND: Duration = Duration::from_secs(10);

/// Everything an open ledger is made of.
pub(crate) struct Parts {
    pub(crate) dialect: Dialect,
    pub(crate) id: LedgerId,
    pub(crate) writes: Pool,
    pub(crate) reads: Pool,
    pub(crate) audits: Pool,
    pub(crate) relays: Pool,
    pub(crate) clock: Arc<SqlClock>,
    pub(crate) settings: Settings,
    pub(crate) max_followees: usize,
    pub(crate) commits: Semaphore,
    /// Looks at the database's clock; ends with this.
    look: JoinHandle<()>,
}

impl Parts {
    /// Waits for the commits in flight, then closes every connection.
    pub(crate) async fn close(&self) {
        self.look.abort();
        // Those that take longer lose their connection's pool, not their answer.
        let _ = tokio::time::timeout(CLOSE_BOUND, self.commits.acquire_many(COMMITS)).await;
        self.commits.close();
        for pool in [&self.writes, &self.reads, &self.audits, &self.relays] {
            pool.close();
        }
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        self.look.abort();
    }
}

/// Opens the ledger at `options.url`.
pub(crate) async fn open(options: &SqlOptions) -> Result<Parts> {
    let address = Address::parse(&options.url)?;
    let dialect = address.dialect();
    let audits = Pool::new(address.clone(), Role::Audit, AUDITS)?;
    let mut session = audits.get().await?;
    let schema = migrate::run(&mut session, options.create).await?;
    if schema > migrate::NEWEST {
        let text = format!(
            "the ledger has schema {schema} and this Tidegate knows schemas up to {}; start the newer Tidegate that wrote it, or restore a backup from before the upgrade",
            migrate::NEWEST
        );
        return Err(Error::new(ErrorKind::NewerSchema, text));
    }
    check_durability(&mut session).await?;
    let id = upkeep::ledger_id(&mut session).await?;
    let wanted = (!options.stored_clock).then_some(options.manual_clock);
    let clock = match upkeep::manual_clock(&mut session, wanted).await? {
        Some(at) => SqlClock::manual(at),
        None => SqlClock::server(upkeep::instant(&mut session).await?),
    };
    let clock = Arc::new(clock);
    // Once more on the connection that is warm now: the first answer may have been slow.
    clock.read(&mut session).await?;
    drop(session);
    let reads = Pool::new(address.clone(), Role::Reader, options.pool_size.clamp(1, 256))?;
    Ok(Parts {
        dialect,
        id,
        relays: Pool::new(address.clone(), Role::Relay, RELAYS)?,
        writes: Pool::new(address, Role::Writer, options.writers.clamp(1, 64))?,
        look: tokio::spawn(look(clock.clone(), reads.clone())),
        reads,
        audits,
        clock,
        settings: options.settings,
        max_followees: options.max_followees,
        commits: Semaphore::new(COMMITS as usize),
    })
}

/// Keeps the node's idea of the ledger's clock fresh while nothing is committed.
async fn look(clock: Arc<SqlClock>, reads: Pool) {
    let pause = if clock.is_manual() { LOOK_MANUAL } else { LOOK };
    loop {
        tokio::time::sleep(pause).await;
        let looked = async { clock.read(&mut *reads.get().await?).await };
        if let Err(fault) = looked.await {
            // The estimate runs on; whoever reads or commits reports the database.
            tracing::debug!(%fault, "the ledger's clock could not be read");
        }
    }
}

/// MySQL decides for all sessions whether a commit is synced, so all that can be done is to say so.
async fn check_durability(session: &mut Session) -> std::result::Result<(), Fault> {
    if session.dialect() != Dialect::MySql {
        return Ok(());
    }
    let row = session.one("SELECT CAST(@@innodb_flush_log_at_trx_commit AS SIGNED)", &[]).await?;
    if row.map(|r| r.int(0)).transpose()? != Some(1) {
        tracing::warn!(
            "innodb_flush_log_at_trx_commit is not 1: a crash of the database can lose orders that were confirmed; set it to 1"
        );
    }
    Ok(())
}
