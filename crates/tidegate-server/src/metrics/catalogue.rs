//! Every metric of the product: one table, read by the recorder and by `docs/reference/metrics.md`.

use std::fmt::Write;

use metrics::Unit;

/// A metric.
pub struct Metric {
    /// Its name; contract.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// What it counts in.
    pub unit: Unit,
    /// Its labels.
    pub labels: &'static [&'static str],
    /// What it tells.
    pub help: &'static str,
}

/// What a metric is.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// Only ever grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Values in these buckets.
    Histogram(&'static [f64]),
}

/// From half a millisecond to ten seconds.
const SECONDS: &[f64] = &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// From a millisecond to a minute.
const LATENESS: &[f64] = &[0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
/// Commands of a batch.
const BATCH: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];

const fn metric(
    name: &'static str,
    kind: Kind,
    unit: Unit,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    Metric { name, kind, unit, labels, help }
}

/// All of them.
pub static CATALOGUE: &[Metric] = &[
    metric(
        "tidegate_http_requests_total",
        Kind::Counter,
        Unit::Count,
        &["method", "route", "status"],
        "Requests answered; route `none` stands for addresses that do not exist and requests that could not be read.",
    ),
    metric(
        "tidegate_http_request_seconds",
        Kind::Histogram(SECONDS),
        Unit::Seconds,
        &["method", "route", "status"],
        "From a request's head to its response's head.",
    ),
    metric(
        "tidegate_http_requests_in_flight",
        Kind::Gauge,
        Unit::Count,
        &[],
        "Requests being answered, event streams included.",
    ),
    metric("tidegate_http_connections", Kind::Gauge, Unit::Count, &[], "Open connections."),
    metric("tidegate_http_event_streams", Kind::Gauge, Unit::Count, &[], "Open event streams."),
    metric(
        "tidegate_http_evicted_connections_total",
        Kind::Counter,
        Unit::Count,
        &[],
        "Connections without a request that were closed to make room for new ones.",
    ),
    metric(
        "tidegate_http_panics_total",
        Kind::Counter,
        Unit::Count,
        &[],
        "Requests that met a fault of the server's own; each is a bug.",
    ),
    metric(
        "tidegate_overloaded_total",
        Kind::Counter,
        Unit::Count,
        &[],
        "Commands and look-ups refused because the queue in front of the ledger was full.",
    ),
    metric(
        "tidegate_commit_seconds",
        Kind::Histogram(SECONDS),
        Unit::Seconds,
        &[],
        "One committed batch, from its hand-over to the ledger until it is durable.",
    ),
    metric("tidegate_commit_batch", Kind::Histogram(BATCH), Unit::Count, &[], "Commands in a committed batch."),
    metric(
        "tidegate_gate_refusals_total",
        Kind::Counter,
        Unit::Count,
        &[],
        "Orders refused for lack of stock without a write to the ledger.",
    ),
    metric(
        "tidegate_deadline_lateness_seconds",
        Kind::Histogram(LATENESS),
        Unit::Seconds,
        &[],
        "How long after it was due an unpaid order was cancelled.",
    ),
    metric(
        "tidegate_deadline_oldest_overdue_seconds",
        Kind::Gauge,
        Unit::Seconds,
        &[],
        "How overdue the oldest pending order is; 0 when none is.",
    ),
    metric(
        "tidegate_deadline_failures_total",
        Kind::Counter,
        Unit::Count,
        &[],
        "Tries to act on an order's deadline that failed.",
    ),
    metric(
        "tidegate_orders_parked_total",
        Kind::Counter,
        Unit::Count,
        &[],
        "Orders whose deadline could not be acted on and that were put aside.",
    ),
    metric(
        "tidegate_sweep_found_total",
        Kind::Counter,
        Unit::Count,
        &[],
        "Due orders that the deadline index had missed and the sweep found.",
    ),
    metric(
        "tidegate_sweep_expired_total",
        Kind::Counter,
        Unit::Count,
        &[],
        "Due orders that the sweep acted on itself: the deadline index could not be used, or held them and nobody took them.",
    ),
    metric(
        "tidegate_sweep_stuck_total",
        Kind::Counter,
        Unit::Count,
        &[],
        "Due orders that a shared index held and nobody took for more than two and a half seconds.",
    ),
    metric(
        "tidegate_payments_unmatched_stale_total",
        Kind::Counter,
        Unit::Count,
        &[],
        "Payments that have matched no order for a day.",
    ),
    metric(
        "tidegate_drift_total",
        Kind::Counter,
        Unit::Count,
        &["invariant"],
        "Copies and deadlines that differed from the ledger and were repaired, on demand or by the pass every half a minute.",
    ),
    metric(
        "tidegate_degraded",
        Kind::Gauge,
        Unit::Count,
        &["reason"],
        "Whether this reason makes the process degraded (1) or not (0); `/readyz` says more.",
    ),
    metric(
        "tidegate_index_rebuilds_total",
        Kind::Counter,
        Unit::Count,
        &[],
        "How often the deadline index was filled from the ledger.",
    ),
    metric(
        "tidegate_index_flush_seconds",
        Kind::Histogram(SECONDS),
        Unit::Seconds,
        &[],
        "One delivery of buffered deadlines to a shared index.",
    ),
    metric(
        "tidegate_index_dropped_total",
        Kind::Counter,
        Unit::Count,
        &[],
        "Deadlines that a shared index did not take up in time; it is filled again from the ledger.",
    ),
    metric(
        "tidegate_index_takeovers_total",
        Kind::Counter,
        Unit::Count,
        &[],
        "Deadlines taken over from a node that no longer beats.",
    ),
    metric("tidegate_store_up", Kind::Gauge, Unit::Count, &["store"], "Whether Redis answers (1) or not (0)."),
    metric(
        "tidegate_store_commands_total",
        Kind::Counter,
        Unit::Count,
        &["store"],
        "Commands sent to Redis; a script is one.",
    ),
    metric(
        "tidegate_sql_retries_total",
        Kind::Counter,
        Unit::Count,
        &["reason"],
        "Batches run again inside the ledger: deadlocks, serialization failures, lock timeouts, lost connections.",
    ),
    metric(
        "tidegate_sql_pool_wait_seconds",
        Kind::Histogram(SECONDS),
        Unit::Seconds,
        &["pool"],
        "How long a call waited for a connection to the database.",
    ),
    metric("tidegate_sql_connections", Kind::Gauge, Unit::Count, &["pool"], "Open connections to the database."),
    metric(
        "tidegate_cache_hits_total",
        Kind::Counter,
        Unit::Count,
        &["level", "namespace"],
        "Reads answered from a cache: `local`, in this process, or `store`.",
    ),
    metric(
        "tidegate_cache_misses_total",
        Kind::Counter,
        Unit::Count,
        &["namespace"],
        "Reads that neither level of a cache could answer.",
    ),
    metric(
        "tidegate_cache_loads_total",
        Kind::Counter,
        Unit::Count,
        &["namespace", "outcome"],
        "Loads from the source: `ok`, `absent` (there is none), `error`.",
    ),
    metric(
        "tidegate_cache_stale_total",
        Kind::Counter,
        Unit::Count,
        &["namespace"],
        "Reads answered with a value past its freshness.",
    ),
    metric(
        "tidegate_cache_negatives_total",
        Kind::Counter,
        Unit::Count,
        &["namespace"],
        "Reads answered `there is none` without a load.",
    ),
    metric(
        "tidegate_cache_filter_refusals_total",
        Kind::Counter,
        Unit::Count,
        &["namespace"],
        "Of those, reads of ids that surely do not exist, by the membership filter.",
    ),
    metric(
        "tidegate_cache_filter_builds_total",
        Kind::Counter,
        Unit::Count,
        &["namespace", "outcome"],
        "Membership filters built by this process: `ok`, `error`.",
    ),
    metric(
        "tidegate_cache_rejected_fills_total",
        Kind::Counter,
        Unit::Count,
        &["namespace"],
        "Loaded values that were not stored: invalidated meanwhile, the lease lost, or older than a known version.",
    ),
    metric(
        "tidegate_cache_overloaded_total",
        Kind::Counter,
        Unit::Count,
        &["namespace"],
        "Loads that were not admitted within the budget.",
    ),
    metric(
        "tidegate_cache_oversize_total",
        Kind::Counter,
        Unit::Count,
        &["namespace"],
        "Values too large for the store.",
    ),
    metric(
        "tidegate_cache_unreadable_total",
        Kind::Counter,
        Unit::Count,
        &["namespace"],
        "Stored bytes that could not be read: a miss, and removed.",
    ),
    metric(
        "tidegate_cache_rewarmed_total",
        Kind::Counter,
        Unit::Count,
        &["namespace", "outcome"],
        "Hot keys that were to be brought back after the store may have lost them: `found` there, `loaded`, `absent` (there is no such row), `failed`.",
    ),
    metric(
        "tidegate_cache_load_seconds",
        Kind::Histogram(SECONDS),
        Unit::Seconds,
        &["namespace"],
        "One load of a cache, retries for a source that lags included.",
    ),
    metric(
        "tidegate_cache_invalidations_relayed_total",
        Kind::Counter,
        Unit::Count,
        &[],
        "Invalidations that commits wrote, handed on to the caches by this process.",
    ),
    metric(
        "tidegate_cache_unrepeatable_total",
        Kind::Counter,
        Unit::Count,
        &[],
        "Invalidations of the last minute that were too many to be repeated after a failover.",
    ),
    metric(
        "tidegate_queue_scheduled_total",
        Kind::Counter,
        Unit::Count,
        &["queue"],
        "Tasks scheduled, replaced ones included.",
    ),
    metric("tidegate_queue_claimed_total", Kind::Counter, Unit::Count, &["queue"], "Tasks handed to workers."),
    metric("tidegate_queue_acked_total", Kind::Counter, Unit::Count, &["queue"], "Tasks acknowledged."),
    metric(
        "tidegate_queue_lost_total",
        Kind::Counter,
        Unit::Count,
        &["queue"],
        "Answers about tasks that were somebody else's by then.",
    ),
    metric(
        "tidegate_queue_dead_total",
        Kind::Counter,
        Unit::Count,
        &["queue"],
        "Tasks that a retry found out of attempts.",
    ),
    metric(
        "tidegate_queue_lateness_seconds",
        Kind::Histogram(LATENESS),
        Unit::Seconds,
        &[],
        "How long after it could be handed out a task was.",
    ),
    metric("tidegate_feed_pages_total", Kind::Counter, Unit::Count, &[], "Pages of feeds."),
    metric(
        "tidegate_feed_memory_pages_total",
        Kind::Counter,
        Unit::Count,
        &[],
        "Of these, first pages that were given from memory, since nothing had changed.",
    ),
    metric(
        "tidegate_feed_author_sets_read_total",
        Kind::Counter,
        Unit::Count,
        &[],
        "Parts of authors' sets that pages have read from the store: about as many as they have items.",
    ),
    metric(
        "tidegate_feed_sql_queries_total",
        Kind::Counter,
        Unit::Count,
        &[],
        "Reads of the ledger's database by pages, those of posts not counted: what the store lacked, or all while it is away.",
    ),
    metric(
        "tidegate_feed_store_failures_total",
        Kind::Counter,
        Unit::Count,
        &[],
        "Times that the store of the feed's copies did not answer; pages are made of the database until it does.",
    ),
    metric("tidegate_lock_granted_total", Kind::Counter, Unit::Count, &[], "Locks granted."),
    metric(
        "tidegate_lock_lost_total",
        Kind::Counter,
        Unit::Count,
        &[],
        "Locks of this process' own guards that ran out or were taken.",
    ),
    metric(
        "tidegate_lock_stale_total",
        Kind::Counter,
        Unit::Count,
        &[],
        "Fences that the data refused: a newer holder was there.",
    ),
    metric("tidegate_lock_timeouts_total", Kind::Counter, Unit::Count, &[], "Waits for a lock that ended without it."),
    metric(
        "tidegate_watch_findings_open",
        Kind::Gauge,
        Unit::Count,
        &["rule"],
        "Findings of the watch over Redis that are open, by rule; 0 while none is.",
    ),
    metric(
        "tidegate_watch_samples_total",
        Kind::Counter,
        Unit::Count,
        &["outcome"],
        "Looks of the watch at a server: `answer`, `silence`.",
    ),
    metric(
        "tidegate_watch_blind_total",
        Kind::Counter,
        Unit::Count,
        &[],
        "Times that the watch saw nothing for five seconds and more beyond its interval, since its process did not get its turn.",
    ),
    metric(
        "tidegate_watch_alerts_total",
        Kind::Counter,
        Unit::Count,
        &["sink", "outcome"],
        "Alerts of the watch, by sink: `delivered`; `failed`, attempts that are made again; `refused`, `expired` and `overflow`, which are \
         dropped undelivered.",
    ),
    metric(
        "tidegate_watch_alerts_waiting",
        Kind::Gauge,
        Unit::Count,
        &["sink"],
        "Alerts that wait for a sink to take them; at most 4,096.",
    ),
    metric("tidegate_watch_used_bytes", Kind::Gauge, Unit::Bytes, &["server"], "Memory that a watched server uses."),
    metric(
        "tidegate_watch_rss_bytes",
        Kind::Gauge,
        Unit::Bytes,
        &["server"],
        "Memory of a watched server that is resident.",
    ),
    metric(
        "tidegate_watch_limit_bytes",
        Kind::Gauge,
        Unit::Bytes,
        &["server"],
        "What bounds a watched server's memory: `maxmemory`, its control group, or the machine.",
    ),
    metric(
        "tidegate_watch_pressure",
        Kind::Gauge,
        Unit::Count,
        &["server"],
        "The share of that bound which is used, as eviction counts it: 0 to 1.",
    ),
    metric(
        "tidegate_watch_evicted_per_second",
        Kind::Gauge,
        Unit::Count,
        &["server"],
        "Keys that a watched server evicts a second.",
    ),
    metric(
        "tidegate_origin_calls_total",
        Kind::Counter,
        Unit::Count,
        &["namespace", "outcome"],
        "Calls to the origin of a namespace of `/v1/cache`: `ok`, `absent`, `timeout`, `status`, `too-large`, `redirect`, `closed`, \
         `unreachable`, `lost` or `malformed`.",
    ),
    metric(
        "tidegate_origin_bytes_total",
        Kind::Counter,
        Unit::Bytes,
        &["namespace"],
        "Bytes of bodies that origins sent.",
    ),
];

