//! Builds a generation: registered, then read from the source, then current. One process at a time builds, by a lease; a
//! builder that dies is taken over when that ends, from the beginning. The lease saves work, never safety: a generation
//! becomes current only where it is still the registered one.

use std::error::Error as StdError;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidegate_backend::membership::{Agreed, Change, MAX_BUCKETS_A_CALL};
use tidegate_backend::{BoxFuture, Error};
use tidegate_core::cache::membership::{Generation, MAX_CAPACITY, Members, Shape, State, home};

use super::register::{Known, Register};
use super::source::{AnySource, MAX_IDS_A_PAGE, Reading};
use super::{MembershipStatus, Mutant};
use crate::cache::errors::CacheError;

/// How long a builder that died holds others up.
const LEASE: Duration = Duration::from_secs(5);
/// Between two looks at a filter that refuses nobody yet, or whose store does not answer.
const SOON: Duration = Duration::from_secs(1);
/// Between two looks at one that works.
const LATER: Duration = Duration::from_secs(10);
/// The longest pause after builds that failed.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// A generation that lost buckets, or is too small, is replaced after it has lived so long, milliseconds.
const LEAST_LIFE_MS: i64 = 60_000;
/// Tries of one page.
const MAX_TRIES: u32 = 5;
const FIRST_RETRY: Duration = Duration::from_millis(200);
/// The longest pause between two pages: as long as the page before took, up to this.
const LONGEST_BREATH: Duration = Duration::from_secs(1);
/// Most ids of one reading: a source with more never ends.
const MAX_IDS: u64 = MAX_CAPACITY * 10;
/// Most readings of one build: each is for a larger capacity.
const MAX_READINGS: u32 = 4;
/// Most times that a change is tried again because others changed the state.
const MAX_ROUNDS: usize = 16;
/// Between two tries to lead.
const LEAD_AGAIN: Duration = Duration::from_millis(200);

/// Starts the task that looks after a filter: it builds, if there is a source, and makes additions again.
pub(super) fn start(register: &Arc<Register>) {
    let (weak, wake) = (Arc::downgrade(register), Arc::clone(&register.wake));
    // It ends with its caches, or when its cache is gone.
    register.hub.spawn(async move {
        let mut failures = 0;
        while let Some(register) = weak.upgrade() {
            let pause = match Builder::of(&register) {
                Some(builder) => builder.tend(&mut failures).await,
                None => look_after(&register).await,
            };
            drop(register);
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                // Asked for; but not in a loop of failures.
                () = wake.notified(), if failures == 0 => tokio::time::sleep(LEAD_AGAIN).await,
            }
        }
    });
}

/// Looks at a filter that others build.
async fn look_after(register: &Register) -> Duration {
    let looked = register.status().await;
    if looked.is_ok() && register.repeat().await.is_ok() { LATER } else { SOON }
}

/// Why nothing was built.
#[derive(Debug)]
enum Failed {
    Store(Error),
    Source(Arc<dyn StdError + Send + Sync>),
    /// Another process builds, or the state was changed by others.
    Overtaken,
    /// The source has so many ids.
    TooSmall(u64),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => write!(f, "its store: {error}"),
            Self::Source(error) => write!(f, "its source of ids: {error}"),
            Self::Overtaken => f.write_str("another process builds it"),
            Self::TooSmall(ids) => write!(f, "its source grew to {ids} ids while it was read"),
        }
    }
}

/// A source that breaks its promise.
#[derive(Debug)]
struct BadSource(String);

impl fmt::Display for BadSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for BadSource {}

fn bad_source(why: String) -> Failed {
    Failed::Source(Arc::new(BadSource(why)))
}

pub(super) struct Builder<'a> {
    register: &'a Register,
    source: &'a dyn AnySource,
}

/// A generation that is being built.
struct Site {
    generation: Generation,
    /// What the store called itself.
    home: Bytes,
    /// Who builds.
    leader: u64,
}

impl<'a> Builder<'a> {
    /// `None`: there is no source.
    pub(super) fn of(register: &'a Register) -> Option<Self> {
        Some(Self { source: register.plan.source.as_deref()?, register })
    }

