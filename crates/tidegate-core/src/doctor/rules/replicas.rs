//! Copies.

use super::super::facts::Topology;
use super::super::plan::replica_buffer;
use super::{Judged, MIB, Missing, View, WELL, found, told};
use crate::watch::finding::{bytes, rounded};
use crate::watch::{Purpose, Severity};

/// A replica may be behind by this part of what is used, and by this much in any case.
const PART: u64 = 10;
const LEAST_BUFFER: u64 = 256 * MIB;
/// Below this a limit is too tight for any server.
const TIGHT: u64 = 64 * MIB;
/// How long a replica may be away without copying everything anew, seconds.
const AWAY: u64 = 60;
const LEAST_BACKLOG: u64 = 64 * MIB;
/// Less than this is no backlog for a server in use.
const SMALL_BACKLOG: u64 = 16 * MIB;
/// What buffer and backlog may take of what there is.
const OF_MEMORY: u64 = 20;
/// So many more keys, in parts of the master's and in number, are no delay any more.
const MORE: (f64, u64) = (1.2, 1_000);

/// What there is for keys and what lies beside them.
fn room(view: &View) -> Option<u64> {
    view.node.info.number("maxmemory").filter(|limit| *limit > 0).or(view.machine())
}

pub(super) fn buffer(view: &View) -> Judged {
    let value = view.setting("client-output-buffer-limit")?;
    if !view.is_replicated() {
        return WELL;
    }
    let (hard, soft) = replica_buffer(value)
        .ok_or_else(|| Missing::Unseen("client-output-buffer-limit names no class of replicas".to_owned()))?;
    let used = view.info("used_memory")?;
    let wanted = (used / PART).max(LEAST_BUFFER);
    let cause = if hard == 0 && soft == 0 {
        "nothing bounds what is kept for a replica that does not take it: a slow one takes the memory of keys, or the machine's".to_owned()
    } else if (hard > 0 && hard < TIGHT.max(wanted / 2)) || (soft > 0 && soft < TIGHT / 4) {
        format!(
            "a replica that is behind by {} is cut off and copies everything anew, which makes it fall behind again: {} is used",
            bytes(if hard > 0 { hard } else { soft }),
            bytes(used)
        )
    } else {
        return WELL;
    };
    let told = told(Severity::Warning, cause)
        .with("hard_bytes", Some(hard))
        .with("soft_bytes", Some(soft))
        .with("used_bytes", Some(used))
        .with("replicas", Some(view.replicas()));
    let is_safe = room(view).is_some_and(|room| wanted <= room / 2);
    let fit = format!("slave {wanted} {} 60", wanted / 4);
    view.mended(
        told,
        "a slow replica may then take so much memory beside the keys",
        is_safe,
        &[("client-output-buffer-limit", &fit)],
    )
}

pub(super) fn backlog(view: &View) -> Judged {
    let size = view.number("repl-backlog-size")?;
    if !view.is_replicated() {
        return WELL;
    }
    let (written, up) = (view.node.info.number("master_repl_offset"), view.node.info.number("uptime_in_seconds"));
    let rate = written.zip(up).map_or(0, |(written, up)| written / up.max(1));
    let minute = rate.saturating_mul(AWAY);
    if size >= SMALL_BACKLOG.max(minute) {
        return WELL;
    }
    let wanted = minute.max(LEAST_BACKLOG).div_ceil(MIB) * MIB;
    let lasts = size.checked_div(rate).map_or_else(|| "little".to_owned(), |seconds| format!("{seconds} s of writes"));
    let cause = format!(
        "what replicas can make up for after a break is {}, {lasts}: a longer one has a replica copy everything anew",
        bytes(size)
    );
    let told = told(Severity::Warning, cause)
        .with("backlog_bytes", Some(size))
        .with("written_bytes_per_second", Some(rate))
        .with("replicas", Some(view.replicas()));
    let is_safe = room(view).is_some_and(|room| wanted <= room / OF_MEMORY);
    let risk = format!("{} of memory, beside the keys", bytes(wanted));
    view.mended(told, &risk, is_safe, &[("repl-backlog-size", &wanted.to_string())])
}

/// Replicas of its set: its own, or those of the master that it follows.
fn of_its_set(view: &View) -> u64 {
    if !view.node.is_replica() {
        return view.replicas();
    }
    let master = view.node.info.text("master_host").zip(view.node.info.text("master_port"));
    let Some((host, port)) = master else { return 0 };
    let is_it = |address: &str| address.trim_start_matches('[').replace("]:", ":") == format!("{host}:{port}");
    let master = view.all.nodes.iter().find(|node| is_it(&node.address));
    master.and_then(|node| node.info.number("connected_slaves")).unwrap_or_default()
}

