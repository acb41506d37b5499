//! How memory comes back.

use serde_json::json;

use super::{Judged, MIB, Missing, View, WELL, found, told};
use crate::watch::Severity;
use crate::watch::finding::{bytes, rounded};

/// Resident against used memory from here on is fragmentation, if it is as much in bytes as well.
const RATIO: f64 = 1.6;
const MUCH: u64 = 100 * MIB;
/// A server below this has nothing to move.
const SMALL: u64 = 64 * MIB;

/// Thresholds that suit: 100 MB and 10 %, 5 to 25 % of the core.
const IGNORED: (u64, u64, &str) = (50 * MIB, 400 * MIB, "104857600");
const LOWER: (u64, u64, &str) = (5, 30, "10");
const MOST: (u64, u64, &str) = (5, 25, "25");
const LEAST: (u64, &str) = (25, "5");

/// Resident against used memory, and what is between them.
fn waste(view: &View) -> Option<(f64, u64)> {
    let (used, rss) = (view.node.info.number("used_memory")?, view.node.info.number("used_memory_rss")?);
    (used > 0).then(|| (rss as f64 / used as f64, rss.saturating_sub(used)))
}

pub(super) fn defrag_off(view: &View) -> Judged {
    let is_on = view.is_on("activedefrag")?;
    if is_on {
        return WELL;
    }
    let used = view.info("used_memory")?;
    let (ratio, wasted) = waste(view).unwrap_or((1.0, 0));
    let is_bad = ratio >= RATIO && wasted >= MUCH;
    let allocator = view.node.info.text("mem_allocator");
    let with = |told: crate::watch::finding::Told| {
        told.with("can_defragment", view.node.can_defrag)
            .with("allocator", allocator)
            .with("ratio", Some(rounded(ratio)))
            .with("wasted_bytes", Some(wasted))
            .with("used_bytes", Some(used))
    };
    match view.node.can_defrag {
        None => Err(Missing::Unseen("whether the server can move allocations together is not known".to_owned())),
        Some(true) => {
            if used < SMALL && !is_bad {
                return WELL;
            }
            let severity = if is_bad { Severity::Warning } else { Severity::Info };
            let cause = format!(
                "the server can move allocations together and does not; {} is wasted (ratio {ratio:.2})",
                bytes(wasted)
            );
            view.mended(
                with(told(severity, cause)),
                "up to a quarter of the server's core while it runs, which it does only above its thresholds; `CONFIG SET activedefrag no` ends it",
                true,
                &[("activedefrag", "yes")],
            )
        }
        Some(false) if is_bad => {
            let cause = format!(
                "{} is wasted (ratio {ratio:.2}), and this build cannot move allocations together",
                bytes(wasted)
            );
            found(with(told(Severity::Warning, cause)).next(
                view.cli("MEMORY PURGE"),
                "it stops the server for some milliseconds and gives back what the allocator keeps. The rest comes back with a restart, or a \
                 failover to a replica",
            ))
        }
        Some(false) => WELL,
    }
}

pub(super) fn thresholds(view: &View) -> Judged {
    if !view.is_on("activedefrag")? {
        return WELL;
    }
    let number = |name: &str| view.number(name);
    let (ignored, lower) = (number("active-defrag-ignore-bytes")?, number("active-defrag-threshold-lower")?);
    let (least, most) = (number("active-defrag-cycle-min")?, number("active-defrag-cycle-max")?);
    let outside = |value: u64, (from, to, _): (u64, u64, &str)| !(from..=to).contains(&value);
    let mut settings = Vec::new();
    if outside(ignored, IGNORED) {
        settings.push(("active-defrag-ignore-bytes", IGNORED.2));
    }
    if outside(lower, LOWER) {
        settings.push(("active-defrag-threshold-lower", LOWER.2));
    }
    // The least must not lie above the most, at any time.
    if least > LEAST.0 {
        settings.push(("active-defrag-cycle-min", LEAST.1));
    }
    if outside(most, MOST) {
        settings.push(("active-defrag-cycle-max", MOST.2));
    }
    if settings.is_empty() {
        return WELL;
    }
    let cause = format!(
        "defragmentation begins at {} and {lower} % and takes {least} to {most} % of the core; 100 MB, 10 % and 5 to 25 % suit most",
        bytes(ignored)
    );
    let told = told(Severity::Info, cause)
        .with("ignore_bytes", Some(ignored))
        .with("threshold_lower", Some(lower))
        .with("cycle_min", Some(least))
        .with("cycle_max", Some(most));
    view.mended(told, "it may begin at once, or take more of the core than it did", true, &settings)
}

/// Flags, and what each frees aside.
const LAZY: [(&str, &str); 6] = [
    ("lazyfree-lazy-eviction", "keys that are evicted"),
    ("lazyfree-lazy-expire", "keys whose time is over"),
    ("lazyfree-lazy-server-del", "what SET, RENAME, *STORE overwrite; not DEL"),
    ("lazyfree-lazy-user-del", "DEL, which then does as UNLINK"),
    ("lazyfree-lazy-user-flush", "FLUSHALL and FLUSHDB without ASYNC"),
    ("replica-lazy-flush", "what a replica drops before a full copy"),
];

/// O19: which flag covers what differs from what their names suggest.
pub(super) fn lazy(view: &View) -> Judged {
    let mut off = Vec::new();
    let mut covers = serde_json::Map::new();
    for (name, what) in LAZY {
        match view.is_on(name) {
            Ok(is_on) => {
                covers.insert(name.to_owned(), json!({ "on": is_on, "covers": what }));
                if !is_on {
                    off.push((name, what));
                }
            }
            // Its version has no such flag.
            Err(Missing::NotThere) => {
                covers.insert(name.to_owned(), json!({ "on": null, "covers": what }));
            }
            Err(missing) => return Err(missing),
        }
    }
    if off.is_empty() {
        return WELL;
    }
    let what: Vec<String> = off.iter().map(|(name, what)| format!("{what} ({name})")).collect();
    let cause = format!(
        "large values are freed while everybody waits, about 200 ns for each element: {}. Whatever the flags, a large string is freed at once, by \
         UNLINK as well: shorten it in steps",
        what.join("; ")
    );
    let settings: Vec<(&str, &str)> = off.iter().map(|(name, _)| (*name, "yes")).collect();
    view.mended(
        told(Severity::Info, cause).with("flags", Some(covers)),
        "memory comes back a moment later than the keys go: a server that is full evicts a little more",
        true,
        &settings,
    )
}
