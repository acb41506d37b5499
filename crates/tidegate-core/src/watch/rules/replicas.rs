//! Copies on other servers.

use super::super::facts::grown;
use super::super::finding::{Severity, Told, bytes, percent, rounded};
use super::super::known::master_of;
use super::super::settings::Purpose;
use super::{Measure, View, WELL};

/// The hard limit of a replica's output buffer as servers come, bytes.
const USUAL_LIMIT: u64 = 256 << 20;

/// On a replica 1 while its link is down; on a master how many are missing of those it had.
pub(in super::super) fn down(view: &View) -> Measure {
    match view.info.is_replica() {
        Some(true) => match view.info.text("master_link_status") {
            Some("up") => WELL,
            // It has no copy yet and gets one: no link is lost, and none is there.
            Some(_) if view.known.first_copy.as_ref().is_some_and(|copy| copy.comes_on(view.sample.at)) => {
                Measure::Between
            }
            Some(_) => Measure::Level(1.0),
            None => Measure::Unknown,
        },
        Some(false) => match view.info.number("connected_slaves") {
            Some(_) => Measure::Level(view.known.replicas_expected().saturating_sub(left(view)) as f64),
            None => Measure::Unknown,
        },
        None => Measure::Unknown,
    }
}

/// The replicas that a master has, also those that are being copied to.
fn left(view: &View) -> u64 {
    view.info.standing_replicas().count() as u64
}

pub(in super::super) fn tell_down(view: &View, level: f64) -> Told {
    if view.info.is_replica() == Some(true) {
        let master = master_of(view.info);
        let for_s = view.info.number("master_link_down_since_seconds");
        let syncing = view.info.is_on("master_sync_in_progress") == Some(true);
        let first = view.known.first_copy.as_ref();
        let cause = if let Some(copy) = first {
            let waited = view.sample.at.since(copy.since).max(0) / 1_000;
            let how = if syncing { "it was begun and does not come on" } else { "none has begun" };
            format!(
                "this replica waits for its first copy of its master {master} since it became its replica or was started, for {waited} s at \
                 least, and {how}: it serves old data or none, and must not be failed over to"
            )
        } else if syncing {
            format!(
                "this replica has no link to its master {master}: it is being copied to afresh, and serves old data meanwhile"
            )
        } else {
            format!(
                "this replica has lost its master {master}: it serves old data, and a failover to it would lose what came since"
            )
        };
        return Told::new(Severity::Warning, cause)
            .with("master", Some(master))
            .with("down_seconds", for_s)
            .with("copying", Some(syncing))
            .with("first_copy", Some(first.is_some()))
            .next(
                view.cli("INFO replication"),
                "reads only. Then look whether the master runs and can be reached from here, and in both logs why (password, maxclients, output buffer limit)",
            );
    }
    let left = left(view);
    let severity = if left == 0 && view.purpose != Purpose::Cache { Severity::Critical } else { Severity::Warning };
    let cause = format!(
        "{level:.0} of {} replicas are gone, {left} left{}",
        view.known.replicas_expected(),
        if left == 0 { ": if this server fails now, what it holds is lost" } else { "" }
    );
    Told::new(severity, cause)
        .with("replicas", Some(left))
        .with("replicas_before", Some(view.known.replicas_expected()))
        .with("full_copies", view.facts.full_syncs)
        .next(
            view.cli("INFO replication"),
            "reads only. Look at the missing replica's log; full copies that repeat mean that its output buffer limit is too small. \
             One that was taken away on purpose is forgotten after an hour",
        )
}

/// The replica that has confirmed nothing for longest: where it is, and seconds.
fn slowest(view: &View) -> Option<(String, u64)> {
    let online = view.info.standing_replicas().filter(|replica| replica.state == "online");
    online.filter_map(|replica| Some((replica.address, replica.lag?))).max_by_key(|(_, lag)| *lag)
}

/// A master that has nothing to say says so every ten seconds (`repl-ping-replica-period`): a replica's silence counts from there on.
const PING_S: u64 = 10;

pub(in super::super) fn lag(view: &View) -> Measure {
    match view.info.is_replica() {
        Some(true) if view.info.text("master_link_status") == Some("up") => {
            let silent = view.info.number("master_last_io_seconds_ago");
            silent.map_or(WELL, |seconds| Measure::Level(seconds.saturating_sub(PING_S) as f64))
        }
        // Said by `replica-down`.
        Some(true) => WELL,
        Some(false) => Measure::Level(slowest(view).map_or(0.0, |(_, lag)| lag as f64)),
        None => Measure::Unknown,
    }
}

