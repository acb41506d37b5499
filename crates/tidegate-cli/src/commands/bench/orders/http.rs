//! Over HTTP: the server is a process of its own, the generator this one.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Uri};
use serde_json::json;

use super::ledger::Place;
use super::library::{HOT, PLENTY, baseline};
use super::{Bench, generate};
use crate::commands::bench::child::Server;
use crate::commands::bench::line::Line;
use crate::failure::{Failure, Result};
use crate::load::drive::{self, Job, Pace, Run};
use crate::load::pool::Pool;
use crate::load::record::Record;
use crate::load::target::Target;

/// Connections of the placing cases: what a batch can be made of.
const CONNECTIONS: usize = 256;
/// Connections of the refusals, which wait for no disk.
const REFUSED_CONNECTIONS: usize = 64;
/// Connections that send batches.
const BATCH_CONNECTIONS: usize = 4;
/// Orders of one batch.
const BATCH: u64 = 500;
/// Orders of the placing cases.
const ORDERS: u64 = 200_000;
/// Requests before the clock starts.
const WARM_UP: u64 = 2_000;

/// Makes the orders `prefix-0..`, one unit of `sku` each.
pub fn orders(prefix: &'static str, sku: &'static str, hold_seconds: Option<i64>) -> Arc<Job> {
    let path = Uri::from_static("/v1/orders");
    Arc::new(move |number| {
        let mut body = Vec::with_capacity(128);
        write_order(&mut body, prefix, sku, number, hold_seconds);
        (path.clone(), Bytes::from(body))
    })
}

fn write_order(body: &mut Vec<u8>, prefix: &str, sku: &str, number: u64, hold_seconds: Option<i64>) {
    let buyer = number * 7_919 % 1_000_003;
    // Writing to a vector cannot fail.
    let _ = write!(
        body,
        r#"{{"order_id":"{prefix}-{number}","buyer_id":"buyer-{buyer}","lines":[{{"sku":"{sku}","quantity":1}}]"#
    );
    if let Some(seconds) = hold_seconds {
        let _ = write!(body, r#","hold_seconds":{seconds}"#);
    }
    body.push(b'}');
}

fn batches(prefix: &'static str) -> Arc<Job> {
    let path = Uri::from_static("/v1/orders:batch");
    Arc::new(move |number| {
        let mut body = Vec::with_capacity(100 * BATCH as usize);
        body.extend_from_slice(br#"{"orders":["#);
        for i in 0..BATCH {
            if i > 0 {
                body.push(b',');
            }
            write_order(&mut body, prefix, HOT, number * BATCH + i, None);
        }
        body.extend_from_slice(b"]}");
        (path.clone(), Bytes::from(body))
    })
}

/// Creates the SKU everybody wants.
pub async fn create_hot(target: &Target, on_hand: i64) -> Result {
    let body = Bytes::from(json!({"on_hand": on_hand}).to_string());
    let answer = Pool::new(target.clone(), 1).send(Method::PUT, &format!("/v1/skus/{HOT}"), Some(body)).await?;
    match answer.status {
        200 | 201 => Ok(()),
        status => Err(Failure::Work(format!(
            "PUT /v1/skus/{HOT} answered {status}: {}",
            String::from_utf8_lossy(&answer.body)
        ))),
    }
}

async fn drive_warm(target: &Target, connections: usize, requests: u64, first: u64, job: Arc<Job>) -> Result<Run> {
    let lost = |e| Failure::Work(format!("the load generator: {e}"));
    let warm_up = WARM_UP.min(requests);
    drive::run(target, connections, Pace::Closed { requests: warm_up }, first, Arc::clone(&job)).await.map_err(lost)?;
    drive::run(target, connections, Pace::Closed { requests }, first + warm_up, job).await.map_err(lost)
}

/// Places one order a request against `server`; `what` names the figure.
pub fn place_against(bench: &mut Bench<'_>, server: &Server, prefix: &'static str, what: &str) -> Result {
    let (baseline, ceiling) = baseline(bench)?;
    let orders_to_place = bench.scaled(ORDERS, 5_000);
    let run = generate(drive_warm(&server.target, CONNECTIONS, orders_to_place, 0, orders(prefix, HOT, None)))?;
    let errors = run.record.len() - run.record.count(201);
    let line = Line::new(format!("{what}, {CONNECTIONS} connections"), run.rate(201), "orders/s")
        .times(run.record.percentiles());
    bench.printer.line(line.beside(baseline, Some(ceiling)).errors(errors))
}

/// Measures placing over HTTP on an empty ledger.
pub fn place(bench: &mut Bench<'_>) -> Result {
    let ledger = bench.place.ledger("place")?;
    let server = Server::serve(&ledger)?;
    generate(create_hot(&server.target, PLENTY))?;
    place_against(bench, &server, "http", "place, HTTP, empty ledger")?;
    server.stop()?;
    bench.place.forget(&ledger);
    Ok(())
}

/// Rounds of [`nodes`]: one server and two by turns, so that a slow minute of the machine meets both.
const ROUNDS: u32 = 3;

/// Measures placing at two servers of one ledger beside one, with as many connections in all.
pub fn nodes(bench: &mut Bench<'_>) -> Result {
    if matches!(bench.place, Place::Folder(_)) {
        return Ok(());
    }
    let (mut alone, mut together) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        alone.push(at_servers(bench, round, ["one"])?);
        together.push(at_servers(bench, round, ["first", "second"])?);
    }
    let rate = |runs: &[Run]| {
        let took: f64 = runs.iter().map(|run| run.took.as_secs_f64()).sum();
        runs.iter().map(|run| run.record.count(201)).sum::<u64>() as f64 / took
    };
    let mut record = Record::new();
    together.iter().for_each(|run| record.merge(&run.record));
    let errors = record.len() - record.count(201);
    let what = format!("place, HTTP, two nodes, {CONNECTIONS} connections, {ROUNDS} rounds");
    let line = Line::new(what, rate(&together), "orders/s").times(record.percentiles());
    bench.printer.line(line.beside("one node", Some(rate(&alone))).errors(errors))
}

/// Places the same number of orders in all at one server a prefix, on a fresh ledger.
fn at_servers<const N: usize>(bench: &mut Bench<'_>, round: u32, prefixes: [&'static str; N]) -> Result<Run> {
    let each = bench.scaled(ORDERS, 5_000) / 2 / N as u64;
    let ledger = bench.place.ledger(&format!("nodes-{N}-{round}"))?;
    let servers: Vec<Server> = prefixes.iter().map(|_| Server::serve(&ledger)).collect::<Result<_>>()?;
    generate(create_hot(&servers[0].target, PLENTY))?;
    let runs = servers.iter().zip(prefixes).map(|(server, prefix)| {
        let target = server.target.clone();
        async move { drive_warm(&target, CONNECTIONS / N, each, 0, orders(prefix, HOT, None)).await }
    });
    let runs = generate(futures_util::future::try_join_all(runs))?;
    servers.into_iter().try_for_each(Server::stop)?;
    bench.place.forget(&ledger);
    let mut all = Run { record: Record::new(), took: Duration::ZERO };
    for run in &runs {
        all.record.merge(&run.record);
        all.took = all.took.max(run.took);
    }
    Ok(all)
}

