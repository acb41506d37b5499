//! Whether a server runs, answers, and has what it had.

use serde_json::{Value, json};

use super::super::finding::{Severity, Told, percent, rounded};
use super::super::known::{How, Known};
use super::super::sample::{Answer, Sample, Silence, SlowCommand};
use super::super::settings::{Purpose, RuleSettings};
use super::{Measure, View, WELL, cli};

/// Most slow commands that are named.
const NAMED: usize = 3;

/// Shorter commands are not slow, whatever the server logs, microseconds.
const SLOW_US: u64 = 100_000;

fn slow<'a>(view: &View<'a>) -> Option<Vec<&'a SlowCommand>> {
    let mut slow: Vec<_> = view.answer.slow.as_ref()?.iter().filter(|command| command.took_us >= SLOW_US).collect();
    slow.sort_by_key(|command| std::cmp::Reverse(command.took_us));
    Some(slow)
}

/// Commands that take microseconds, whatever the keys hold: one that took long was not slow by itself.
const LITTLE: [&str; 23] = [
    "AUTH",
    "CLIENT",
    "DECR",
    "EXISTS",
    "EXPIRE",
    "HELLO",
    "HEXISTS",
    "HGET",
    "HLEN",
    "INCR",
    "INCRBY",
    "INFO",
    "LLEN",
    "PEXPIRE",
    "PING",
    "PTTL",
    "SCARD",
    "SELECT",
    "SISMEMBER",
    "TTL",
    "TYPE",
    "ZCARD",
    "ZSCORE",
];

fn does_little(command: &str) -> bool {
    let name = command.split(' ').next().unwrap_or_default();
    LITTLE.iter().any(|little| little.eq_ignore_ascii_case(name))
}

/// How long the longest slow command took, milliseconds, or what all took of each second, whichever is more.
pub(in super::super) fn slow_commands(view: &View) -> Measure {
    let (Some(slow), Some(before)) = (slow(view), view.before) else { return Measure::Unknown };
    let ms = |us: u64| us as f64 / 1_000.0;
    let all = slow.iter().map(|command| command.took_us).fold(0, u64::saturating_add);
    let longest = slow.first().map_or(0, |command| command.took_us);
    Measure::Level(ms(longest).max(ms(all) / view.facts.seconds_since(before)))
}

pub(in super::super) fn tell_slow_commands(view: &View, level: f64) -> Told {
    let slow = slow(view).unwrap_or_default();
    let what = slow.first().map_or_else(String::new, |command| {
        let by = if command.client.is_empty() { String::new() } else { format!(" by {}", command.client) };
        format!("{} ms: {}{by}", command.took_us / 1_000, command.command)
    });
    let cause = match slow.len() {
        0 | 1 => format!("everyone else waited for a command that took {what}"),
        count => format!("everyone else waited for {count} slow commands; the longest took {what}"),
    };
    let named: Vec<Value> = slow
        .iter()
        .take(NAMED)
        .map(|command| json!({"ms": command.took_us as f64 / 1_000.0, "command": command.command, "client": command.client}))
        .collect();
    let is_little = !slow.is_empty() && slow.iter().all(|command| does_little(&command.command));
    let why = if is_little {
        ". It does little: the server was kept from running (a busy machine, memory on disk, a hypervisor)"
    } else {
        ""
    };
    let (next, risk) = if is_little {
        (
            "on the server's machine: redis-cli --intrinsic-latency 10".to_owned(),
            "it takes a core for ten seconds, and says how long the machine keeps a program waiting",
        )
    } else {
        (
            view.cli("SLOWLOG GET 25"),
            "reads only. Whole collections (KEYS, HGETALL, SMEMBERS, LRANGE 0 -1) and scripts are the usual cause: read in parts (SCAN, HSCAN)",
        )
    };
    Told::new(Severity::Warning, format!("{cause}{why}"))
        .with("ms", Some(rounded(level)))
        .with("commands", Some(slow.len() as u64))
        .with("slowest", Some(Value::from(named)))
        .next(next, risk)
}

/// How long an answer took, milliseconds.
pub(in super::super) fn late(sample: &Sample, answer: &Answer) -> Measure {
    if sample.is_late { Measure::Unknown } else { Measure::Level(answer.round_trip_ms) }
}

