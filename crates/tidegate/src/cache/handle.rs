//! The handle that callers hold.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tidegate_backend::BoxFuture;
use tidegate_backend::cache::MAX_CACHE_BATCH;
use tidegate_core::cache::{Key, KeyWriter, RowVersion};

use super::errors::CacheError;
use super::hub::Owner;
use super::metrics::CacheStats;
use super::read::{How, Read};
use super::space::Inner;

/// A cache of `V` by `K`. Cheap to clone.
///
/// Reads are *bounded* unless said otherwise: never a value for longer than a second after its invalidation was
/// acknowledged, however many messages are lost. Answers marked [`Read::stale`] are past their freshness; with `stale_for`
/// they may also be served when the store is away, or loads fail.
pub struct Cache<K, V> {
    pub(super) inner: Arc<Inner<K, V>>,
    pub(super) owner: Arc<Owner>,
}

impl<K, V> Clone for Cache<K, V> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), owner: Arc::clone(&self.owner) }
    }
}

impl<K, V> fmt::Debug for Cache<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("namespace", &self.inner.namespace).field("stats", &self.stats()).finish()
    }
}

impl<K, V> Cache<K, V> {
    /// Its name.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.inner.namespace
    }

    /// What it has done so far, in this process.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        self.inner.stats()
    }
}

impl<K, V> Cache<K, V>
where
    K: Key + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// The value of `key`, loaded if neither level has it: a bounded read without a deadline.
    ///
    /// # Errors
    /// [`CacheError`]; never because of the store.
    pub fn get<'a>(&'a self, key: &'a K) -> Get<'a, K, V> {
        Get { cache: self, key, further: None }
    }

    /// The same with options: [`ReadRequest::strong`], [`ReadRequest::deadline`].
    pub fn read<'a>(&'a self, key: &'a K) -> ReadRequest<'a, K, V> {
        ReadRequest { cache: self, key, how: How::BOUNDED, deadline: None }
    }

    /// Many keys, in chunks of 1,000: one question to the store each, and one load if the loader [batches](super::Loader::BATCHES).
    /// Answers in order, duplicates allowed; each key has an answer or an error of its own.
    pub async fn get_many(&self, keys: &[K]) -> Vec<Result<Read<V>, CacheError>> {
        let mut answers = Vec::with_capacity(keys.len());
        for part in keys.chunks(MAX_CACHE_BATCH) {
            answers.extend(self.inner.read_many(part).await);
        }
        answers
    }

    /// Loads what the store lacks of `keys`, with room to spare only: who waits for a load goes first. How many of them
    /// are cached now.
    ///
    /// # Errors
    /// [`CacheError::Overloaded`]: there was no room for longer than the hard load timeout.
    pub async fn warm(&self, keys: &[K]) -> Result<usize, CacheError> {
        self.inner.warm(keys).await
    }

    /// What either level has; nothing is loaded. `None`: neither has anything to serve.
    ///
    /// # Errors
    /// [`CacheError::KeyTooLong`], [`CacheError::Stopping`].
    pub async fn get_if_cached(&self, key: &K) -> Result<Option<Read<V>>, CacheError> {
        let written = key.encode()?;
        if let Some(read) = self.inner.sampled(key, &written).try_local(key, &written) {
            return Ok(Some(read));
        }
        let (bytes, how) = (Bytes::copy_from_slice(written.as_bytes()), How { load: false, ..How::BOUNDED });
        match Arc::clone(&self.inner).read_on(key.clone(), bytes, how, None).await {
            Err(CacheError::Stopping) => Err(CacheError::Stopping),
            Err(_) => Ok(None),
            answer => answer,
        }
    }

    /// Loads `key` now, whatever is cached, and gives what a load gave that began after this call. A value stays to be
    /// served meanwhile; a load that runs elsewhere is not filled in.
    ///
    /// # Errors
    /// [`CacheError`].
    pub async fn force(&self, key: &K) -> Result<Read<V>, CacheError> {
        let how = How { strong: true, load: true, forced: true };
        self.further(key, how, None).await
    }

    /// Stores a value that the caller has just committed with this version, unless a newer one is known.
    ///
    /// # Errors
    /// [`CacheError::Behind`]: a newer version is known; [`CacheError::Store`]: not acknowledged.
    pub async fn put(&self, key: &K, value: V, version: RowVersion) -> Result<(), CacheError> {
        self.inner.put(key, &encoded(key)?, value, version).await
    }

    /// The row of `key` has changed: call it after the commit. Once it has returned, no strong read of any process gives
    /// what was loaded before, and after a second no bounded one.
    ///
    /// # Errors
    /// [`CacheError::Store`]: not acknowledged; repeat it.
    pub async fn invalidate(&self, key: &K) -> Result<(), CacheError> {
        self.inner.invalidate_keys(&[encoded(key)?], None).await
    }

    /// The same, and nothing older than `version` is stored for as long as floors are kept: covers replicas that lag, if
    /// loads give versions.
    ///
    /// # Errors
    /// As [`Cache::invalidate`].
    pub async fn invalidate_version(&self, key: &K, version: RowVersion) -> Result<(), CacheError> {
        self.inner.invalidate_keys(&[encoded(key)?], Some(version)).await
    }

    /// Many, in round trips of up to 1,000. All are tried.
    ///
    /// # Errors
    /// As [`Cache::invalidate`]: at least one was not acknowledged.
    pub async fn invalidate_many(&self, keys: &[K]) -> Result<(), CacheError> {
        let keys: Result<Vec<Bytes>, CacheError> = keys.iter().map(encoded).collect();
        self.inner.invalidate_keys(&keys?, None).await
    }

    /// Every entry that carries `tag` is old.
    ///
    /// # Errors
    /// As [`Cache::invalidate`].
    pub async fn invalidate_tag(&self, tag: &str) -> Result<(), CacheError> {
        self.inner.invalidate_tag(tag).await
    }

    /// Deletes everything that is there now, in both levels; how many entries the store had. Linear in the size of the
    /// store.
    ///
    /// # Errors
    /// As [`Cache::invalidate`].
    pub async fn clear(&self) -> Result<u64, CacheError> {
        self.inner.clear().await
    }

    fn further(
        &self,
        key: &K,
        how: How,
        deadline: Option<Duration>,
    ) -> BoxFuture<'static, Result<Read<V>, CacheError>> {
        let bytes = match encoded(key) {
            Ok(bytes) => bytes,
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        };
        let reading = Arc::clone(&self.inner).read_on(key.clone(), bytes, how, deadline);
        Box::pin(async move {
            // Only a read that must not load has nothing to say.
            reading.await?.ok_or(CacheError::Timeout)
        })
    }
}

