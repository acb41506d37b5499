//! What is kept on disk.

use super::super::finding::{Severity, Told, rounded};
use super::super::settings::Purpose;
use super::{Measure, View, WELL};

/// The age of a snapshot that counts as the plan where the save points cannot be seen and snapshots are made, seconds.
const A_DAY_S: f64 = 86_400.0;

fn is_error(view: &View, field: &str) -> Option<bool> {
    view.info.text(field).map(|status| status != "ok")
}

fn now_s(view: &View) -> f64 {
    // The server's own clock: ours may differ.
    let server = view.info.number("server_time_usec").map(|us| us as f64 / 1e6);
    server.unwrap_or(view.sample.at.0 as f64 / 1_000.0)
}

fn age_s(view: &View) -> Option<f64> {
    view.info.number("rdb_last_save_time").map(|at| (now_s(view) - at as f64).max(0.0))
}

pub(in super::super) fn save_failing(view: &View) -> Measure {
    is_error(view, "rdb_last_bgsave_status").map(|failed| if failed { 1.0 } else { 0.0 }).into()
}

pub(in super::super) fn tell_save_failing(view: &View) -> Told {
    // Unless it is known to be off, writes stop: that is how servers come.
    let stops = view.answer.config.stops_writes;
    let refused = view.info.errors("MISCONF").filter(|count| *count > 0);
    let severity = match (stops, view.purpose) {
        (Some(false), Purpose::Cache) => Severity::Warning,
        _ => Severity::Critical,
    };
    let then = match (refused, stops) {
        (Some(count), _) => format!("writes are refused (MISCONF, {count} so far)"),
        (None, Some(false)) => "a restart would lose what was written since".to_owned(),
        (None, _) => {
            "writes will be refused (MISCONF) until one succeeds, unless stop-writes-on-bgsave-error is off".to_owned()
        }
    };
    Told::new(severity, format!("the last snapshot failed: {then}"))
        .with("last_status", view.info.text("rdb_last_bgsave_status"))
        .with("age_seconds", age_s(view).map(f64::round))
        .with("changes_since", view.info.number("rdb_changes_since_last_save"))
        .with("stops_writes", stops)
        .with("writes_refused", refused)
        .next(
            view.cli("CONFIG GET dir"),
            "reads only. See with `df -h` whether that disk is full or the folder gone, and in the server's log why; when it is mended, `BGSAVE`. \
             `CONFIG SET stop-writes-on-bgsave-error no` lets writes through without a copy on disk",
        )
}

/// After how many seconds a snapshot is due, given what was changed.
fn plan_s(view: &View, changes: u64) -> Option<f64> {
    match &view.answer.config.save {
        Some(points) => {
            let due = points.iter().filter(|(_, least)| changes >= *least).map(|(seconds, _)| *seconds).min();
            due.map(|seconds| seconds.max(1) as f64)
        }
        // Not permitted to look: whoever has made some wants them.
        None => view.info.number("rdb_saves").filter(|made| *made > 0).map(|_| A_DAY_S),
    }
}

/// The age of the last snapshot in times of the plan.
pub(in super::super) fn save_old(view: &View) -> Measure {
    if view.info.is_on("aof_enabled") == Some(true) {
        return WELL;
    }
    let (Some(age), Some(changes)) = (age_s(view), view.info.number("rdb_changes_since_last_save")) else {
        return Measure::Unknown;
    };
    if changes == 0 {
        return WELL;
    }
    plan_s(view, changes).map_or(WELL, |plan| Measure::Level(age / plan))
}

pub(in super::super) fn tell_save_old(view: &View) -> Told {
    let changes = view.info.number("rdb_changes_since_last_save").unwrap_or_default();
    let age = age_s(view).unwrap_or_default();
    let plan = plan_s(view, changes).unwrap_or_default();
    let running = view.info.is_on("rdb_bgsave_in_progress") == Some(true);
    let doing = if running { ", and one has been on its way for long" } else { "" };
    let severity = if view.purpose == Purpose::State { Severity::Critical } else { Severity::Warning };
    let cause = format!(
        "the last snapshot is {age:.0} s old{doing}; with {changes} changes one was due after {plan:.0} s. A restart would lose them"
    );
    Told::new(severity, cause)
        .with("age_seconds", Some(age.round()))
        .with("plan_seconds", Some(plan))
        .with("changes_since", Some(changes))
        .with("in_progress", Some(running))
        .with("in_progress_seconds", view.info.number("rdb_current_bgsave_time_sec"))
        .with("last_status", view.info.text("rdb_last_bgsave_status"))
        .next(
            if running { view.cli("INFO persistence") } else { view.cli("BGSAVE") },
            if running {
                "reads only: current_save_keys_processed shows whether it gets on; a full or slow disk is the usual cause"
            } else {
                "it forks: a pause of about 10 to 20 ms for each GiB, and memory for what is changed meanwhile"
            },
        )
}

pub(in super::super) fn aof_failing(view: &View) -> Measure {
    match view.info.is_on("aof_enabled") {
        Some(true) => {}
        Some(false) => return WELL,
        None => return Measure::Unknown,
    }
    let failures = ["aof_last_write_status", "aof_last_bgrewrite_status"].map(|field| is_error(view, field));
    if failures.iter().all(Option::is_none) {
        return Measure::Unknown;
    }
    Measure::Level(failures.into_iter().filter(|failed| *failed == Some(true)).count() as f64)
}

pub(in super::super) fn tell_aof_failing(view: &View) -> Told {
    let writes = is_error(view, "aof_last_write_status") == Some(true);
    let (severity, cause) = if writes {
        (
            Severity::Critical,
            "the append-only file cannot be written: writes are refused (MISCONF), or lost with a restart",
        )
    } else {
        (
            Severity::Warning,
            "the append-only file could not be rewritten: it grows until it fills the disk, and a restart takes ever longer",
        )
    };
    Told::new(severity, cause)
        .with("last_write", view.info.text("aof_last_write_status"))
        .with("last_rewrite", view.info.text("aof_last_bgrewrite_status"))
        .with("failures_in_a_row", view.info.number("aof_rewrites_consecutive_failures"))
        .with("aof_bytes", view.info.number("aof_current_size"))
        .with("delayed_syncs", view.info.number("aof_delayed_fsync"))
        .with("growth", growth(view).map(rounded))
        .next(
            if writes { view.cli("CONFIG GET dir") } else { view.cli("BGREWRITEAOF") },
            if writes {
                "reads only. See with `df -h` whether that disk is full, and in the server's log why; writes go on by themselves once there is room"
            } else {
                "it forks: a pause, memory for what is changed meanwhile, and room on disk for a second file"
            },
        )
}

fn growth(view: &View) -> Option<f64> {
    let (now, base) = (view.info.number("aof_current_size")?, view.info.number("aof_base_size")?);
    (base > 0).then(|| now as f64 / base as f64)
}
