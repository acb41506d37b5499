//! The keys that are read most, on the wire: the same for HTTP and `--json` of the tool.

use serde::Serialize;
use serde_json::Value;
use tidegate::hot_keys::{HotKey, Report, escaped};
use utoipa::ToSchema;

/// The keys that were read most in the last seconds.
#[derive(Serialize, ToSchema)]
#[schema(as = HotKeys)]
pub(crate) struct HotKeysShape {
    /// `sketch`: told by the processes that use the cache; `native`: counted by the server.
    #[schema(example = "sketch")]
    source: &'static str,
    /// Over how long, seconds.
    #[schema(example = 10.0)]
    seconds: f64,
    /// The hottest, the hottest first.
    items: Vec<HotKeyShape>,
    /// Processes that told what they read; 0 where the server counts.
    processes: usize,
    /// Why this way, and what is not known.
    notes: Vec<String>,
}

/// A key that is read often.
#[derive(Serialize, ToSchema)]
#[schema(as = HotKey)]
struct HotKeyShape {
    /// Its name; what is no text is escaped.
    #[schema(example = "tg:shop:c:products:{:mug}:1")]
    key: String,
    /// Its part of all reads that are known of; where the server counts, of the time that commands took. 0 to 1.
    share: f64,
    /// Reads a second; null: the server counts time.
    per_second: Option<f64>,
    /// There may have been so many more, a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    error_per_second: Option<f64>,
    /// What the server spent on it, microseconds a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_us_per_second: Option<f64>,
    /// What it is for, if it is Tidegate's.
    #[serde(skip_serializing_if = "Option::is_none")]
    purpose: Option<&'static str>,
}

impl HotKeysShape {
    /// What was found.
    pub(crate) fn new(report: &Report) -> Self {
        Self {
            source: report.source.name(),
            seconds: rounded(report.seconds, 1e3),
            items: report.items.iter().map(HotKeyShape::new).collect(),
            processes: report.processes,
            notes: report.notes.clone(),
        }
    }
}

impl HotKeyShape {
    fn new(hot: &HotKey) -> Self {
        let rate = |rate: Option<f64>| rate.map(|rate| rounded(rate, 1e3));
        Self {
            key: escaped(&hot.name),
            share: rounded(hot.share, 1e6),
            per_second: rate(hot.per_second),
            error_per_second: rate(hot.error),
            cpu_us_per_second: rate(hot.cpu_us_per_second),
            purpose: hot.purpose,
        }
    }
}

fn rounded(number: f64, to: f64) -> f64 {
    (number * to).round() / to
}

/// Hot keys as `/v1/redis/hot-keys` shows them.
#[must_use]
pub fn hot_keys_json(report: &Report) -> Value {
    serde_json::to_value(HotKeysShape::new(report)).unwrap_or_default()
}
