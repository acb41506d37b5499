//! The shortest way for one plain command: nothing is copied for the case that it fails, and what an answer says about the
//! connection is looked at only if something is wrong.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use redis::{Cmd, Value};
use tidegate_backend::Result;

use super::link::{Link, Master, RedisResult};
use super::{Connector, Shared, failed, health, unavailable};
use crate::connect::health::Symptom;

impl Connector {
    /// Runs `command`. `key` is its first key: who holds it must answer.
    pub(crate) async fn direct(&self, command: Cmd, key: &[u8]) -> Result<Value> {
        let shared = &*self.shared;
        let Some(link) = shared.link.load_full() else { return Err(unavailable(&shared.trouble.load())) };
        shared.calls.fetch_add(1, Ordering::Relaxed);
        let count = || metrics::counter!("tidegate_store_commands_total", "store" => shared.options.role.store());
        shared.counter.get_or_init(count).increment(1);
        let answer = link.one(command).await;
        if answer.is_err() || !shared.is_well() {
            shared.learn_from(&link, key, &answer);
        }
        answer.map_err(failed)
    }

    /// The masters of a Cluster, each once; none for a server alone.
    pub(crate) async fn masters(&self) -> Result<Vec<Master>> {
        self.link()?.masters().await.map_err(failed)
    }

    /// Runs a command that names no key on the master of `slot`, or on the only server.
    pub(crate) async fn on_master(&self, slot: Option<u16>, command: Cmd) -> Result<Value> {
        self.link()?.on_master(slot, command).await.map_err(failed)
    }

    /// What tells each server that holds keys from every other, and from itself before it was started again.
    pub(crate) async fn run_ids(&self) -> Result<Vec<String>> {
        let infos = self.link()?.info("server").await.map_err(failed)?;
        Ok(infos.iter().filter_map(|info| run_id(info)).map(str::to_owned).collect())
    }

    fn link(&self) -> Result<Arc<Link>> {
        self.shared.link.load_full().ok_or_else(|| unavailable(&self.shared.trouble.load()))
    }
}

/// In what `INFO server` answers.
pub(crate) fn run_id(info: &str) -> Option<&str> {
    info.lines().find_map(|line| line.strip_prefix("run_id:")).map(str::trim)
}

impl Shared {
    fn is_well(&self) -> bool {
        self.failing.is_empty() && self.trouble.load().is_empty()
    }

    /// As [`Shared::learn`], from one answer.
    fn learn_from(&self, link: &Arc<Link>, key: &[u8], answer: &RedisResult<Value>) {
        let symptom = answer.as_ref().map_or_else(health::symptom, |_| Symptom::None);
        self.note(link, key, symptom);
        self.note_health(link);
    }
}
