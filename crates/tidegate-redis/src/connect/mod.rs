//! The way to Redis: one handle over a single server, Sentinel and Cluster.
//!
//! - `options.rs`: [`RedisOptions`], from a URL. `link.rs`: how connections are made. `trust.rs`: TLS without the client.
//! - `health.rs`: what answers and errors say about the connection. `watchdog.rs`: replaces it.
//! - `direct.rs`: the shortest way for one call.
//! - `servers.rs`: which servers hold the keys, and the way to all of them.
//! - `check.rs`: whether a server may be used at all. `owner.rs`: whose a name is. `listen.rs`: subscriptions, on a link of their own.
//!
//! No lock is held while connecting: whoever has a command uses the present connection, or hears at once why there is none.

mod check;
mod direct;
mod health;
mod link;
mod listen;
mod options;
mod owner;
mod servers;
#[cfg(feature = "tls")]
mod trust;
mod watchdog;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::{ArcSwap, ArcSwapOption};
use redis::{Cmd, Value};
use tidegate_backend::{Error, ErrorKind, Result};
use tokio::sync::{Notify, watch};

use self::health::{Failing, Symptom};
use self::link::Link;
use crate::keys::Keys;
use crate::reply;
use crate::scripts::Script;
use crate::tasks::Tasks;

#[cfg(feature = "ceiling")]
pub(crate) use self::direct::Bare;
pub(crate) use self::direct::{is_on_its_way, run_id};
pub(crate) use self::link::{RedisResult, connect_for_waiting, listening_hosts, master};
pub(crate) use self::listen::{Heard, Listener};
pub use self::options::RedisOptions;
pub(crate) use self::options::{Host, Mode, Role};
pub(crate) use self::owner::Owner;
#[cfg(feature = "tls")]
pub(crate) use self::trust::trust;

/// Most calls in one round trip.
pub(crate) const MAX_CALLS: usize = 4_096;

/// One command, and the script it runs, if it runs one.
pub(crate) struct Call {
    what: What,
    /// The first key: who holds it must answer.
    key: Vec<u8>,
}

enum What {
    Plain(Cmd),
    Script { script: &'static Script, keys: Vec<Vec<u8>>, arguments: Vec<Vec<u8>> },
}

impl Call {
    /// `script` with these keys and arguments.
    pub(crate) fn script(script: &'static Script, keys: Vec<Vec<u8>>, arguments: Vec<Vec<u8>>) -> Self {
        let key = keys.first().cloned().unwrap_or_default();
        Self { what: What::Script { script, keys, arguments }, key }
    }

    /// A command whose only key is `key`.
    pub(crate) fn plain(name: &str, key: &[u8], arguments: &[&[u8]]) -> Self {
        let mut command = redis::cmd(name);
        command.arg(key).arg(arguments);
        Self { what: What::Plain(command), key: key.to_vec() }
    }

    /// `WAIT`: how many replicas have what this connection wrote. It holds up the connection for up to `ms` milliseconds. `key`: of
    /// the server that is asked.
    pub(crate) fn wait(key: &[u8], replicas: usize, ms: u64) -> Self {
        let mut command = redis::cmd("WAIT");
        command.arg(replicas).arg(ms);
        Self { what: What::Plain(command), key: key.to_vec() }
    }

    /// A write beside `key` that leaves nothing behind for long.
    pub(crate) fn probe(key: &[u8]) -> Self {
        Self { what: What::Plain(probe(key)), key: key.to_vec() }
    }