pub(super) fn encoded<K: Key>(key: &K) -> Result<Bytes, CacheError> {
    Ok(Bytes::copy_from_slice(key.encode()?.as_bytes()))
}

/// A plain read. Ready at its first poll if the in-process level has the answer.
#[must_use = "futures do nothing unless awaited"]
pub struct Get<'a, K, V> {
    cache: &'a Cache<K, V>,
    key: &'a K,
    further: Option<BoxFuture<'static, Result<Read<V>, CacheError>>>,
}

impl<K, V> Future for Get<'_, K, V>
where
    K: Key + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    type Output = Result<Read<V>, CacheError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(further) = &mut self.further {
            return further.as_mut().poll(cx);
        }
        let mut written = KeyWriter::new();
        self.key.encode_to(&mut written)?;
        self.cache.inner.sampled(self.key, &written);
        if let Some(read) = self.cache.inner.plain_hit(&written) {
            return Poll::Ready(Ok(read));
        }
        self.poll_further(&written, cx)
    }
}

impl<K, V> Get<'_, K, V>
where
    K: Key + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    #[cold]
    fn poll_further(&mut self, written: &KeyWriter, cx: &mut Context<'_>) -> Poll<Result<Read<V>, CacheError>> {
        if let Some(read) = self.cache.inner.further_hit(self.key, written.as_bytes()) {
            return Poll::Ready(Ok(read));
        }
        let further = self.cache.further(self.key, How::BOUNDED, None);
        self.further.insert(further).as_mut().poll(cx)
    }
}

impl<K, V> fmt::Debug for Get<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Get").field("cache", self.cache).finish_non_exhaustive()
    }
}

/// A read with options; await it.
#[must_use = "a read does nothing unless awaited"]
pub struct ReadRequest<'a, K, V> {
    cache: &'a Cache<K, V>,
    key: &'a K,
    how: How,
    deadline: Option<Duration>,
}

impl<K, V> ReadRequest<'_, K, V> {
    /// Nothing whose invalidation was acknowledged before this read began: the store is asked, or the database.
    pub fn strong(mut self) -> Self {
        self.how.strong = true;
        self
    }

    /// An answer within this time: then a stale value, if there is one and the read is not strong, else
    /// [`CacheError::Timeout`]. The load goes on.
    pub fn deadline(mut self, within: Duration) -> Self {
        self.deadline = Some(within);
        self
    }
}

impl<'a, K, V> IntoFuture for ReadRequest<'a, K, V>
where
    K: Key + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    type Output = Result<Read<V>, CacheError>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (inner, how) = (&self.cache.inner, self.how);
            let encoded = self.key.encode()?;
            inner.sampled(self.key, &encoded);
            if !how.strong
                && let Some(read) = inner.try_local(self.key, &encoded)
            {
                return Ok(read);
            }
            self.cache.further(self.key, how, self.deadline).await
        })
    }
}

impl<K, V> fmt::Debug for ReadRequest<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadRequest").field("how", &self.how).field("deadline", &self.deadline).finish_non_exhaustive()
    }
}
