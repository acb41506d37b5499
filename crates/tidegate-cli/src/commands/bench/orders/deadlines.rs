//! The clock: a pile of orders due at once, and a steady stream of deadlines.

use std::time::{Duration, Instant};

use super::http::{create_hot, orders};
use super::library::{HOT, PLENTY, fill, open};
use super::{Bench, generator};
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
/// Orders of the pile that are surely placed in a second, and seconds left for the rest: the start of the server.
const PLACED_A_SECOND: u64 = 10_000;
const START_SECONDS: u64 = 6;
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
    /// How late the pile was.
    pile_lateness: Record,
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
    let mut seen =
        Expired { pile: 0, first: i64::MAX, last: 0, pile_lateness: Record::new(), others: Vec::new(), early: 0 };
    events::read(&Pool::new(target.clone(), 1), 0, |event| {
        let ("order.expired", Some(order)) = (event.kind.as_str(), event.data.order) else { return };
        let late = event.at - order.release_at;
        seen.early += u64::from(late < 0);
        if order.id.starts_with("pile-") {
            seen.pile += 1;
            (seen.first, seen.last) = (seen.first.min(event.at), seen.last.max(event.at));
            seen.pile_lateness.time_ms(late);
        } else {
            seen.others.push((order.release_at, late));
        }
    })
    .await?;
    Ok(seen)
}

/// Measures how fast a pile of orders is cancelled while others arrive and fall due.
pub fn expiry(bench: &mut Bench<'_>) -> Result {
    let ledger = bench.ledger("expiry");
    let pile = bench.scaled(PILE, 2_000);
    let away = pile.div_ceil(PLACED_A_SECOND) + START_SECONDS;
    let due = Instant::now() + Duration::from_secs(away);
    let due_wall = jiff::Timestamp::now().as_millisecond() + i64::try_from(away).unwrap_or(0) * 1_000;
    runtime::run(async {
        let tidegate = open(&ledger, 1_800, false).await?;
        // Holds are whole seconds, counted from each commit: the pile is due within one second, not one millisecond.
        let hold = move || due.saturating_duration_since(Instant::now()).as_secs_f64().ceil().max(1.0) as i64;
        fill(&tidegate, "pile", pile, hold).await?;
        tidegate.stop(Duration::from_secs(10)).await?;
        Ok(())
    })?;
    let server = Server::serve(&ledger, &[])?;
    let seen = generator()?.block_on(async {
        // The arrivals begin before the pile is due and go on after it is gone.
        tokio::time::sleep_until((due - Duration::from_secs(ARRIVAL_HOLD.unsigned_abs())).into()).await;
        let pace = Pace::Open { per_second: ARRIVALS, requests: (ARRIVALS * SECONDS as f64) as u64 };
        let run = drive::run(&server.target, CONNECTIONS, pace, 0, orders("arrival", HOT, Some(ARRIVAL_HOLD))).await;
        let run = run.map_err(|e| Failure::Work(format!("the load generator: {e}")))?;
        tokio::time::sleep(Duration::from_secs(ARRIVAL_HOLD.unsigned_abs() + 1)).await;
        Ok::<_, Failure>((run, read(&server.target).await?))
    });
    let (arrivals, seen) = seen?;
    server.stop()?;
    bench.forget(&ledger);
    let took = (seen.last - seen.first).max(1) as f64 / 1_000.0;
    let late = seen.pile_lateness.percentiles();
    let line = Line::new(format!("{pile} orders due within a second, cancelled"), seen.pile as f64 / took, "orders/s")
        .times(late);
    bench.printer.line(line.errors(pile - seen.pile + seen.early))?;
    let others = seen.lateness(due_wall, seen.last);
    let line = Line::new("deadlines of the others meanwhile, lateness", others.len() as f64, "deadlines")
        .times(others.percentiles());
    bench.printer.line(line)?;
    let errors = arrivals.record.len() - arrivals.record.count(201);
    let line =
        Line::new("orders that arrive meanwhile", arrivals.rate(201), "orders/s").times(arrivals.record.percentiles());
    bench.printer.line(line.errors(errors))
}

/// Measures how late a steady stream of deadlines is.
pub fn lateness(bench: &mut Bench<'_>) -> Result {
    let ledger = bench.ledger("lateness");
    let server = Server::serve(&ledger, &[])?;
    let requests = bench.scaled((STREAM * SECONDS as f64) as u64, 1_000);
    let seen = generator()?.block_on(async {
        create_hot(&server.target, PLENTY).await?;
        let pace = Pace::Open { per_second: STREAM, requests };
        let run = drive::run(&server.target, CONNECTIONS, pace, 0, orders("stream", HOT, Some(ARRIVAL_HOLD))).await;
        run.map_err(|e| Failure::Work(format!("the load generator: {e}")))?;
        tokio::time::sleep(Duration::from_secs(ARRIVAL_HOLD.unsigned_abs() + 1)).await;
        read(&server.target).await
    })?;
    server.stop()?;
    bench.forget(&ledger);
    let stream = seen.lateness(i64::MIN, i64::MAX);
    let line = Line::new("lateness at 1,000 deadlines/s", stream.len() as f64, "deadlines").times(stream.percentiles());
    bench.printer.line(line.errors(requests - stream.len().min(requests) + seen.early))
}
