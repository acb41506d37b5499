//! Servers together: Cluster and Sentinel.

use super::super::facts::{Deployment, Member, Topology};
use super::{Found, Judged, View, WELL, told};
use crate::watch::Severity;
use crate::watch::finding::{cli, rounded};

/// One master with so many times another's slots or keys.
const UNEVEN: (f64, f64) = (1.5, 2.0);
/// Fewer keys than this are uneven by chance.
const FEW: u64 = 10_000;
/// Fewer sentinels cannot lose one and still agree.
const SENTINELS: u64 = 3;
const SLOTS: u64 = 16_384;

type Every = Vec<(String, Judged)>;

fn ok(address: &str, found: impl Into<Found>) -> (String, Judged) {
    (address.to_owned(), Ok(Some(found.into())))
}

pub(super) fn unreachable(all: &Deployment) -> Every {
    let is_replica = |address: &str| match &all.topology {
        Topology::Cluster(Some(members)) => {
            members.iter().any(|member| member.address == address && (member.master.is_some() || member.slots == 0))
        }
        // The master has answered, or there would be no report.
        Topology::Sentinel(_) => all.nodes.iter().any(|node| !node.is_replica()),
        _ => false,
    };
    let told = |silent: &super::super::facts::Silent| {
        let severity = if is_replica(&silent.address) { Severity::Warning } else { Severity::Critical };
        let told = told(severity, format!("it does not answer: {}", silent.why)).next(
            cli(&silent.address, all.nodes.iter().any(|node| node.tls), "PING"),
            "reads only. Look at its machine, its network, its log",
        );
        ok(&silent.address, told.with("why", Some(silent.why.as_str())))
    };
    all.silent.iter().map(told).collect()
}

fn masters(members: &[Member]) -> impl Iterator<Item = &Member> {
    members.iter().filter(|member| member.master.is_none() && member.slots > 0)
}

pub(super) fn broken(all: &Deployment) -> Every {
    let Topology::Cluster(members) = &all.topology else { return Vec::new() };
    let Some(node) = all.nodes.first() else { return Vec::new() };
    let Some(members) = members else {
        return vec![(node.address.clone(), Err(super::Missing::Unseen("CLUSTER NODES is not permitted".to_owned())))];
    };
    let served: u64 = masters(members).filter(|member| !member.fails).map(|member| member.slots).sum();
    let failing: Vec<&str> =
        masters(members).filter(|member| member.fails).map(|member| member.address.as_str()).collect();
    let states = all.nodes.iter().filter_map(|node| Some((node, node.cluster.as_ref()?.text("cluster_state")?)));
    let unwell: Vec<&str> = states.filter(|(_, state)| *state != "ok").map(|(node, _)| node.address.as_str()).collect();
    if served >= SLOTS && failing.is_empty() && unwell.is_empty() {
        return Vec::new();
    }
    let what = if failing.is_empty() {
        "of no server".to_owned()
    } else {
        format!("of servers that fail ({})", failing.join(", "))
    };
    let cause = if served < SLOTS {
        format!("{} of {SLOTS} slots are {what}: commands on their keys fail", SLOTS - served)
    } else {
        format!("{} say that the Cluster is down", unwell.join(", "))
    };
    let told = told(Severity::Critical, cause)
        .with("slots_served", Some(served))
        .with("failing", Some(failing))
        .with("down_by", Some(unwell))
        .next(
            cli(&node.address, node.tls, "CLUSTER NODES"),
            "reads only. Bring the server back; or `CLUSTER FAILOVER TAKEOVER` on its replica, which loses what was not copied yet",
        );
    vec![ok(&node.address, told)]
}

pub(super) fn coverage(view: &View) -> Judged {
    if !view.is_cluster() || !view.is_on("cluster-require-full-coverage")? {
        return WELL;
    }
    let told = told(
        Severity::Warning,
        "when one shard is lost, the whole cache refuses commands, instead of the keys of that shard alone",
    )
    .with("cluster_require_full_coverage", Some(true));
    view.mended(
        told,
        "keys of lost shards fail, the others are served",
        true,
        &[("cluster-require-full-coverage", "no")],
    )
}

