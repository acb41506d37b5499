//! At rest: how soon a server is ready, what it uses while nobody calls; and placing on a full ledger, which is at hand
//! here.

use std::time::Duration;

use super::http::place_against;
use super::library::{fill, open};
use super::{Bench, wait};
use crate::commands::bench::child::Server;
use crate::commands::bench::line::Line;
use crate::failure::Result;
use crate::runtime;

/// Hold of the orders of the full ledger, seconds: longer than any run.
const HOLD: i64 = 86_400;
/// How long a server settles, and how long it is watched.
const SETTLE: Duration = Duration::from_secs(2);
const WATCH: Duration = Duration::from_secs(5);

fn rest(bench: &mut Bench<'_>, server: &Server, name: &str) -> Result {
    wait(SETTLE)?;
    let before = server.cpu_seconds();
    wait(WATCH)?;
    let share = (server.cpu_seconds() - before) / WATCH.as_secs_f64() * 100.0;
    bench.printer.line(Line::new(format!("{name}: ready after"), server.ready_after.as_secs_f64() * 1_000.0, "ms"))?;
    bench.printer.line(Line::new(format!("{name}: at rest"), share, "% of a core"))?;
    let mib = server.resident_bytes() as f64 / f64::from(1_u32 << 20);
    bench.printer.line(Line::new(format!("{name}: memory"), mib, "MiB"))
}

/// An empty server.
pub fn empty(bench: &mut Bench<'_>) -> Result {
    let ledger = bench.place.ledger("empty")?;
    let server = Server::serve(&ledger)?;
    rest(bench, &server, "empty")?;
    server.stop()?;
    bench.place.forget(&ledger);
    Ok(())
}

/// A server with a full ledger.
pub fn full(bench: &mut Bench<'_>) -> Result {
    let ledger = bench.place.ledger("full")?;
    let orders = bench.scaled(bench.preload, 10_000);
    runtime::run(async {
        let tidegate = open(&ledger, 1_800, false).await?;
        fill(&tidegate, "full", orders, || HOLD).await?;
        tidegate.stop(Duration::from_secs(60)).await?;
        Ok(())
    })?;
    let name = format!("{orders} pending");
    let server = Server::serve(&ledger)?;
    rest(bench, &server, &name)?;
    place_against(bench, &server, "more", &format!("place, HTTP, {name}"))?;
    server.stop()?;
    bench.place.forget(&ledger);
    Ok(())
}
