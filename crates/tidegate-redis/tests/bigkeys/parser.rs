//! Snapshots of real servers, key by key; and whatever is none.

use std::collections::HashMap;
use std::io::Read;

use proptest::prelude::*;
use tidegate_conformance::servers::Engine;
use tidegate_redis::bigkeys::rdb::{self, RdbError};
use tidegate_redis::bigkeys::weight::{Allocator, Layout, Model};

use crate::planted::{self, Told};

fn model(engine: Engine, version: &str) -> Model {
    match engine {
        Engine::Redis => Model::new(Layout::Dict, Allocator::Jemalloc { quantum: 16 }, false),
        Engine::Redis74 => Model::new(Layout::Dict, Allocator::Jemalloc { quantum: 8 }, false).small_lists(true),
        Engine::Valkey if version.starts_with("8.1") => Model::new(Layout::Buckets, Allocator::Libc, false),
        Engine::Valkey | Engine::Valkey9 => Model::new(Layout::Buckets9, Allocator::Libc, false),
    }
}

fn any_model() -> Model {
    Model::new(Layout::Buckets9, Allocator::Libc, true)
}

fn version(connection: &mut redis::Connection) -> String {
    let info: String = redis::cmd("INFO").arg("server").query(connection).unwrap();
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
    field("valkey_version:").or_else(|| field("redis_version:")).unwrap()
}

/// A source that gives a few bytes at a time.
struct Drops<'a>(&'a [u8], usize);

impl Read for Drops<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let size = self.1.min(buffer.len());
        self.0.read(&mut buffer[..size])
    }
}

/// O17: every key of a real snapshot with its type, encoding, elements, and a weight near what the server says.
fn every_key(engine: Engine) {
    let server = planted::server(engine);
    let mut connection = planted::connect(&server);
    planted::plant(&mut connection, 4_000_000);
    planted::plant_fields_that_expire(&mut connection);
    let told = planted::told(&mut connection);
    let file = planted::file(&mut connection);
    let version = version(&mut connection);
    let model = model(engine, &version);
    let mut seen: HashMap<Vec<u8>, Told> = HashMap::new();
    let mut others = Vec::new();
    let mut expiring = 0;
    let snapshot = rdb::read(Drops(&file, 1_000), &model, |key| {
        expiring += u64::from(key.expires_at.is_some());
        if key.database != 0 {
            others.push((key.database, key.name.to_vec()));
            return;
        }
        let (kind, encoding) = (key.kind.name().to_owned(), key.encoding.to_owned());
        let one = Told { kind, encoding, elements: key.elements.unwrap(), bytes: key.weight.unwrap().bytes };
        assert!(seen.insert(key.name.to_vec(), one).is_none());
    })
    .unwrap();
    assert!(snapshot.is_checked && snapshot.bytes == file.len() as u64, "{snapshot:?}");
    assert_eq!((snapshot.keys, expiring), (told.len() as u64 + 1, 200));
    assert_eq!(others, [(3, b"in another database".to_vec())]);
    let mut sums: HashMap<&str, (u64, u64)> = HashMap::new();
    let mut bad = Vec::new();
    for (name, told) in &told {
        let seen = &seen[name];
        assert_eq!((&seen.kind, seen.elements), (&told.kind, told.elements), "{}", name.escape_ascii());
        let is_alike = seen.encoding == told.encoding;
        let sum = sums.entry(&told.kind).or_default();
        (sum.0, sum.1) = (sum.0 + seen.bytes, sum.1 + told.bytes);
        let off = seen.bytes as f64 / told.bytes as f64 - 1.0;
        // glibc's allocator gives away what is too small to be split off: 16 bytes.
        if !is_alike || (off.abs() > 0.15 && seen.bytes.abs_diff(told.bytes) > 16) {
            bad.push((told.bytes, name.escape_ascii().to_string(), seen.clone(), told.clone(), off));
        }
    }
    bad.sort_by_key(|bad| std::cmp::Reverse(bad.0));
    for (kind, (seen, told)) in &sums {
        println!("{version} {kind}: {seen} for {told} ({:+.1} %)", (*seen as f64 / *told as f64 - 1.0) * 100.0);
    }
    for bad in &bad {
        println!("{bad:?}");
    }
    for (kind, (seen, told)) in sums {
        assert!(seen.abs_diff(told) * 100 <= told * 15, "{kind}: {seen} for {told}");
    }
    let mut sizes: Vec<u64> = told.values().map(|told| told.bytes).collect();
    sizes.sort_unstable();
    let of_the_top = sizes[sizes.len() - 200];
    assert!(bad.iter().all(|bad| bad.0 < of_the_top));
    assert!(bad.len() <= seen.len() / 50, "{} of {}", bad.len(), seen.len());
}

