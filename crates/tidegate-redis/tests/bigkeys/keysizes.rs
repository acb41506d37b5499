//! `INFO keysizes`: a real server behind a door that answers for it as Redis 8 would.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use tidegate_conformance::servers::{Engine, Redis};
use tidegate_redis::RedisOptions;
use tidegate_redis::bigkeys::{BigKeysOptions, Kind, Report, Route, big_keys};

use crate::planted;

/// Listens until the test ends; each connection has a thread, which ends with it.
fn door(server: &Redis, says: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (port, says) = (server.port(), says.to_owned());
    thread::spawn(move || {
        for client in listener.incoming() {
            let (client, says) = (client.unwrap(), says.clone());
            let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
            thread::spawn(move || relay(client, server, &says));
        }
    });
    format!("redis://{address}")
}

/// Passes commands on one by one. Key sizes are what the test `says`; snapshots are forbidden.
fn relay(client: TcpStream, server: TcpStream, says: &str) -> io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut to_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
    let (mut client, mut server) = (BufReader::new(client), BufReader::new(server));
    loop {
        let command = part(&mut client)?;
        let text = String::from_utf8_lossy(&command).to_uppercase();
        let answer = if text.contains("KEYSIZES") {
            format!("${}\r\n{says}\r\n", says.len()).into_bytes()
        } else if text.contains("PSYNC") || text.contains("REPLCONF") {
            b"-NOPERM snapshots are forbidden here\r\n".to_vec()
        } else {
            to_server.write_all(&command)?;
            part(&mut server)?
        };
        to_client.write_all(&answer)?;
    }
}

/// A command or an answer as it was sent.
fn part(from: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    if from.read_until(b'\n', &mut all)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let length: i64 = String::from_utf8_lossy(&all[1..]).trim().parse().unwrap_or(-1);
    match (all[0], usize::try_from(length)) {
        (b'$', Ok(length)) => {
            let begin = all.len();
            all.resize(begin + length + 2, 0);
            from.read_exact(&mut all[begin..])?;
        }
        (b'*', Ok(length)) => {
            for _ in 0..length {
                all.extend(part(from)?);
            }
        }
        _ => {}
    }
    Ok(all)
}

async fn look(url: &str, route: Route) -> tidegate_backend::Result<Report> {
    big_keys(&RedisOptions::parse(url).unwrap(), &BigKeysOptions { route, top: 5, ..BigKeysOptions::default() }).await
}

fn says(report: &Report, words: &str) -> bool {
    report.notes.iter().any(|note| note.contains(words))
}

fn filled() -> Redis {
    let server = planted::server(Engine::default());
    let script =
        "for i = 1, 200 do redis.call('SET', 'k' .. i, 'x') end redis.call('SET', 'large', string.rep('x', 3000000))";
    server.tell(&["EVAL", script, "0"]);
    server
}

const FITTING: &str = "# Keysizes\r\ndb0_distrib_strings_sizes:1=200,2M=1\r\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sizes_without_names() {
    let server = filled();
    let report = look(&door(&server, FITTING), Route::KeySizes).await.unwrap();
    assert_eq!((report.route, report.scanned, report.total, report.confidence), ("keysizes", 201, 201, 1.0));
    assert!(report.items.is_empty() && report.bytes == 0, "{report:?}");
    let [of] = &report.sizes[..] else { panic!("{report:?}") };
    assert_eq!((of.kind, of.is_bytes, &of.bins[..], of.big()), (Kind::String, true, &[(1, 200), (2 << 20, 1)][..], 1));
    assert!(says(&report, "experimental") && says(&report, "1 keys are big"), "{:?}", report.notes);
}

/// Where something is big, or may be, its name is looked for; where nothing can be, that is all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whether_a_look_at_every_key_is_worth_it() {
    let server = filled();
    let report = look(&door(&server, FITTING), Route::Auto).await.unwrap();
    assert_eq!((report.route, report.scanned), ("scan", 201));
    assert_eq!(report.items[0].name, b"large");
    assert!(says(&report, "1 keys are big") && !report.sizes.is_empty(), "{:?}", report.notes);
    server.tell(&["DEL", "large"]);
    let small = "# Keysizes\r\ndb0_distrib_strings_sizes:1=200\r\n";
    let report = look(&door(&server, small), Route::Auto).await.unwrap();
    assert_eq!((report.route, report.scanned, report.items.len()), ("keysizes", 200, 0));
    assert!(says(&report, "nothing is big"), "{:?}", report.notes);
    server.tell(&["HSET", "h", "f", "v"]);
    let hash = "# Keysizes\r\ndb0_distrib_strings_sizes:1=200\r\ndb0_distrib_hashes_items:1=1\r\n";
    let report = look(&door(&server, hash), Route::Auto).await.unwrap();
    assert_eq!((report.route, report.scanned), ("scan", 201), "a field may be large");
}

/// O14: what does not agree with DBSIZE is not believed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sums_that_are_off() {
    let server = filled();
    for text in [
        "# Keysizes\r\ndb0_distrib_strings_sizes:0=18446744073709507420,1=150\r\n",
        "# Keysizes\r\ndb0_distrib_strings_sizes:1=250\r\n",
        "# Keysizes\r\n",
    ] {
        for route in [Route::KeySizes, Route::Auto] {
            let report = look(&door(&server, text), route).await.unwrap();
            assert_eq!(
                (report.route, report.scanned, &report.items[0].name[..]),
                ("scan", 201, &b"large"[..]),
                "{text}"
            );
            assert!(says(&report, "more than 1 % apart") && report.sizes.is_empty(), "{:?}", report.notes);
        }
    }
    // Near enough, and below zero: believed, and said.
    let text = "# Keysizes\r\ndb0_distrib_strings_sizes:0=18446744073709551615,1=200,2M=1\r\n";
    let report = look(&door(&server, text), Route::KeySizes).await.unwrap();
    assert!(report.route == "keysizes" && says(&report, "1 bins had gone below zero"), "{:?}", report.notes);
}

/// Servers before Redis 8, and Valkey.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_without_key_sizes() {
    for engine in [Engine::Redis, Engine::Valkey] {
        let server = planted::server(engine);
        server.tell(&["SET", "a", "b"]);
        let e = look(&server.url(), Route::KeySizes).await.unwrap_err();
        assert!(e.to_string().contains("has no INFO keysizes") && e.to_string().contains("another route: auto"), "{e}");
        assert_eq!(look(&server.url(), Route::Auto).await.unwrap().route, "snapshot");
    }
}
