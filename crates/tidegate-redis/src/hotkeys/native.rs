//! What servers count themselves: `HOTKEYS` of Redis 8.6 and newer, which follows the time that commands take and the bytes they move.
//! Experimental: built from Redis' documentation and tested on replies as they are there, for no such server can be had for tests.

use redis::{Cmd, Value};
use tidegate_backend::Result;
use tidegate_core::Map;
use tidegate_core::watch::Kind;

use super::{HotKey, HotKeysOptions, Report, Source, span};
use crate::bigkeys::purpose;
use crate::bigkeys::server::Server;
use crate::reply;

/// The first version that has it.
const SINCE: (u32, u32) = (8, 6);
/// Keys may sum up to so much more than there was, by rounding.
const SLACK: f64 = 1.01;

/// What a server counted.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Counted {
    /// Over how long, milliseconds.
    duration_ms: u64,
    /// Of all commands, microseconds.
    total_us: u64,
    /// By key, the longest first.
    by_cpu: Vec<(Vec<u8>, u64)>,
}

/// How a server took the beginning of a count.
enum Begun {
    Ours,
    /// Somebody else counts already; that is left alone and read.
    Others,
    /// It cannot; why.
    Not(String),
}

fn hotkeys(verb: &str) -> Cmd {
    let mut command = redis::cmd("HOTKEYS");
    command.arg(verb);
    command
}

/// What all servers count in the next seconds; `None`, with the reason in `notes` where one is needed: not all of them can.
pub(super) async fn look(
    servers: &mut [Server],
    options: &HotKeysOptions,
    notes: &mut Vec<String>,
) -> Result<Option<Report>> {
    let can = |server: &Server| {
        let told = server.info.server();
        told.kind == Kind::Redis && told.number.is_some_and(|number| number >= SINCE)
    };
    if !servers.iter().all(can) {
        return Ok(None);
    }
    let mut begun = Vec::with_capacity(servers.len());
    let mut why = None;
    for server in servers.iter_mut() {
        match begin(server, options).await? {
            Begun::Not(reason) => {
                why = Some(format!("{} does not count hot keys itself: {reason}", server.address));
                break;
            }
            Begun::Ours => begun.push(true),
            Begun::Others => {
                notes.push(format!("{}: somebody else's count runs; it was read and left alone", server.address));
                begun.push(false);
            }
        }
    }
    if why.is_none() {
        tokio::time::sleep(span(options)).await;
    }
    let mut all = Vec::new();
    for (server, ours) in servers.iter_mut().zip(begun) {
        match end(server, ours).await? {
            Some(counted) => all.push(counted),
            None => {
                why.get_or_insert_with(|| format!("{} gave counts that do not add up", server.address));
            }
        }
    }
    if let Some(why) = why {
        notes.push(why);
        return Ok(None);
    }
    notes.push("counted by the server (HOTKEYS, experimental): shares are of the time that commands took".to_owned());
    Ok(Some(report(all, options.top)))
}

async fn ask(server: &mut Server, commands: &[Cmd]) -> Result<Vec<crate::connect::RedisResult<Value>>> {
    server.all(commands).await.map_err(|e| server.unavailable(e))
}

async fn begin(server: &mut Server, options: &HotKeysOptions) -> Result<Begun> {
    let mut start = hotkeys("START");
    // It ends by itself if we do not live to end it.
    start.arg("METRICS").arg(1).arg("CPU").arg("COUNT").arg(options.top).arg("DURATION").arg(options.seconds + 1);
    let answer = ask(server, &[start]).await?.pop();
    Ok(match answer {
        Some(Ok(_)) => Begun::Ours,
        Some(Err(e)) if e.to_string().contains("in progress") => Begun::Others,
        Some(Err(e)) => Begun::Not(e.to_string()),
        None => Begun::Not("it gave no answer".to_owned()),
    })
}

/// What was counted; one's own count is ended and forgotten.
async fn end(server: &mut Server, ours: bool) -> Result<Option<Counted>> {
    let get = hotkeys("GET");
    let answers =
        if ours { ask(server, &[hotkeys("STOP"), get, hotkeys("RESET")]).await? } else { ask(server, &[get]).await? };
    let answer = answers.into_iter().nth(usize::from(ours));
    Ok(answer.and_then(|answer| answer.ok()).and_then(|value| counted(&value)).filter(adds_up))
}

/// Reads a reply of `HOTKEYS GET`: names and values in turn, as a map or a list, or that in a list of its own.
pub(super) fn counted(value: &Value) -> Option<Counted> {
    let fields: Vec<(&Value, &Value)> = match value {
        Value::Map(pairs) => pairs.iter().map(|(name, value)| (name, value)).collect(),
        Value::Array(items) => match &items[..] {
            [inner @ (Value::Array(_) | Value::Map(_))] => return counted(inner),
            items => items.chunks_exact(2).map(|pair| (&pair[0], &pair[1])).collect(),
        },
        _ => return None,
    };
    let field = |name: &str| fields.iter().find(|(of, _)| reply::bytes(of).is_ok_and(|of| of == name.as_bytes()));
    let number = |name: &str| field(name).and_then(|(_, value)| u64::try_from(reply::integer(value).ok()?).ok());
    let keys = match field("by-cpu-time-us")?.1 {
        Value::Map(pairs) => pairs.iter().map(|(key, us)| pair(key, us)).collect::<Option<_>>()?,
        Value::Array(items) => items.chunks_exact(2).map(|both| pair(&both[0], &both[1])).collect::<Option<_>>()?,
        _ => return None,
    };
    Some(Counted {
        duration_ms: number("collection-duration-ms")?,
        total_us: number("all-commands-all-slots-us")?,
        by_cpu: keys,
    })
}

