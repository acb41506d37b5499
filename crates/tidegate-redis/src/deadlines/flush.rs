//! Tells Redis what was scheduled and cancelled.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_backend::Result;
use tidegate_core::{Millis, OrderNo};

use super::buffer::Change;
use super::{Inner, wire};
use crate::connect::Call;
use crate::scripts;

/// Tries of one flush; what then has not reached Redis makes the index incomplete.
const MAX_TRIES: u32 = 5;
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(100);

/// Flushes until it is aborted. One flush is on its way at a time: while it is, the next one gathers.
pub(super) async fn run(inner: Arc<Inner>) {
    loop {
        let changes = inner.buffer.take().await;
        let began = Instant::now();
        if !flush(&inner, &changes).await {
            inner.rebuild.lost(changes.len());
        }
        metrics::histogram!("tidegate_index_flush_seconds").record(began.elapsed().as_secs_f64());
        inner.buffer.done();
    }
}

async fn flush(inner: &Inner, changes: &[((Millis, OrderNo), Change)]) -> bool {
    let mut left = inner.set_aside(changes.to_vec());
    for attempt in 1..=MAX_TRIES {
        if left.is_empty() {
            return true;
        }
        let (adds, calls) = calls(inner, &left);
        let (partitions, calls): (Vec<usize>, Vec<Call>) = calls.into_iter().unzip();
        let mut restored = false;
        let mut failed = BTreeSet::new();
        for (at, (answer, partition)) in inner.connector.run(calls).await.into_iter().zip(partitions).enumerate() {
            match answer.and_then(|answer| crate::reply::integer(&answer)) {
                Ok(count) => restored |= at >= adds && count > 0,
                Err(e) => {
                    tracing::debug!(error = %e, attempt, "deadlines could not be told to Redis");
                    failed.insert(partition);
                    // Where it is not the partition's alone, the next try tells.
                    let _ = inner.note_failure(partition, e);
                }
            }
        }
        if restored {
            inner.wake.earlier();
        }
        // Those that did arrive may be due.
        let first = left.iter().find(|(_, change)| *change == Change::Add);
        if let Some(((at, _), _)) = first {
            inner.wake.at(*at);
        }
        left.retain(|((_, order), _)| failed.contains(&inner.partition_of(*order)));
        left = inner.set_aside(left);
        if !left.is_empty() && attempt < MAX_TRIES {
            tokio::time::sleep(PAUSE).await;
        }
    }
    left.is_empty()
}

/// Calls that add, then calls that remove; and how many add.
fn calls(inner: &Inner, changes: &[((Millis, OrderNo), Change)]) -> (usize, Vec<(usize, Call)>) {
    let of = |wanted: Change| {
        changes.iter().filter(move |(_, change)| *change == wanted).map(|((at, order), _)| (*order, *at))
    };
    let channel = inner.keys.earlier_channel().into_bytes();
    let mut calls = inner.calls(&scripts::SCHEDULE, 1, of(Change::Add), |items| {
        let mut arguments = Vec::with_capacity(2 + 2 * items.len());
        arguments.extend([channel.clone(), inner.node.to_vec()]);
        arguments.extend(items.iter().flat_map(|(order, at)| [wire::not_before(*at), wire::member(*order, *at)]));
        arguments
    });
    let adds = calls.len();
    calls.extend(inner.calls(&scripts::CANCEL, 2, of(Change::Remove), |items| {
        items.iter().map(|(order, at)| wire::member(*order, *at)).collect()
    }));
    (adds, calls)
}

impl Inner {
    /// Whether each is in the index; of a partition that is out, nothing is known to be missing.
    pub(super) async fn contains(&self, deadlines: &[(OrderNo, Millis)]) -> Result<Vec<bool>> {
        self.settled().await?;
        let items = deadlines.iter().enumerate().map(|(at, (order, due))| (*order, (at, *due)));
        // The same spread as `calls` makes, so that each answer finds its question.
        let positions = self.calls_of(items.clone());
        let calls = self.calls(&scripts::CONTAINS, 2, items, |items| {
            items.iter().map(|(order, (_, due))| wire::member(*order, *due)).collect()
        });
        let mut there = vec![true; deadlines.len()];
        for (positions, answer) in positions.into_iter().zip(self.each(calls).await?) {
            let Some(answer) = answer else { continue };
            for (at, bit) in positions.into_iter().zip(crate::reply::bytes(&answer)?) {
                there[at] = *bit == b'1';
            }
        }
        Ok(there)
    }

    fn calls_of(&self, items: impl Iterator<Item = (OrderNo, (usize, Millis))>) -> Vec<Vec<usize>> {
        let mut by_partition: Vec<Vec<usize>> = vec![Vec::new(); self.partitions];
        for (order, (at, _)) in items {
            by_partition[self.partition_of(order)].push(at);
        }
        let chunks = by_partition.iter().flat_map(|positions| positions.chunks(super::MAX_CALL));
        chunks.map(<[usize]>::to_vec).collect()
    }
}
