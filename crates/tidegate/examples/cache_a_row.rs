//! A row of an SQL table behind the cache: loaded once however many ask, and current as soon as a write is acknowledged.
//!
//! `cargo run -p tidegate --features cache --example cache_a_row`

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use tidegate::cache::{
    Cache, CacheError, Caches, EmbeddedCache, EmbeddedCacheOptions, LoadContext, Loaded, RowVersion, Ttl,
};

/// A row as it is cached.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Product {
    name: String,
    cents: i64,
    /// Grows with every update: `UPDATE .. SET version = version + 1`.
    version: u64,
}

/// Stands for the table; a real loader runs `SELECT name, cents, version FROM products WHERE sku = ?`.
#[derive(Default)]
struct Table {
    row: Mutex<Option<Product>>,
    selects: AtomicU64,
}

impl Table {
    async fn select(&self) -> Result<Option<Product>, Infallible> {
        self.selects.fetch_add(1, Ordering::Relaxed);
        Ok(self.row.lock().expect("nobody panics with it").clone())
    }

    fn update(&self, cents: i64) {
        let mut row = self.row.lock().expect("nobody panics with it");
        let version = row.as_ref().map_or(0, |row| row.version) + 1;
        *row = Some(Product { name: "mug".to_owned(), cents, version });
    }
}

async fn price(products: &Cache<String, Product>, sku: &str) -> Result<Option<i64>, CacheError> {
    let read = products.get(&sku.to_owned()).await?;
    Ok(read.value.map(|product| product.cents))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let table = Arc::new(Table::default());
    let store = Arc::new(EmbeddedCache::open(EmbeddedCacheOptions::default())?);
    let caches = Caches::builder(store).start()?;
    let products: Cache<String, Product> = caches
        .cache("products")
        .schema(1)
        .fresh_for(Ttl::seconds::<60>())
        .stale_for(Ttl::seconds::<600>())
        .absent_for(Ttl::seconds::<10>())
        .loader({
            let table = Arc::clone(&table);
            move |_sku: String, context: LoadContext| {
                let table = Arc::clone(&table);
                async move {
                    // `context.floor` names a version that is committed: a replica that has only older ones lags.
                    let _ = context.floor;
                    let row = table.select().await?;
                    let version = row.as_ref().and_then(|row| RowVersion::new(row.version));
                    Ok::<_, Infallible>(Loaded::from(row).version(version))
                }
            }
        })?;

    assert_eq!(price(&products, "mug").await?, None); // "there is none" is remembered, too

    table.update(900); // 1. the database, 2. its commit, 3. the cache
    products.invalidate(&"mug".to_owned()).await?;
    assert_eq!(price(&products, "mug").await?, Some(900));

    table.update(950);
    products.invalidate_version(&"mug".to_owned(), RowVersion::new(2).ok_or("too large")?).await?;

    let crowd: Vec<_> = (0..1_000)
        .map(|_| {
            let products = products.clone();
            tokio::spawn(async move { price(&products, "mug").await })
        })
        .collect();
    for caller in crowd {
        assert_eq!(caller.await??, Some(950));
    }
    assert_eq!(table.selects.load(Ordering::Relaxed), 3); // none, 900, and one for the thousand
    caches.close().await;
    Ok(())
}
