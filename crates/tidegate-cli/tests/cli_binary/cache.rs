//! `/v1/cache` of the real binary, on each kind of store, with an origin that counts.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tidegate_conformance::servers::{
    Cluster, Engine, MariaDb, Postgres, Process, Redis, find, free_port, make_certificates, wait_until,
};

use crate::support::{Serve, command, folder, run, write};

/// What an origin was asked: how often each key, and which key when.
#[derive(Default)]
struct Asked {
    calls: HashMap<String, u64>,
    when: Vec<(Instant, String)>,
}

/// An origin: `/v/KEY` answers `KEY n`, where `n` counts its calls; keys that begin with a word do what it says.
pub struct Origin {
    address: SocketAddr,
    asked: Arc<Mutex<Asked>>,
}

impl Origin {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let asked = Arc::new(Mutex::new(Asked::default()));
        let counted = Arc::clone(&asked);
        // Ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let asked = Arc::clone(&counted);
                // A client that has gone is none of its business.
                std::thread::spawn(move || drop(answer(stream, &asked)));
            }
        });
        Self { address, asked }
    }

    fn calls(&self, key: &str) -> u64 {
        self.asked.lock().expect("not poisoned").calls.get(key).copied().unwrap_or(0)
    }

    /// What it was asked since, in order, and when.
    pub fn asked_since(&self, since: Instant) -> Vec<(Instant, String)> {
        let asked = self.asked.lock().expect("not poisoned");
        asked.when.iter().filter(|(at, _)| *at >= since).cloned().collect()
    }

    /// A configuration with two namespaces of it.
    pub fn config(&self, more: &str) -> String {
        format!(
            "[cache.namespace.items]\nurl = \"http://{0}/v/{{key}}\"\nallow_private = true\nload_timeout = \"400ms\"\n\
             headers = {{ X-Shop = \"sesame\" }}\n{more}\n[cache.namespace.closed]\nurl = \"http://{0}/v/{{key}}\"\n",
            self.address
        )
    }
}

