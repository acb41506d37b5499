//! Heartbeats, and taking over from nodes that are gone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidegate_backend::Result;
use tidegate_core::Millis;

use super::Inner;
use crate::connect::Call;
use crate::reply;
use crate::scripts;

/// Between two heartbeats of a node that holds leases, and between two looks while another one does.
const BEAT: Duration = Duration::from_millis(250);
/// The same while no node holds any: there is nothing to take over.
const IDLE_BEAT: Duration = Duration::from_millis(500);
/// By how much the heartbeat of a node without leases counts longer, milliseconds.
const IDLE_GRACE_MS: i64 = 1_000;
/// A heartbeat older than this, by the server's clock, is that of a node that is gone.
const GONE_MS: i64 = 1_000;
/// For at least this long this node must have seen no new one, so that a server that stood still for seconds makes nobody
/// take over from everybody.
const WATCHED: Duration = Duration::from_millis(700);
/// Most steps of taking over one partition at a time.
const MAX_STEPS: usize = 100_000;
/// Longest time a claim makes its node beat often; what is leased for longer is taken over a second later.
const MAX_HOLDS: Duration = Duration::from_secs(3_600);

type Node = [u8; 8];

#[derive(Debug)]
struct Seen {
    beat: i64,
    since: Instant,
}

/// Until when this node may hold leases.
#[derive(Debug, Default)]
pub(super) struct Holds(Mutex<Option<Instant>>);

impl Holds {
    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something was leased for this long; gives whether nothing was before.
    fn claimed(&self, lease: Duration) -> bool {
        let now = Instant::now();
        self.lock().replace(now + lease.min(MAX_HOLDS)).is_none_or(|before| before < now)
    }

    fn any(&self) -> bool {
        self.lock().is_some_and(|until| until >= Instant::now())
    }
}

/// What a heartbeat told.
struct Told {
    /// The server knew this node.
    known: bool,
    /// Another node holds leases.
    held_elsewhere: bool,
}

/// Beats until it is aborted.
pub(super) async fn run(inner: Arc<Inner>) {
    let mut next = tokio::time::Instant::now();
    let mut epochs = inner.connector.epochs();
    let mut seen: HashMap<Node, Seen> = HashMap::new();
    loop {
        tokio::select! {
            () = tokio::time::sleep_until(next) => {}
            () = inner.rebuild.suspicion.notified() => {
                inner.mind_rebuild().await;
                continue;
            }
        }
        let new_link = epochs.has_changed().unwrap_or(false);
        epochs.mark_unchanged();
        let mut often = inner.holds.any();
        match beat(&inner, &mut seen).await {
            Ok(told) => {
                often |= told.held_elsewhere;
                // The server lost this node's heartbeat, or it is another server: what else is gone?
                if !told.known || new_link {
                    drop(inner.peek(Millis(i64::MIN), 0, 0).await);
                }
            }
            // Nothing was seen while nothing could be.
            Err(_) => {
                often = true;
                seen.clear();
            }
        }
        inner.mind_rebuild().await;
        next = tokio::time::Instant::now() + if often { BEAT } else { IDLE_BEAT };
    }
}

/// One heartbeat; takes over from nodes that are gone.
async fn beat(inner: &Inner, seen: &mut HashMap<Node, Seen>) -> Result<Told> {
    let answer = inner.connector.one(inner.beat(inner.node.to_vec(), None)).await?;
    let [known, now] = reply::parts::<2>(&answer)?;
    if reply::integer(known)? < 0 {
        return Err(inner.connector.is_anothers(now));
    }
    let now = reply::integer(now)?;
    let mut gone = Vec::new();
    let mut present = Vec::new();
    let mut held_elsewhere = false;
    for pair in reply::list(&answer)?[2..].chunks_exact(2) {
        let Ok(node) = Node::try_from(reply::bytes(&pair[0])?) else { continue };
        let beat = reply::integer(&pair[1])?;
        present.push(node);
        held_elsewhere |= node != inner.node && beat <= now;
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
    Ok(Told { known: reply::integer(known)? == 1, held_elsewhere })
}

impl Inner {
    /// Something was claimed for this long. The first claim after a while tells the others before it is acted on, so that a node
    /// that dies with it is missed as soon as any.
    pub(super) async fn holds_leases(&self, lease: Duration) {
        if self.holds.claimed(lease)
            && let Err(e) = self.connector.one(self.beat(self.node.to_vec(), None)).await
        {
            tracing::debug!(error = %e, "a heartbeat was lost; the next one says the same");
        }
    }

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
                (*at, Call::script(&scripts::HAND_BACK, keys, vec![node.to_vec(), cursor.clone(), charge.to_vec()]))
            });
            let answers = self.each(calls.collect()).await?;
            for ((_, cursor), answer) in cursors.iter_mut().zip(&answers) {
                // Where a partition is out, leases end by themselves.
                let Some(answer) = answer else {
                    *cursor = b"0".to_vec();
                    continue;
                };
                let [next, count] = reply::parts::<2>(answer)?;
                reply::bytes(next)?.clone_into(cursor);
                back += reply::integer(count)?;
            }
            cursors.retain(|(_, cursor)| cursor != b"0");
            if cursors.is_empty() {
                break;
            }
        }
        if back > 0 {
            // Other nodes sleep until the leases' ends; whoever does not hear this looks within a second.
            let message = [&self.node[..], b"0"].concat();
            let channel = self.keys.earlier_channel();
            let _ = self.connector.one(Call::plain("PUBLISH", channel.as_bytes(), &[&message])).await;
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
        let grace = if self.holds.any() { 0 } else { IDLE_GRACE_MS };
        let arguments = [own, owner, grace.to_string().into_bytes()];
        let arguments = arguments.into_iter().chain(gone.map(|node| node.to_vec())).collect();
        Call::script(&scripts::BEAT, vec![self.keys.nodes(), self.keys.owner()], arguments)
    }
}
