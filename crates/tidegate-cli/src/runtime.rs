//! The tokio runtime of a command.

use std::future::Future;

use tokio::runtime::{Builder, Runtime};

use crate::failure::{Failure, Result};

/// Fewest worker threads: one that waits for a slow disk must not stop the others.
const MIN_THREADS: usize = 2;

/// A runtime with `threads` workers (at least two; `None`: one a core), and the TLS provider in place.
pub fn start(threads: Option<usize>) -> Result<Runtime> {
    let cores = std::thread::available_parallelism().map_or(MIN_THREADS, std::num::NonZero::get);
    // Whoever installed one first wins; it is the same one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Builder::new_multi_thread()
        .worker_threads(threads.unwrap_or(cores).max(MIN_THREADS))
        .enable_all()
        .build()
        .map_err(|e| Failure::Work(format!("cannot start threads: {e}; raise the limit on processes (ulimit -u)")))
}

/// Runs a tool to its end, or until Ctrl-C or SIGTERM: exit code 130.
pub fn run<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    start(None)?.block_on(async {
        tokio::select! {
            done = work => done,
            () = interrupted() => Err(Failure::Interrupted),
        }
    })
}

/// Resolves at the next SIGINT or SIGTERM after this call (not after the first poll).
pub fn interrupted() -> impl Future<Output = ()> + Send {
    use tokio::signal::unix::{SignalKind, signal};
    let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    async {
        let (Ok(mut int), Ok(mut term)) = signals else {
            // Without handlers the signals end the process by themselves.
            return std::future::pending().await;
        };
        tokio::select! {
            _ = int.recv() => {}
            _ = term.recv() => {}
        }
    }
}