fn answer(stream: std::net::TcpStream, asked: &Mutex<Asked>) -> std::io::Result<()> {
    let (mut from, mut to) = (BufReader::new(stream.try_clone()?), stream);
    let (mut first, mut line) = (String::new(), String::new());
    from.read_line(&mut first)?;
    while from.read_line(&mut line)? > 2 {
        line.clear();
    }
    let key = first.split(' ').nth(1).and_then(|path| path.strip_prefix("/v/")).unwrap_or_default().to_owned();
    let call = {
        let mut asked = asked.lock().expect("not poisoned");
        asked.when.push((Instant::now(), key.clone()));
        let call = asked.calls.entry(key.clone()).or_default();
        *call += 1;
        *call
    };
    let (status, body) = match key.split('-').next().unwrap_or_default() {
        "none" => (404, Vec::new()),
        "gone" => (410, Vec::new()),
        "bad" => (500, Vec::new()),
        "huge" => (200, vec![b'x'; (16 << 20) + 1]),
        "late" => {
            std::thread::sleep(Duration::from_millis(1_500));
            (200, b"late".to_vec())
        }
        "slow" => {
            std::thread::sleep(Duration::from_millis(250));
            (200, format!("{key} {call}").into_bytes())
        }
        _ => (200, format!("{key} {call}").into_bytes()),
    };
    let head = format!(
        "HTTP/1.1 {status} x\r\ncontent-type: text/x-test\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    to.write_all(&[head.as_bytes(), &body].concat())
}

/// An answer: status, `X-Cache`, the problem's code or the body.
#[derive(Debug, PartialEq, Eq)]
pub struct Told(pub u16, pub String, pub String);

fn told(status: u16, from: &str, what: &str) -> Told {
    Told(status, from.to_owned(), what.to_owned())
}

pub struct Node(pub Serve);

impl Node {
    fn ask(&self, method: &str, path: &str) -> (Told, HashMap<String, String>) {
        let request = ureq::http::Request::builder().method(method).uri(format!("{}{path}", self.0.url)).body(());
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
        let mut answer = agent.run(request.expect("a request")).expect("an answer");
        let headers: HashMap<String, String> = answer
            .headers()
            .iter()
            .map(|(name, value)| (name.as_str().to_owned(), value.to_str().expect("ASCII").to_owned()))
            .collect();
        let body = answer.body_mut().with_config().limit(64 << 20).read_to_vec().expect("a body");
        let mut what = String::from_utf8(body).expect("text");
        if headers.get("content-type").is_some_and(|t| t == "application/problem+json") && !what.is_empty() {
            let problem: serde_json::Value = serde_json::from_str(&what).expect("JSON");
            what = problem["code"].as_str().expect("a code").to_owned();
        }
        (Told(answer.status().as_u16(), headers.get("x-cache").cloned().unwrap_or_default(), what), headers)
    }

    pub fn get(&self, key: &str) -> Told {
        self.ask("GET", &format!("/v1/cache/items/{key}")).0
    }

    fn delete(&self, key: &str) -> Told {
        self.ask("DELETE", &format!("/v1/cache/items/{key}")).0
    }
}

pub fn node(dir: &std::path::Path, name: &str, config: &str, stores: &[&str]) -> Node {
    let file = write(dir, name, config);
    Node(Serve::start(dir, &[&["--config", file.to_str().expect("UTF-8")], stores].concat()))
}

/// What one node answers, whatever its stores are.
fn one_node(a: &Node, origin: &Origin) {
    let (first, headers) = a.ask("GET", "/v1/cache/items/one");
    assert_eq!(first, told(200, "miss", "one 1"));
    assert_eq!((headers["content-type"].as_str(), headers["age"].as_str()), ("text/x-test", "0"));
    assert_eq!(a.get("one"), told(200, "hit-local", "one 1"));
    assert_eq!(a.get("one?read=strong"), told(200, "hit", "one 1"));
    assert_eq!(a.ask("HEAD", "/v1/cache/items/one").0, told(200, "hit-local", ""));
    for n in 2..6 {
        assert_eq!(a.delete("one"), told(204, "", ""));
        assert_eq!(a.get("one?read=strong"), told(200, "miss", &format!("one {n}")));
        assert_eq!(a.get("one"), told(200, "hit-local", &format!("one {n}")));
    }
    for key in ["none-1", "gone-1"] {
        for from in ["miss", "negative"] {
            assert_eq!(a.get(key), told(404, from, "absent"));
        }
    }
    for (key, status, code) in
        [("bad-1", 502, "origin-failed"), ("late-1", 504, "origin-timeout"), ("huge-1", 502, "origin-failed")]
    {
        assert_eq!(a.get(key), told(status, "miss", code));
        let (again, headers) = a.ask("GET", &format!("/v1/cache/items/{key}"));
        // The first back-off is 50 ms, and the machine may be slower than that.
        assert!(again.0 == status && again.2 == code && ["error", "miss"].contains(&&*again.1), "{again:?}");
        assert_eq!(headers["retry-after"], "1");
    }
    assert_eq!(a.ask("GET", "/v1/cache/closed/one").0, told(502, "miss", "origin-failed"), "its address is private");
    assert_eq!(a.ask("GET", "/v1/cache/nope/one").0, told(404, "", "unknown-namespace"));
    assert_eq!(a.get("%2E%2E"), told(422, "", "invalid"));
    assert_eq!(a.get("a%2F..%2Fb"), told(200, "miss", "a%2F..%2Fb 1"), "decoded once, encoded once");
    assert_eq!(a.delete("never"), told(204, "", ""));
    assert_eq!(a.ask("DELETE", "/v1/cache/items").0, told(204, "", ""));
    assert_eq!(a.get("one"), told(200, "miss", "one 6"));
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..40).map(|_| scope.spawn(|| a.get("slow-1").2)).collect();
        for reader in readers {
            assert_eq!(reader.join().expect("no panic"), "slow-1 1");
        }
    });
    assert_eq!(origin.calls("slow-1"), 1);
}