pub(in super::super) fn tell_lag(view: &View, level: f64) -> Told {
    if view.info.is_replica() == Some(true) {
        let silent = level + PING_S as f64;
        let cause = format!("this replica has heard nothing of its master for {silent:.0} s, though their link is up");
        return Told::new(Severity::Warning, cause)
            .with("seconds", Some(silent))
            .with("master", view.info.text("master_host"))
            .next(
                view.cli("INFO replication"),
                "reads only. Look whether the master is frozen or the network between them drops packets",
            );
    }
    let (address, _) = slowest(view).unwrap_or_default();
    let offset = view.info.number("master_repl_offset");
    let theirs = view.info.replicas().find(|replica| replica.address == address).and_then(|replica| replica.offset);
    let behind = grown(offset, theirs);
    let backlog = view.info.number("repl_backlog_size");
    let beyond = behind.zip(backlog).is_some_and(|(behind, backlog)| behind > backlog);
    let then =
        if beyond { ", more than the backlog keeps: once it is cut off it must be copied to in full" } else { "" };
    let missing = behind.map_or_else(|| "an unknown part".to_owned(), bytes);
    let cause = format!(
        "the replica {address} has confirmed nothing for {level:.0} s and is {missing} behind{then}; a failover to it would lose that"
    );
    Told::new(Severity::Warning, cause)
        .with("replica", Some(address.clone()))
        .with("seconds", Some(level))
        .with("behind_bytes", behind)
        .with("backlog_bytes", backlog)
        .with("replica_buffers_bytes", view.info.number("mem_clients_slaves"))
        .next(
            super::cli(&super::super::sample::Sample { address, ..view.sample.clone() }, "INFO replication"),
            "reads only. One that does not answer is frozen, swaps or runs a long command",
        )
}

/// The limits at which a replica is cut off, smallest first, and whether they are its own or the usual ones.
fn cut_off_at(view: &View) -> Option<(u64, bool)> {
    match view.answer.config.replica_buffer {
        Some((hard, soft)) => [hard, soft].into_iter().filter(|limit| *limit > 0).min().map(|limit| (limit, true)),
        None => Some((USUAL_LIMIT, false)),
    }
}

fn of_replicas(view: &View) -> Option<u64> {
    let all = view.info.number("mem_clients_slaves")?;
    // What the backlog keeps anyway is shared with it from 7.0 on.
    let backlog = view.info.number("mem_replication_backlog").unwrap_or_default();
    let shared = view.info.number("mem_total_replication_buffers");
    Some(shared.map_or(all, |shared| all.max(shared.saturating_sub(backlog))))
}

pub(in super::super) fn buffer(view: &View) -> Measure {
    let Some(size) = of_replicas(view) else { return Measure::Unknown };
    if size < view.settings.min_size {
        return WELL;
    }
    cut_off_at(view).map_or(WELL, |(limit, _)| Measure::Level(size as f64 / limit as f64))
}

pub(in super::super) fn tell_buffer(view: &View, level: f64) -> Told {
    let size = of_replicas(view).unwrap_or_default();
    let (limit, is_seen) = cut_off_at(view).unwrap_or_default();
    let cause = format!(
        "replicas have not taken {}, {} of the {} at which they are cut off and copied to in full again; that may never end",
        bytes(size),
        percent(level),
        bytes(limit)
    );
    let syncs = grown(view.facts.full_syncs, view.oldest.and_then(|oldest| oldest.full_syncs));
    Told::new(Severity::Warning, cause)
        .with("buffered_bytes", Some(size))
        .with("limit_bytes", Some(limit))
        .with("limit_is_assumed", Some(!is_seen))
        .with("share", Some(rounded(level)))
        .with("slowest_replica", slowest(view).map(|(address, _)| address))
        .with("full_copies_lately", syncs)
        .next(
            view.set("client-output-buffer-limit", &format!("replica {} {} 60", limit.saturating_mul(4), limit.saturating_mul(2))),
            "the master keeps up to that much for each slow replica: it must fit beside the data. A replica that is frozen or too slow is the cause",
        )
}