pub(super) fn min_replicas(view: &View) -> Judged {
    let least = view.number("min-replicas-to-write")?;
    let replicas = of_its_set(view);
    if least > 0 || replicas == 0 {
        return WELL;
    }
    let severity = if replicas >= 2 { Severity::Warning } else { Severity::Info };
    let one = if replicas == 1 { "; with one replica alone, its restart would stop writes" } else { "" };
    let cause = format!(
        "a master that is cut off from its {replicas} replicas goes on to accept writes, which a failover loses{one}"
    );
    let told = told(severity, cause).with("min_replicas_to_write", Some(least)).with("replicas", Some(replicas));
    view.mended(
        told,
        "writes are refused (NOREPLICAS) while no replica has confirmed anything for ten seconds (`min-replicas-max-lag`)",
        replicas >= 2,
        &[("min-replicas-to-write", "1")],
    )
}

pub(super) fn none(view: &View) -> Judged {
    let is_replica =
        view.node.info.is_replica().ok_or_else(|| Missing::Unseen("INFO does not say its role".to_owned()))?;
    if is_replica || view.info("connected_slaves")? > 0 {
        return WELL;
    }
    let (severity, what) = match (view.role(), &view.all.topology) {
        // A master without slots has nothing to lose.
        (_, Topology::Cluster(Some(members)))
            if members.iter().any(|member| member.address == view.node.address && member.slots == 0) =>
        {
            return WELL;
        }
        (Purpose::State, Topology::Sentinel(_)) => (Severity::Warning, "the sentinels have nobody to fail over to"),
        (Purpose::State, Topology::Cluster(_)) => (Severity::Warning, "its slots are gone with its machine"),
        (Purpose::State, Topology::Single) => {
            (Severity::Info, "with its machine go the keys, and meanwhile nobody serves")
        }
        _ => (Severity::Info, "while it is away nobody serves its keys"),
    };
    let command = if view.is_cluster() {
        let id = match &view.all.topology {
            Topology::Cluster(Some(members)) => members.iter().find(|member| member.address == view.node.address),
            _ => None,
        };
        format!("CLUSTER REPLICATE {}", id.map_or("ID", |member| &member.id))
    } else {
        let (host, port) = view.node.address.rsplit_once(':').unwrap_or((&view.node.address, "6379"));
        format!("REPLICAOF {} {port}", host.trim_matches(['[', ']']))
    };
    found(told(severity, format!("this master has no replica: {what}")).with("replicas", Some(0)).next(
        format!("redis-cli -h NEW {command}"),
        "on a further server: what it has is dropped. A fork of the master and a copy over the network",
    ))
}

/// O22.
pub(super) fn keys(view: &View) -> Judged {
    if view.node.is_replica() {
        return WELL;
    }
    let ours = view.node.key_count();
    let follows = |info: &crate::watch::Info| {
        let of = info.text("master_host").zip(info.text("master_port"));
        of.is_some_and(|(host, port)| view.node.address.replace(['[', ']'], "") == format!("{host}:{port}"))
    };
    let of_the_set = view.all.nodes.iter().filter(|node| node.is_replica() && follows(&node.info));
    let counts =
        of_the_set.map(|node| (node.address.clone(), node.key_count())).chain(view.node.replicas.iter().cloned());
    let most = counts.max_by_key(|(_, keys)| *keys);
    let Some((address, theirs)) = most else { return WELL };
    if (theirs as f64) < ours as f64 * MORE.0 || theirs.saturating_sub(ours) < MORE.1 {
        return WELL;
    }
    let cause = format!(
        "its replica {address} holds {theirs} keys, the master {ours}: the rest has expired, and the replica waits to be told so. What is \
         counted, scanned or estimated on it is too much"
    );
    found(
        told(Severity::Warning, cause)
            .with("replica", Some(address))
            .with("replica_keys", Some(theirs))
            .with("master_keys", Some(ours))
            .with("times", Some(rounded(theirs as f64 / ours.max(1) as f64)))
            .next(
                view.own_tool("big-keys --route scan"),
                "reads the master's keys in small steps; do not take the replica for the truth",
            ),
    )
}

pub(super) fn writable(view: &View) -> Judged {
    if !view.node.is_replica() || view.is_on("replica-read-only")? {
        return WELL;
    }
    let told = told(
        Severity::Warning,
        "this replica takes writes: no other server sees them, they differ from the master's, and a full copy deletes them",
    )
    .with("replica_read_only", Some(false));
    view.mended(
        told,
        "who writes there gets errors, which is how one learns of it",
        true,
        &[("replica-read-only", "yes")],
    )
}