/// Two nodes on one store: one call for both, one delete for both, one failure for both.
fn two_nodes(a: &Node, b: &Node, origin: &Origin) {
    assert_eq!((a.get("two"), b.get("two")), (told(200, "miss", "two 1"), told(200, "hit", "two 1")));
    std::thread::scope(|scope| {
        let readers: Vec<_> =
            (0..40).map(|n| scope.spawn(move || if n % 2 == 0 { a } else { b }.get("slow-2").2)).collect();
        for reader in readers {
            assert_eq!(reader.join().expect("no panic"), "slow-2 1");
        }
    });
    assert_eq!(origin.calls("slow-2"), 1, "once for both");
    for round in 2..20 {
        let (writer, reader) = if round % 2 == 0 { (a, b) } else { (b, a) };
        reader.get("two");
        assert_eq!(writer.delete("two"), told(204, "", ""));
        let deleted = Instant::now();
        assert_eq!(writer.get("two?read=strong").2, format!("two {round}"));
        assert_eq!(reader.get("two?read=strong").2, format!("two {round}"), "a strong read of any node");
        while reader.get("two").2 != format!("two {round}") {
            assert!(deleted.elapsed() < Duration::from_millis(1_500), "{round} is not seen");
        }
    }
    // A back-off long enough to be met by the other node.
    for (key, status, code) in [("bad-2", 502, "origin-failed"), ("late-2", 504, "origin-timeout")] {
        let mut fresh = 0;
        while fresh < 5 {
            let answer = a.get(key);
            assert_eq!((answer.0, &*answer.2), (status, code));
            fresh += u32::from(answer.1 == "miss");
        }
        let calls = origin.calls(key);
        let (shared, headers) = b.ask("GET", &format!("/v1/cache/items/{key}"));
        assert_eq!(
            (shared, origin.calls(key)),
            (told(status, "error", code), calls),
            "no call for a failure that is known"
        );
        assert_eq!(headers["retry-after"], "1");
    }
    assert_eq!(b.get("none-2"), told(404, "miss", "absent"));
    assert_eq!(a.get("none-2"), told(404, "negative", "absent"));
}

fn on(ledger: &str, store: &str) {
    let (dir, origin) = (folder(), Origin::start());
    let stores = ["--ledger", ledger, "--store", store];
    let config = origin.config("");
    let [a, b] = ["a.toml", "b.toml"].map(|name| node(dir.path(), name, &config, &stores));
    one_node(&a, &origin);
    two_nodes(&a, &b, &origin);
    for Node(serve) in [a, b] {
        assert_eq!(serve.stop(Signal::TERM).0, Some(0));
    }
}

#[test]
fn a_cache_on_sqlite() {
    let (dir, origin) = (folder(), Origin::start());
    let a = node(dir.path(), "a.toml", &origin.config(""), &["--manual-clock"]);
    one_node(&a, &origin);
    let log = std::fs::read_to_string(dir.path().join("serve.log")).expect("a log");
    assert!(log.contains("closed") && log.contains("allow_private") && !log.contains("sesame"), "{log}");
    assert_eq!(a.0.stop(Signal::TERM).0, Some(0));
}

#[test]
fn a_cache_on_mariadb_and_redis() {
    let (mariadb, redis) = (MariaDb::start(), Redis::start());
    on(&mariadb.database(), &redis.url());
}

#[test]
fn a_cache_on_postgres_and_a_cluster() {
    let (postgres, cluster) = (Postgres::start(), Cluster::start(Engine::Redis, false));
    on(&postgres.database(), &cluster.url());
}

#[test]
fn nodes_without_a_store_have_caches_of_their_own() {
    let (postgres, dir, origin) = (Postgres::start(), folder(), Origin::start());
    let ledger = postgres.database();
    let [a, b] = ["a.toml", "b.toml"].map(|name| node(dir.path(), name, &origin.config(""), &["--ledger", &ledger]));
    assert_eq!((a.get("x"), b.get("x")), (told(200, "miss", "x 1"), told(200, "miss", "x 2")));
    assert_eq!(a.delete("x"), told(204, "", ""));
    assert_eq!(
        (a.get("x"), b.get("x?read=strong")),
        (told(200, "miss", "x 3"), told(200, "hit", "x 2")),
        "as the guide says"
    );
}

