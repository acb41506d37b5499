//! The connection that a snapshot comes on, plain or through TLS: it ends when there is reason to.

use std::io::{self, ErrorKind as Io, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::connect::{Host, RedisOptions};

/// How long the way to the server may take, and then how long TLS.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a server may be silent: it may wait for other replicas, and says nothing but a line now and then while it prepares.
const SILENCE: Duration = Duration::from_secs(70);
/// How often it is looked whether there is reason to stop.
const LOOK: Duration = Duration::from_millis(250);
/// Longest line of an answer.
const MAX_LINE: usize = 1_024;
/// What [`Wire`] says when it was told to stop.
const STOPPED: &str = "stopped";

/// When there is reason to stop.
#[derive(Debug, Clone)]
pub(super) struct Until {
    pub(super) stop: Arc<AtomicBool>,
    pub(super) deadline: Instant,
}

impl Until {
    fn check(&self) -> io::Result<()> {
        let is_over = self.stop.load(Ordering::Relaxed) || Instant::now() >= self.deadline;
        if is_over { Err(io::Error::other(STOPPED)) } else { Ok(()) }
    }
}

/// Whether an error says that there was reason to stop.
pub(super) fn is_stop(e: &io::Error) -> bool {
    e.kind() == Io::Other && e.to_string() == STOPPED
}

/// Nothing came in time.
fn is_wait(e: &io::Error) -> bool {
    matches!(e.kind(), Io::WouldBlock | Io::TimedOut)
}

trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

/// A connection to a server.
pub(super) struct Wire {
    /// What `stream` goes over.
    socket: TcpStream,
    stream: Box<dyn Stream>,
    until: Until,
    /// Bytes a second, and what was read since when.
    pace: Option<(u64, u64, Instant)>,
}

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let began = Instant::now();
        loop {
            self.until.check()?;
            match self.stream.read(buffer) {
                Ok(count) => {
                    if let Some((rate, read, since)) = &mut self.pace {
                        *read += count as u64;
                        let due = Duration::from_micros(read.saturating_mul(1_000_000) / *rate);
                        std::thread::sleep(due.saturating_sub(since.elapsed()).min(LOOK));
                    }
                    return Ok(count);
                }
                Err(e) if is_wait(&e) => {
                    if began.elapsed() >= SILENCE {
                        return Err(io::Error::new(Io::TimedOut, "the server has been silent for too long"));
                    }
                }
                Err(e) if e.kind() == Io::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
}

impl Wire {
    /// Connects, with TLS if `options` ask for it.
    pub(super) fn open(host: &Host, options: &RedisOptions, until: Until) -> io::Result<Self> {
        let socket = connect(host)?;
        socket.set_read_timeout(Some(LOOK))?;
        socket.set_write_timeout(Some(CONNECT))?;
        let stream = stream(host, options, socket.try_clone()?, &until)?;
        Ok(Self { socket, stream, until, pace: None })
    }

    /// From now on so many bytes a second are read, at most.
    pub(super) fn slow_down(&mut self, rate: u64) {
        self.pace = Some((rate, 0, Instant::now()));
    }

    /// Ends it: nothing more comes.
    pub(super) fn close(&self) {
        // It may be closed already.
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    fn send(&mut self, words: &[&[u8]]) -> io::Result<()> {
        let mut out = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            out.extend_from_slice(word);
            out.extend_from_slice(b"\r\n");
        }
        self.stream.write_all(&out)?;
        self.stream.flush()
    }

    /// The next line that is not empty: a server sends empty ones so that nobody gives up.
    pub(super) fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        loop {
            let mut byte = [0];
            if self.read(&mut byte)? == 0 {
                return Err(io::Error::new(Io::UnexpectedEof, "the server hung up"));
            }
            match byte[0] {
                b'\n' if line.is_empty() => {}
                b'\n' => return Ok(String::from_utf8_lossy(&line).into_owned()),
                b'\r' => {}
                byte if line.len() < MAX_LINE => line.push(byte),
                _ => return Err(io::Error::new(Io::InvalidData, "the server's answer is no line")),
            }
        }
    }

    /// One command; the line that answers it.
    pub(super) fn ask(&mut self, words: &[&[u8]]) -> io::Result<String> {
        self.send(words)?;
        self.line()
    }
}

fn connect(host: &Host) -> io::Result<TcpStream> {
    let mut last = io::Error::new(Io::NotFound, "the name has no address");
    for address in (host.name.as_str(), host.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(socket) => return Ok(socket),
            Err(e) => last = e,
        }
    }
    Err(last)
}

