//! What a cache counts. A hit touches a stripe of its thread's own; upkeep hands the sums to the recorder, so
//! that metrics follow within a second.

use std::sync::Mutex;

use metrics::{Counter, Histogram, counter, histogram};

use super::striped::Striped;

/// What a cache has done since it was built.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Answered from the in-process level.
    pub local_hits: u64,
    /// Answered from the store.
    pub store_hits: u64,
    /// Neither level had anything to serve.
    pub misses: u64,
    /// Loads that gave a value.
    pub loads: u64,
    /// Loads that gave "there is none".
    pub absent_loads: u64,
    /// Loads that failed, timed out or panicked.
    pub failed_loads: u64,
    /// Reads answered with a value past its freshness.
    pub stale: u64,
    /// Reads answered "there is none" without a load.
    pub negatives: u64,
    /// Reads of ids that surely do not exist, refused by the membership filter.
    pub filter_refusals: u64,
    /// Fills that the store refused: invalidated meanwhile, lease lost, or older than the floor.
    pub rejected_fills: u64,
    /// Loads that were not admitted.
    pub overloaded: u64,
    /// Values too large for the store.
    pub oversize: u64,
    /// Bytes in the store that could not be read: a miss, and removed.
    pub unreadable: u64,
    /// Hot keys that a warm-up found in the store.
    pub rewarm_found: u64,
    /// Hot keys that a warm-up loaded.
    pub rewarm_loads: u64,
    /// Hot keys that a warm-up tried to load, and there was none.
    pub rewarm_absences: u64,
    /// Hot keys whose load failed in a warm-up.
    pub rewarm_failures: u64,
    /// Loads that run or wait now.
    pub flights: usize,
    /// Copies in the in-process level now.
    pub local_copies: usize,
    /// Their weight, bytes.
    pub local_bytes: u64,
    /// Hot keys whose copies are kept from eviction now.
    pub pinned: usize,
}

macro_rules! counts {
    ($($(#[$what:meta])* $name:ident = $metric:literal $(, $label:literal => $value:literal)*;)*) => {
        /// The counters of a namespace.
        #[derive(Default)]
        pub(super) struct Counts {
            $($(#[$what])* pub(super) $name: Striped,)*
        }

        impl Counts {
            fn handles(namespace: &str) -> Vec<Counter> {
                vec![$(counter!($metric, "namespace" => namespace.to_owned() $(, $label => $value)*),)*]
            }

            fn sums(&self) -> Vec<u64> {
                vec![$(self.$name.sum(),)*]
            }

            /// What was counted so far.
            pub(super) fn stats(&self) -> CacheStats {
                CacheStats { $($name: self.$name.sum(),)* ..CacheStats::default() }
            }
        }
    };
}

counts! {
    local_hits = "tidegate_cache_hits_total", "level" => "local";
    store_hits = "tidegate_cache_hits_total", "level" => "store";
    misses = "tidegate_cache_misses_total";
    loads = "tidegate_cache_loads_total", "outcome" => "ok";
    absent_loads = "tidegate_cache_loads_total", "outcome" => "absent";
    failed_loads = "tidegate_cache_loads_total", "outcome" => "error";
    stale = "tidegate_cache_stale_total";
    negatives = "tidegate_cache_negatives_total";
    filter_refusals = "tidegate_cache_filter_refusals_total";
    rejected_fills = "tidegate_cache_rejected_fills_total";
    overloaded = "tidegate_cache_overloaded_total";
    oversize = "tidegate_cache_oversize_total";
    unreadable = "tidegate_cache_unreadable_total";
    rewarm_found = "tidegate_cache_rewarmed_total", "outcome" => "found";
    rewarm_loads = "tidegate_cache_rewarmed_total", "outcome" => "loaded";
    rewarm_absences = "tidegate_cache_rewarmed_total", "outcome" => "absent";
    rewarm_failures = "tidegate_cache_rewarmed_total", "outcome" => "failed";
}

/// The counters and where they are told.
pub(super) struct Metrics {
    pub(super) counts: Counts,
    pub(super) load_seconds: Histogram,
    namespace: String,
    /// Handles with what each was told so far.
    told: Mutex<Option<Vec<(Counter, u64)>>>,
}

impl Metrics {
    pub(super) fn new(namespace: &str) -> Self {
        Self {
            counts: Counts::default(),
            load_seconds: histogram!("tidegate_cache_load_seconds", "namespace" => namespace.to_owned()),
            namespace: namespace.to_owned(),
            told: Mutex::default(),
        }
    }

    /// Hands what was counted since the last time to the recorder.
    pub(super) fn tell(&self) {
        let mut told = self.told.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let told = told
            .get_or_insert_with(|| Counts::handles(&self.namespace).into_iter().map(|handle| (handle, 0)).collect());
        for (sum, (handle, before)) in self.counts.sums().into_iter().zip(told) {
            if sum > *before {
                handle.increment(sum - *before);
                *before = sum;
            }
        }
    }
}
