//! A write that invalidates: the cache's entry is made old in the transaction that changes the row, in a database of the
//! program's own. If the transaction is rolled back, nothing happens; if the process dies right after the commit, the next
//! one's relay deletes the entry.
//!
//! `cargo run -p tidegate --features cache --example cache_write`

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension};
use tidegate::cache::{
    Cache, Caches, EmbeddedCache, EmbeddedCacheOptions, LoadContext, Loaded, SqliteOutbox, SqliteTransaction, Ticket,
    Ttl, Unacknowledged,
};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Loads a price. SQLite blocks: away with it from the threads that answer callers.
async fn price(file: PathBuf, sku: String) -> Result<Option<i64>, std::io::Error> {
    let select = move || {
        let db = Connection::open(file)?;
        db.query_row("SELECT cents FROM prices WHERE sku = ?1", [sku], |row| row.get(0)).optional()
    };
    tokio::task::spawn_blocking(select).await?.map_err(std::io::Error::other)
}

/// Changes a price and makes its entry old, both or neither.
fn write(file: &Path, prices: &Cache<String, i64>, sku: &str, cents: i64, commit: bool) -> Result<Ticket, Failure> {
    let mut db = Connection::open(file)?;
    let transaction = db.transaction()?;
    transaction.execute("UPDATE prices SET cents = ?2 WHERE sku = ?1", (sku, cents))?;
    let mut own = SqliteTransaction::new(&transaction);
    let ticket = tokio::runtime::Handle::current().block_on(prices.invalidate_in(&mut own, &sku.to_owned()))?;
    if commit {
        transaction.commit()?;
    }
    Ok(ticket)
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("shop.db");
    Connection::open(&file)?.execute_batch(
        "PRAGMA journal_mode = WAL; CREATE TABLE prices (sku TEXT PRIMARY KEY, cents INTEGER NOT NULL);
        INSERT INTO prices VALUES ('mug', 900)",
    )?;

    let caches = Caches::builder(Arc::new(EmbeddedCache::open(EmbeddedCacheOptions::default())?)).start()?;
    let relay = caches.relay(SqliteOutbox::open(&file)?); // makes the table `tg_outbox`
    let prices: Cache<String, i64> = caches.cache("prices").fresh_for(Ttl::seconds::<600>()).loader({
        let file = file.clone();
        move |sku, _: LoadContext| {
            let file = file.clone();
            async move { price(file, sku).await.map(Loaded::from) }
        }
    })?;
    let mug = "mug".to_owned();
    assert_eq!(prices.get(&mug).await?.value.as_deref(), Some(&900));

    let change = |cents, commit| {
        let (file, prices) = (file.clone(), prices.clone());
        tokio::task::spawn_blocking(move || write(&file, &prices, "mug", cents, commit))
    };
    let ticket = change(950, true).await??;
    relay.acknowledged(&ticket, Duration::from_secs(5)).await?; // or leave it to the relay: a second at most
    assert_eq!(prices.get(&mug).await?.value.as_deref(), Some(&950));

    let ticket = change(100, false).await??; // rolled back: the price stays, and so does its entry
    let answer = relay.acknowledged(&ticket, Duration::from_secs(5)).await;
    assert_eq!(answer, Err(Unacknowledged::NotCommitted));
    assert_eq!(prices.get(&mug).await?.value.as_deref(), Some(&950));
    assert_eq!(prices.stats().loads, 2);
    caches.close().await;
    Ok(())
}
