//! The counters: Filtered Space-Saving (Homem and Carvalho, "Finding top-k elements in data streams", Information Sciences
//! 180, 2010), which is Space-Saving (Metwally, Agrawal, El Abbadi, ICDT 2005) behind a filter: keys without a counter of
//! their own share the counts of a table, and one gets its own only when it may have been read more often than the coldest
//! that has one. A flood of keys that are read once stays in the table. Each count knows how much of it may be others'.
//!
//! Counts are halved every [`HALF_LIFE_MS`]. Beside them each counter remembers its last [`WINDOWS`] windows of [`WINDOW_MS`] as
//! they were: what it counted there was surely of its key, and what its key was read before it had the counter is bounded.
//!
//! (The crate heavykeeper 0.6 neither ages nor bounds its error nor the bytes of its keys.)
//!
//! Memory, for 1,000 keys: 2,000 counters of some 140 bytes and their index of 32, 8,192 shared counts of 8 bytes, and 256 KiB of
//! encoded keys at most, which only hot ones have, and the same as they are in the program: some 1 MiB, however many keys
//! are read.

use super::ring::Ring;
use super::{HALF_LIFE_MS, MAX_REPORTED, Report, WINDOW_MS, WINDOWS};
use crate::Map;

/// Counters for each key that is to be known.
const SLOTS_A_KEY: usize = 2;
/// Shared counts for each.
const CELLS_A_KEY: usize = 8;
/// Most bytes of encoded keys.
const MOST_NAMED: usize = 256 << 10;
/// What was counted less often may have been read once, and is not said to be hot.
const SEEN: u32 = 2;
/// The hottest of what was saved counts as so many reads.
const SEED: u64 = 16;

struct Slot<N> {
    hash: u64,
    /// Reads, with those of others that it may have been given.
    count: u64,
    /// So many at most are others'.
    over: u64,
    /// Its place in the heap.
    place: u32,
    /// How often it was counted since it has the slot.
    seen: u32,
    /// Reads of the last windows, nobody else's.
    recent: Ring<u32>,
    /// The window in which it got the slot.
    since: i64,
    /// With what it was given and the bytes that count for it.
    name: Option<(N, u32)>,
}

/// A name that is read often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranked<N> {
    /// Which.
    pub name: N,
    /// Its reads, halved every [`HALF_LIFE_MS`], with those of others that it may have been given.
    pub count: u64,
    /// So many at most are others'.
    pub over: u64,
}

/// What a name was read in the last windows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recent<N> {
    /// Which.
    pub name: N,
    /// Reads in each of the last [`WINDOWS`] windows that are over, the newest first. There were no fewer.
    pub counts: [u32; WINDOWS],
    /// And at most so many more in all windows but the first [`Recent::held`].
    pub over: u64,
    /// In so many of the newest windows every read was counted.
    pub held: usize,
}

impl<N> Recent<N> {
    /// All of its reads.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.counts.iter().map(|count| u64::from(*count)).sum()
    }
}

/// The reads of the last windows behind a count that was halved since: twice at most, for they are as long as it takes to halve
/// counts, and what is not over yet.
fn unhalved(count: u64) -> u64 {
    count.saturating_mul(4).saturating_add(3)
}

/// What is counted: which names were read most lately, in bounded memory.
pub struct Sketch<N> {
    most: usize,
    slots: Vec<Slot<N>>,
    by_hash: Map<u64, u32>,
    /// Slots by their counts, the least first.
    heap: Vec<u32>,
    /// Counts that keys without a slot share.
    cells: Box<[u64]>,
    /// Bytes of keys.
    named: usize,
    /// Keys below it are not known by name.
    floor: u64,
    /// For how long counts were collected, halved with them; milliseconds.
    span_ms: i64,
    since: i64,
    halve_at: i64,
    /// All reads of the last windows.
    totals: Ring<u64>,
}

impl<N: Clone> Sketch<N> {
    /// Nothing was counted; `most` names are to be known. `now`: milliseconds, of a clock that is never set.
    #[must_use]
    pub fn new(most: usize, now: i64) -> Self {
        Self {
            most,
            slots: Vec::new(),
            by_hash: Map::default(),
            heap: Vec::new(),
            cells: Box::default(),
            named: 0,
            floor: 0,
            span_ms: 0,
            since: now,
            halve_at: now.saturating_add(HALF_LIFE_MS),
            totals: Ring::new(now.div_euclid(WINDOW_MS)),
        }
    }

    fn capacity(&self) -> usize {
        self.most * SLOTS_A_KEY
    }

    fn cell(&self, hash: u64) -> usize {
        // The index hashes by the low bits.
        (hash >> 32) as usize & (self.cells.len() - 1)
    }

