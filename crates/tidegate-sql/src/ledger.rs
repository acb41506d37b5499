//! What the seam asks for, given to `write/` and `read/`.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_backend::ledger::{MAX_PAGE, MAX_PROBES};
use tidegate_backend::stored::cursor::{List, decode};
use tidegate_backend::{
    BoxFuture, Capabilities, Clock, Commit, Error, ErrorKind, EventRecord, Fences, Ledger, LedgerId, OrderFilter,
    Outbox, Page, PageRequest, PaymentFilter, Probe, Probed, RefundFilter, Result,
};
use tidegate_core::audit::Report;
use tidegate_core::command::Parked;
use tidegate_core::gate::Copy;
use tidegate_core::{Command, Millis, Order, OrderId, OrderNo, Payment, PaymentId, Refund, Sku, SkuId, StockChange};

use crate::clock::SqlClock;
use crate::dialect::Dialect;
use crate::fault;
use crate::open::{self, Parts};
use crate::options::SqlOptions;
use crate::{read, upkeep, write};

/// Most deadlines or copies one call gives; callers page.
const MAX_ROWS: usize = 100_000;

/// The ledger in a SQL database. Open it with [`SqlLedger::open`], end it with [`Ledger::close`].
///
/// Any number of processes may have one database open.
pub struct SqlLedger {
    /// Taken out by `close`.
    parts: Mutex<Option<Arc<Parts>>>,
    id: LedgerId,
    clock: Arc<SqlClock>,
    dialect: Dialect,
}

/// A page's cursor is checked before a connection is asked for.
macro_rules! page {
    ($list:expr, $page:ident) => {
        match decode($list, $page.cursor.as_deref()) {
            Ok(from) => (from, $page.limit.clamp(1, MAX_PAGE)),
            Err(e) => return Box::pin(std::future::ready(Err(e))),
        }
    };
}

impl SqlLedger {
    /// Opens the ledger, making its tables where there are none.
    ///
    /// # Errors
    /// [`ErrorKind::NewerSchema`] a database of a newer Tidegate; [`ErrorKind::Configuration`] an address that cannot be
    /// used, a database of another program, or a manual clock that does not fit the option;
    /// [`ErrorKind::Unavailable`] a server that cannot be reached.
    pub async fn open(options: SqlOptions) -> Result<Arc<Self>> {
        let parts = open::open(&options).await?;
        let (id, clock, dialect) = (parts.id, parts.clock.clone(), parts.dialect);
        Ok(Arc::new(Self { parts: Mutex::new(Some(Arc::new(parts))), id, clock, dialect }))
    }

    pub(crate) fn dialect(&self) -> Dialect {
        self.dialect
    }

    pub(crate) fn parts(&self) -> Result<Arc<Parts>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or_else(fault::closed)
    }
}

impl fmt::Debug for SqlLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlLedger")
            .field("dialect", &self.dialect)
            .field("open", &self.parts().is_ok())
            .finish_non_exhaustive()
    }
}

impl Ledger for SqlLedger {
    fn capabilities(&self) -> Capabilities {
        Capabilities { name: self.dialect.name(), sole_writer: false }
    }

    fn id(&self) -> LedgerId {
        self.id
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    fn commit(&self, commands: Arc<[Command]>) -> BoxFuture<'_, Result<Commit>> {
        Box::pin(async move {
            let parts = self.parts()?;
            let _permit = parts.commits.acquire().await.map_err(|_| fault::closed())?;
            write::commit(&parts, &commands).await
        })
    }

