//! A bounded set of connections that many simulated buyers share.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{Method, Uri};
use tokio::sync::Semaphore;

use super::conn::{Answer, Conn};
use super::target::Target;
use crate::failure::{Failure, Result};

/// A bounded set of connections; a call waits for a free one. Clone it freely.
#[derive(Clone)]
pub struct Pool(Arc<Inner>);

struct Inner {
    target: Arc<Target>,
    free: Mutex<Vec<Conn>>,
    permits: Semaphore,
}

impl Pool {
    /// At most `connections` (>= 1) to `target`.
    #[must_use]
    pub fn new(target: Target, connections: usize) -> Self {
        let permits = Semaphore::new(connections.max(1));
        Self(Arc::new(Inner { target: Arc::new(target), free: Mutex::default(), permits }))
    }

    /// Sends one request over a free connection.
    ///
    /// # Errors
    /// As [`Conn::call`].
    pub async fn call(&self, method: Method, path: &Uri, body: Option<Bytes>) -> io::Result<Answer> {
        let _permit = self.0.permits.acquire().await.map_err(io::Error::other)?;
        let kept = self.0.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut conn = kept.unwrap_or_else(|| Conn::new(Arc::clone(&self.0.target)));
        let answered = conn.call(method, path, body).await;
        self.0.free.lock().unwrap_or_else(PoisonError::into_inner).push(conn);
        answered
    }

    /// `GET path`, told as a command's failure when the server cannot be reached.
    ///
    /// # Errors
    /// [`Failure::Unreachable`].
    pub async fn get(&self, path: &str) -> Result<Answer> {
        self.send(Method::GET, path, None).await
    }

    /// Sends `body` as JSON; a server that says `503` is asked again for a few seconds.
    ///
    /// # Errors
    /// [`Failure::Unreachable`].
    pub async fn send(&self, method: Method, path: &str, body: Option<Bytes>) -> Result<Answer> {
        let uri = uri(path)?;
        for pause_ms in [50, 100, 200, 400, 800, 1_600, 3_200] {
            let answer = self.try_once(method.clone(), &uri, body.clone()).await?;
            if answer.status != 503 {
                return Ok(answer);
            }
            tokio::time::sleep(std::time::Duration::from_millis(pause_ms)).await;
        }
        self.try_once(method, &uri, body).await
    }

    async fn try_once(&self, method: Method, uri: &Uri, body: Option<Bytes>) -> Result<Answer> {
        let called = self.call(method, uri, body).await;
        called.map_err(|e| Failure::Unreachable(format!("{}: {e}; is the server running?", self.0.target.base)))
    }
}

/// A path with its query as a URI.
///
/// # Errors
/// [`Failure::Work`] when a part of it was not percent-encoded.
pub fn uri(path: &str) -> Result<Uri> {
    Uri::try_from(path).map_err(|e| Failure::Work(format!("the path {path} cannot be sent: {e}")))
}
