//! `tidegate demo`: a whole flash sale, and what became of every order of it.
//!
//! - [`plan`]: what each buyer will do, decided by the seed. [`crowd`], [`after`]: the buyers, over HTTP. [`tally`]: what they were told.
//! - [`verdict`]: events, answers and the auditor put together.

mod after;
mod crowd;
mod plan;
mod tally;
mod verdict;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::value_parser;
use http::Method;
use serde_json::json;
use tidegate::core::Settings;
use tokio::task::JoinSet;

use self::crowd::{Crowd, sku};
use self::plan::Sale;
use crate::failure::{Failure, Result};
use crate::load::own_server::{OwnServer, Stores};
use crate::load::pool::Pool;
use crate::load::shapes::Batch;
use crate::load::target::Target;
use crate::progress::Progress;
use crate::{output, runtime};

/// What everything costs money in.
const CURRENCY: &str = "EUR";
/// Every fourth SKU is limited to this many units a buyer.
const LIMIT_PER_BUYER: i64 = 4;
/// How long after the last deadline the events are read.
const AFTER_THE_LAST: Duration = Duration::from_millis(200);

/// Flags of `demo`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Orders that are tried
    #[arg(long, default_value_t = 20_000, value_parser = value_parser!(u64).range(1..=10_000_000))]
    orders: u64,
    /// Buyers who share them
    #[arg(long, default_value_t = 5_000, value_parser = value_parser!(u64).range(1..=10_000_000))]
    buyers: u64,
    /// SKUs on sale
    #[arg(long, default_value_t = 20, value_parser = value_parser!(u64).range(1..=1_000))]
    skus: u64,
    /// Units of each SKU
    #[arg(long, default_value_t = 500, value_parser = value_parser!(i64).range(0..=1_000_000_000))]
    stock: i64,
    /// Share of accepted orders that are paid in time
    #[arg(long, value_name = "RATIO", default_value_t = 0.6)]
    pay_ratio: f64,
    /// How long an order waits for its money
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = value_parser!(i64).range(1..=86_400))]
    hold_seconds: i64,
    /// Decides what every buyer does
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    stores: Stores,
    /// Keep the server and its dashboard until Ctrl-C
    #[arg(long)]
    keep_open: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs it.
pub fn run(args: Args) -> Result {
    if !(0.0..=1.0).contains(&args.pay_ratio) {
        return Err(Failure::Usage(format!("--pay-ratio {}: must be a number from 0 to 1", args.pay_ratio)));
    }
    runtime::start(None)?.block_on(async {
        let settings = Settings { hold_seconds: args.hold_seconds, ..Settings::default() };
        let own = OwnServer::start(&args.stores, settings).await?;
        let sound = tokio::select! {
            sound = sell(&args, &own) => sound,
            () = runtime::interrupted() => Err(Failure::Interrupted),
        };
        if args.keep_open && sound.is_ok() {
            output::note(format!("the server stays at http://{}/ until Ctrl-C", own.addr));
            runtime::interrupted().await;
        }
        own.stop().await?;
        if sound? { Ok(()) } else { Err(Failure::Found) }
    })
}

async fn sell(args: &Args, own: &OwnServer) -> Result<bool> {
    if !args.json {
        output::note(format!("dashboard: http://{}/", own.addr));
    }
    let hold_ms = args.hold_seconds.unsigned_abs() * 1_000;
    let sale = Sale {
        orders: args.orders,
        buyers: args.buyers,
        skus: args.skus,
        pay_ratio: args.pay_ratio,
        hold_ms,
        seed: args.seed,
    };
    let target = Target::local(own.addr)?;
    let crowd = Arc::new(Crowd::new(sale, &target, Progress::new("selling", Some(args.orders), args.json)));
    let first_event = catalogue(crowd.others(), args, own).await?;

    let mut visits = JoinSet::new();
    let opened = Instant::now();
    crowd.rush(&mut visits).await;
    let rush = opened.elapsed();
    tokio::time::sleep_until((opened + Duration::from_millis(hold_ms)).into()).await;
    let second = Instant::now();
    crowd.second_wave(rush + Duration::from_millis(hold_ms / 2), &mut visits).await;
    let selling = rush + second.elapsed();
    crowd.all_left(&mut visits).await;
    let last = crowd.tally.told().last_deadline;
    if let Some(last) = last {
        tokio::time::sleep_until((last + AFTER_THE_LAST).into()).await;
    }

    let verdict = verdict::reach(args, &crowd, own, first_event, selling).await?;
    verdict.findings.iter().for_each(output::note);
    if args.json {
        output::json(&verdict.summary)?
    } else {
        output::line(verdict.text(args))?
    }
    Ok(verdict.is_sound())
}

/// Puts the SKUs on sale. Gives the newest event before the sale.
async fn catalogue(pool: &Pool, args: &Args, own: &OwnServer) -> Result<i64> {
    let first_event = *own.tidegate.operations().newest_event().borrow();
    let skus: Vec<_> = (0..args.skus)
        .map(|number| {
            let price = 500 + 250 * number;
            let mut card = json!({"sku": sku(number), "title": format!("Demo article {}", number + 1), "on_hand": args.stock, "price": {"amount": price, "currency": CURRENCY}});
            if number % 4 == 3 {
                card["max_per_buyer"] = LIMIT_PER_BUYER.into();
            }
            card
        })
        .collect();
    let answer =
        pool.send(Method::POST, "/v1/skus:batch", Some(Bytes::from(json!({"skus": skus}).to_string()))).await?;
    let told = || {
        Failure::Work(format!(
            "POST /v1/skus:batch answered {}: {}",
            answer.status,
            String::from_utf8_lossy(&answer.body)
        ))
    };
    let batch: Batch = answer.json().map_err(|_| told())?;
    match batch.results.iter().find_map(|item| item.problem.as_ref().filter(|_| item.status >= 300)) {
        None => Ok(first_event),
        Some(problem) if problem.code == "stock-exists" => Err(Failure::Usage(
            "--ledger: there was a demo on this ledger before; give it a new file, or leave --ledger out".to_owned(),
        )),
        Some(problem) => Err(Failure::Work(format!("putting the SKUs on sale: {}: {}", problem.code, problem.detail))),
    }
}
