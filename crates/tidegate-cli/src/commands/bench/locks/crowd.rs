//! Many processes, each caller with a lock of its own.

use super::child::{Order, Report};
use super::{Bench, failed};
use crate::commands::bench::line::Line;
use crate::commands::bench::process::{all, start_all};
use crate::failure::Result;
use crate::load::record::Percentiles;

const PROCESSES: usize = 8;
const CALLERS: usize = 32;
const FOR_MS: u64 = 10_000;

/// Measures.
pub fn measure(bench: &mut Bench<'_>) -> Result {
    let for_ms = bench.scaled(FOR_MS, 500);
    let mut processes = start_all("locks-process", PROCESSES, &bench.setup())?;
    let reports: Vec<Report> = all(&mut processes, &Order::Loop { callers: CALLERS, for_ms })?;
    if reports.iter().all(|report| report.pairs == 0) {
        return Err(failed("nobody got a lock"));
    }
    let pairs: u64 = reports.iter().map(|report| report.pairs).sum();
    let errors: u64 = reports.iter().map(|report| report.errors).sum();
    // The worst process stands for all.
    let most = |of: fn(&Report) -> f64| reports.iter().map(of).fold(0.0, f64::max);
    let times = Percentiles {
        p50: most(|report| report.acquired_ms[0]),
        p99: most(|report| report.acquired_ms[1]),
        max: most(|report| report.acquired_ms[2]),
    };
    let what = format!("{PROCESSES} processes x {CALLERS} callers, own locks: acquire (of the slowest process)");
    let rate = pairs as f64 * 1_000.0 / for_ms as f64;
    bench.printer.line(Line::new(what, rate, "pairs/s").times(times).errors(errors))
}
