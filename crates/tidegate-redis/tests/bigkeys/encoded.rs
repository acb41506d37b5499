//! O17: what no server here writes any more or has, written by an encoder of the test's own.

use tidegate_redis::bigkeys::Kind;
use tidegate_redis::bigkeys::rdb::{self, RdbError, Snapshot};
use tidegate_redis::bigkeys::weight::{Allocator, Layout, Model};

/// A snapshot that is being written.
struct Writer(Vec<u8>);

impl Writer {
    fn new(magic: &str) -> Self {
        let mut writer = Self(magic.as_bytes().to_vec());
        writer.0.push(250);
        writer.text(b"redis-ver").text(b"6.2.0");
        writer.0.extend([254, 0, 251]);
        writer.length(100).length(1);
        writer
    }

    fn length(&mut self, length: u64) -> &mut Self {
        match length {
            0..64 => self.0.push(length as u8),
            64..16_384 => self.0.extend([0x40 | (length >> 8) as u8, length as u8]),
            _ => {
                self.0.push(0x80);
                self.0.extend((length as u32).to_be_bytes());
            }
        }
        self
    }

    fn text(&mut self, text: &[u8]) -> &mut Self {
        self.length(text.len() as u64);
        self.0.extend(text);
        self
    }

    fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend(bytes);
        self
    }

    fn key(&mut self, code: u8, name: &str) -> &mut Self {
        self.0.push(code);
        self.text(name.as_bytes())
    }

    fn end(&mut self) -> &[u8] {
        self.0.extend([255, 0, 0, 0, 0, 0, 0, 0, 0]);
        &self.0
    }
}

fn ziplist(elements: &[&[u8]]) -> Vec<u8> {
    let mut entries = Vec::new();
    let (mut before, mut last) = (0_u8, 10);
    for element in elements {
        last = 10 + entries.len() as u32;
        entries.extend([before, element.len() as u8]);
        entries.extend(*element);
        before = 2 + element.len() as u8;
    }
    let mut list = (11 + entries.len() as u32).to_le_bytes().to_vec();
    list.extend(last.to_le_bytes());
    list.extend((elements.len() as u16).to_le_bytes());
    list.extend(entries);
    list.push(255);
    list
}

fn listpack(elements: &[&[u8]]) -> Vec<u8> {
    let mut entries = Vec::new();
    for element in elements {
        entries.push(0x80 | element.len() as u8);
        entries.extend(*element);
        entries.push(1 + element.len() as u8);
    }
    let mut list = (7 + entries.len() as u32).to_le_bytes().to_vec();
    list.extend((elements.len() as u16).to_le_bytes());
    list.extend(entries);
    list.push(255);
    list
}

fn model() -> Model {
    Model::new(Layout::Dict, Allocator::Jemalloc { quantum: 8 }, false)
}

