//! Keys that never expire.

use serde_json::{Value, json};

use super::super::facts::Keys;
use super::super::sample::{CONFIDENCE, Group, KeySample, Share};
use super::{Judged, Missing, View, WELL, found, told};
use crate::watch::finding::{percent, rounded};
use crate::watch::{Purpose, Severity};

/// From this share on they are most.
const MOST: f64 = 0.5;
/// A prefix is named from this share of all keys on.
const NAMED: f64 = 0.05;
/// Prefixes that are named.
const PREFIXES: usize = 10;
/// Fewer keys than this grow nowhere.
const FEW: u64 = 1_000;

fn shown(share: Share) -> Value {
    json!([rounded(share.low), rounded(share.high)])
}

/// The largest prefixes of the sample, largest first.
fn prefixes(sample: &KeySample) -> Vec<(&str, &Group)> {
    let mut groups: Vec<_> = sample.prefixes.iter().map(|(prefix, group)| (prefix.as_str(), group)).collect();
    groups.sort_by_key(|(prefix, group)| (std::cmp::Reverse(group.keys), *prefix));
    groups.truncate(PREFIXES);
    groups
}

fn row(sample: &KeySample, prefix: &str, group: &Group) -> Value {
    json!({
        "prefix": prefix,
        "about_keys": sample.about(group),
        "of_keys": shown(sample.share_of_keys(group)),
        "without_ttl": rounded(sample.share_without_ttl(group).share),
        "without_ttl_between": shown(sample.share_without_ttl(group)),
        "ours": group.is_ours,
    })
}

/// The prefix with the most keys of which surely most never expire.
fn worst(sample: &KeySample) -> Option<(&str, &Group)> {
    let is_bad = |group: &Group| {
        let is_large = sample.share_of_keys(group).low >= NAMED || group.keys as f64 >= NAMED * sample.keys as f64;
        !group.is_ours && is_large && sample.share_without_ttl(group).low >= MOST
    };
    prefixes(sample).into_iter().find(|(_, group)| is_bad(group))
}

pub(super) fn without_ttl(view: &View) -> Judged {
    let total = view.node.key_count();
    if total < FEW {
        return WELL;
    }
    let expires = view.node.info.keyspaces().map(|db| db.expires).fold(0, u64::saturating_add);
    let exact = total.saturating_sub(expires) as f64 / total as f64;
    let sample = match &view.node.keys {
        Keys::Seen(sample) if !sample.ttl_forbidden => Ok(sample),
        Keys::Seen(_) => Err("TTL is not permitted".to_owned()),
        Keys::Unseen(why) => Err(why.clone()),
        Keys::Elsewhere => return WELL,
    };
    let worst = sample.as_ref().ok().and_then(|sample| worst(sample));
    if exact < MOST && worst.is_none() {
        // The whole is known by INFO; which prefix it is, is not.
        return sample.map_or_else(|why| Err(Missing::Unseen(why)), |_| WELL);
    }
    if sample
        .as_ref()
        .is_ok_and(|sample| worst.is_none() && sample.prefixes.values().any(|group| group.is_ours && group.keys > 0))
    {
        let foreign: u64 =
            sample.iter().flat_map(|s| s.prefixes.values()).filter(|g| !g.is_ours).map(|g| g.without_ttl).sum();
        // Only our own never expire, and that is right.
        if foreign == 0 {
            return WELL;
        }
    }
    let policy = view.node.info.text("maxmemory_policy").unwrap_or_default();
    let (severity, what) = match view.role() {
        Purpose::State => {
            (Severity::Info, "right for state that is deleted when it is done; else they grow until writes fail")
        }
        Purpose::Cache if policy.starts_with("volatile") => {
            (Severity::Warning, "under this policy they can never go: they fill the cache until writes fail")
        }
        Purpose::Cache => (Severity::Info, "they stay until memory is full, however old they are"),
        Purpose::Shared => {
            (Severity::Warning, "they grow until memory is full; state should be few keys, the rest should expire")
        }
    };
    let named = worst.map_or_else(String::new, |(prefix, group)| {
        let name = if prefix.is_empty() { "without a prefix".to_owned() } else { format!("that begin with {prefix}") };
        let share = sample.as_ref().map(|sample| sample.share_without_ttl(group)).ok();
        let between = share.map_or_else(String::new, |share| {
            let (low, high) = (percent(share.low), percent(share.high));
            if low == high { low } else { format!("{low} to {high}") }
        });
        format!(". Of those {name}, {between} never expire")
    });
    let told = told(severity, format!("{} of {total} keys never expire: {what}{named}", percent(exact)))
        .with("keys", Some(total))
        .with("without_ttl", Some(rounded(exact)))
        .with("policy", view.node.info.text("maxmemory_policy"))
        .with("looked_at", sample.as_ref().ok().map(|sample| sample.keys))
        .with("how", sample.as_ref().ok().map(|sample| sample.how))
        .with("confidence", sample.as_ref().ok().map(|_| CONFIDENCE))
        .with(
            "prefixes",
            sample.as_ref().ok().map(|sample| {
                prefixes(sample).into_iter().map(|(prefix, group)| row(sample, prefix, group)).collect::<Vec<_>>()
            }),
        );
    found(told.next(
        view.own_tool("big-keys"),
        "reads keys, changes nothing: what each prefix takes. Then give them a time to live where they are written",
    ))
}