    fn probe(&self, probes: Vec<Probe>) -> BoxFuture<'_, Result<Vec<Probed>>> {
        if probes.len() > MAX_PROBES {
            let error = Error::new(ErrorKind::Command, format!("at most {MAX_PROBES} probes fit one read; split them"));
            return Box::pin(std::future::ready(Err(error)));
        }
        read!(self, session => read::probe::probe(session, &probes))
    }

    fn deadlines(
        &self,
        before: Option<Millis>,
        after: Option<(Millis, OrderNo)>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<(OrderNo, Millis)>>> {
        read!(self, session => read::orders::deadlines(session, before, after, limit.min(MAX_ROWS)))
    }

    fn copies(&self, after: Option<SkuId>, limit: usize) -> BoxFuture<'_, Result<Vec<(SkuId, Copy)>>> {
        read!(self, session => read::probe::copies(session, after.as_ref(), limit.min(MAX_ROWS)))
    }

    fn order(&self, id: OrderId) -> BoxFuture<'_, Result<Option<Order>>> {
        read!(self, session => read::orders::order(session, &id))
    }

    fn orders(&self, filter: OrderFilter, page: PageRequest) -> BoxFuture<'_, Result<Page<Order>>> {
        let (from, limit) = page!(List::Orders, page);
        read!(self, session => read::filter::orders(session, &filter, from, limit))
    }

    fn order_events(&self, id: OrderId, page: PageRequest) -> BoxFuture<'_, Result<Option<Page<EventRecord>>>> {
        let (from, limit) = page!(List::OrderEvents, page);
        read!(self, session => read::events::order_events(session, &id, from.unwrap_or(0), limit))
    }

    fn events(&self, after: i64, limit: usize) -> BoxFuture<'_, Result<Vec<EventRecord>>> {
        read!(self, session => read::events::events(session, after, limit.clamp(1, MAX_PAGE)))
    }

    fn newest_cursor(&self) -> BoxFuture<'_, Result<i64>> {
        read!(self, session => read::events::newest_cursor(session))
    }

    fn payments(&self, filter: PaymentFilter, page: PageRequest) -> BoxFuture<'_, Result<Page<Payment>>> {
        let (from, limit) = page!(List::Payments, page);
        read!(self, session => read::money::payments(session, &filter, from, limit))
    }

    fn refunds(&self, filter: RefundFilter, page: PageRequest) -> BoxFuture<'_, Result<Page<Refund>>> {
        let (from, limit) = page!(List::Refunds, page);
        read!(self, session => read::money::refunds(session, &filter, from, limit))
    }

    fn parked(&self, page: PageRequest) -> BoxFuture<'_, Result<Page<Parked>>> {
        let (from, limit) = page!(List::Parked, page);
        read!(self, session => read::orders::parked(session, from, limit))
    }

    fn sku(&self, id: SkuId) -> BoxFuture<'_, Result<Option<Sku>>> {
        read!(self, session => read::stock::sku(session, &id))
    }

    fn skus(&self, page: PageRequest) -> BoxFuture<'_, Result<Page<Sku>>> {
        let (from, limit) = page!(List::Skus, page);
        read!(self, session => read::stock::skus(session, from, limit))
    }

    fn stock_changes(&self, id: SkuId, page: PageRequest) -> BoxFuture<'_, Result<Option<Page<StockChange>>>> {
        let (from, limit) = page!(List::StockChanges, page);
        read!(self, session => read::stock::stock_changes(session, &id, from.unwrap_or(0), limit))
    }

    fn stale_unmatched(&self, before: Millis, limit: usize) -> BoxFuture<'_, Result<Vec<PaymentId>>> {
        read!(self, session => read::money::stale_unmatched(session, before, limit.min(MAX_ROWS)))
    }

    fn prune(&self, tombstones: Millis, keys: Millis) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            let parts = self.parts()?;
            let mut lease = parts.writes.get().await?;
            Ok(upkeep::prune(&mut lease, tombstones, keys).await?)
        })
    }

    fn advance(&self, ms: i64) -> BoxFuture<'_, Result<Millis>> {
        Box::pin(async move {
            if !self.clock.is_manual() || ms < 0 {
                let text = "only a manual clock can be moved, and only forward; start with --manual-clock";
                return Err(Error::new(ErrorKind::Configuration, text));
            }
            let parts = self.parts()?;
            let at = upkeep::advance(&mut *parts.writes.get().await?, ms).await?;
            self.clock.advance_to(at)?;
            Ok(at)
        })
    }

    fn audit(&self, lag_bound_ms: i64) -> BoxFuture<'_, Result<Report>> {
        // Before the read begins: an order that falls due after this instant cannot look late.
        let now = self.clock.now();
        read!(self, audits, session => read::audit::audit(session, now, lag_bound_ms))
    }

    fn outbox(&self) -> &dyn Outbox {
        self
    }

    fn fences(&self) -> &dyn Fences {
        self
    }

    fn probe_write(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let parts = self.parts()?;
            let mut lease = parts.writes.get().await?;
            Ok(upkeep::probe_write(&mut lease).await?)
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(parts) = parts {
                parts.close().await;
            }
            Ok(())
        })
    }
}