#[test]
fn a_delete_that_redis_did_not_take_is_no_success() {
    let (postgres, redis, dir, origin) = (Postgres::start(), Redis::start(), folder(), Origin::start());
    let (ledger, store) = (postgres.database(), redis.url());
    let a = node(dir.path(), "a.toml", &origin.config(""), &["--ledger", &ledger, "--store", &store]);
    assert_eq!(a.get("x"), told(200, "miss", "x 1"));
    redis.freeze();
    let (refused, headers) = a.ask("DELETE", "/v1/cache/items/x");
    assert_eq!(refused, told(503, "", "store-unavailable"));
    assert!(headers["retry-after"].parse::<u32>().is_ok_and(|s| s > 0), "{headers:?}");
    assert_eq!(a.ask("DELETE", "/v1/cache/items").0, told(503, "", "store-unavailable"));
    // Reads go on: an older value, and what is loaded without the store.
    let begun = Instant::now();
    assert_eq!(a.get("x").0, 200);
    assert_eq!(a.get("y").2, "y 1");
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    redis.thaw();
    let begun = Instant::now();
    while a.delete("x").0 != 204 {
        assert!(begun.elapsed() < Duration::from_secs(10));
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(a.get("x?read=strong").1, "miss");
}

#[test]
fn what_is_wrong_with_a_namespace_is_told_and_secrets_are_not() {
    let dir = folder();
    let check = |toml: &str| {
        let file = write(dir.path(), "t.toml", toml);
        run(&["config", "check", "--config", file.to_str().expect("UTF-8")])
    };
    let secret = write(dir.path(), "secret", "Bearer sesame\n");
    let good = format!(
        "[cache.namespace.items]\nurl = \"https://h/{{key}}?token=sesame\"\nheaders = {{ X-Shop = \"sesame\", Authorization_file = \"{}\" }}\n",
        secret.display()
    );
    let shown = check(&good).expect(0, &[]).out;
    for want in
        ["cache.namespace.items.url", "https://h/{key}?token=***", "headers.authorization", "t.toml:2", "load_budget"]
    {
        assert!(shown.contains(want), "{want}: {shown}");
    }
    assert!(!shown.contains("sesame"), "{shown}");
    let refused = check(
        "[cache.namespace.items]\nurl = \"http://{key}/\"\nheaders = { Host = \"sesame\" }\nfresh_for = \"0s\"\n",
    );
    let refused = refused.expect(2, &["t.toml:4: cache.namespace.items.fresh_for"]);
    assert!(!refused.err.contains("sesame"), "{refused:?}");
    check("[cache.namespace.products]\nurl = \"http://h/{key}\"\n").expect(2, &["t.toml:1", "products"]);
    // From variables alone.
    let mut checked = command(&["config", "check", "--json"]);
    checked
        .env("TIDEGATE_CACHE_NAMESPACE_ITEMS_URL", "http://h/{key}")
        .env("TIDEGATE_CACHE_NAMESPACE_ITEMS_HEADERS_X_KEY", "sesame");
    let shown = String::from_utf8(checked.output().expect("it runs").stdout).expect("text");
    assert!(shown.contains("cache.namespace.items.headers.x-key") && !shown.contains("sesame"), "{shown}");
}

/// A line of the guide: what it asks, and what its comments say of the answer.
#[derive(Debug, Default)]
struct Example {
    method: String,
    path: String,
    says: Vec<(String, String)>,
}

/// The calls with curl in the guide's part on this.
fn examples() -> Vec<Example> {
    let guide = include_str!("../../../../docs/guides/cache.md");
    let part = guide.split("\n## ").find(|part| part.starts_with("A cache over HTTP")).expect("the part");
    let block = part.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).expect("its calls");
    let mut all: Vec<Example> = Vec::new();
    for line in block.lines() {
        let (call, comment) = line.split_once('#').unwrap_or((line, ""));
        if let Some(call) = call.trim().strip_prefix("curl -i ") {
            let (method, url) = match call.strip_prefix("-X ") {
                Some(rest) => rest.split_once(' ').expect("a method and a URL"),
                None => ("GET", call),
            };
            let path = url.trim().trim_matches('\'').strip_prefix("http://127.0.0.1:8080").expect("the usual address");
            all.push(Example { method: method.to_owned(), path: path.to_owned(), says: Vec::new() });
        }
        // `HTTP/1.1 200 OK`, `204; role ..`, `name: value    explanation`.
        let comment = comment.trim();
        let said = match comment.split_once(": ") {
            Some((name, value)) => Some((name, value.split("  ").next().unwrap_or_default())),
            None => comment
                .split([' ', ';', ','])
                .find(|word| word.len() == 3 && word.parse::<u16>().is_ok())
                .map(|n| ("status", n)),
        };
        if let (Some((name, value)), Some(example)) = (said, all.last_mut()) {
            example.says.push((name.to_owned(), value.to_owned()));
        }
    }
    all
}

