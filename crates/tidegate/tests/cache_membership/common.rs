//! A table of rows, and caches in front of it.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidegate::cache::membership::Mutant;
use tidegate::cache::*;
use tokio::sync::Semaphore;

pub const NS: &str = "rows";

/// Rows that are their own ids.
#[derive(Default)]
pub struct Table {
    pub rows: Mutex<BTreeSet<u64>>,
    pub loads: AtomicU64,
    pub pages: AtomicU64,
    pub ids_a_page: AtomicU64,
    /// Pages but the first wait for a permit.
    pub park: Mutex<Option<Arc<Semaphore>>>,
    /// The next so many pages fail.
    pub faults: AtomicU64,
    /// Rows are not cached, so that each read of one asks the filter.
    pub stores_nothing: AtomicBool,
}

#[derive(Debug)]
pub struct Fault;

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the table is away")
    }
}

impl std::error::Error for Fault {}

impl Table {
    pub fn with(rows: impl IntoIterator<Item = u64>) -> Arc<Self> {
        let table = Self { rows: Mutex::new(rows.into_iter().collect()), ..Self::default() };
        table.ids_a_page.store(1_000, Ordering::SeqCst);
        Arc::new(table)
    }

    pub fn commit(&self, id: u64) {
        self.rows.lock().unwrap().insert(id);
    }

    pub fn parks(&self) -> Arc<Semaphore> {
        let park = Arc::new(Semaphore::new(0));
        *self.park.lock().unwrap() = Some(park.clone());
        park
    }

    pub fn loads(&self) -> u64 {
        self.loads.load(Ordering::SeqCst)
    }

    async fn page(self: Arc<Self>, after: Option<u64>) -> Result<Vec<u64>, Fault> {
        self.pages.fetch_add(1, Ordering::SeqCst);
        let park = self.park.lock().unwrap().clone();
        if let (Some(park), Some(_)) = (park, after) {
            park.acquire().await.unwrap().forget();
        }
        if self.faults.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok() {
            return Err(Fault);
        }
        let rows = self.rows.lock().unwrap();
        let from = after.map_or(Unbounded, Excluded);
        let most = self.ids_a_page.load(Ordering::SeqCst) as usize;
        Ok(rows.range((from, Unbounded)).take(most).copied().collect())
    }

    pub fn source(self: &Arc<Self>) -> impl IdSource<u64> + use<> {
        let table = Arc::clone(self);
        move |after| Arc::clone(&table).page(after)
    }

    pub fn loader(self: &Arc<Self>) -> impl Loader<u64, u64> + use<> {
        let table = Arc::clone(self);
        move |id: u64, _: LoadContext| {
            let table = Arc::clone(&table);
            async move {
                table.loads.fetch_add(1, Ordering::SeqCst);
                let row = table.rows.lock().unwrap().contains(&id).then_some(id);
                let stored = !table.stores_nothing.load(Ordering::SeqCst);
                Ok::<_, Fault>(match row {
                    Some(row) if !stored => Loaded::uncacheable(row),
                    row => Loaded::from(row),
                })
            }
        }
    }

    /// A filter of these rows whose additions settle at once.
    pub fn membership(self: &Arc<Self>) -> Membership<u64> {
        Membership::of(self.source()).capacity(1_000).settle(Duration::ZERO)
    }

    /// A cache with such a filter.
    pub fn cache(self: &Arc<Self>, caches: &Caches) -> Cache<u64, u64> {
        self.cache_with(caches, self.membership())
    }

    pub fn cache_with(self: &Arc<Self>, caches: &Caches, membership: Membership<u64>) -> Cache<u64, u64> {
        let builder = caches.cache(NS).absent_for(Ttl::seconds::<60>()).membership(membership);
        builder.loader(self.loader()).unwrap()
    }

    pub fn mutant(self: &Arc<Self>, mutant: Option<Mutant>) -> Membership<u64> {
        let membership = self.membership();
        match mutant {
            Some(mutant) => membership.mutant(mutant),
            None => membership,
        }
    }
}

pub fn memory() -> EmbeddedCache {
    EmbeddedCache::open(EmbeddedCacheOptions::default()).unwrap()
}

/// The caches of one process.
pub fn process(store: Arc<dyn CacheStore>) -> Caches {
    Caches::builder(store).start().unwrap()
}

/// As many processes on one store in memory.
pub fn processes(store: &EmbeddedCache, count: usize) -> Vec<Caches> {
    (0..count).map(|_| process(Arc::new(store.handle()))).collect()
}

pub async fn status(cache: &Cache<u64, u64>) -> MembershipStatus {
    cache.membership().unwrap().status().await.unwrap()
}

/// Waits until the filter may refuse, by what this process knows.
pub async fn complete(cache: &Cache<u64, u64>) -> MembershipStatus {
    until(cache, "it is complete", |status| status.complete).await
}

pub async fn until(cache: &Cache<u64, u64>, what: &str, is: impl Fn(&MembershipStatus) -> bool) -> MembershipStatus {
    let began = Instant::now();
    loop {
        let last = cache.membership().unwrap().status().await;
        if let Ok(status) = last
            && is(&status)
        {
            return status;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{what}: {last:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Whether the filter refuses `id`.
pub async fn refuses(cache: &Cache<u64, u64>, id: u64) -> bool {
    let read = cache.get(&id).await.unwrap();
    assert!(read.source != Source::Filter || read.value.is_none());
    read.source == Source::Filter
}

pub fn is_long() -> bool {
    std::env::var_os("TIDEGATE_TEST_LONG").is_some()
}
