//! One server.

use std::collections::BTreeMap;
use std::fs;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};
use tidegate_core::doctor::{Keys, Machine, Node, SETTINGS, Settings};
use tidegate_core::watch::Info;

use super::keys;
use crate::asks::{all, command};
use crate::connect::{Host, RedisOptions, RedisResult, connect_for_waiting};
use crate::watch::parse::{setting, text};
use crate::watch::{asks_all_or_nothing, can_defrag, host};

/// Replicas of a server alone whose keys are counted.
const REPLICAS: usize = 8;

/// A control group without a limit has one like this.
const UNBOUNDED: u64 = 1 << 60;

/// Looks at one server. `is_alone`: nobody else looks at its replicas.
pub(super) async fn look(options: &RedisOptions, at: &Host, is_alone: bool) -> RedisResult<Node> {
    let mut connection = connect_for_waiting(options, at, options.response_timeout).await?;
    let connection = &mut connection;
    // One setting by itself: where CONFIG is forbidden, each further try would count as an error there.
    let first = all(connection, &[command(&["INFO"]), get(SETTINGS[0])]).await?;
    let [info, first] = <[_; 2]>::try_from(first).map_err(|_| nothing())?;
    let info = Info::parse(&text(&info?));
    let mut node = Node {
        address: at.address(),
        tls: options.tls,
        is_open: options.login.password.is_none(),
        machine: machine(&info),
        ..Node::default()
    };
    if let Ok(first) = first {
        ask_settings(connection, &info, first, &mut node).await?;
    }
    if info.number("cluster_enabled") == Some(1) {
        let answer = all(connection, &[command(&["CLUSTER", "INFO"])]).await?.pop();
        node.cluster = answer.and_then(Result::ok).map(|answer| Info::parse(&text(&answer)));
    }
    let is_copy = !is_alone && info.is_replica() == Some(true);
    node.keys = if is_copy { Keys::Elsewhere } else { keys::sample(connection, &info, options).await? };
    node.replicas = if is_alone { keys_of_replicas(options, &info).await } else { Vec::new() };
    node.info = info;
    Ok(node)
}

fn nothing() -> RedisError {
    RedisError::from((redis::ErrorKind::Parse, "fewer answers than questions"))
}

fn get(name: &str) -> Cmd {
    command(&["CONFIG", "GET", name])
}

/// Every setting that rules look at, and whether it can move allocations together, in one round trip.
async fn ask_settings(
    connection: &mut MultiplexedConnection,
    info: &Info,
    first: Value,
    node: &mut Node,
) -> RedisResult<()> {
    // One by one: servers before 7.0 take a single name.
    let mut commands: Vec<Cmd> = SETTINGS[1..].iter().map(|name| get(name)).collect();
    let asks = asks_all_or_nothing(info);
    if asks {
        // Changes nothing: the second value is none, and all are set or none.
        commands.push(command(&["CONFIG", "SET", "activedefrag", "yes", "hz", "none"]));
    }
    let mut answers = all(connection, &commands).await?;
    let defrag = if asks { answers.pop() } else { None };
    let values: BTreeMap<String, String> = SETTINGS
        .iter()
        .zip(std::iter::once(Ok(first)).chain(answers))
        .filter_map(|(name, answer)| Some(((*name).to_owned(), setting(&answer.ok()?, name)?)))
        .collect();
    let is_on = values.get("activedefrag").is_some_and(|value| value == "yes");
    let said = defrag.and_then(Result::err).and_then(|e| can_defrag(&e.to_string()));
    node.can_defrag = if is_on { Some(true) } else { said };
    node.settings = Settings { permitted: true, values };
    Ok(())
}

/// How many keys the replicas have that can be reached with the same login.
async fn keys_of_replicas(options: &RedisOptions, info: &Info) -> Vec<(String, u64)> {
    let mut counts = Vec::new();
    for replica in info.replicas().filter(|replica| replica.state == "online").take(REPLICAS) {
        let Some((name, port)) = replica.address.rsplit_once(':') else { continue };
        let Ok(port) = port.parse() else { continue };
        let host = Host { name: name.to_owned(), port };
        let asked = async {
            let mut connection = connect_for_waiting(options, &host, options.response_timeout).await?;
            command(&["INFO", "keyspace"]).query_async::<String>(&mut connection).await
        };
        if let Ok(answer) = asked.await {
            let keys = Info::parse(&answer).keyspaces().map(|db| db.keys).fold(0, u64::saturating_add);
            counts.push((host.address(), keys));
        }
    }
    counts
}

/// What the machine says of the server, where it is a process of ours.
fn machine(info: &Info) -> Machine {
    let Some(pid) = host::process(info) else { return Machine::default() };
    let read = |path: &str| fs::read_to_string(path).ok();
    // `always [madvise] never`: the one in brackets holds.
    let chosen = |text: String| Some(text.split_once('[')?.1.split_once(']')?.0.to_owned());
    let refused = read(&format!("/proc/{pid}/status")).and_then(|status| {
        let line = status.lines().find_map(|line| line.strip_prefix("THP_enabled:"))?;
        Some(line.trim() == "0")
    });
    Machine {
        cgroup_bytes: host::seen(info).cgroup_bytes.filter(|bytes| *bytes < UNBOUNDED),
        huge_pages: read("/sys/kernel/mm/transparent_hugepage/enabled").and_then(chosen),
        huge_pages_refused: refused,
        overcommit: read("/proc/sys/vm/overcommit_memory").and_then(|mode| mode.trim().parse().ok()),
    }
}
