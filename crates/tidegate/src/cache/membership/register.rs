//! The filter of a namespace in this process: what is known of it, asking, adding.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use tidegate_backend::cache::MAX_CACHE_BATCH;
use tidegate_backend::membership::{Agreed, Bits, Change, Held, MAX_BITS_A_CALL, MAX_BUCKETS_A_CALL, MembershipStore};
use tidegate_backend::{Error, ErrorKind};
use tidegate_core::Millis;
use tidegate_core::cache::membership::{Generation, Members, Place, State, home};
use tokio::sync::Notify;

use super::recent::Recent;
use super::{MembershipStatus, Mutant, Plan};
use crate::cache::guard::Down;
use crate::cache::hub::Hub;

/// Most times that a question or an addition is made again because the state has changed meanwhile.
const MAX_ROUNDS: usize = 16;

/// What is known of the shared state.
#[derive(Clone, Default)]
pub(super) struct Known {
    pub(super) bytes: Bytes,
    /// `None`: of a version that is not understood.
    pub(super) state: Option<State>,
    /// What the store was called when the state was read from it.
    home: Option<u64>,
    /// Ids of the current generation that are known to be in, if the store is shared.
    members: Option<Arc<Members>>,
}

impl Known {
    /// The generation that may refuse, if there is one.
    fn refusing(&self, mutant: Option<Mutant>) -> Option<&Generation> {
        let current = self.state.as_ref()?.current.as_ref()?;
        let there = self.home == Some(current.home) || mutant == Some(Mutant::TrustsAnyServer);
        (there && current.is_known()).then_some(current)
    }
}

pub(crate) struct Register {
    pub(super) hub: Arc<Hub>,
    pub(super) namespace: Arc<str>,
    pub(super) plan: Plan,
    shared: bool,
    known: RwLock<Arc<Known>>,
    /// Wakes the task that builds.
    pub(super) wake: Arc<Notify>,
    /// A bucket of the current generation is lost.
    pub(super) missing: AtomicBool,
    recent: Recent,
    /// The store is called otherwise than before: what was added lately may be missing.
    moved: AtomicBool,
}

/// What came of one question.
enum Asked {
    Refused,
    LetThrough,
    /// The state is another one.
    Again,
}

impl Register {
    pub(in crate::cache) fn new(hub: &Arc<Hub>, namespace: &Arc<str>, plan: Plan) -> Result<Arc<Self>, String> {
        let store = &hub.store.store;
        if store.membership().is_none() {
            return Err(format!("{namespace}: its store ({}) keeps no membership filters", store.capabilities().name));
        }
        plan.check().map_err(|why| format!("{namespace}: {why}"))?;
        let register = Arc::new(Self {
            hub: Arc::clone(hub),
            namespace: Arc::clone(namespace),
            plan,
            shared: store.capabilities().shared,
            known: RwLock::default(),
            wake: Arc::new(Notify::new()),
            missing: AtomicBool::new(false),
            recent: Recent::default(),
            moved: AtomicBool::new(false),
        });
        super::build::start(&register);
        Ok(register)
    }

    pub(super) fn store(&self) -> &dyn MembershipStore {
        self.hub.store.store.membership().expect("looked at when it was made")
    }

