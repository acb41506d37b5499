//! Units taken over time, from the answers alone: whether more was ever accepted than there was, and whether a
//! "sold out" was true. Nothing here asks the ledger.

use std::collections::BTreeMap;

/// When units of one SKU were taken and given back.
#[derive(Debug, Default)]
struct Changes {
    stock: i64,
    at: Vec<(i64, i64)>,
}

/// Collects the changes of every SKU.
#[derive(Debug, Default)]
pub struct Occupancy {
    of: BTreeMap<String, Changes>,
}

impl Occupancy {
    /// `sku` has this many units.
    pub fn stock(&mut self, sku: &str, units: i64) {
        self.of.entry(sku.to_owned()).or_default().stock = units;
    }

    /// `units` of `sku` were taken at `from` and given back at `to` (`None`: never).
    pub fn taken(&mut self, sku: &str, units: i64, from: i64, to: Option<i64>) {
        let at = &mut self.of.entry(sku.to_owned()).or_default().at;
        at.push((from, units));
        at.extend(to.map(|to| (to, -units)));
    }

    /// Puts the changes in order.
    #[must_use]
    pub fn finish(self) -> Timeline {
        Timeline { of: self.of.into_iter().map(|(sku, changes)| (sku, Steps::new(changes))).collect() }
    }
}

/// The changes in order of time.
#[derive(Debug)]
pub struct Timeline {
    of: BTreeMap<String, Steps>,
}

#[derive(Debug)]
struct Steps {
    stock: i64,
    /// Instant, units taken before its changes, most units taken at any moment of it.
    steps: Vec<(i64, i64, i64)>,
    /// Most units taken once the changes of an instant are all done: what can be told of an oversell for certain.
    peak: i64,
    /// Units taken after the last change.
    last: i64,
}

impl Steps {
    fn new(mut changes: Changes) -> Self {
        changes.at.sort_unstable();
        let (mut taken, mut peak) = (0, 0);
        let mut steps: Vec<(i64, i64, i64)> = Vec::new();
        for group in changes.at.chunk_by(|a, b| a.0 == b.0) {
            let before = taken;
            let takes: i64 = group.iter().map(|(_, units)| (*units).max(0)).sum();
            taken += group.iter().map(|(_, units)| units).sum::<i64>();
            peak = peak.max(taken);
            steps.push((group[0].0, before, before + takes));
        }
        Self { stock: changes.stock, steps, peak, last: taken }
    }
}

impl Timeline {
    /// Units that were taken beyond the stock, over all SKUs. Within one millisecond what was given back counts as
    /// given back first.
    #[must_use]
    pub fn oversold(&self) -> u64 {
        self.of.values().map(|sku| (sku.peak - sku.stock).max(0).unsigned_abs()).sum()
    }

    /// Whether fewer than `units` of `sku` can have been available at some instant of `from..=to`.
    #[must_use]
    pub fn was_short(&self, sku: &str, units: i64, from: i64, to: i64) -> bool {
        let Some(sku) = self.of.get(sku) else { return false };
        let first = sku.steps.partition_point(|(at, ..)| *at < from);
        // What the next change starts from is what was taken when `from` began.
        let at_start = sku.steps.get(first).map_or(sku.last, |next| next.1);
        let within = sku.steps[first..].iter().take_while(|(at, ..)| *at <= to).map(|(_, _, most)| *most);
        let most = within.fold(at_start, i64::max);
        sku.stock - most < units
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline() -> Timeline {
        let mut occupancy = Occupancy::default();
        occupancy.stock("a", 3);
        occupancy.taken("a", 2, 10, Some(20));
        occupancy.taken("a", 1, 15, None);
        // In the same millisecond in which two came back.
        occupancy.taken("a", 2, 20, Some(30));
        occupancy.finish()
    }

    #[test]
    fn nothing_is_oversold_when_units_come_back_first() {
        assert_eq!(timeline().oversold(), 0);
        let mut occupancy = Occupancy::default();
        occupancy.stock("a", 3);
        occupancy.taken("a", 2, 10, Some(20));
        occupancy.taken("a", 3, 19, None);
        assert_eq!(occupancy.finish().oversold(), 2);
    }

    #[test]
    fn sold_out_or_not() {
        let timeline = timeline();
        for (units, from, to, short) in [
            (1, 0, 9, false),
            (3, 0, 9, false),
            (2, 9, 10, true),
            (1, 11, 14, false),
            (2, 11, 14, true),
            (1, 15, 15, true),
            (1, 16, 16, true),
            (1, 31, 40, false),
            (3, 31, 40, true),
        ] {
            assert_eq!(timeline.was_short("a", units, from, to), short, "{units} in {from}..={to}");
        }
        assert!(!timeline.was_short("b", 1, 0, 9));
    }
}