    /// A build that begins now, whoever builds meanwhile.
    pub(super) async fn now(&self) -> Result<(), CacheError> {
        let leader = random();
        // Two leases: what another builds, and one builder that died.
        let mut failures = 0;
        loop {
            match self.as_leader(leader, true).await {
                Ok(()) => return Ok(()),
                Err(Failed::Overtaken) => tokio::time::sleep(LEAD_AGAIN).await,
                Err(Failed::Store(error)) => return Err(CacheError::store(error)),
                Err(Failed::Source(error)) => return Err(CacheError::Load(error)),
                Err(Failed::TooSmall(_)) if failures < MAX_READINGS => failures += 1,
                Err(Failed::TooSmall(_)) => return Err(CacheError::Timeout),
            }
        }
    }

    /// Looks whether there is something to do, and does it. How long until the next look.
    async fn tend(&self, failures: &mut u32) -> Duration {
        let register = self.register;
        let Ok(status) = register.status().await else { return SOON };
        if let Err(error) = register.repeat().await {
            tracing::debug!(%error, "additions of the last minute could not be made again");
            return SOON;
        }
        let Some(why) = self.due(&status) else {
            *failures = 0;
            return if status.complete { LATER } else { SOON };
        };
        let done = self.as_leader(random(), false).await;
        let outcome = match &done {
            Ok(()) => "ok",
            Err(Failed::Overtaken) => return SOON,
            Err(_) => "error",
        };
        let name = register.namespace.to_string();
        metrics::counter!("tidegate_cache_filter_builds_total", "namespace" => name, "outcome" => outcome).increment(1);
        match done {
            Ok(()) => {
                *failures = 0;
                tracing::info!(namespace = %register.namespace, why, "a membership filter was built");
                SOON
            }
            Err(failed) => {
                *failures = failures.saturating_add(1);
                let pause = (SOON * 2_u32.saturating_pow(*failures - 1)).min(LONGEST_PAUSE);
                tracing::warn!(
                    namespace = %register.namespace, why, %failed, again_s = pause.as_secs(),
                    "a membership filter could not be built"
                );
                pause
            }
        }
    }

