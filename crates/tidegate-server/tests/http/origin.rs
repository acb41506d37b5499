//! An origin that does what a test says: counts, sleeps, lies, redirects, breaks.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A request as the origin saw it.
#[derive(Debug, Clone)]
pub struct Asked {
    pub path: String,
    pub head: String,
}

/// What the origin does with a request.
pub enum Act {
    /// Answers like this, after a while; the connection stays.
    Answer { status: u16, headers: Vec<(&'static str, String)>, body: Vec<u8>, after: Duration },
    /// Writes these pieces with a pause after each, then closes.
    Pieces(Vec<Vec<u8>>, Duration),
    /// Writes this again and again until the other side has enough.
    Endless(Vec<u8>, Vec<u8>),
    /// Says nothing and keeps the connection.
    Silence,
}

impl Act {
    /// A text.
    pub fn text(body: impl Into<String>) -> Self {
        Self::typed("text/plain", body.into())
    }

    /// A body of this media type.
    pub fn typed(media_type: &str, body: impl Into<Vec<u8>>) -> Self {
        let headers = vec![("content-type", media_type.to_owned())];
        Self::Answer { status: 200, headers, body: body.into(), after: Duration::ZERO }
    }

    /// Nothing but a status.
    pub fn status(status: u16) -> Self {
        Self::Answer { status, headers: Vec::new(), body: Vec::new(), after: Duration::ZERO }
    }

    /// A redirect.
    pub fn to(location: impl Into<String>) -> Self {
        Self::Answer {
            status: 302,
            headers: vec![("location", location.into())],
            body: Vec::new(),
            after: Duration::ZERO,
        }
    }

    /// The same, later.
    pub fn after(mut self, pause: Duration) -> Self {
        if let Self::Answer { after, .. } = &mut self {
            *after = pause;
        }
        self
    }

    /// Bytes as they are, then the end of the connection.
    pub fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        Self::Pieces(vec![bytes.into()], Duration::ZERO)
    }
}

type Script = Box<dyn Fn(&Asked, u64) -> Act + Send + Sync>;

/// A running origin. Ends when dropped.
pub struct Origin {
    pub address: SocketAddr,
    calls: Arc<AtomicU64>,
    connections: Arc<AtomicU64>,
    asked: Arc<Mutex<Vec<Asked>>>,
    script: Arc<Mutex<Script>>,
    listening: JoinHandle<()>,
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl Origin {
    /// Starts one that does what `script` says of a request and its number, from 1 on.
    pub async fn start(script: impl Fn(&Asked, u64) -> Act + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (calls, connections) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let script: Arc<Mutex<Script>> = Arc::new(Mutex::new(Box::new(script)));
        let parts = (calls.clone(), asked.clone(), script.clone(), connections.clone());
        let listening = tokio::spawn(async move {
            let (calls, asked, script, connections) = parts;
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream, calls.clone(), asked.clone(), script.clone()));
            }
        });
        Self { address, calls, connections, asked, script, listening }
    }

    /// From now on it does this.
    pub fn now(&self, script: impl Fn(&Asked, u64) -> Act + Send + Sync + 'static) {
        *self.script.lock().expect("not poisoned") = Box::new(script);
    }

    /// Calls so far.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// Calls of this path, among the last hundred.
    pub fn calls_of(&self, path: &str) -> usize {
        self.asked.lock().expect("not poisoned").iter().filter(|asked| asked.path == path).count()
    }

    /// Connections so far.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::SeqCst)
    }

    /// The last request.
    pub fn last(&self) -> Asked {
        self.asked.lock().expect("not poisoned").last().expect("a request").clone()
    }

    /// The URL template with this path and query.
    pub fn url(&self, tail: &str) -> String {
        format!("http://{}{tail}", self.address)
    }
}

async fn serve(
    mut stream: TcpStream,
    calls: Arc<AtomicU64>,
    asked: Arc<Mutex<Vec<Asked>>>,
    script: Arc<Mutex<Script>>,
) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    loop {
        if bytes.first() == Some(&0x16) {
            // A TLS greeting.
            return Ok(());
        }
        let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") else {
            let mut piece = [0; 4096];
            let n = stream.read(&mut piece).await?;
            if n == 0 {
                return Ok(());
            }
            bytes.extend_from_slice(&piece[..n]);
            continue;
        };
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        bytes.drain(..end + 4);
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let one = Asked { path, head };
        let call = calls.fetch_add(1, Ordering::SeqCst) + 1;
        let act = {
            let mut all = asked.lock().expect("not poisoned");
            all.push(one.clone());
            let length = all.len();
            all.drain(..length.saturating_sub(100));
            script.lock().expect("not poisoned")(&one, call)
        };
        match act {
            Act::Answer { status, headers, body, after } => {
                tokio::time::sleep(after).await;
                let mut head = format!("HTTP/1.1 {status} x\r\n");
                for (name, value) in headers {
                    head.push_str(&format!("{name}: {value}\r\n"));
                }
                if status != 204 {
                    head.push_str(&format!("content-length: {}\r\n", body.len()));
                }
                head.push_str("\r\n");
                stream.write_all(&[head.as_bytes(), &body].concat()).await?;
            }
            Act::Pieces(pieces, pause) => {
                for piece in pieces {
                    stream.write_all(&piece).await?;
                    tokio::time::sleep(pause).await;
                }
                stream.shutdown().await?;
                return Ok(());
            }
            Act::Endless(head, again) => {
                stream.write_all(&head).await?;
                loop {
                    stream.write_all(&again).await?;
                }
            }
            Act::Silence => std::future::pending().await,
        }
    }
}
