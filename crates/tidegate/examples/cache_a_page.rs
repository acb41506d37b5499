//! A page of many entries: one question to the store, one `SELECT .. WHERE id IN (..)` for what it lacks, and a tag that
//! makes the entries of one shop old together.
//!
//! `cargo run -p tidegate --features cache --example cache_a_page`

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate::cache::{Cache, Caches, EmbeddedCache, EmbeddedCacheOptions, LoadContext, Loaded, Loader, Ttl};

/// Shop and item.
type Id = (u32, u64);

/// Loads titles, many with one question.
#[derive(Default)]
struct Titles {
    questions: Arc<AtomicU64>,
}

impl Loader<Id, String> for Titles {
    type Error = Infallible;
    const BATCHES: bool = true;

    async fn load(&self, id: &Id, context: LoadContext) -> Result<Loaded<String>, Infallible> {
        let mut one = self.load_many(&[*id], context).await?;
        Ok(one.pop().unwrap_or_else(Loaded::absent))
    }

    async fn load_many(&self, ids: &[Id], _: LoadContext) -> Result<Vec<Loaded<String>>, Infallible> {
        self.questions.fetch_add(1, Ordering::Relaxed);
        Ok(ids.iter().map(|(shop, item)| Loaded::value(format!("item {item} of shop {shop}"))).collect())
    }
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let store = Arc::new(EmbeddedCache::open(EmbeddedCacheOptions::default())?);
    let caches = Caches::builder(store).load_budget(16).start()?;
    let loader = Titles::default();
    let questions = Arc::clone(&loader.questions);
    let titles: Cache<Id, String> = caches
        .cache("titles")
        .fresh_for(Ttl::seconds::<300>())
        .jitter(0.2) // what is filled together does not end together
        .tags(|(shop, _)| vec![format!("shop-{shop}")])
        .loader(loader)?;

    let page: Vec<Id> = (0..100).map(|item| (7, item)).collect();
    let read: Result<Vec<_>, _> = titles.get_many(&page).await.into_iter().collect();
    assert_eq!(read?[42].value.as_deref().map(String::as_str), Some("item 42 of shop 7"));
    titles.get_many(&page).await;
    assert_eq!(questions.load(Ordering::Relaxed), 1);

    titles.invalidate_tag("shop-8").await?; // another shop's
    titles.get_many(&page).await;
    assert_eq!(questions.load(Ordering::Relaxed), 1);

    titles.invalidate_tag("shop-7").await?;
    titles.get(&(7, 42)).await?;
    assert_eq!(questions.load(Ordering::Relaxed), 2);
    caches.close().await;
    Ok(())
}
