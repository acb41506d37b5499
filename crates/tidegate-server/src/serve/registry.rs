//! Every open connection, so that idle and stuck ones can be told to go.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidegate::core::Map;

use super::connection::{Connection, Phase, Wish};
use crate::config::Limits;

/// The open connections of a server.
pub(crate) struct Registry {
    begun: Instant,
    open: Mutex<Map<u64, Arc<Connection>>>,
    next: AtomicU64,
    in_flight: AtomicU64,
}

impl Registry {
    /// No connections yet.
    pub(crate) fn new() -> Self {
        Self { begun: Instant::now(), open: Mutex::default(), next: AtomicU64::new(0), in_flight: AtomicU64::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, Map<u64, Arc<Connection>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Milliseconds since the server began.
    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Takes in a new connection.
    pub(crate) fn open(self: &Arc<Self>) -> Arc<Connection> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let connection = Arc::new(Connection::new(id, Arc::clone(self)));
        self.lock().insert(id, Arc::clone(&connection));
        connection
    }

    /// Forgets a connection that has ended.
    pub(crate) fn closed(&self, id: u64) {
        self.lock().remove(&id);
    }

    /// Connections that are open.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Requests that are being answered.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Counts a request that begins (true) or ends.
    pub(crate) fn request(&self, begins: bool) {
        if begins {
            self.in_flight.fetch_add(1, Ordering::Relaxed);
        } else {
            self.in_flight.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Tells connections that have been idle too long to close, and those whose request's head does not arrive to say so.
    pub(crate) fn sweep(&self, limits: &Limits) {
        let now = self.now();
        let older =
            |connection: &Connection, than: Duration| now.saturating_sub(connection.since()) > than.as_millis() as u64;
        for connection in self.lock().values() {
            match connection.phase() {
                Phase::Idle if older(connection, limits.keep_alive_timeout) => connection.ask(Wish::CloseIdle),
                Phase::Head if older(connection, limits.header_read_timeout) => connection.ask(Wish::HeadTimeout),
                _ => {}
            }
        }
    }

    /// Tells up to `count` connections without a request to close, the longest idle first. Returns how many.
    pub(crate) fn evict(&self, count: usize) -> usize {
        let open = self.lock();
        let mut idle: Vec<(u64, &Arc<Connection>)> =
            open.values().filter(|c| c.phase() != Phase::Busy).map(|c| (c.since(), c)).collect();
        let count = count.min(idle.len());
        if count > 0 && count < idle.len() {
            idle.select_nth_unstable_by_key(count - 1, |(since, _)| *since);
        }
        idle.iter().take(count).for_each(|(_, connection)| connection.ask(Wish::Evict));
        count
    }

    /// Tells every connection.
    pub(crate) fn ask_all(&self, wish: Wish) {
        self.lock().values().for_each(|connection| connection.ask(wish));
    }
}
