//! What bounds a server's memory, and what goes when it is full.

use serde_json::json;

use super::super::facts::Keys;
use super::{Judged, MIB, Missing, View, WELL, found, told};
use crate::watch::finding::{Told, bytes, percent, rounded};
use crate::watch::{Purpose, Severity};

/// What a fork may need again of what is used, as a part of it.
const COPIED: f64 = 0.5;
/// Which part of a machine a server may fill that forks, and one that does not.
const FITTING: (f64, f64) = (0.6, 0.75);
/// A limit must lie so far above what is used.
const ABOVE_USED: f64 = 1.25;
/// From here on a server is as good as full.
const NEARLY_FULL: f64 = 0.95;
/// What clients' buffers may take of `maxmemory`.
const CLIENTS: (&str, f64) = ("5%", 0.05);

/// What suits a role.
fn fitting(role: Purpose) -> &'static str {
    match role {
        Purpose::State => "noeviction",
        Purpose::Cache => "allkeys-lfu",
        Purpose::Shared => "volatile-lfu",
    }
}

/// How bad `policy` is for `role`, and what follows from it.
fn unfit(role: Purpose, policy: &str, is_bounded: bool) -> Option<(Severity, &'static str)> {
    let at_once = if is_bounded { Severity::Critical } else { Severity::Warning };
    match (role, policy) {
        (Purpose::State, "noeviction") => None,
        (Purpose::State, _) => {
            Some((at_once, "keys of a server that holds state go when memory is full, and nobody is told"))
        }
        (Purpose::Cache, "noeviction") => {
            Some((at_once, "a cache that is full refuses every write instead of letting go what is not read"))
        }
        (Purpose::Cache, "allkeys-random" | "volatile-random" | "volatile-ttl") => {
            Some((Severity::Info, "what goes when memory is full may be what is read most"))
        }
        (Purpose::Shared, "noeviction") => Some((
            Severity::Warning,
            "what can be loaded again fills the memory until writes of state are refused as well; let only keys with a time to live go, and \
             give state none",
        )),
        (Purpose::Shared, policy) if policy.starts_with("allkeys") => {
            Some((Severity::Warning, "state goes as well as what can be loaded again when memory is full"))
        }
        (Purpose::Cache | Purpose::Shared, _) => None,
    }
}

pub(super) fn policy(view: &View) -> Judged {
    let policy = view.word("maxmemory_policy")?;
    let limit = view.info("maxmemory")?;
    let role = view.role();
    let Some((severity, what)) = unfit(role, policy, limit > 0) else { return WELL };
    let bound = if limit > 0 { "" } else { " (once a maxmemory is set: now it is 0)" };
    let fit = fitting(role);
    let told = told(severity, format!("the policy is {policy}, the role {}: {what}{bound}", role.name()))
        .with("policy", Some(policy))
        .with("maxmemory", Some(limit))
        .with("fitting", Some(fit))
        .with("pressure", pressure(view, limit).map(rounded))
        .with("evicted_keys", view.node.info.number("evicted_keys"));
    let is_full = pressure(view, limit).is_none_or(|share| share >= NEARLY_FULL);
    let (risk, is_safe) = match role {
        Purpose::State if is_full && limit > 0 => {
            ("memory is nearly full: from then on writes are refused. Give it more memory first", false)
        }
        Purpose::State => ("writes are refused when memory is full, instead of losing what lies there", true),
        Purpose::Cache => (
            "keys go from now on when memory is full; right for a cache, wrong where state lies beside it. The counters of lfu begin at 0: for \
             some minutes keys go nearly at random",
            // Random and ttl policies work: whoever chose one may leave it. What of ours lies there would go.
            severity != Severity::Info && matches!(&view.node.keys, Keys::Seen(sample) if sample.own.is_empty()),
        ),
        Purpose::Shared => (
            "only keys with a time to live go. Whether state lies there without one is yours to say: it is not set for you",
            false,
        ),
    };
    view.mended(told, risk, is_safe, &[("maxmemory-policy", fit)])
}

/// How much of the limit is used, as eviction counts.
fn pressure(view: &View, limit: u64) -> Option<f64> {
    let used = view.node.info.number("used_memory")?;
    let counted = used.saturating_sub(view.node.info.number("mem_not_counted_for_evict").unwrap_or_default());
    (limit > 0).then(|| counted as f64 / limit as f64)
}

pub(super) fn own_keys(view: &View) -> Judged {
    let policy = view.word("maxmemory_policy")?;
    let sample = match &view.node.keys {
        Keys::Seen(sample) => sample,
        Keys::Unseen(why) => return Err(Missing::Unseen(why.clone())),
        Keys::Elsewhere => return WELL,
    };
    if policy == "noeviction" {
        return WELL;
    }
    let takes_all = policy.starts_with("allkeys");
    let taken: serde_json::Map<_, _> = sample
        .own
        .iter()
        .map(|(what, own)| (what.clone(), if takes_all { own.keys } else { own.expiring }))
        .filter(|(_, keys)| *keys > 0)
        .map(|(what, keys)| (what, json!(keys)))
        .collect();
    if taken.is_empty() {
        return WELL;
    }
    let what: Vec<&str> = taken.keys().map(String::as_str).collect();
    let is_bounded = view.evicts() == Some(true);
    let severity = if is_bounded { Severity::Critical } else { Severity::Warning };
    let cause = format!(
        "{}: under {policy} they go when memory is full; orders are then freed late, locks are held twice, tasks are gone",
        what.join(", ")
    );
    let text = "a server of their own, or one for state: Tidegate takes two URLs, --store for state and cache.store for what may go. Until then \
                `noeviction` keeps them, and refuses writes when memory is full";
    found(
        told(severity, cause)
            .with("keys_seen", Some(taken))
            .with("policy", Some(policy))
            .with("looked_at", Some(sample.keys))
            .with("keys", Some(sample.total))
            .next(view.set("maxmemory-policy", "noeviction"), text),
    )
}

