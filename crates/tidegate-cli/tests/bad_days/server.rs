//! The binary under test, and a small blocking client.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// How long a server may take to become ready. Starting is fast; the machine may not be.
const READY: Duration = Duration::from_secs(30);

/// A running `tidegate serve`.
pub struct Server {
    pub child: Child,
    pub folder: PathBuf,
    pub address: SocketAddr,
    pub api: Api,
    log: std::fs::File,
}

/// What to start, and how.
pub struct Start {
    folder: PathBuf,
    envs: Vec<(String, String)>,
    wrapper: Vec<String>,
    stores: Vec<String>,
}

impl Start {
    /// A server with its ledger in `folder`.
    pub fn in_folder(folder: &Path) -> Self {
        let stores = vec!["--ledger".to_owned(), format!("sqlite:{}", folder.join("ledger.db").display())];
        Self { folder: folder.to_owned(), envs: Vec::new(), wrapper: Vec::new(), stores }
    }

    /// A server on a ledger and a store that others have, too.
    pub fn on(ledger: &str, store: &str) -> Self {
        let stores = ["--ledger", ledger, "--store", store].map(str::to_owned).to_vec();
        Self { folder: std::env::temp_dir(), envs: Vec::new(), wrapper: Vec::new(), stores }
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.envs.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Runs the server as the last arguments of this command.
    pub fn wrapped(mut self, words: &[&str]) -> Self {
        self.wrapper = words.iter().map(|w| (*w).to_owned()).collect();
        self
    }

    fn command(&self, address: SocketAddr) -> Command {
        let binary = env!("CARGO_BIN_EXE_tidegate");
        let mut command = match self.wrapper.split_first() {
            None => Command::new(binary),
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(binary);
                command
            }
        };
        command.args(["serve", "--listen", &address.to_string()]).args(&self.stores);
        command.envs(self.envs.iter().map(|(k, v)| (k, v))).current_dir(std::env::temp_dir());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    /// Starts it and waits until it is ready.
    pub fn ready(self) -> Server {
        let address = free_address();
        let mut command = self.command(address);
        // A pipe nobody reads would fill; the log goes to a file beside the ledger's folder.
        let log = tempfile::tempfile().expect("a temporary file");
        command.stderr(log.try_clone().expect("a second handle"));
        let mut child = command.spawn().expect("the binary starts");
        let api = Api::new(address);
        let begun = Instant::now();
        loop {
            if let Some(status) = child.try_wait().expect("its state can be asked") {
                panic!("the server ended with {status}: {}", text_of(&log));
            }
            if api.get("/readyz").is_some_and(|reply| reply.status == 200) {
                return Server { child, folder: self.folder, address, api, log };
            }
            assert!(begun.elapsed() < READY, "not ready within {READY:?}: {}", text_of(&log));
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Starts it, expecting it to end by itself: its exit code and what it said.
    pub fn refused(self) -> (Option<i32>, String) {
        let output = self.command(free_address()).output().expect("the binary starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// From its beginning; whoever writes to it shares the handle's place and must not be moved.
fn text_of(log: &std::fs::File) -> String {
    use std::os::unix::fs::FileExt;
    let mut bytes = vec![0; log.metadata().map_or(0, |file| usize::try_from(file.len()).unwrap_or(0))];
    let read = log.read_at(&mut bytes, 0).unwrap_or(0);
    String::from_utf8_lossy(&bytes[..read]).into_owned()
}

/// An address of the loopback that nobody uses now.
pub fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port")
}

impl Server {
    /// What it has logged.
    pub fn log(&self) -> String {
        text_of(&self.log)
    }

    /// kill -9.
    pub fn kill(mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }

    /// SIGTERM, and the way it ended; no longer than ten seconds.
    pub fn terminate(self) -> ExitStatus {
        signal(self.child.id(), "TERM");
        self.ended(Instant::now())
    }

    /// The way it ends after a SIGTERM that was sent at `begun`; no longer than ten seconds since.
    pub fn ended(mut self, begun: Instant) -> ExitStatus {
        loop {
            if let Some(status) = self.child.try_wait().expect("its state can be asked") {
                return status;
            }
            assert!(begun.elapsed() < Duration::from_secs(10), "SIGTERM did not end it within 10 s");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Resident memory, KiB.
    pub fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("it has memory");
        line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal by name.
pub fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().expect("kill runs");
    assert!(status.success());
}

/// An answer.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub json: Value,
    headers: Vec<(String, String)>,
}

impl Reply {
    /// A header's value, or the empty text.
    pub fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(n, _)| n == name).map_or("", |(_, value)| value)
    }

    pub fn code(&self) -> &str {
        self.json["code"].as_str().unwrap_or_default()
    }
}

/// A blocking client; clones share connections.
#[derive(Clone)]
pub struct Api {
    agent: ureq::Agent,
    base: String,
}

impl Api {
    pub fn new(address: SocketAddr) -> Self {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(20)))
            .max_idle_connections_per_host(64)
            .proxy(None)
            .build();
        Self { agent: config.new_agent(), base: format!("http://{address}") }
    }

    fn reply(answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Option<Reply> {
        let mut response = answer.ok()?;
        let status = response.status().as_u16();
        let text = response.body_mut().read_to_string().ok()?;
        let headers = response.headers().iter();
        let headers =
            headers.map(|(n, value)| (n.to_string(), value.to_str().unwrap_or_default().to_owned())).collect();
        Some(Reply { status, json: serde_json::from_str(&text).unwrap_or(Value::Null), headers })
    }

    /// `None`: no whole answer came.
    pub fn get(&self, path: &str) -> Option<Reply> {
        Self::reply(self.agent.get(format!("{}{path}", self.base)).call())
    }

    pub fn post(&self, path: &str, body: &Value) -> Option<Reply> {
        Self::reply(self.agent.post(format!("{}{path}", self.base)).send_json(body))
    }

    pub fn put(&self, path: &str, body: &Value) -> Option<Reply> {
        Self::reply(self.agent.put(format!("{}{path}", self.base)).send_json(body))
    }

    pub fn delete(&self, path: &str) -> Option<Reply> {
        Self::reply(self.agent.delete(format!("{}{path}", self.base)).call())
    }

    pub fn sku(&self, sku: &str, on_hand: i64) {
        let reply = self
            .put(&format!("/v1/skus/{sku}"), &json!({"on_hand": on_hand, "price": {"amount": 100, "currency": "EUR"}}));
        assert_eq!(reply.map(|r| r.status), Some(201));
    }

    pub fn place(&self, id: &str, sku: &str, quantity: i64, hold_seconds: i64) -> Option<Reply> {
        let lines = json!([{"sku": sku, "quantity": quantity}]);
        self.post("/v1/orders", &json!({"order_id": id, "buyer_id": "b", "lines": lines, "hold_seconds": hold_seconds}))
    }

    pub fn pay(&self, id: &str) -> Option<Reply> {
        self.post(&format!("/v1/orders/{id}/payments"), &json!({"payment_id": format!("p-{id}")}))
    }

    pub fn cancel(&self, id: &str) -> Option<Reply> {
        self.post(&format!("/v1/orders/{id}/cancel"), &json!({}))
    }

    pub fn order(&self, id: &str) -> Value {
        let reply = self.get(&format!("/v1/orders/{id}")).expect("an answer");
        assert_eq!(reply.status, 200, "{id}: {reply:?}");
        reply.json
    }

    pub fn counts(&self, sku: &str) -> [i64; 3] {
        let json = self.get(&format!("/v1/skus/{sku}")).expect("an answer").json;
        ["available", "held", "sold"].map(|count| json[count].as_i64().unwrap_or_else(|| panic!("{json}")))
    }

    /// The kinds of an order's events, oldest first.
    pub fn events(&self, id: &str) -> Vec<String> {
        let json = self.get(&format!("/v1/orders/{id}/events?limit=500")).expect("an answer").json;
        let items = json["items"].as_array().cloned().unwrap_or_default();
        items.iter().map(|event| event["type"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// How ready it says it is, and why not wholly.
    pub fn readiness(&self) -> String {
        self.get("/readyz").map_or_else(|| "no answer".to_owned(), |reply| reply.json.to_string())
    }

    /// Every invariant holds.
    pub fn check(&self) {
        let report = self.post("/v1/admin/reconcile", &json!({})).expect("an answer");
        assert_eq!(report.status, 200, "{report:?}");
        let broken: Vec<_> = report.json["findings"]
            .as_array()
            .expect("a list")
            .iter()
            .filter(|f| !f.to_string().contains("I9"))
            .collect();
        assert!(broken.is_empty(), "{broken:?}");
        assert!(report.json["checked"].as_u64().is_some_and(|n| n > 0), "{report:?}");
    }

    /// Waits until `done`, no longer than `patience`.
    pub fn wait(&self, what: &str, patience: Duration, mut done: impl FnMut(&Self) -> bool) {
        let begun = Instant::now();
        while !done(self) {
            assert!(begun.elapsed() < patience, "{what}: not within {patience:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
