//! Sentinel and Cluster.

use redis::Value;
use tidegate_backend::{Error, ErrorKind, Result};
use tidegate_core::doctor::{Member, Sentinels, Topology};

use super::failed;
use crate::connect::{Host, Mode, RedisOptions, RedisResult, connect_for_waiting};
use crate::members::members;

async fn ask(options: &RedisOptions, host: &Host, words: &[&str]) -> RedisResult<Value> {
    let mut connection = connect_for_waiting(options, host, options.response_timeout).await?;
    crate::asks::command(words).query_async(&mut connection).await
}

/// What the sentinels of the URL say of themselves; the first that answers has the word.
pub(super) async fn sentinels(options: &RedisOptions) -> Sentinels {
    let Mode::Sentinel { hosts, service, login } = &options.mode else { return Sentinels::default() };
    let to_sentinels = RedisOptions { login: login.clone(), database: 0, ..options.clone() };
    let question = ["SENTINEL", "MASTER", service];
    let asked = futures_util::future::join_all(hosts.iter().map(|host| ask(&to_sentinels, host, &question)));
    let mut seen = Sentinels {
        service: service.clone(),
        asked: u64::try_from(hosts.len()).unwrap_or(u64::MAX),
        ..Sentinels::default()
    };
    for (host, answer) in hosts.iter().zip(asked.await) {
        let Ok(answer) = answer else { continue };
        seen.answered += 1;
        if seen.at.is_empty() {
            let pairs: Vec<String> = redis::from_redis_value(answer).unwrap_or_default();
            let field = |name: &str| {
                pairs.chunks_exact(2).find(|pair| pair[0] == name).and_then(|pair| pair[1].parse::<u64>().ok())
            };
            seen.at = host.address();
            seen.quorum = field("quorum");
            seen.known = field("num-other-sentinels").map(|others| others + 1);
        }
    }
    if seen.at.is_empty() {
        seen.at = hosts.first().map(Host::address).unwrap_or_default();
    }
    seen
}

/// The servers of a Cluster, by the first of `hosts` that tells; where that is forbidden, `hosts` themselves.
pub(super) async fn cluster(options: &RedisOptions, hosts: &[Host]) -> Result<(Vec<Host>, Topology)> {
    let mut why = None;
    for host in hosts {
        match ask(options, host, &["CLUSTER", "NODES"]).await {
            Ok(answer) => {
                let text: String = redis::from_redis_value(answer).unwrap_or_default();
                let members = members(&text, host);
                let hosts = members.iter().map(|member| member.host.clone()).collect();
                let members = members.into_iter().map(|member| Member {
                    id: member.id,
                    address: member.host.address(),
                    master: member.master,
                    slots: member.slots,
                    fails: member.fails,
                });
                return Ok((hosts, Topology::Cluster(Some(members.collect()))));
            }
            Err(e) if e.code() == Some("NOPERM") => return Ok((hosts.to_vec(), Topology::Cluster(None))),
            Err(e) => why = Some(failed(host, e)),
        }
    }
    Err(why.unwrap_or_else(|| Error::new(ErrorKind::Unavailable, "the URL names no server of the Cluster")))
}
