//! Writes: invalidate, put, clear, and the tags. The database first, its commit, then these.
//!
//! The store first. Once it has acknowledged, no reader of any process can take the old value from it, and no load that
//! began before can fill. Then the own copies go, then the others are told; only then the caller is answered. If the store
//! does not acknowledge, nothing is told, since others would drop their copies only to read the same old value again, and
//! the caller gets [`CacheError::Store`] and must repeat it. The own copy stays as a fallback, but is not served as fresh
//! any more: the next read asks the store. If telling fails, the caller gets the same error, for other processes may still
//! hold copies and their bus looks healthy to them: an acknowledged write has been told.
//!
//! What is written exists: its id enters the membership filter, if there is one, beside the write in the store and before
//! the caller is answered.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join;
use tidegate_backend::cache::MAX_CACHE_BATCH;
use tidegate_backend::{CacheKey, CacheNotice};
use tidegate_core::cache::{Op, Reply, RowVersion, TagStamp};
use tracing::Instrument;
use tracing::field::{Empty, display};

use super::errors::CacheError;
use super::loader::Loaded;
use super::local::Kept;
use super::space::Inner;
use super::trace::KeyHash;

impl<K, V> Inner<K, V>
where
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Invalidates keys; all are tried, the first failure is told.
    pub(super) async fn invalidate_keys(&self, keys: &[Bytes], floor: Option<RowVersion>) -> Result<(), CacheError> {
        let span = tracing::debug_span!("cache.invalidate", namespace = %self.namespace, keys = keys.len(), key = Empty,
            outcome = Empty);
        if let [key] = keys {
            span.record("key", display(KeyHash(key)));
        }
        let done = self.invalidate_within(keys, floor).instrument(span.clone()).await;
        span.record("outcome", if done.is_ok() { "acknowledged" } else { "error" });
        done
    }

    async fn invalidate_within(&self, keys: &[Bytes], floor: Option<RowVersion>) -> Result<(), CacheError> {
        let op = Op::Invalidate { floor, keep_floor_ms: self.knobs.keep_floor_ms };
        let mut failed = None;
        for part in keys.chunks(MAX_CACHE_BATCH) {
            let operations: Vec<(CacheKey, Op)> = part.iter().map(|key| (self.cache_key(key), op.clone())).collect();
            let (answers, added) = join(self.hub.store.write(&operations), self.add_members(part)).await;
            if let Err(error) = added {
                failed.get_or_insert(error);
            }
            let mut told = Vec::with_capacity(part.len());
            for (key, answer) in part.iter().zip(answers) {
                match answer {
                    Ok(_) => {
                        self.forget(key);
                        told.push(self.invalidated(key));
                    }
                    Err(error) => {
                        self.doubt(key);
                        failed.get_or_insert(error);
                    }
                }
            }
            if let Err(error) = self.tell(&told).await {
                failed.get_or_insert(error);
            }
        }
        failed.map_or(Ok(()), |error| Err(CacheError::store(error)))
    }

    async fn add_members(&self, keys: &[Bytes]) -> tidegate_backend::Result<()> {
        match &self.register {
            Some(register) => register.add(keys).await,
            None => Ok(()),
        }
    }

    fn invalidated(&self, key: &Bytes) -> CacheNotice {
        CacheNotice::Invalidated { namespace: Arc::clone(&self.namespace), key: key.clone() }
    }

    async fn tell(&self, notices: &[CacheNotice]) -> tidegate_backend::Result<()> {
        if notices.is_empty() {
            return Ok(());
        }
        self.hub.store.acknowledged(self.hub.store.store.tell(notices).await)
    }

    fn forget(&self, key: &[u8]) {
        if let Some(local) = &self.local {
            local.forget(key);
        }
        self.flights.detach(key);
    }

    fn doubt(&self, key: &[u8]) {
        if let Some(local) = &self.local {
            local.doubt(key, self.hub.ticks.now());
        }
        self.flights.detach(key);
    }

    /// Stores a value with its version, unless a newer one is known.
    pub(super) async fn put(&self, key: &K, bytes: &Bytes, value: V, version: RowVersion) -> Result<(), CacheError> {
        let hashes = self.tag_hashes(key)?;
        self.add_members(std::slice::from_ref(bytes)).await.map_err(CacheError::store)?;
        let Ok(stamps) = self.stamps(&hashes).await else {
            // Whether its tags are current cannot be known: then it is an invalidation.
            return self.invalidate_keys(std::slice::from_ref(bytes), Some(version)).await;
        };
        let born = self.hub.store.store.now();
        let made = self.make(bytes, Loaded::value(value).version(version), Self::id(), born, 0, stamps.clone());
        let Some(entry) = made.bytes else {
            return self.invalidate_keys(std::slice::from_ref(bytes), Some(version)).await;
        };
        let op = Op::Put {
            bytes: entry,
            ttl_ms: made.header.stamp.hard.since(born).max(1),
            keep_floor_ms: self.knobs.keep_floor_ms,
        };
        let (at, generation) = (self.hub.ticks.now(), self.generation(bytes));
        match self.hub.store.write(&[(self.cache_key(bytes), op)]).await.pop() {
            Some(Ok(Reply::Held)) => {
                let kept = self.kept(&made.header, made.value, made.weight, at, self.hub.store.store.now(), false);
                let tags = if stamps.is_empty() { Some(None) } else { self.cells.tie(&stamps).map(Some) };
                match (&self.local, tags) {
                    (Some(local), Some(tags)) => local.replace(bytes, Kept { tags, ..kept }, generation),
                    (Some(local), None) => local.forget(bytes),
                    (None, _) => {}
                }
                self.flights.detach(bytes);
                self.tell(&[self.invalidated(bytes)]).await.map_err(CacheError::store)
            }
            Some(Ok(Reply::Below(floor))) => Err(CacheError::Behind { floor, version }),
            Some(Err(error)) => {
                self.doubt(bytes);
                Err(CacheError::store(error))
            }
            _ => Err(CacheError::store(tidegate_backend::Error::new(
                tidegate_backend::ErrorKind::Corrupt,
                "the store answered a put with something else",
            ))),
        }
    }

    /// Makes old every entry that carries `tag`.
    pub(super) async fn invalidate_tag(&self, tag: &str) -> Result<(), CacheError> {
        let (tag, keep) = (TagStamp::hash(tag), self.keep_tags());
        let store = &self.hub.store;
        let counter = store.acknowledged(store.store.bump_tag(&self.namespace, tag, keep).await);
        let counter = counter.map_err(CacheError::store)?;
        self.cells.moved(tag, counter);
        let notice = CacheNotice::Tag { namespace: Arc::clone(&self.namespace), tag, counter };
        self.tell(&[notice]).await.map_err(CacheError::store)
    }

    /// Deletes everything that is there now; how many entries the store had.
    pub(super) async fn clear(&self) -> Result<u64, CacheError> {
        let span = tracing::debug_span!("cache.clear", namespace = %self.namespace, entries = Empty, outcome = Empty);
        let done = self.clear_within().instrument(span.clone()).await;
        span.record("outcome", if done.is_ok() { "acknowledged" } else { "error" });
        if let Ok(entries) = &done {
            span.record("entries", entries);
        }
        done
    }

    async fn clear_within(&self) -> Result<u64, CacheError> {
        let store = &self.hub.store;
        let entries = store.acknowledged(store.store.clear(&self.namespace).await).map_err(CacheError::store)?;
        if let Some(local) = &self.local {
            local.forget_all();
        }
        self.flights.detach_all();
        self.tell(&[CacheNotice::Cleared { namespace: Arc::clone(&self.namespace) }])
            .await
            .map_err(CacheError::store)?;
        Ok(entries)
    }
}
