//! Keys that go too early, too late or never.

use super::super::facts::{Facts, grown};
use super::super::finding::{Severity, Told, percent, rounded};
use super::super::settings::Purpose;
use super::{Measure, View, WELL};

/// A key that is evicted later than this after it was written was of use.
const SOON_S: f64 = 300.0;
/// Expired keys that are removed within so long do not linger.
const SOON_GONE_S: f64 = 60.0;
/// A cache that answers this share of reads does its work, whatever it evicts.
const GOOD_HITS: f64 = 0.8;
/// Keys without a time to live grow when there are so many more of them.
const FEW_KEYS: u64 = 100;

/// Keys evicted a second since the sample before.
pub(in super::super) fn evicted_per_second(now: &Facts, before: Option<&Facts>) -> Option<f64> {
    let before = before?;
    Some(grown(now.evicted, before.evicted)? as f64 / now.seconds_since(before))
}

fn hit_rate(view: &View) -> Option<f64> {
    let before = view.oldest?;
    let hits = grown(view.facts.hits, before.hits)? as f64;
    let misses = grown(view.facts.misses, before.misses)? as f64;
    (hits + misses > 0.0).then(|| hits / (hits + misses))
}

/// How long a key lives until it is evicted, at this rate.
fn age_s(view: &View, per_second: f64) -> Option<f64> {
    (per_second > 0.0).then(|| view.facts.keys.map(|keys| keys as f64 / per_second)).flatten()
}

pub(in super::super) fn eviction_of_state(view: &View) -> Measure {
    match view.purpose {
        Purpose::State => evicted_per_second(view.facts, view.before).into(),
        Purpose::Cache | Purpose::Shared => WELL,
    }
}

fn with_evictions(told: Told, view: &View, level: f64) -> Told {
    told.with("evicted_per_second", Some(rounded(level)))
        .with("evicted_in_all", view.facts.evicted)
        .with("policy", view.policy())
        .with("keys", view.facts.keys)
        .with("keys_with_ttl", view.facts.expires)
        .with("hit_rate", hit_rate(view).map(rounded))
        .with("seconds_until_evicted", age_s(view, level).map(f64::round))
        .with("pressure", view.pressure().map(rounded))
}

pub(in super::super) fn tell_eviction_of_state(view: &View, level: f64) -> Told {
    let policy = view.policy().unwrap_or("unknown").to_owned();
    let cause = format!(
        "{level:.1} keys a second are evicted from a server that holds state (policy {policy}): queues, locks or sessions are lost"
    );
    with_evictions(Told::new(Severity::Critical, cause), view, level).next(
        view.set("maxmemory-policy", "noeviction"),
        "nothing is lost any more; writes are refused once memory is full: raise maxmemory as well, or move what is cache to a server of \
         its own",
    )
}

pub(in super::super) fn evictions(view: &View) -> Measure {
    let Some(per_second) = evicted_per_second(view.facts, view.before) else { return Measure::Unknown };
    match view.purpose {
        // Said by `eviction-of-state`.
        Purpose::State => WELL,
        Purpose::Shared => Measure::Level(per_second),
        Purpose::Cache => {
            let soon = age_s(view, per_second).is_some_and(|age| age < SOON_S);
            let of_use = hit_rate(view).is_none_or(|rate| rate >= GOOD_HITS);
            if soon && !of_use { Measure::Level(per_second) } else { WELL }
        }
    }
}

pub(in super::super) fn tell_evictions(view: &View, level: f64) -> Told {
    let told = match view.purpose {
        Purpose::Cache => {
            let age = age_s(view, level).unwrap_or_default();
            let hits = hit_rate(view).map_or_else(|| "unknown".to_owned(), percent);
            let cause = format!(
                "a key is evicted {age:.0} s after it was written and only {hits} of reads are answered: what is read does not fit"
            );
            Told::new(Severity::Warning, cause)
        }
        Purpose::State | Purpose::Shared => {
            let policy = view.policy().unwrap_or("unknown");
            let cause = format!(
                "{level:.0} keys a second are evicted (policy {policy}); if state lies beside the cache, it may be among them"
            );
            Told::new(Severity::Warning, cause)
        }
    };
    with_evictions(told, view, level).next(
        view.set("maxmemory", &view.more_memory().to_string()),
        "a quarter more: it must fit into the machine, with room for a fork. Else store less, or for a shorter time",
    )
}

/// Expired keys that the server removes a second.
fn removed_per_second(view: &View) -> f64 {
    let removed = view.before.and_then(|before| Some((grown(view.facts.expired, before.expired)?, before)));
    removed.map_or(0.0, |(keys, before)| keys as f64 / view.facts.seconds_since(before))
}

/// On a master what it estimates itself; on a replica what it holds beyond its master, since replicas remove nothing by
/// themselves.
pub(in super::super) fn expired_lingering(view: &View) -> Measure {
    let Some(keys) = view.facts.keys else { return Measure::Unknown };
    if keys < view.settings.min_size {
        return WELL;
    }
    if view.info.is_replica() == Some(true) {
        let in_step = view.info.text("master_link_status") == Some("up")
            && view.info.is_on("master_sync_in_progress") != Some(true);
        return match view.master.and_then(|master| master.keys) {
            Some(master) if in_step => Measure::Level(keys.saturating_sub(master) as f64 / keys as f64),
            _ => Measure::Unknown,
        };
    }
    let Some(share) = view.info.ratio("expired_stale_perc").map(|percent| percent / 100.0) else {
        return Measure::Unknown;
    };
    // Many may expire at once: what will be gone within a minute does not linger.
    let lingering = share * view.facts.expires.unwrap_or(keys) as f64;
    if removed_per_second(view) * SOON_GONE_S > lingering { WELL } else { Measure::Level(share) }
}

