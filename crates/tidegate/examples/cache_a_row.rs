//! A row of an SQL table behind the cache: loaded once however many ask, and current as soon as a write is acknowledged.
//!
//! `cargo run -p tidegate --features cache --example cache_a_row`

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, OptionalExtension};
use serde::{Deserialize, Serialize};
use tidegate::cache::{
    Cache, CacheError, Caches, EmbeddedCache, EmbeddedCacheOptions, LoadContext, Loaded, RowVersion, Ttl,
};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A row as it is cached.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Product {
    name: String,
    cents: i64,
    /// Grows with every update.
    version: u64,
}

/// A database; here one in memory.
struct Database {
    connection: Mutex<Connection>,
    selects: AtomicU64,
}

impl Database {
    fn open() -> rusqlite::Result<Self> {
        let connection = Connection::open_in_memory()?;
        connection.execute_batch(
            "CREATE TABLE products (sku TEXT PRIMARY KEY, name TEXT NOT NULL, cents INTEGER NOT NULL, version INTEGER NOT NULL)",
        )?;
        Ok(Self { connection: Mutex::new(connection), selects: AtomicU64::new(0) })
    }

    fn run<T>(&self, statement: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> rusqlite::Result<T> {
        statement(&self.connection.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// SQLite blocks: away with it from the threads that answer callers.
    async fn select(self: Arc<Self>, sku: String) -> Result<Option<Product>, std::io::Error> {
        self.selects.fetch_add(1, Ordering::Relaxed);
        let select = move || {
            self.run(|db| {
                db.query_row("SELECT name, cents, version FROM products WHERE sku = ?1", [sku], |row| {
                    let version = row.get::<_, i64>(2)?.unsigned_abs();
                    Ok(Product { name: row.get(0)?, cents: row.get(1)?, version })
                })
                .optional()
            })
        };
        tokio::task::spawn_blocking(select).await?.map_err(std::io::Error::other)
    }

    fn put(&self, sku: &str, cents: i64) -> rusqlite::Result<u64> {
        let sql = "INSERT INTO products VALUES (?1, ?1, ?2, 1) \
            ON CONFLICT (sku) DO UPDATE SET cents = ?2, version = version + 1 RETURNING version";
        self.run(|db| db.query_row(sql, (sku, cents), |row| row.get::<_, i64>(0))).map(i64::unsigned_abs)
    }
}

async fn price(products: &Cache<String, Product>, sku: &str) -> Result<Option<i64>, CacheError> {
    let read = products.get(&sku.to_owned()).await?;
    Ok(read.value.map(|product| product.cents))
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Failure> {
    let database = Arc::new(Database::open()?);
    let store = Arc::new(EmbeddedCache::open(EmbeddedCacheOptions::default())?);
    let caches = Caches::builder(store).start()?;
    let products: Cache<String, Product> = caches
        .cache("products")
        .schema(1)
        .fresh_for(Ttl::seconds::<60>())
        .stale_for(Ttl::seconds::<600>())
        .absent_for(Ttl::seconds::<10>())
        .loader({
            let database = Arc::clone(&database);
            move |sku: String, context: LoadContext| {
                // `context.floor` names a version that is committed: a replica that has only older ones lags.
                let _ = context.floor;
                let select = Arc::clone(&database).select(sku);
                async move {
                    let row = select.await?;
                    let version = row.as_ref().and_then(|row| RowVersion::new(row.version));
                    Ok::<_, std::io::Error>(Loaded::from(row).version(version))
                }
            }
        })?;
    let mug = "mug".to_owned();

    assert_eq!(price(&products, "mug").await?, None); // "there is none" is remembered, too

    database.put("mug", 900)?; // 1. the database, 2. its commit, 3. the cache
    products.invalidate(&mug).await?;
    assert_eq!(price(&products, "mug").await?, Some(900));

    let version = database.put("mug", 950)?;
    products.invalidate_version(&mug, RowVersion::new(version).ok_or("too large")?).await?;

    let crowd: Vec<_> = (0..1_000)
        .map(|_| {
            let products = products.clone();
            tokio::spawn(async move { price(&products, "mug").await })
        })
        .collect();
    for caller in crowd {
        assert_eq!(caller.await??, Some(950));
    }
    assert_eq!(database.selects.load(Ordering::Relaxed), 3); // none, 900, and one for the thousand
    caches.close().await;
    Ok(())
}