    /// Counts `weight` reads at `now` of the key with this hash; `name`: what it is called, and the bytes that count for it.
    pub fn count(&mut self, now: i64, hash: u64, weight: u64, name: impl FnOnce() -> (N, usize)) {
        let window = now.div_euclid(WINDOW_MS);
        self.totals.add(window, weight);
        self.add(window, hash, weight, name);
    }

    fn add(&mut self, window: i64, hash: u64, weight: u64, name: impl FnOnce() -> (N, usize)) {
        let reads = u32::try_from(weight).unwrap_or(u32::MAX);
        if let Some(&at) = self.by_hash.get(&hash) {
            let slot = &mut self.slots[at as usize];
            slot.count = slot.count.saturating_add(weight);
            slot.seen = slot.seen.saturating_add(1);
            slot.recent.add(window, reads);
            let place = slot.place;
            self.sink(place as usize);
            return self.name(at, name);
        }
        if self.slots.len() < self.capacity() {
            let at = self.slots.len() as u32;
            let mut recent = Ring::new(window);
            recent.add(window, reads);
            // Nothing, but for keys that lost a slot when there was none to spare.
            let over = if self.cells.is_empty() { 0 } else { self.cells[self.cell(hash)] };
            let count = over.saturating_add(weight);
            self.slots.push(Slot { hash, count, over, place: at, seen: 1, recent, since: window, name: None });
            self.by_hash.insert(hash, at);
            self.heap.push(at);
            self.rise(at as usize);
            return self.name(at, name);
        }
        if self.cells.is_empty() {
            self.cells = vec![0; (self.most * CELLS_A_KEY).next_power_of_two()].into_boxed_slice();
        }
        let cell = self.cell(hash);
        let (shared, coldest) = (self.cells[cell], self.heap[0]);
        let count = shared.saturating_add(weight);
        if count < self.slots[coldest as usize].count {
            self.cells[cell] = count;
            return;
        }
        let slot = &mut self.slots[coldest as usize];
        let (gone, kept) = (slot.hash, slot.count);
        if let Some((_, bytes)) = slot.name.take() {
            self.named -= bytes as usize;
        }
        (slot.hash, slot.count, slot.over, slot.seen, slot.since) = (hash, count, shared, 1, window);
        slot.recent = Ring::new(window);
        slot.recent.add(window, reads);
        let gone_to = self.cell(gone);
        self.cells[gone_to] = self.cells[gone_to].max(kept);
        self.by_hash.remove(&gone);
        self.by_hash.insert(hash, coldest);
        self.sink(0);
        self.name(coldest, name);
    }

    /// A key that was saved, the hottest at rank 0.
    pub fn seed(&mut self, hash: u64, rank: usize, name: impl FnOnce() -> (N, usize)) {
        if self.by_hash.contains_key(&hash) || self.slots.len() >= self.capacity() {
            return;
        }
        let weight = SEED.saturating_sub(SEED * rank as u64 / self.most.max(1) as u64).max(1);
        // It was read before, not in any window.
        self.add(self.totals.newest(), hash, weight, name);
        if let Some(&at) = self.by_hash.get(&hash) {
            let slot = &mut self.slots[at as usize];
            (slot.over, slot.seen, slot.recent) = (weight, SEEN, Ring::new(self.totals.newest()));
        }
    }

    fn name(&mut self, at: u32, name: impl FnOnce() -> (N, usize)) {
        let slot = &mut self.slots[at as usize];
        if slot.name.is_some() || slot.count < self.floor || self.named >= MOST_NAMED {
            return;
        }
        let (name, bytes) = name();
        if self.named + bytes <= MOST_NAMED {
            self.named += bytes;
            slot.name = Some((name, bytes as u32));
        }
    }

    fn count_at(&self, place: usize) -> u64 {
        self.slots[self.heap[place] as usize].count
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.slots[self.heap[a] as usize].place = a as u32;
        self.slots[self.heap[b] as usize].place = b as u32;
    }

    fn rise(&mut self, mut place: usize) {
        while place > 0 {
            let above = (place - 1) / 2;
            if self.count_at(above) <= self.count_at(place) {
                return;
            }
            self.swap(above, place);
            place = above;
        }
    }

    fn sink(&mut self, mut place: usize) {
        loop {
            let (left, right) = (2 * place + 1, 2 * place + 2);
            if left >= self.heap.len() {
                return;
            }
            let below =
                if right < self.heap.len() && self.count_at(right) < self.count_at(left) { right } else { left };
            if self.count_at(place) <= self.count_at(below) {
                return;
            }
            self.swap(place, below);
            place = below;
        }
    }