/// Measures placing 500 orders a request.
pub fn batch(bench: &mut Bench<'_>) -> Result {
    let (baseline, ceiling) = baseline(bench)?;
    let ledger = bench.place.ledger("batch")?;
    let server = Server::serve(&ledger)?;
    let requests = bench.scaled(ORDERS, 5_000).div_ceil(BATCH);
    let run = generate(async {
        create_hot(&server.target, PLENTY).await?;
        let sent = drive::run(&server.target, BATCH_CONNECTIONS, Pace::Closed { requests }, 0, batches("batch")).await;
        sent.map_err(|e| Failure::Work(format!("the load generator: {e}")))
    })?;
    let accepted = generate(sold(&server.target))?;
    server.stop()?;
    bench.place.forget(&ledger);
    let rate = accepted as f64 / run.took.as_secs_f64();
    let line = Line::new(format!("orders:batch of {BATCH}, {BATCH_CONNECTIONS} connections"), rate, "orders/s")
        .times(run.record.percentiles());
    bench.printer.line(line.beside(baseline, Some(ceiling)).errors(requests * BATCH - accepted))
}

/// Units of the hot SKU that orders hold or have bought.
async fn sold(target: &Target) -> Result<u64> {
    let answer = Pool::new(target.clone(), 1).get(&format!("/v1/skus/{HOT}")).await?;
    let sku: crate::load::shapes::Sku = answer.json().map_err(|e| Failure::Work(e.to_string()))?;
    Ok((sku.held + sku.sold).unsigned_abs())
}

/// Measures refusals beside the bare handler.
pub fn sold_out(bench: &mut Bench<'_>) -> Result {
    let requests = bench.scaled(400_000, 5_000);
    let refuse =
        |target: &Target| generate(drive_warm(target, REFUSED_CONNECTIONS, requests, 0, orders("late", HOT, None)));

    let bare = Server::bare(&bench.folder.join("bare.log"))?;
    let beside = refuse(&bare.target)?;
    bare.stop()?;

    let ledger = bench.place.ledger("sold-out")?;
    let server = Server::serve(&ledger)?;
    generate(create_hot(&server.target, 0))?;
    let run = refuse(&server.target)?;
    server.stop()?;
    bench.place.forget(&ledger);

    let bare = Line::new(
        format!("bare handler answering 409, {REFUSED_CONNECTIONS} connections"),
        beside.rate(409),
        "answers/s",
    );
    bench.printer.line(bare.times(beside.record.percentiles()))?;
    let errors = run.record.len() - run.record.count(409);
    let line = Line::new(format!("sold out, HTTP, {REFUSED_CONNECTIONS} connections"), run.rate(409), "answers/s")
        .times(run.record.percentiles());
    bench.printer.line(line.beside("bare handler", Some(beside.rate(409))).errors(errors))
}
