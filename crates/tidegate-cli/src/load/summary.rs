//! What `demo` and `replay` report: the JSON object of both, and the table people get.

use std::collections::BTreeMap;

use serde::Serialize;

use super::record::Percentiles;
use crate::output;

/// The counts and figures of a run, as `--json` prints them.
#[derive(Debug, Clone, Serialize, Default)]
pub struct Summary {
    /// Orders accepted (`201`).
    pub placed: u64,
    /// Orders whose money was taken, the revived among them.
    pub paid: u64,
    /// Orders the clock cancelled.
    pub expired: u64,
    /// Orders cancelled by request.
    pub cancelled: u64,
    /// Orders that late money brought back.
    pub revived: u64,
    /// Orders refused by the rules (sold out, limits).
    pub refused: u64,
    /// Units accepted beyond the stock, by the answers alone; anything but 0 is a fault.
    pub oversold: u64,
    /// Order ids accepted twice; anything but 0 is a fault.
    pub duplicates: u64,
    /// Orders answered a second while orders were being sent.
    #[serde(serialize_with = "tenths")]
    pub orders_per_second: f64,
    /// What the buyers waited for the answer to an order.
    pub place_ms: Percentiles,
    /// From `release_at` to the instant the clock cancelled.
    pub lateness_ms: Percentiles,
    /// Whether each invariant held; what could not be checked is absent.
    pub invariants: BTreeMap<String, bool>,
}

impl Summary {
    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.oversold == 0 && self.duplicates == 0 && self.invariants.values().all(|held| *held)
    }

    /// The figures as a table.
    pub fn table(&self) -> String {
        let count = |name: &str, n: u64| vec![name.to_owned(), n.to_string()];
        let mut rows = vec![vec!["orders".to_owned(), String::new()]];
        rows.push(count("placed", self.placed));
        rows.push(count("refused", self.refused));
        rows.push(count("paid", self.paid));
        rows.push(count("expired", self.expired));
        rows.push(count("revived", self.revived));
        rows.push(count("cancelled", self.cancelled));
        rows.push(count("oversold units", self.oversold));
        rows.push(count("duplicates", self.duplicates));
        let times = |name: &str, p: Percentiles| vec![name.to_owned(), ms(p.p50), ms(p.p99), ms(p.max)];
        let head = ["milliseconds", "p50", "p99", "max"].map(str::to_owned).to_vec();
        let latencies = [head, times("placing", self.place_ms), times("lateness of the clock", self.lateness_ms)];
        format!(
            "{}\n{}\n{:.0} orders/s\n\n{}",
            output::table(&rows),
            output::table(&latencies),
            self.orders_per_second,
            self.verdict()
        )
    }

    /// One line on the invariants.
    fn verdict(&self) -> String {
        let named = |want: bool| {
            output::invariants(self.invariants.iter().filter(|(_, held)| **held == want).map(|(name, _)| name.as_str()))
        };
        match (named(true), named(false)) {
            (held, broken) if broken.is_empty() => format!("every invariant that was checked holds: {held}"),
            (held, broken) => format!("BROKEN: {broken} (held: {held})"),
        }
    }
}

fn ms(value: f64) -> String {
    format!("{value:.1}")
}

/// A tenth is more than such a figure means.
fn tenths<S: serde::Serializer>(value: &f64, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64((value * 10.0).round() / 10.0)
}
