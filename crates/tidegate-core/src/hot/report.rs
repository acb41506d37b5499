//! What processes tell each other of what they read most, and what that comes to.

use super::{Recent, WINDOW_MS, WINDOWS};
use crate::Map;
use crate::cache::{read_list, write_list};

/// Names in a report.
pub const MAX_REPORTED: usize = 64;
/// Longest report, bytes.
pub const MAX_REPORT_BYTES: usize = 64 << 10;
/// Of the layout of a report.
const FORMAT: u8 = 1;
/// Bytes of a name's numbers.
const NUMBERS: usize = 4 * WINDOWS + 8 + 1;

/// What a process read most in its last windows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report<N> {
    /// All its reads in each window that is over, the newest first.
    pub totals: [u64; WINDOWS],
    /// The hottest, up to [`MAX_REPORTED`], the hottest first.
    pub hottest: Vec<Recent<N>>,
    /// Whatever it does not name was read so often at most.
    pub unnamed: u64,
}

impl<N> Report<N> {
    /// Whether anything was read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.totals.iter().all(|total| *total == 0)
    }

    /// The same with other names.
    #[must_use]
    pub fn named<M>(self, name: impl Fn(N) -> M) -> Report<M> {
        let renamed =
            |Recent { name: old, counts, over, held }: Recent<N>| Recent { name: name(old), counts, over, held };
        let hottest = self.hottest.into_iter().map(renamed).collect();
        Report { totals: self.totals, hottest, unnamed: self.unnamed }
    }

    /// Adds what another part of the same process read of other names.
    pub fn add(&mut self, other: Self) {
        for (total, more) in self.totals.iter_mut().zip(other.totals) {
            *total = total.saturating_add(more);
        }
        self.hottest.extend(other.hottest);
        self.hottest.sort_by_key(|recent| std::cmp::Reverse(recent.reads()));
        let coldest = self.hottest.drain(self.hottest.len().min(MAX_REPORTED)..);
        let most = coldest.map(|recent| recent.reads().saturating_add(recent.over)).max().unwrap_or(0);
        self.unnamed = self.unnamed.max(other.unnamed).max(most);
    }
}

impl Report<Vec<u8>> {
    /// As bytes, at most [`MAX_REPORT_BYTES`]: the coldest that do not fit are left out.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut head = vec![FORMAT];
        head.extend((WINDOW_MS as u32).to_be_bytes());
        self.totals.iter().chain([&self.unnamed]).for_each(|total| head.extend(total.to_be_bytes()));
        let item = |recent: &Recent<Vec<u8>>| {
            let mut item = Vec::with_capacity(NUMBERS + recent.name.len());
            recent.counts.iter().for_each(|count| item.extend(count.to_be_bytes()));
            item.extend(recent.over.to_be_bytes());
            item.push(recent.held.min(WINDOWS) as u8);
            item.extend(&recent.name);
            item
        };
        let items: Vec<Vec<u8>> = self.hottest.iter().take(MAX_REPORTED).map(item).collect();
        write_list(std::iter::once(&head[..]).chain(items.iter().map(Vec::as_slice)), MAX_REPORT_BYTES)
    }

    /// What [`Report::encode`] wrote; `None`: damaged, or of another version.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > MAX_REPORT_BYTES {
            return None;
        }
        let items = read_list(bytes)?;
        let (head, items) = items.split_first()?;
        let (format, rest) = head.split_first()?;
        let (window, rest) = rest.split_first_chunk::<4>()?;
        if *format != FORMAT || i64::from(u32::from_be_bytes(*window)) != WINDOW_MS || items.len() > MAX_REPORTED {
            return None;
        }
        let mut totals = [0; WINDOWS];
        let (numbers, []) = rest.as_chunks::<8>() else { return None };
        let (unnamed, numbers) = numbers.split_last().filter(|(_, totals)| totals.len() == WINDOWS)?;
        totals.iter_mut().zip(numbers).for_each(|(total, number)| *total = u64::from_be_bytes(*number));
        let hottest = items.iter().map(|item| recent(item)).collect::<Option<_>>()?;
        Some(Self { totals, hottest, unnamed: u64::from_be_bytes(*unnamed) })
    }
}

fn recent(item: &[u8]) -> Option<Recent<Vec<u8>>> {
    let (numbers, name) = item.split_at_checked(NUMBERS)?;
    let (counts, rest) = numbers.split_at_checked(4 * WINDOWS)?;
    let (over, held) = rest.split_first_chunk::<8>()?;
    let mut recent = Recent { name: name.to_vec(), counts: [0; WINDOWS], over: u64::from_be_bytes(*over), held: 0 };
    for (count, number) in recent.counts.iter_mut().zip(counts.as_chunks::<4>().0) {
        *count = u32::from_be_bytes(*number);
    }
    recent.held = usize::from(*held.first()?).min(WINDOWS);
    Some(recent)
}

/// A name that several processes read, all together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HotName<N> {
    /// Which.
    pub name: N,
    /// Its reads that are known of. There were no fewer.
    pub reads: u64,
    /// And at most so many more: before it was known by name, or in processes whose report it is not in.
    pub over: u64,
}

/// What several processes read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merged<N> {
    /// All reads.
    pub reads: u64,
    /// The hottest, the hottest first.
    pub hottest: Vec<HotName<N>>,
}

/// What processes read most in their last `windows` windows, at least one of [`WINDOWS`]; up to `top` names. Reports of the
/// same windows of the same reads must not be given twice.
#[must_use]
pub fn merge<N: Clone + Ord + std::hash::Hash>(reports: &[Report<N>], windows: usize, top: usize) -> Merged<N> {
    let windows = windows.clamp(1, WINDOWS);
    let reads_in = |recent: &Recent<N>| recent.counts[..windows].iter().map(|count| u64::from(*count)).sum::<u64>();
    let mut names: Map<&N, (HotName<N>, u64)> = Map::default();
    for report in reports {
        for recent in &report.hottest {
            let over = if recent.held >= windows { 0 } else { recent.over };
            let name = || (HotName { name: recent.name.clone(), reads: 0, over: 0 }, 0);
            let (hot, named) = names.entry(&recent.name).or_insert_with(name);
            hot.reads = hot.reads.saturating_add(reads_in(recent));
            hot.over = hot.over.saturating_add(over);
            *named = named.saturating_add(report.unnamed);
        }
    }
    // Where a name is not in a report, it may have been read as often as that says.
    let unnamed = reports.iter().fold(0, |sum: u64, report| sum.saturating_add(report.unnamed));
    let whole = |(hot, named): (HotName<N>, u64)| {
        let over = hot.over.saturating_add(unnamed.saturating_sub(named));
        HotName { over, ..hot }
    };
    let mut hottest: Vec<HotName<N>> = names.into_values().map(whole).filter(|hot| hot.reads > 0).collect();
    hottest.sort_unstable_by(|a, b| b.reads.cmp(&a.reads).then_with(|| a.name.cmp(&b.name)));
    hottest.truncate(top);
    let totals = reports.iter().flat_map(|report| &report.totals[..windows]);
    Merged { reads: totals.fold(0, |sum: u64, total| sum.saturating_add(*total)), hottest }
}
