//! One keep-alive connection: one request at a time, nothing parsed that was parsed before.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request, Uri};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::target::Target;

/// How long one call may take, the connect included.
const PATIENCE: Duration = Duration::from_secs(60);

/// What came back.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The whole body.
    pub body: Bytes,
}

impl Answer {
    /// The body as `T`.
    ///
    /// # Errors
    /// When it is not of that shape.
    pub fn json<T: serde::de::DeserializeOwned>(&self) -> io::Result<T> {
        serde_json::from_slice(&self.body).map_err(|e| {
            io::Error::other(format!("an answer with status {} is not of the documented shape: {e}", self.status))
        })
    }
}

/// A connection; it connects when first used and again when the server closed it.
pub struct Conn {
    target: Arc<Target>,
    link: Link,
}

enum Link {
    Down,
    Plain(SendRequest<Full<Bytes>>),
    Tls(reqwest::Client),
}

impl Conn {
    /// A connection to `target`, not yet made.
    #[must_use]
    pub fn new(target: Arc<Target>) -> Self {
        Self { target, link: Link::Down }
    }

    /// Sends one request and reads its whole answer. A request that finds its kept connection closed before anything
    /// came back is sent once more on a new one: every call this module makes is idempotent.
    ///
    /// # Errors
    /// When the server cannot be reached, hangs up twice, or takes longer than a minute.
    pub async fn call(&mut self, method: Method, path: &Uri, body: Option<Bytes>) -> io::Result<Answer> {
        let called = tokio::time::timeout(PATIENCE, async {
            let fresh = matches!(self.link, Link::Down);
            match self.once(method.clone(), path, body.clone()).await {
                Err(_) if !fresh => self.once(method, path, body).await,
                answered => answered,
            }
        });
        let answered =
            called.await.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer within a minute")));
        if answered.is_err() {
            self.link = Link::Down;
        }
        answered
    }

    async fn once(&mut self, method: Method, path: &Uri, body: Option<Bytes>) -> io::Result<Answer> {
        if let Link::Plain(sender) = &mut self.link
            && sender.ready().await.is_err()
        {
            self.link = Link::Down;
        }
        if let Link::Down = self.link {
            self.link = connect(&self.target).await?;
        }
        match &mut self.link {
            Link::Plain(sender) => {
                let request = plain_request(&self.target, method, path, body);
                let response = sender.send_request(request).await.map_err(io::Error::other)?;
                let status = response.status().as_u16();
                let body = response.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
                Ok(Answer { status, body })
            }
            Link::Tls(client) => over_tls(client, &self.target, method, path, body).await,
            Link::Down => Err(io::Error::new(io::ErrorKind::NotConnected, "not connected")),
        }
    }
}

async fn connect(target: &Target) -> io::Result<Link> {
    if target.tls {
        // Only the first install in a process wins; both would be the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        return Ok(Link::Tls(reqwest::Client::builder().build().map_err(io::Error::other)?));
    }
    let stream = TcpStream::connect(&target.authority).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // Ends with the connection: when the sender is dropped or the server closes.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(Link::Plain(sender))
}

fn plain_request(target: &Target, method: Method, path: &Uri, body: Option<Bytes>) -> Request<Full<Bytes>> {
    let with_body = body.is_some();
    let mut request = Request::new(Full::new(body.unwrap_or_default()));
    *request.method_mut() = method;
    *request.uri_mut() = if target.prefix.is_empty() { path.clone() } else { prefixed(&target.prefix, path) };
    let headers = request.headers_mut();
    headers.insert(HOST, target.host.clone());
    if with_body {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    if let Some(bearer) = &target.bearer {
        headers.insert(AUTHORIZATION, bearer.clone());
    }
    request
}

fn prefixed(prefix: &str, path: &Uri) -> Uri {
    Uri::try_from(format!("{prefix}{path}")).unwrap_or_else(|_| path.clone())
}

async fn over_tls(
    client: &reqwest::Client,
    target: &Target,
    method: Method,
    path: &Uri,
    body: Option<Bytes>,
) -> io::Result<Answer> {
    let mut request = client.request(method, format!("{}{path}", target.base));
    if let Some(bearer) = &target.bearer {
        request = request.header(AUTHORIZATION, bearer.clone());
    }
    if let Some(body) = body {
        request = request.header(CONTENT_TYPE, "application/json").body(body);
    }
    let response = request.send().await.map_err(io::Error::other)?;
    let status = response.status().as_u16();
    Ok(Answer { status, body: response.bytes().await.map_err(io::Error::other)? })
}
