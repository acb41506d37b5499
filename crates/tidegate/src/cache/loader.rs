//! What a cache loads with: [`Loader`], or a closure.

use std::error::Error as StdError;
use std::future::Future;
use std::sync::Arc;

use tidegate_backend::BoxFuture;
use tidegate_core::cache::RowVersion;

use super::errors::CacheError;

/// What a load should know.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadContext {
    /// A version of the row that is known to be committed: a source that has only older ones lags.
    pub floor: Option<RowVersion>,
    /// How often this load has been tried before because what it gave was older than the floor: time to ask the primary.
    pub retries: u32,
}

/// What a load gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded<V> {
    pub(super) value: Option<V>,
    pub(super) version: Option<RowVersion>,
    pub(super) cacheable: bool,
}

impl<V> Loaded<V> {
    /// A value.
    #[must_use]
    pub const fn value(value: V) -> Self {
        Self { value: Some(value), version: None, cacheable: true }
    }

    /// There is none. Stored for `absent_for`, if the cache has it.
    #[must_use]
    pub const fn absent() -> Self {
        Self { value: None, version: None, cacheable: true }
    }

    /// A value for those who wait for it, not to be stored anywhere.
    #[must_use]
    pub const fn uncacheable(value: V) -> Self {
        Self { value: Some(value), version: None, cacheable: false }
    }

    /// Not to be stored anywhere: only for those who wait for it.
    #[must_use]
    pub const fn uncached(mut self) -> Self {
        self.cacheable = false;
        self
    }

    /// With the version of its row: what is older than a version known to be committed is not stored.
    #[must_use]
    pub fn version(mut self, version: impl Into<Option<RowVersion>>) -> Self {
        self.version = version.into();
        self
    }
}

impl<V> From<Option<V>> for Loaded<V> {
    fn from(value: Option<V>) -> Self {
        Self { value, version: None, cacheable: true }
    }
}

/// Loads what a cache lacks, from the database say. Closures `Fn(K, LoadContext) -> impl Future` are loaders, too.
///
/// A load runs in a task of the cache's own: no caller can cancel it. It may ask caches, also its own for other keys.
pub trait Loader<K, V>: Send + Sync + 'static {
    /// Its error; every caller that waits gets this very one.
    type Error: StdError + Send + Sync + 'static;

    /// Whether [`Loader::load_many`] is one question to the source; it then counts as one load. Otherwise the keys of a
    /// `get_many` are loaded one by one, concurrently within the budget.
    const BATCHES: bool = false;

    /// Loads one key.
    fn load(&self, key: &K, context: LoadContext) -> impl Future<Output = Result<Loaded<V>, Self::Error>> + Send;

    /// Loads up to 1,000 keys; the answers in order, one each. Called only if [`Loader::BATCHES`].
    fn load_many(
        &self,
        keys: &[K],
        context: LoadContext,
    ) -> impl Future<Output = Result<Vec<Loaded<V>>, Self::Error>> + Send
    where
        K: Sync,
        V: Send,
    {
        async move {
            let mut all = Vec::with_capacity(keys.len());
            for key in keys {
                all.push(self.load(key, context).await?);
            }
            Ok(all)
        }
    }
}

impl<K, V, E, F, Answer> Loader<K, V> for F
where
    K: Clone,
    E: StdError + Send + Sync + 'static,
    F: Fn(K, LoadContext) -> Answer + Send + Sync + 'static,
    Answer: Future<Output = Result<Loaded<V>, E>> + Send,
{
    type Error = E;

    fn load(&self, key: &K, context: LoadContext) -> impl Future<Output = Result<Loaded<V>, E>> + Send {
        self(key.clone(), context)
    }
}

/// A loader without its type.
pub(super) trait AnyLoader<K, V>: Send + Sync {
    fn batches(&self) -> bool;
    fn load<'a>(&'a self, key: &'a K, context: LoadContext) -> BoxFuture<'a, Result<Loaded<V>, CacheError>>;
    fn load_many<'a>(
        &'a self,
        keys: &'a [K],
        context: LoadContext,
    ) -> BoxFuture<'a, Result<Vec<Loaded<V>>, CacheError>>;
}

pub(super) struct Erased<L>(L);

pub(super) fn erase<K: Sync, V: Send, L: Loader<K, V>>(loader: L) -> Arc<dyn AnyLoader<K, V>> {
    Arc::new(Erased(loader))
}

impl<K: Sync, V: Send, L: Loader<K, V>> AnyLoader<K, V> for Erased<L> {
    fn batches(&self) -> bool {
        L::BATCHES
    }

    fn load<'a>(&'a self, key: &'a K, context: LoadContext) -> BoxFuture<'a, Result<Loaded<V>, CacheError>> {
        // Inside, so that what a loader does before its first await runs where a panic is caught.
        Box::pin(async move { self.0.load(key, context).await.map_err(CacheError::load) })
    }

    fn load_many<'a>(
        &'a self,
        keys: &'a [K],
        context: LoadContext,
    ) -> BoxFuture<'a, Result<Vec<Loaded<V>>, CacheError>> {
        Box::pin(async move { self.0.load_many(keys, context).await.map_err(CacheError::load) })
    }
}
