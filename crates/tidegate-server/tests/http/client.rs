//! A server on a free port with a ledger of its own, and a client that hides nothing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate::lock::LockStore;
use tidegate::queue::{QueueOptions, QueueStore};
use tidegate::{Embedded, Options, Parts, Tidegate};
use tidegate_server::{Limits, Namespace, RedisWatch, Server, ServerConfig, Token};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A running server.
pub struct Api {
    pub address: SocketAddr,
    pub tidegate: Tidegate,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<()>,
    folder: tempfile::TempDir,
}

/// An answer.
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// With the beginning of the body.
impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let body = String::from_utf8_lossy(&self.body[..self.body.len().min(2_000)]);
        write!(f, "{} {:?} {} bytes: {body}", self.status, self.headers, self.body.len())
    }
}

impl Reply {
    /// A header's value, or the empty text.
    pub fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// The problem's code; panics unless this is a whole problem document.
    pub fn code(&self) -> String {
        assert_eq!(self.header("content-type"), "application/problem+json", "{self:?}");
        let problem = self.json();
        assert_eq!(problem["status"], self.status, "{problem}");
        let code = problem["code"].as_str().expect("a code").to_owned();
        assert_eq!(problem["type"], format!("/problems/{code}"));
        assert!(problem["title"].is_string() && problem["retryable"].is_boolean(), "{problem}");
        assert!(problem["detail"].as_str().is_some_and(|d| d.len() > 10), "{problem}");
        code
    }

    /// The pointers of an `invalid`.
    pub fn pointers(&self) -> Vec<String> {
        let errors = self.json()["errors"].as_array().cloned().unwrap_or_default();
        errors.iter().map(|e| e["pointer"].as_str().expect("a pointer").to_owned()).collect()
    }
}

impl Api {
    /// A server with a manual clock and no tokens.
    pub async fn start() -> Self {
        Self::with(Vec::new(), true, Limits::default()).await
    }

    /// A server with these bounds.
    pub async fn limited(limits: Limits) -> Self {
        Self::with(Vec::new(), true, limits).await
    }

    /// A server as given.
    pub async fn with(tokens: Vec<Token>, manual_clock: bool, limits: Limits) -> Self {
        Self::whole(tokens, manual_clock, limits, Vec::new()).await
    }

    /// A server with these namespaces.
    pub async fn caching(namespaces: Vec<Namespace>) -> Self {
        Self::whole(Vec::new(), true, Limits::default(), namespaces).await
    }

    /// A server as given, with these namespaces.
    pub async fn whole(tokens: Vec<Token>, manual_clock: bool, limits: Limits, namespaces: Vec<Namespace>) -> Self {
        Self::in_folder(tempfile::tempdir().expect("a folder"), tokens, manual_clock, limits, namespaces).await
    }

    /// A server with queues and locks in this process.
    pub async fn leasing() -> Self {
        Self::leasing_as(QueueOptions::default(), Vec::new(), Limits::default()).await
    }

