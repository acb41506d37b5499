//! The typed cache as the torture sees it.

use std::sync::Arc;
use std::time::Duration;

use tidegate::cache::{Cache, CacheError, Caches, LoadContext, Loaded, Loader, Read, RowVersion, Ttl};
use tidegate_backend::BoxFuture;
use tidegate_conformance::cache::torture::{Answer, Database, Kind, NAMESPACE, Process, Refused, Start};

/// One process' cache; `_caches` keeps its tasks.
struct Subject {
    cache: Cache<u32, u64>,
    _caches: Caches,
}

/// How the cache of a process is built.
#[derive(Clone, Copy, PartialEq)]
pub enum Built {
    Plainly,
    /// Its loader loads many keys at once.
    Batching,
    /// The mutant.
    JoiningOldFlights,
}

/// Starts the cache of one process.
pub fn start(built: Built) -> Start {
    Arc::new(move |store, database, schema| {
        let mut builder = Caches::builder(store);
        if built == Built::JoiningOldFlights {
            builder = builder.mutant_joins_old_flights();
        }
        let caches = builder.start().unwrap();
        let knobs = caches
            .cache::<u32, u64>(NAMESPACE)
            .schema(schema)
            .fresh_for(Ttl::seconds::<2>())
            .stale_for(Ttl::seconds::<2>())
            .absent_for(Ttl::seconds::<1>())
            .lease(Ttl::millis::<20>())
            .load_timeout(Duration::from_millis(100), Duration::from_secs(2))
            .local(1 << 20, Ttl::seconds::<30>())
            .tags(|key| if Database::kind(*key) == Kind::Tagged { vec![tag(*key)] } else { Vec::new() });
        let cache = match built {
            Built::Batching => knobs.loader(Source::<true>(database)),
            _ => knobs.loader(Source::<false>(database)),
        };
        Arc::new(Subject { cache: cache.unwrap(), _caches: caches })
    })
}

/// The database, with loads of many keys at once or without.
struct Source<const BATCHES: bool>(Arc<Database>);

impl<const BATCHES: bool> Loader<u32, u64> for Source<BATCHES> {
    type Error = Refused;
    const BATCHES: bool = BATCHES;

    async fn load(&self, key: &u32, context: LoadContext) -> Result<Loaded<u64>, Refused> {
        let found = self.0.load(*key, context.floor.map(RowVersion::get), context.retries > 0).await?;
        let loaded = if found.present { Loaded::value(found.version) } else { Loaded::absent() };
        Ok(if found.versioned { loaded.version(RowVersion::new(found.version).unwrap()) } else { loaded })
    }
}

fn tag(key: u32) -> String {
    format!("tag of {key}")
}

fn answer(read: Read<u64>) -> Answer {
    Answer { version: read.value.map(|version| *version), stale: read.stale }
}

fn words(error: CacheError) -> String {
    error.to_string()
}

impl Process for Subject {
    fn read(&self, key: u32, strong: bool) -> BoxFuture<'_, Result<Answer, String>> {
        Box::pin(async move {
            let read = if strong { self.cache.read(&key).strong().await } else { self.cache.get(&key).await };
            read.map(answer).map_err(words)
        })
    }

    fn force(&self, key: u32) -> BoxFuture<'_, Result<Answer, String>> {
        Box::pin(async move { self.cache.force(&key).await.map(answer).map_err(words) })
    }

    fn read_many<'a>(&'a self, keys: &'a [u32]) -> BoxFuture<'a, Vec<Result<Answer, String>>> {
        Box::pin(async move {
            let answers = self.cache.get_many(keys).await;
            answers.into_iter().map(|read| read.map(answer).map_err(words)).collect()
        })
    }

    fn invalidate(&self, key: u32, version: Option<u64>) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async move {
            match version.and_then(RowVersion::new) {
                Some(version) => self.cache.invalidate_version(&key, version).await,
                None => self.cache.invalidate(&key).await,
            }
            .map_err(words)
        })
    }

    fn invalidate_tag(&self, key: u32) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async move { self.cache.invalidate_tag(&tag(key)).await.map_err(words) })
    }

    fn clear(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async move { self.cache.clear().await.map(drop).map_err(words) })
    }

    fn put(&self, key: u32, version: u64) -> BoxFuture<'_, Result<(), String>> {
        let row = RowVersion::new(version).unwrap();
        Box::pin(async move { self.cache.put(&key, version, row).await.map_err(words) })
    }
}
