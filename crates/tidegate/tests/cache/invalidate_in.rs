//! Case 11, and what is around it: invalidations within a transaction of the caller's own. A rollback sends nothing, a
//! commit is delivered whoever dies, and once more when the store may have lost it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use sqlx::{Connection as _, PgConnection, Row as _};
use tidegate::cache::*;
use tidegate_conformance::servers::{Postgres, Redis, Setup};
use tidegate_redis::RedisOptions;

use super::common::{Faulty, pause};

const PATIENCE: Duration = Duration::from_secs(8);
/// A relay's period, and some.
const PERIOD: Duration = Duration::from_millis(2_500);

/// A file with a table of versions.
struct Shop {
    _folder: tempfile::TempDir,
    file: PathBuf,
}

impl Shop {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("shop.db");
        let db = Connection::open(&file).unwrap();
        db.execute_batch("CREATE TABLE items (id INTEGER PRIMARY KEY, version INTEGER NOT NULL)").unwrap();
        db.execute_batch("INSERT INTO items VALUES (1, 1), (2, 1)").unwrap();
        Self { _folder: folder, file }
    }

    fn cache(&self, caches: &Caches) -> Cache<u64, u64> {
        let file = self.file.clone();
        let load = move |id: u64, _: LoadContext| {
            let version = Connection::open(&file).and_then(|db| {
                db.query_row("SELECT version FROM items WHERE id = ?1", [id as i64], |row| row.get::<_, i64>(0))
            });
            async move { version.map(|version| Loaded::value(version as u64)).map_err(std::io::Error::other) }
        };
        caches.cache("items").fresh_for(Ttl::seconds::<600>()).loader(load).unwrap()
    }

    /// Changes item 1 in a transaction.
    async fn write(&self, cache: &Cache<u64, u64>, version: u64, commit: bool) -> Ticket {
        write(&self.file, cache, version, commit).await
    }
}

async fn write(file: &Path, cache: &Cache<u64, u64>, version: u64, commit: bool) -> Ticket {
    let (file, cache) = (file.to_owned(), cache.clone());
    let write = move || {
        let mut db = Connection::open(file).unwrap();
        let tx = db.transaction().unwrap();
        tx.execute("UPDATE items SET version = ?1 WHERE id = 1", [version as i64]).unwrap();
        let mut own = SqliteTransaction::new(&tx);
        let row = RowVersion::new(version).unwrap();
        let written = cache.invalidate_version_in(&mut own, &1, row);
        let ticket = tokio::runtime::Handle::current().block_on(written).unwrap();
        if commit { tx.commit() } else { tx.rollback() }.unwrap();
        ticket
    };
    tokio::task::spawn_blocking(write).await.unwrap()
}

fn embedded() -> (Arc<Faulty>, Caches) {
    let store = Faulty::new(EmbeddedCache::open(EmbeddedCacheOptions::default()).unwrap());
    (store.clone(), Caches::builder(store).start().unwrap())
}

async fn on_redis(url: &str) -> Caches {
    let redis = RedisOptions::parse(url).unwrap().name("within").unwrap();
    let store = RedisCache::open(redis, RedisCacheOptions::default()).await.unwrap();
    Caches::builder(Arc::new(store)).start().unwrap()
}

async fn strong(cache: &Cache<u64, u64>) -> u64 {
    *cache.read(&1).strong().await.unwrap().value.unwrap()
}

async fn bounded(cache: &Cache<u64, u64>) -> (u64, Source) {
    let read = cache.get(&1).await.unwrap();
    (*read.value.unwrap(), read.source)
}