    /// Halves what is due to be, and lets go of the names of what is not hot any more.
    pub fn age(&mut self, now: i64) {
        while now >= self.halve_at {
            self.span_ms = (self.span_ms + self.halve_at.saturating_sub(self.since)) / 2;
            (self.since, self.halve_at) = (self.halve_at, self.halve_at.saturating_add(HALF_LIFE_MS));
            // The order of counts stays: the heap is one still.
            for slot in &mut self.slots {
                slot.count /= 2;
                slot.over /= 2;
            }
            self.cells.iter_mut().for_each(|cell| *cell /= 2);
            self.forget_empty();
            if self.slots.is_empty() {
                // Nothing is read: the rest of a long sleep changes nothing.
                (self.span_ms, self.since) = (0, now);
                self.halve_at = now.saturating_add(HALF_LIFE_MS);
            }
        }
        let mut counts: Vec<u64> = self.slots.iter().map(|slot| slot.count).collect();
        self.floor = match counts.len().checked_sub(self.most) {
            None | Some(0) => 0,
            Some(others) => *counts.select_nth_unstable(others).1,
        };
        for slot in &mut self.slots {
            if slot.count < self.floor / 2
                && let Some((_, bytes)) = slot.name.take()
            {
                self.named -= bytes as usize;
            }
        }
    }

    fn forget_empty(&mut self) {
        if self.slots.iter().all(|slot| slot.count > 0) {
            return;
        }
        self.slots.retain(|slot| slot.count > 0);
        self.named = self.slots.iter().filter_map(|slot| slot.name.as_ref()).map(|(_, bytes)| *bytes as usize).sum();
        self.slots.sort_unstable_by_key(|slot| slot.count);
        self.by_hash.clear();
        self.heap.clear();
        for (at, slot) in (0..).zip(&mut self.slots) {
            slot.place = at;
            self.heap.push(at);
            self.by_hash.insert(slot.hash, at);
        }
    }

    /// For how long counts were collected, as their halving sees it; seconds.
    #[must_use]
    pub fn span_s(&self, now: i64) -> f64 {
        (self.span_ms + now.saturating_sub(self.since)).max(1) as f64 / 1_000.0
    }

    /// Up to `most` of them, the hottest first, that were counted twice or more.
    #[must_use]
    pub fn hottest(&self, most: usize) -> Vec<Ranked<N>> {
        let mut slots: Vec<&Slot<N>> = self.known().collect();
        slots.sort_unstable_by(|a, b| b.count.cmp(&a.count).then(a.over.cmp(&b.over)));
        slots.truncate(most);
        let ranked = |slot: &Slot<N>| {
            let (name, _) = slot.name.clone()?;
            Some(Ranked { name, count: slot.count, over: slot.over })
        };
        slots.into_iter().filter_map(ranked).collect()
    }

    fn known(&self) -> impl Iterator<Item = &Slot<N>> {
        self.slots.iter().filter(|slot| slot.name.is_some() && slot.seen >= SEEN)
    }

    /// What was read most in the last windows, up to `most` names.
    #[must_use]
    pub fn report(&self, most: usize, now: i64) -> Report<N> {
        let window = now.div_euclid(WINDOW_MS);
        let reads = |slot: &Slot<N>| slot.recent.before(window).iter().map(|n| u64::from(*n)).sum::<u64>();
        let mut slots: Vec<(u64, &Slot<N>)> = self.slots.iter().map(|slot| (reads(slot), slot)).collect();
        slots.sort_unstable_by(|(a, x), (b, y)| b.cmp(a).then(x.hash.cmp(&y.hash)));
        // Without a slot a key has as much as its shared count, and with one to spare none is without for long.
        let mut unnamed = unhalved(self.cells.iter().copied().max().unwrap_or(0));
        let mut hottest = Vec::new();
        for (reads, slot) in slots {
            let held = usize::try_from(window.saturating_sub(slot.since).saturating_sub(1)).unwrap_or(0).min(WINDOWS);
            let over = if held < WINDOWS { unhalved(slot.over) } else { 0 };
            match &slot.name {
                Some((name, _)) if reads > 0 && slot.seen >= SEEN && hottest.len() < most.min(MAX_REPORTED) => {
                    hottest.push(Recent { name: name.clone(), counts: slot.recent.before(window), over, held });
                }
                _ => unnamed = unnamed.max(reads.saturating_add(over)),
            }
        }
        Report { totals: self.totals.before(window), hottest, unnamed }
    }

    /// Slots, shared counts, bytes of names.
    #[cfg(test)]
    pub(super) fn size(&self) -> (usize, usize, usize) {
        (self.slots.len(), self.cells.len(), self.named)
    }

    /// Panics unless heap, slots and index belong together.
    #[cfg(test)]
    pub(super) fn check(&self) {
        for place in 1..self.heap.len() {
            assert!(self.count_at((place - 1) / 2) <= self.count_at(place));
            assert_eq!(self.slots[self.heap[place] as usize].place as usize, place);
        }
        assert_eq!(self.by_hash.len(), self.slots.len());
    }
}
