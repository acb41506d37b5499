//! Clocks that are wrong (libfaketime, never the host's own clock).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tidegate::core::Millis;
use tidegate::queue::NewTask;
use tidegate_conformance::servers::{Engine, Redis, Setup as Server};

use super::common::{MS, Runs, SECOND, SLACK, fill, id, mail, numbers, open, raw, until};
use super::process::{Log, Process, Setup, until as wait_until};

const PAST: Millis = Millis(1);
const HOUR_MS: i64 = 3_600_000;

fn libfaketime() -> PathBuf {
    let folders = [
        "/usr/lib/x86_64-linux-gnu/faketime",
        "/usr/lib/aarch64-linux-gnu/faketime",
        "/usr/lib/faketime",
        "/usr/lib64/faketime",
    ];
    let found = folders.iter().map(|folder| Path::new(folder).join("libfaketimeMT.so.1")).find(|path| path.exists());
    found.expect("libfaketime is missing; ./scripts/test installs it (Debian's package faketime)")
}

/// A file whose offset a program's clock follows.
struct Offset {
    folder: tempfile::TempDir,
}

impl Offset {
    fn new(offset: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Servers may run as another user.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).unwrap();
        let it = Self { folder };
        it.set(offset);
        it
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("offset")
    }

    fn set(&self, offset: &str) {
        let new = self.folder.path().join("new");
        std::fs::write(&new, format!("{offset}\n")).unwrap();
        std::fs::rename(new, self.file()).unwrap();
    }

    fn variables(&self) -> [(&'static str, String); 5] {
        [
            ("LD_PRELOAD", libfaketime().display().to_string()),
            ("FAKETIME_TIMESTAMP_FILE", self.file().display().to_string()),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ]
    }

    fn on(&self, command: &mut Command) {
        command.envs(self.variables());
    }
}

// C31. The store's clock decides: what is due by it is handed out, nothing is lost and nothing done twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_servers_clock_is_stepped() {
    let offset = Offset::new("+0");
    // Debian's Redis does not start under libfaketime: its allocator asks for the time too early.
    let valkey = Server::default().engine(Engine::Valkey);
    let server = offset.variables().into_iter().fold(valkey, |server, (name, value)| server.env(name, &value));
    let redis = Redis::start_with(server);
    let (queues, runs) = (open(&redis.url()).await, Runs::default());
    let (queue, lease) = (mail(&queues), SECOND);
    let worker = runs.worker(&queues, 30 * SECOND);
    let mut n = 0;
    let mut hundred = async |range: std::ops::Range<i64>| {
        let (from, now) = (n, queues.now());
        fill(&queue, from..from + 100, |i| now.plus(range.start + (range.end - range.start) * (i - from) as i64 / 100))
            .await;
        n += 100;
        from..n
    };
    let ran = |range: &std::ops::Range<u64>| range.clone().filter(|n| !runs.of(&id(*n)).is_empty()).count();

    // Ten seconds forward: what is due by then comes at once.
    let first = hundred(2_000..9_000).await;
    offset.set("+10");
    let stepped = Instant::now();
    until("all are due", async || ran(&first) == 100).await;
    assert!(stepped.elapsed() < SECOND + SLACK, "{:?}", stepped.elapsed());

    // Back by less than five seconds: time stands still until it is there again, and no longer.
    let second = hundred(200..400).await;
    offset.set("+8");
    let stepped = Instant::now();
    until("they come", async || ran(&second) == 100).await;
    assert!(stepped.elapsed() < 3 * SECOND + SLACK, "{:?}", stepped.elapsed());
    assert!(stepped.elapsed() > SECOND, "{:?}: early", stepped.elapsed());

    // Back by an hour: followed at once, for leases, delays and what falls due.
    offset.set("-3600");
    tokio::time::sleep(600 * MS).await;
    let stepped = Instant::now();
    for from in 0..10 {
        queue.schedule(NewTask::after(format!("late{from}"), 300 * MS, 0)).await.unwrap();
    }
    until("they come", async || (0..10).all(|from| !runs.of(&format!("late{from}")).is_empty())).await;
    assert!(stepped.elapsed() < SECOND + SLACK && stepped.elapsed() > 250 * MS, "{:?}", stepped.elapsed());
    worker.stop(SECOND).await;
    fill(&queue, 900..901, |_| PAST).await;
    raw(&queues).claim(1, lease, Duration::ZERO).await.unwrap().keep();
    let claimed = Instant::now();
    let again = raw(&queues).claim(1, lease, 10 * SECOND).await.unwrap().keep();
    assert_eq!((again.len(), again[0].attempt), (1, 2));
    assert!(claimed.elapsed() < lease + SLACK && claimed.elapsed() > lease - 100 * MS, "{:?}", claimed.elapsed());
    assert!(runs.all().values().all(|runs| runs.len() == 1), "none twice");
    assert_eq!(numbers(&queue).await, (0, 1, 0), "none lost");
}

