//! Spans and events: what happened to which namespace and how it ended; keys only as hashes, values never, and nothing at
//! all at a hit.

use std::collections::HashMap;
use std::fmt::{Debug, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate::cache::*;
use tidegate_core::cache::key_hash;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::common::pause;

/// One span or event, with its fields.
#[derive(Debug, Clone, Default)]
struct Line {
    name: String,
    fields: HashMap<&'static str, String>,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let mut text = String::new();
        write!(text, "{value:?}").unwrap();
        if field.name() == "message" {
            self.name = text;
        } else {
            self.fields.insert(field.name(), text);
        }
    }
}

/// Collects what is told of caches.
#[derive(Clone, Default)]
struct Collector {
    lines: Arc<Mutex<Vec<Line>>>,
    next: Arc<AtomicU64>,
    spans: Arc<Mutex<HashMap<u64, usize>>>,
}

impl Collector {
    fn push(&self, line: Line) -> usize {
        let mut lines = self.lines.lock().unwrap();
        lines.push(line);
        lines.len() - 1
    }

    fn of(&self, name: &str) -> Vec<Line> {
        self.lines.lock().unwrap().iter().filter(|line| line.name == name).cloned().collect()
    }

    fn count(&self) -> usize {
        self.lines.lock().unwrap().len()
    }
}

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("tidegate::cache")
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        assert!(*span.metadata().level() >= Level::DEBUG, "rarer than what operators see");
        let mut line = Line { name: span.metadata().name().to_owned(), ..Line::default() };
        span.record(&mut line);
        let id = self.next.fetch_add(1, Ordering::SeqCst) + 1;
        let at = self.push(line);
        self.spans.lock().unwrap().insert(id, at);
        Id::from_u64(id)
    }
    fn record(&self, span: &Id, values: &Record<'_>) {
        let at = self.spans.lock().unwrap()[&span.into_u64()];
        values.record(&mut self.lines.lock().unwrap()[at]);
    }
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        self.push(line);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

const SECRET_KEY: &str = "card-4929-1111";
const SECRET_VALUE: &str = "Jane Doe, 12 Elm Street";

#[tokio::test(flavor = "multi_thread")]
async fn what_happens_is_told_without_keys_and_values() {
    let seen = Collector::default();
    tracing::subscriber::set_global_default(seen.clone()).expect("alone in its process");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("own.db");
    rusqlite::Connection::open(&file).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
    let store = Arc::new(EmbeddedCache::open(EmbeddedCacheOptions::default()).unwrap());
    let caches = Caches::builder(store).hot_keys_in(folder.path().join("own.hot")).start().unwrap();
    let relay = caches.relay(SqliteOutbox::open(&file).unwrap());
    let load = |key: String, _: LoadContext| async move {
        match key.as_str() {
            SECRET_KEY => Ok(Loaded::value(SECRET_VALUE.to_owned())),
            "long" => Ok(Loaded::value(SECRET_VALUE.repeat(100_000))),
            "none" => Ok(Loaded::absent()),
            _ => Err(std::io::Error::other("no such table")),
        }
    };
    let builder = || caches.cache("traced").fresh_for(Ttl::millis::<300>()).stale_for(Ttl::seconds::<60>());
    let cache: Cache<String, String> = builder().absent_for(Ttl::seconds::<9>()).loader(load).unwrap();
    let key = SECRET_KEY.to_owned();
    let hash = format!("{:016x}", key_hash(key.encode().unwrap().as_bytes()));

    cache.get(&key).await.unwrap();
    let load = seen.of("cache.load").pop().expect("a load");
    assert_eq!((load.fields["namespace"].as_str(), load.fields["key"].as_str()), ("traced", hash.as_str()));
    assert_eq!((load.fields["kind"].as_str(), load.fields["outcome"].as_str()), ("\"load\"", "\"value\""));
    assert!(load.fields["cost_ms"].parse::<f64>().is_ok(), "{load:?}");
    let fill = seen.of("cache.fill").pop().expect("a fill");
    assert_eq!((fill.fields["outcome"].as_str(), fill.fields["key"].as_str()), ("\"stored\"", hash.as_str()));
    assert!(fill.fields["age_ms"].parse::<i64>().is_ok(), "{fill:?}");

    let before = seen.count();
    for _ in 0..1_000 {
        cache.get(&key).await.unwrap();
    }
    assert_eq!(seen.count(), before, "a hit is not told");

    pause(350).await;
    cache.get(&key).await.unwrap();
    pause(100).await;
    let refresh = seen.of("cache.load").pop().unwrap();
    assert_eq!((refresh.fields["kind"].as_str(), refresh.fields["outcome"].as_str()), ("\"refresh\"", "\"value\""));

    cache.get(&"none".to_owned()).await.unwrap();
    assert_eq!(seen.of("cache.load").pop().unwrap().fields["outcome"], "\"absent\"");
    cache.get(&"broken".to_owned()).await.unwrap_err();
    assert_eq!(seen.of("cache.load").pop().unwrap().fields["outcome"], "\"error\"");
    cache.get(&"long".to_owned()).await.unwrap();

    cache.invalidate(&key).await.unwrap();
    let told = seen.of("cache.invalidate").pop().unwrap();
    assert_eq!((told.fields["key"].as_str(), told.fields["keys"].as_str()), (hash.as_str(), "1"));
    assert_eq!(told.fields["outcome"], "\"acknowledged\"");

    cache.get(&key).await.unwrap();
    cache.clear().await.unwrap();
    let told = seen.of("cache.clear").pop().unwrap();
    assert_eq!(told.fields["outcome"], "\"acknowledged\"");
    assert!(told.fields["entries"].parse::<u64>().unwrap() >= 1, "{told:?}");

    let (within, path) = (cache.clone(), file.clone());
    let write = move || {
        let mut db = rusqlite::Connection::open(path).unwrap();
        let tx = db.transaction().unwrap();
        let mut own = SqliteTransaction::new(&tx);
        let written = within.invalidate_in(&mut own, &SECRET_KEY.to_owned());
        let ticket = tokio::runtime::Handle::current().block_on(written).unwrap();
        tx.commit().unwrap();
        ticket
    };
    let ticket = tokio::task::spawn_blocking(write).await.unwrap();
    relay.acknowledged(&ticket, Duration::from_secs(5)).await.unwrap();
    let told = seen.of("cache.relay").pop().unwrap();
    assert_eq!((told.fields["entries"].as_str(), told.fields["delivered"].as_str()), ("1", "1"));

    caches.close().await;
    drop((cache, caches));
    let store = Arc::new(EmbeddedCache::open(EmbeddedCacheOptions::default()).unwrap());
    let caches = Caches::builder(store).hot_keys_in(folder.path().join("own.hot")).start().unwrap();
    let load =
        |_: String, _: LoadContext| async move { Ok::<_, std::io::Error>(Loaded::value(SECRET_VALUE.to_owned())) };
    let cache: Cache<String, String> = caches.cache("traced").loader(load).unwrap();
    while seen.of("warmed").is_empty() {
        pause(10).await;
    }
    assert_eq!(seen.of("cache.warm").pop().unwrap().fields["why"], "\"start\"");
    assert!(cache.stats().loads >= 1);
    caches.close().await;

    for line in seen.lines.lock().unwrap().iter() {
        let text = format!("{line:?}");
        assert!(!text.contains("4929") && !text.contains("Jane") && !text.contains("Elm"), "{text}");
    }
}
