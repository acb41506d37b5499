//! Which loads a task is part of: a loader that asks its own cache for the key it loads would wait for itself.

use std::sync::Arc;

use bytes::Bytes;

tokio::task_local! {
    static CHAIN: Chain;
}

/// The loads around the present one, innermost first.
pub(super) type Chain = Option<Arc<Link>>;

#[derive(Debug)]
pub(super) struct Link {
    /// Which cache: the address of its insides.
    space: usize,
    /// One, or those of a batch.
    keys: Vec<Bytes>,
    around: Chain,
}

/// The chain of the task that asks.
pub(super) fn current() -> Chain {
    CHAIN.try_with(Clone::clone).ok().flatten()
}

/// Whether the task that asks loads this key.
pub(super) fn contains(space: usize, key: &[u8]) -> bool {
    let mut at = current();
    while let Some(link) = at {
        if link.space == space && link.keys.iter().any(|of| of == key) {
            return true;
        }
        at = link.around.clone();
    }
    false
}

/// Runs a load of `keys` as part of `around`.
pub(super) async fn within<F: Future>(space: usize, keys: Vec<Bytes>, around: Chain, load: F) -> F::Output {
    let link = Link { space, keys, around };
    CHAIN.scope(Some(Arc::new(link)), load).await
}
