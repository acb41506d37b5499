//! How a cache uses its Redis.

use std::ops::RangeInclusive;
use std::time::Duration;

use tidegate_backend::{Error, ErrorKind, Result};

const TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(5)..=Duration::from_secs(60);
const MAX_BUCKETS: usize = 64;
const KEPT: RangeInclusive<usize> = 100..=1_000_000;

/// How a cache uses its Redis.
#[derive(Debug, Clone)]
pub struct RedisCacheOptions {
    /// How long an answer may take (5 ms to 60 s; 250 ms by default). It counts instead of that of
    /// [`RedisOptions`](crate::RedisOptions). A call on a new connection may take twice as long: it waits until that is known
    /// to be safe.
    pub timeout: Duration,
    /// Into how many streams the notices are divided (1..=64; 4 by default), so that a Cluster spreads the load. In a Cluster
    /// every process has a connection for each; elsewhere one for all. All processes of a name must agree; to change it,
    /// stop them all for a minute, or take another name.
    pub buckets: usize,
    /// About how many entries a stream keeps (100..=1,000,000; 10,000 by default). A process that falls further behind
    /// forgets its copies.
    pub notices_kept: usize,
}

impl Default for RedisCacheOptions {
    fn default() -> Self {
        Self { timeout: Duration::from_millis(250), buckets: 4, notices_kept: 10_000 }
    }
}

impl RedisCacheOptions {
    pub(super) fn check(&self) -> Result<()> {
        let wrong = |why: String| Err(Error::new(ErrorKind::Configuration, why));
        if !TIMEOUTS.contains(&self.timeout) {
            return wrong(format!("the timeout of a cache's commands is {:?} and must be 5 ms to 60 s", self.timeout));
        }
        if !(1..=MAX_BUCKETS).contains(&self.buckets) {
            return wrong(format!(
                "the notices of a cache are divided into 1..={MAX_BUCKETS} streams, not {}",
                self.buckets
            ));
        }
        if !KEPT.contains(&self.notices_kept) {
            return wrong(format!("a stream keeps 100 to 1,000,000 notices, not {}", self.notices_kept));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_options_say_what_is_wrong() {
        let o = RedisCacheOptions::default;
        assert!(o().check().is_ok());
        for (bad, word) in [
            (RedisCacheOptions { timeout: Duration::ZERO, ..o() }, "timeout"),
            (RedisCacheOptions { buckets: 0, ..o() }, "streams"),
            (RedisCacheOptions { buckets: 65, ..o() }, "streams"),
            (RedisCacheOptions { notices_kept: 99, ..o() }, "notices"),
        ] {
            let e = bad.check().unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Configuration);
            assert!(e.to_string().contains(word), "{e}");
        }
    }
}