/// Values of labels that are known before anything happens.
const KNOWN_LABELS: [(&str, &str); 1] = [("tidegate_drift_total", "I9")];

/// A counter that is there from the start shows its first step: `increase()` does not see a series begin at one.
fn begin_at_zero(metric: &'static Metric) {
    match metric.labels {
        [] => metrics::counter!(metric.name).absolute(0),
        [label] => {
            for (_, value) in KNOWN_LABELS.iter().filter(|(name, _)| *name == metric.name) {
                metrics::counter!(metric.name, *label => *value).absolute(0);
            }
        }
        _ => {}
    }
}

/// Tells the recorder what the metrics mean, and begins those that count.
pub(crate) fn describe() {
    for metric in CATALOGUE {
        match metric.kind {
            Kind::Counter => {
                metrics::describe_counter!(metric.name, metric.unit, metric.help);
                begin_at_zero(metric);
            }
            Kind::Gauge => metrics::describe_gauge!(metric.name, metric.unit, metric.help),
            Kind::Histogram(_) => metrics::describe_histogram!(metric.name, metric.unit, metric.help),
        }
    }
}

/// `docs/reference/metrics.md`.
#[must_use]
pub fn metrics_markdown() -> String {
    let mut text = String::from(
        "# Metrics\n\n`GET /metrics` answers in Prometheus' text format (a token of the role `read` is needed when tokens are \
         configured). This page is generated from the catalogue in `crates/tidegate-server/src/metrics/catalogue.rs`.\n\n\
         | name | kind | unit | labels | what it tells |\n| --- | --- | --- | --- | --- |\n",
    );
    for metric in CATALOGUE {
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram(_) => "histogram",
        };
        let labels = if metric.labels.is_empty() { "-".to_owned() } else { metric.labels.join(", ") };
        // Writing to a string cannot fail.
        let _ =
            writeln!(text, "| `{}` | {kind} | {} | {labels} | {} |", metric.name, metric.unit.as_str(), metric.help);
    }
    text
}
