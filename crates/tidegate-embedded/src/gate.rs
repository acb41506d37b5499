//! The gate of one process: copies of SKUs in sharded maps.

use std::hash::BuildHasher;
use std::sync::{PoisonError, RwLock};

use foldhash::fast::RandomState;
use tidegate_backend::Gate;
use tidegate_core::command::Place;
use tidegate_core::gate::{Copy, Opinion, check};
use tidegate_core::{Map, Millis, SkuId};

/// Shards: enough that a commit that replaces copies seldom meets a reader. A power of two.
const SHARDS: usize = 64;

type Shard = RwLock<Map<SkuId, Copy>>;

/// A gate in memory. It holds one small copy a SKU, so it is bounded by the number of SKUs in the ledger.
#[derive(Debug)]
pub struct EmbeddedGate {
    hasher: RandomState,
    shards: Box<[Shard]>,
}

impl EmbeddedGate {
    /// A gate that holds no SKU.
    #[must_use]
    pub fn new() -> Self {
        Self { hasher: RandomState::default(), shards: (0..SHARDS).map(|_| Shard::default()).collect() }
    }

    fn shard(&self, sku: &SkuId) -> &Shard {
        // The high bits pick the shard, so that the low ones stay evenly spread inside its map.
        let hash = self.hasher.hash_one(sku);
        &self.shards[(hash >> 58) as usize % SHARDS]
    }
}

impl Default for EmbeddedGate {
    fn default() -> Self {
        Self::new()
    }
}

impl Gate for EmbeddedGate {
    fn check(&self, place: &Place, now: Millis) -> Opinion {
        check(place, now, |sku| self.copy_of(sku))
    }

    fn replace(&self, copies: &[(SkuId, Copy)], force: bool) {
        for (sku, copy) in copies {
            let mut shard = self.shard(sku).write().unwrap_or_else(PoisonError::into_inner);
            match shard.get_mut(sku) {
                Some(held) if !force && held.stock_version > copy.stock_version => {}
                // A card can change at the same `stock_version`: an equal one replaces.
                Some(held) => *held = copy.clone(),
                None => {
                    shard.insert(sku.clone(), copy.clone());
                }
            }
        }
    }

    fn copy_of(&self, sku: &SkuId) -> Option<Copy> {
        self.shard(sku).read().unwrap_or_else(PoisonError::into_inner).get(sku).cloned()
    }

    fn len(&self) -> usize {
        self.shards.iter().map(|s| s.read().unwrap_or_else(PoisonError::into_inner).len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(available: i64, stock_version: i64) -> Copy {
        Copy { archived: false, on_sale_from: None, max_per_order: None, available, stock_version }
    }

    #[test]
    fn an_older_copy_is_ignored_unless_forced() {
        let gate = EmbeddedGate::new();
        let sku = SkuId::parse("a").unwrap();
        assert!(gate.is_empty() && gate.copy_of(&sku).is_none());
        for (version, force, want) in [(5, false, 5), (4, false, 5), (5, false, 5), (4, true, 4), (9, false, 9)] {
            gate.replace(&[(sku.clone(), copy(version, version))], force);
            assert_eq!(gate.copy_of(&sku).unwrap().stock_version, want);
        }
        assert_eq!(gate.len(), 1);
    }

    #[test]
    fn it_counts_over_all_shards() {
        let gate = EmbeddedGate::new();
        let copies: Vec<_> = (0..1_000).map(|i| (SkuId::parse(&format!("s{i}")).unwrap(), copy(i, 1))).collect();
        gate.replace(&copies, false);
        assert_eq!(gate.len(), 1_000);
        assert!(copies.iter().all(|(sku, c)| gate.copy_of(sku).as_ref() == Some(c)));
    }
}
