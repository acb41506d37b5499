//! A loopback proxy that spoils connections.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How often the threads look whether something was changed.
const GLANCE: Duration = Duration::from_millis(2);

#[derive(Debug, Default)]
struct Faults {
    target: AtomicU16,
    delay_ms: AtomicU64,
    hold: Mutex<Option<(Vec<u8>, Duration)>>,
    silent: AtomicBool,
    refusing: AtomicBool,
    replies_to_cut: AtomicUsize,
    replies_to_tear: AtomicUsize,
    stopped: AtomicBool,
    links: Mutex<Vec<TcpStream>>,
}

impl Faults {
    fn hold(&self) -> MutexGuard<'_, Option<(Vec<u8>, Duration)>> {
        self.hold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long this piece is held back, if it is the one that is waited for.
    fn held_for(&self, piece: &[u8]) -> Option<Duration> {
        self.hold().take_if(|(with, _)| piece.windows(with.len()).any(|part| part == with)).map(|(_, by)| by)
    }
}

/// Forwards TCP connections to a port of this machine, and spoils them when told. Dropped, it cuts them all.
#[derive(Debug)]
pub struct Proxy {
    faults: Arc<Faults>,
    port: u16,
}

impl Proxy {
    /// A proxy before `target`.
    ///
    /// # Panics
    /// When no port is free.
    #[must_use]
    pub fn start(target: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
        let port = listener.local_addr().expect("a bound listener has an address").port();
        listener.set_nonblocking(true).expect("a listener can be told not to block");
        let faults = Arc::new(Faults { target: AtomicU16::new(target), ..Faults::default() });
        let shared = Arc::clone(&faults);
        thread::spawn(move || serve(&listener, &shared));
        Self { faults, port }
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Leads new connections to another port: an address that moves to a server that was promoted.
    pub fn lead_to(&self, target: u16) {
        self.faults.target.store(target, Ordering::SeqCst);
    }

    /// Holds back what servers answer by this long.
    pub fn delay(&self, by: Duration) {
        self.faults.delay_ms.store(u64::try_from(by.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// Holds back by this long the next piece of at most 16 KiB that clients send and these bytes are in, and what is sent after
    /// it on its connection; all of it reaches the server, even if the client has gone away meanwhile. Other connections are as
    /// quick as ever.
    ///
    /// # Panics
    /// When no bytes are given.
    pub fn hold_request(&self, with: &[u8], by: Duration) {
        assert!(!with.is_empty(), "a piece is told by what is in it");
        *self.faults.hold() = Some((with.to_vec(), by));
    }

    /// Whether bytes vanish in both directions while connections stay open: a network that drops packets.
    pub fn silence(&self, silent: bool) {
        self.faults.silent.store(silent, Ordering::SeqCst);
    }

    /// Whether new connections are closed at once.
    pub fn refuse(&self, refuse: bool) {
        self.faults.refusing.store(refuse, Ordering::SeqCst);
    }

    /// Cuts all connections.
    pub fn cut(&self) {
        let mut links = self.faults.links.lock().unwrap_or_else(PoisonError::into_inner);
        for link in links.drain(..) {
            // An error means that it is closed already.
            let _ = link.shutdown(Shutdown::Both);
        }
    }

    /// The next `count` answers of the server are swallowed and their connections cut: the effect has happened, and
    /// nobody hears of it.
    pub fn cut_replies(&self, count: usize) {
        self.faults.replies_to_cut.store(count, Ordering::SeqCst);
    }

    /// Of the next `count` answers of the server only the first half arrives, then their connections are cut.
    pub fn tear_replies(&self, count: usize) {
        self.faults.replies_to_tear.store(count, Ordering::SeqCst);
    }

    /// Answers that are still to be swallowed.
    #[must_use]
    pub fn replies_to_cut(&self) -> usize {
        self.faults.replies_to_cut.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.faults.stopped.store(true, Ordering::SeqCst);
        self.cut();
    }
}

fn serve(listener: &TcpListener, faults: &Arc<Faults>) {
    while !faults.stopped.load(Ordering::SeqCst) {
        match listener.accept() {
            Ok((client, _)) if !faults.refusing.load(Ordering::SeqCst) => {
                // A client whose server is gone finds its connection closed.
                let _ = link(client, faults);
            }
            Ok(_) => {}
            Err(_) => thread::sleep(GLANCE),
        }
    }
}

fn link(client: TcpStream, faults: &Arc<Faults>) -> io::Result<()> {
    client.set_nonblocking(false)?;
    let server = TcpStream::connect(("127.0.0.1", faults.target.load(Ordering::SeqCst)))?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let mut links = faults.links.lock().unwrap_or_else(PoisonError::into_inner);
    links.extend([client.try_clone()?, server.try_clone()?]);
    drop(links);
    let (from, to, shared) = (client.try_clone()?, server.try_clone()?, Arc::clone(faults));
    thread::spawn(move || forward(from, to, &shared, false));
    let shared = Arc::clone(faults);
    thread::spawn(move || forward(server, client, &shared, true));
    Ok(())
}

fn forward(mut from: TcpStream, mut to: TcpStream, faults: &Faults, replies: bool) {
    let mut buffer = [0; 16 * 1_024];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if faults.silent.load(Ordering::SeqCst) {
            continue;
        }
        let cut = |n: usize| n.checked_sub(1);
        if !replies && let Some(by) = faults.held_for(&buffer[..read]) {
            thread::sleep(by);
        }
        if replies && faults.replies_to_cut.fetch_update(Ordering::SeqCst, Ordering::SeqCst, cut).is_ok() {
            break;
        }
        if replies && faults.replies_to_tear.fetch_update(Ordering::SeqCst, Ordering::SeqCst, cut).is_ok() {
            // The connection ends in any case.
            let _ = to.write_all(&buffer[..read.div_ceil(2)]);
            break;
        }
        let delay = faults.delay_ms.load(Ordering::SeqCst);
        if replies && delay > 0 {
            thread::sleep(Duration::from_millis(delay));
        }
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    // Errors mean that they are closed already.
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::Redis;

    fn ping(port: u16) -> Result<String, String> {
        super::super::resp::ask(port, &[vec![b"INCR".as_slice(), b"n"]])
    }

    #[test]
    fn a_reply_is_cut_after_the_effect() {
        let redis = Redis::start();
        let proxy = Proxy::start(redis.port());
        assert_eq!(ping(proxy.port()).as_deref(), Ok("1"));
        proxy.cut_replies(1);
        assert!(ping(proxy.port()).is_err());
        assert_eq!(ping(proxy.port()).as_deref(), Ok("3"));
        proxy.refuse(true);
        assert!(ping(proxy.port()).is_err());
    }
}