pub(super) fn uneven(all: &Deployment) -> Every {
    let Topology::Cluster(Some(members)) = &all.topology else { return Vec::new() };
    let Some(node) = all.nodes.first() else { return Vec::new() };
    let keys_of = |member: &Member| {
        all.nodes.iter().find(|node| node.address == member.address).map(super::super::facts::Node::key_count)
    };
    let slots: Vec<u64> = masters(members).map(|member| member.slots).collect();
    let keys: Vec<u64> = masters(members).filter_map(keys_of).collect();
    let spread = |numbers: &[u64]| {
        let (least, most) = (numbers.iter().min().copied()?, numbers.iter().max().copied()?);
        Some((most as f64 / least.max(1) as f64, least, most))
    };
    let (Some((by_slots, fewest, most)), Some((by_keys, least_keys, most_keys))) = (spread(&slots), spread(&keys))
    else {
        return Vec::new();
    };
    let is_uneven = by_slots > UNEVEN.0 || (by_keys > UNEVEN.1 && most_keys >= FEW);
    if !is_uneven {
        return Vec::new();
    }
    let cause = format!(
        "one master serves {most} slots and {most_keys} keys, another {fewest} slots and {least_keys} keys: the first is full while there is \
         room elsewhere"
    );
    let told = told(Severity::Info, cause)
        .with("slots", Some(slots.clone()))
        .with("keys", Some(keys.clone()))
        .with("times_slots", Some(rounded(by_slots)))
        .with("times_keys", Some(rounded(by_keys)))
        .next(
            format!("redis-cli --cluster rebalance {}", node.address),
            "moves keys: commands of keys on their way are redirected, large ones block. If slots are even and keys are not, one hash tag has \
             too many: `tidegate big-keys` sums slots",
        );
    vec![ok(&node.address, told)]
}

pub(super) fn sentinels(all: &Deployment) -> Every {
    let Topology::Sentinel(seen) = &all.topology else { return Vec::new() };
    let (Some(quorum), Some(known)) = (seen.quorum, seen.known) else {
        let why = "SENTINEL MASTER is not permitted".to_owned();
        return vec![(seen.at.clone(), Err(super::Missing::Unseen(why)))];
    };
    let majority = known / 2 + 1;
    let (severity, what) = if quorum > known {
        (
            Severity::Critical,
            format!("{quorum} must agree that the master is gone, and there are {known}: no failover will ever begin"),
        )
    } else if known < SENTINELS {
        (Severity::Warning, format!("there are {known}: with one of them gone, no failover can be agreed on"))
    } else if seen.answered < majority {
        (
            Severity::Critical,
            format!("{} of the {} that are named answer, {majority} are a majority", seen.answered, seen.asked),
        )
    } else if quorum == 1 {
        (
            Severity::Warning,
            "one alone can find that the master is gone: a hiccup of its own network begins a failover".to_owned(),
        )
    } else if quorum == known {
        (
            Severity::Warning,
            format!("all {known} must agree that the master is gone: with one of them gone, no failover begins"),
        )
    } else {
        return Vec::new();
    };
    let (host, port) = seen.at.rsplit_once(':').unwrap_or((&seen.at, "26379"));
    let told = told(severity, format!("the sentinels of {}: {what}", seen.service))
        .with("quorum", Some(quorum))
        .with("sentinels", Some(known))
        .with("asked", Some(seen.asked))
        .with("answered", Some(seen.answered))
        .next(
            format!("redis-cli -h {host} -p {port} SENTINEL SET {} quorum {}", seen.service, majority.max(2)),
            "on each sentinel; a failover needs the majority of all besides. Three or more, each on a machine of its own",
        );
    vec![ok(&seen.at, told)]
}
