//! A server with keys of every type and encoding, and what the server itself says of each.

use std::collections::HashMap;

use redis::{Cmd, Connection, Pipeline};
use tidegate_conformance::servers::{Engine, Redis, Setup};

/// A generator of numbers that are the same in each run.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }

    /// Letters, or the same letter again and again, which is compressed in snapshots.
    pub fn text(&mut self, length: u64) -> Vec<u8> {
        if self.below(2) == 0 {
            return vec![b'a' + self.below(26) as u8; length as usize];
        }
        (0..length).map(|_| b'!' + self.below(90) as u8).collect()
    }
}

/// What the server says of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    pub kind: String,
    pub encoding: String,
    pub elements: u64,
    pub bytes: u64,
}

pub fn connect(server: &Redis) -> Connection {
    redis::Client::open(server.url()).unwrap().get_connection().unwrap()
}

pub fn server(engine: Engine) -> Redis {
    Redis::start_with(Setup::default().engine(engine).option("repl-diskless-sync-delay", "0"))
}

/// Sends many commands, some thousand a round trip.
pub struct Many<'a> {
    connection: &'a mut Connection,
    pipeline: Pipeline,
    count: usize,
}

impl<'a> Many<'a> {
    pub fn new(connection: &'a mut Connection) -> Self {
        Self { connection, pipeline: Pipeline::new(), count: 0 }
    }

    pub fn send(&mut self, command: &Cmd) {
        self.pipeline.add_command(command.clone()).ignore();
        self.count += 1;
        if self.count >= 2_000 {
            self.flush();
        }
    }

    pub fn flush(&mut self) {
        if self.count > 0 {
            self.pipeline.exec(self.connection).unwrap();
            (self.pipeline, self.count) = (Pipeline::new(), 0);
        }
    }
}

fn with(name: &str, key: &[u8], arguments: &[&[u8]]) -> Cmd {
    let mut command = redis::cmd(name);
    command.arg(key).arg(arguments);
    command
}

/// Keys of every type and encoding that the server has, a few hundred; no collection of more than `most` bytes.
pub fn plant(connection: &mut Connection, most: u64) {
    let mut dice = Dice::new(7);
    let mut many = Many::new(connection);
    for n in 0..200_u64 {
        let length = [0, 1, 5, 20, 31, 32, 44, 45, 64, 100, 300, 5_000, 70_000][n as usize % 13] + dice.below(3);
        let value = dice.text(length);
        many.send(&with("SET", format!("string:{n}").as_bytes(), &[&value]));
        many.send(&with("SET", format!("number:{n}").as_bytes(), &[(n * n * n).to_string().as_bytes()]));
        let soon = (1_000 + n).to_string();
        many.send(&with("SET", format!("expiring:{n}").as_bytes(), &[&value, b"EX", soon.as_bytes()]));
    }
    many.send(&with("SET", b"string:large", &[&dice.text(most * 3 / 4)]));
    for (n, count) in [1, 2, 10, 100, 127, 130, 500, 1_000, 1_500, 5_000, 10_000].into_iter().enumerate() {
        for (m, length) in [4, 12, 33, 80, 400].into_iter().enumerate() {
            if count * length > most {
                continue;
            }
            let of = |kind: &str| format!("{kind}:{n}:{m}").into_bytes();
            for element in 0..count {
                let mut text = element.to_string().into_bytes();
                text.extend(dice.text(length));
                many.send(&with("RPUSH", &of("list"), &[&text]));
                many.send(&with("SADD", &of("set"), &[&text]));
                // Scores in no order: a server that is asked for a sample weighs the first members, which would be the shortest.
                let score = (element * 7_919 % 10_007).to_string();
                many.send(&with("ZADD", &of("sorted"), &[score.as_bytes(), &text]));
                many.send(&with("HSET", &of("hash"), &[format!("f{element}").as_bytes(), &text]));
                if m < 2 {
                    many.send(&with("SADD", &of("numbers"), &[(element << (m * 20)).to_string().as_bytes()]));
                    many.send(&with("XADD", &of("stream"), &[b"*", b"field", &text]));
                }
            }
        }
    }
    for n in 0..(most / 4_000) as u32 {
        many.send(&with("RPUSH", b"list:of large", &[&dice.text(u64::from(n % 7) * 3_000)]));
    }
    many.flush();
    let stream = if most > 1_000_000 { "stream:8:1" } else { "stream:2:0" };
    let mut group = redis::cmd("XGROUP");
    group.arg("CREATE").arg(stream).arg("group").arg("0").exec(connection).unwrap();
    let mut read = redis::cmd("XREADGROUP");
    read.arg(&["GROUP", "group", "consumer", "COUNT", "900", "STREAMS", stream, ">"]).exec(connection).unwrap();
    redis::cmd("SELECT").arg(3).exec(connection).unwrap();
    redis::cmd("SET").arg("in another database").arg("x").exec(connection).unwrap();
    redis::cmd("SELECT").arg(0).exec(connection).unwrap();
}

/// A hash whose fields expire, where the server has that.
pub fn plant_fields_that_expire(connection: &mut Connection) -> bool {
    let knows = |connection: &mut Connection, key: &str, field: &str| {
        let mut expire = redis::cmd("HEXPIRE");
        expire.arg(key).arg(10_000).arg(&["FIELDS", "1", field]);
        expire.exec(connection).is_ok()
    };
    for (key, count) in [("fields:few", 20), ("fields:many", 5_000)] {
        for n in 0..count {
            redis::cmd("HSET").arg(key).arg(format!("field{n}")).arg("value").exec(connection).unwrap();
            if n % 2 == 0 && !knows(connection, key, &format!("field{n}")) {
                return false;
            }
        }
    }
    true
}

/// What the server says of every key of its first database, asked one by one.
pub fn told(connection: &mut Connection) -> HashMap<Vec<u8>, Told> {
    let keys: Vec<Vec<u8>> = redis::cmd("KEYS").arg("*").query(connection).unwrap();
    let mut all = HashMap::new();
    for key in keys {
        let kind: String = redis::cmd("TYPE").arg(&key).query(connection).unwrap();
        let encoding: String = redis::cmd("OBJECT").arg("ENCODING").arg(&key).query(connection).unwrap();
        let bytes: u64 = redis::cmd("MEMORY").arg("USAGE").arg(&key).arg("SAMPLES").arg(0).query(connection).unwrap();
        let count = match kind.as_str() {
            "string" => "STRLEN",
            "list" => "LLEN",
            "set" => "SCARD",
            "zset" => "ZCARD",
            "hash" => "HLEN",
            _ => "XLEN",
        };
        let elements = redis::cmd(count).arg(&key).query(connection).unwrap();
        all.insert(key, Told { kind, encoding, elements, bytes });
    }
    all
}

/// The snapshot that the server writes to its disk.
pub fn file(connection: &mut Connection) -> Vec<u8> {
    redis::cmd("SAVE").exec(connection).unwrap();
    let (_, folder): (String, String) = redis::cmd("CONFIG").arg("GET").arg("dir").query(connection).unwrap();
    let (_, name): (String, String) = redis::cmd("CONFIG").arg("GET").arg("dbfilename").query(connection).unwrap();
    std::fs::read(std::path::Path::new(&folder).join(name)).unwrap()
}
