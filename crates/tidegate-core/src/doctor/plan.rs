//! What can be mended by settings, and whether it is still safe when it is done.

use super::finding::{Change, Report};
use crate::watch::Info;

/// A limit is never set below what is used and a tenth.
const ABOVE_USED: u64 = 10;

/// A setting of one server that is to be changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The server, `host:port`.
    pub address: String,
    /// The setting.
    pub change: Change,
}

/// What is set, in this order: a policy before a limit at which it would act.
#[must_use]
pub fn steps(report: &Report) -> Vec<Step> {
    let of = |finding: &super::Finding| {
        let address = finding.address.clone();
        finding.changes.clone().into_iter().map(move |change| Step { address: address.clone(), change })
    };
    let mut steps: Vec<Step> = report.findings.iter().flat_map(of).collect();
    steps.sort_by_key(|step| (step.change.name != "maxmemory-policy", step.address.clone()));
    steps
}

/// Whether a step may be taken now: `info` and `now` are what the server says at this moment.
///
/// # Errors
/// Why not.
pub fn is_safe(change: &Change, info: &Info, now: &str) -> Result<(), String> {
    if !holds(&change.name, &change.from, now) {
        return Err(format!("it has become {now} meanwhile; look again"));
    }
    match change.name.as_str() {
        "maxmemory" => {
            let limit: u64 = change.to.parse().map_err(|_| format!("{} is no number of bytes", change.to))?;
            let used = info.number("used_memory").ok_or("how much is used is not known")?;
            if limit < used.saturating_add(used / ABOVE_USED) {
                return Err(format!("{used} bytes are used: keys would go, or writes fail"));
            }
            Ok(())
        }
        "stop-writes-on-bgsave-error" if change.to == "yes" => match info.text("rdb_last_bgsave_status") {
            Some("ok") => Ok(()),
            _ => Err("the last snapshot has failed: writes would stop".to_owned()),
        },
        "min-replicas-to-write" if info.is_replica() == Some(false) => match info.number("connected_slaves") {
            Some(2..) => Ok(()),
            _ => Err("there are fewer than two replicas: writes could stop".to_owned()),
        },
        _ => Ok(()),
    }
}

/// Whether a setting that reads `now` has the value `wanted`, which may be a part of it.
#[must_use]
pub fn holds(name: &str, wanted: &str, now: &str) -> bool {
    match name {
        "client-output-buffer-limit" => {
            let of = |value: &str| replica_buffer(value);
            of(wanted).is_some() && of(wanted) == of(now)
        }
        _ => wanted == now,
    }
}

/// The hard and the soft limit of replicas in `normal 0 0 0 slave 268435456 67108864 60 pubsub ..`, bytes; 0 is none.
#[must_use]
pub fn replica_buffer(value: &str) -> Option<(u64, u64)> {
    let words: Vec<&str> = value.split_whitespace().collect();
    let class = words.chunks_exact(4).find(|class| matches!(class[0], "slave" | "replica"))?;
    Some((class[1].parse().ok()?, class[2].parse().ok()?))
}
