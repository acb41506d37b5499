//! What a replay prints.

use std::collections::BTreeMap;

use serde::Serialize;

use super::plan::Plan;
use super::reason::Reason;
use super::unusable::Unusable;
use crate::load::summary::Summary;
use crate::output::count;

/// The JSON object of `replay --json`: the one of `demo`, and what became of the rows.
#[derive(Serialize)]
pub struct Report {
    /// What `demo` reports too.
    #[serde(flatten)]
    pub summary: Summary,
    /// Orders that an earlier run of the same files had placed.
    pub replayed: u64,
    /// Refused orders by code.
    pub refusals: BTreeMap<String, u64>,
    /// The rows of the files.
    pub rows: Rows,
    /// Invoices that are orders.
    pub orders_in_file: u64,
    /// Invoices that are cancellations.
    pub cancellations: u64,
    /// Orders without a customer, sold to `guest-<invoice>`.
    pub guests: u64,
}

/// The rows of the files.
#[derive(Serialize)]
pub struct Rows {
    /// All of them.
    pub read: u64,
    /// Those that were sent as lines of an order, or cancelled one.
    pub used: u64,
    /// The others by reason.
    pub unusable: BTreeMap<Reason, u64>,
}

impl Report {
    /// The report for people.
    pub fn text(&self, unusable: &Unusable, plan: &Plan, price_changes: u64) -> String {
        let mut text = format!(
            "{}: {} used, {} not. {} ({} of guests), {}, {}, {}.\n\n",
            count(self.rows.read, "row"),
            self.rows.used,
            unusable.total(),
            count(self.orders_in_file, "order"),
            self.guests,
            count(self.cancellations, "cancellation"),
            count(plan.skus.len() as u64, "SKU"),
            count(price_changes, "price change"),
        );
        text.push_str(&self.summary.table());
        if self.replayed > 0 {
            text.push_str(&format!(
                "\n{} of an earlier run of these files, not placed again",
                count(self.replayed, "order")
            ));
        }
        if !self.refusals.is_empty() {
            let codes: Vec<_> = self.refusals.iter().map(|(code, n)| format!("{n} {code}")).collect();
            text.push_str(&format!("\nrefused: {}", codes.join(", ")));
        }
        if unusable.total() > 0 {
            text.push_str("\n\nnot used:");
            for (reason, n) in unusable.counts() {
                let (name, meaning, lines) = (reason.name(), reason.meaning(), unusable.listed(*reason));
                text.push_str(&format!("\n{n:>6} {name}: {meaning}\n       {lines}"));
            }
        }
        text
    }
}
