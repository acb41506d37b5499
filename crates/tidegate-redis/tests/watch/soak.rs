//! A day of a server in minutes: from empty to a gigabyte, which expires; another, which is flushed; by the rules as they come, a look a
//! second. Nothing may be told but what is true.
#![allow(clippy::print_stdout, reason = "it shows what it was told")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;

use futures_util::future::join_all;
use tidegate_conformance::servers::Engine;

use super::*;

/// What is written each time, bytes of values.
const VALUES: u64 = 1 << 30;
/// Values that are written in a round trip.
const AT_ONCE: usize = 200;
/// Fragmentation is no false alarm while this much memory is resident beyond what is used.
const WASTED: u64 = 100 << 20;

/// The parts of the ten minutes, seconds of one part in sixty.
struct Times {
    part: Duration,
}

impl Times {
    fn of(&self, parts: u32) -> Duration {
        self.part * parts
    }
}

/// Writes [`VALUES`] bytes in values of 100 bytes to 8 KB within `time`; the n-th of them expires after what `life` says.
fn write(redis: &Redis, name: &str, time: Duration, life: impl Fn(f64) -> Duration) {
    let mut connection = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    let (began, text) = (Instant::now(), vec![b'x'; 8_292]);
    let (mut written, mut n) = (0_u64, 0_u64);
    while written < VALUES {
        let mut pipeline = redis::Pipeline::new();
        for _ in 0..AT_ONCE {
            n += 1;
            let size = 100 + (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 51);
            let ms = u64::try_from(life(written as f64 / VALUES as f64).as_millis()).unwrap();
            pipeline.cmd("SET").arg(format!("{name}:{n}")).arg(&text[..size as usize]).arg("PX").arg(ms).ignore();
            written += size;
        }
        pipeline.query::<()>(&mut connection).unwrap();
        let due = time.mul_f64(written as f64 / VALUES as f64);
        thread::sleep(due.saturating_sub(began.elapsed()));
    }
}

/// What happens to the server.
fn day(redis: &Redis, times: &Times) {
    thread::sleep(times.of(5));
    // All of it expires, little by little, while some is still written.
    write(redis, "first", times.of(12), |done| times.of(10) + times.of(6).mul_f64((done * 7_919.0).fract()));
    thread::sleep(times.of(14));
    write(redis, "second", times.of(12), |_| Duration::from_secs(86_400));
    thread::sleep(times.of(6));
    redis.tell(&["FLUSHALL"]);
    thread::sleep(times.of(11));
}

/// Bytes resident beyond what is used.
fn wasted(sample: &tidegate_core::watch::Sample) -> Option<u64> {
    let info = &sample.answer()?.info;
    let number = |name: &str| info.number(name);
    Some(number("used_memory_rss")?.saturating_sub(number("used_memory")?))
}

async fn soak(engine: Engine, times: Times) {
    let redis = Arc::new(Redis::start_with(Setup::default().engine(engine)));
    let mut samples = RedisSamples::new(RedisOptions::parse(&redis.url()).unwrap(), Duration::from_secs(1));
    let mut judges = [Purpose::Cache, Purpose::Shared].map(|purpose| (purpose, Judge::new(Settings::new(purpose))));
    let mut beyond: VecDeque<u64> = VecDeque::new();
    let (mut told, mut most, mut looks) = (Vec::new(), 0, 0);
    let over = {
        let redis = Arc::clone(&redis);
        tokio::task::spawn_blocking(move || day(&redis, &times))
    };
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    while !over.is_finished() {
        tick.tick().await;
        let round = samples.round().await;
        looks += 1;
        for sample in &round.samples {
            beyond.extend(wasted(sample));
            beyond.drain(..beyond.len().saturating_sub(30));
            most = most.max(sample.answer().and_then(|answer| answer.info.number("used_memory")).unwrap_or(0));
            for (purpose, judge) in &mut judges {
                let opened = judge.judge(sample).into_iter().filter_map(|change| match change {
                    Change::Opened(finding) => Some((*purpose, finding, beyond.iter().copied().collect::<Vec<_>>())),
                    Change::Closed(_) => None,
                });
                told.extend(opened);
            }
        }
    }
    over.await.unwrap();
    let is_true = |(purpose, finding, beyond): &(Purpose, Finding, Vec<u64>)| match finding.rule {
        Rule::Fragmentation => beyond.iter().filter(|beyond| **beyond > WASTED).count() >= 24,
        // The server's own word: a flush that waits for memory to be given back, and commands of microseconds on a machine that has
        // more to do than this test.
        Rule::SlowCommands => finding.evidence["slowest"].as_array().is_some_and(|slowest| {
            slowest.iter().all(|one| {
                let command = one["command"].as_str().unwrap_or_default();
                ["FLUSHALL", "INFO", "SET"].contains(&command.split(' ').next().unwrap_or_default())
            })
        }),
        // FLUSHALL, where something may have been there that is missed.
        Rule::DataLost => *purpose != Purpose::Cache,
        _ => false,
    };
    let (good, bad): (Vec<_>, Vec<_>) = told.into_iter().partition(is_true);
    let names: Vec<_> = good.iter().map(|(purpose, finding, _)| (*purpose, finding.rule.name())).collect();
    println!("{engine:?}: {looks} looks, {} MiB at most, told: {names:?}", most >> 20);
    assert!(bad.is_empty(), "{engine:?}: {bad:#?}");
    // It was what it was meant to be.
    assert!(most > VALUES, "{engine:?}: {most}");
    assert_eq!(
        good.iter().filter(|(_, finding, _)| finding.rule == Rule::DataLost).count(),
        1,
        "{engine:?}: {names:?}"
    );
    assert_eq!(redis.tell(&["DBSIZE"]), "0", "{engine:?}");
}

/// Ten minutes; an hour with `--long`.
#[tokio::test]
async fn a_server_that_fills_and_empties_is_left_in_peace() {
    let minutes = if std::env::var_os("TIDEGATE_TEST_LONG").is_some() { 60 } else { 10 };
    let part = Duration::from_secs(minutes * 60) / 60;
    join_all(Engine::ALL.map(|engine| soak(engine, Times { part }))).await;
}
