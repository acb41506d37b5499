//! The watch over Redis and Valkey: it asks servers for `INFO` once a second or slower, and says when something is wrong and when
//! it is over, with cause, evidence, the next command and its risk. It works with `INFO` alone; what it may not see is unknown.
//!
//! - [`Watch`]: a task that looks until it is stopped: [`Watch::findings`], [`Watch::memory`], [`Watch::changes`].
//! - [`look_once`]: two looks, and whatever they show at once.
//! - [`alerts`]: messages to people by whatever takes them ([`Watch::start_alerting`]).
//! - [`state`]: [`StateKeeper`], what must outlive the process, and [`StateFile`].
//! - `restored.rs`: which servers of the kept state are watched no more. `sight.rs`: whether it could look at all. `metrics.rs`: the same in numbers.
//!
//! The rules and what may be set of them: [`Settings`], [`Rule`], [`RuleSettings`].

pub mod alerts;
mod metrics;
mod restored;
mod sight;
pub mod state;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::{broadcast, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval};

pub use state::{Claim, StateFile, StateKeeper};
pub use tidegate_backend::watch::{Round, SampleSource};
pub use tidegate_core::watch::{
    Answer, BadState, Change, Client, Config, Finding, Host, Info, Judge, Memory, Purpose, Reply, Rule, RuleSettings,
    Sample, Settings, Severity, Silence, SlowCommand,
};
#[cfg(feature = "redis")]
pub use tidegate_redis::RedisSamples;

use crate::{Error, Result};
use alerts::{AlertSink, MAX_SINKS, Post, deliver};
use restored::Unnamed;
use sight::Sight;

/// Closed findings that are kept; the oldest go first.
const CLOSED: usize = 1_000;
/// Changes that a reader may fall behind; then it misses the oldest, and [`Watch::findings`] has what is open.
const CHANGES: usize = 1_024;
/// How often the state is kept while nothing changes.
const KEEP: Duration = Duration::from_secs(10);
/// The shortest and the longest time between two looks.
const INTERVAL: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3_600));

/// How a watch runs.
#[derive(Debug, Clone, PartialEq)]
pub struct WatchOptions {
    /// Between two looks at a server; 100 ms to an hour, a second unless set.
    pub interval: Duration,
    /// What is judged, and how.
    pub settings: Settings,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self { interval: Duration::from_secs(1), settings: Settings::default() }
    }
}

impl WatchOptions {
    /// How long a server has for its answer, so that a look is over before the next: a second at most.
    #[must_use]
    pub fn patience(&self) -> Duration {
        self.interval.clamp(Duration::from_millis(500), Duration::from_secs(1))
    }
}

/// Samples of the servers that `urls` name (as [`RedisOptions`](tidegate_redis::RedisOptions) reads them).
///
/// # Errors
/// [`Error::Configuration`]: what is wrong with a URL, never its password.
#[cfg(feature = "redis")]
pub fn on_redis(urls: &[String], options: &WatchOptions) -> Result<Vec<Box<dyn SampleSource>>> {
    on_redis_trusting(urls, None, options)
}

/// The same; `authority` (PEM) is what TLS trusts instead of the system's.
///
/// # Errors
/// As [`on_redis`].
#[cfg(feature = "redis")]
pub fn on_redis_trusting(
    urls: &[String],
    authority: Option<&[u8]>,
    options: &WatchOptions,
) -> Result<Vec<Box<dyn SampleSource>>> {
    let patience = options.patience();
    let source = |url: &String| -> Result<Box<dyn SampleSource>> {
        let mut redis = tidegate_redis::RedisOptions::parse(url).map_err(|e| Error::Configuration(e.to_string()))?;
        if let Some(pem) = authority {
            redis = redis.authority(pem);
        }
        Ok(Box::new(RedisSamples::new(redis, patience)))
    };
    urls.iter().map(source).collect()
}

/// A watch that runs. Dropped, it ends at once; [`Watch::stop`] also keeps what it knows.
pub struct Watch {
    shared: Arc<Shared>,
    /// From before the first look, for whoever asks first.
    early: Mutex<Option<broadcast::Receiver<Change>>>,
    stop: watch::Sender<bool>,
    task: Mutex<Option<JoinHandle<()>>>,
    /// What is kept is this watch's until it keeps nothing more.
    claim: Mutex<Option<Claim>>,
}