#[test]
fn what_the_guide_says_is_what_is_answered() {
    let (dir, origin) = (folder(), Origin::start());
    let a = node(dir.path(), "a.toml", &origin.config(""), &[]);
    let examples = examples();
    let said: usize = examples.iter().map(|example| example.says.len()).sum();
    assert!(examples.len() == 5 && said == 8, "{examples:?}");
    for Example { method, path, says } in examples {
        let (answer, headers) = a.ask(&method, &path);
        assert!((200..300).contains(&answer.0), "{method} {path}: {answer:?}");
        for (name, value) in says {
            match name.as_str() {
                "status" => assert_eq!(answer.0.to_string(), value, "{path}"),
                "x-cache" => assert_eq!(answer.1, value, "{path}"),
                "age" => assert!(headers["age"].parse::<u32>().is_ok_and(|age| age <= 1), "{path}: {headers:?}"),
                "content-type" => assert_eq!(headers["content-type"], "text/x-test", "{path}: the origin's"),
                other => panic!("{other} is said of {path}"),
            }
        }
    }
    assert_eq!(a.0.stop(Signal::TERM).0, Some(0));
}

#[test]
fn an_https_origin_is_asked_if_the_systems_authorities_vouch_for_it() {
    let dir = folder();
    make_certificates(dir.path());
    let port = free_port();
    let page = "HTTP/1.0 200 OK\r\ncontent-type: text/plain\r\n\r\nsigned";
    write(dir.path(), "page", page);
    let mut openssl = std::process::Command::new(find("openssl", "openssl"));
    openssl.args([
        "s_server",
        "-accept",
        &format!("127.0.0.1:{port}"),
        "-cert",
        "server.crt",
        "-key",
        "server.key",
        "-HTTP",
        "-quiet",
    ]);
    openssl.current_dir(dir.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let _origin = Process::start(openssl);
    wait_until("openssl", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    let config = format!("[cache.namespace.items]\nurl = \"https://localhost:{port}/{{key}}\"\nallow_private = true\n");
    let file = write(dir.path(), "t.toml", &config);
    for (authorities, want) in
        [(Some("ca.crt"), told(200, "miss", "signed")), (None, told(502, "miss", "origin-failed"))]
    {
        let mut serve = command(&["serve", "--listen", "127.0.0.1:0", "--config", file.to_str().expect("UTF-8")]);
        serve.args(["--ledger", &crate::support::ledger(dir.path())]);
        if let Some(name) = authorities {
            serve.env("SSL_CERT_FILE", dir.path().join(name));
        }
        let log = std::fs::File::create(dir.path().join("serve.log")).expect("a log file");
        let node = Node(Serve::spawn(serve, dir.path(), log.into()));
        assert_eq!(node.get("page"), want, "{authorities:?}");
        assert_eq!(node.0.stop(Signal::TERM).0, Some(0));
    }
}
