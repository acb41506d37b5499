//! In process: the bare insert loop, and the library with its rules and its group commit.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidegate::core::command::{Cancel, Place, PutSku};
use tidegate::core::request::PlaceRequest;
use tidegate::core::{OrderId, Settings, SkuId, SkuPatch};
use tidegate::{Options, Tidegate};

use super::{Bench, CaseLedger};
use crate::commands::bench::line::Line;
use crate::failure::{Failure, Result};
use crate::load::record::Record;
use crate::progress::Progress;
use crate::runtime;

/// Orders of the library's case.
const ORDERS: u64 = 200_000;
/// Orders of the bare loop.
const BARE_ORDERS: u64 = 150_000;
/// Callers at once: enough that a batch is always waiting while one is written.
const CALLERS: u64 = 1_024;
/// Orders of the cancelling case, and the SKUs their units lie with.
const CANCELLED: u64 = 100_000;
const HOT_SKUS: u64 = 5;
/// Orders and clients of one transaction per order.
const SINGLE_ORDERS: u64 = 5_000;
const CLIENTS: usize = 16;
/// Largest batch a commit may have, and a call of `place_many`.
const BATCH: usize = 500;
/// Calls of `place_many` at once when a ledger is filled.
const FILLERS: u64 = 4;
/// The one SKU everybody wants.
pub const HOT: &str = "hot";
/// Units of it: more than any case can sell.
pub const PLENTY: i64 = 1_000_000_000_000;

/// What placing is measured beside: the name of the baseline, and its rate.
pub type Baseline = (&'static str, f64);

/// Measures the baseline and prints it.
pub fn ceiling(bench: &mut Bench<'_>) -> Result {
    let (name, rate) = baseline(bench)?;
    bench.printer.line(Line::new(name, rate, "orders/s"))?;
    let ledger = bench.place.ledger("bare")?;
    if ledger.file().is_none() {
        let rate = bare_loop_there(bench, &ledger)?;
        bench.printer.line(Line::new("bare insert loop, one connection, batches of 512", rate, "orders/s"))?;
    }
    bench.place.forget(&ledger);
    Ok(())
}

/// The baseline's rate now: on SQLite the bare insert loop, on a database server what most shops do, one transaction an
/// order. Each case measures it again just before itself: on a machine that others use a ratio of figures minutes apart
/// would mean nothing.
pub fn baseline(bench: &Bench<'_>) -> Result<Baseline> {
    let ledger = bench.place.ledger("ceiling")?;
    let measured = match ledger.file() {
        Some(file) => ("bare insert loop", bare_loop(bench, file)?),
        None => ("one transaction per order, 16 clients", one_by_one(bench, &ledger)?),
    };
    bench.place.forget(&ledger);
    Ok(measured)
}

fn bare_loop(bench: &Bench<'_>, file: &Path) -> Result<f64> {
    let orders = usize::try_from(bench.scaled(BARE_ORDERS, 10_000)).unwrap_or(usize::MAX);
    let measured = tidegate::ceiling(file, orders, 512);
    Ok(measured.map_err(|e| Failure::Work(format!("the bare insert loop: {e}")))?.rate)
}

/// The rate of one transaction per order from [`CLIENTS`] connections.
fn one_by_one(bench: &Bench<'_>, ledger: &CaseLedger) -> Result<f64> {
    let orders = usize::try_from(bench.scaled(SINGLE_ORDERS, 1_000)).unwrap_or(usize::MAX);
    let measured = runtime::run(async { Ok(tidegate::on_servers::one_by_one(&ledger.url, orders, CLIENTS).await) })?;
    Ok(measured.map_err(|e| Failure::Work(format!("one transaction per order: {e}")))?.rate)
}

/// The rate of the bare insert loop on a database server.
fn bare_loop_there(bench: &Bench<'_>, ledger: &CaseLedger) -> Result<f64> {
    let orders = usize::try_from(bench.scaled(BARE_ORDERS, 10_000)).unwrap_or(usize::MAX);
    let measured = runtime::run(async { Ok(tidegate::on_servers::ceiling(&ledger.url, orders, 512).await) })?;
    Ok(measured.map_err(|e| Failure::Work(format!("the bare insert loop: {e}")))?.rate)
}

/// Opens a ledger with the hot SKU in it.
pub async fn open(ledger: &CaseLedger, hold_seconds: i64, workers: bool) -> Result<Tidegate> {
    let parts = ledger.stores(Settings { hold_seconds, ..Settings::default() })?.open().await?;
    let tidegate = Tidegate::start(parts, Options { workers, ..Options::default() }).await?;
    let sku = SkuId::parse(HOT).map_err(|e| Failure::Work(e.to_string()))?;
    tidegate.catalog().put(PutSku { sku, patch: SkuPatch::default(), on_hand: Some(PLENTY), if_version: None }).await?;
    Ok(tidegate)
}

/// Order `number` of the series `prefix`, one unit of the hot SKU.
pub fn order(tidegate: &Tidegate, prefix: &str, number: u64, hold_seconds: Option<i64>) -> tidegate::Result<Place> {
    tidegate.orders().check(order_request(prefix, number, hold_seconds))
}

fn order_request(prefix: &str, number: u64, hold_seconds: Option<i64>) -> PlaceRequest {
    PlaceRequest {
        order_id: Some(format!("{prefix}-{number}")),
        buyer_id: format!("buyer-{}", number * 7_919 % 1_000_003),
        lines: vec![(HOT.to_owned(), 1)],
        hold_seconds,
        ..PlaceRequest::default()
    }
}

/// Measures placing through the library.
pub fn place(bench: &mut Bench<'_>) -> Result {
    let (baseline, ceiling) = baseline(bench)?;
    let ledger = bench.place.ledger("library")?;
    let orders = bench.scaled(ORDERS, 10_000);
    let (took, record) = runtime::run(async {
        let tidegate = open(&ledger, 1_800, true).await?;
        let next = Arc::new(AtomicU64::new(0));
        let run = all_callers(|| caller(tidegate.clone(), Arc::clone(&next), orders)).await?;
        tidegate.stop(Duration::from_secs(10)).await?;
        Ok(run)
    })?;
    bench.place.forget(&ledger);
    let rate = orders as f64 / took.as_secs_f64();
    let line = Line::new(format!("place, library, {CALLERS} callers"), rate, "orders/s").times(record.percentiles());
    bench.printer.line(line.beside(baseline, Some(ceiling)))
}

/// Runs [`CALLERS`] callers to their end; how long that took, and how long each call.
async fn all_callers<F>(caller: impl Fn() -> F) -> Result<(Duration, Record)>
where
    F: Future<Output = Result<Record>> + Send + 'static,
{
    let began = Instant::now();
    let callers: Vec<_> = (0..CALLERS).map(|_| tokio::spawn(caller())).collect();
    let mut all = Record::new();
    for caller in callers {
        all.merge(&caller.await.map_err(|e| Failure::Work(format!("a caller was lost: {e}")))??);
    }
    Ok((began.elapsed(), all))
}

async fn caller(tidegate: Tidegate, next: Arc<AtomicU64>, orders: u64) -> Result<Record> {
    let mut record = Record::new();
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= orders {
            return Ok(record);
        }
        let place = order(&tidegate, "lib", number, None)?;
        let began = Instant::now();
        tidegate.orders().place(place).await?;
        record.time(began.elapsed());
    }
}

