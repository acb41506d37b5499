//! `tidegate replay`: real orders from CSV, placed, paid and cancelled as they were.
//!
//! - [`args`]: the flags. [`source`], [`columns`], [`row`], [`price`]: a row as it stands in a file. [`reason`], [`unusable`]: why one cannot be used.
//! - [`index`], [`plan`], [`invoice`]: rows put together to invoices in order of time, without keeping them.
//! - [`catalogue`], [`send`], [`cancellations`]: what the server is told. [`report`]: what came of it.

mod args;
mod cancellations;
mod catalogue;
mod columns;
mod index;
mod invoice;
mod plan;
mod price;
mod reason;
mod report;
mod row;
mod send;
mod source;
mod unusable;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tidegate::core::Settings;

pub use self::args::Args;
use self::args::Speed;
use self::cancellations::Orders;
use self::catalogue::{Catalogue, Stock};
use self::columns::Names;
use self::invoice::Invoice;
use self::plan::{Fault, Plan};
use self::report::{Report, Rows};
use self::send::{Habits, Sender};
use self::unusable::Unusable;
use crate::failure::{Failure, Result};
use crate::load::own_server::OwnServer;
use crate::load::pool::Pool;
use crate::load::summary::Summary;
use crate::load::target::Target;
use crate::load::verify;
use crate::progress::Progress;
use crate::{output, runtime};

/// Connections of a replay.
const CONNECTIONS: usize = 16;
/// Longest wait for an invoice, seconds: a century.
const LONGEST_WAIT: f64 = 3e9;
/// How long after the last deadline the orders are read.
const AFTER_THE_LAST: Duration = Duration::from_millis(100);

/// Runs it.
pub fn run(args: Args) -> Result {
    args.check()?;
    let sound = runtime::run(replay(&args))?;
    if sound { Ok(()) } else { Err(Failure::Found) }
}

async fn replay(args: &Args) -> Result<bool> {
    let names = Names::parse(args.map.as_deref())?;
    let mut unusable = Unusable::new(&args.files, args.unusable.as_deref())?;
    let mut plan = Plan::read(&args.files, &names, args.currency, &mut unusable, args.json)?;
    if plan.orders == 0 {
        unusable.finish()?;
        return Err(Failure::Work(format!(
            "no order in {} rows could be used; check the columns with --map",
            plan.rows
        )));
    }
    let own = match &args.server.to {
        Some(_) => None,
        None => Some(
            OwnServer::start(&args.stores, Settings { hold_seconds: args.hold_seconds, ..Settings::default() }).await?,
        ),
    };
    let target = match (&own, &args.server.to) {
        (Some(own), _) => Target::local(own.addr)?,
        (None, url) => {
            Target::parse(url.as_deref().unwrap_or(crate::client::DEFAULT_URL), args.server.token.as_deref())?
        }
    };
    let done = against(args, &mut plan, &mut unusable, Pool::new(target, CONNECTIONS), own.as_ref()).await;
    unusable.finish()?;
    if let Some(own) = own {
        own.stop().await?;
    }
    done
}

async fn against(
    args: &Args,
    plan: &mut Plan,
    unusable: &mut Unusable,
    pool: Pool,
    own: Option<&OwnServer>,
) -> Result<bool> {
    let stock = args.stock.map_or(Stock::OfTotal(args.stock_from_total), Stock::Each);
    let mut catalogue = Catalogue::create(pool.clone(), args.currency, &plan.skus, stock).await?;
    if catalogue.kept_stock > 0 {
        output::note(format!(
            "{} with another stock on the server, which is kept",
            output::count(catalogue.kept_stock, "SKU")
        ));
    }
    let habits = Habits { pay_ratio: args.pay_ratio, hold_seconds: args.hold_seconds, seed: args.seed };
    let mut sender = Sender::new(pool.clone(), habits, Orders::of(std::mem::take(&mut plan.cancelling)), unusable);
    let began = Instant::now();
    send_all(args, plan, &mut sender, &mut catalogue).await?;
    let took = began.elapsed();
    let Sender { sent, place, .. } = sender;
    if let Some(last) = sent.last_deadline {
        let progress = Progress::new("waiting for the last deadline", None, args.json);
        progress.message(format!("{:.1} s", last.saturating_duration_since(Instant::now()).as_secs_f64()));
        tokio::time::sleep_until((last + AFTER_THE_LAST).into()).await;
    }
    let skus: Vec<String> = plan.skus.iter().map(|sold| sold.sku.to_string()).collect();
    let seen = verify::look(&pool, &sent.accepted, &skus, own.is_none(), &BTreeMap::new()).await?;
    let mut findings = seen.findings;
    let mut invariants = seen.invariants;
    if let Some(own) = own {
        own.audit(&mut invariants, &mut findings).await?;
    }
    let revived = sent.paid.get("revived").copied().unwrap_or(0);
    let summary = Summary {
        placed: sent.placed,
        paid: sent.paid.get("applied").copied().unwrap_or(0) + revived,
        expired: seen.expired + revived,
        cancelled: seen.cancelled,
        revived,
        refused: sent.refused.values().sum(),
        oversold: seen.occupancy.finish().oversold(),
        duplicates: sent.duplicates,
        orders_per_second: (sent.placed + sent.replayed) as f64 / took.as_secs_f64().max(f64::EPSILON),
        place_ms: place.percentiles(),
        lateness_ms: seen.lateness.percentiles(),
        invariants,
    };
    let sound = summary.is_sound();
    let rows = Rows { read: plan.rows, used: sent.rows, unusable: unusable.counts().clone() };
    let report = Report {
        summary,
        replayed: sent.replayed,
        refusals: sent.refused,
        rows,
        orders_in_file: plan.orders,
        cancellations: plan.cancellations,
        guests: plan.guests,
    };
    findings.iter().for_each(output::note);
    if args.json {
        output::json(&report)?
    } else {
        output::line(report.text(unusable, plan, catalogue.price_changes))?
    }
    Ok(sound)
}

async fn send_all(args: &Args, plan: &mut Plan, sender: &mut Sender<'_>, catalogue: &mut Catalogue) -> Result {
    let progress = Progress::new("replaying invoices", Some(plan.entries.len() as u64), args.json);
    let digits = args.currency.minor_digits();
    let first = plan.entries.first().map_or(0, |entry| entry.at);
    let began = Instant::now();
    // What cannot be used was told at the readings before.
    let told = |_, _| Ok::<(), Fault>(());
    for entry in &plan.entries {
        progress.add(1);
        let read = Invoice::read(entry, &mut plan.sources, digits, told);
        let Some(invoice) = read.map_err(|fault| fault.at(std::path::Path::new("a file")))? else { continue };
        if let Speed::Times(times) = args.speed {
            let after = ((entry.at - first) as f64 / 1_000.0 / times).min(LONGEST_WAIT);
            tokio::time::sleep_until((began + Duration::from_secs_f64(after.max(0.0))).into()).await;
        }
        sender.send(&invoice, catalogue).await?;
    }
    sender.payments_done().await
}
