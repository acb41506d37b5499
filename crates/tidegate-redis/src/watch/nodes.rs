//! Which servers there are.

use redis::Value;

use crate::connect::{Host, Mode, RedisOptions, RedisResult, connect_for_waiting, master};

/// The servers that are there now; `None` when nobody tells. Ends within a few times the patience of `options`.
pub(super) async fn found(options: &RedisOptions) -> Option<Vec<Host>> {
    match &options.mode {
        Mode::Standalone(host) => Some(vec![host.clone()]),
        Mode::Sentinel { .. } => under_sentinel(options).await.ok(),
        Mode::Cluster(hosts) => {
            for host in hosts {
                if let Ok(nodes) = of_cluster(options, host).await
                    && !nodes.is_empty()
                {
                    return Some(nodes);
                }
            }
            None
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
    Ok(cluster_nodes(&text, host))
}

/// The nodes of `CLUSTER NODES`, those that fail included: `asked` is who answered, which may not know its own name.
fn cluster_nodes(text: &str, asked: &Host) -> Vec<Host> {
    let node = |line: &str| {
        let mut fields = line.split(' ');
        let (address, flags) = (fields.nth(1)?, fields.next()?);
        if flags.split(',').any(|flag| matches!(flag, "noaddr" | "handshake")) {
            return None;
        }
        // `ip:port@bus,hostname`
        let (ip, port) = address.split(['@', ',']).next()?.rsplit_once(':')?;
        let port = port.parse().ok().filter(|port| *port > 0)?;
        let name = if ip.is_empty() { &asked.name } else { ip };
        Some(Host { name: name.trim_matches(['[', ']']).to_owned(), port })
    };
    text.lines().filter_map(node).collect()
}

async fn under_sentinel(options: &RedisOptions) -> RedisResult<Vec<Host>> {
    let Mode::Sentinel { hosts, service, login } = &options.mode else { return Ok(Vec::new()) };
    let mut servers = vec![master(options).await?];
    let mut to_sentinels = options.clone();
    to_sentinels.login = login.clone();
    to_sentinels.database = 0;
    for sentinel in hosts {
        if let Ok(answer) = ask(&to_sentinels, sentinel, &["SENTINEL", "REPLICAS", service]).await {
            servers.extend(sentinel_replicas(answer));
            break;
        }
    }
    servers.dedup();
    Ok(servers)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_a_cluster() {
        let text = "a 10.0.0.1:7000@17000,host master - 0 0 1 connected 0-5460\n\
                    b :7001@17001 myself,master - 0 0 2 connected\n\
                    c ::1:7002@17002 slave,fail a 0 0 3 disconnected\n\
                    d :0@0 master,noaddr - 0 0 4 disconnected\n\
                    e 10.0.0.9:7003@17003 handshake - 0 0 0 connected\n\nodd\n";
        let host = |name: &str, port| Host { name: name.to_owned(), port };
        let want = [host("10.0.0.1", 7_000), host("asked", 7_001), host("::1", 7_002)];
        assert_eq!(cluster_nodes(text, &host("asked", 1)), want);
    }
}
