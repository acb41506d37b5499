//! Which servers there are.

use futures_util::future::join_all;
use redis::Value;

use crate::connect::{Host, Mode, RedisOptions, RedisResult, connect_for_waiting, master};
use crate::members::members;

/// The servers that are there now; an error when nobody tells. Ends within a few times the patience of `options`.
pub(crate) async fn found(options: &RedisOptions) -> RedisResult<Vec<Host>> {
    match &options.mode {
        Mode::Standalone(host) => Ok(vec![host.clone()]),
        Mode::Sentinel { .. } => under_sentinel(options).await,
        Mode::Cluster(hosts) => {
            for host in hosts {
                if let Ok(nodes) = of_cluster(options, host).await
                    && !nodes.is_empty()
                {
                    return Ok(nodes);
                }
            }
            Err((redis::ErrorKind::Client, "no node of the Cluster tells of the others").into())
        }
    }
}

async fn ask(options: &RedisOptions, host: &Host, words: &[&str]) -> RedisResult<Value> {
    let mut connection = connect_for_waiting(options, host, options.response_timeout).await?;
    let (name, rest) = words.split_first().unwrap_or((&"PING", &[]));
    redis::cmd(name).arg(rest).query_async(&mut connection).await
}

async fn of_cluster(options: &RedisOptions, host: &Host) -> RedisResult<Vec<Host>> {
    let text: String = redis::from_redis_value(ask(options, host, &["CLUSTER", "NODES"]).await?)?;
    Ok(members(&text, host).into_iter().map(|member| member.host).collect())
}

async fn under_sentinel(options: &RedisOptions) -> RedisResult<Vec<Host>> {
    let Mode::Sentinel { hosts, service, .. } = &options.mode else { return Ok(Vec::new()) };
    let mut servers = vec![master(options).await?];
    let to_sentinels = to_sentinels(options);
    for sentinel in hosts {
        if let Ok(answer) = ask(&to_sentinels, sentinel, &["SENTINEL", "REPLICAS", service]).await {
            servers.extend(sentinel_replicas(answer));
            break;
        }
    }
    servers.dedup();
    Ok(servers)
}

/// Why no sentinel names a server: each is asked.
pub(super) async fn why_nobody(options: &RedisOptions) -> String {
    let Mode::Sentinel { hosts, service, .. } = &options.mode else { return String::new() };
    let to_sentinels = to_sentinels(options);
    let sentinels = &to_sentinels;
    let asked = hosts
        .iter()
        .map(|host| async move { ask(sentinels, host, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", service]).await });
    let answers: Vec<_> = hosts.iter().map(Host::address).zip(join_all(asked).await).collect();
    if let Some((address, _)) = answers.iter().find(|(_, answer)| matches!(answer, Ok(Value::Nil))) {
        return format!("{address} answers and knows no such service");
    }
    // What a sentinel says is more than that another is silent.
    let failures = || answers.iter().filter_map(|(address, answer)| Some((address, answer.as_ref().err()?)));
    match (failures().find(|(_, e)| e.code().is_some()), failures().next()) {
        (Some((address, e)), _) => format!("{address} says {e}"),
        (None, Some((address, e))) if failures().count() == hosts.len() => match hosts.len() {
            1 => format!("the only one, {address}, does not answer: {e}"),
            count => format!("none of the {count} answers; {address}: {e}"),
        },
        _ => "one has named a server just now".to_owned(),
    }
}

/// The options to ask sentinels with: they have a login of their own.
fn to_sentinels(options: &RedisOptions) -> RedisOptions {
    let mut to_sentinels = options.clone();
    if let Mode::Sentinel { login, .. } = &options.mode {
        to_sentinels.login = login.clone();
    }
    to_sentinels.database = 0;
    to_sentinels
}

fn sentinel_replicas(answer: Value) -> Vec<Host> {
    let replicas: Vec<Vec<String>> = redis::from_redis_value(answer).unwrap_or_default();
    let field = |replica: &[String], name: &str| {
        replica.chunks_exact(2).find(|pair| pair[0] == name).map(|pair| pair[1].clone())
    };
    let host = |replica: Vec<String>| {
        Some(Host { name: field(&replica, "ip")?, port: field(&replica, "port")?.parse().ok()? })
    };
    replicas.into_iter().filter_map(host).collect()
}
