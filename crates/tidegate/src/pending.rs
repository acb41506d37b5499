//! Work that outlives its caller, counted so that whoever closes can wait for it.

use tokio::sync::watch;

/// How much of such work there is.
#[derive(Debug)]
pub(crate) struct Pending(watch::Sender<usize>);

impl Default for Pending {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

/// A piece of it, until it is dropped.
#[derive(Debug)]
pub(crate) struct Piece(watch::Sender<usize>);

impl Pending {
    /// One more piece.
    pub(crate) fn begin(&self) -> Piece {
        self.0.send_modify(|count| *count += 1);
        Piece(self.0.clone())
    }

    /// Resolves when there is none.
    pub(crate) async fn none(&self) {
        // The sender is a part of this.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
