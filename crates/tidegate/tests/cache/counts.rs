//! The names of the metrics are contract: dashboards and alerts are built on them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use tidegate::cache::{RowVersion, Ttl};

use crate::common::*;

#[derive(Default)]
struct Sums(Mutex<BTreeMap<String, Arc<AtomicU64>>>);

impl Sums {
    fn of(&self, key: &Key) -> Arc<AtomicU64> {
        let mut labels: Vec<String> =
            key.labels().map(|label| format!("{}=\"{}\"", label.key(), label.value())).collect();
        labels.sort();
        let name = format!("{}{{{}}}", key.name(), labels.join(","));
        self.0.lock().unwrap().entry(name).or_default().clone()
    }
}

impl Recorder for Sums {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.of(key))
    }
    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }
    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        self.of(key).fetch_add(1, Ordering::SeqCst);
        Histogram::noop()
    }
}

#[tokio::test(start_paused = true)]
async fn every_counter_has_its_name_and_its_namespace() {
    let sums = Sums::default();
    let _recorder = metrics::set_default_local_recorder(&sums);
    let (world, db) = (World::new(1), Database::new());
    let cache = builder(&world, 0).fresh_for(Ttl::seconds::<5>()).stale_for(Ttl::seconds::<5>()).jitter(0.0);
    let cache = cache.early_refresh(0.0).absent_for(Ttl::seconds::<60>()).loader(db.loader()).unwrap();
    db.set(1, 1);
    cache.get(&1).await.unwrap();
    cache.get(&1).await.unwrap();
    cache.read(&1).strong().await.unwrap();
    cache.get(&2).await.unwrap();
    cache.get(&2).await.unwrap();
    db.fails.store(true, Ordering::SeqCst);
    cache.get(&3).await.expect_err("the loader fails");
    pause(6_000).await;
    assert!(cache.get(&1).await.unwrap().stale);
    settle().await;
    db.fails.store(false, Ordering::SeqCst);
    let park = db.parks();
    let reader = start(&cache, 4);
    settle().await;
    cache.put(&4, 9, RowVersion::new(9).unwrap()).await.unwrap();
    park.add_permits(10);
    reader.await.unwrap().unwrap();
    pause(500).await;
    let sum = |name: &str| {
        let sums = sums.0.lock().unwrap();
        sums.get(name).unwrap_or_else(|| panic!("{name} of {:?}", sums.keys())).load(Ordering::SeqCst)
    };
    for (name, expected) in [
        ("hits_total{level=\"local\",namespace=\"t\"}", 3),
        ("hits_total{level=\"store\",namespace=\"t\"}", 1),
        ("misses_total{namespace=\"t\"}", 4),
        ("loads_total{namespace=\"t\",outcome=\"absent\"}", 2),
        ("loads_total{namespace=\"t\",outcome=\"error\"}", 2),
        ("loads_total{namespace=\"t\",outcome=\"ok\"}", 1),
        ("stale_total{namespace=\"t\"}", 1),
        ("negatives_total{namespace=\"t\"}", 1),
        ("rejected_fills_total{namespace=\"t\"}", 1),
        ("overloaded_total{namespace=\"t\"}", 0),
        ("oversize_total{namespace=\"t\"}", 0),
        ("load_seconds{namespace=\"t\"}", 1),
    ] {
        assert_eq!(sum(&format!("tidegate_cache_{name}")), expected, "{name}");
    }
}
