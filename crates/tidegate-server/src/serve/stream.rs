//! A socket as hyper sees it: it notes when a request begins to arrive, gives up on clients that stop reading, and turns
//! hyper's own empty answers to unreadable requests into problem documents.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::StatusCode;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use super::connection::{Connection, Phase};
use crate::app::App;
use crate::metrics::requests::UNMATCHED;
use crate::problem::{self, MEDIA_TYPE, Problem, catalogue};

/// hyper's own answers are shorter than this.
const MAX_AUTOMATIC: usize = 256;

/// The socket of one connection.
pub(crate) struct Stream {
    tcp: TcpStream,
    stall_timeout: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
    /// Something was written and the answer it belongs to is not known to be over: what comes next may be a part of a body,
    /// whatever it looks like.
    amid: bool,
    /// What is sent in place of an answer of hyper's, as far as it is not sent yet.
    substitute: Option<Bytes>,
    app: Arc<App>,
    connection: Arc<Connection>,
}

impl Stream {
    /// Wraps `tcp`.
    pub(crate) fn new(tcp: TcpStream, stall_timeout: Duration, app: Arc<App>, connection: Arc<Connection>) -> Self {
        Self { tcp, stall_timeout, stalled: None, amid: false, substitute: None, app, connection }
    }

    /// Sends a problem document as far as the socket takes it at once, and closes.
    pub(crate) fn last_words(self, problem: Problem) {
        self.app.metrics.answered(UNMATCHED, status_of(&problem), Duration::ZERO);
        // A client too slow to send a head may well be gone.
        let _ = self.tcp.try_write(&raw_response(&problem));
        // What was received and never read would make the close a reset, which can overtake the answer.
        let mut discarded = [0; 4096];
        while matches!(self.tcp.try_read(&mut discarded), Ok(n) if n > 0) {}
    }

    fn poll_stalled(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let timeout = self.stall_timeout;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(timeout)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, "the client stopped reading"))
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.tcp).poll_write(cx, bytes) {
            Poll::Ready(sent) => {
                self.stalled = None;
                Poll::Ready(sent)
            }
            Poll::Pending => self.poll_stalled(cx).map(Err),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.tcp).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            self.connection.received();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if !this.amid
            && this.substitute.is_none()
            && let Some(problem) = automatic(bytes)
        {
            this.app.metrics.answered(UNMATCHED, status_of(&problem), Duration::ZERO);
            this.substitute = Some(raw_response(&problem).into());
        }
        let Some(mut left) = this.substitute.take() else {
            this.amid = true;
            return this.poll_send(cx, bytes);
        };
        while left.has_remaining() {
            match this.poll_send(cx, &left) {
                Poll::Ready(sent) => left.advance(sent?),
                Poll::Pending => {
                    this.substitute = Some(left);
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper flushes once it has written all it has; while the answer's body lives there is more to come.
        self.amid &= self.connection.phase() == Phase::Busy;
        ready!(Pin::new(&mut self.tcp).poll_flush(cx))?;
        self.connection.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}

fn status_of(problem: &Problem) -> StatusCode {
    StatusCode::from_u16(problem.status()).unwrap_or(StatusCode::BAD_REQUEST)
}

/// The problem to answer in place of `written`, if that is one of hyper's own answers: the head of a 4xx without a body,
/// which no route of ours sends.
fn automatic(written: &[u8]) -> Option<Problem> {
    if written.len() > MAX_AUTOMATIC || !written.starts_with(b"HTTP/1.1 4") || !written.ends_with(b"\r\n\r\n") {
        return None;
    }
    let head = std::str::from_utf8(written).ok()?;
    if head.find("\r\n\r\n") != Some(head.len() - 4) || !head.contains("content-length: 0") {
        return None;
    }
    Some(match &head[9..12] {
        "431" => Problem::of(&catalogue::HEADERS_TOO_LARGE),
        "414" => Problem::of(&catalogue::URI_TOO_LONG),
        _ => problem::malformed("The request breaks HTTP/1.1; correct its first line and headers."),
    })
}

/// A problem document as the last answer of a connection.
fn raw_response(problem: &Problem) -> Vec<u8> {
    let body = problem.json();
    let status = status_of(problem);
    let head = format!(
        "HTTP/1.1 {} {}\r\ncontent-type: {MEDIA_TYPE}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        status.as_u16(),
        status.canonical_reason().unwrap_or_default(),
        body.len()
    );
    [head.as_bytes(), &body].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hypers_own_answers_are_replaced() {
        let date = "date: Sun, 29 Nov 2026 15:00:00 GMT";
        for (written, want) in [
            (
                format!(
                    "HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n{date}\r\n\r\n"
                ),
                Some("headers-too-large"),
            ),
            (format!("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n{date}\r\n\r\n"), Some("malformed")),
            (format!("HTTP/1.1 409 Conflict\r\ncontent-length: 5\r\n{date}\r\n\r\nhello"), None),
            (format!("HTTP/1.1 204 No Content\r\n{date}\r\n\r\n"), None),
        ] {
            assert_eq!(automatic(written.as_bytes()).map(|p| p.kind().code), want);
        }
    }
}
