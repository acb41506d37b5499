//! Clients, and what is written down of what they do.

use super::{Judged, Missing, View, WELL, found, told};
use crate::watch::Severity;

/// Idle clients are cut off too soon below this, seconds.
const SOON: u64 = 300;
/// A slow log that begins above this misses what matters, microseconds.
const SLOW_US: i64 = 100_000;
/// Entries below which a slow log forgets before anybody looks.
const ENTRIES: u64 = 32;

pub(super) fn keepalive(view: &View) -> Judged {
    if view.number("tcp-keepalive")? > 0 {
        return WELL;
    }
    let told = told(
        Severity::Warning,
        "nothing notices that a client's machine is gone: its connection stays, with its buffers, until there are too many",
    )
    .with("tcp_keepalive", Some(0))
    .with("connected_clients", view.node.info.number("connected_clients"))
    .with("maxclients", view.node.info.number("maxclients"));
    view.mended(told, "none; it holds for new connections", true, &[("tcp-keepalive", "300")])
}

pub(super) fn idle(view: &View) -> Judged {
    let seconds = view.number("timeout")?;
    if seconds == 0 || seconds >= SOON {
        return WELL;
    }
    let cause = format!(
        "clients that are idle for {seconds} s are cut off: pools meet broken connections when they are needed"
    );
    let told = told(Severity::Info, cause).with("timeout_seconds", Some(seconds));
    view.mended(
        told,
        "idle clients count against `maxclients`; those that are gone are found by `tcp-keepalive`",
        true,
        &[("timeout", "0")],
    )
}

/// Whether it listens to other machines than its own.
fn is_wide(bind: &str) -> bool {
    let own = |word: &str| {
        let word = word.trim_start_matches('-');
        word.starts_with("127.") || word == "::1" || word == "localhost"
    };
    bind.split_whitespace().count() == 0 || !bind.split_whitespace().all(own)
}

pub(super) fn open(view: &View) -> Judged {
    if !view.node.is_open {
        return WELL;
    }
    let (protected, bind) = (view.is_on("protected-mode")?, view.setting("bind")?);
    if protected || !is_wide(bind) {
        return WELL;
    }
    found(
        told(Severity::Warning, "whoever reaches this server may do everything: no password, no protected mode, and it listens to others")
            .with("bind", Some(bind))
            .with("protected_mode", Some(protected))
            .with("password", Some(false))
            .next(
                view.cli("CONFIG SET requirepass PASSWORD"),
                "clients that do not know it are refused at once: give it to them first. Or `bind` it to one address. It is not set for you",
            ),
    )
}

pub(super) fn events(view: &View) -> Judged {
    let flags = view.setting("notify-keyspace-events")?;
    if flags.is_empty() {
        return WELL;
    }
    let heard = ["pubsub_channels", "pubsub_patterns", "pubsubshard_channels"];
    let listeners: u64 = heard.iter().filter_map(|name| view.node.info.number(name)).sum();
    if listeners > 0 {
        return WELL;
    }
    found(
        told(Severity::Info, "each change is published and nobody listens now. Tidegate needs none of it")
            .with("notify_keyspace_events", Some(flags))
            .with("subscriptions", Some(listeners))
            .next(
                view.set("notify-keyspace-events", ""),
                "whoever subscribes later hears nothing; so it is not set for you",
            ),
    )
}

pub(super) fn slow_log(view: &View) -> Judged {
    let text = view.setting("slowlog-log-slower-than")?;
    let slower: i64 = text.parse().map_err(|_| Missing::Unseen(format!("slowlog-log-slower-than is {text}")))?;
    let entries = view.number("slowlog-max-len")?;
    let mut settings = Vec::new();
    if !(0..=SLOW_US).contains(&slower) {
        settings.push(("slowlog-log-slower-than", "10000"));
    }
    if entries < ENTRIES {
        settings.push(("slowlog-max-len", "128"));
    }
    if settings.is_empty() {
        return WELL;
    }
    let what =
        if slower < 0 { "not written down" } else { "written down only when they are very slow, or forgotten soon" };
    let told = told(Severity::Info, format!("slow commands are {what}: when everybody waits, nobody can say for whom"))
        .with("slower_than_us", Some(slower))
        .with("entries", Some(entries));
    view.mended(told, "some KiB of memory", true, &settings)
}

pub(super) fn latency(view: &View) -> Judged {
    if view.number("latency-monitor-threshold")? > 0 {
        return WELL;
    }
    let told = told(
        Severity::Info,
        "what keeps the server from its work (forks, disk, expiry) is not written down: `LATENCY DOCTOR` is empty",
    )
    .with("latency_monitor_threshold_ms", Some(0));
    view.mended(
        told,
        "none to speak of: it writes down what took 100 ms and more",
        true,
        &[("latency-monitor-threshold", "100")],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_listened_to() {
        for (bind, want) in [
            ("127.0.0.1 -::1", false),
            ("127.0.0.1", false),
            ("* -::*", true),
            ("", true),
            ("10.0.0.1", true),
            ("127.0.0.1 10.0.0.1", true),
        ] {
            assert_eq!(is_wide(bind), want, "{bind}");
        }
    }
}
