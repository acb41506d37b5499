//! Deleting a namespace, and the counters of tags.

use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::Value;
use tidegate_backend::Result;

use super::Inner;
use crate::connect::Call;
use crate::reply;
use crate::scripts;

impl Inner {
    /// Deletes every entry and refresh of a namespace. Keys that a Cluster moves from one node to another meanwhile may be
    /// seen by neither.
    pub(super) async fn clear(&self, namespace: &str) -> Result<u64> {
        let mut cleared = 0;
        let mut walk = self.connector.walk(self.keys.cells(namespace)).await?;
        while let Some(keys) = walk.next().await? {
            cleared += self.delete(&keys).await?;
        }
        Ok(cleared)
    }

    /// Deletes what of `keys` is an entry or a refresher; how many entries it were.
    async fn delete(&self, keys: &[Value]) -> Result<u64> {
        let (mut entries, mut refreshers): (Vec<&[u8]>, Vec<&[u8]>) = (Vec::new(), Vec::new());
        for key in keys {
            match reply::bytes(key)? {
                key @ [.., b'r', b'0'..=b'3'] => refreshers.push(key),
                key @ [.., b':', b'0'..=b'3'] => entries.push(key),
                _ => {}
            }
        }
        let calls = [&entries, &refreshers].into_iter().filter_map(|keys| {
            let (first, rest) = keys.split_first()?;
            Some(Call::plain("UNLINK", first, rest))
        });
        let mut counts = self.connector.run(calls.collect()).await.into_iter();
        let mut deleted = 0;
        for list in [&entries, &refreshers].into_iter().filter(|list| !list.is_empty()) {
            let count = counts.next().expect("an answer for each call")?;
            if std::ptr::eq(list, &entries) {
                deleted = u64::try_from(reply::integer(&count)?).unwrap_or(0);
            }
        }
        Ok(deleted)
    }

    /// A tag's counter, moved on if asked.
    pub(super) fn tag(&self, namespace: &str, tag: u64, keep: Duration, bump: bool) -> Call {
        let keep = i64::try_from(keep.as_millis()).unwrap_or(i64::MAX).clamp(1, LONGEST_KEEP_MS);
        let seen = self.seen.load(Ordering::Relaxed);
        let arguments = vec![
            keep.to_string().into_bytes(),
            if bump { b"1".to_vec() } else { Vec::new() },
            seen.to_string().into_bytes(),
        ];
        Call::script(&scripts::CACHE_TAG, vec![self.keys.tag_counter(namespace, tag)], arguments)
    }

    /// The counter in an answer.
    pub(super) fn counter(&self, answer: &Value) -> Result<u64> {
        let counter = u64::try_from(reply::integer(answer)?).map_err(|_| reply::strange(answer))?;
        self.seen.fetch_max(counter, Ordering::Relaxed);
        Ok(counter)
    }
}

/// Longest life of a counter: what a server takes without an overflow, 100 years.
const LONGEST_KEEP_MS: i64 = 100 * 366 * 86_400_000;