    /// The command, a script by its hash or (`in_full`) as it is.
    fn command(&self, in_full: bool) -> Cmd {
        match &self.what {
            What::Plain(command) => command.clone(),
            What::Script { script, keys, arguments } => {
                let (name, text) = if in_full { ("EVAL", script.source()) } else { ("EVALSHA", script.hash()) };
                let bytes: usize = keys.iter().chain(arguments).map(|part| part.len() + 16).sum();
                let mut command = Cmd::with_capacity(4 + keys.len() + arguments.len(), text.len() + bytes);
                command.arg(name).arg(text).arg(keys.len());
                for part in keys.iter().chain(arguments) {
                    command.arg(part.as_slice());
                }
                command
            }
        }
    }
}

/// The way to Redis. Cloning it is cheap; the connection ends with [`Connector::close`], or with the last clone.
#[derive(Clone)]
pub struct Connector {
    shared: Arc<Shared>,
    /// What watches the connection.
    watchdog: Arc<Tasks>,
}

pub(crate) struct Shared {
    options: RedisOptions,
    /// Who uses the name here; no server under which it is another's is used.
    owner: OnceLock<Owner>,
    link: ArcSwapOption<Link>,
    /// What the newest connection is to its server.
    seat: Mutex<Option<link::Seat>>,
    /// Why it is not up, empty while it is.
    trouble: ArcSwap<String>,
    failing: Failing,
    /// Counts the connections; whoever reads it learns of a new one.
    epoch: watch::Sender<u64>,
    /// The same, from before the connection is used.
    number: AtomicU64,
    wake: Notify,
    calls: AtomicU64,
    /// The server may delete keys before their end.
    evicts_expiring: AtomicBool,
    /// What a server that is full refuses is said to be unavailable of itself, and nothing else is.
    bears_refusals: AtomicBool,
    /// It must take every write: an index of deadlines is kept there.
    must_write: AtomicBool,
    /// Counts the same, for whoever collects metrics; made at the first use, when a recorder is there.
    counter: OnceLock<metrics::Counter>,
    probes: servers::Probes,
}

impl Connector {
    /// Connects and checks the server. A server that cannot be reached now is no error: it is looked for until
    /// [`Connector::close`].
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`]: the server answers and must not be used (too old, it evicts keys, it does not let us
    /// in); the text says what to do.
    pub async fn start(options: RedisOptions) -> Result<Self> {
        let shared = Arc::new(Shared {
            options,
            counter: OnceLock::new(),
            owner: OnceLock::new(),
            link: ArcSwapOption::empty(),
            seat: Mutex::default(),
            trouble: ArcSwap::from_pointee("not connected yet".to_owned()),
            failing: Failing::default(),
            epoch: watch::Sender::new(0),
            number: AtomicU64::new(0),
            wake: Notify::new(),
            calls: AtomicU64::new(0),
            evicts_expiring: AtomicBool::new(false),
            bears_refusals: AtomicBool::new(false),
            must_write: AtomicBool::new(false),
            probes: servers::Probes::default(),
        });
        if let Err(e) = shared.reconnect().await {
            if e.kind() == ErrorKind::Configuration {
                return Err(e);
            }
            tracing::warn!(why = %e, "Redis cannot be used yet; it is looked for until it can");
        }
        let task = tokio::spawn(watchdog::run(Arc::clone(&shared)));
        Ok(Self { shared, watchdog: Arc::new(Tasks::new(vec![task])) })
    }

    /// Why Redis cannot be used now, if it cannot.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        let trouble = self.shared.trouble.load();
        (!trouble.is_empty()).then(|| trouble.to_string())
    }

    /// Whether the server, as it was when it was connected to, may delete keys before their end.
    pub(crate) fn evicts_expiring(&self) -> bool {
        self.shared.evicts_expiring.load(Ordering::Acquire)
    }

    /// Queues and locks are kept there: what gives memory back must get through to a server that is full. An index of
    /// deadlines on the same connection has its way ([`Connector::must_write`]).
    pub(crate) fn bear_refusals(&self) {
        self.shared.bears_refusals.store(true, Ordering::Release);
    }

    /// A server that refuses a write is of no use at all.
    pub(crate) fn must_write(&self) {
        self.shared.must_write.store(true, Ordering::Release);
    }

    /// Looks again whether the server may delete keys before their end.
    pub(crate) async fn look_at_policy(&self) -> Result<()> {
        let Some(link) = self.shared.link.load_full() else { return Ok(()) };
        let evicts = check::evicts(&link).await?;
        self.shared.evicts_expiring.store(evicts, Ordering::Release);
        Ok(())
    }

    /// Commands sent since the start (a script is one).
    #[must_use]
    pub fn commands_sent(&self) -> u64 {
        self.shared.calls.load(Ordering::Relaxed)
    }

    /// Ends the connection and the task that watches it.
    pub async fn close(&self) {
        self.watchdog.ended().await;
        // On purpose, so it is no trouble to warn of.
        self.shared.note_trouble("it was closed".to_owned());
        self.shared.link.store(None);
    }

    pub(crate) fn options(&self) -> &RedisOptions {
        &self.shared.options
    }

    /// Who uses the name here, once that was said.
    pub(crate) fn owner(&self) -> Option<Owner> {
        self.shared.owner.get().copied()
    }

    /// Takes the name for `owner`, here and on every connection to come. A server that cannot be reached is asked once it
    /// can.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`]: the name is another's, or this connector has another owner.
    pub(crate) async fn take_name(&self, owner: Owner) -> Result<()> {
        if *self.shared.owner.get_or_init(|| owner) != owner {
            return Err(Error::new(ErrorKind::Configuration, "a connector serves one ledger"));
        }
        self.ask_whose().await
    }

