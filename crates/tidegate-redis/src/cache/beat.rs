//! Once a second, and on every new connection: what time it is there, whether the other processes divide their notices as
//! this one does, and whether a server is one that was not known, so that what was done lately must be done again.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use tidegate_backend::{Error, ErrorKind, Result};
use tidegate_core::cache::Op;

use super::recent::Done;
use super::{Inner, ops};
use crate::connect::Call;
use crate::reply;
use crate::scripts;

const EVERY: Duration = Duration::from_secs(1);
/// After one that failed.
const AGAIN: Duration = Duration::from_millis(100);
/// How long the number of streams is known after the last process, milliseconds.
const LAYOUT_KEPT_MS: &str = "60000";
/// Most that is repeated in one go.
const BATCH: usize = 1_000;

/// Beats until it is aborted. `known` are the servers that the first beat found.
pub(super) async fn run(inner: Arc<Inner>, mut known: HashSet<Vec<u8>>) {
    let mut epochs = inner.connector.epochs();
    let mut pause = EVERY;
    loop {
        // A new connection is waited for by whoever reads.
        if inner.is_settled() || pause == AGAIN {
            let _ = tokio::time::timeout(pause, epochs.changed()).await;
        }
        pause = match inner.beat(&mut known).await {
            Ok(()) => EVERY,
            // Said already; it lasts until somebody does something about it.
            Err(e) if e.kind() == ErrorKind::Configuration => EVERY,
            Err(e) => {
                tracing::debug!(error = %e, "a cache's heartbeat was not answered");
                AGAIN
            }
        };
    }
}

impl Inner {
    /// One beat.
    ///
    /// # Errors
    /// The server did not answer; or, as [`ErrorKind::Configuration`], other processes divide the notices in another way.
    pub(super) async fn beat(&self, known: &mut HashSet<Vec<u8>>) -> Result<()> {
        // Told once the connection is in use: what is asked below is asked on this one, or on one that is newer still.
        let epoch = *self.connector.epochs().borrow();
        if !self.is_settled() {
            self.clock.forget();
        }
        let buckets = self.options.buckets.to_string().into_bytes();
        let call = Call::script(
            &scripts::CACHE_BEAT,
            vec![self.keys.cache_layout(), self.keys.cache_birth()],
            vec![buckets, LAYOUT_KEPT_MS.as_bytes().to_vec(), ops::random_id().0.to_vec()],
        );
        let asked = Instant::now();
        let answer = self.connector.one(call).await?;
        let heard = Instant::now();
        let [seconds, micros, there, born] = reply::parts::<4>(&answer)?;
        let server = reply::integer(seconds)?.saturating_mul(1_000_000).saturating_add(reply::integer(micros)?);
        self.clock.learn(asked, heard, server);

        let servers = self.connector.holders().await?;
        if !known.is_empty() && !servers.ids.is_subset(known) {
            tracing::info!("the cache is on a server that was not known; recent invalidations are repeated");
            self.repeat().await?;
        }
        if servers.all {
            known.clear();
        }
        // One that did not answer may be back later as it was.
        known.extend(servers.ids);
        self.compare_birth(reply::bytes(born)?);
        self.settled.send_if_modified(|settled| std::mem::replace(settled, epoch) != epoch);
        self.settled_epoch.store(epoch, Ordering::Release);
        self.compare_layout(reply::integer(there)?)
    }

    /// Another birth than the last: the keys are gone, by a flush, a restart, or since another server has come in its place.
    fn compare_birth(&self, born: &[u8]) {
        let mut known = self.born.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.is_empty() && **known != *born {
            tracing::info!("the server has lost the cache's keys");
            self.lost.notify_one();
        }
        if **known != *born {
            *known = born.into();
        }
    }

    fn compare_layout(&self, there: i64) -> Result<()> {
        let own = self.options.buckets;
        let wrong = i64::try_from(own) != Ok(there);
        if !wrong {
            self.divided.store(false, Ordering::Release);
            return Ok(());
        }
        let why = format!(
            "other processes divide the notices of the cache {:?} into {there} streams, this one into {own}: give all the \
             same number of buckets; to change it, stop them all for a minute, or take another name",
            self.connector.options().name
        );
        if !self.divided.swap(true, Ordering::AcqRel) {
            tracing::error!(why, "in-process copies are not used");
        }
        Err(Error::new(ErrorKind::Configuration, why))
    }

    /// Does again what was done in the last minute.
    async fn repeat(&self) -> Result<()> {
        let mut calls = Vec::new();
        for done in self.recent.all() {
            match done {
                Done::Invalidated { key, floor, keep_floor_ms } => {
                    calls.push(self.call(&key, &Op::Invalidate { floor, keep_floor_ms })?);
                }
                Done::Bumped { namespace, tag, keep } => calls.push(self.tag(&namespace, tag, keep, true)),
                Done::Cleared { namespace } => {
                    self.clear(&namespace).await?;
                }
            }
            if calls.len() >= BATCH {
                self.all_done(std::mem::take(&mut calls)).await?;
            }
        }
        self.all_done(calls).await
    }

    async fn all_done(&self, calls: Vec<Call>) -> Result<()> {
        self.connector.run(calls).await.into_iter().try_for_each(|answer| answer.map(|_| ()))
    }
}
