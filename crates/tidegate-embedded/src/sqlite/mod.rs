//! The SQLite ledger: one file, one process, one writer thread.
//!
//! - `open.rs`, `lock.rs`, `migrate.rs`: a file becomes a ledger. `lane.rs`: threads that own connections.
//! - `writer.rs`, `load.rs`, `write.rs`, `insert.rs`: a batch. `buyers.rs`: an index that is written late.
//!   `checkpoint.rs`: the write-ahead log. `upkeep.rs`: small writes.
//! - `orders.rs`, `filter.rs`, `events.rs`, `money.rs`, `stock.rs`, `probe.rs`, `audit.rs`: reads, each on a connection that never
//!   waits for a write.
//! - `feed/`: users, posts, follows and blocks.
//! - `outbox.rs`: what commits, and a caller's own transactions, made old in caches. `fences.rs`: the newest fence of each lock.
//! - [`queue`]: the delay queue in a file of its own.
//! - `row.rs`, `fault.rs`: rows and errors in the rules' words; how values lie in columns is `tidegate_backend::stored`.

mod audit;
mod buyers;
#[cfg(feature = "ceiling")]
mod ceiling;
mod checkpoint;
mod events;
mod fault;
mod feed;
mod fences;
mod filter;
mod insert;
mod lane;
mod load;
mod lock;
mod migrate;
mod money;
mod open;
mod orders;
mod outbox;
mod probe;
pub mod queue;
mod row;
mod stock;
mod upkeep;
mod write;
mod writer;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use tidegate_backend::ledger::{MAX_PAGE, MAX_PROBES};
use tidegate_backend::{
    BoxFuture, Capabilities, Clock, Commit, Error, ErrorKind, EventRecord, Fences, Ledger, LedgerId, OrderFilter,
    Outbox, Page, PageRequest, PaymentFilter, Probe, Probed, RefundFilter, Result,
};
use tidegate_core::audit::{Auditor, Report};
use tidegate_core::command::Parked;
use tidegate_core::gate::Copy;
use tidegate_core::{Command, Millis, Order, OrderId, OrderNo, Payment, PaymentId, Refund, Sku, SkuId, StockChange};

#[cfg(feature = "ceiling")]
pub use ceiling::{Ceiling, ceiling};
pub use open::{Options, Synchronous};
pub use outbox::{SqliteOutbox, SqliteTransaction};

use buyers::Buyers;
use lane::Lane;
use open::Parts;
use tidegate_backend::stored::cursor::{List, decode};
use writer::Writer;

/// Most deadlines or copies one call gives; callers page.
const MAX_ROWS: usize = 100_000;

/// The ledger in a SQLite file. Open it with [`SqliteLedger::open`], end it with [`Ledger::close`] (dropping it does the
/// same, and blocks while the threads finish).
pub struct SqliteLedger {
    /// Taken out by `close`.
    parts: Mutex<Option<Arc<Parts>>>,
    id: LedgerId,
    clock: Arc<dyn Clock>,
    buyers: Arc<Buyers>,
    /// The turn of a relay of the outbox.
    relaying: tokio::sync::Mutex<()>,
}

impl SqliteLedger {
    /// Opens the ledger, creating file and folder when they are missing. The work is done on a blocking thread.
    ///
    /// # Errors
    /// [`ErrorKind::Owned`] names the process that has it open; [`ErrorKind::NewerSchema`] a file of a newer Tidegate;
    /// [`ErrorKind::Configuration`] a file of another program or a manual clock that does not fit the option;
    /// [`ErrorKind::Unavailable`] what the file system refuses; [`ErrorKind::Corrupt`] a file that is no database.
    pub async fn open(options: Options) -> Result<Arc<Self>> {
        let opening = tokio::task::spawn_blocking(move || Self::open_blocking(&options));
        opening
            .await
            .unwrap_or_else(|e| Err(Error::new(ErrorKind::Unavailable, "opening the ledger was stopped").because(e)))
    }

