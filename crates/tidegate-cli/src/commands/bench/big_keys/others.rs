//! Who else asks the server: one read a millisecond, each timed from the instant at which it should have been sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::commands::bench::on_redis::Bench;
use crate::commands::bench::redis::Redis;
use crate::failure::Result;
use crate::load::record::{Percentiles, Record};
use crate::runtime;

/// Between two reads.
const EVERY: Duration = Duration::from_millis(1);
/// How long it is measured how others fare while nobody looks.
const ALONE: Duration = Duration::from_secs(10);

/// What others noticed.
pub struct Noticed {
    record: Record,
    reads: u64,
    seconds: f64,
}

impl Noticed {
    /// Of several.
    pub fn all<'a>(several: impl Iterator<Item = &'a Noticed>) -> Self {
        let mut all = Self { record: Record::new(), reads: 0, seconds: 0.0 };
        for one in several {
            all.record.merge(&one.record);
            all.reads += one.reads;
            all.seconds += one.seconds;
        }
        all
    }

    /// Their latencies.
    pub fn times(&self) -> Percentiles {
        self.record.percentiles()
    }

    /// How many reads they made.
    pub fn reads(&self) -> u64 {
        self.reads
    }

    /// Their reads a second.
    pub fn rate(&self) -> f64 {
        self.reads as f64 / self.seconds.max(1e-9)
    }
}

/// How they fare while nobody looks.
pub fn alone(bench: &Bench<'_>) -> Result<Noticed> {
    let time = ALONE.mul_f64(bench.scale.clamp(0.1, 1.0));
    let (_, noticed) = beside(bench, || {
        std::thread::sleep(time);
        Ok(())
    })?;
    Ok(noticed)
}

/// Does `work`, and how others fare meanwhile: a thread of their own, from its start to its end.
///
/// # Errors
/// What the work or the reads fail with.
pub fn beside<T>(bench: &Bench<'_>, work: impl FnOnce() -> Result<T>) -> Result<(T, Noticed)> {
    let over = Arc::new(AtomicBool::new(false));
    let (url, name, seen) = (bench.url.clone(), bench.name.clone(), Arc::clone(&over));
    let others = std::thread::spawn(move || runtime::run(ask(&url, &name, &seen)));
    let done = work();
    over.store(true, Ordering::Relaxed);
    let noticed = others.join().map_err(|_| super::failed("the others", "they panicked"))??;
    Ok((done?, noticed))
}

async fn ask(url: &str, name: &str, over: &AtomicBool) -> Result<Noticed> {
    let redis = Redis::open_patiently(url, name).await?;
    let key = format!("tg:{name}:others");
    let (mut record, mut reads) = (Record::new(), 0);
    let began = Instant::now();
    while !over.load(Ordering::Relaxed) {
        let due = began + EVERY * u32::try_from(reads).unwrap_or(u32::MAX);
        tokio::time::sleep_until(due.into()).await;
        redis.ask(&["GET", &key]).await?;
        record.time(due.elapsed());
        reads += 1;
    }
    redis.close().await;
    Ok(Noticed { record, reads, seconds: began.elapsed().as_secs_f64() })
}
