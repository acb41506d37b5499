//! What is looked at every two seconds: whether the server may delete floors, and whether what it has is as new as what was
//! told.
//!
//! Each partition has a *mark*: the server that has had it for all the time, and when somebody last said so. It lies with the
//! copies, so a server that was started with older data, or has replaced another whose last writes it lacks, has the mark of
//! another. Then nothing is read from it until what it lacks is made up for: by the floors of the last minute, which whoever
//! keeps the outbox repeats, if its mark is young enough; else by deleting every copy of the partition.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tidegate_backend::clock::host_now;
use tidegate_backend::{Error, ErrorKind, Result};

use super::{Inner, locked};
use crate::connect::Call;
use crate::{reply, scripts};

/// How often it is looked.
const ROUND: Duration = Duration::from_secs(2);
/// How long a mark is kept, milliseconds: longer than every copy.
pub(super) const MARK_KEPT_MS: &str = "864000000";
/// Floors are remembered for a minute. What was lost after a mark of this age, milliseconds, is among them, also if hosts
/// differ by some seconds.
const YOUNG_MS: &str = "45000";

/// When the last floors are repeated to another server than before. Not only at once: what was on its way to the server before is known to
/// have been told only when that has answered, and only then it is among the floors that are repeated.
const AGAIN: [Duration; 3] = [Duration::ZERO, ROUND, Duration::from_secs(5)];

/// Repeats that are kept in mind, however often servers replace each other.
const AGAIN_AT_MOST: usize = 12;

/// This host's clock, milliseconds.
pub(super) fn now() -> Vec<u8> {
    host_now().0.to_string().into_bytes()
}

/// What reads are told until a server is known to be as new as what was told.
pub(super) fn strange() -> Error {
    let why = "the feed's Redis was started again or has replaced another: its copies are made good first";
    Error::new(ErrorKind::Unavailable, why)
}

/// Looks until it is aborted.
pub(super) async fn run(inner: Arc<Inner>) {
    let mut told = false;
    let mut known = vec![Vec::new(); inner.parts];
    let mut again: Vec<Instant> = Vec::new();
    loop {
        let refused = inner.refuse_eviction();
        match &refused {
            Err(e) if !told => tracing::warn!(why = %e, "the feed's copies are not used"),
            Ok(()) if told => tracing::info!("the server evicts nothing any more: the feed's copies are used"),
            _ => {}
        }
        told = refused.is_err();
        let servers = inner.servers.load(Ordering::Acquire);
        if let Err(error) = inner.look_at_servers(&mut known).await {
            tracing::debug!(%error, "the feed's copies could not be looked over");
        }
        if inner.servers.load(Ordering::Acquire) != servers {
            again.extend(AGAIN.map(|after| Instant::now() + after));
            again.truncate(AGAIN_AT_MOST);
        }
        let before = again.len();
        again.retain(|at| *at > Instant::now());
        if again.len() < before {
            inner.due.fetch_add(1, Ordering::AcqRel);
        }
        tokio::select! {
            () = tokio::time::sleep(ROUND) => {}
            // Once a round trip at the most: whoever reads asks again when this has been answered.
            () = inner.strange.notified() => tokio::time::sleep(ROUND / 20).await,
        }
        // One that cannot be asked answers nothing else.
        let _ = inner.connector.look_at_policy().await;
    }
}

impl Inner {
    /// A floor that was deleted before its time would let an old copy in.
    pub(super) fn refuse_eviction(&self) -> Result<()> {
        if self.connector.evicts_expiring() {
            let why = "the server's maxmemory-policy would delete what a feed must remember: the feed needs `maxmemory-policy \
                       noeviction` (on the server: CONFIG SET maxmemory-policy noeviction, and the same in its file), or a \
                       server of its own";
            return Err(Error::new(ErrorKind::Configuration, why));
        }
        Ok(())
    }

    /// `good`: the server of which the caller has made up for what it lacked.
    fn mark(&self, part: usize, good: &[u8]) -> Call {
        let arguments = vec![now(), MARK_KEPT_MS.into(), YOUNG_MS.into(), good.to_vec()];
        Call::script(&scripts::FEED_MARK, vec![self.keys.feed_mark(part)], arguments)
    }