/// Until a strong read gives `version`, at most a relay's period.
async fn until(cache: &Cache<u64, u64>, version: u64) -> Duration {
    let began = Instant::now();
    while strong(cache).await != version {
        assert!(began.elapsed() < PERIOD, "not delivered");
        pause(20).await;
    }
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_acknowledged_is_read_by_nobody_any_more() {
    let shop = Shop::new();
    let (_, caches) = embedded();
    let relay = caches.relay(SqliteOutbox::open(&shop.file).unwrap());
    let cache = shop.cache(&caches);
    for version in 2..12 {
        assert_eq!(bounded(&cache).await.0, version - 1);
        let ticket = shop.write(&cache, version, true).await;
        relay.acknowledged(&ticket, PATIENCE).await.unwrap();
        assert_eq!(bounded(&cache).await, (version, Source::Load));
        assert_eq!((strong(&cache).await, bounded(&cache).await), (version, (version, Source::Local)));
        relay.acknowledged(&ticket, PATIENCE).await.expect("it stays acknowledged for a minute");
    }
    caches.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_has_to_wait_for_it() {
    let shop = Shop::new();
    let (_, caches) = embedded();
    let _relay = caches.relay(SqliteOutbox::open(&shop.file).unwrap());
    let cache = shop.cache(&caches);
    assert_eq!(bounded(&cache).await, (1, Source::Load));
    shop.write(&cache, 2, true).await;
    until(&cache, 2).await;
    assert_eq!(bounded(&cache).await.0, 2);
    caches.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_sends_nothing_and_is_told() {
    let shop = Shop::new();
    let (store, caches) = embedded();
    let relay = caches.relay(SqliteOutbox::open(&shop.file).unwrap());
    let cache = shop.cache(&caches);
    assert_eq!(bounded(&cache).await, (1, Source::Load));
    let ticket = shop.write(&cache, 2, false).await;
    let began = Instant::now();
    assert_eq!(relay.acknowledged(&ticket, PATIENCE).await, Err(Unacknowledged::NotCommitted));
    assert!(began.elapsed() < PERIOD, "told as soon as it is known");
    assert_eq!((store.count("invalidate"), bounded(&cache).await), (0, (1, Source::Local)));
    let short = relay.acknowledged(&ticket, Duration::from_millis(50)).await;
    assert_eq!(short, Err(Unacknowledged::NotCommitted));
    caches.close().await;
    assert_eq!(relay.acknowledged(&ticket, PATIENCE).await, Err(Unacknowledged::Stopping));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_away_is_not_acknowledged_until_it_is_back() {
    let shop = Shop::new();
    let (store, caches) = embedded();
    let relay = caches.relay(SqliteOutbox::open(&shop.file).unwrap());
    let cache = shop.cache(&caches);
    assert_eq!(bounded(&cache).await, (1, Source::Load));
    store.set_down(true);
    let ticket = shop.write(&cache, 2, true).await;
    let answer = relay.acknowledged(&ticket, Duration::from_millis(700)).await;
    assert_eq!(answer, Err(Unacknowledged::NotDelivered));
    store.set_down(false);
    relay.acknowledged(&ticket, PATIENCE).await.unwrap();
    assert_eq!(strong(&cache).await, 2);
    caches.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_without_the_table_is_told_what_is_wrong() {
    let shop = Shop::new();
    let (_, caches) = embedded();
    let cache = shop.cache(&caches);
    let mut db = Connection::open(&shop.file).unwrap();
    let tx = db.transaction().unwrap();
    let mut own = SqliteTransaction::new(&tx);
    let error = cache.invalidate_in(&mut own, &1).await.unwrap_err();
    assert!(matches!(&error, CacheError::Database(_)) && !error.is_retryable(), "{error}");
    caches.close().await;
}

/// Runs in a process of its own: it commits, and is killed before anything can be deleted.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "the other half of a test"]
async fn child_that_dies_after_its_commit() {
    let (Ok(url), Ok(file)) = (std::env::var("CHILD_URL"), std::env::var("CHILD_FILE")) else { return };
    let caches = on_redis(&url).await;
    let shop = Shop { _folder: tempfile::tempdir().unwrap(), file: file.into() };
    let cache = shop.cache(&caches);
    assert_eq!(bounded(&cache).await.0, 1);
    shop.write(&cache, 2, true).await;
    Command::new("kill").args(["-9", &std::process::id().to_string()]).status().unwrap();
    pause(60_000).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn case_11_a_process_killed_after_its_commit_is_finished_by_another() {
    let (redis, shop) = (Redis::start(), Shop::new());
    let caches = on_redis(&redis.url()).await;
    let cache = shop.cache(&caches);
    assert_eq!(bounded(&cache).await, (1, Source::Load));
    // The table is there before the child writes to it; nobody relays yet.
    let outbox = SqliteOutbox::open(&shop.file).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["invalidate_in::child_that_dies_after_its_commit", "--exact", "--ignored", "--nocapture"]);
    child.env("CHILD_URL", redis.url()).env("CHILD_FILE", &shop.file);
    let ended = tokio::task::spawn_blocking(move || child.output().unwrap()).await.unwrap();
    assert_eq!(ended.status.code(), None, "killed: {ended:?}");
    let db = Connection::open(&shop.file).unwrap();
    let committed: i64 = db.query_row("SELECT version FROM items WHERE id = 1", [], |row| row.get(0)).unwrap();
    assert_eq!((committed, strong(&cache).await), (2, 1), "committed, and not yet deleted");
    let _relay = caches.relay(outbox);
    until(&cache, 2).await;
    assert_eq!(bounded(&cache).await.0, 2);
    caches.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_store_lost_with_its_run_is_delivered_once_more() {
    let redis = Redis::start_with(Setup::default().option("dbfilename", "kept.rdb"));
    let shop = Shop::new();
    let outbox = SqliteOutbox::open(&shop.file).unwrap();
    let gone = on_redis(&redis.url()).await;
    let cache = shop.cache(&gone);
    assert_eq!(bounded(&cache).await, (1, Source::Load));
    // What a failover gives: a server that knows the entry and never heard of its end.
    assert_eq!(redis.tell(&["SAVE"]).trim(), "OK");
    let relay = gone.relay(outbox.clone());
    let ticket = shop.write(&cache, 2, true).await;
    relay.acknowledged(&ticket, PATIENCE).await.unwrap();
    // Whoever has deleted it is gone, and with it what it remembers.
    gone.close().await;
    let left = on_redis(&redis.url()).await;
    let cache = shop.cache(&left);
    let _relay = left.relay(outbox);
    assert_eq!(strong(&cache).await, 2);
    let old = tokio::task::spawn_blocking(move || {
        redis.restart();
        redis
    });
    let redis = old.await.unwrap();
    let began = Instant::now();
    let mut seen = Vec::new();
    loop {
        let read = strong(&cache).await;
        if seen.last() != Some(&read) {
            seen.push(read);
        }
        if read == 2 && began.elapsed() > Duration::from_millis(3_500) {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "never delivered again: {seen:?}");
        pause(10).await;
    }
    // The restarted server had the old entry until the replay.
    assert_eq!(redis.tell(&["PING"]).trim(), "PONG");
    assert_eq!(seen.last(), Some(&2), "{seen:?}");
    left.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_on_postgresql() {
    let (server, redis) = (Postgres::start(), Redis::start());
    let url = server.database();
    server.sql("postgres", "CREATE TABLE items (id BIGINT PRIMARY KEY, version BIGINT NOT NULL)");
    server.sql("postgres", "INSERT INTO items VALUES (1, 1)");
    // Several at once make the table, which is there after it.
    let (one, two) = tokio::join!(SqlOutbox::open(&url), SqlOutbox::open(&url));
    let (one, two) = (one.unwrap(), two.unwrap());
    let caches = [on_redis(&redis.url()).await, on_redis(&redis.url()).await];
    let caching = |caches: &Caches| -> Cache<u64, u64> {
        let url = url.clone();
        let load = move |_: u64, _: LoadContext| {
            let url = url.clone();
            async move {
                let mut db = PgConnection::connect(&url).await?;
                let row = sqlx::query("SELECT version FROM items WHERE id = 1").fetch_one(&mut db).await?;
                Ok::<_, sqlx::Error>(Loaded::value(row.get::<i64, _>(0) as u64))
            }
        };
        caches.cache("items").fresh_for(Ttl::seconds::<600>()).loader(load).unwrap()
    };
    let (mine, other) = (caching(&caches[0]), caching(&caches[1]));
    let relays = [caches[0].relay(one.clone()), caches[1].relay(two.clone())];
    let mut db = PgConnection::connect(&url).await.unwrap();
    for version in 2..8_u64 {
        assert_eq!((bounded(&mine).await.0, strong(&other).await), (version - 1, version - 1));
        let commit = version != 5;
        let mut tx = db.begin().await.unwrap();
        sqlx::query("UPDATE items SET version = $1").bind(version as i64).execute(&mut *tx).await.unwrap();
        let ticket = mine.invalidate_in(&mut PostgresTransaction::new(&mut tx), &1).await.unwrap();
        if commit { tx.commit().await } else { tx.rollback().await }.unwrap();
        let answers =
            tokio::join!(relays[0].acknowledged(&ticket, PATIENCE), relays[1].acknowledged(&ticket, PATIENCE));
        if commit {
            assert_eq!(answers, (Ok(()), Ok(())));
            assert_eq!((bounded(&mine).await.0, bounded(&other).await.0), (version, version));
        } else {
            assert_eq!(answers, (Err(Unacknowledged::NotCommitted), Err(Unacknowledged::NotCommitted)));
            sqlx::query("UPDATE items SET version = 5").execute(&mut db).await.unwrap();
            mine.invalidate(&1).await.unwrap();
        }
    }
    assert_eq!(server.sql("postgres", "SELECT count(*) FROM tg_outbox WHERE delivered_at IS NULL").trim(), "0");
    for caches in caches {
        caches.close().await;
    }
    one.close();
    two.close();
}