    /// The same as given.
    pub async fn leasing_as(options: QueueOptions, tokens: Vec<Token>, limits: Limits) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let parts = Embedded::at(folder.path().join("ledger.db")).manual_clock(true).full_sync(false);
        let parts = parts.queues(options).locks().open().await.expect("the stores");
        Self::on(parts, folder, tokens, limits, Vec::new()).await
    }

    /// A server with these queues and locks.
    pub async fn leasing_on(queues: Arc<dyn QueueStore>, locks: Arc<dyn LockStore>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let parts = Embedded::at(folder.path().join("ledger.db")).manual_clock(true).full_sync(false);
        let mut parts = parts.open().await.expect("a ledger");
        (parts.queues, parts.locks) = (Some(queues), Some(locks));
        Self::on(parts, folder, Vec::new(), Limits::default(), Vec::new()).await
    }

    /// A server on these stores.
    pub async fn leasing_from(parts: Parts) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self::on(parts, folder, Vec::new(), Limits::default(), Vec::new()).await
    }

    /// Stops, and starts another with queues and locks on the same files.
    pub async fn leasing_again(mut self) -> Self {
        self.begin_stop();
        let Self { tidegate, serving, folder, .. } = self;
        serving.await.expect("no panic");
        tidegate.stop(Duration::from_secs(5)).await.expect("an orderly end");
        let parts = Embedded::at(folder.path().join("ledger.db")).manual_clock(true).full_sync(false);
        let parts = parts.queues(QueueOptions::default()).locks().open().await.expect("the stores");
        Self::on(parts, folder, Vec::new(), Limits::default(), Vec::new()).await
    }

    /// Stops, and starts another on the same ledger, with a manual clock and no tokens.
    pub async fn restarted(mut self) -> Self {
        self.begin_stop();
        let Self { tidegate, serving, folder, .. } = self;
        serving.await.expect("no panic");
        tidegate.stop(Duration::from_secs(5)).await.expect("an orderly end");
        Self::in_folder(folder, Vec::new(), true, Limits::default(), Vec::new()).await
    }

    async fn in_folder(
        folder: tempfile::TempDir,
        tokens: Vec<Token>,
        manual_clock: bool,
        limits: Limits,
        namespaces: Vec<Namespace>,
    ) -> Self {
        let parts = Embedded::at(folder.path().join("ledger.db"))
            .manual_clock(manual_clock)
            .full_sync(false)
            .open()
            .await
            .expect("a ledger");
        Self::on(parts, folder, tokens, limits, namespaces).await
    }

    async fn on(
        parts: Parts,
        folder: tempfile::TempDir,
        tokens: Vec<Token>,
        limits: Limits,
        namespaces: Vec<Namespace>,
    ) -> Self {
        Self::showing(parts, folder, tokens, limits, namespaces, None).await
    }

    /// A server with this watch over Redis.
    pub async fn watching(redis: RedisWatch) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let parts = Embedded::at(folder.path().join("ledger.db")).full_sync(false).open().await.expect("a ledger");
        Self::showing(parts, folder, Vec::new(), Limits::default(), Vec::new(), Some(redis)).await
    }

    async fn showing(
        parts: Parts,
        folder: tempfile::TempDir,
        tokens: Vec<Token>,
        limits: Limits,
        namespaces: Vec<Namespace>,
        redis: Option<RedisWatch>,
    ) -> Self {
        let tidegate = Tidegate::start(parts, Options::default()).await.expect("an instance");
        let listen = "127.0.0.1:0".parse().expect("an address");
        let manual_clock = tidegate.operations().clock().manual;
        let config =
            ServerConfig { listen, tokens, manual_clock, limits, surface: Default::default(), namespaces, redis };
        let server = Server::bind(config, tidegate.clone()).expect("a server");
        let address = server.local_addr();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(async move {
            server.serve(async { drop(stopped.await) }).await.expect("an orderly end");
        });
        Self { address, tidegate, stop: Some(stop), serving, folder }
    }

    /// Begins to stop.
    pub fn begin_stop(&mut self) {
        drop(self.stop.take());
    }

    /// Stops and waits for the end.
    pub async fn stop(mut self) {
        self.begin_stop();
        self.ended().await;
    }

    /// Waits for the end of a server that was told to stop, then stops its instance.
    pub async fn ended(self) {
        tokio::time::timeout(Duration::from_secs(10), self.serving)
            .await
            .expect("an end within 10 s")
            .expect("no panic");
        self.tidegate.stop(Duration::from_secs(5)).await.expect("an orderly end");
    }

    /// A raw connection.
    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("a connection")
    }

    /// A request with a JSON body.
    pub async fn send(&self, method: &str, path: &str, body: Value) -> Reply {
        self.raw(method, path, &[("content-type", "application/json")], body.to_string().as_bytes()).await
    }

    /// A request without a body.
    pub async fn get(&self, path: &str) -> Reply {
        self.raw("GET", path, &[], b"").await
    }

    /// A request as given, on a connection of its own.
    pub async fn raw(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            head.push_str(&format!("host: {}\r\n", self.address));
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() || method != "GET" {
            head.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        self.bytes(&[head.as_bytes(), body].concat()).await
    }

    /// Bytes as given; reads until the server closes.
    pub async fn bytes(&self, bytes: &[u8]) -> Reply {
        let mut connection = self.connect().await;
        connection.write_all(bytes).await.expect("sent");
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).await.expect("an answer");
        parse(&answer)
    }

    /// Sends a request and does not wait for its answer.
    pub async fn begin(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &Value) -> TcpStream {
        let body = body.to_string();
        let mut head =
            format!("{method} {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n", self.address);
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
        let mut connection = self.connect().await;
        connection.write_all(head.as_bytes()).await.expect("sent");
        connection
    }

    /// Creates a SKU with this stock.
    pub async fn sku(&self, sku: &str, on_hand: i64) {
        let reply = self.send("PUT", &format!("/v1/skus/{sku}"), json!({"on_hand": on_hand})).await;
        assert_eq!(reply.status, 201, "{reply:?}");
    }

    /// Places an order for `quantity` of `sku`.
    pub async fn place(&self, id: &str, sku: &str, quantity: i64) -> Reply {
        let body = json!({"order_id": id, "buyer_id": "b", "lines": [{"sku": sku, "quantity": quantity}]});
        self.send("POST", "/v1/orders", body).await
    }
}

/// One whole response.
pub fn parse(bytes: &[u8]) -> Reply {
    let end = bytes
        .windows(4)
        .position(|w| w == b"\r\n\r\n")
        .unwrap_or_else(|| panic!("no head in {:?}", String::from_utf8_lossy(bytes)));
    let head = std::str::from_utf8(&bytes[..end]).expect("an ASCII head");
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|s| s.parse().ok()).expect("a status");
    let headers = lines.filter_map(|line| line.split_once(": ")).map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
    Reply { status, headers, body: bytes[end + 4..].to_vec() }
}

/// Reads one response with a `Content-Length` from a connection that stays open.
pub async fn read_one(connection: &mut TcpStream) -> Reply {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            let length: usize = parse(&bytes).header("content-length").parse().expect("a length");
            if bytes.len() >= end + 4 + length {
                return parse(&bytes);
            }
        }
        let mut piece = [0; 4096];
        let n = connection.read(&mut piece).await.expect("bytes");
        assert!(n > 0, "closed in the middle: {:?}", String::from_utf8_lossy(&bytes));
        bytes.extend_from_slice(&piece[..n]);
    }
}