    /// Why a new generation is needed.
    fn due(&self, status: &MembershipStatus) -> Option<&'static str> {
        let register = self.register;
        let known = register.known();
        let Some(state) = &known.state else {
            // Another version's: who adds to it will remove it.
            return None;
        };
        let Some(current) = &state.current else { return Some("there is none") };
        if !current.is_known() {
            return None;
        }
        if !status.complete {
            return Some("its store is on another server, or was started again");
        }
        let age = register.hub.store.store.now().since(current.begun);
        let period = i64::try_from(register.plan.rebuild_every.as_millis()).unwrap_or(i64::MAX);
        // The same part for all processes, another for each generation.
        let less = period / 10 * (current.id % 1_000) as i64 / 1_000;
        if age >= period - less {
            return Some("it is old");
        }
        if age < LEAST_LIFE_MS {
            return None;
        }
        if register.missing.load(Ordering::Acquire) {
            return Some("its store has lost a part of it");
        }
        (status.ids > current.capacity && current.capacity < MAX_CAPACITY).then_some("it is too small")
    }

    /// Builds, if nobody else does, and if it is still needed or `asked` for; the lease is kept meanwhile.
    async fn as_leader(&self, leader: u64, asked: bool) -> Result<(), Failed> {
        let register = self.register;
        if !register.store().lead(&register.namespace, leader, LEASE).await? {
            return Err(Failed::Overtaken);
        }
        let built = tokio::select! {
            built = self.build(leader, asked) => built,
            () = self.lose_lead(leader), if !self.is_blind() => Err(Failed::Overtaken),
        };
        // If this is not answered, the lease ends by itself.
        let _ = register.store().lead(&register.namespace, leader, Duration::ZERO).await;
        built
    }

    /// Renews the lease for as long as that works.
    async fn lose_lead(&self, leader: u64) {
        let register = self.register;
        let mut held = Instant::now();
        while held.elapsed() < LEASE {
            tokio::time::sleep(LEASE / 4).await;
            let asked = Instant::now();
            match register.store().lead(&register.namespace, leader, LEASE).await {
                Ok(true) => held = asked,
                Ok(false) => return,
                Err(_) => {}
            }
        }
    }

    async fn build(&self, leader: u64, asked: bool) -> Result<(), Failed> {
        let plan = &self.register.plan;
        let status = self.register.status().await?;
        if !asked && self.due(&status).is_none() {
            // Another process was faster.
            return Ok(());
        }
        let mut capacity = plan.capacity;
        if status.complete && status.ids > capacity / 10 * 9 {
            capacity = larger(status.ids);
        }
        for _ in 0..MAX_READINGS {
            let early = match plan.mutant {
                Some(Mutant::ReadsFirst) => Some(self.read_all().await?),
                _ => None,
            };
            let site = self.register_new(leader, plan.shape(capacity), capacity).await?;
            match self.fill(&site, early).await {
                Ok(()) => return Ok(()),
                Err(failed) => {
                    self.discard(&site.generation).await;
                    match failed {
                        Failed::TooSmall(ids) => capacity = larger(ids),
                        failed => return Err(failed),
                    }
                }
            }
        }
        Err(Failed::TooSmall(capacity))
    }

    /// Makes the buckets of a new generation, then registers it: from then on additions reach it.
    async fn register_new(&self, leader: u64, shape: Shape, capacity: u64) -> Result<Site, Failed> {
        let register = self.register;
        let id = random();
        for buckets in calls(shape) {
            register.store().prepare(&register.namespace, id, buckets, register.plan.keep()).await?;
        }
        for _ in 0..MAX_ROUNDS {
            let held = register.store().look(&register.namespace, 0, &[]).await?;
            let known = register.learn_from(&held);
            let state = known.state.unwrap_or_default();
            let begun = register.hub.store.store.now();
            let layout = shape.layout();
            let generation = Generation { id, seed: random(), shape, capacity, begun, home: home(&held.home), layout };
            let new = State { current: state.current, building: Some(generation) };
            let site = Site { generation, home: held.home.clone(), leader };
            if self.change(&known, &new, &site).await? {
                return Ok(site);
            }
        }
        Err(Failed::Overtaken)
    }

    /// Replaces what is known by `new`, for the builder of `site`; false: it is not what is there, or he builds no more.
    async fn change(&self, known: &Known, new: &State, site: &Site) -> Result<bool, Failed> {
        let register = self.register;
        let new = new.bytes();
        let keep = register.plan.keep();
        let change = Change { state: &known.bytes, new: &new, home: &site.home, leader: site.leader, keep };
        Ok(register.store().replace(&register.namespace, change).await? == Agreed::Done)
    }

    /// What a mutant reads too early.
    async fn read_all(&self) -> Result<Box<dyn Reading>, Failed> {
        let (mut pages, mut reading) = (Vec::new(), self.source.read());
        loop {
            let page = self.page(&mut *reading).await?;
            if page.is_empty() {
                return Ok(Box::new(Before(pages.into_iter())));
            }
            pages.push(page);
        }
    }

    async fn fill(&self, site: &Site, early: Option<Box<dyn Reading>>) -> Result<(), Failed> {
        let register = self.register;
        let generation = &site.generation;
        // Whoever added an id before the registration commits it within this time, or the reading may miss it.
        tokio::time::sleep(register.plan.settle).await;
        let members = Members::new(generation.shape);
        let (mut ids, mut distinct) = (0, 0);
        let mut reading = early.unwrap_or_else(|| self.source.read());
        loop {
            let page = self.page(&mut *reading).await?;
            if page.is_empty() {
                break;
            }
            ids += page.len() as u64;
            if ids > MAX_IDS {
                return Err(bad_source(format!("it gave more than {MAX_IDS} ids and does not end")));
            }
            distinct += page.iter().filter(|id| members.insert(generation.place(id))).count() as u64;
        }
        if ids > generation.capacity && generation.capacity < MAX_CAPACITY {
            return Err(Failed::TooSmall(ids));
        }
        self.merge(site, &members, distinct).await?;
        self.swap(site, members).await
    }

    /// The next page; a source that fails is asked again some times. It is given as long to rest as it took.
    async fn page(&self, reading: &mut dyn Reading) -> Result<Vec<Bytes>, Failed> {
        let (mut pause, mut tries) = (FIRST_RETRY, 0);
        loop {
            tries += 1;
            let began = Instant::now();
            match reading.next().await {
                Ok(page) if page.len() > MAX_IDS_A_PAGE => {
                    return Err(bad_source(format!("{} ids are more than the {MAX_IDS_A_PAGE} of a page", page.len())));
                }
                Ok(page) => {
                    tokio::time::sleep(began.elapsed().min(LONGEST_BREATH)).await;
                    return Ok(page);
                }
                Err(error) if tries >= MAX_TRIES => return Err(Failed::Source(error)),
                Err(error) => {
                    tracing::debug!(namespace = %self.register.namespace, %error, "a page of ids could not be read");
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
            }
        }
    }

    /// Brings what was read into the store.
    async fn merge(&self, site: &Site, members: &Members, distinct: u64) -> Result<(), Failed> {
        let register = self.register;
        let id = site.generation.id;
        let buckets = site.generation.shape.buckets;
        for part in calls(site.generation.shape) {
            // What was added before is in the reading, or is not much: ids that changed meanwhile would count twice.
            let added = (part.end == buckets).then_some(distinct);
            let bits: Vec<(u32, Bytes)> = part.filter_map(|at| Some((at, Bytes::from(members.bytes(at)?)))).collect();
            let mut known = register.known();
            let mut rounds = 0;
            while register.store().merge(&register.namespace, &known.bytes, id, &bits, added).await? != Agreed::Done {
                known = register.learn_from(&register.store().look(&register.namespace, 0, &[]).await?);
                rounds += 1;
                if !self.is_built(&known, id) || rounds == MAX_ROUNDS {
                    return Err(Failed::Overtaken);
                }
            }
        }
        Ok(())
    }

    /// Makes the generation current and deletes the one before.
    async fn swap(&self, site: &Site, members: Members) -> Result<(), Failed> {
        let register = self.register;
        for _ in 0..MAX_ROUNDS {
            let held = register.store().look(&register.namespace, 0, &[]).await?;
            let known = register.learn_from(&held);
            if !self.is_built(&known, site.generation.id) {
                return Err(Failed::Overtaken);
            }
            let before = known.state.and_then(|state| state.current);
            let new = State { current: Some(site.generation), building: None };
            let leader = if self.is_blind() { 0 } else { site.leader };
            let site_of = Site { leader, home: site.home.clone(), ..*site };
            if !self.change(&known, &new, &site_of).await? {
                continue;
            }
            register.missing.store(false, Ordering::Release);
            register.learn_from(&register.store().look(&register.namespace, 0, &[]).await?);
            register.take_members(site.generation.id, members);
            if let Some(before) = before {
                self.discard(&before).await;
            }
            return Ok(());
        }
        Err(Failed::Overtaken)
    }

    /// A mutant.
    fn is_blind(&self) -> bool {
        self.register.plan.mutant == Some(Mutant::SwapsBlindly)
    }

    /// Whether it is this generation that is built.
    fn is_built(&self, known: &Known, id: u64) -> bool {
        let building = known.state.as_ref().and_then(|state| state.building);
        building.is_some_and(|building| building.id == id) || self.is_blind()
    }

    /// Deletes buckets; those that are left end by themselves.
    async fn discard(&self, generation: &Generation) {
        let register = self.register;
        for part in calls(generation.shape) {
            if register.store().discard(&register.namespace, generation.id, part).await.is_err() {
                return;
            }
        }
    }
}

/// What was read before.
struct Before(std::vec::IntoIter<Vec<Bytes>>);

impl Reading for Before {
    fn next(&mut self) -> BoxFuture<'_, Result<Vec<Bytes>, Arc<dyn StdError + Send + Sync>>> {
        Box::pin(std::future::ready(Ok(self.0.next().unwrap_or_default())))
    }
}

/// Room to grow.
fn larger(ids: u64) -> u64 {
    ids.saturating_add(ids / 2).min(MAX_CAPACITY)
}

/// The buckets of a shape, as many at a time as one call takes.
fn calls(shape: Shape) -> impl Iterator<Item = Range<u32>> {
    let most = MAX_BUCKETS_A_CALL as u32;
    (0..shape.buckets).step_by(MAX_BUCKETS_A_CALL).map(move |from| from..shape.buckets.min(from + most))
}

/// A random number, never 0.
fn random() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().1.max(1)
}