// C31
#[test]
fn a_workers_clock_is_stepped() {
    let (redis, log, offset) = (Redis::start(), Log::new(), Offset::new("+0"));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let queues = runtime.block_on(open(&redis.url()));
    let setup = Setup { work_ms: 300, lease_ms: 500, ..Setup::new(&redis.url(), &log) };
    let worker = Process::start_with(&setup, |command| offset.on(command));
    let mut all = 0;
    for step in ["+10", "-10", "+3600", "-3600", "+0"] {
        let due = queues.now().plus(400);
        runtime.block_on(fill(&mail(&queues), all..all + 10, |_| due));
        offset.set(step);
        let far = Instant::now();
        all += 10;
        wait_until("they fire", || log.of("begin").len() as u64 >= all);
        // By this process's clock, which is right.
        let late = queues.now().since(due);
        assert!((0..=SLACK.as_millis() as i64).contains(&late), "{step}: {late} ms after {:?}", far.elapsed());
    }
    wait_until("all are done", || log.missing(all).is_empty());
    assert!(log.of("begin").iter().all(|line| line.attempt == 1), "leases are renewed whatever the clock");
    assert_eq!(runtime.block_on(numbers(&mail(&queues))), (0, 0, 0));
    assert!(worker.end());
}

// C39
#[test]
fn workers_whose_clocks_differ_run_each_slot_once() {
    let (redis, log) = (Redis::start(), Log::new());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let queues = runtime.block_on(open(&redis.url()));
    let offsets = ["+0", "+0.05", "-0.05"].map(Offset::new);
    let setup = Setup { lease_ms: 5_000, ..Setup::new(&redis.url(), &log) };
    let workers: Vec<_> = offsets
        .iter()
        .enumerate()
        .map(|(n, offset)| Process::start_with(&setup.who(format!("w{n}")), |command| offset.on(command)))
        .collect();
    let base = queues.now().plus(300);
    runtime.block_on(fill(&mail(&queues), 0..100, |slot| base.plus(slot as i64 * 15)));
    wait_until("every slot has run", || log.missing(100).is_empty());
    let begun = log.of("begin");
    assert_eq!((begun.len(), log.ends().len()), (100, 100), "one run a slot");
    assert!(begun.iter().all(|line| line.attempt == 1 && line.late_ms >= 0), "{begun:?}");
    assert!(workers.into_iter().all(Process::end));
}

// C56
#[test]
fn half_an_hour_is_half_an_hour_when_summer_time_ends() {
    // In London clocks go from 02:00 to 01:00 at 01:00 UTC: twenty minutes later there.
    let began = 1_792_888_800;
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() as i64;
    let (offset, log) = (Offset::new(&format!("{:+}", began - now)), Log::new());
    let url = format!("sqlite:{}", log.folder().join("queues.db").display());
    let setup = Setup { schedule: vec![(1, 1_800_000), (2, 0)], ..Setup::new(&url, &log) };
    let london = |command: &mut Command| {
        offset.on(command);
        command.env("TZ", "Europe/London");
    };
    let worker = Process::start_with(&setup, london);
    wait_until("the one that is due fires", || log.of("end").len() == 1);
    assert!(worker.end());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let queues = open(&url).await;
        let task = mail(&queues).get(&id(1)).await.unwrap().unwrap().task;
        // 00:40 UTC, and half an hour of real time.
        let off = task.due_at.0 - began * 1_000 - HOUR_MS / 2;
        assert!((0..30_000).contains(&off), "{off} ms");
        queues.close().await;
    });
    assert_eq!(log.of("end")[0].id, id(2), "and not at once");
}
