//! What clients cost, and whether they are let in.

use serde_json::{Value, json};

use super::super::facts::grown;
use super::super::finding::{Severity, Told, bytes, percent, rounded};
use super::super::sample::Client;
use super::{Measure, View, WELL};

/// Most clients that are named.
const NAMED: usize = 3;
/// Pressure at which buffers cost data.
const NEARLY_FULL: f64 = 0.87;

pub(in super::super) fn buffers(view: &View) -> Measure {
    let (Some(buffers), Some((limit, _))) = (view.info.number("mem_clients_normal"), view.limit()) else {
        return Measure::Unknown;
    };
    if buffers < view.settings.min_size { WELL } else { Measure::Level(buffers as f64 / limit as f64) }
}

fn named(clients: &[Client]) -> Option<Value> {
    let one = |client: &Client| {
        json!({
            "client": client.address,
            "name": client.name,
            "command": client.command,
            "input_bytes": client.input_bytes,
            "output_bytes": client.output_bytes,
            "total_bytes": client.total_bytes,
        })
    };
    (!clients.is_empty()).then(|| clients.iter().take(NAMED).map(one).collect())
}

pub(in super::super) fn tell_buffers(view: &View, level: f64) -> Told {
    let buffers = view.info.number("mem_clients_normal").unwrap_or_default();
    let (limit, source) = view.limit().unwrap_or_default();
    let severity = if view.pressure().is_some_and(|pressure| pressure >= NEARLY_FULL) {
        Severity::Critical
    } else {
        Severity::Warning
    };
    let largest = view.answer.clients.first();
    let who = largest.map_or_else(String::new, |client| {
        format!("; most for {} ({}, last command {})", client.address, bytes(client.total_bytes), client.command)
    });
    let cause =
        format!("buffers of clients take {}, {} of {} ({source}){who}", bytes(buffers), percent(level), bytes(limit));
    let told = Told::new(severity, cause)
        .with("clients_bytes", Some(buffers))
        .with("share", Some(rounded(level)))
        .with("limit_bytes", Some(limit))
        .with("limit_source", Some(source))
        .with("pressure", view.pressure().map(rounded))
        .with("connected_clients", view.info.number("connected_clients"))
        .with("largest_output_buffer", view.info.number("client_recent_max_output_buffer"))
        .with("largest", named(&view.answer.clients));
    match largest {
        Some(client) => told.next(
            view.cli(&format!("CLIENT KILL ADDR {}", client.address)),
            "that client loses its connection and what it has not read; it may come back and do it again",
        ),
        None => told.next(
            view.set("maxmemory-clients", "5%"),
            "Redis 7.0 and newer: from then on clients with the largest buffers lose their connections when all together take more",
        ),
    }
}

pub(in super::super) fn big_value(view: &View) -> Measure {
    view.info.number("client_recent_max_input_buffer").map(|bytes| bytes as f64).into()
}

pub(in super::super) fn tell_big_value(view: &View, level: f64) -> Told {
    let size = bytes(level as u64);
    // The buffer is kept for some seconds after the command: whoever has a large one sent it.
    let sender =
        view.answer.clients.iter().max_by_key(|client| client.input_bytes).filter(|client| client.input_bytes > 0);
    let who = sender.map_or_else(
        || "who sends it could not be seen".to_owned(),
        |client| {
            let name = if client.name.is_empty() { String::new() } else { format!(", named {}", client.name) };
            format!("{}{name} sends it, with {}", client.address, client.command)
        },
    );
    let cause = format!(
        "a command of about {size} passes through ({who}): while it is read, copied and deleted everyone else waits, and memory fragments"
    );
    let told = Told::new(Severity::Warning, cause)
        .with("largest_input_buffer", Some(level))
        .with("client", sender.map(|client| client.address.clone()))
        .with("client_name", sender.map(|client| client.name.clone()))
        .with("command", sender.map(|client| client.command.clone()))
        .with("clients", named(&view.answer.clients))
        .with("role", view.info.text("role"));
    told.next(
        view.own_tool("big-keys"),
        "it reads every key once and changes nothing; it finds the largest. The sender is where to mend it",
    )
}

fn connections(view: &View) -> Option<(u64, u64)> {
    let of_cluster = view.info.number("cluster_connections").unwrap_or_default();
    let most = view.info.number("maxclients").filter(|most| *most > 0)?;
    Some((view.info.number("connected_clients")?.saturating_add(of_cluster), most))
}

pub(in super::super) fn near_limit(view: &View) -> Measure {
    connections(view).map(|(now, most)| now as f64 / most as f64).into()
}

pub(in super::super) fn tell_near_limit(view: &View, level: f64) -> Told {
    let (now, most) = connections(view).unwrap_or_default();
    let cause = format!("{now} of {most} connections are taken ({}); the next clients are turned away", percent(level));
    Told::new(Severity::Warning, cause)
        .with("connections", Some(now))
        .with("maxclients", Some(most))
        .with("share", Some(rounded(level)))
        .with("blocked_clients", view.info.number("blocked_clients"))
        .next(
            view.set("maxclients", &most.saturating_mul(2).to_string()),
            "it needs as many open files (ulimit -n). If connections leak, `CLIENT LIST` by age and idle shows whose; `timeout` closes idle ones",
        )
}

pub(in super::super) fn rejected(view: &View) -> Measure {
    grown(view.facts.rejected, view.before.and_then(|before| before.rejected)).map(|count| count as f64).into()
}

pub(in super::super) fn tell_rejected(view: &View, level: f64) -> Told {
    let (now, most) = connections(view).unwrap_or_default();
    let cause = format!("{level:.0} connections were turned away since the last look: {now} of {most} are taken");
    Told::new(Severity::Critical, cause)
        .with("rejected", Some(level))
        .with("rejected_in_all", view.facts.rejected)
        .with("connections", Some(now))
        .with("maxclients", Some(most))
        .next(
            view.set("maxclients", &most.saturating_mul(2).to_string()),
            "it needs as many open files (ulimit -n). If connections leak, `CLIENT LIST` by age and idle shows whose; `timeout` closes idle ones",
        )
}
