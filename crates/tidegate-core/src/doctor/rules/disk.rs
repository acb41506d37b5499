//! What is kept on disk.

use super::{Judged, Missing, View, WELL, found, told};
use crate::watch::finding::{bytes, rounded};
use crate::watch::{Purpose, Severity};

/// How many times the plan a snapshot may be old.
const TIMES: f64 = 2.0;

fn severe(view: &View) -> Severity {
    if view.role() == Purpose::State { Severity::Critical } else { Severity::Warning }
}

pub(super) fn off(view: &View) -> Judged {
    if view.node.info.is_on("aof_enabled") == Some(true) {
        return WELL;
    }
    let save = view.setting("save")?;
    if !save.trim().is_empty() {
        return WELL;
    }
    let replicas = view.replicas();
    let empties = if replicas > 0 { "; a master that comes back empty empties its replicas, too" } else { "" };
    let told = told(severe(view), format!("nothing is kept on disk: a restart loses every key{empties}"))
        .with("append_only", Some(false))
        .with("save", Some(save))
        .with("replicas", Some(replicas))
        .with("used_bytes", view.node.info.number("used_memory"));
    let used = view.node.info.number("used_memory_rss").unwrap_or_default();
    // The first file is written by a fork.
    let has_room = view.machine().is_some_and(|machine| used.saturating_add(used / 2) <= machine);
    view.mended(
        told,
        "a fork now for the first file, then a write to the disk with every change, synced once a second: the disk must keep up",
        has_room,
        &[("appendonly", "yes")],
    )
}

pub(super) fn failing(view: &View) -> Judged {
    let fails = |name: &str| view.node.info.text(name).map(|status| status != "ok");
    let (snapshot, append) = (fails("rdb_last_bgsave_status"), fails("aof_last_write_status"));
    let rewrite = fails("aof_last_bgrewrite_status");
    let status = |name: &str| view.node.info.text(name).map(str::to_owned);
    let evidence = |told: crate::watch::finding::Told| {
        told.with("last_snapshot", status("rdb_last_bgsave_status"))
            .with("last_append", status("aof_last_write_status"))
            .with("last_rewrite", status("aof_last_bgrewrite_status"))
            .with("writes_refused", view.node.info.errors("MISCONF"))
    };
    let severity = if view.role() == Purpose::Cache { Severity::Warning } else { Severity::Critical };
    let (what, next) = match (snapshot, append, rewrite) {
        (None, None, None) => return Err(Missing::Unseen("INFO does not say how the last snapshot went".to_owned())),
        (_, Some(true), _) => {
            ("the append-only file cannot be written: writes are refused, or lost with a restart", "CONFIG GET dir")
        }
        (Some(true), _, _) => {
            ("the last snapshot failed: writes are refused, or a restart loses what was written since", "BGSAVE")
        }
        (_, _, Some(true)) => {
            ("the append-only file could not be rewritten: it grows until it fills the disk", "BGREWRITEAOF")
        }
        _ => return WELL,
    };
    found(evidence(told(severity, what)).next(
        view.cli(next),
        "see first with `df -h` whether the disk of its folder (`CONFIG GET dir`) is full or the folder gone, and in the server's log why; \
         a snapshot and a rewrite fork",
    ))
}

pub(super) fn old(view: &View) -> Judged {
    if view.node.info.is_on("aof_enabled") == Some(true) {
        return WELL;
    }
    let (changes, at) = (view.info("rdb_changes_since_last_save")?, view.info("rdb_last_save_time")?);
    let now = view.info("server_time_usec")? / 1_000_000;
    let save = view.setting("save")?;
    let points: Vec<u64> = save.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let due = points.chunks_exact(2).filter(|point| changes >= point[1]).map(|point| point[0].max(1)).min();
    let (Some(plan), age) = (due, now.saturating_sub(at)) else { return WELL };
    if changes == 0 || (age as f64) <= plan as f64 * TIMES {
        return WELL;
    }
    let cause = format!(
        "the last snapshot is {age} s old; with {changes} changes one was due after {plan} s. A restart would lose them"
    );
    found(
        told(severe(view), cause)
            .with("age_seconds", Some(age))
            .with("plan_seconds", Some(plan))
            .with("changes_since", Some(changes))
            .with("save", Some(save))
            .next(
                view.cli("BGSAVE"),
                "it forks: a pause of 10 to 20 ms for each GiB, and memory for what is changed meanwhile",
            ),
    )
}

pub(super) fn append_sync(view: &View) -> Judged {
    if view.node.info.is_on("aof_enabled") != Some(true) || view.setting("appendfsync")? != "no" {
        return WELL;
    }
    let told = told(
        Severity::Warning,
        "the append-only file is synced when the system likes to: with the machine the last half minute is lost",
    )
    .with("appendfsync", Some("no"))
    .with("aof_bytes", view.node.info.number("aof_current_size"));
    view.mended(told, "one sync a second; a slow disk then delays writes", true, &[("appendfsync", "everysec")])
}

pub(super) fn append_growth(view: &View) -> Judged {
    if view.node.info.is_on("aof_enabled") != Some(true) || view.number("auto-aof-rewrite-percentage")? != 0 {
        return WELL;
    }
    let (size, base) = (view.node.info.number("aof_current_size"), view.node.info.number("aof_base_size"));
    let growth = size.zip(base).filter(|(_, base)| *base > 0).map(|(size, base)| size as f64 / base as f64);
    let now = size.map_or_else(String::new, |size| format!(" ({} now)", bytes(size)));
    let told = told(
        Severity::Warning,
        format!("the append-only file{now} is never rewritten by itself: it grows until the disk is full"),
    )
    .with("aof_bytes", size)
    .with("growth", growth.map(rounded));
    view.mended(
        told,
        "a fork whenever the file has doubled, perhaps now",
        true,
        &[("auto-aof-rewrite-percentage", "100")],
    )
}

pub(super) fn stop_writes(view: &View) -> Judged {
    let stops = view.is_on("stop-writes-on-bgsave-error")?;
    let saves = !view.setting("save")?.trim().is_empty();
    let fails = view.node.info.text("rdb_last_bgsave_status").is_some_and(|status| status != "ok");
    let wants = view.role() != Purpose::Cache;
    if !saves || stops == wants {
        return WELL;
    }
    let (what, risk) = if wants {
        (
            "when a snapshot fails, writes go on that no disk has, and nobody is told",
            "writes stop when a snapshot fails, and go on with the next that does not",
        )
    } else {
        (
            "when a snapshot fails, the cache refuses writes for it",
            "failed snapshots are seen only by who looks (`tidegate watch` does)",
        )
    };
    let told = told(Severity::Warning, what)
        .with("stop_writes_on_bgsave_error", Some(stops))
        .with("last_snapshot", view.node.info.text("rdb_last_bgsave_status"))
        .with("save", Some(view.setting("save")?));
    // Set while the last one has failed, it would stop writes at once.
    view.mended(told, risk, !wants || !fails, &[("stop-writes-on-bgsave-error", if wants { "yes" } else { "no" })])
}