    /// Asks each partition which server it is, and whether it has all. The client's own list of masters does not do: it may
    /// lack the newest.
    async fn look_at_servers(&self, known: &mut [Vec<u8>]) -> Result<()> {
        let answers = self.connector.run((0..self.parts).map(|part| self.mark(part, b"")).collect()).await;
        let (mut others, mut old) = (false, Vec::new());
        let mut doubted = vec![None; self.parts];
        for (part, (known, answer)) in known.iter_mut().zip(answers).enumerate() {
            let Ok(answer) = answer else { continue };
            let [server, state] = reply::parts::<2>(&answer)?;
            let server = reply::bytes(server)?;
            others |= !known.is_empty() && known[..] != *server;
            *known = server.to_vec();
            match reply::bytes(state)? {
                b"young" => doubted[part] = Some(server.to_vec()),
                b"old" => old.push((part, server.to_vec())),
                _ => {}
            }
        }
        *locked(&self.doubted) = doubted;
        if others {
            self.servers.fetch_add(1, Ordering::AcqRel);
        }
        if old.is_empty() {
            return Ok(());
        }
        let parts: Vec<usize> = old.iter().map(|(part, _)| *part).collect();
        let deleted = self.delete_parts(&parts).await?;
        tracing::warn!(
            ?parts,
            deleted,
            "the feed's Redis came back with old data: its copies are deleted and read anew"
        );
        let marks = old.iter().map(|(part, server)| self.mark(*part, server)).collect();
        self.connector.run(marks).await.into_iter().try_for_each(|answer| answer.map(drop))
    }

    /// Deletes every copy of these partitions, and their news, in one walk; how many keys. Their marks stay.
    async fn delete_parts(&self, parts: &[usize]) -> Result<usize> {
        let of: Vec<(Vec<u8>, Vec<u8>)> =
            parts.iter().map(|part| (self.keys.feed_head(*part), self.keys.feed_mark(*part))).collect();
        let mut deleted = 0;
        let mut walk = self.connector.walk(self.keys.feed_all()).await?;
        while let Some(found) = walk.next().await? {
            let mut keys: Vec<Vec<&[u8]>> = vec![Vec::new(); of.len()];
            for key in &found {
                let key = reply::bytes(key)?;
                if let Some(n) = of.iter().position(|(head, mark)| key.starts_with(head) && *key != mark[..]) {
                    keys[n].push(key);
                }
            }
            // Those of a partition lie in one slot.
            let unlinks = keys.iter().filter_map(|keys| keys.split_first());
            let unlinks: Vec<Call> = unlinks.map(|(first, rest)| Call::plain("UNLINK", first, rest)).collect();
            deleted += keys.iter().map(Vec::len).sum::<usize>();
            self.connector.run(unlinks).await.into_iter().try_for_each(|answer| answer.map(drop))?;
        }
        Ok(deleted)
    }

    /// Whether the floors of the last minute are to be repeated: to a server that has the mark of another, and also to one that has its
    /// own by now. In a failover that was asked for, the old master goes on for a moment: what this process told it then, after others
    /// had repeated theirs to the new one, is nowhere.
    pub(super) fn wants_repeat(&self) -> bool {
        let due = self.due.load(Ordering::Acquire);
        self.asked.store(due, Ordering::Release);
        due != self.repeated.load(Ordering::Acquire) || locked(&self.doubted).iter().any(Option::is_some)
    }

    /// The floors of the last minute were repeated since [`Inner::wants_repeat`] said that they should be.
    pub(super) async fn repeated(&self) -> Result<()> {
        self.repeated.fetch_max(self.asked.load(Ordering::Acquire), Ordering::AcqRel);
        let doubted = locked(&self.doubted).clone();
        let (parts, calls): (Vec<usize>, Vec<Call>) = doubted
            .iter()
            .enumerate()
            .filter_map(|(part, server)| Some((part, self.mark(part, server.as_deref()?))))
            .unzip();
        for (part, answer) in parts.into_iter().zip(self.connector.run(calls).await) {
            answer?;
            let entry = &mut locked(&self.doubted)[part];
            if *entry == doubted[part] {
                *entry = None;
            }
        }
        Ok(())
    }

    /// Changes whenever another server may answer than before.
    pub(super) fn era(&self) -> (u64, u64) {
        (self.connector.epoch(), self.servers.load(Ordering::Acquire))
    }
}
