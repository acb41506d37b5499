//! A process whose clock is stepped (libfaketime, never the host's own clock).

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tidegate_conformance::servers::Redis;

use super::process::{Process, Setup, Table};

const KEY: u64 = 1;
const FRESH: Duration = Duration::from_millis(800);
const ENTRIES_GO: &str = "for _, key in ipairs(redis.call('KEYS', 'tg:*:c:*')) do redis.call('DEL', key) end";

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

#[test]
fn a_clock_that_is_stepped_by_an_hour_lengthens_no_life_and_shortens_none() {
    let (redis, table, folder) = (Redis::start(), Table::new(10), tempfile::tempdir().unwrap());
    let offset = folder.path().join("offset");
    std::fs::write(&offset, "+0\n").unwrap();
    let setup = Setup { fresh_ms: FRESH.as_millis() as u64, ..Setup::new(&redis.url(), &table) };
    let mut right = Process::start(&setup);
    let mut stepped = Process::start_with(&setup, |command| {
        command.env("LD_PRELOAD", libfaketime()).env("FAKETIME_TIMESTAMP_FILE", &offset).env("FAKETIME_NO_CACHE", "1");
        command.env("DONT_FAKE_MONOTONIC", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    });
    let mut version = 0;
    for step in ["+3600", "-3600"] {
        // Each fills for the other: nothing tells that the row has changed but the end of the value's life.
        for filler in [0, 1] {
            version += 1;
            table.set(KEY, version);
            // The entries alone: after a flush, which is noticed, whoever has read the key would bring it back.
            redis.tell(&["EVAL", ENTRIES_GO, "0"]);
            std::thread::sleep(FRESH + Duration::from_millis(300));
            let filled = Instant::now();
            let fill = if filler == 0 { right.get(KEY) } else { stepped.get(KEY) };
            assert_eq!((fill.value, fill.loads.len()), (Some(version), 1), "{step}: {fill:?}");
            // In the middle of its life; the other way back for the second.
            let to = if filler == 0 { step } else { "+0" };
            std::fs::write(&offset, format!("{to}\n")).unwrap();
            version += 1;
            table.set(KEY, version);
            let mut renewed = None;
            while renewed.is_none() {
                for (who, process) in [("right", &mut right), ("stepped", &mut stepped)] {
                    let read = process.get(KEY);
                    let since = filled.elapsed();
                    if read.value == Some(version) {
                        assert!(since >= FRESH, "{step}: {who} found it old after {since:?}");
                        renewed.get_or_insert(since);
                    } else {
                        assert!(since < FRESH + Duration::from_millis(500), "{step}: fresh for {who} after {since:?}");
                        assert!(read.age_ms < FRESH.as_millis() as u64 + 500 && read.loads.is_empty(), "{read:?}");
                    }
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            // And both are of one mind about the new one.
            std::thread::sleep(Duration::from_millis(100));
            assert_eq!([right.get(KEY).value, stepped.get(KEY).value], [Some(version); 2]);
        }
    }
}