/// Measures cancelling through the library: every order is pending, its units lie with one of [`HOT_SKUS`].
pub fn cancel(bench: &mut Bench<'_>) -> Result {
    let (baseline, ceiling) = baseline(bench)?;
    let ledger = bench.place.ledger("cancel")?;
    let orders = bench.scaled(CANCELLED, 5_000);
    let (took, record) = runtime::run(async {
        let tidegate = open(&ledger, 86_400, true).await?;
        for sku in (0..HOT_SKUS).map(hot_sku) {
            let sku = SkuId::parse(&sku).map_err(|e| Failure::Work(e.to_string()))?;
            let put = PutSku { sku, patch: SkuPatch::default(), on_hand: Some(PLENTY), if_version: None };
            tidegate.catalog().put(put).await?;
        }
        for first in (0..orders).step_by(BATCH) {
            let places = (first..orders.min(first + BATCH as u64)).map(|number| {
                let lines = vec![(hot_sku(number % HOT_SKUS), 1)];
                let order = order_request("cancel", number, None);
                tidegate.orders().check(PlaceRequest { lines, ..order })
            });
            for placed in tidegate.orders().place_many(places.collect::<tidegate::Result<Vec<_>>>()?).await {
                placed?;
            }
        }
        let next = Arc::new(AtomicU64::new(0));
        let run = all_callers(|| canceller(tidegate.clone(), Arc::clone(&next), orders)).await?;
        tidegate.stop(Duration::from_secs(10)).await?;
        Ok(run)
    })?;
    bench.place.forget(&ledger);
    let what = format!("cancel and release, library, {HOT_SKUS} hot SKUs, {CALLERS} callers");
    let line = Line::new(what, orders as f64 / took.as_secs_f64(), "orders/s").times(record.percentiles());
    bench.printer.line(line.beside(baseline, Some(ceiling)))
}

fn hot_sku(number: u64) -> String {
    format!("{HOT}-{number}")
}

async fn canceller(tidegate: Tidegate, next: Arc<AtomicU64>, orders: u64) -> Result<Record> {
    let mut record = Record::new();
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= orders {
            return Ok(record);
        }
        let order_id = OrderId::parse(&format!("cancel-{number}")).map_err(|e| Failure::Work(e.to_string()))?;
        let began = Instant::now();
        tidegate.orders().cancel(Cancel { order_id, reason: None, restock: true }).await?;
        record.time(began.elapsed());
    }
}

/// Fills an open ledger with `orders` pending orders named `prefix-0..`; `hold` gives the seconds
/// each slice is held.
pub async fn fill(
    tidegate: &Tidegate,
    prefix: &'static str,
    orders: u64,
    hold: impl Fn() -> i64 + Copy + Send + 'static,
) -> Result {
    let progress = Arc::new(Progress::new("filling the ledger", Some(orders), false));
    let next = Arc::new(AtomicU64::new(0));
    let fillers: Vec<_> = (0..FILLERS)
        .map(|_| {
            let (tidegate, next, progress) = (tidegate.clone(), Arc::clone(&next), Arc::clone(&progress));
            tokio::spawn(async move {
                loop {
                    let first = next.fetch_add(BATCH as u64, Ordering::Relaxed);
                    if first >= orders {
                        return Ok::<(), Failure>(());
                    }
                    let hold = Some(hold());
                    let numbers = first..orders.min(first + BATCH as u64);
                    let places =
                        numbers.map(|n| order(&tidegate, prefix, n, hold)).collect::<tidegate::Result<Vec<_>>>()?;
                    let count = places.len() as u64;
                    for placed in tidegate.orders().place_many(places).await {
                        placed?;
                    }
                    progress.add(count);
                }
            })
        })
        .collect();
    for filler in fillers {
        filler.await.map_err(|e| Failure::Work(format!("filling was interrupted: {e}")))??;
    }
    Ok(())
}
