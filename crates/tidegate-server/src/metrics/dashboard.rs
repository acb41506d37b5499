//! A dashboard for Grafana: what whoever was paged wants to see, from one table.

use serde_json::{Value, json};

/// A panel: lines over time.
pub(super) struct Panel {
    title: &'static str,
    /// Grafana's name of the unit.
    unit: &'static str,
    about: &'static str,
    /// Each with its legend.
    pub(super) lines: &'static [(&'static str, &'static str)],
}

/// A row of panels under a head.
pub(super) struct Row {
    title: &'static str,
    pub(super) panels: &'static [Panel],
}

/// The rate of a counter by labels.
macro_rules! rate {
    ($counter:literal) => {
        concat!("sum(rate(", $counter, "[$__rate_interval]))")
    };
    ($counter:literal by $by:literal) => {
        concat!("sum by (", $by, ") (rate(", $counter, "[$__rate_interval]))")
    };
}

/// A quantile of a histogram.
macro_rules! quantile {
    ($q:literal, $histogram:literal) => {
        concat!("histogram_quantile(", $q, ", sum by (le) (rate(", $histogram, "[$__rate_interval])))")
    };
    ($q:literal, $histogram:literal by $by:literal) => {
        concat!("histogram_quantile(", $q, ", sum by (le, ", $by, ") (rate(", $histogram, "[$__rate_interval])))")
    };
}

const fn panel(
    title: &'static str,
    unit: &'static str,
    about: &'static str,
    lines: &'static [(&'static str, &'static str)],
) -> Panel {
    Panel { title, unit, about, lines }
}