pub(in super::super) fn tell_expired_lingering(view: &View, level: f64) -> Told {
    let keys = view.facts.keys.unwrap_or_default();
    let told = if view.info.is_replica() == Some(true) {
        let master = view.master.and_then(|master| master.keys);
        let cause = format!(
            "this replica holds {keys} keys, its master {}: {} have expired and wait for the master to find and delete them. The \
             replica's numbers are not the truth; scan the master",
            master.map_or_else(|| "an unknown number".to_owned(), |keys| keys.to_string()),
            percent(level)
        );
        let address = match (view.info.text("master_host"), view.info.text("master_port")) {
            (Some(host), Some(port)) => format!("redis-cli -h {host} -p {port} CONFIG SET active-expire-effort 5"),
            _ => "redis-cli -h MASTER CONFIG SET active-expire-effort 5".to_owned(),
        };
        Told::new(Severity::Warning, cause)
            .with("keys_of_master", master)
            .next(address, "the master spends more of its core on finding expired keys; 1 is usual, 10 the most")
    } else {
        let cause = format!(
            "about {} of the keys with a time to live have expired and still take memory: more expire than the server removes",
            percent(level)
        );
        Told::new(Severity::Warning, cause).next(
            view.set("active-expire-effort", "5"),
            "the server spends more of its core on finding expired keys; 1 is usual, 10 the most",
        )
    };
    told.with("keys", Some(keys))
        .with("keys_with_ttl", view.facts.expires)
        .with("share", Some(rounded(level)))
        .with("removed_per_second", Some(rounded(removed_per_second(view))))
        .with("time_cap_reached", view.info.number("expired_time_cap_reached_count"))
        .with("role", view.info.text("role"))
}

/// Keys without a time to live, as a share, if they grow.
pub(in super::super) fn without_ttl(view: &View) -> Measure {
    if view.purpose == Purpose::State || view.info.is_replica() == Some(true) {
        return WELL;
    }
    let (Some(keys), Some(lasting)) = (view.facts.keys, view.facts.lasting()) else { return Measure::Unknown };
    let Some(before) = view.oldest.and_then(Facts::lasting) else { return Measure::Unknown };
    if lasting < view.settings.min_size || lasting < before.saturating_add(FEW_KEYS) {
        return WELL;
    }
    Measure::Level(lasting as f64 / keys.max(1) as f64)
}

pub(in super::super) fn tell_without_ttl(view: &View, level: f64) -> Told {
    let lasting = view.facts.lasting().unwrap_or_default();
    let before = view.oldest.and_then(Facts::lasting).unwrap_or_default();
    let seconds = view.oldest.map_or(1.0, |oldest| view.facts.seconds_since(oldest));
    let per_second = lasting.saturating_sub(before) as f64 / seconds;
    let never = match view.policy() {
        Some(policy) if policy.starts_with("volatile") => "they are never evicted either",
        Some("noeviction") => "nothing is evicted: they fill the memory for good",
        _ => "they stay until they are evicted",
    };
    let cause = format!(
        "{} of {} keys never expire, and {per_second:.0} a second are added: {never}. Something forgets the time to live",
        percent(level),
        view.facts.keys.unwrap_or_default()
    );
    Told::new(Severity::Warning, cause)
        .with("keys", view.facts.keys)
        .with("keys_without_ttl", Some(lasting))
        .with("share", Some(rounded(level)))
        .with("added_per_second", Some(rounded(per_second)))
        .with("policy", view.policy())
        .with("pressure", view.pressure().map(rounded))
        .next(
            view.own_tool(&format!("doctor --role {}", view.purpose.name())),
            "it draws 2,000 keys and changes nothing; it says which prefixes never expire, and how sure that is",
        )
}

pub(in super::super) fn policy_changed(view: &View) -> Measure {
    match &view.known.policy_change {
        Some(change) if change.is_recent(view.sample.at) => Measure::Level(1.0),
        _ => WELL,
    }
}

pub(in super::super) fn tell_policy_changed(view: &View) -> Told {
    let (from, to) = match &view.known.policy_change {
        Some(change) => (change.from.clone(), change.to.clone()),
        None => (String::new(), view.policy().unwrap_or_default().to_owned()),
    };
    let evicts_all = to.starts_with("allkeys");
    let severity = match view.purpose {
        Purpose::State if to != "noeviction" => Severity::Critical,
        Purpose::Shared if evicts_all => Severity::Warning,
        Purpose::Cache if to == "noeviction" => Severity::Warning,
        _ => Severity::Info,
    };
    let what = match (to.as_str(), evicts_all) {
        ("noeviction", _) => "under pressure writes are refused from now on",
        (_, true) => "under pressure any key may be evicted from now on",
        _ => "under pressure keys with a time to live are evicted from now on",
    };
    Told::new(severity, format!("maxmemory-policy was changed from {from} to {to}: {what}"))
        .with("before", Some(from.clone()))
        .with("now", Some(to))
        .with("pressure", view.pressure().map(rounded))
        .with("keys", view.facts.keys)
        .next(
            view.set("maxmemory-policy", &from),
            "it brings the former policy back, unless whoever changed it changes it again; a restart reads the configuration file",
        )
}
