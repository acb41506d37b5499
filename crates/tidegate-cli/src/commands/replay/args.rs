//! Flags of `replay`.

use std::path::PathBuf;

use tidegate::core::Currency;

use crate::client::ServerArgs;
use crate::failure::{Failure, Result};
use crate::load::own_server::Stores;

/// Flags of `replay`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// CSV files; together they are one stream of invoices in order of time
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Where to.
    #[command(flatten)]
    pub server: ServerArgs,
    /// What a server of its own stands on.
    #[command(flatten)]
    pub stores: Stores,
    /// Names of the columns where they differ, such as invoice=order_no,price=unit_price
    #[arg(long, value_name = "COLUMN=NAME,..")]
    pub map: Option<String>,
    /// Units of each SKU
    #[arg(long, value_name = "UNITS", conflicts_with = "stock_from_total", value_parser = clap::value_parser!(i64).range(0..=tidegate::core::sku::MAX_ON_HAND))]
    pub stock: Option<i64>,
    /// Units of each SKU as a share of what the files sell of it
    #[arg(long, value_name = "RATIO", default_value_t = 1.0)]
    pub stock_from_total: f64,
    /// How many times faster than it was, or `max`
    #[arg(long, value_name = "TIMES", default_value = "max", value_parser = speed)]
    pub speed: Speed,
    /// Share of accepted orders that are paid
    #[arg(long, value_name = "RATIO", default_value_t = 0.7)]
    pub pay_ratio: f64,
    /// How long an order waits for its money, in real time
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(i64).range(1..=86_400))]
    pub hold_seconds: i64,
    /// Decides who pays
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Currency of the prices, ISO 4217
    #[arg(long, value_name = "CODE", default_value = "GBP")]
    pub currency: Currency,
    /// File that gets every row that could not be used, as NDJSON
    #[arg(long, value_name = "FILE")]
    pub unusable: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// How fast invoices are sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Speed {
    /// As fast as they are answered.
    Max,
    /// This many times faster than it was.
    Times(f64),
}

fn speed(text: &str) -> std::result::Result<Speed, String> {
    match text.parse::<f64>() {
        _ if text == "max" => Ok(Speed::Max),
        Ok(times) if times.is_finite() && times > 0.0 => Ok(Speed::Times(times)),
        _ => Err("must be `max` or a number above 0".to_owned()),
    }
}

impl Args {
    /// Checks what clap cannot.
    ///
    /// # Errors
    /// [`Failure::Usage`].
    pub fn check(&self) -> Result {
        for (flag, value, most) in
            [("--pay-ratio", self.pay_ratio, 1.0), ("--stock-from-total", self.stock_from_total, 1_000_000.0)]
        {
            if !(0.0..=most).contains(&value) {
                return Err(Failure::Usage(format!("{flag} {value}: must be a number from 0 to {most}")));
            }
        }
        if self.server.to.is_some() && self.stores.ledger.is_some() {
            return Err(Failure::Usage(
                "--ledger is for a server of the replay's own, --to (TIDEGATE_URL) names another one; give one of the two"
                    .to_owned(),
            ));
        }
        Ok(())
    }
}
