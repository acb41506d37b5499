//! Who knows what was lost, and who puts it right.
//!
//! Each partition has a mark: the run id of the server that held every deadline when the index was last whole. Another
//! server, an emptied one, one that was started again or promoted has another id or no mark, and may lack deadlines.
//! What this node could not tell Redis makes the index incomplete, too. Of all nodes one at a time rebuilds: the one that
//! holds the lease, which it keeps while its owner asks for the state or schedules.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidegate_backend::Result;
use tidegate_core::Millis;
use tokio::sync::Notify;

use super::Inner;
use crate::connect::Call;
use crate::reply;
use crate::scripts;

/// How long the right to rebuild is kept without being renewed, milliseconds.
const LEASE_MS: &[u8] = b"5000";
/// An owner that neither asks nor schedules for this long does not rebuild.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
struct State {
    /// What `rebuilt` must be called with, while this node rebuilds.
    token: Option<u64>,
    tokens: u64,
    /// A partition is not whole.
    missing: bool,
    /// Deadlines of this node did not reach Redis since the last rebuild began.
    lossy: bool,
    asked: Instant,
}

/// What this node knows of the index's losses.
#[derive(Debug)]
pub(super) struct Rebuild {
    state: Mutex<State>,
    /// Held by whoever begins or ends a rebuild.
    turn: tokio::sync::Mutex<()>,
    /// There is reason to look.
    pub(super) suspicion: Notify,
}

impl Default for Rebuild {
    fn default() -> Self {
        let state = State { token: None, tokens: 0, missing: false, lossy: false, asked: Instant::now() };
        Self { state: Mutex::new(state), turn: tokio::sync::Mutex::new(()), suspicion: Notify::new() }
    }
}

impl Rebuild {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn token(&self) -> Option<u64> {
        self.lock().token
    }

    /// The owner is there.
    pub(super) fn asked(&self) {
        self.lock().asked = Instant::now();
    }

    /// A look at a partition found its mark in order, or not.
    pub(super) fn saw(&self, whole: bool) {
        if !whole {
            let mut state = self.lock();
            let new = !state.missing;
            state.missing = true;
            if new && state.token.is_none() {
                self.suspicion.notify_one();
            }
        }
    }

    /// `count` deadlines will not reach Redis.
    pub(super) fn lost(&self, count: usize) {
        metrics::counter!("tidegate_index_dropped_total").increment(count as u64);
        self.lock().lossy = true;
        self.suspicion.notify_one();
    }
}

impl Inner {
    /// The state right after the start.
    pub(super) async fn first_look(&self) {
        // A server that cannot be reached is looked at once it can.
        if self.peek(Millis(i64::MIN), 0, 0).await.is_ok() {
            self.mind_rebuild().await;
        }
    }

    /// Begins, keeps or gives up a rebuild.
    pub(super) async fn mind_rebuild(&self) {
        let _turn = self.rebuild.turn.lock().await;
        let (running, wanted, idle) = {
            let state = self.rebuild.lock();
            (state.token.is_some(), state.missing || state.lossy, state.asked.elapsed() > PATIENCE)
        };
        if running && (idle || !self.lease(LEASE_MS).await.unwrap_or(true)) {
            {
                // What it was for is still to be done.
                let mut state = self.rebuild.lock();
                (state.token, state.lossy) = (None, true);
            }
            self.give_up().await;
        } else if !running && wanted && !idle {
            self.begin_rebuild().await;
        }
    }

    /// Only in one's turn.
    async fn begin_rebuild(&self) {
        // Data that were lost may have been another's all along, or are now.
        if self.connector.ask_whose().await.is_err() {
            return;
        }
        if !self.still_wanted().await || !self.lease(LEASE_MS).await.unwrap_or(false) {
            return;
        }
        let (token, lossy) = {
            let mut state = self.rebuild.lock();
            // What is lost from here on is missing after this rebuild.
            let lossy = std::mem::replace(&mut state.lossy, false);
            state.tokens += 1;
            (state.tokens, lossy)
        };
        // The mark of a partition that is out is looked at when it is back.
        let marked = self.each(self.each_mark(&scripts::REBUILD_BEGIN, token)).await;
        let whole =
            marked.as_ref().map(|marks| marks.iter().flatten().all(|mark| reply::integer(mark).is_ok_and(|n| n == 1)));
        match whole {
            // Another node was done between the look and the lease.
            Ok(true) if !lossy => self.give_up().await,
            Ok(_) => self.rebuild.lock().token = Some(token),
            Err(_) => {
                let mut state = self.rebuild.lock();
                (state.missing, state.lossy) = (true, state.lossy || lossy);
            }
        }
    }

    /// Whether there still is something to rebuild: another node may have done it.
    async fn still_wanted(&self) -> bool {
        let lossy = {
            let mut state = self.rebuild.lock();
            state.missing = false;
            state.lossy
        };
        match self.peek(Millis(i64::MIN), 0, 0).await {
            Ok(_) => lossy || self.rebuild.lock().missing,
            Err(_) => {
                self.rebuild.lock().missing = true;
                false
            }
        }
    }

    /// Every deadline of the ledger was scheduled since `token` was given.
    pub(super) async fn end_rebuild(&self, token: u64) -> Result<()> {
        self.settled().await?;
        let _turn = self.rebuild.turn.lock().await;
        if self.rebuild.token() != Some(token) {
            return Ok(());
        }
        let mut whole = !self.rebuild.lock().lossy;
        if whole {
            for answer in self.each(self.each_mark(&scripts::REBUILD_END, token)).await?.into_iter().flatten() {
                whole &= reply::integer(&answer)? == 1;
            }
        }
        {
            let mut state = self.rebuild.lock();
            (state.token, state.missing) = (None, !whole);
        }
        if whole {
            self.give_up().await;
        } else {
            // Something was lost meanwhile: once more, with another token.
            self.begin_rebuild().await;
        }
        Ok(())
    }

    /// Another node may rebuild.
    async fn give_up(&self) {
        // A lease that cannot be given up ends by itself.
        let _ = self.lease(b"0").await;
    }

    async fn lease(&self, for_ms: &[u8]) -> Result<bool> {
        let arguments = vec![self.node.to_vec(), for_ms.to_vec()];
        let answer = self.connector.one(Call::script(&scripts::LEASE, vec![self.keys.rebuild()], arguments)).await?;
        Ok(reply::integer(&answer)? == 1)
    }

    fn each_mark(&self, script: &'static scripts::Script, token: u64) -> Vec<(usize, Call)> {
        // Tokens of two nodes must not be taken for one another.
        let token = format!("{:016x}:{token}", u64::from_be_bytes(self.node)).into_bytes();
        let mark = |at: usize| self.keys.partition(at)[2].clone();
        (0..self.partitions).map(|at| (at, Call::script(script, vec![mark(at)], vec![token.clone()]))).collect()
    }
}