/// O17: a snapshot that is cut off anywhere, or has a bit turned, is an error.
#[test]
fn what_is_cut_off_or_garbled_is_an_error() {
    let server = planted::server(Engine::default());
    let mut connection = planted::connect(&server);
    planted::plant(&mut connection, 100);
    let (file, model) = (&planted::file(&mut connection)[..], &any_model());
    let mut dice = planted::Dice::new(3);
    for _ in 0..100 {
        let cut = dice.below(file.len() as u64) as usize;
        match rdb::read(&file[..cut], model, |_| {}) {
            Err(RdbError::Truncated { at }) => assert_eq!(at, cut as u64),
            other => panic!("{cut}: {other:?}"),
        }
        let mut garbled = file.to_vec();
        garbled[9 + cut % (file.len() - 9)] ^= 1 << dice.below(8);
        assert!(rdb::read(&garbled[..], model, |_| {}).is_err(), "byte {cut}");
    }
}

#[test]
fn every_key_of_a_snapshot_of_redis() {
    every_key(Engine::Redis);
}

#[test]
fn every_key_of_a_snapshot_of_redis_7_4() {
    every_key(Engine::Redis74);
}

#[test]
fn every_key_of_a_snapshot_of_valkey() {
    every_key(Engine::Valkey);
}

#[test]
fn every_key_of_a_snapshot_of_valkey_9() {
    every_key(Engine::Valkey9);
}

/// O17.
#[test]
fn versions_that_are_not_known_are_said_to_be() {
    for head in ["REDIS0013", "REDIS0008", "VALKEY081", "VALKEY079"] {
        let e = rdb::read(head.as_bytes(), &any_model(), |_| {}).unwrap_err();
        let RdbError::Unsupported { version } = &e else { panic!("{head}: {e:?}") };
        assert!(version.ends_with(head.trim_start_matches(char::is_alphabetic).trim_start_matches('0')), "{version}");
        assert!(e.to_string().contains("known are Redis 9 to 12 and Valkey 80"), "{e}");
    }
    for head in ["RUBIS0009", "REDIS00x9", "VALKEYabc"] {
        assert!(matches!(rdb::read(head.as_bytes(), &any_model(), |_| {}), Err(RdbError::Corrupt { .. })), "{head}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// No bytes make it panic, or ask for more memory than there are bytes.
    #[test]
    fn any_bytes_are_read_or_refused(
        head in prop::sample::select(vec!["REDIS0009", "REDIS0012", "VALKEY080"]),
        code in 0_u8..=255,
        rest in prop::collection::vec(prop_oneof![0_u8..8, 0x80_u8..=0x81, 0xc0_u8..=0xc3, any::<u8>()], 0..400),
        size in 1_usize..20,
    ) {
        let mut bytes = head.as_bytes().to_vec();
        bytes.push(code);
        bytes.extend(rest);
        let all = rdb::read(&bytes[..], &any_model(), |_| {});
        let drops = rdb::read(Drops(&bytes, size), &any_model(), |_| {});
        prop_assert_eq!(format!("{all:?}"), format!("{drops:?}"));
    }
}
