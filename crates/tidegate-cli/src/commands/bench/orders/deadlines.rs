//! The clock: a pile of orders due at once, and a steady stream of deadlines.

use std::time::{Duration, Instant};

use super::http::{create_hot, orders};
use super::library::{HOT, PLENTY, fill, open, order};
use super::{Bench, generate, wait};
use crate::commands::bench::child::Server;
use crate::commands::bench::line::Line;
use crate::failure::{Failure, Result};
use crate::load::drive::{self, Pace};
use crate::load::events;
use crate::load::pool::Pool;
use crate::load::record::Record;
use crate::load::target::Target;
use crate::runtime;

/// Orders of the pile.
const PILE: u64 = 100_000;
/// Orders that arrive a second meanwhile, and their hold.
const ARRIVALS: f64 = 2_000.0;
const ARRIVAL_HOLD: i64 = 2;
/// Orders with later deadlines are placed after the pile for this long, as many a second as arrive later, so that
/// deadlines fall due from the start on; their hold leaves time to start the server.
const BEFORE: Duration = Duration::from_secs(2);
const BEFORE_HOLD: i64 = 4;
/// Slices a second in which they are placed.
const SLICES: u64 = 50;
/// Connections of the open loops.
const CONNECTIONS: usize = 64;
/// Seconds of each open loop.
const SECONDS: u64 = 10;
/// Deadlines a second of the steady stream.
const STREAM: f64 = 1_000.0;

/// What the event log says of the clock.
struct Expired {
    /// Of the pile: how many, and when the first and the last were cancelled.
    pile: u64,
    first: i64,
    last: i64,
    /// When each other order was due, and how late it was cancelled.
    others: Vec<(i64, i64)>,
    /// Orders cancelled before they were due.
    early: u64,
}

impl Expired {
    /// How late the others were that fell due in `from..=to`.
    fn lateness(&self, from: i64, to: i64) -> Record {
        let mut record = Record::new();
        let meanwhile = self.others.iter().filter(|(due, _)| (from..=to).contains(due));
        meanwhile.for_each(|(_, late)| record.time_ms(*late));
        record
    }
}

async fn read(target: &Target) -> Result<Expired> {
    let mut seen = Expired { pile: 0, first: i64::MAX, last: 0, others: Vec::new(), early: 0 };
    events::read(&Pool::new(target.clone(), 1), 0, |event| {
        let ("order.expired", Some(order)) = (event.kind.as_str(), event.data.order) else { return };
        let late = event.at - order.release_at;
        seen.early += u64::from(late < 0);
        if order.id.starts_with("pile-") {
            seen.pile += 1;
            (seen.first, seen.last) = (seen.first.min(event.at), seen.last.max(event.at));
        } else {
            seen.others.push((order.release_at, late));
        }
    })
    .await?;
    Ok(seen)
}

/// Measures how fast a pile of orders is cancelled while others arrive and fall due.
///
/// Holds are whole seconds and commits happen when they happen, so no pile can be placed to be due in one millisecond.
/// This one has been due since shortly before the server starts: for the server it is due at one instant, its start.
pub fn expiry(bench: &mut Bench<'_>) -> Result {
    let ledger = bench.place.ledger("expiry")?;
    let pile = bench.scaled(PILE, 2_000);
    let start = runtime::run(async {
        let tidegate = open(&ledger, 1_800, false).await?;
        fill(&tidegate, "pile", pile, || 1).await?;
        let start = Instant::now() + Duration::from_secs(BEFORE_HOLD.unsigned_abs());
        others_before(&tidegate).await?;
        tidegate.stop(Duration::from_secs(10)).await?;
        Ok(start)
    })?;
    wait(start.saturating_duration_since(Instant::now()))?;
    let server = Server::serve(&ledger)?;
    let seen = generate(async {
        let pace = Pace::Open { per_second: ARRIVALS, requests: (ARRIVALS * SECONDS as f64) as u64 };
        let run = drive::run(&server.target, CONNECTIONS, pace, 0, orders("arrival", HOT, Some(ARRIVAL_HOLD))).await;
        let run = run.map_err(|e| Failure::Work(format!("the load generator: {e}")))?;
        tokio::time::sleep(Duration::from_secs(ARRIVAL_HOLD.unsigned_abs() + 1)).await;
        Ok::<_, Failure>((run, read(&server.target).await?))
    });
    let (arrivals, seen) = seen?;
    server.stop()?;
    bench.place.forget(&ledger);
    let took = (seen.last - seen.first).max(1) as f64 / 1_000.0;
    let line = Line::new(format!("{pile} orders due at once, cancelled"), seen.pile as f64 / took, "orders/s");
    bench.printer.line(line.errors(pile - seen.pile + seen.early))?;
    let others = seen.lateness(seen.first, seen.last);
    let line = Line::new("deadlines of others meanwhile, lateness", others.len() as f64, "deadlines");
    bench.printer.line(line.times(others.percentiles()))?;
    let errors = arrivals.record.len() - arrivals.record.count(201);
    let line = Line::new("orders that arrive meanwhile", arrivals.rate(201), "orders/s");
    bench.printer.line(line.times(arrivals.record.percentiles()).errors(errors))
}

/// Places orders evenly over [`BEFORE`].
async fn others_before(tidegate: &tidegate::Tidegate) -> Result {
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / SLICES as u32);
    let each = ARRIVALS as u64 / SLICES;
    for slice in 0..SLICES * BEFORE.as_secs() {
        ticks.tick().await;
        let numbers = slice * each..(slice + 1) * each;
        let places = numbers.map(|n| order(tidegate, "before", n, Some(BEFORE_HOLD)));
        let places = places.collect::<tidegate::Result<Vec<_>>>()?;
        for placed in tidegate.orders().place_many(places).await {
            placed?;
        }
    }
    Ok(())
}

/// Measures how late a steady stream of deadlines is.
pub fn lateness(bench: &mut Bench<'_>) -> Result {
    let ledger = bench.place.ledger("lateness")?;
    let server = Server::serve(&ledger)?;
    let requests = bench.scaled((STREAM * SECONDS as f64) as u64, 1_000);
    let seen = generate(async {
        create_hot(&server.target, PLENTY).await?;
        let pace = Pace::Open { per_second: STREAM, requests };
        let run = drive::run(&server.target, CONNECTIONS, pace, 0, orders("stream", HOT, Some(ARRIVAL_HOLD))).await;
        run.map_err(|e| Failure::Work(format!("the load generator: {e}")))?;
        tokio::time::sleep(Duration::from_secs(ARRIVAL_HOLD.unsigned_abs() + 1)).await;
        read(&server.target).await
    })?;
    server.stop()?;
    bench.place.forget(&ledger);
    let stream = seen.lateness(i64::MIN, i64::MAX);
    let line = Line::new("lateness at 1,000 deadlines/s", stream.len() as f64, "deadlines").times(stream.percentiles());
    bench.printer.line(line.errors(requests - stream.len().min(requests) + seen.early))
}
