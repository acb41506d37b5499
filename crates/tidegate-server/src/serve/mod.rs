//! The server: a listener, its connections, an orderly end.
//!
//! - [`connection`]: one connection, what it is doing, what is wished of it.
//! - [`registry`]: all of them; closes the idle, times out the stuck, makes room.
//! - [`stream`]: the socket under hyper. [`service`]: what hyper calls.

pub(crate) mod connection;
pub(crate) mod registry;
mod service;
mod stream;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tidegate::Tidegate;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::app::App;
use crate::config::{ServerConfig, ServerError};
use crate::metrics;
use connection::Wish;

/// Connections the kernel keeps for us until we accept them.
const BACKLOG: u32 = 4_096;
/// How often connections are looked over and metrics are kept small.
const SWEEP_EVERY: Duration = Duration::from_millis(500);
/// When descriptors or memory run out, how long to wait before accepting again.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);
/// At stop, how long the answers to requests that are given up may take to be sent.
const LAST_ANSWERS: Duration = Duration::from_millis(500);

/// A server that listens; [`Server::serve`] answers.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    app: Arc<App>,
}

impl Server {
    /// Listens. Call it inside a tokio runtime. The server never stops `tidegate`: its caller does, after
    /// [`Server::serve`] has returned.
    ///
    /// # Errors
    /// [`ServerError`]: the address is open to others and there are no tokens, it cannot be listened on, or a bound is
    /// out of range. The message says what to do.
    pub fn bind(config: ServerConfig, tidegate: Tidegate) -> Result<Self, ServerError> {
        config.limits.check()?;
        let loopback = config.listen.ip().is_loopback();
        if !loopback && config.tokens.is_empty() {
            return Err(ServerError::OpenToAll(config.listen));
        }
        if !loopback && config.manual_clock {
            return Err(ServerError::ManualClockInTheOpen(config.listen));
        }
        for (i, token) in config.tokens.iter().enumerate() {
            if let Some(same) = config.tokens[..i].iter().find(|other| other.sha256 == token.sha256) {
                return Err(ServerError::SameToken(same.name.clone(), token.name.clone()));
            }
        }
        let address = config.listen;
        let failed = |source| ServerError::Listen { address, source };
        let listener = listen(config.listen).map_err(failed)?;
        let app = App::new(config, tidegate)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address, app: Arc::new(app) })
    }

    /// The address it listens on (with the port the system chose, if the configuration left it open).
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Answers requests until `stop` resolves, then ends in order: no new connections, 503 `stopping` for new requests,
    /// an answer for every request that was begun, within `Limits::stop_notice` and `Limits::stop_patience`. Those the
    /// ledger has not answered by then get 503 `stopping`.
    ///
    /// # Errors
    /// None today; the type leaves room.
    pub async fn serve(self, stop: impl Future<Output = ()>) -> Result<(), ServerError> {
        let Self { listener, app, .. } = self;
        let mut connections = JoinSet::new();
        accept_until(stop, &listener, &app, &mut connections).await;
        drop(listener);
        end(&app, connections).await;
        Ok(())
    }
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

async fn accept_until(
    stop: impl Future<Output = ()>,
    listener: &TcpListener,
    app: &Arc<App>,
    connections: &mut JoinSet<()>,
) {
    let mut stop = pin!(stop);
    let mut sweep = interval(SWEEP_EVERY);
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let max = app.limits.max_connections;
    loop {
        let full = connections.len() >= max;
        if full {
            // Some at a time: a scan for each new connection of a flood would be the flood's work done for it.
            let evicted = app.registry.evict(max.div_ceil(64));
            app.metrics.evicted(evicted);
        }
        tokio::select! {
            () = &mut stop => return,
            _ = sweep.tick() => {
                app.registry.sweep(&app.limits);
                metrics::upkeep();
            }
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept(), if !full => accept(accepted, app, connections).await,
        }
    }
}

async fn accept(accepted: std::io::Result<(TcpStream, SocketAddr)>, app: &Arc<App>, connections: &mut JoinSet<()>) {
    match accepted {
        Ok((tcp, _)) => {
            let connection = app.registry.open();
            connections.spawn(connection::run(tcp, Arc::clone(app), connection));
        }
        Err(e) if is_of_the_client(&e) => {}
        Err(e) => {
            tracing::warn!(error = %e, "cannot accept connections; trying again");
            let evicted = app.registry.evict(connections.len().div_ceil(64));
            app.metrics.evicted(evicted);
            sleep(ACCEPT_BACKOFF).await;
        }
    }
}

fn is_of_the_client(e: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(e.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

async fn end(app: &App, mut connections: JoinSet<()>) {
    app.stop();
    // A short while in which requests on kept-alive connections are told, rather than cut off.
    drain(&mut connections, app.limits.stop_notice).await;
    app.registry.ask_all(Wish::Stop);
    drain(&mut connections, app.limits.stop_patience).await;
    if !connections.is_empty() {
        app.give_up();
        drain(&mut connections, LAST_ANSWERS).await;
    }
    let left = connections.len();
    if left > 0 {
        tracing::warn!(connections = left, "closing connections that did not end in time");
    }
    connections.shutdown().await;
    metrics::upkeep();
}

async fn drain(connections: &mut JoinSet<()>, patience: Duration) {
    // Whoever is left when it times out is dealt with by the caller.
    let _ = timeout(patience, async { while connections.join_next().await.is_some() {} }).await;
}
