//! The contract of stores of membership filters, in memory.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use tidegate_backend::{BoxFuture, CacheStore};
use tidegate_conformance::membership::Harness;
use tidegate_embedded::{EmbeddedCache, EmbeddedCacheOptions};

struct Memory(Arc<EmbeddedCache>);

impl Harness for Memory {
    fn store(&self) -> Arc<dyn CacheStore> {
        self.0.clone()
    }

    fn evict<'a>(&'a self, namespace: &'a str, generation: u64, bucket: u32) -> BoxFuture<'a, ()> {
        self.0.members().evict(namespace, generation, bucket);
        Box::pin(std::future::ready(()))
    }
}

async fn open() -> Memory {
    Memory(Arc::new(EmbeddedCache::open(EmbeddedCacheOptions::default()).unwrap()))
}

tidegate_conformance::membership_conformance!(open);