    /// Asks whose the name is, when data may have been lost. Does nothing where nobody uses it.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`]: it is another's; the connection is given up until that changes.
    pub(crate) async fn ask_whose(&self) -> Result<()> {
        let (Some(owner), Some(link)) = (self.owner(), self.shared.link.load_full()) else { return Ok(()) };
        match owner.take(&link, &self.options().name).await {
            Err(e) if e.kind() == ErrorKind::Configuration => {
                self.shared.give_up(e.to_string());
                Err(e)
            }
            Err(e) => {
                tracing::debug!(error = %e, "whose the name is was not answered; asked again with the next heartbeat");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// A heartbeat found the name to be another's.
    pub(crate) fn is_anothers(&self, there: &Value) -> Error {
        let told =
            owner::text(there).map(|there| self.owner().map(|owner| owner.compare(&self.options().name, &there)));
        match told {
            Ok(Some(Err(e))) => {
                self.shared.give_up(e.to_string());
                unavailable(&e.to_string())
            }
            _ => reply::strange(there),
        }
    }

    /// Whether there is a connection; in a Cluster some of its servers may be missing.
    pub(crate) fn is_connected(&self) -> bool {
        self.shared.link.load().is_some()
    }

    /// Whether several keys may be named in one command.
    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.shared.options.mode, options::Mode::Cluster(_))
    }

    /// Learns of new connections.
    pub(crate) fn epochs(&self) -> watch::Receiver<u64> {
        self.shared.epoch.subscribe()
    }

    /// The number of the newest connection; it grows before the connection is used, and `epochs` tell of it after.
    pub(crate) fn epoch(&self) -> u64 {
        self.shared.number.load(Ordering::Acquire)
    }

    /// Runs `calls` in one round trip (more than [`MAX_CALLS`]: in several); each has an answer of its own. They may run
    /// in any order, and one whose answer was lost may have had its effect.
    pub(crate) async fn run(&self, calls: Vec<Call>) -> Vec<Result<Value>> {
        let mut answers = Vec::with_capacity(calls.len());
        for calls in calls.chunks(MAX_CALLS) {
            answers.extend(self.shared.run(calls).await);
        }
        answers
    }
}

impl Shared {
    async fn run(&self, calls: &[Call]) -> Vec<Result<Value>> {
        let Ok(link) = self.ready(calls.len() as u64) else {
            let why = self.trouble.load();
            return calls.iter().map(|_| Err(unavailable(&why))).collect();
        };
        self.count(calls.len() as u64);
        let mut answers = link.run(calls.iter().map(|call| call.command(false)).collect()).await;
        self.heal(&link, calls, &mut answers).await;
        self.learn(&link, calls, &answers);
        answers.into_iter().map(|answer| answer.map_err(failed)).collect()
    }

    /// Scripts that the server has forgotten (SCRIPT FLUSH, restart, failover) are sent again in full; whatever else was
    /// in the pipeline is left alone.
    async fn heal(&self, link: &Link, calls: &[Call], answers: &mut [RedisResult<Value>]) {
        let forgotten = |answer: &RedisResult<Value>| answer.as_ref().is_err_and(health::is_no_script);
        let which: Vec<usize> = (0..calls.len()).filter(|at| forgotten(&answers[*at])).collect();
        if which.is_empty() {
            return;
        }
        let commands = which.iter().map(|at| calls[*at].command(true)).collect();
        for (at, answer) in which.into_iter().zip(link.run(commands).await) {
            answers[at] = answer;
        }
    }

    /// What the answers say about the connection. A pipeline that is not answered is one silence, however long it is.
    fn learn(&self, link: &Arc<Link>, calls: &[Call], answers: &[RedisResult<Value>]) {
        let cluster = matches!(self.options.mode, options::Mode::Cluster(_));
        let mut noted: Vec<&[u8]> = Vec::new();
        for (call, answer) in calls.iter().zip(answers) {
            let symptom = answer.as_ref().map_or_else(|e| self.symptom(e), |_| Symptom::None);
            if symptom != Symptom::None {
                let holder = health::tag(&call.key, cluster);
                if noted.contains(&holder) {
                    continue;
                }
                noted.push(holder);
            }
            self.note(link, &call.key, symptom);
        }
        self.note_health(link);
    }

