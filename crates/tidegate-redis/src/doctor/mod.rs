//! What the doctor needs to know of real servers, and what it sets: [`examine`], [`apply`].
//!
//! - `node.rs`: one server. `keys.rs`: a sample of its keys. `sets.rs`: Sentinel and Cluster.
//! - `apply.rs`: settings, one by one, each looked at before and after.
//!
//! What is not permitted is not known; nothing is asked with `KEYS` or `MONITOR`, no secret is read, and looking changes nothing.

mod apply;
mod keys;
mod node;
mod sets;

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::iter;
use redis::RedisError;
use tidegate_backend::{Error, ErrorKind, Result};
use tidegate_core::doctor::{Deployment, Silent, Topology};
use tidegate_core::watch::{MAX_SERVERS, Purpose};

pub use self::apply::{Applied, Outcome, apply};
use crate::connect::{Host, Mode, RedisOptions, RedisResult};
use crate::watch;

/// How long a server has for an answer, and for a connection.
const PATIENCE: Duration = Duration::from_secs(2);
/// Servers that are asked at once.
const AT_ONCE: usize = 8;
/// Longest error that is shown, characters.
const SHOWN: usize = 200;

fn patient(options: &RedisOptions) -> RedisOptions {
    options.clone().response_timeout(PATIENCE).connect_timeout(PATIENCE)
}

/// Looks at the servers that `options` name: one alone; the master and its replicas under Sentinel; every server of a Cluster.
///
/// # Errors
/// [`ErrorKind::Unavailable`]: a server alone, or every server of a set, does not answer, or stops answering meanwhile; one of several
/// that does not is told in [`Deployment::silent`]. [`ErrorKind::Configuration`]: it does not let us in.
pub async fn examine(options: &RedisOptions, role: Purpose) -> Result<Deployment> {
    let options = &patient(options);
    let (hosts, topology) = servers(options).await?;
    let is_alone = topology == Topology::Single;
    let looks = hosts.into_iter().take(MAX_SERVERS).map(|host| async move {
        let seen = node::look(options, &host, is_alone).await;
        (host, seen)
    });
    let seen: Vec<(Host, RedisResult<_>)> = iter(looks).buffered(AT_ONCE).collect().await;
    let (mut nodes, mut silent, mut why) = (Vec::new(), Vec::new(), None);
    for (host, seen) in seen {
        match seen {
            Ok(node) => nodes.push(node),
            Err(e) => {
                silent.push(Silent { address: host.address(), why: in_words(&e) });
                why.get_or_insert_with(|| failed(&host, e));
            }
        }
    }
    match why {
        Some(why) if nodes.is_empty() => Err(why),
        _ if nodes.is_empty() => Err(Error::new(ErrorKind::Unavailable, "no server was found; check the URL")),
        _ => Ok(Deployment { role, topology, nodes, silent }),
    }
}

async fn servers(options: &RedisOptions) -> Result<(Vec<Host>, Topology)> {
    match &options.mode {
        Mode::Standalone(host) => Ok((vec![host.clone()], Topology::Single)),
        Mode::Sentinel { .. } => {
            let none = || Error::new(ErrorKind::Unavailable, "no sentinel names the master; check the URL");
            let hosts = watch::found(options).await.map_err(|_| none())?;
            Ok((hosts, Topology::Sentinel(sets::sentinels(options).await)))
        }
        Mode::Cluster(hosts) => sets::cluster(options, hosts).await,
    }
}

/// An error as people may see it.
fn in_words(e: &RedisError) -> String {
    let text = if e.is_timeout() { format!("no answer within {} s", PATIENCE.as_secs()) } else { e.to_string() };
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(SHOWN).collect()
}

fn failed(host: &Host, e: RedisError) -> Error {
    let is_refusal = matches!(e.code(), Some("NOAUTH" | "WRONGPASS" | "NOPERM"))
        || e.kind() == redis::ErrorKind::AuthenticationFailed;
    let address = host.address();
    if is_refusal {
        let why =
            format!("{address} does not let us in; check user and password in the URL; the user needs INFO at least");
        return Error::new(ErrorKind::Configuration, why).because(e);
    }
    // The cause is in the words already.
    let why = format!("{address} does not answer ({}); check the URL and whether the server runs", in_words(&e));
    Error::new(ErrorKind::Unavailable, why)
}
