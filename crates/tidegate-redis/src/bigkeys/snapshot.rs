//! The snapshot route: asks a server for its data as a new replica would, reads the snapshot as it comes, and goes away.

use std::io::{self, ErrorKind as Io, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::collect::{Collector, Seen};
use super::rdb::{self, RdbError};
use super::weight::Model;
use super::{Pace, Progress};
use crate::connect::{Host, Login};

/// How long the way to the server may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a server may be silent: it may wait for other replicas, and says nothing but a line now and then while it prepares.
const SILENCE: Duration = Duration::from_secs(70);
/// How often it is looked whether there is reason to stop.
const LOOK: Duration = Duration::from_millis(250);
/// Longest line of an answer.
const MAX_LINE: usize = 1_024;
/// What `gentle` reads a second, bytes.
const GENTLE: u64 = 40 << 20;
/// How many keys are counted at once.
const COUNTED: u64 = 256;

/// Why there is no snapshot.
#[derive(Debug)]
pub(super) enum NoSnapshot {
    /// The server does not give one to us.
    Refused(String),
    /// It broke off, or is not to be used.
    Failed(RdbError),
    /// The time is over, or nobody waits any more.
    Stopped,
}

impl NoSnapshot {
    pub(super) fn why(&self) -> String {
        match self {
            NoSnapshot::Refused(why) => why.clone(),
            NoSnapshot::Failed(e) => e.to_string(),
            NoSnapshot::Stopped => "the time was over before the snapshot was read".to_owned(),
        }
    }
}

/// What a snapshot is asked for with.
pub(super) struct Ask {
    pub(super) host: Host,
    pub(super) login: Login,
    /// The version of a Valkey.
    pub(super) valkey: Option<String>,
    pub(super) model: Model,
    pub(super) pace: Pace,
    pub(super) deadline: Instant,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) progress: Arc<Progress>,
}

/// The connection, which ends when there is reason to.
struct Wire {
    stream: TcpStream,
    stop: Arc<AtomicBool>,
    deadline: Instant,
    /// Bytes a second, and what was read since when.
    pace: Option<(u64, u64, Instant)>,
}

/// What [`Wire`] says when it was told to stop.
const STOPPED: &str = "stopped";

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let began = Instant::now();
        loop {
            if self.stop.load(Ordering::Relaxed) || Instant::now() >= self.deadline {
                return Err(io::Error::other(STOPPED));
            }
            match self.stream.read(buffer) {
                Ok(count) => {
                    if let Some((rate, read, since)) = &mut self.pace {
                        *read += count as u64;
                        let due = Duration::from_micros(read.saturating_mul(1_000_000) / *rate);
                        std::thread::sleep(due.saturating_sub(since.elapsed()).min(LOOK));
                    }
                    return Ok(count);
                }
                Err(e) if matches!(e.kind(), Io::WouldBlock | Io::TimedOut) => {
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
    fn open(ask: &Ask) -> io::Result<Self> {
        let mut last = io::Error::new(Io::NotFound, "the name has no address");
        for address in (ask.host.name.as_str(), ask.host.port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECT) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(LOOK))?;
                    stream.set_write_timeout(Some(CONNECT))?;
                    return Ok(Self { stream, stop: Arc::clone(&ask.stop), deadline: ask.deadline, pace: None });
                }
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    fn send(&mut self, words: &[&[u8]]) -> io::Result<()> {
        let mut out = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            out.extend_from_slice(word);
            out.extend_from_slice(b"\r\n");
        }
        self.stream.write_all(&out)
    }

    /// The next line that is not empty: a server sends empty ones so that nobody gives up.
    fn line(&mut self) -> io::Result<String> {
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

    fn ask(&mut self, words: &[&[u8]]) -> io::Result<String> {
        self.send(words)?;
        self.line()
    }
}

fn refused(what: &str, answer: &str) -> NoSnapshot {
    let answer: String = answer.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect();
    NoSnapshot::Refused(format!("{what}: {answer}"))
}

fn broken(e: io::Error) -> NoSnapshot {
    if e.to_string() == STOPPED { NoSnapshot::Stopped } else { NoSnapshot::Failed(RdbError::Read(e)) }
}

/// Reads the snapshot and counts every key of it in `into`. It takes a thread until it is done.
pub(super) fn read(ask: &Ask, mut into: Collector) -> Result<(rdb::Snapshot, Collector), NoSnapshot> {
    let mut wire = Wire::open(ask).map_err(broken)?;
    begin(ask, &mut wire).map_err(broken)??;
    wire.pace = (ask.pace == Pace::Gentle).then(|| (GENTLE, 0, Instant::now()));
    let (mut keys, mut bytes) = (0, 0);
    let read = rdb::read(&mut wire, &ask.model, |key| {
        into.add(&Seen {
            database: key.database,
            name: key.name,
            name_length: key.name_length,
            kind: key.kind,
            encoding: Some(key.encoding),
            elements: key.elements,
            weight: key.weight,
            expires_at: key.expires_at,
        });
        (keys, bytes) = (keys + 1, bytes + key.weight.map_or(0, |weight| weight.bytes));
        if keys % COUNTED == 0 {
            ask.progress.add(COUNTED, std::mem::take(&mut bytes));
        }
    });
    // Before anything of what comes behind the snapshot piles up for us.
    let _ = wire.stream.shutdown(std::net::Shutdown::Both);
    ask.progress.add(keys % COUNTED, bytes);
    match read {
        Ok(snapshot) => Ok((snapshot, into)),
        Err(RdbError::Read(e)) => Err(broken(e)),
        Err(e) => Err(NoSnapshot::Failed(e)),
    }
}

/// Goes in, and asks; what comes next is the snapshot.
fn begin(ask: &Ask, wire: &mut Wire) -> io::Result<Result<(), NoSnapshot>> {
    if let Some(password) = &ask.login.password {
        let user = ask.login.user.as_deref();
        let words: Vec<&[u8]> = [Some("AUTH"), user, Some(password)].into_iter().flatten().map(str::as_bytes).collect();
        let answer = wire.ask(&words)?;
        if answer != "+OK" {
            return Ok(Err(refused("AUTH", &answer)));
        }
    }
    let answer = wire.ask(&[b"REPLCONF", b"capa", b"eof", b"capa", b"psync2"])?;
    if answer != "+OK" {
        return Ok(Err(refused("REPLCONF", &answer)));
    }
    // We want nothing of what is written after the snapshot; a server that does not know this piles it up until we hang up.
    wire.ask(&[b"REPLCONF", b"rdb-only", b"1"])?;
    // Valkey gives one whose version it does not know an older snapshot, or none.
    if let Some(version) = &ask.valkey {
        wire.ask(&[b"REPLCONF", b"version", version.as_bytes()])?;
    }
    let answer = wire.ask(&[b"PSYNC", b"?", b"-1"])?;
    if !answer.starts_with("+FULLRESYNC") {
        return Ok(Err(refused("PSYNC", &answer)));
    }
    // `$length`, or `$EOF:` and what stands behind the snapshot: it says itself where it ends.
    let answer = wire.line()?;
    let is_length = answer.strip_prefix('$').is_some_and(|length| length.parse::<u64>().is_ok());
    if !is_length && !answer.starts_with("$EOF:") {
        return Ok(Err(refused("PSYNC", &answer)));
    }
    Ok(Ok(()))
}