struct Shared {
    judge: Mutex<Judge>,
    closed: Mutex<VecDeque<Finding>>,
    changes: broadcast::Sender<Change>,
    keeper: Option<Arc<dyn StateKeeper>>,
    /// Held while the state is kept, and while a look changes it: what is kept is never half of a change, and one after the other.
    keeping: tokio::sync::Mutex<()>,
    post: Arc<Post>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    /// Begins to look at `sources`, each as often as `options` say, going on from what `keeper` has.
    ///
    /// # Errors
    /// [`Error::Configuration`]: the interval is out of its bounds, the kept state cannot be read, or another watch keeps its own
    /// there.
    pub async fn start(
        sources: Vec<Box<dyn SampleSource>>,
        options: WatchOptions,
        keeper: Option<Arc<dyn StateKeeper>>,
    ) -> Result<Self> {
        Self::start_alerting(sources, options, keeper, Vec::new()).await
    }

    /// The same, and tells every opening and closing to each of `sinks`, at most [`MAX_SINKS`]: at least once, also over restarts, if
    /// there is a `keeper`.
    ///
    /// # Errors
    /// As [`Watch::start`]; also that there are too many sinks, or two of one name.
    pub async fn start_alerting(
        sources: Vec<Box<dyn SampleSource>>,
        options: WatchOptions,
        keeper: Option<Arc<dyn StateKeeper>>,
        sinks: Vec<Arc<dyn AlertSink>>,
    ) -> Result<Self> {
        if !(INTERVAL.0..=INTERVAL.1).contains(&options.interval) {
            let (least, most) = INTERVAL;
            return Err(Error::Configuration(format!("the interval of the watch must be from {least:?} to {most:?}")));
        }
        let names: std::collections::BTreeSet<&str> = sinks.iter().map(|sink| sink.name()).collect();
        if names.len() < sinks.len() || sinks.len() > MAX_SINKS {
            return Err(Error::Configuration(format!(
                "a watch has at most {MAX_SINKS} sinks, each with a name of its own"
            )));
        }
        let (judge, post, claim) = restored(options.settings.clone(), keeper.clone(), &sinks).await?;
        let every_ms = i64::try_from(options.interval.as_millis()).unwrap_or(i64::MAX);
        let mut judge = judge.looking_every(every_ms);
        let unnamed = Unnamed::of(judge.addresses());
        let over = judge.close_off(tidegate_backend::clock::host_now());
        let shared = Arc::new(Shared {
            judge: Mutex::new(judge),
            closed: Mutex::new(VecDeque::new()),
            changes: broadcast::Sender::new(CHANGES),
            keeper,
            keeping: tokio::sync::Mutex::new(()),
            post: Arc::new(post),
        });
        let early = Mutex::new(Some(shared.changes.subscribe()));
        if shared.tell(over) {
            shared.post.changed.notify_one();
        }
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(run(Arc::clone(&shared), sources, unnamed, options.interval, stopped));
        Ok(Self { shared, early, stop, task: Mutex::new(Some(task)), claim: Mutex::new(claim) })
    }

    /// What is open now, by server and rule.
    #[must_use]
    pub fn findings(&self) -> Vec<Finding> {
        locked(&self.shared.judge).open().cloned().collect()
    }

    /// What was closed since the start, the newest first; the last thousand are kept.
    #[must_use]
    pub fn closed(&self) -> Vec<Finding> {
        locked(&self.shared.closed).iter().rev().cloned().collect()
    }

    /// The memory of each server that has answered.
    #[must_use]
    pub fn memory(&self) -> Vec<Memory> {
        locked(&self.shared.judge).memory().cloned().collect()
    }

    /// Every opening and closing: for the first who asks from the start, for others from now on. Who falls far behind misses the
    /// oldest; what is open is in [`Watch::findings`].
    #[must_use]
    pub fn changes(&self) -> broadcast::Receiver<Change> {
        locked(&self.early).take().unwrap_or_else(|| self.shared.changes.subscribe())
    }