fn pair(key: &Value, us: &Value) -> Option<(Vec<u8>, u64)> {
    Some((reply::bytes(key).ok()?.to_vec(), u64::try_from(reply::integer(us).ok()?).ok()?))
}

/// Keys have taken no more time than all commands did.
fn adds_up(counted: &Counted) -> bool {
    let sum: u64 = counted.by_cpu.iter().map(|(_, us)| us).fold(0, |sum: u64, us| sum.saturating_add(*us));
    sum as f64 <= counted.total_us as f64 * SLACK
}

fn report(all: Vec<Counted>, top: usize) -> Report {
    let total = all.iter().map(|counted| counted.total_us).fold(0, u64::saturating_add).max(1) as f64;
    let longest = all.iter().map(|counted| counted.duration_ms).max().unwrap_or(0);
    let seconds = (longest as f64 / 1_000.0).max(0.001);
    // In a Cluster a key is on one server only, but it may have moved.
    let mut by_key: Map<Vec<u8>, u64> = Map::default();
    for (key, us) in all.into_iter().flat_map(|counted| counted.by_cpu) {
        let sum = by_key.entry(key).or_default();
        *sum = sum.saturating_add(us);
    }
    let mut keys: Vec<(Vec<u8>, u64)> = by_key.into_iter().collect();
    keys.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    keys.truncate(top);
    let item = |(name, us): (Vec<u8>, u64)| HotKey {
        share: (us as f64 / total).min(1.0),
        per_second: None,
        error: None,
        cpu_us_per_second: Some(us as f64 / seconds),
        purpose: purpose(&name),
        name,
    };
    let items = keys.into_iter().map(item).collect();
    Report { source: Source::Native, seconds, processes: 0, items, notes: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    /// As in Redis' documentation of `HOTKEYS GET`.
    fn documented() -> Vec<(Value, Value)> {
        let keys = vec![text("x"), Value::Int(104), text("y"), Value::Int(98), text("z"), Value::Int(18)];
        vec![
            (text("tracking-active"), Value::Int(1)),
            (text("sample-ratio"), Value::Int(1)),
            (text("selected-slots"), Value::Array(Vec::new())),
            (text("all-commands-all-slots-us"), Value::Int(220)),
            (text("net-bytes-all-commands-all-slots"), Value::Int(200)),
            (text("collection-start-time-unix-ms"), Value::Int(1_769_420_604_522)),
            (text("collection-duration-ms"), Value::Int(6_408)),
            (text("total-cpu-time-user-ms"), Value::Int(3)),
            (text("total-cpu-time-sys-ms"), Value::Int(11)),
            (text("by-cpu-time-us"), Value::Array(keys)),
        ]
    }

    #[test]
    fn replies_as_lists_as_maps_and_in_a_list() {
        let list = Value::Array(documented().into_iter().flat_map(|(name, value)| [name, value]).collect());
        let map = Value::Map(documented());
        let want = Counted {
            duration_ms: 6_408,
            total_us: 220,
            by_cpu: vec![(b"x".to_vec(), 104), (b"y".to_vec(), 98), (b"z".to_vec(), 18)],
        };
        for value in [Value::Array(vec![list.clone()]), Value::Array(vec![map.clone()]), list, map] {
            assert_eq!(counted(&value).as_ref(), Some(&want), "{value:?}");
        }
        for odd in [Value::Nil, Value::Array(vec![Value::Nil]), Value::Array(Vec::new()), Value::Int(1)] {
            assert_eq!(counted(&odd), None);
        }
    }

    #[test]
    fn servers_together_and_counts_that_cannot_be() {
        let of = |ms, total, keys: &[(&str, u64)]| Counted {
            duration_ms: ms,
            total_us: total,
            by_cpu: keys.iter().map(|(key, us)| (key.as_bytes().to_vec(), *us)).collect(),
        };
        let both = vec![of(2_000, 300, &[("a", 200), ("b", 10)]), of(1_900, 100, &[("c", 90), ("b", 10)])];
        let report = report(both, 2);
        let shares: Vec<(&[u8], f64)> = report.items.iter().map(|hot| (&hot.name[..], hot.share)).collect();
        assert_eq!(shares, [(&b"a"[..], 0.5), (&b"c"[..], 0.225)]);
        assert_eq!((report.seconds, report.items[0].cpu_us_per_second), (2.0, Some(100.0)));
        assert!(adds_up(&of(1, 100, &[("a", 99), ("b", 1)])) && !adds_up(&of(1, 100, &[("a", 99), ("b", 9)])));
    }
}