pub(in super::super) fn tell_late(view: &View, level: f64) -> Told {
    Told::new(
        Severity::Warning,
        format!("the server took {level:.0} ms to answer INFO: its one thread was busy, or the network slow"),
    )
    .with("answer_ms", Some(rounded(level)))
    .with("blocked_clients", view.info.number("blocked_clients"))
    .with("last_fork_ms", view.info.number("latest_fork_usec").map(|us| us as f64 / 1_000.0))
    .with("commands_per_second", view.info.number("instantaneous_ops_per_sec"))
    .next(view.cli("SLOWLOG GET 10"), "reads only. `LATENCY DOCTOR` says more where latency-monitor-threshold is set")
}

/// How long a server has been silent, milliseconds.
pub(in super::super) fn silent_ms(sample: &Sample, waited_ms: f64, known: &Known) -> f64 {
    known.silent_since.map_or(0, |since| sample.at.since(since).max(0)) as f64 + waited_ms
}

/// The same as a measure.
pub(in super::super) fn silence(
    sample: &Sample,
    kind: Silence,
    waited_ms: f64,
    known: &Known,
    settings: &RuleSettings,
) -> Measure {
    let silent = silent_ms(sample, waited_ms, known);
    match kind {
        Silence::Timeout if sample.is_late => Measure::Unknown,
        Silence::Timeout => Measure::Level(silent),
        // However short it was: nobody gets through.
        Silence::Busy | Silence::NoConnection | Silence::TooManyClients | Silence::Refused | Silence::NoMaster => {
            Measure::Level(silent.max(settings.threshold))
        }
    }
}

/// A command for a server that may stay silent: `redis-cli` of 7.0 cannot be told to give up, so it is stopped.
fn in_time(sample: &Sample, command: &str) -> String {
    format!("timeout 5 {}", cli(sample, command))
}

/// A name as a shell takes it.
fn quoted(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    if !name.is_empty() && name.chars().all(is_plain) {
        name.to_owned()
    } else {
        format!("'{}'", name.replace('\'', "'\\''"))
    }
}

pub(in super::super) fn tell_silence(sample: &Sample, kind: Silence, why: &str, silent_ms: f64) -> Told {
    let seconds = silent_ms / 1_000.0;
    let told = match kind {
        Silence::Timeout => Told::new(
            Severity::Critical,
            format!("the server takes connections and has not answered for {seconds:.0} s: it runs a long command, is frozen, swaps, or packets are lost"),
        )
        .next(
            in_time(sample, "PING"),
            "reads only. If that stays silent, look on its machine: `top` (one core busy: a long command; none: frozen), and its log",
        ),
        Silence::Busy => {
            let command = if why.contains("FUNCTION") { "FUNCTION KILL" } else { "SCRIPT KILL" };
            Told::new(Severity::Critical, format!("a script has run for long, and nobody else is served: {why}")).next(
                cli(sample, command),
                "the script ends and its caller gets an error. It is refused once the script has written: then only `SHUTDOWN NOSAVE` helps, \
                 which loses what was not saved",
            )
        }
        Silence::NoConnection => Told::new(Severity::Critical, format!("the server cannot be reached: {why}")).next(
            in_time(sample, "PING"),
            "reads only. If it is refused, the server does not run: look at its log and whether the system killed it (`dmesg | grep -i oom`)",
        ),
        Silence::TooManyClients => {
            Told::new(Severity::Critical, "the server has as many clients as it takes and turns everyone else away").next(
                cli(sample, "CONFIG SET maxclients 20000"),
                "it gets through only when somebody leaves, or over a connection that is open already; it needs as many open files",
            )
        }
        Silence::Refused => Told::new(Severity::Warning, format!("the server does not let the watch in: {why}")).next(
            cli(sample, "ACL WHOAMI"),
            "reads only. The watch needs a user that may run INFO: `ACL SETUSER watch on >PASSWORD +info +ping`",
        ),
        Silence::NoMaster => {
            let (sentinel, service) = sample.address.split_once('/').unwrap_or((&sample.address, ""));
            let command = format!("SENTINEL GET-MASTER-ADDR-BY-NAME {}", quoted(service));
            Told::new(Severity::Critical, format!("the sentinels name no server of {service:?}: {why}")).next(
                format!("timeout 5 {}", super::super::finding::cli(sentinel, sample.tls, &command)),
                "reads only, and asks one of the sentinels; `SENTINEL MASTERS` says which services it knows. If it is refused, that sentinel \
                 does not run: look at its log",
            )
        }
    };
    told.with("silent_seconds", Some(rounded(seconds))).with("error", Some(why.to_owned()))
}