    /// Ends it once the look and the deliveries under way are over, within three seconds, and keeps what it knows.
    pub async fn stop(&self) {
        self.stop.send_replace(true);
        let task = locked(&self.task).take();
        if let Some(task) = task {
            // It ends by itself; how is of no interest.
            let _ = task.await;
        }
        drop(locked(&self.claim).take());
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(task) = &*locked(&self.task) {
            task.abort();
        }
    }
}

/// The field of the kept state that has the messages which are not delivered; the rest is the judge's.
const ALERTS: &str = "alerts";

/// What is kept, or what is known before anything was; and the claim on it.
async fn restored(
    settings: Settings,
    keeper: Option<Arc<dyn StateKeeper>>,
    sinks: &[Arc<dyn AlertSink>],
) -> Result<(Judge, Post, Option<Claim>)> {
    let anew = |settings| (Judge::new(settings), Post::new(sinks.to_vec()));
    let Some(keeper) = keeper else {
        let (judge, post) = anew(settings);
        return Ok((judge, post, None));
    };
    let place = keeper.place();
    let (held, loading) = (Arc::clone(&keeper), Arc::clone(&keeper));
    let claim = blocking(move || held.claim()).await.map_err(|e| Error::Configuration(e.to_string()))?;
    let damage = match blocking(move || loading.load()).await {
        Ok(None) => None,
        Ok(Some(text)) => match read(&settings, sinks, &text) {
            Ok((judge, post)) => return Ok((judge, post, Some(claim))),
            Err(why) => Some(why),
        },
        Err(e) if e.kind() == std::io::ErrorKind::InvalidData => Some(format!("it is no text: {e}")),
        Err(e) => {
            let why = "check the path and its permissions";
            return Err(Error::Configuration(format!("the state of the watch cannot be read ({place}): {e}; {why}")));
        }
    };
    if let Some(why) = damage {
        let aside = blocking(move || keeper.set_aside()).await;
        match aside {
            Ok(there) => tracing::error!(
                file = place,
                why,
                kept = there,
                "the watch begins anew, since what it had kept cannot be read: what is open is told again, and alerts that waited are lost"
            ),
            Err(e) => {
                let nor = match e.kind() {
                    std::io::ErrorKind::Unsupported => String::new(),
                    _ => format!(", nor set aside: {e}"),
                };
                return Err(Error::Configuration(format!(
                    "the state of the watch cannot be read ({place}): {why}{nor}; delete it to begin anew: open findings are then \
                     told again, and alerts that waited are lost"
                )));
            }
        }
    }
    let (judge, post) = anew(settings);
    Ok((judge, post, Some(claim)))
}

/// Both parts of a kept text, or why it cannot be used.
fn read(settings: &Settings, sinks: &[Arc<dyn AlertSink>], text: &str) -> std::result::Result<(Judge, Post), String> {
    let judge = Judge::restore(settings.clone(), text).map_err(|BadState(why)| why)?;
    let mut all: Map<String, Value> = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let post = match all.remove(ALERTS) {
        Some(kept) => Post::restore(sinks.to_vec(), kept).map_err(|e| format!("its {ALERTS:?}: {e}"))?,
        // An older Tidegate kept none.
        None => Post::new(sinks.to_vec()),
    };
    Ok((judge, post))
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> std::io::Result<T> + Send + 'static) -> std::io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|e| Err(std::io::Error::other(e)))
}

async fn run(
    shared: Arc<Shared>,
    mut sources: Vec<Box<dyn SampleSource>>,
    mut unnamed: Unnamed,
    every: Duration,
    mut stop: watch::Receiver<bool>,
) {
    let mut delivering = JoinSet::new();
    for sink in shared.post.sinks() {
        delivering.spawn(deliver(Arc::clone(&shared.post), Arc::clone(sink), stop.clone()));
    }
    delivering.spawn(keep_deliveries(Arc::clone(&shared), stop.clone()));
    let mut tick = interval(every);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut kept_at = tokio::time::Instant::now();
    let mut sight = Sight::new(kept_at, every);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            _ = stop.changed() => break,
        }
        let rounds = tidegate_backend::watch::all(&mut sources).await;
        sight.looked(tokio::time::Instant::now(), &rounds);
        let keeping = shared.keeping.lock().await;
        let changed = shared.take(&rounds, &mut unnamed);
        if changed || kept_at.elapsed() >= KEEP {
            shared.keep().await;
            kept_at = tokio::time::Instant::now();
        }
        drop(keeping);
    }
    while delivering.join_next().await.is_some() {}
    shared.keep().await;
}

