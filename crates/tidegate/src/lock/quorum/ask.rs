//! One question to all servers at once.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_backend::lock::LockNode;
use tidegate_backend::{Error, ErrorKind, Result};
use tidegate_core::lock::LockToken;
use tokio::sync::mpsc;

use super::Nodes;
use crate::pending::{Pending, Piece};

/// Votes that are on their way, by token: whoever gives a lock back waits for them, so that none arrives after it.
#[derive(Default)]
pub(super) struct Underway(Mutex<HashMap<LockToken, (usize, Arc<Pending>)>>);

/// A vote that is on its way, until this is dropped.
pub(super) struct OneUnderway {
    underway: Arc<Underway>,
    token: LockToken,
    _piece: Piece,
}

impl Underway {
    fn lock(&self) -> MutexGuard<'_, HashMap<LockToken, (usize, Arc<Pending>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin(self: &Arc<Self>, token: &LockToken) -> OneUnderway {
        let mut votes = self.lock();
        let (count, pending) = votes.entry(token.clone()).or_default();
        *count += 1;
        OneUnderway { underway: self.clone(), token: token.clone(), _piece: pending.begin() }
    }

    /// Resolves when none of `token` is on its way.
    pub(super) async fn none(&self, token: &LockToken) {
        let pending = self.lock().get(token).map(|(_, pending)| pending.clone());
        if let Some(pending) = pending {
            pending.none().await;
        }
    }
}

impl Drop for OneUnderway {
    fn drop(&mut self) {
        let mut votes = self.underway.lock();
        if let Some((count, _)) = votes.get_mut(&self.token) {
            *count -= 1;
            if *count == 0 {
                votes.remove(&self.token);
            }
        }
    }
}

/// Answers as they come, with the place of the server.
pub(super) type Answers<T> = mpsc::Receiver<(usize, Result<T>)>;

impl Nodes {
    /// Asks every server. Each answers, or is given up, within the bound, whether or not anybody still listens.
    pub(super) fn ask<T, F>(&self, question: impl Fn(Arc<dyn LockNode>) -> F) -> Answers<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        self.ask_some(0..self.all.len(), |_, node| question(node))
    }

    /// The same of some.
    pub(super) fn ask_some<T, F>(
        &self,
        which: impl IntoIterator<Item = usize>,
        question: impl Fn(usize, Arc<dyn LockNode>) -> F,
    ) -> Answers<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let (answers, receiver) = mpsc::channel(self.all.len());
        for at in which {
            let (asked, within, answers) = (question(at, self.all[at].clone()), self.within, answers.clone());
            tokio::spawn(async move {
                let silent = || Error::new(ErrorKind::Unavailable, format!("no answer within {within:?}"));
                let answer = tokio::time::timeout(within, asked).await.unwrap_or_else(|_| Err(silent()));
                // Nobody may listen any more: a majority has answered.
                let _ = answers.send((at, answer)).await;
            });
        }
        receiver
    }

    /// Too few servers answer, or may vote.
    pub(super) fn too_few(&self, there: usize, why: &[String]) -> Error {
        let (of, majority) = (self.all.len(), self.majority);
        let why = if why.is_empty() { String::new() } else { format!(" ({})", why.join("; ")) };
        let text = format!("{there} of {of} servers of the quorum answer and count, {majority} are needed{why}");
        Error::new(ErrorKind::Unavailable, text)
    }

    pub(super) fn complaint(&self, at: usize, why: impl std::fmt::Display) -> String {
        format!("{}: {why}", self.all[at].name())
    }
}