    pub(super) fn known(&self) -> Arc<Known> {
        Arc::clone(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes over what the store gave.
    fn learn(&self, bytes: &Bytes, named: Option<u64>) -> Arc<Known> {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let same = known.bytes == bytes && known.state.is_some();
        if same && (named.is_none() || named == known.home) {
            return Arc::clone(&known);
        }
        if known.home.is_some() && named.is_some_and(|named| known.home != Some(named)) {
            self.moved.store(true, Ordering::Release);
            self.wake.notify_one();
        }
        let state = State::read(bytes).ok();
        let of = |state: &Option<State>| state.as_ref().and_then(|state| state.current);
        let members = match (of(&known.state), of(&state)) {
            (Some(before), Some(now)) if before.id == now.id => known.members.clone(),
            (_, Some(now)) => self.shared.then(|| Arc::new(Members::new(now.shape))),
            (_, None) => None,
        };
        *known = Arc::new(Known { bytes: bytes.clone(), state, home: named.or(known.home), members });
        Arc::clone(&known)
    }

    pub(super) fn learn_from(&self, held: &Held) -> Arc<Known> {
        self.learn(&held.state, Some(home(&held.home)))
    }

    /// All ids of a generation that this process built are known to be in.
    pub(super) fn take_members(&self, generation: u64, members: Members) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let current = known.state.as_ref().and_then(|state| state.current.as_ref());
        if self.shared && current.is_some_and(|current| current.id == generation) {
            *known = Arc::new(Known { members: Some(Arc::new(members)), ..Known::clone(&known) });
        }
    }

    /// Whether `id` (an encoded key) surely does not exist. Whatever goes wrong, it may.
    pub(in crate::cache) async fn refuses(&self, id: &Bytes) -> bool {
        self.refuse_many(std::slice::from_ref(id)).await[0]
    }

    /// The same, for each.
    pub(in crate::cache) async fn refuse_many(&self, ids: &[Bytes]) -> Vec<bool> {
        let mut refused = vec![false; ids.len()];
        if self.plan.source.is_none() {
            return refused;
        }
        let mut open: Vec<usize> = (0..ids.len()).collect();
        for _ in 0..MAX_ROUNDS {
            let known = self.known();
            let Some(generation) = known.refusing(self.plan.mutant) else { break };
            let mut places: Vec<(usize, Place)> = open.iter().map(|at| (*at, generation.place(&ids[*at]))).collect();
            if let Some(members) = &known.members {
                places.retain(|(_, place)| !members.contains(*place));
            }
            if places.is_empty() {
                break;
            }
            open.clear();
            for (at, asked) in self.ask(&known, generation, &places).await {
                match asked {
                    Asked::Refused => refused[at] = true,
                    Asked::LetThrough => {}
                    Asked::Again => open.push(at),
                }
            }
            if open.is_empty() {
                break;
            }
        }
        refused
    }

    /// Asks the store, bucket by bucket; all questions leave at once.
    async fn ask(&self, known: &Known, generation: &Generation, places: &[(usize, Place)]) -> Vec<(usize, Asked)> {
        let mut buckets: Vec<u32> = places.iter().map(|(_, place)| place.bucket).collect();
        buckets.sort_unstable();
        buckets.dedup();
        let parts: Vec<&[u32]> = buckets.chunks(MAX_BUCKETS_A_CALL).collect();
        let looks = parts.iter().map(|part| self.look(generation.id, part));
        let looked = futures_util::future::join_all(looks).await;
        let judge = |(at, place): &(usize, Place)| {
            let part = parts.partition_point(|part| part.last().is_some_and(|last| *last < place.bucket));
            let Ok(held) = &looked[part] else { return (*at, Asked::LetThrough) };
            let found = parts[part].binary_search(&place.bucket).ok().and_then(|at| held.buckets[at].as_ref());
            (*at, self.judge(known, generation, *place, held, found))
        };
        places.iter().map(judge).collect()
    }

    fn judge(&self, known: &Known, generation: &Generation, place: Place, held: &Held, found: Option<&Bytes>) -> Asked {
        if held.state != known.bytes {
            self.learn_from(held);
            return Asked::Again;
        }
        let mutant = self.plan.mutant;
        if home(&held.home) != generation.home && mutant != Some(Mutant::TrustsAnyServer) {
            self.learn_from(held);
            self.wake.notify_one();
            return Asked::LetThrough;
        }
        let Some(bits) = found else {
            self.missing.store(true, Ordering::Release);
            self.wake.notify_one();
            return if mutant == Some(Mutant::MissingIsEmpty) { Asked::Refused } else { Asked::LetThrough };
        };
        if let Some(members) = &known.members {
            members.merge(place.bucket, bits);
        }
        if generation.may_hold(place, bits) == Some(false) { Asked::Refused } else { Asked::LetThrough }
    }

    pub(super) async fn look(&self, generation: u64, buckets: &[u32]) -> Result<Held, Down> {
        let held = self.hub.store.ask(self.store().look(&self.namespace, generation, buckets)).await?;
        if held.buckets.len() == buckets.len() { Ok(held) } else { Err(Down) }
    }

    /// Lets the task that looks after it look now.
    pub(in crate::cache) fn look_soon(&self) {
        self.wake.notify_one();
    }

    /// Puts ids (encoded keys) into every generation there is. Tried even while the store does not answer others.
    ///
    /// # Errors
    /// What the store says: any of them may be missing.
    pub(in crate::cache) async fn add(&self, ids: &[Bytes]) -> Result<(), Error> {
        if ids.is_empty() {
            return Ok(());
        }
        // Before: it may be acknowledged by a server that is being replaced.
        self.recent.remember(ids);
        self.add_all(ids).await
    }

    /// Makes the additions of the last minute again, if the store may have lost some.
    ///
    /// # Errors
    /// What the store says: they are to be made again.
    pub(super) async fn repeat(&self) -> Result<(), Error> {
        if !self.moved.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        for part in self.recent.all().chunks(MAX_CACHE_BATCH) {
            if let Err(error) = self.add_all(part).await {
                self.moved.store(true, Ordering::Release);
                return Err(error);
            }
        }
        Ok(())
    }

    async fn add_all(&self, ids: &[Bytes]) -> Result<(), Error> {
        let mut bytes = self.known().bytes.clone();
        for _ in 0..MAX_ROUNDS {
            let agreed = match State::read(&bytes) {
                Ok(state) if state.is_known() => self.add_to(&bytes, &state, ids).await?,
                // What is not understood cannot be added to: without it nobody is refused.
                _ => self.forget(&bytes).await?,
            };
            match agreed {
                None => return Ok(()),
                Some(other) => bytes = other,
            }
        }
        Err(Error::new(ErrorKind::Unavailable, "the membership filter changes too fast to add to it"))
    }

    async fn add_to(&self, bytes: &Bytes, state: &State, ids: &[Bytes]) -> Result<Option<Bytes>, Error> {
        let mut bits = Vec::with_capacity(ids.len() * 2);
        for generation in state.generations() {
            bits.extend(ids.iter().map(|id| {
                let place = generation.place(id);
                Bits { generation: generation.id, bucket: place.bucket, offsets: generation.offsets(place) }
            }));
        }
        // Without generations, too, the store must say that there are none.
        let empty = [&[][..]];
        let parts: Vec<&[Bits]> = if bits.is_empty() { empty.to_vec() } else { bits.chunks(MAX_BITS_A_CALL).collect() };
        for part in parts {
            let answer = self.store().add(&self.namespace, bytes, part).await;
            if let Agreed::Changed(other) = self.hub.store.acknowledged(answer)? {
                self.learn(&other, None);
                return Ok(Some(other));
            }
        }
        let known = self.known();
        if let (Some(members), Some(current)) = (&known.members, &state.current)
            && known.bytes == *bytes
        {
            for id in ids {
                members.insert(current.place(id));
            }
        }
        Ok(None)
    }

    async fn forget(&self, bytes: &Bytes) -> Result<Option<Bytes>, Error> {
        let change = Change { state: bytes, new: &[], home: &[], leader: 0, keep: self.plan.keep() };
        let answer = self.store().replace(&self.namespace, change).await;
        let now = match self.hub.store.acknowledged(answer)? {
            Agreed::Done => Bytes::new(),
            Agreed::Changed(other) => other,
        };
        self.learn(&now, None);
        self.wake.notify_one();
        Ok(Some(now))
    }

    pub(super) async fn status(&self) -> Result<MembershipStatus, Error> {
        let id = |known: &Known| known.state.as_ref().and_then(|state| state.current).map_or(0, |current| current.id);
        let mut asked = id(&self.known());
        for _ in 0..MAX_ROUNDS {
            let answer = self.store().look(&self.namespace, asked, &[]).await;
            let held = self.hub.store.acknowledged(answer)?;
            let known = self.learn_from(&held);
            if id(&known) == asked {
                return Ok(self.status_of(&known, held.added));
            }
            asked = id(&known);
        }
        Err(Error::new(ErrorKind::Unavailable, "the membership filter changes too fast to be looked at"))
    }

    fn status_of(&self, known: &Known, added: u64) -> MembershipStatus {
        let building = known.state.as_ref().is_some_and(|state| state.building.is_some());
        let local_bytes = known.members.as_ref().map_or(0, |members| members.memory());
        let Some(current) = known.state.as_ref().and_then(|state| state.current) else {
            return MembershipStatus {
                complete: false,
                generation: 0,
                begun: Millis(0),
                ids: 0,
                capacity: 0,
                false_positives: 1.0,
                bytes: 0,
                local_bytes,
                building,
            };
        };
        MembershipStatus {
            complete: known.refusing(self.plan.mutant).is_some(),
            generation: current.id,
            begun: current.begun,
            ids: added,
            capacity: current.capacity,
            false_positives: current.shape.false_positives(added),
            bytes: current.shape.bytes(),
            local_bytes,
            building,
        }
    }
}

impl fmt::Debug for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Register").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}