/// All of them.
#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    Row { title: "At a glance", panels: &[
        panel("Requests", "reqps", "By what became of them.", &[(rate!("tidegate_http_requests_total" by "status"), "{{status}}")]),
        panel("Degraded, by reason", "short", "0 while all is well; /readyz says more.", &[("max by (reason) (tidegate_degraded)", "{{reason}}")]),
        panel("Open findings of the watch over Redis", "short", "GET /v1/redis/findings has cause and next command.", &[("max by (rule) (tidegate_watch_findings_open) > 0", "{{rule}}")]),
    ] },
    Row { title: "HTTP", panels: &[
        panel("Latency of placing an order", "s", "From the request's head to the answer's.", &[
            (quantile!("0.5", "tidegate_http_request_seconds_bucket{route=\"/v1/orders\",method=\"POST\"}"), "p50"),
            (quantile!("0.99", "tidegate_http_request_seconds_bucket{route=\"/v1/orders\",method=\"POST\"}"), "p99"),
        ]),
        panel("Latency by route, p99", "s", "Waiting calls (claims, locks) take as long as they were asked to.", &[(quantile!("0.99", "tidegate_http_request_seconds_bucket" by "route"), "{{route}}")]),
        panel("Connections", "short", "Open, with a request, with a stream of events.", &[
            ("sum(tidegate_http_connections)", "connections"),
            ("sum(tidegate_http_requests_in_flight)", "requests in flight"),
            ("sum(tidegate_http_event_streams)", "event streams"),
        ]),
    ] },
    Row { title: "Orders and the ledger", panels: &[
        panel("How late unpaid orders were cancelled", "s", "After their deadline; and how overdue the oldest is now.", &[
            (quantile!("0.5", "tidegate_deadline_lateness_seconds_bucket"), "p50"),
            (quantile!("0.99", "tidegate_deadline_lateness_seconds_bucket"), "p99"),
            ("max(tidegate_deadline_oldest_overdue_seconds)", "oldest overdue now"),
        ]),
        panel("Commit", "s", "A batch, until it is durable.", &[
            (quantile!("0.5", "tidegate_commit_seconds_bucket"), "p50"),
            (quantile!("0.99", "tidegate_commit_seconds_bucket"), "p99"),
        ]),
        panel("Commits, and commands in them", "ops", "Commands that arrive together share a commit.", &[
            (rate!("tidegate_commit_batch_count"), "commits"),
            (rate!("tidegate_commit_batch_sum"), "commands"),
        ]),
        panel("Refused without a write", "ops", "For lack of stock, by the gate; and because too much waited.", &[
            (rate!("tidegate_gate_refusals_total"), "not enough stock"),
            (rate!("tidegate_overloaded_total"), "overloaded"),
        ]),
        panel("Deadlines that needed help", "ops", "All of them small: the index found nothing of these, or nobody took them.", &[
            (rate!("tidegate_sweep_found_total"), "found by the sweep"),
            (rate!("tidegate_sweep_expired_total"), "ended by the sweep"),
            (rate!("tidegate_deadline_failures_total"), "failed tries"),
            (rate!("tidegate_orders_parked_total"), "parked"),
            (rate!("tidegate_drift_total" by "invariant"), "drift {{invariant}}"),
        ]),
        panel("Database", "s", "How long calls wait for a connection, p99.", &[(quantile!("0.99", "tidegate_sql_pool_wait_seconds_bucket" by "pool"), "{{pool}}")]),
    ] },
    Row { title: "Cache", panels: &[
        panel("Hit rate", "percentunit", "Reads that a level of the cache answered.", &[
            ("sum by (namespace) (rate(tidegate_cache_hits_total[$__rate_interval])) / (sum by (namespace) (rate(tidegate_cache_hits_total[$__rate_interval])) + sum by (namespace) (rate(tidegate_cache_misses_total[$__rate_interval])))", "{{namespace}}"),
        ]),
        panel("Loads", "ops", "From the source, by what came of them; and those that the budget refused.", &[
            (rate!("tidegate_cache_loads_total" by "namespace, outcome"), "{{namespace}} {{outcome}}"),
            (rate!("tidegate_cache_overloaded_total" by "namespace"), "{{namespace}} refused"),
        ]),
        panel("One load", "s", "Retries included.", &[
            (quantile!("0.5", "tidegate_cache_load_seconds_bucket" by "namespace"), "{{namespace}} p50"),
            (quantile!("0.99", "tidegate_cache_load_seconds_bucket" by "namespace"), "{{namespace}} p99"),
        ]),
        panel("Not from a fresh value", "ops", "Old values, remembered absences, ids refused by the filter.", &[
            (rate!("tidegate_cache_stale_total" by "namespace"), "{{namespace}} stale"),
            (rate!("tidegate_cache_negatives_total" by "namespace"), "{{namespace}} negative"),
            (rate!("tidegate_cache_filter_refusals_total" by "namespace"), "{{namespace}} filter"),
        ]),
    ] },
    Row { title: "Queues and locks", panels: &[
        panel("Tasks in and out", "ops", "Scheduled above acknowledged for long: a backlog grows (tidegate queue stats).", &[
            (rate!("tidegate_queue_scheduled_total"), "scheduled"),
            (rate!("tidegate_queue_claimed_total"), "claimed"),
            (rate!("tidegate_queue_acked_total"), "acknowledged"),
        ]),
        panel("How late tasks are handed out", "s", "After they could have been.", &[
            (quantile!("0.5", "tidegate_queue_lateness_seconds_bucket"), "p50"),
            (quantile!("0.99", "tidegate_queue_lateness_seconds_bucket"), "p99"),
        ]),
        panel("Lost and dead", "ops", "Answers that came too late; tasks out of attempts.", &[
            (rate!("tidegate_queue_lost_total" by "queue"), "{{queue}} lost"),
            (rate!("tidegate_queue_dead_total" by "queue"), "{{queue}} dead"),
        ]),
        panel("Locks", "ops", "Lost ones ran out while they were held.", &[
            (rate!("tidegate_lock_granted_total"), "granted"),
            (rate!("tidegate_lock_timeouts_total"), "waited in vain"),
            (rate!("tidegate_lock_lost_total"), "lost"),
        ]),
    ] },
    Row { title: "Feed", panels: &[
        panel("Pages", "ops", "And those given from memory, since nothing had changed.", &[
            (rate!("tidegate_feed_pages_total"), "pages"),
            (rate!("tidegate_feed_memory_pages_total"), "from memory"),
        ]),
        panel("What pages cost", "ops", "Reads of the store and of the database.", &[
            (rate!("tidegate_feed_author_sets_read_total"), "author sets"),
            (rate!("tidegate_feed_sql_queries_total"), "database"),
            (rate!("tidegate_feed_store_failures_total"), "store failures"),
        ]),
    ] },
    Row { title: "Redis and Valkey", panels: &[
        panel("Pressure", "percentunit", "The share of its limit that a server uses, as eviction counts it.", &[("max by (server) (tidegate_watch_pressure)", "{{server}}")]),
        panel("Memory", "bytes", "Used, resident, limit.", &[
            ("max by (server) (tidegate_watch_used_bytes)", "{{server}} used"),
            ("max by (server) (tidegate_watch_rss_bytes)", "{{server}} resident"),
            ("max by (server) (tidegate_watch_limit_bytes)", "{{server}} limit"),
        ]),
        panel("Evicted keys", "ops", "A second.", &[("max by (server) (tidegate_watch_evicted_per_second)", "{{server}}")]),
        panel("Store", "short", "1 while it answers.", &[("min by (store) (tidegate_store_up)", "{{store}}")]),
        panel("Looks of the watch", "ops", "Answered and not.", &[(rate!("tidegate_watch_samples_total" by "outcome"), "{{outcome}}")]),
        panel("Alerts of the watch", "short", "That wait for a sink; and attempts, by what came of them.", &[
            ("max by (sink) (tidegate_watch_alerts_waiting)", "{{sink}} waiting"),
            ("sum by (sink, outcome) (increase(tidegate_watch_alerts_total[$__rate_interval]))", "{{sink}} {{outcome}}"),
        ]),
    ] },
];