/// Keeps what became of messages at once: a look that waits for a silent server takes seconds, and after a crash meanwhile what was
/// delivered would be sent again.
async fn keep_deliveries(shared: Arc<Shared>, mut stop: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            () = shared.post.changed.notified() => {}
            _ = stop.changed() => return,
        }
        let _keeping = shared.keeping.lock().await;
        shared.keep().await;
    }
}

impl Shared {
    /// Judges what a look has shown; whether that changed anything.
    fn take(&self, rounds: &[Round], unnamed: &mut Unnamed) -> bool {
        let (changes, open) = {
            let mut judge = locked(&self.judge);
            let now = tidegate_backend::clock::host_now();
            let mut changes: Vec<Change> = rounds.iter().flat_map(|round| judged(&mut judge, round)).collect();
            changes.extend(unnamed.gone(rounds).iter().flat_map(|address| judge.forget(address, now)));
            metrics::count(rounds);
            metrics::memory(judge.memory());
            (changes, judge.open().map(|finding| finding.rule).collect::<Vec<_>>())
        };
        metrics::open(&open);
        self.tell(changes)
    }

    /// Tells of `changes` to whoever listens; whether there are any.
    fn tell(&self, changes: Vec<Change>) -> bool {
        let is_changed = !changes.is_empty();
        for change in changes {
            if let Change::Closed(finding) = &change {
                let mut closed = locked(&self.closed);
                closed.push_back(finding.clone());
                if closed.len() > CLOSED {
                    closed.pop_front();
                }
            }
            self.post.tell(&change);
            // Nobody has to listen.
            let _ = self.changes.send(change);
        }
        is_changed
    }

    /// Keeps what must outlive the process; only then messages are sent, so that none is made twice. What cannot be kept is sent
    /// all the same.
    async fn keep(self: &Arc<Self>) {
        if let Some(keeper) = self.keeper.clone() {
            let shared = Arc::clone(self);
            // Where thousands of messages wait, the text alone takes a while.
            if let Err(e) = blocking(move || keeper.save(&shared.text())).await {
                tracing::warn!(error = %e, "the state of the watch cannot be kept: after a restart what is open is told again");
            }
        }
        self.post.release();
    }

    fn text(&self) -> String {
        let judge = locked(&self.judge).save();
        let alerts = self.post.save();
        match serde_json::from_str::<Map<String, Value>>(&judge) {
            Ok(mut all) if alerts.as_object().is_some_and(|lines| !lines.is_empty()) => {
                all.insert(ALERTS.to_owned(), alerts);
                Value::Object(all).to_string()
            }
            _ => judge,
        }
    }
}

fn judged(judge: &mut Judge, round: &Round) -> Vec<Change> {
    let mut changes: Vec<Change> = round.samples.iter().flat_map(|sample| judge.judge(sample)).collect();
    let now = tidegate_backend::clock::host_now();
    changes.extend(round.gone.iter().flat_map(|address| judge.forget(address, now)));
    changes
}

/// What two looks show, `options.interval` apart.
#[derive(Debug)]
pub struct Once {
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// The memory of each server that answered.
    pub memory: Vec<Memory>,
    /// Servers that did not answer in the second look, and why.
    pub silent: Vec<(String, Silence, String)>,
}

/// Looks twice, and says what is wrong by one bad sample of each rule instead of several.
pub async fn look_once(mut sources: Vec<Box<dyn SampleSource>>, options: &WatchOptions) -> Once {
    let mut judge = Judge::new(options.settings.clone().at_once());
    let mut silent = Vec::new();
    for look in 0..2 {
        if look > 0 {
            tokio::time::sleep(options.interval).await;
        }
        silent.clear();
        for round in tidegate_backend::watch::all(&mut sources).await {
            judged(&mut judge, &round);
            silent.extend(round.samples.iter().filter_map(|sample| match &sample.reply {
                Reply::Silence { kind, why, .. } => Some((sample.address.clone(), *kind, why.clone())),
                Reply::Answer(_) => None,
            }));
        }
    }
    Once { findings: judge.open().cloned().collect(), memory: judge.memory().cloned().collect(), silent }
}
