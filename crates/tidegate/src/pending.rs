//! Work that outlives its caller, counted so that whoever closes can wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// How much of such work there is. Beginning and ending a piece are an atomic operation each while nobody waits for the end.
#[derive(Debug, Default)]
pub(crate) struct Pending(Arc<Count>);

#[derive(Debug, Default)]
struct Count {
    pieces: AtomicUsize,
    none: Notify,
}

/// A piece of it, until it is dropped.
#[derive(Debug)]
pub(crate) struct Piece(Arc<Count>);

impl Pending {
    /// One more piece.
    pub(crate) fn begin(&self) -> Piece {
        self.0.pieces.fetch_add(1, Ordering::AcqRel);
        Piece(self.0.clone())
    }

    /// Resolves when there is none.
    pub(crate) async fn none(&self) {
        loop {
            // It hears what is told from here on, before it is asked for the first time.
            let told = self.0.none.notified();
            if self.0.pieces.load(Ordering::Acquire) == 0 {
                return;
            }
            told.await;
        }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if self.0.pieces.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.none.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn whoever_waits_is_told_of_the_last_piece_and_of_no_other() {
        let pending = Arc::new(Pending::default());
        pending.none().await;
        for _ in 0..2_000 {
            let pieces = [pending.begin(), pending.begin()];
            let waits = tokio::spawn({
                let pending = pending.clone();
                async move { pending.none().await }
            });
            for piece in pieces {
                assert!(!waits.is_finished());
                tokio::task::yield_now().await;
                drop(piece);
            }
            tokio::time::timeout(Duration::from_secs(10), waits).await.expect("it is told").expect("it ends");
        }
    }
}