    /// The same on the present thread.
    ///
    /// # Errors
    /// As [`SqliteLedger::open`].
    pub fn open_blocking(options: &Options) -> Result<Arc<Self>> {
        let parts = open::open(options)?;
        let (id, clock, buyers) = (parts.id, parts.clock.clone(), parts.buyers.clone());
        let relaying = tokio::sync::Mutex::default();
        Ok(Arc::new(Self { parts: Mutex::new(Some(Arc::new(parts))), id, clock, buyers, relaying }))
    }

    fn parts(&self) -> Result<Arc<Parts>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or_else(fault::closed)
    }

    fn write<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Writer) -> Result<T> + Send + 'static,
    ) -> BoxFuture<'_, Result<T>> {
        Box::pin(async move { self.parts()?.writer.run(call).await })
    }

    fn read<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> BoxFuture<'_, Result<T>> {
        Box::pin(async move { read_on(&self.parts()?.readers, call).await })
    }

    /// A read of one page: the cursor is checked before the read is queued.
    fn read_page<T: Send + 'static>(
        &self,
        list: List,
        page: &PageRequest,
        call: impl FnOnce(&Connection, Option<i64>, usize) -> rusqlite::Result<T> + Send + 'static,
    ) -> BoxFuture<'_, Result<T>> {
        let limit = page.limit.clamp(1, MAX_PAGE);
        match decode(list, page.cursor.as_deref()) {
            Ok(from) => self.read(move |conn| call(conn, from, limit)),
            Err(e) => Box::pin(std::future::ready(Err(e))),
        }
    }
}

/// Runs `call` in one read transaction, so that all it reads is of one instant.
async fn read_on<T: Send + 'static>(
    lane: &Lane<Connection>,
    call: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
) -> Result<T> {
    lane.run(move |conn| {
        let read = |conn: &mut Connection| {
            let tx = conn.transaction()?;
            let value = call(&tx)?;
            tx.commit()?;
            Ok(value)
        };
        read(conn).map_err(fault::reading)
    })
    .await
}

impl fmt::Debug for SqliteLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteLedger").field("open", &self.parts().is_ok()).finish_non_exhaustive()
    }
}

impl Ledger for SqliteLedger {
    fn capabilities(&self) -> Capabilities {
        Capabilities { name: "sqlite", sole_writer: true }
    }

    fn id(&self) -> LedgerId {
        self.id
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    fn commit(&self, commands: Arc<[Command]>) -> BoxFuture<'_, Result<Commit>> {
        self.write(move |writer| writer.commit(&commands))
    }