/// Grafana's width, and the sizes of a panel and of a head in it.
const WIDTH: usize = 24;
const PANEL: (usize, usize) = (8, 8);
/// The form of the document: Grafana 10.
const SCHEMA: u64 = 39;

/// `docs/operations/grafana-dashboard.json`.
#[must_use]
pub fn grafana_dashboard_json() -> String {
    let mut panels = Vec::new();
    let mut top = 0;
    for row in ROWS {
        let place = json!({ "x": 0, "y": top, "w": WIDTH, "h": 1 });
        panels.push(json!({ "id": panels.len() + 1, "type": "row", "title": row.title, "collapsed": false, "gridPos": place, "panels": [] }));
        top += 1;
        for (at, panel) in row.panels.iter().enumerate() {
            let (across, down) = (at % (WIDTH / PANEL.0), at / (WIDTH / PANEL.0));
            let place = json!({ "x": across * PANEL.0, "y": top + down * PANEL.1, "w": PANEL.0, "h": PANEL.1 });
            panels.push(drawn(panel, panels.len() + 1, place));
        }
        top += row.panels.len().div_ceil(WIDTH / PANEL.0) * PANEL.1;
    }
    let source = json!({
        "name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus", "current": {}, "hide": 0, "refresh": 1, "options": [],
    });
    let board = json!({
        "title": "Tidegate",
        "uid": "tidegate",
        "tags": ["tidegate"],
        "schemaVersion": SCHEMA,
        "editable": true,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": { "from": "now-3h", "to": "now" },
        "timezone": "browser",
        "templating": { "list": [source] },
        "annotations": { "list": [] },
        "panels": panels,
    });
    let mut text = serde_json::to_string_pretty(&board).unwrap_or_default();
    text.push('\n');
    text
}

fn drawn(panel: &Panel, id: usize, place: Value) -> Value {
    let source = json!({ "type": "prometheus", "uid": "${source}" });
    let target = |(at, (expr, legend)): (usize, &(&str, &str))| {
        let name = char::from(b'A' + u8::try_from(at).unwrap_or(25)).to_string();
        json!({ "refId": name, "expr": expr, "legendFormat": legend, "range": true, "datasource": source })
    };
    let targets: Vec<Value> = panel.lines.iter().enumerate().map(target).collect();
    json!({
        "id": id,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": source,
        "gridPos": place,
        "fieldConfig": { "defaults": { "unit": panel.unit, "min": 0, "custom": { "fillOpacity": 8, "showPoints": "never" } }, "overrides": [] },
        "options": { "legend": { "displayMode": "list", "placement": "bottom" }, "tooltip": { "mode": "multi", "sort": "desc" } },
        "targets": targets,
    })
}
