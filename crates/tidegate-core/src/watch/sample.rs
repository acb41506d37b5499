//! One look at one server.

use super::Info;
use crate::Millis;

/// One look at one server.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Which server: `host:port`; with [`Silence::NoMaster`] the first sentinel and the service.
    pub address: String,
    /// When the question was asked, by the clock of whoever watches.
    pub at: Millis,
    /// What came back.
    pub reply: Reply,
    /// Whoever watches was itself late (its machine is busy): how long it waited for the answer says nothing.
    pub is_late: bool,
    /// The server is spoken to over TLS, for the commands that findings name.
    pub tls: bool,
}

/// What came back.
#[derive(Debug, Clone)]
pub enum Reply {
    /// It answered.
    Answer(Box<Answer>),
    /// It did not.
    Silence {
        /// In which way.
        kind: Silence,
        /// The error in its own words.
        why: String,
        /// How long it was waited for, milliseconds.
        waited_ms: f64,
    },
}

/// In which way a server did not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Silence {
    /// It takes connections, but does not answer in time.
    Timeout,
    /// A script or function runs and nothing else does.
    Busy,
    /// There is no connection: refused, unreachable, broken.
    NoConnection,
    /// It has as many clients as it takes.
    TooManyClients,
    /// It answers, and does not let us ask.
    Refused,
    /// The sentinels name no server. The address is that of the first of them and the service: `host:port/service`.
    NoMaster,
}

/// An answer, and what else was seen beside it.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// `INFO`.
    pub info: Info,
    /// How long it took, milliseconds.
    pub round_trip_ms: f64,
    /// What the server is configured to, as far as it may be seen.
    pub config: Config,
    /// What the machine says that the server runs on.
    pub host: Host,
    /// The clients with the largest buffers, largest first; empty unless they were asked for.
    pub clients: Vec<Client>,
    /// Entries of the slow log that are newer than the sample before; `None`: not permitted.
    pub slow: Option<Vec<SlowCommand>>,
    /// How often everything or a whole database was deleted by command since the server started; `None`: not asked for now.
    pub flushes: Option<u64>,
}

/// Settings that rules look at. `None`: not permitted, not there, or not asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Config {
    /// Whether `CONFIG` is permitted at all; `None`: it was not tried.
    pub permitted: Option<bool>,
    /// `save`: seconds and changes of each save point.
    pub save: Option<Vec<(u64, u64)>>,
    /// The hard and the soft limit of a replica's output buffer, bytes; 0 is none.
    pub replica_buffer: Option<(u64, u64)>,
    /// `stop-writes-on-bgsave-error`.
    pub stops_writes: Option<bool>,
    /// `activedefrag`.
    pub active_defrag: Option<bool>,
    /// Whether the server can move allocations together at all, as it says when asked to.
    pub can_defrag: Option<bool>,
    /// `slowlog-log-slower-than`, microseconds; below 0 the slow log is off.
    pub slower_than_us: Option<i64>,
}

/// The machine that a server runs on, seen from the same machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Host {
    /// The memory limit of the server's control group, bytes.
    pub cgroup_bytes: Option<u64>,
    /// How much of the server's memory is swapped out, bytes.
    pub swapped_bytes: Option<u64>,
}

/// A client of the server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Client {
    /// Its address.
    pub address: String,
    /// Its name; may be empty.
    pub name: String,
    /// The command it sent last.
    pub command: String,
    /// What it has sent and is not carried out yet, bytes.
    pub input_bytes: u64,
    /// What it has not taken yet, bytes.
    pub output_bytes: u64,
    /// All memory that the server keeps for it, bytes.
    pub total_bytes: u64,
}

/// An entry of the slow log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SlowCommand {
    /// How long it ran, microseconds.
    pub took_us: u64,
    /// The command, shortened, control characters escaped.
    pub command: String,
    /// Who sent it; may be empty.
    pub client: String,
}

impl Sample {
    /// The answer, if there is one.
    #[must_use]
    pub fn answer(&self) -> Option<&Answer> {
        match &self.reply {
            Reply::Answer(answer) => Some(answer),
            Reply::Silence { .. } => None,
        }
    }
}
