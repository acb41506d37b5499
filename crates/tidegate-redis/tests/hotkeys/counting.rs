//! A server that counts itself: enough of Redis 8.6, as its documentation has it.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidegate_redis::RedisOptions;
use tidegate_redis::hotkeys::{HotKeysOptions, Source, hot_keys};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

const COUNTED: &str = "*1\r\n*20\r\n$15\r\ntracking-active\r\n:0\r\n$12\r\nsample-ratio\r\n:1\r\n$14\r\nselected-slots\r\n*0\r\n\
    $25\r\nall-commands-all-slots-us\r\n:220\r\n$32\r\nnet-bytes-all-commands-all-slots\r\n:200\r\n\
    $29\r\ncollection-start-time-unix-ms\r\n:1769420604522\r\n$22\r\ncollection-duration-ms\r\n:1100\r\n\
    $22\r\ntotal-cpu-time-user-ms\r\n:3\r\n$21\r\ntotal-cpu-time-sys-ms\r\n:11\r\n\
    $14\r\nby-cpu-time-us\r\n*6\r\n$1\r\nx\r\n:110\r\n$1\r\ny\r\n:98\r\n$1\r\nz\r\n:11\r\n";

/// How it answers.
#[derive(Clone, Copy)]
struct Ways {
    version: &'static str,
    start: &'static str,
    get: &'static str,
}

struct Fake {
    port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Fake {
    async fn start(ways: Ways) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, ways, Arc::clone(&seen)));
            }
        });
        Self { port, asked }
    }

    fn options(&self) -> RedisOptions {
        RedisOptions::parse(&format!("redis://127.0.0.1:{}", self.port)).unwrap()
    }

    /// What it was asked of hot keys.
    fn asked(&self) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|command| command.starts_with("HOTKEYS")).cloned().collect()
    }
}

async fn line(from: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    (from.read_line(&mut line).await.ok()? > 0).then(|| line.trim_end().to_owned())
}

async fn serve(stream: TcpStream, ways: Ways, asked: Arc<Mutex<Vec<String>>>) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let count: usize = line(&mut stream).await?.strip_prefix('*')?.parse().ok()?;
        let mut words = Vec::with_capacity(count);
        for _ in 0..count {
            let length: usize = line(&mut stream).await?.strip_prefix('$')?.parse().ok()?;
            let mut word = vec![0; length + 2];
            stream.read_exact(&mut word).await.ok()?;
            words.push(String::from_utf8_lossy(&word[..length]).into_owned());
        }
        let info = format!("# Server\r\nredis_version:{}\r\nuptime_in_seconds:9\r\n", ways.version);
        let answer = match (&words[0].to_uppercase()[..], words.get(1).map(String::as_str)) {
            ("INFO", _) => format!("${}\r\n{info}\r\n", info.len()),
            ("HOTKEYS", Some("START")) => ways.start.to_owned(),
            ("HOTKEYS", Some("GET")) => ways.get.to_owned(),
            ("HOTKEYS", _) => "+OK\r\n".to_owned(),
            ("ZRANGE", _) => "*0\r\n".to_owned(),
            ("CLIENT" | "SELECT" | "PING", _) => "+OK\r\n".to_owned(),
            _ => "-ERR unknown command\r\n".to_owned(),
        };
        asked.lock().unwrap().push(words.join(" "));
        stream.get_mut().write_all(answer.as_bytes()).await.ok()?;
    }
}

const WAYS: Ways = Ways { version: "8.6.0", start: "+OK\r\n", get: COUNTED };
const A_SECOND: HotKeysOptions = HotKeysOptions { seconds: 1, top: 2 };

#[tokio::test]
async fn a_server_that_counts_is_asked_to_for_a_while() {
    let fake = Fake::start(WAYS).await;
    let began = Instant::now();
    let found = hot_keys(&fake.options(), &A_SECOND).await.unwrap();
    assert!(began.elapsed() >= Duration::from_secs(1));
    assert_eq!((found.source, found.seconds, found.processes), (Source::Native, 1.1, 0));
    let keys: Vec<_> = found.items.iter().map(|hot| (&hot.name[..], hot.share, hot.per_second)).collect();
    assert_eq!(keys, [(&b"x"[..], 0.5, None), (&b"y"[..], 98.0 / 220.0, None)]);
    assert!(found.items[0].cpu_us_per_second.is_some_and(|us| (us - 100.0).abs() < 1e-9));
    assert!(found.notes.iter().any(|note| note.contains("experimental")), "{:?}", found.notes);
    let start = "HOTKEYS START METRICS 1 CPU COUNT 2 DURATION 2";
    assert_eq!(fake.asked(), [start, "HOTKEYS STOP", "HOTKEYS GET", "HOTKEYS RESET"]);
}

#[tokio::test]
async fn a_count_of_somebody_else_s_is_read_and_left_alone() {
    let busy = "-ERR hotkey tracking session already in progress\r\n";
    let fake = Fake::start(Ways { start: busy, ..WAYS }).await;
    let found = hot_keys(&fake.options(), &A_SECOND).await.unwrap();
    assert_eq!((found.source, found.items.len()), (Source::Native, 2));
    assert!(found.notes.iter().any(|note| note.contains("left alone")), "{:?}", found.notes);
    assert_eq!(fake.asked()[1..], ["HOTKEYS GET"]);
}

#[tokio::test]
async fn what_cannot_be_had_or_does_not_add_up_is_not_used() {
    const TOO_MUCH: &str = "*6\r\n$25\r\nall-commands-all-slots-us\r\n:100\r\n$22\r\ncollection-duration-ms\r\n:1000\r\n\
        $14\r\nby-cpu-time-us\r\n*2\r\n$1\r\nx\r\n:120\r\n";
    for (ways, asked, noted) in [
        (Ways { version: "8.4.0", ..WAYS }, 0, "no process tells"),
        (Ways { start: "-NOPERM no permissions to run the 'hotkeys' command\r\n", ..WAYS }, 1, "no permissions"),
        (Ways { start: "-ERR unknown command 'HOTKEYS'\r\n", ..WAYS }, 1, "unknown command"),
        (Ways { get: "*-1\r\n", ..WAYS }, 4, "do not add up"),
        (Ways { get: TOO_MUCH, ..WAYS }, 4, "do not add up"),
    ] {
        let fake = Fake::start(ways).await;
        let found = hot_keys(&fake.options(), &A_SECOND).await.unwrap();
        assert_eq!((found.source, found.items.len()), (Source::Sketch, 0), "{found:?}");
        assert_eq!(fake.asked().len(), asked, "{:?}", fake.asked());
        assert!(found.notes.iter().any(|note| note.contains(noted)), "{noted}: {found:?}");
    }
}
