//! The shortest way for one call: no list of one is made, and what an answer says about the connection is looked at only if
//! something is wrong.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use redis::{Cmd, Value};
use tidegate_backend::{Error, Result};

use super::link::{Link, Master, RedisResult};
use super::{Call, Connector, Role, Shared, failed, health, unavailable};
use crate::connect::health::Symptom;

impl Connector {
    /// One call.
    pub(crate) async fn one(&self, call: Call) -> Result<Value> {
        let shared = &*self.shared;
        let link = shared.ready(1)?;
        shared.count(1);
        let mut answer = link.one(call.command(false)).await;
        if answer.as_ref().is_err_and(health::is_no_script) {
            answer = link.one(call.command(true)).await;
        }
        shared.learn_from(&link, &call.key, &answer);
        answer.map_err(failed)
    }

    /// Runs `command`, of which nothing is copied. `key` is its first key: who holds it must answer.
    pub(crate) async fn direct(&self, command: Cmd, key: &[u8]) -> Result<Value> {
        let shared = &*self.shared;
        let link = shared.ready(1)?;
        let count = || metrics::counter!("tidegate_store_commands_total", "store" => shared.options.role.store());
        shared.counter.get_or_init(count).increment(1);
        let answer = link.one(command).await;
        shared.learn_from(&link, key, &answer);
        answer.map_err(failed)
    }

    /// The present connection, for commands as one writes them with the client.
    #[cfg(feature = "ceiling")]
    pub(crate) fn bare(&self) -> Option<Bare> {
        self.shared.link.load_full().map(|link| Bare((*link).clone()))
    }

    /// The masters of a Cluster, each once; none for a server alone.
    pub(crate) async fn masters(&self) -> Result<Vec<Master>> {
        self.link()?.masters().await.map_err(failed)
    }

    fn link(&self) -> Result<Arc<Link>> {
        self.shared.link.load_full().ok_or_else(|| unavailable(&self.shared.trouble.load()))
    }
}

/// A connection without anything of ours around it.
#[cfg(feature = "ceiling")]
#[derive(Clone)]
pub(crate) struct Bare(Link);

#[cfg(feature = "ceiling")]
impl Bare {
    /// Asks as one does with the client.
    pub(crate) async fn ask<T: redis::FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        match &self.0 {
            Link::One(connection) => command.query_async(&mut connection.clone()).await,
            #[cfg(feature = "cluster")]
            Link::Cluster(connection) => command.query_async(&mut connection.clone()).await,
        }
    }

    /// The same for a pipeline.
    pub(crate) async fn ask_all(&self, pipeline: &redis::Pipeline) -> RedisResult<Vec<Value>> {
        match &self.0 {
            Link::One(connection) => pipeline.query_async(&mut connection.clone()).await,
            #[cfg(feature = "cluster")]
            Link::Cluster(connection) => pipeline.query_async(&mut connection.clone()).await,
        }
    }
}

/// In what `INFO server` answers.
pub(crate) fn run_id(info: &str) -> Option<&str> {
    info.lines().find_map(|line| line.strip_prefix("run_id:")).map(str::trim)
}

/// Whether keys that are asked for together are on their way from one node of a Cluster to another: the old one says that
/// some have moved, the new one that some have not, and the client is sent back and forth. One by one they can be reached.
pub(crate) fn is_on_its_way(e: &Error) -> bool {
    use redis::{ErrorKind, ServerErrorKind as Server};
    let of_client = std::error::Error::source(e).and_then(|e| e.downcast_ref::<redis::RedisError>());
    let kind = of_client.map(redis::RedisError::kind);
    matches!(kind, Some(ErrorKind::Server(Server::TryAgain | Server::Ask | Server::Moved)))
}

impl Shared {
    /// The present connection, for so many calls.
    pub(super) fn ready(&self, calls: u64) -> Result<Arc<Link>> {
        let Some(link) = self.link.load_full() else { return Err(unavailable(&self.trouble.load())) };
        self.calls.fetch_add(calls, Ordering::Relaxed);
        Ok(link)
    }

    /// Counts so many calls for whoever collects metrics.
    pub(super) fn count(&self, calls: u64) {
        metrics::counter!("tidegate_store_commands_total", "store" => self.options.role.store()).increment(calls);
    }

    /// What an error says about the connection, given what the server is used for.
    pub(super) fn symptom(&self, e: &redis::RedisError) -> Symptom {
        match self.options.role {
            Role::State if self.is_strict() => health::symptom(e),
            Role::State | Role::Cache => health::of_a_cache(e),
        }
    }

    /// Whether a server that refuses a write is of no use at all.
    fn is_strict(&self) -> bool {
        self.must_write.load(Ordering::Acquire) || !self.bears_refusals.load(Ordering::Acquire)
    }

    fn is_well(&self) -> bool {
        self.failing.is_empty() && self.trouble.load().is_empty()
    }

    /// As [`Shared::learn`], from one answer.
    fn learn_from(&self, link: &Arc<Link>, key: &[u8], answer: &RedisResult<Value>) {
        if answer.is_ok() && self.is_well() {
            return;
        }
        let symptom = answer.as_ref().map_or_else(|e| self.symptom(e), |_| Symptom::None);
        self.note(link, key, symptom);
        self.note_health(link);
    }
}
