//! The shape of a radix tree of ids, from the ids as they come, in their order.

/// Bytes of an id.
const DEPTH: usize = 16;

/// What a tree of ids consists of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Radix {
    /// Ids; each ends in a node of its own.
    pub ids: u64,
    /// Nodes with several ways on.
    pub branches: u64,
    /// Nodes with one way on: what many ids begin with, or one id ends with.
    pub chains: u64,
}

impl Radix {
    /// Nodes in all.
    pub(in super::super) fn nodes(self) -> u64 {
        self.ids.saturating_add(self.branches).saturating_add(self.chains)
    }
}

/// A tree that grows by ids in their order.
#[derive(Debug, Default)]
pub(super) struct Grower {
    shape: Radix,
    last: [u8; DEPTH],
    /// Depths of the branches above the last id, from the root.
    above: Vec<usize>,
}

impl Grower {
    pub(super) fn add(&mut self, id: [u8; DEPTH]) {
        if self.shape.ids > 0 {
            let same = self.last.iter().zip(&id).take_while(|(a, b)| a == b).count().min(DEPTH - 1);
            self.leave(same);
            if self.above.last() != Some(&same) {
                self.above.push(same);
                self.shape.branches += 1;
            }
        }
        self.shape.ids += 1;
        self.last = id;
    }

    /// No further id goes on below `depth` where the last one did.
    fn leave(&mut self, depth: usize) {
        let mut below = DEPTH;
        loop {
            let top = self.above.last().copied().filter(|top| *top >= depth);
            let parent = top.unwrap_or(depth);
            self.shape.chains += u64::from(below > parent + 1);
            match top {
                Some(top) if top > depth => {
                    self.above.pop();
                    below = top;
                }
                _ => return,
            }
        }
    }

    pub(super) fn done(mut self) -> Radix {
        if self.shape.ids > 0 {
            let first = self.above.first().copied().unwrap_or(DEPTH);
            if first < DEPTH {
                self.leave(first);
            }
            self.shape.chains += u64::from(first > 0);
        }
        self.shape
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ids: impl IntoIterator<Item = u128>) -> Radix {
        let mut grower = Grower::default();
        ids.into_iter().for_each(|id| grower.add(id.to_be_bytes()));
        grower.done()
    }

    /// What `XINFO STREAM` says of such trees.
    #[test]
    fn nodes_as_servers_count_them() {
        assert_eq!(of([]).nodes(), 0);
        assert_eq!(of([1]).nodes(), 2);
        let spaced = |n: u128| of((0..n).map(|n| (1_700_000_000_000 + n * 707) << 64)).nodes();
        assert_eq!(spaced(2), 6);
        // All that differ in one byte: a node for the beginning, one with a way for each, two for each end.
        assert_eq!(of((0..10).map(|n| n << 64)), Radix { ids: 10, branches: 1, chains: 11 });
        // In the last byte: the ends are leaves.
        assert_eq!(of(0..256), Radix { ids: 256, branches: 1, chains: 1 });
        assert_eq!(of(0..512), Radix { ids: 512, branches: 3, chains: 1 });
        assert_eq!(of([0, 1 << 120]), Radix { ids: 2, branches: 1, chains: 2 });
    }
}
