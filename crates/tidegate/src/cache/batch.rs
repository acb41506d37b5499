//! Many keys at once: one question to the store, one batch of leases, one load.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use tidegate_backend::CacheKey;
use tidegate_backend::cache::MAX_CACHE_BATCH;
use tidegate_core::Map;
use tidegate_core::cache::cell::{Holder, Notes};
use tidegate_core::cache::{Key, Op, Reply, TagStamp};
use tracing::Instrument;

use super::attempt::{Attempt, guarded, renewal};
use super::chain;
use super::errors::CacheError;
use super::flight::{Landed, Landing, Purpose, Ticket};
use super::governor::{Permit, admit, admit_spare_within};
use super::load::{Hint, Leader, Look, Point, Want};
use super::loader::{LoadContext, Loaded};
use super::read::{Asked, How, Read, Source, mark_began};
use super::space::{Inner, Seen};

/// Keys that are warmed together.
const WARM_BATCH: usize = 100;

type Answer<V> = Result<Read<V>, CacheError>;

/// A key of a batch whose flight this batch is.
struct Member<K, V> {
    leader: Leader<K, V>,
    ticket: Ticket<V>,
}

/// A member that loads, with the lease that it got, if any.
struct Granted<K, V> {
    member: Member<K, V>,
    holder: Option<Holder>,
    /// Before the lease was asked for.
    point: Point,
    stamps: Option<Vec<TagStamp>>,
}