#[cfg(not(feature = "tls"))]
fn stream(_host: &Host, _options: &RedisOptions, socket: TcpStream, _until: &Until) -> io::Result<Box<dyn Stream>> {
    // No URL with TLS is taken.
    Ok(Box::new(socket))
}

#[cfg(feature = "tls")]
fn stream(host: &Host, options: &RedisOptions, mut socket: TcpStream, until: &Until) -> io::Result<Box<dyn Stream>> {
    if !options.tls {
        return Ok(Box::new(socket));
    }
    let name = rustls::pki_types::ServerName::try_from(host.name.clone()).map_err(io::Error::other)?;
    let trust = crate::connect::trust(options)?;
    let mut client = rustls::ClientConnection::new(trust, name).map_err(io::Error::other)?;
    let began = Instant::now();
    // Before anything is sent: what is sent does not wait and try again.
    while client.is_handshaking() {
        until.check()?;
        match client.complete_io(&mut socket) {
            Ok(_) => {}
            Err(e) if is_wait(&e) && began.elapsed() < CONNECT => {}
            Err(e) if is_wait(&e) => return Err(io::Error::new(Io::TimedOut, "the server did not answer TLS in time")),
            Err(e) => return Err(e),
        }
    }
    Ok(Box::new(rustls::StreamOwned::new(client, socket)))
}

#[cfg(test)]
#[cfg(feature = "tls")]
mod tests {
    use super::*;
    use tidegate_conformance::servers::{Engine, Redis, Setup};

    fn ping(server: &Redis, authority: Option<Vec<u8>>) -> io::Result<String> {
        let options = RedisOptions::parse(&server.url()).unwrap();
        let options = match authority {
            Some(pem) => options.authority(pem),
            None => options,
        };
        let crate::connect::Mode::Standalone(host) = &options.mode else { panic!("{options:?}") };
        let until = Until { stop: Arc::default(), deadline: Instant::now() + CONNECT };
        Wire::open(host, &options, until)?.ask(&[b"PING"])
    }

    /// (The wheels' servers are built without TLS.)
    #[test]
    fn only_the_authority_of_the_options_is_trusted() {
        let start = || Redis::start_with(Setup::default().engine(Engine::Redis).tls());
        let (server, other) = (start(), start());
        assert_eq!(ping(&server, Some(server.authority())).unwrap(), "+PONG");
        for stranger in [Some(other.authority()), None] {
            let e = ping(&server, stranger).unwrap_err();
            assert!(e.to_string().contains("invalid peer certificate"), "{e}");
        }
        let e = ping(&server, Some(b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n".to_vec()));
        assert!(e.is_err(), "{e:?}");
    }

    #[test]
    fn a_server_that_does_not_answer_tls_is_left_when_there_is_reason_to() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let options = RedisOptions::parse(&format!("rediss://127.0.0.1:{port}")).unwrap();
        let host = Host { name: "127.0.0.1".to_owned(), port };
        let began = Instant::now();
        let until = Until { stop: Arc::default(), deadline: began + Duration::from_millis(600) };
        let e = Wire::open(&host, &options, until).err().unwrap();
        assert!(is_stop(&e) && began.elapsed() < Duration::from_secs(3), "{e} after {:?}", began.elapsed());
    }
}
