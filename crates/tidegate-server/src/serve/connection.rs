//! One connection: from accept to close.
//!
//! A connection that has sent nothing yet costs its socket and a small task; hyper's state comes with its first byte.

use std::pin::Pin;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::server::conn::http1::Builder;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::registry::Registry;
use super::service::HttpService;
use super::stream::Stream;
use crate::app::App;
use crate::problem::{Problem, catalogue};
use crate::reply::Parcel;

/// How long an idle connection that was told to close may take to send what is left of its last answer.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);
/// hyper's buffers of one connection grow to this.
const MAX_BUFFER: usize = 256 << 10;

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// Between requests, or before the first.
    Idle = 0,
    /// The head of a request has begun to arrive.
    Head = 1,
    /// A request is being answered.
    Busy = 2,
}

/// What the server wants of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Wish {
    Nothing = 0,
    /// Close: idle for too long.
    CloseIdle = 1,
    /// Close, if no request is being answered: its place is needed.
    Evict = 2,
    /// Answer 408: the head does not arrive.
    HeadTimeout = 3,
    /// Close after the request that is being answered, if any.
    Stop = 4,
}

/// A connection as the registry sees it.
pub(crate) struct Connection {
    id: u64,
    phase: AtomicU8,
    since: AtomicU64,
    wish: AtomicU8,
    told: Notify,
    /// What the answer hands over that is being written.
    parcel: Mutex<Option<Box<dyn Parcel>>>,
    registry: Arc<Registry>,
}

impl Connection {
    /// A connection that has just been accepted.
    pub(crate) fn new(id: u64, registry: Arc<Registry>) -> Self {
        Self {
            id,
            phase: AtomicU8::new(Phase::Idle as u8),
            since: AtomicU64::new(registry.now()),
            wish: AtomicU8::new(Wish::Nothing as u8),
            told: Notify::new(),
            parcel: Mutex::new(None),
            registry,
        }
    }

    /// What it is doing.
    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Idle,
            1 => Phase::Head,
            _ => Phase::Busy,
        }
    }

    /// Since when, in the registry's milliseconds.
    pub(crate) fn since(&self) -> u64 {
        self.since.load(Ordering::Relaxed)
    }

    fn enter(&self, phase: Phase) {
        self.since.store(self.registry.now(), Ordering::Relaxed);
        self.phase.store(phase as u8, Ordering::Release);
    }

    /// Bytes have arrived: between requests they begin a new one.
    pub(crate) fn received(&self) {
        if self.phase() == Phase::Idle {
            self.enter(Phase::Head);
        }
    }

    /// All that was to be written is in the socket.
    pub(crate) fn flushed(&self) {
        let parcel = self.parcel.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(parcel) = parcel {
            parcel.sent();
        }
    }

    /// Tells it what the server wants. A later wish replaces one it has not seen.
    pub(crate) fn ask(&self, wish: Wish) {
        self.wish.store(wish as u8, Ordering::Release);
        self.told.notify_one();
    }

    async fn asked(&self) -> Wish {
        self.told.notified().await;
        match self.wish.swap(Wish::Nothing as u8, Ordering::AcqRel) {
            1 => Wish::CloseIdle,
            2 => Wish::Evict,
            3 => Wish::HeadTimeout,
            4 => Wish::Stop,
            _ => Wish::Nothing,
        }
    }
}

/// A request that is being answered; ends when its response's body is dropped.
pub(crate) struct Busy(Arc<Connection>);

impl Busy {
    /// A request begins.
    pub(crate) fn begin(connection: &Arc<Connection>) -> Self {
        connection.enter(Phase::Busy);
        connection.registry.request(true);
        Self(Arc::clone(connection))
    }
}

impl Busy {
    /// Keeps `parcel` until the answer is in the socket; if the connection ends before, it is taken back.
    pub(crate) fn hold(&self, parcel: Box<dyn Parcel>) {
        *self.0.parcel.lock().unwrap_or_else(PoisonError::into_inner) = Some(parcel);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.registry.request(false);
        self.0.enter(Phase::Idle);
    }
}

/// Takes a connection out of the registry however its task ends.
struct Registered(Arc<Connection>);

impl Drop for Registered {
    fn drop(&mut self) {
        self.0.registry.closed(self.0.id);
    }
}

/// Serves a connection until it ends or is told to.
pub(crate) async fn run(tcp: TcpStream, app: Arc<App>, connection: Arc<Connection>) {
    let _registered = Registered(Arc::clone(&connection));
    // Without it small answers wait for the client's delayed acknowledgement; a socket that refuses it still works.
    let _ = tcp.set_nodelay(true);
    let mut first = [0; 1];
    loop {
        tokio::select! {
            // A look at the first byte: a socket counts as readable until a read has told otherwise.
            peeked = tcp.peek(&mut first) => match peeked {
                Ok(n) if n > 0 => break,
                _ => return,
            },
            wish = connection.asked() => if wish != Wish::Nothing {
                return;
            },
        }
    }
    // Boxed: hyper's state is most of a connection's cost, and comes only now.
    Box::pin(serve(tcp, app, connection)).await;
}

async fn serve(tcp: TcpStream, app: Arc<App>, connection: Arc<Connection>) {
    let limits = app.limits;
    let stream = Stream::new(tcp, limits.write_stall_timeout, Arc::clone(&app), Arc::clone(&connection));
    let service = HttpService::new(app, Arc::clone(&connection));
    let mut serving = Builder::new()
        // Timeouts of heads and of idle connections are the registry's: one sweep instead of a timer each.
        .header_read_timeout(None)
        .max_header_size(limits.max_header_bytes)
        .max_buf_size(MAX_BUFFER.max(limits.max_header_bytes))
        .writev(false)
        .serve_connection(TokioIo::new(stream), service);
    let mut closing = None;
    loop {
        let wish = tokio::select! {
            // However it ended, hyper has answered what could be answered.
            _ = Pin::new(&mut serving) => return,
            () = sleep_until(closing.unwrap_or_else(Instant::now)), if closing.is_some() => return,
            wish = connection.asked() => wish,
        };
        match (wish, connection.phase()) {
            (Wish::Evict, Phase::Head) => return,
            (Wish::HeadTimeout, Phase::Head) => break,
            (Wish::CloseIdle | Wish::Evict, Phase::Idle) => {
                Pin::new(&mut serving).graceful_shutdown();
                closing = Some(Instant::now() + CLOSE_PATIENCE);
            }
            (Wish::Stop, _) => Pin::new(&mut serving).graceful_shutdown(),
            _ => {}
        }
    }
    let detail = "The request's head did not arrive in time; send the request again.";
    serving.into_parts().io.into_inner().last_words(Problem::new(&catalogue::TIMEOUT, detail));
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Noted(Arc<AtomicU8>);

    impl Parcel for Noted {
        fn sent(self: Box<Self>) {
            self.0.store(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_parcel_is_sent_with_the_flush_and_else_taken_back() {
        let registry = Arc::new(Registry::new());
        for flushed in [true, false] {
            let sent = Arc::new(AtomicU8::new(0));
            let connection = Arc::new(Connection::new(1, Arc::clone(&registry)));
            Busy::begin(&connection).hold(Box::new(Noted(Arc::clone(&sent))));
            assert_eq!(Arc::strong_count(&sent), 2, "it is kept");
            if flushed {
                connection.flushed();
            }
            drop(connection);
            assert_eq!((sent.load(Ordering::SeqCst), Arc::strong_count(&sent)), (u8::from(flushed), 1));
        }
    }
}