    /// One answer, of whoever holds `key`.
    fn note(&self, link: &Arc<Link>, key: &[u8], symptom: Symptom) {
        let cluster = matches!(self.options.mode, options::Mode::Cluster(_));
        let Some(why) = self.failing.note(key, symptom, cluster) else { return };
        if self.is_present(link) {
            self.set_trouble(why);
            if !cluster {
                self.link.store(None);
            }
            self.wake.notify_one();
        }
    }

    /// Whoever answers again is in no trouble.
    fn note_health(&self, link: &Arc<Link>) {
        if self.failing.is_empty() && self.is_present(link) && !self.trouble.load().is_empty() {
            self.set_trouble(String::new());
        }
    }

    fn is_present(&self, link: &Arc<Link>) -> bool {
        self.link.load().as_ref().is_some_and(|present| Arc::ptr_eq(present, link))
    }

    fn set_trouble(&self, why: String) {
        if !why.is_empty() && self.trouble.load().is_empty() {
            tracing::warn!(why, "Redis cannot be used");
        }
        self.note_trouble(why);
    }

    fn note_trouble(&self, why: String) {
        metrics::gauge!("tidegate_store_up", "store" => self.options.role.store()).set(if why.is_empty() {
            1.0
        } else {
            0.0
        });
        self.trouble.store(Arc::new(why));
    }

    /// Uses the present connection no more; the watchdog makes another once that can be used.
    fn give_up(&self, why: String) {
        self.set_trouble(why);
        self.link.store(None);
        self.wake.notify_one();
    }

    /// Makes a fresh connection, checks it, and puts it in the place of the old one.
    async fn reconnect(&self) -> Result<()> {
        let done = self.try_reconnect().await;
        if let Err(e) = &done
            && self.link.load().is_none()
        {
            let why = e.to_string();
            let before = self.trouble.load();
            if e.kind() == ErrorKind::Configuration && !before.is_empty() && **before != why {
                // It was away and is back, but not as it must be.
                tracing::warn!(why, "Redis cannot be used");
            }
            self.set_trouble(why);
        }
        done
    }

    async fn try_reconnect(&self) -> Result<()> {
        let link = link::connect(&self.options).await.map_err(failed)?;
        let evicts = check::usable(&link, self.options.role).await?;
        self.evicts_expiring.store(evicts, Ordering::Release);
        if let Some(owner) = self.owner.get() {
            owner.take(&link, &self.options.name).await?;
        }
        // Whoever holds a key that failed must take writes again; and the server as such.
        let mut keys = self.failing.keys();
        keys.push(Keys::new(&self.options.name).nodes());
        for answer in link.run(keys.iter().map(|key| probe(key)).collect()).await {
            match answer {
                Err(e) if self.symptom(&e) == Symptom::None && health::refuses_to_write(&e) => {}
                answer => drop(answer.map_err(failed)?),
            }
        }
        self.take_the_seat(&link).await;
        self.failing.clear();
        self.number.fetch_add(1, Ordering::AcqRel);
        self.link.store(Some(Arc::new(link)));
        self.set_trouble(String::new());
        self.epoch.send_modify(|epoch| *epoch += 1);
        Ok(())
    }
}

impl Shared {
    /// Ends the connection before at the server, before anything is sent on the new one: a question that is still on its way
    /// there must not come after what was said since, as a lock's after its giving back.
    async fn take_the_seat(&self, link: &Link) {
        let Some(present) = link.seat().await else { return };
        let seat = || self.seat.lock().unwrap_or_else(PoisonError::into_inner);
        let before = seat().replace(present.clone());
        if let Some(before) = before {
            link.replace(&before, &present).await;
        }
    }
}

/// A write that leaves nothing behind for long.
fn probe(key: &[u8]) -> Cmd {
    let mut command = redis::cmd("SET");
    command.arg(health::probe_key(key)).arg("1").arg("PX").arg(1_000);
    command
}

fn unavailable(why: &str) -> Error {
    // What an attempt to connect said is a sentence of its own.
    let said = if why.starts_with("Redis ") { why.to_owned() } else { format!("Redis cannot be used: {why}") };
    Error::new(ErrorKind::Unavailable, said)
}

/// A client's error as ours.
pub(crate) fn failed(e: redis::RedisError) -> Error {
    let kind = health::kind(&e);
    match health::next(&e) {
        Some(next) => Error::new(kind, "Redis cannot be used").because(format!("{e}; {next}")),
        None if health::is_unreached(&e) => Error::new(kind, "Redis cannot be reached").because(e),
        None => {
            let advice = health::advice(&e);
            Error::new(kind, "Redis does not do as it was told").because(e).advise(advice)
        }
    }
}
