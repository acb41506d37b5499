//! Opens a ledger: connections, schema, clock.

use std::sync::Arc;

use tidegate_backend::{Clock, Error, ErrorKind, Result, SystemClock};
use tidegate_core::Settings;

use crate::connect::{Address, Role};
use crate::migrate;
use crate::options::SqlOptions;
use crate::pool::Pool;

/// Most audits at once.
const AUDITS: usize = 2;

/// Everything an open ledger is made of.
pub(crate) struct Parts {
    pub(crate) address: Address,
    pub(crate) writes: Pool,
    pub(crate) reads: Pool,
    pub(crate) audits: Pool,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) settings: Settings,
}

/// Opens the ledger at `options.url`.
pub(crate) async fn open(options: &SqlOptions) -> Result<Parts> {
    let address = Address::parse(&options.url)?;
    let audits = Pool::new(address.clone(), Role::Audit, AUDITS)?;
    let mut session = audits.get().await?;
    let schema = migrate::run(&mut session).await?;
    if schema > migrate::NEWEST {
        let text = format!(
            "the ledger has schema {schema} and this Tidegate knows schemas up to {}; start the newer Tidegate that wrote it, or restore a backup from before the upgrade",
            migrate::NEWEST
        );
        return Err(Error::new(ErrorKind::NewerSchema, text));
    }
    drop(session);
    Ok(Parts {
        writes: Pool::new(address.clone(), Role::Writer, options.writers.clamp(1, 64))?,
        reads: Pool::new(address.clone(), Role::Reader, options.pool_size.clamp(1, 256))?,
        audits,
        clock: Arc::new(SystemClock),
        settings: options.settings,
        address,
    })
}