impl<K, V> Inner<K, V>
where
    K: Key + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Answers in order. At most [`MAX_CACHE_BATCH`] keys.
    pub(super) async fn read_many(self: &Arc<Self>, keys: &[K]) -> Vec<Answer<V>> {
        let asked = self.hub.next();
        let mut answers: Vec<Option<Answer<V>>> = Vec::with_capacity(keys.len());
        let mut missing = Vec::new();
        for (at, key) in keys.iter().enumerate() {
            answers.push(match key.encode() {
                Err(error) => Some(Err(error.into())),
                Ok(written) => match self.sampled(key, &written).try_local(key, &written) {
                    Some(read) => Some(Ok(read)),
                    None if chain::contains(Arc::as_ptr(self).addr(), written.as_bytes()) => {
                        Some(Err(CacheError::Recursion))
                    }
                    None => {
                        missing.push((at, Bytes::copy_from_slice(written.as_bytes())));
                        None
                    }
                },
            });
        }
        let asked_store = self.ask_store_many(keys, &missing).await;
        let mut waiting = Vec::new();
        let mut hinted = Vec::new();
        for ((at, bytes), asked) in missing.into_iter().zip(asked_store) {
            match asked {
                Asked::Answered(answer) => answers[at] = Some(answer),
                Asked::Missing(hint) => hinted.push((at, bytes, hint)),
            }
        }
        for at in self.refuse_of(&mut hinted).await {
            answers[at] = Some(Ok(self.refusal()));
        }
        for (at, bytes, landing) in self.start_many(keys, hinted, None) {
            waiting.push(async move { (at, self.finish(&keys[at], bytes, landing, asked).await) });
        }
        for (at, answer) in join_all(waiting).await {
            answers[at] = Some(answer);
        }
        answers.into_iter().map(|answer| answer.unwrap_or(Err(CacheError::Stopping))).collect()
    }

    /// Takes out what the membership filter refuses; whose places it is.
    async fn refuse_of(&self, missing: &mut Vec<(usize, Bytes, Hint)>) -> Vec<usize> {
        let Some(register) = &self.register else { return Vec::new() };
        let open = missing.iter().filter(|(_, bytes, hint)| self.may_refuse(bytes, hint));
        let ids: Vec<Bytes> = open.map(|(_, bytes, _)| bytes.clone()).collect();
        let mut answers = register.refuse_many(&ids).await.into_iter();
        let mut refused = Vec::new();
        let mut asked = ids.iter().peekable();
        missing.retain(|(at, bytes, _)| {
            let is_refused = asked.next_if(|id| *id == bytes).is_some() && answers.next().unwrap_or(false);
            if is_refused {
                refused.push(*at);
            }
            !is_refused
        });
        refused
    }

    /// Waits for a flight; if that came to nothing for this reader, it goes on by itself.
    async fn finish(self: &Arc<Self>, key: &K, bytes: Bytes, mut landing: Landing<V>, asked: u64) -> Answer<V> {
        let landed = self.wait(&mut landing, &bytes, How::BOUNDED).await;
        match landed.and_then(|landed| self.take(landed, asked, How::BOUNDED)) {
            Some(Ok(read)) => Ok(read),
            Some(Err(error)) => self.rescue(&bytes, error),
            None => {
                let again = Arc::clone(self).read_on(key.clone(), bytes, How::BOUNDED, None).await?;
                again.ok_or(CacheError::Stopping)
            }
        }
    }

    async fn ask_store_many(self: &Arc<Self>, keys: &[K], missing: &[(usize, Bytes)]) -> Vec<Asked<V>> {
        let away = |(at, bytes): &(usize, Bytes)| self.without_store(&keys[*at], bytes, How::BOUNDED);
        let answers = self.try_store_many(keys, missing).await;
        answers.unwrap_or_else(|| missing.iter().map(away).collect())
    }

    /// What the store has of keys; `None`: it cannot be asked.
    pub(super) async fn try_store_many(
        self: &Arc<Self>,
        keys: &[K],
        missing: &[(usize, Bytes)],
    ) -> Option<Vec<Asked<V>>> {
        if missing.is_empty() {
            return Some(Vec::new());
        }
        let as_of = self.hub.ticks.now();
        let generations: Vec<u64> = missing.iter().map(|(_, bytes)| self.generation(bytes)).collect();
        let cache_keys: Vec<CacheKey> = missing.iter().map(|(_, bytes)| self.cache_key(bytes)).collect();
        let found = self.hub.store.read_many(&cache_keys).await.ok()?;
        let seen: Vec<Seen<V>> =
            missing.iter().zip(&found).map(|((_, bytes), found)| self.see(bytes, found.as_deref(), as_of)).collect();
        let counters = self.counters(&seen).await.ok()?;
        let judged = missing.iter().zip(seen).zip(generations);
        let answers = judged
            .map(|(((at, bytes), seen), generation)| match seen {
                Seen::Nothing => Asked::Missing(Hint::Nothing),
                Seen::Leased(token) => Asked::Missing(Hint::Leased(token)),
                Seen::Unusable => Asked::Missing(Hint::Remove),
                Seen::Failed(error) => Asked::Answered(self.rescue(bytes, error)),
                Seen::Usable(kept, stale, stamps) => {
                    if !stamps.iter().all(|stamp| counters.get(&stamp.tag) == Some(&stamp.counter)) {
                        return Asked::Missing(Hint::old(&kept));
                    }
                    self.keep(bytes, &kept, &stamps, generation);
                    if stale {
                        self.kick(&keys[*at], bytes, kept.id);
                    }
                    self.metrics.counts.store_hits.one();
                    Asked::Answered(Ok(self.answer(kept, Source::Store, self.hub.ticks.now(), stale)))
                }
            })
            .collect();
        Some(answers)
    }

    /// The counters of all tags of what was found.
    async fn counters(&self, seen: &[Seen<V>]) -> Result<Map<u64, u64>, super::guard::Down> {
        let mut tags: Vec<u64> = Vec::new();
        for seen in seen {
            if let Seen::Usable(_, _, stamps) = seen {
                tags.extend(stamps.iter().map(|stamp| stamp.tag));
            }
        }
        tags.sort_unstable();
        tags.dedup();
        let mut counters = Map::default();
        for part in tags.chunks(MAX_CACHE_BATCH) {
            counters.extend(self.stamps(part).await?.into_iter().map(|stamp| (stamp.tag, stamp.counter)));
        }
        Ok(counters)
    }

    /// Joins or starts the flights of what is missing: those with nothing in the store together, if the loader can.
    pub(super) fn start_many(
        self: &Arc<Self>,
        keys: &[K],
        missing: Vec<(usize, Bytes, Hint)>,
        permit: Option<Permit>,
    ) -> Vec<(usize, Bytes, Landing<V>)> {
        let chain = chain::current();
        let mut landings = Vec::with_capacity(missing.len());
        let mut members = Vec::new();
        for (at, bytes, hint) in missing {
            self.metrics.counts.misses.one();
            self.hot.missed(&bytes);
            if !self.loader.batches() || !matches!(hint, Hint::Nothing) {
                let landing = self.start(&keys[at], &bytes, Want::Load(hint), None, chain.clone());
                landings.push((at, bytes, landing));
                continue;
            }
            let (landing, ticket) = self.flights.board(&bytes, Purpose::Load);
            if let Some(ticket) = ticket {
                let flight = Arc::clone(&ticket.flight);
                let leader = Leader::new(self, keys[at].clone(), bytes.clone(), flight, chain.clone());
                members.push(Member { leader, ticket });
            }
            landings.push((at, bytes, landing));
        }
        if !members.is_empty() {
            let inner = Arc::clone(self);
            self.hub.spawn(async move { inner.fly(members, permit).await });
        } else if let Some(permit) = permit {
            permit.unused();
        }
        landings
    }

    /// The flight of several keys.
    async fn fly(self: Arc<Self>, members: Vec<Member<K, V>>, permit: Option<Permit>) {
        let nested = members.first().is_some_and(|member| member.leader.chain.is_some());
        let permit = match permit {
            Some(permit) => permit,
            None if nested => Permit::nested(),
            None => match admit(self.gates(), self.knobs.hard_timeout).await {
                Ok(permit) => permit,
                Err(retry_after) => {
                    for member in members {
                        self.metrics.counts.overloaded.one();
                        member.ticket.land(Landed::failed(CacheError::Overloaded { retry_after }));
                    }
                    return;
                }
            },
        };
        let granted = self.lease_all(members).await;
        if granted.is_empty() {
            permit.unused();
        } else {
            self.load_all(granted, permit).await;
        }
    }

    /// Takes the leases of all; who does not get one, or has a floor to heed, goes on alone.
    async fn lease_all(self: &Arc<Self>, members: Vec<Member<K, V>>) -> Vec<Granted<K, V>> {
        let lease = |member: &Member<K, V>| {
            let op = Op::Lease { token: Self::id(), for_ms: self.knobs.lease_ms };
            (member.leader.cache_key.clone(), op)
        };
        let points: Vec<_> = members.iter().map(|member| member.leader.point()).collect();
        let operations: Vec<(CacheKey, Op)> = members.iter().map(lease).collect();
        let replies = self.hub.store.apply_many(&operations).await;
        let mut granted = Vec::with_capacity(members.len());
        for (((member, point), (_, op)), reply) in members.into_iter().zip(points).zip(&operations).zip(replies) {
            let Op::Lease { token, .. } = op else { continue };
            let holder = Holder::Lease(*token);
            match reply {
                Ok(Reply::Granted(Notes { floor: None, failures: 0 })) => {
                    granted.push(Granted { member, holder: Some(holder), point, stamps: None });
                }
                Err(_) => {
                    let point = member.leader.point();
                    granted.push(Granted { member, holder: None, point, stamps: None });
                }
                Ok(Reply::Granted(notes)) => self.alone(member, move |leader| async move {
                    match admit(leader.inner.gates(), leader.inner.knobs.hard_timeout).await {
                        Ok(permit) => leader.lead(permit, Some(holder), notes, point).await,
                        Err(retry_after) => Landed::failed(CacheError::Overloaded { retry_after }),
                    }
                }),
                Ok(Reply::Present(bytes)) => self.alone(member, move |leader| async move {
                    match leader.judge(Some(&bytes), point).await {
                        Look::Landed(landed) => landed,
                        Look::Hint(hint) => leader.load(hint, None).await,
                        Look::Down => Landed::again(),
                    }
                }),
                Ok(_) => self.alone(member, |leader| async move { leader.load(Hint::Leased(None), None).await }),
            }
        }
        granted
    }

    fn alone<F>(&self, member: Member<K, V>, go: impl FnOnce(Leader<K, V>) -> F)
    where
        F: Future<Output = Landed<V>> + Send + 'static,
    {
        let Member { leader, ticket } = member;
        let work = go(leader);
        self.hub.spawn(async move { ticket.land(work.await) });
    }

    async fn load_all(self: &Arc<Self>, mut granted: Vec<Granted<K, V>>, permit: Permit) {
        if let Err(error) = self.stamp_all(&mut granted).await {
            for one in granted {
                one.member.ticket.land(Landed::failed(error.clone()));
            }
            return;
        }
        permit.begin().await;
        let orders: Vec<u64> = granted.iter().map(|one| mark_began(self, &one.member.leader.flight)).collect();
        let born = self.hub.store.store.now();
        let began = tokio::time::Instant::now();
        let loaded = self.load_many(&granted).await;
        let took = began.elapsed();
        self.metrics.load_seconds.record(took.as_secs_f64());
        permit.took(took);
        drop(permit);
        let attempts: Vec<_> = granted
            .iter()
            .zip(orders)
            .map(|(one, order)| Attempt {
                leader: &one.member.leader,
                holder: one.holder,
                notes: Notes::default(),
                stamps: one.stamps.clone(),
                point: one.point,
                order,
                born,
                // A batch is cheaper by the key; refreshes go key by key, so the whole is what one may cost.
                took,
            })
            .collect();
        let landed = match loaded {
            Ok(loaded) => self.deliver(&attempts, loaded).await,
            Err(error) => self.fail_all(&attempts, error).await,
        };
        drop(attempts);
        for (one, landed) in granted.into_iter().zip(landed) {
            one.member.ticket.land(landed);
        }
    }

    /// The tags' counters of all, before the load.
    async fn stamp_all(&self, granted: &mut [Granted<K, V>]) -> Result<(), CacheError> {
        let mut hashes = Vec::with_capacity(granted.len());
        for one in granted.iter() {
            hashes.push(self.tag_hashes(&one.member.leader.key)?);
        }
        let mut all: Vec<u64> = hashes.iter().flatten().copied().collect();
        all.sort_unstable();
        all.dedup();
        let mut counters = Map::default();
        for part in all.chunks(MAX_CACHE_BATCH) {
            let Ok(stamps) = self.stamps(part).await else { return Ok(()) };
            counters.extend(stamps.into_iter().map(|stamp| (stamp.tag, stamp.counter)));
        }
        for (one, hashes) in granted.iter_mut().zip(hashes) {
            let stamp = |tag: &u64| Some(TagStamp { tag: *tag, counter: *counters.get(tag)? });
            one.stamps = hashes.iter().map(stamp).collect();
        }
        Ok(())
    }

    async fn load_many(self: &Arc<Self>, granted: &[Granted<K, V>]) -> Result<Vec<Loaded<V>>, CacheError> {
        let keys: Vec<K> = granted.iter().map(|one| one.member.leader.key.clone()).collect();
        let bytes = granted.iter().map(|one| one.member.leader.bytes.clone()).collect();
        let around = granted.first().and_then(|one| one.member.leader.chain.clone());
        let span = tracing::debug_span!("cache.load", namespace = %self.namespace, keys = keys.len());
        let load = async {
            let loaded = self.loader.load_many(&keys, LoadContext::default()).await?;
            if loaded.len() == keys.len() {
                return Ok(loaded);
            }
            Err(CacheError::Configuration(format!(
                "{}: load_many gave {} answers for {} keys",
                self.namespace,
                loaded.len(),
                keys.len()
            )))
        };
        let load = guarded(self.knobs.hard_timeout, load.instrument(span), self.renewing_all(granted));
        chain::within(Arc::as_ptr(self).addr(), bytes, around, load).await
    }

    async fn renewing_all(&self, granted: &[Granted<K, V>]) {
        let for_ms = self.knobs.lease_ms;
        let renew = |one: &Granted<K, V>| {
            let holder = one.holder?;
            Some((one.member.leader.cache_key.clone(), Op::Renew { holder, for_ms }))
        };
        let operations: Vec<(CacheKey, Op)> = granted.iter().filter_map(renew).collect();
        loop {
            tokio::time::sleep(renewal(for_ms)).await;
            if !operations.is_empty() {
                self.hub.store.apply_many(&operations).await;
            }
        }
    }

    async fn deliver(&self, attempts: &[Attempt<'_, K, V>], loaded: Vec<Loaded<V>>) -> Vec<Landed<V>> {
        let made: Vec<_> = attempts.iter().zip(loaded).map(|(attempt, loaded)| attempt.made(loaded)).collect();
        let mut operations = Vec::with_capacity(made.len());
        let mut sent = Vec::with_capacity(made.len());
        for (attempt, made) in attempts.iter().zip(&made) {
            sent.push(attempt.delivery(made).map(|op| {
                operations.push((attempt.leader.cache_key.clone(), op));
                attempt.leader.point()
            }));
        }
        let mut replies = self.hub.store.apply_many(&operations).await.into_iter();
        let mut landed = Vec::with_capacity(made.len());
        for ((attempt, made), point) in attempts.iter().zip(made).zip(sent) {
            let answer = point.and_then(|point| replies.next().map(|reply| (point, reply)));
            landed.push(attempt.landed(made, answer));
        }
        landed
    }

    async fn fail_all(&self, attempts: &[Attempt<'_, K, V>], error: CacheError) -> Vec<Landed<V>> {
        let fail =
            |attempt: &Attempt<'_, K, V>| attempt.failure(&error).map(|op| (attempt.leader.cache_key.clone(), op));
        let operations: Vec<(CacheKey, Op)> = attempts.iter().filter_map(fail).collect();
        self.hub.store.apply_many(&operations).await;
        attempts.iter().map(|_| Landed::failed(error.clone())).collect()
    }

    /// Loads what the store lacks of `keys`, giving way to whoever waits for a load; how many are cached then.
    pub(super) async fn warm(self: &Arc<Self>, keys: &[K]) -> Result<usize, CacheError> {
        let mut cached = 0;
        for part in keys.chunks(WARM_BATCH) {
            let mut missing = Vec::with_capacity(part.len());
            for (at, key) in part.iter().enumerate() {
                missing.push((at, super::handle::encoded(key)?));
            }
            let asked = self.ask_store_many(part, &missing).await;
            let mut hinted = Vec::new();
            for ((at, bytes), asked) in missing.into_iter().zip(asked) {
                match asked {
                    Asked::Answered(answer) => cached += usize::from(answer.is_ok()),
                    Asked::Missing(hint) => hinted.push((at, bytes, hint)),
                }
            }
            for mut landing in self.start_warm(part, hinted).await? {
                let landed = landing.wait_for(Option::is_some).await.map_or_else(
                    |_| Landed::again(),
                    |one| match &*one {
                        Some(landed) => landed.clone(),
                        None => Landed::again(),
                    },
                );
                cached += usize::from(matches!(landed.result, super::flight::Outcome::Found(..)));
            }
            if self.hub.is_stopping() {
                return Err(CacheError::Stopping);
            }
        }
        Ok(cached)
    }

    async fn start_warm(
        self: &Arc<Self>,
        keys: &[K],
        hinted: Vec<(usize, Bytes, Hint)>,
    ) -> Result<Vec<Landing<V>>, CacheError> {
        let room = async || {
            let permit = admit_spare_within(self.gates(), self.knobs.hard_timeout).await;
            permit.map_err(|retry_after| CacheError::Overloaded { retry_after })
        };
        if hinted.is_empty() {
            return Ok(Vec::new());
        }
        if self.loader.batches() {
            let permit = room().await?;
            let started = self.start_many(keys, hinted, Some(permit));
            return Ok(started.into_iter().map(|(_, _, landing)| landing).collect());
        }
        let mut landings = Vec::with_capacity(hinted.len());
        for (at, bytes, hint) in hinted {
            let permit = room().await?;
            landings.push(self.start(&keys[at], &bytes, Want::Load(hint), Some(permit), None));
        }
        Ok(landings)
    }
}
