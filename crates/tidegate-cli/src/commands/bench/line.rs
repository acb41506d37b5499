//! One figure, and how it is printed.

use serde::Serialize;

use super::machine::Machine;
use crate::failure::Result;
use crate::load::record::Percentiles;
use crate::output;

/// One figure. Fields that do not apply are left out.
#[derive(Debug, Clone, Serialize, Default)]
pub struct Line {
    /// The bench it belongs to.
    pub bench: &'static str,
    /// What was measured.
    pub what: String,
    /// How much of it.
    pub rate: f64,
    /// In what.
    pub unit: &'static str,
    /// Half took at most this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_ms: Option<f64>,
    /// 99 of 100 took at most this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ms: Option<f64>,
    /// All took at most this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_ms: Option<f64>,
    /// The rate of the raw baseline in the same run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<f64>,
    /// `rate / ceiling`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// Which baseline that is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline: Option<&'static str>,
    /// Requests that were not answered as they should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errors: Option<u64>,
}

impl Line {
    /// A figure.
    pub fn new(what: impl Into<String>, rate: f64, unit: &'static str) -> Self {
        Self { what: what.into(), rate, unit, ..Self::default() }
    }

    /// With latencies.
    #[must_use]
    pub fn times(mut self, p: Percentiles) -> Self {
        (self.p50_ms, self.p99_ms, self.max_ms) = (Some(p.p50), Some(p.p99), Some(p.max));
        self
    }

    /// Beside a baseline.
    #[must_use]
    pub fn beside(mut self, baseline: &'static str, ceiling: Option<f64>) -> Self {
        if let Some(ceiling) = ceiling.filter(|c| *c > 0.0) {
            let ratio = thousandths(self.rate / ceiling);
            (self.baseline, self.ceiling, self.ratio) = (Some(baseline), Some(thousandths(ceiling)), Some(ratio));
        }
        self
    }

    /// With what went wrong.
    #[must_use]
    pub fn errors(mut self, errors: u64) -> Self {
        self.errors = (errors > 0).then_some(errors);
        self
    }

    fn cells(&self) -> Vec<String> {
        let ms = |value: Option<f64>| value.map_or_else(String::new, short);
        let ratio = self.ratio.map_or_else(String::new, |r| format!("{:.0} %", r * 100.0));
        let ceiling = self.ceiling.map_or_else(String::new, |c| format!("{c:.0}"));
        let rate = if self.rate < 100.0 { format!("{:.2}", self.rate) } else { format!("{:.0}", self.rate) };
        let errors = self.errors.map_or_else(String::new, |n| format!(", {n} errors"));
        let what = format!("{}{errors}", self.what);
        vec![what, rate, self.unit.to_owned(), ms(self.p50_ms), ms(self.p99_ms), ms(self.max_ms), ceiling, ratio]
    }
}

/// A time in milliseconds, with as many digits as say something.
fn short(ms: f64) -> String {
    if ms >= 0.1 || ms == 0.0 { format!("{ms:.1}") } else { format!("{ms:.6}") }
}

/// No figure here means more than a thousandth.
fn thousandths(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

/// Prints figures: each at once as JSON, or all as a table at the end.
pub struct Printer {
    bench: &'static str,
    json: bool,
    rows: Vec<Vec<String>>,
}

impl Printer {
    /// A printer of the figures of `bench`.
    pub fn new(bench: &'static str, json: bool) -> Self {
        let head =
            ["what", "rate", "unit", "p50 ms", "p99 ms", "max ms", "ceiling", "ratio"].map(str::to_owned).to_vec();
        Self { bench, json, rows: vec![head] }
    }

    /// Prints on what this is measured.
    ///
    /// # Errors
    /// When stdout cannot be written.
    pub fn machine(&mut self) -> Result {
        let machine = Machine::here();
        if machine.build == "debug" {
            output::note("this is a debug build: its figures mean nothing; use a release build");
        }
        if self.json { output::json(&machine) } else { output::line(machine.text()) }
    }

    /// Tells what is under way, on stderr.
    pub fn step(&self, what: &str) {
        output::note(format!("bench: {what}"));
    }

    /// Prints a figure.
    ///
    /// # Errors
    /// When stdout cannot be written.
    pub fn line(&mut self, line: Line) -> Result {
        let line = Line { bench: self.bench, rate: thousandths(line.rate), ..line };
        if self.json {
            return output::json(&line);
        }
        let cells = line.cells();
        output::note(format!(
            "  {}",
            cells.iter().filter(|cell| !cell.is_empty()).cloned().collect::<Vec<_>>().join("  ")
        ));
        self.rows.push(cells);
        Ok(())
    }

    /// Prints the table, if that is how.
    ///
    /// # Errors
    /// When stdout cannot be written.
    pub fn finish(&self) -> Result {
        if self.json || self.rows.len() == 1 { Ok(()) } else { output::line(output::table(&self.rows).trim_end()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_apply_is_left_out() {
        let line = Line::new("idle", 0.5, "% of a core").beside("nothing", None).errors(0);
        assert_eq!(
            serde_json::to_string(&line).unwrap(),
            r#"{"bench":"","what":"idle","rate":0.5,"unit":"% of a core"}"#
        );
        let line = Line::new("place", 50.0, "orders/s").beside("bare", Some(100.0)).errors(2);
        assert_eq!((line.ratio, line.errors), (Some(0.5), Some(2)));
    }
}