/// A limit that fits into the machine beside its neighbours and above what is used.
fn fitting_limit(view: &View) -> Option<u64> {
    let share = view.machine()? / view.neighbours();
    let part = if view.forks() { FITTING.0 } else { FITTING.1 };
    let limit = (share as f64 * part) as u64 / MIB * MIB;
    let used = view.node.info.number("used_memory")?;
    (limit >= MIB && limit as f64 >= used as f64 * ABOVE_USED).then_some(limit)
}

fn with_memory(told: Told, view: &View) -> Told {
    told.with("maxmemory", view.node.info.number("maxmemory"))
        .with("used_bytes", view.node.info.number("used_memory"))
        .with("machine_bytes", view.machine())
        .with("cgroup_bytes", view.node.machine.cgroup_bytes)
        .with("servers_there", Some(view.neighbours()))
        .with("forks", Some(view.forks()))
}

pub(super) fn unset(view: &View) -> Judged {
    if view.info("maxmemory")? > 0 {
        return WELL;
    }
    let machine =
        view.machine().map_or_else(|| "the machine".to_owned(), |all| format!("the machine's {}", bytes(all)));
    let ends = match view.word("maxmemory_policy") {
        Ok("noeviction") | Err(_) => "the system ends the server",
        Ok(_) => "the system ends the server before a key is evicted",
    };
    let told = with_memory(
        told(Severity::Warning, format!("nothing bounds memory but {machine}: when it is full, {ends}")),
        view,
    );
    match fitting_limit(view) {
        Some(limit) => {
            let risk = format!(
                "{}: a part of the machine; programs of others on it are not seen. At that size {}",
                bytes(limit),
                if view.node.info.text("maxmemory_policy") == Some("noeviction") { "writes fail" } else { "keys go" }
            );
            // Where keys would go that must not, the policy is set first, or this is left out.
            view.mended(told, &risk, true, &[("maxmemory", &limit.to_string())])
        }
        None => found(told.next(
            view.cli("INFO memory"),
            "reads only. What is used leaves no room for a limit with a fork beside it: give the machine more, or the server less",
        )),
    }
}

pub(super) fn headroom(view: &View) -> Judged {
    let limit = view.info("maxmemory")?;
    let machine = view.machine().ok_or_else(|| Missing::Unseen("the machine's memory is not known".to_owned()))?;
    let needed = if view.forks() { limit as f64 * (1.0 + COPIED) } else { limit as f64 * 1.1 };
    if limit == 0 || needed <= machine as f64 {
        return WELL;
    }
    let (severity, what) = if limit > machine {
        (Severity::Critical, "the system ends the server before it is full by its own measure".to_owned())
    } else if view.forks() {
        let rest = percent((machine - limit) as f64 / limit as f64);
        (Severity::Warning, format!("a fork of the full server has {rest} of its size for what is written meanwhile"))
    } else {
        (Severity::Warning, "what the allocator wastes and clients' buffers have no room".to_owned())
    };
    let source = if view.node.machine.cgroup_bytes == Some(machine) { "control group" } else { "machine" };
    let cause = format!("maxmemory is {}, its {source} has {}: {what}", bytes(limit), bytes(machine));
    let told = with_memory(told(severity, cause), view);
    match fitting_limit(view).filter(|fit| *fit < limit) {
        Some(fit) => {
            let risk = format!("{}: it is full sooner. It lies above what is used now; nothing goes by that", bytes(fit));
            view.mended(told, &risk, true, &[("maxmemory", &fit.to_string())])
        }
        None => found(told.next(
            view.own_tool("big-keys"),
            "reads keys, changes nothing. A lower maxmemory would lie below what is used: free memory, or give the machine more",
        )),
    }
}

pub(super) fn clients(view: &View) -> Judged {
    let set = view.setting("maxmemory-clients")?;
    if set != "0" {
        return WELL;
    }
    let (limit, taken) = (view.info("maxmemory")?, view.node.info.number("mem_clients_normal"));
    let told = told(
        Severity::Info,
        "nothing bounds what clients' buffers take in all: many slow readers take the memory of keys",
    )
    .with("maxmemory_clients", Some(set))
    .with("clients_bytes", taken)
    .with("maxmemory", Some(limit));
    // While there is no limit it has no effect; then that which is advised is what counts.
    let counts = if limit > 0 { Some(limit) } else { fitting_limit(view) };
    let is_safe = taken.zip(counts).is_some_and(|(taken, limit)| (taken as f64) < limit as f64 * CLIENTS.1 / 2.0);
    view.mended(
        told,
        "the clients with the largest buffers are cut off when all together take more than this part of maxmemory (it has no effect while \
         that is 0)",
        is_safe,
        &[("maxmemory-clients", CLIENTS.0)],
    )
}
