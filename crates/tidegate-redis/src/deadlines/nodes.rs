//! Heartbeats, and taking over from nodes that are gone.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_backend::Result;
use tidegate_core::Millis;
use tokio::time::MissedTickBehavior;

use super::Inner;
use crate::connect::Call;
use crate::reply;
use crate::scripts;

/// Between two heartbeats.
const BEAT: Duration = Duration::from_millis(250);
/// A heartbeat older than this, by the server's clock, is that of a node that is gone.
const GONE_MS: i64 = 1_000;
/// For at least this long this node must have seen no new one, so that a server that stood still for seconds makes nobody
/// take over from everybody.
const WATCHED: Duration = Duration::from_millis(700);
/// Most steps of taking over one partition at a time.
const MAX_STEPS: usize = 100_000;

type Node = [u8; 8];

#[derive(Debug)]
struct Seen {
    beat: i64,
    since: Instant,
}

/// Beats until it is aborted.
pub(super) async fn run(inner: Arc<Inner>) {
    let mut tick = tokio::time::interval(BEAT);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut epochs = inner.connector.epochs();
    let mut seen: HashMap<Node, Seen> = HashMap::new();
    loop {
        let suspicious = tokio::select! {
            _ = tick.tick() => false,
            () = inner.rebuild.suspicion.notified() => true,
        };
        if suspicious {
            inner.mind_rebuild().await;
            continue;
        }
        let new_link = epochs.has_changed().unwrap_or(false);
        epochs.mark_unchanged();
        match beat(&inner, &mut seen).await {
            // The server lost this node's heartbeat, or it is another server: what else is gone?
            Ok(known) if !known || new_link => drop(inner.peek(Millis(i64::MIN), 0, 0).await),
            Ok(_) => {}
            // Nothing was seen while nothing could be.
            Err(_) => seen.clear(),
        }
        inner.mind_rebuild().await;
    }
}

/// One heartbeat; takes over from nodes that are gone. Says whether the server knew this node.
async fn beat(inner: &Inner, seen: &mut HashMap<Node, Seen>) -> Result<bool> {
    let answer = inner.connector.one(inner.beat(inner.node.to_vec(), None)).await?;
    let [known, now] = reply::parts::<2>(&answer)?;
    if reply::integer(known)? < 0 {
        return Err(inner.connector.is_anothers(now));
    }
    let now = reply::integer(now)?;
    let mut gone = Vec::new();
    let mut present = Vec::new();
    for pair in reply::list(&answer)?[2..].chunks_exact(2) {
        let Ok(node) = Node::try_from(reply::bytes(&pair[0])?) else { continue };
        let beat = reply::integer(&pair[1])?;
        present.push(node);
        let seen = seen.entry(node).or_insert_with(|| Seen { beat, since: Instant::now() });
        if seen.beat != beat {
            *seen = Seen { beat, since: Instant::now() };
        } else if node != inner.node && now - beat > GONE_MS && seen.since.elapsed() > WATCHED {
            gone.push(node);
        }
    }
    seen.retain(|node, _| present.contains(node));
    for node in gone {
        inner.take_over(node).await?;
        seen.remove(&node);
    }
    Ok(reply::integer(known)? == 1)
}

impl Inner {
    /// Hands back what a node that is gone has leased, and strikes it out.
    async fn take_over(&self, node: Node) -> Result<()> {
        let count = self.hand_back(node, true).await?;
        tracing::info!(count, "took over from a node that is gone");
        metrics::counter!("tidegate_index_takeovers_total").increment(1);
        self.strike_out(node).await?;
        self.wake.earlier();
        Ok(())
    }

    /// Hands back what this node has leased, uncharged, and strikes it out.
    pub(super) async fn leave(&self) {
        let left = async {
            self.hand_back(self.node, false).await?;
            self.strike_out(self.node).await
        };
        if let Err(e) = left.await {
            tracing::debug!(error = %e, "claims could not be handed back; their leases end by themselves");
        }
    }

    async fn hand_back(&self, node: Node, charge: bool) -> Result<i64> {
        let mut back = 0;
        let mut cursors: Vec<(usize, Vec<u8>)> = (0..self.partitions).map(|at| (at, b"0".to_vec())).collect();
        for _ in 0..MAX_STEPS {
            let calls = cursors.iter().map(|(at, cursor)| {
                let charge = if charge { b"1" } else { b"0" };
                let keys = self.keys.partition(*at)[..2].to_vec();
                Call::script(&scripts::HAND_BACK, keys, vec![node.to_vec(), cursor.clone(), charge.to_vec()])
            });
            let answers = self.all(calls.collect()).await?;
            for ((_, cursor), answer) in cursors.iter_mut().zip(&answers) {
                let [next, count] = reply::parts::<2>(answer)?;
                reply::bytes(next)?.clone_into(cursor);
                back += reply::integer(count)?;
            }
            cursors.retain(|(_, cursor)| cursor != b"0");
            if cursors.is_empty() {
                break;
            }
        }
        Ok(back)
    }

    async fn strike_out(&self, node: Node) -> Result<()> {
        self.connector.one(self.beat(Vec::new(), Some(node))).await?;
        Ok(())
    }

    /// A heartbeat of `own` (nothing: only a look) that strikes out `gone`.
    fn beat(&self, own: Vec<u8>, gone: Option<Node>) -> Call {
        let owner = self.connector.owner().map_or_else(Vec::new, |owner| owner.to_text().into_bytes());
        let arguments = [own, owner].into_iter().chain(gone.map(|node| node.to_vec())).collect();
        Call::script(&scripts::BEAT, vec![self.keys.nodes(), self.keys.owner()], arguments)
    }
}