type Seen = (String, Kind, &'static str, Option<u64>, Option<i64>);

fn read(bytes: &[u8]) -> Result<(Snapshot, Vec<Seen>), RdbError> {
    let mut seen = Vec::new();
    let snapshot = rdb::read(bytes, &model(), |key| {
        assert_eq!(key.weight.is_none(), key.kind == Kind::Module);
        let name = String::from_utf8_lossy(key.name).into_owned();
        seen.push((name, key.kind, key.encoding, key.elements, key.expires_at));
    })?;
    Ok((snapshot, seen))
}

#[test]
fn encodings_of_redis_6_and_before() {
    let mut writer = Writer::new("REDIS0009");
    let list = ziplist(&[b"a", b"bc", b"def", b"g"]);
    writer.key(10, "list").text(&list);
    writer.raw(&[253]).raw(&1_700_000_000_i32.to_le_bytes()).key(13, "hash").text(&list);
    writer.raw(&[249, 7]).key(12, "sorted").text(&list);
    writer.raw(&[248]).length(70).key(14, "quick").length(2).text(&list).text(&ziplist(&[b"x"]));
    writer.key(9, "zipmap").text(b"\x02\x01a\x01\x00b\x01c\x01\x00d\xff");
    writer.key(11, "numbers").text(&[&2_u32.to_le_bytes()[..], &3_u32.to_le_bytes(), &[1, 0, 2, 0, 3, 0]].concat());
    writer.key(1, "plain").length(2).text(b"a").raw(&[0xc0, 5]);
    writer.key(3, "scores").length(3).text(b"a").raw(b"\x031.5").text(b"b").raw(&[254]).text(b"c").raw(&[253]);
    // A module's value, what a module keeps beside, and a library of functions.
    writer
        .key(7, "module")
        .raw(b"\x81\x01\x02\x03\x04\x05\x06\x07\x08")
        .raw(&[1, 5, 2, 6, 3, 0, 0, 0, 0, 4])
        .raw(&[0; 8]);
    writer.raw(&[5]).text(b"some text").raw(&[0]);
    writer.raw(&[247]).raw(b"\x81\x01\x02\x03\x04\x05\x06\x07\x08").raw(&[2, 1, 5]).text(b"x").raw(&[0]);
    writer.raw(&[245]).text(b"#!lua name=x").raw(&[244]).length(9).length(1).length(0);
    let (snapshot, seen) = read(writer.end()).unwrap();
    assert_eq!((&snapshot.version[..], snapshot.keys, snapshot.is_checked), ("REDIS 9", 9, false));
    let want = [
        ("list", Kind::List, "ziplist", Some(4), None),
        ("hash", Kind::Hash, "ziplist", Some(2), Some(1_700_000_000_000)),
        ("sorted", Kind::SortedSet, "ziplist", Some(2), None),
        ("quick", Kind::List, "quicklist", Some(5), None),
        ("zipmap", Kind::Hash, "zipmap", Some(2), None),
        ("numbers", Kind::Set, "intset", Some(3), None),
        ("plain", Kind::List, "quicklist", Some(2), None),
        ("scores", Kind::SortedSet, "skiplist", Some(3), None),
        ("module", Kind::Module, "module", None, None),
    ];
    assert_eq!(
        seen,
        want.map(|(name, kind, encoding, elements, end)| (name.to_owned(), kind, encoding, elements, end))
    );
}

#[test]
fn fields_that_expire_in_redis_and_in_valkey() {
    let ends = listpack(&[b"f", b"v", b"0", b"g", b"w", b"1"]);
    let mut writer = Writer::new("REDIS0012");
    writer.key(22, "a").length(2).length(0).text(b"f").text(b"v").length(90).text(b"g").text(b"w");
    writer.key(23, "b").text(&ends);
    writer.key(24, "c").raw(&[1; 8]).length(1).length(20_000).text(b"f").text(b"v");
    writer.key(25, "d").raw(&[1; 8]).text(&ends);
    let (_, seen) = read(writer.end()).unwrap();
    let seen: Vec<_> =
        seen.iter().map(|(name, kind, encoding, elements, _)| (&name[..], *kind, *encoding, *elements)).collect();
    let want = [("a", "hashtable", 2), ("b", "listpackex", 2), ("c", "hashtable", 1), ("d", "listpackex", 2)];
    assert_eq!(seen, want.map(|(name, encoding, count)| (name, Kind::Hash, encoding, Some(count))));
    // The same number means another form there.
    let mut writer = Writer::new("VALKEY080");
    writer.raw(&[243]).text(&[b'n'; 40]).length(1).length(0).length(100);
    writer.key(22, "a").length(2).text(b"f").text(b"v").raw(&(-1_i64).to_le_bytes());
    writer.text(b"g").text(b"w").raw(&1_700_000_000_000_i64.to_le_bytes());
    let (snapshot, seen) = read(writer.end()).unwrap();
    assert_eq!((&snapshot.version[..], seen.len(), seen[0].3), ("VALKEY 80", 1, Some(2)));
}

#[test]
fn what_cannot_be_read_is_said() {
    for (magic, code) in [
        ("REDIS0009", 6),
        ("REDIS0012", 26),
        ("REDIS0012", 99),
        ("VALKEY080", 24),
        ("REDIS0012", 243),
        ("REDIS0012", 246),
    ] {
        let mut writer = Writer::new(magic);
        let e = read(writer.key(code, "x").length(0).end()).unwrap_err();
        assert!(matches!(e, RdbError::UnsupportedType { code: seen, .. } if seen == code), "{magic} {code}: {e:?}");
        assert!(e.to_string().contains("is not known"), "{e}");
    }
    let bad = |code: u8, value: &[u8]| read(Writer::new("REDIS0009").key(code, "x").text(value).end());
    let mut wrong = ziplist(&[b"a"]);
    wrong[0] += 1;
    let mut many = listpack(&[b"a"]);
    many[4] = 200;
    for (code, value) in [
        (10, &wrong[..]),
        (16, &many),
        (11, b"\x02\0\0\0\x09\0\0\0ab"),
        (11, b"\x03\0\0\0\0\0\0\0"),
        (17, b"short"),
        (9, b""),
    ] {
        assert!(matches!(bad(code, value), Err(RdbError::Corrupt { .. })), "{code} {value:?}");
    }
    let mut summed = Writer::new("REDIS0009");
    summed.key(0, "x").text(b"y").raw(&[255, 1, 2, 3, 4, 5, 6, 7, 8]);
    assert!(read(&summed.0).is_err_and(|e| e.to_string().contains("sum")));
}