    fn probe(&self, probes: Vec<Probe>) -> BoxFuture<'_, Result<Vec<Probed>>> {
        if probes.len() > MAX_PROBES {
            let error = Error::new(ErrorKind::Command, format!("at most {MAX_PROBES} probes fit one read; split them"));
            return Box::pin(std::future::ready(Err(error)));
        }
        self.read(move |conn| probe::probe(conn, &probes))
    }

    fn deadlines(
        &self,
        before: Option<Millis>,
        after: Option<(Millis, OrderNo)>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<(OrderNo, Millis)>>> {
        self.read(move |conn| orders::deadlines(conn, before, after, limit.min(MAX_ROWS)))
    }

    fn copies(&self, after: Option<SkuId>, limit: usize) -> BoxFuture<'_, Result<Vec<(SkuId, Copy)>>> {
        self.read(move |conn| probe::copies(conn, after.as_ref(), limit.min(MAX_ROWS)))
    }

    fn order(&self, id: OrderId) -> BoxFuture<'_, Result<Option<Order>>> {
        self.read(move |conn| orders::order(conn, &id))
    }

    fn orders(&self, filter: OrderFilter, page: PageRequest) -> BoxFuture<'_, Result<Page<Order>>> {
        let buyers = self.buyers.clone();
        self.read_page(List::Orders, &page, move |conn, from, limit| {
            filter::orders(conn, &buyers, &filter, from, limit)
        })
    }

    fn order_events(&self, id: OrderId, page: PageRequest) -> BoxFuture<'_, Result<Option<Page<EventRecord>>>> {
        self.read_page(List::OrderEvents, &page, move |conn, from, limit| {
            events::order_events(conn, &id, from.unwrap_or(0), limit)
        })
    }

    fn events(&self, after: i64, limit: usize) -> BoxFuture<'_, Result<Vec<EventRecord>>> {
        self.read(move |conn| events::events(conn, after, limit.clamp(1, MAX_PAGE)))
    }

    fn payments(&self, filter: PaymentFilter, page: PageRequest) -> BoxFuture<'_, Result<Page<Payment>>> {
        self.read_page(List::Payments, &page, move |conn, from, limit| money::payments(conn, &filter, from, limit))
    }

    fn refunds(&self, filter: RefundFilter, page: PageRequest) -> BoxFuture<'_, Result<Page<Refund>>> {
        self.read_page(List::Refunds, &page, move |conn, from, limit| money::refunds(conn, &filter, from, limit))
    }

    fn parked(&self, page: PageRequest) -> BoxFuture<'_, Result<Page<Parked>>> {
        self.read_page(List::Parked, &page, orders::parked)
    }

    fn sku(&self, id: SkuId) -> BoxFuture<'_, Result<Option<Sku>>> {
        self.read(move |conn| Ok(stock::sku(conn, &id)?.map(|(_, sku)| sku)))
    }

    fn skus(&self, page: PageRequest) -> BoxFuture<'_, Result<Page<Sku>>> {
        self.read_page(List::Skus, &page, stock::skus)
    }

    fn stock_changes(&self, id: SkuId, page: PageRequest) -> BoxFuture<'_, Result<Option<Page<StockChange>>>> {
        self.read_page(List::StockChanges, &page, move |conn, from, limit| {
            stock::stock_changes(conn, &id, from.unwrap_or(0), limit)
        })
    }

    fn newest_cursor(&self) -> BoxFuture<'_, Result<i64>> {
        self.read(events::newest_cursor)
    }

    fn stale_unmatched(&self, before: Millis, limit: usize) -> BoxFuture<'_, Result<Vec<PaymentId>>> {
        self.read(move |conn| money::stale_unmatched(conn, before, limit.min(MAX_ROWS)))
    }

    fn prune(&self, tombstones: Millis, keys: Millis) -> BoxFuture<'_, Result<bool>> {
        self.write(move |writer| writer.transact(|conn| upkeep::prune(conn, tombstones, keys)))
    }

    fn advance(&self, ms: i64) -> BoxFuture<'_, Result<Millis>> {
        // On the writer's thread: no batch can read the clock between the row and the clock itself.
        self.write(move |writer| {
            let clock = writer.clock.clone();
            if !clock.status().manual || ms < 0 {
                let text = "only a manual clock can be moved, and only forward; start with --manual-clock";
                return Err(Error::new(ErrorKind::Configuration, text));
            }
            let at = clock.now().plus(ms);
            if at > Millis::MAX {
                return Err(Error::new(
                    ErrorKind::Configuration,
                    "the clock cannot go beyond the year 9999; advance it by less",
                ));
            }
            writer.transact(|conn| upkeep::store_manual_clock(conn, at))?;
            clock.advance_to(at)?;
            Ok(at)
        })
    }

    fn audit(&self, lag_bound_ms: i64) -> BoxFuture<'_, Result<Report>> {
        Box::pin(async move {
            // Before the read begins: an order that falls due after this instant cannot look late.
            let now = self.clock.now();
            let parts = self.parts()?;
            let audited = read_on(&parts.audits, |conn| {
                let mut auditor = Auditor::new();
                audit::feed(conn, &mut auditor)?;
                Ok(auditor)
            });
            Ok(audited.await?.finish(now, lag_bound_ms))
        })
    }

    fn outbox(&self) -> &dyn Outbox {
        self
    }

    fn fences(&self) -> &dyn Fences {
        self
    }

    fn probe_write(&self) -> BoxFuture<'_, Result<()>> {
        self.write(|writer| writer.transact(upkeep::probe_write))
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let Some(parts) = self.parts.lock().unwrap_or_else(PoisonError::into_inner).take() else { return Ok(()) };
            let closing = tokio::task::spawn_blocking(move || parts.close());
            closing.await.unwrap_or_else(|e| {
                Err(Error::new(ErrorKind::Unavailable, "closing the ledger was stopped").because(e))
            })
        })
    }
}
