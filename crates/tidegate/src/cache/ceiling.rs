//! What `tidegate bench cache` compares a hit in process with, and a part of one by itself.

use std::fmt;
use std::sync::Arc;

use quick_cache::sync::Cache;
use tidegate_core::cache::Key;

/// The map that the in-process level is built on, with nothing around it: keys are their encoded bytes, its hasher and its
/// weights are its own.
pub struct BareMap<V>(Cache<Box<[u8]>, Arc<V>>);

impl<V> BareMap<V> {
    /// Room for so many.
    #[must_use]
    pub fn new(entries: usize) -> Self {
        Self(Cache::new(entries))
    }

    /// Keeps a value.
    pub fn insert(&self, key: &[u8], value: Arc<V>) {
        self.0.insert(key.into(), value);
    }

    /// The map's own get.
    #[inline]
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<Arc<V>> {
        self.0.get(key)
    }
}

impl<V> fmt::Debug for BareMap<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BareMap").field("entries", &self.0.len()).finish()
    }
}

impl<K, V> super::Cache<K, V>
where
    K: Key + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Does what a read does that is counted for hot keys, beside being one; `encoded` is the key's own encoding.
    #[inline]
    pub fn count_read(&self, key: &K, encoded: &[u8]) {
        self.inner.hot.count(key, encoded, self.inner.hub.ticks.now());
    }
}
