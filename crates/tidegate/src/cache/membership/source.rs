//! Where the ids of all rows come from, page by page.

use std::error::Error as StdError;
use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use tidegate_backend::BoxFuture;
use tidegate_core::cache::Key;

/// Most ids of one page.
pub const MAX_IDS_A_PAGE: usize = 10_000;

/// The ids of all rows, in an order of their own. Closures `Fn(Option<K>) -> impl Future` are sources, too.
///
/// A row that was committed before a reading begins, and is there to its end, must be on one of its pages: read by the
/// primary key (`WHERE id > ? ORDER BY id LIMIT ?`), from the primary database, not from a replica that lags.
pub trait IdSource<K>: Send + Sync + 'static {
    /// Its error.
    type Error: StdError + Send + Sync + 'static;

    /// Up to 10,000 ids that follow `after`, or the first. None: there are no more.
    fn page(&self, after: Option<K>) -> impl Future<Output = Result<Vec<K>, Self::Error>> + Send;
}

impl<K, E, F, Answer> IdSource<K> for F
where
    E: StdError + Send + Sync + 'static,
    F: Fn(Option<K>) -> Answer + Send + Sync + 'static,
    Answer: Future<Output = Result<Vec<K>, E>> + Send,
{
    type Error = E;

    fn page(&self, after: Option<K>) -> impl Future<Output = Result<Vec<K>, E>> + Send {
        self(after)
    }
}

/// A source without its types.
pub(super) trait AnySource: Send + Sync {
    /// A reading from the beginning.
    fn read(&self) -> Box<dyn Reading>;
}

/// One reading of a source.
pub(super) trait Reading: Send + Sync {
    /// The next page as encoded keys; empty: the end. After an error the same page again.
    fn next(&mut self) -> BoxFuture<'_, Result<Vec<Bytes>, Arc<dyn StdError + Send + Sync>>>;
}

struct Erased<S, K> {
    source: Arc<S>,
    types: std::marker::PhantomData<fn(K)>,
}

struct Position<S, K> {
    source: Arc<S>,
    after: Option<K>,
}

pub(super) fn erase<K, S>(source: S) -> Arc<dyn AnySource>
where
    K: Key + Clone + Send + Sync + 'static,
    S: IdSource<K>,
{
    Arc::new(Erased { source: Arc::new(source), types: std::marker::PhantomData })
}

impl<K, S> AnySource for Erased<S, K>
where
    K: Key + Clone + Send + Sync + 'static,
    S: IdSource<K>,
{
    fn read(&self) -> Box<dyn Reading> {
        Box::new(Position { source: Arc::clone(&self.source), after: None })
    }
}

impl<K, S> Reading for Position<S, K>
where
    K: Key + Clone + Send + Sync + 'static,
    S: IdSource<K>,
{
    fn next(&mut self) -> BoxFuture<'_, Result<Vec<Bytes>, Arc<dyn StdError + Send + Sync>>> {
        Box::pin(async move {
            let failed = |error: S::Error| -> Arc<dyn StdError + Send + Sync> { Arc::new(error) };
            let page = self.source.page(self.after.clone()).await.map_err(failed)?;
            let mut ids = Vec::with_capacity(page.len());
            for key in &page {
                // A key that is too long is never asked for.
                if let Ok(written) = key.encode() {
                    ids.push(Bytes::copy_from_slice(written.as_bytes()));
                }
            }
            if ids.is_empty() && !page.is_empty() {
                // Not the end: an id that nothing has.
                ids.push(Bytes::new());
            }
            self.after = page.into_iter().next_back().or(self.after.take());
            Ok(ids)
        })
    }
}