pub(in super::super) fn restarted(view: &View) -> Measure {
    match &view.known.restart {
        Some(restart) if restart.is_recent(view.sample.at) => Measure::Level(1.0),
        _ => WELL,
    }
}

pub(in super::super) fn tell_restarted(view: &View) -> Told {
    let Some(restart) = &view.known.restart else { return Told::new(Severity::Info, "the server was started again") };
    let version = view.info.server().version;
    let keys = view.facts.keys.filter(|_| view.info.is_on("loading") != Some(true));
    let before = restart.keys_before;
    let (severity, cause) = if restart.is_another {
        (Severity::Warning, "another server answers at this address (a failover, or a name that leads elsewhere); what was known of the old one is forgotten".to_owned())
    } else {
        let severity = if view.purpose == Purpose::Cache { Severity::Info } else { Severity::Warning };
        (
            severity,
            format!("the server was started again; it had not been seen for {:.0} s", restart.away_ms as f64 / 1_000.0),
        )
    };
    let cause =
        if restart.times > 1 { format!("{cause}. That is the {}. time within minutes", restart.times) } else { cause };
    Told::new(severity, cause)
        .with("starts", Some(u64::from(restart.times.max(1))))
        .with("uptime_seconds", view.info.number("uptime_in_seconds"))
        .with("run_id", view.info.text("run_id"))
        .with("version", Some(version))
        .with("version_before", restart.version_before.clone())
        .with("keys_before", before)
        .with("keys", keys)
        .with("not_seen_seconds", Some(restart.away_ms as f64 / 1_000.0))
        .next(
            "journalctl -u redis-server -n 50",
            "reads only; on the server's machine. If nobody restarted it: `dmesg | grep -i oom` says whether the system killed it",
        )
}

pub(in super::super) fn data_lost(view: &View) -> Measure {
    match &view.known.loss {
        // A cache may be emptied at any time.
        Some(_) if view.purpose == Purpose::Cache => WELL,
        Some(loss) if loss.is_recent(view.sample.at) && loss.before >= view.settings.min_size => {
            Measure::Level(loss.share())
        }
        _ => WELL,
    }
}

pub(in super::super) fn tell_data_lost(view: &View, level: f64) -> Told {
    let Some(loss) = &view.known.loss else { return Told::new(Severity::Warning, "keys are gone") };
    let how = match loss.how {
        How::Flushed => "FLUSHALL or FLUSHDB deleted them",
        How::Restarted => "the server was started again and had not saved them",
        How::Replaced => "another server answers that does not have them",
        How::Unseen => "neither expiry nor eviction took them",
    };
    let severity = if view.purpose == Purpose::State { Severity::Critical } else { Severity::Warning };
    let cause = format!("{} of {} keys are gone: {how}", percent(level), loss.before);
    let told = Told::new(severity, cause)
        .with("keys_before", Some(loss.before))
        .with("keys", Some(loss.after))
        .with("expired_or_evicted", Some(loss.explained))
        .with("how", serde_json::to_value(loss.how).ok());
    match loss.how {
        How::Flushed => told.next(
            view.cli("CLIENT LIST"),
            "reads only. Who did it has cmd=flushall or cmd=flushdb there, if it is still connected and has sent nothing since; `ACL LIST` says \
             who may, and `ACL SETUSER NAME -flushall -flushdb` forbids it. A file from before is in `CONFIG GET dir`, until the next \
             snapshot overwrites it: copy it first",
        ),
        _ => told.next(
            view.cli("CONFIG GET dir"),
            "reads only. Copy the files there before anything else: the next snapshot overwrites them. Then look at the server's log of its start",
        ),
    }
}
