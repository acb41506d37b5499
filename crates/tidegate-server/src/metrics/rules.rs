//! What is worth waking somebody for: alert rules for Prometheus and the page that says what to do, from one table.

use std::fmt::Write;

/// An alert rule.
pub(super) struct Alert {
    /// Its name in Prometheus, without the product's.
    name: &'static str,
    severity: Severity,
    /// What must be so..
    pub(super) expr: &'static str,
    /// ..and for how long.
    after: &'static str,
    summary: &'static str,
    /// What it means. `{{ $labels.x }}` and `{{ $value }}` are Prometheus' own.
    meaning: &'static str,
    /// What to do.
    remedy: &'static str,
}

#[derive(Clone, Copy)]
enum Severity {
    Critical,
    Warning,
}

impl Severity {
    fn name(self) -> &'static str {
        match self {
            Severity::Critical => "critical",
            Severity::Warning => "warning",
        }
    }
}

/// A part of the product and its rules.
pub(super) struct Group {
    name: &'static str,
    pub(super) alerts: &'static [Alert],
}

/// A counter with labels begins at its first step, which `increase()` does not see: a new series counts as grown.
macro_rules! grew {
    ($by:literal, $counter:literal, $window:literal) => {
        concat!(
            "sum by (",
            $by,
            ") (increase(",
            $counter,
            "[",
            $window,
            "])) > 0 or sum by (",
            $by,
            ") (",
            $counter,
            " unless ",
            $counter,
            " offset ",
            $window,
            ") > 0"
        )
    };
}

macro_rules! alert {
    ($severity:ident $name:literal $after:literal $expr:expr, $summary:literal, $meaning:literal, $remedy:literal) => {
        Alert {
            name: $name,
            severity: Severity::$severity,
            expr: $expr,
            after: $after,
            summary: $summary,
            meaning: $meaning,
            remedy: $remedy,
        }
    };
}

/// All of them.
#[rustfmt::skip]
pub(super) const GROUPS: &[Group] = &[
    Group { name: "server", alerts: &[
        alert!(Critical "Absent" "2m" "absent(tidegate_http_connections)",
            "No Tidegate is scraped",
            "No process that Prometheus knows exports Tidegate's metrics: none runs, or none can be scraped.",
            "Ask a node's `/healthz`. If it answers, look at Prometheus' targets: `/metrics` needs a token of the role `read` where tokens are configured. If it does not, its log says why."),
        alert!(Warning "Degraded" "2m" "max by (reason) (tidegate_degraded) > 0",
            "Tidegate is degraded: {{ $labels.reason }}",
            "Orders are taken and paid, but something that stands beside the ledger does not work. `/readyz` lists the reasons.",
            "Look up the reason in docs/operations/servers.md, and the node's log at the time it began."),
        alert!(Critical "Errors" "5m" "sum(rate(tidegate_http_requests_total{status=~\"5..\"}[5m])) / sum(rate(tidegate_http_requests_total[5m])) > 0.02",
            "{{ $value | humanizePercentage }} of requests fail",
            "More than one in fifty requests was answered with 5xx over five minutes.",
            "`sum by (route, status) (rate(tidegate_http_requests_total{status=~\"5..\"}[5m]))` says which. 503 `ledger-unavailable`: the database; `overloaded`: more than it takes; 500: the log has the fault."),
        alert!(Warning "Slow" "10m" "histogram_quantile(0.99, sum by (le) (rate(tidegate_http_request_seconds_bucket{route=\"/v1/orders\",method=\"POST\"}[5m]))) > 0.5",
            "Placing an order takes {{ $value | humanizeDuration }} (p99)",
            "One in a hundred orders takes more than half a second to place.",
            "Compare with the commit's p99: if that is high, it is the disk or the database; if not, requests wait in the queue or for a thread."),
        alert!(Warning "Panics" "0m" "increase(tidegate_http_panics_total[10m]) > 0",
            "A request met a bug",
            "A request met a fault of the server's own and was answered with 500 `internal`. The server goes on.",
            "Report it with the log of that time. Repeating the request is safe."),
        alert!(Critical "Overloaded" "5m" "sum(rate(tidegate_overloaded_total[5m])) > 1",
            "Orders are refused as overloaded",
            "The queue in front of the ledger is full: commands come faster than they are committed, and are answered 503.",
            "Look at the commit's p99 and at the batch sizes. A slow disk or database is the usual cause; a larger `queue_size` only makes them wait longer."),
        alert!(Warning "CommitSlow" "10m" "histogram_quantile(0.99, sum by (le) (rate(tidegate_commit_seconds_bucket[5m]))) > 0.25",
            "A commit takes {{ $value | humanizeDuration }} (p99)",
            "Commits of batches are slow to become durable.",
            "SQLite: the disk's sync (`iostat -x`). A database server: its disk, its locks, a synchronous replica that lags."),
    ] },
    Group { name: "orders", alerts: &[
        alert!(Critical "DeadlinesLate" "2m" "max(tidegate_deadline_oldest_overdue_seconds) > 5",
            "Orders are not ended on time: {{ $value | humanizeDuration }} late",
            "Unpaid orders hold stock past their time.",
            "Is there a process with workers (`serve` without `--no-workers`, or `worker`)? Then its log: a ledger or an index that does not answer is named there. `tidegate reconcile` fills the index again."),
        alert!(Warning "OrdersParked" "0m" "sum(increase(tidegate_orders_parked_total[15m])) > 0",
            "Orders were put aside",
            "The deadline of an order could not be acted on after twenty tries; it holds its stock until somebody looks.",
            "`GET /v1/parked` says which and why; mend the cause, then `POST /v1/parked/{order_id}/retry`."),
        alert!(Warning "Drift" "0m" "sum by (invariant) (increase(tidegate_drift_total[15m])) > 0",
            "Copies differed from the ledger ({{ $labels.invariant }})",
            "Gate or deadline index differed from the ledger and were repaired. Nothing was oversold: the ledger decides.",
            "Once after a restart of Redis is usual. If it goes on: do all nodes name the same store and `[redis] name`?"),
        alert!(Warning "PaymentsUnmatched" "0m" "sum(increase(tidegate_payments_unmatched_stale_total[1h])) > 0",
            "Money came for no order",
            "A payment has matched no order for a day.",
            "`GET /v1/payments?outcome=unmatched`: place its order, or give it back with `POST /v1/payments/{payment_id}/refund`."),
        alert!(Critical "StoreDown" "1m" "min by (store) (tidegate_store_up) == 0",
            "Redis ({{ $labels.store }}) does not answer",
            "Orders go on from the ledger; queues and locks on Redis do not, caches load more, nodes hear of each other late.",
            "Reach it with `redis-cli PING` from the node. `GET /v1/redis/findings` says what the watch saw last."),
        alert!(Warning "DatabaseWait" "10m" "histogram_quantile(0.99, sum by (le, pool) (rate(tidegate_sql_pool_wait_seconds_bucket[5m]))) > 0.25",
            "Calls wait {{ $value | humanizeDuration }} for a connection ({{ $labels.pool }})",
            "Connections to the database are all taken.",
            "Look for slow statements or locks in the database before raising `sql.connections` or `sql.writers`."),
    ] },
    Group { name: "cache", alerts: &[
        alert!(Warning "CacheLoadsFail" "5m" "sum by (namespace) (rate(tidegate_cache_loads_total{outcome=\"error\"}[5m])) / sum by (namespace) (rate(tidegate_cache_loads_total[5m])) > 0.05",
            "{{ $value | humanizePercentage }} of the loads of {{ $labels.namespace }} fail",
            "The source of a cache fails. Old values are served while they last, then errors.",
            "Look at the source: the ledger for `products`, the origin of a namespace (`tidegate_origin_calls_total` says how it fails)."),
        alert!(Warning "CacheOverloaded" "5m" "sum by (namespace) (rate(tidegate_cache_overloaded_total[5m])) > 1",
            "Loads of {{ $labels.namespace }} are refused",
            "More loads are wanted than the budget admits; readers get old values or 503.",
            "After a flush this ends by itself. If it stays: is the hit rate low (values too short-lived, too little memory), or the source slow? Raise `load_budget` only if the source can take it."),
    ] },
    Group { name: "queues", alerts: &[
        alert!(Warning "TasksLate" "10m" "histogram_quantile(0.99, sum by (le) (rate(tidegate_queue_lateness_seconds_bucket[5m]))) > 5",
            "Tasks are handed out {{ $value | humanizeDuration }} late (p99)",
            "Tasks wait for a worker after they are due.",
            "`tidegate queue stats` says which queue lags: it needs more workers, or its workers hang."),
        alert!(Warning "TasksDead" "0m" grew!("queue", "tidegate_queue_dead_total", "15m"),
            "Tasks of {{ $labels.queue }} used up their attempts",
            "A task failed as often as `queues.max_attempts` allows and waits for a person.",
            "`tidegate queue dead QUEUE` shows the last error; after the cause is mended, `tidegate queue requeue QUEUE`."),
    ] },
    Group { name: "locks", alerts: &[
        alert!(Warning "LocksLost" "0m" "sum(increase(tidegate_lock_lost_total[15m])) > 0",
            "Locks ran out while they were held",
            "A process of ours lost a lock that it still held: it was paused, or the store did not answer for longer than the lock's time.",
            "What it protects is safe only where its fence is checked. Look for long pauses of the process and for outages of the store; give longer times."),
    ] },
    Group { name: "feed", alerts: &[
        alert!(Warning "FeedFromDatabase" "5m" "sum(rate(tidegate_feed_store_failures_total[5m])) > 0.1",
            "The feed's store does not answer",
            "Pages are made of the database alone: right, but slower and dearer.",
            "As for the store; watch the database's load meanwhile."),
    ] },
    Group { name: "redis", alerts: &[
        alert!(Critical "RedisCritical" "0m" "max by (rule) (tidegate_watch_findings_open{rule=~\"full-noeviction|eviction-of-state|blocked-server|save-failing|aof-failing|data-lost\"}) > 0",
            "Redis: {{ $labels.rule }}",
            "The watch found what loses writes or data, now.",
            "`GET /v1/redis/findings` (or `tidegate watch --once`) has server, cause, evidence, the next command and its risk. docs/operations/watch.md describes the rule."),
        alert!(Warning "RedisFinding" "5m" "max by (rule) (tidegate_watch_findings_open) > 0",
            "Redis: {{ $labels.rule }}",
            "A finding of the watch has been open for five minutes.",
            "`GET /v1/redis/findings?state=open` has server, cause, evidence, the next command and its risk; docs/operations/watch.md describes the rule, and how to set or silence it."),
        alert!(Warning "RedisSilent" "5m" "sum(rate(tidegate_watch_samples_total{outcome=\"silence\"}[5m])) / sum(rate(tidegate_watch_samples_total[5m])) > 0.5",
            "Most looks at Redis get no answer",
            "More than half of the looks of the watch are not answered: servers are gone or unreachable from this node, or do not let the watch in.",
            "`tidegate watch --redis URL --once` from the node names the reason."),
        alert!(Warning "WatchBlind" "0m" "increase(tidegate_watch_blind_total[15m]) > 0 or (tidegate_watch_blind_total unless tidegate_watch_blind_total offset 15m) > 0",
            "A watch was blind",
            "The watch saw nothing for five seconds and more, since its process did not get its turn: what came and went meanwhile it did not tell.",
            "Its log says when and for how long (`the watch was blind`). See what kept the machine: other processes, a limit on its CPU, a virtual machine that was stopped."),
        alert!(Critical "AlertsDropped" "0m" grew!("sink", "tidegate_watch_alerts_total{outcome=~\"refused|expired|overflow\"}", "15m"),
            "Alerts to {{ $labels.sink }} are dropped",
            "Messages of the watch did not reach people by this sink, and will not.",
            "`tidegate watch --test-alert` says what the sink answers; the log has what was dropped; `GET /v1/redis/findings` has what is open."),
        alert!(Warning "AlertsWaiting" "15m" "max by (sink) (tidegate_watch_alerts_waiting) > 0",
            "Alerts wait for {{ $labels.sink }}",
            "A sink has taken nothing for a quarter of an hour; what waits is tried for a day.",
            "`tidegate watch --test-alert` says what the sink answers, the log what it answered before; docs/operations/alerts.md how each kind is set up."),
    ] },
];

/// The page of the rules, from the root of the repository.
const PAGE: &str = "docs/operations/alert-rules.md";

/// `docs/operations/prometheus-alerts.yml`.
#[must_use]
pub fn prometheus_alerts_yaml() -> String {
    let mut text = String::from(
        "# Alert rules of Tidegate for Prometheus (rule_files). Generated from crates/tidegate-server/src/metrics/rules.rs: do not edit it here.\n\
         groups:\n",
    );
    for group in GROUPS {
        // Writing to a string cannot fail.
        let _ = write!(text, "  - name: tidegate-{}\n    rules:\n", group.name);
        for alert in group.alerts {
            let anchor = format!("{PAGE}#tidegate{}", alert.name.to_lowercase());
            let _ = write!(
                text,
                "      - alert: Tidegate{}\n        expr: {}\n        for: {}\n        labels:\n          severity: {}\n        annotations:\n          \
                 summary: {}\n          description: {}\n          runbook_url: {}\n",
                alert.name,
                quoted(alert.expr),
                alert.after,
                alert.severity.name(),
                quoted(alert.summary),
                quoted(alert.meaning),
                quoted(&anchor),
            );
        }
    }
    text
}

/// A YAML scalar in single quotes, in which nothing but these has a meaning.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// `docs/operations/alert-rules.md`.
#[must_use]
pub fn alert_rules_markdown() -> String {
    let mut text = String::from(
        "# Alert rules\n\n[prometheus-alerts.yml](prometheus-alerts.yml) has these rules for Prometheus, [grafana-dashboard.json](grafana-dashboard.json) the same \
         figures as a dashboard for Grafana (import it and choose the data source). Both and this page are generated from \
         `crates/tidegate-server/src/metrics/`, and tested against the [catalogue of metrics](../reference/metrics.md). `runbook_url` is a path in this \
         repository: put the address where you keep it in front, or point it at a runbook of your own.\n\n\
         ```yaml\nrule_files:\n  - prometheus-alerts.yml\nscrape_configs:\n  - job_name: tidegate\n    authorization: { credentials_file: /run/secrets/tidegate-read }\n    \
         static_configs:\n      - targets: [\"10.0.0.5:8080\", \"10.0.0.6:8080\"]\n```\n\n\
         Thresholds are starting points: raise what a shop of yours meets on a good day.\n",
    );
    for alert in GROUPS.iter().flat_map(|group| group.alerts) {
        let plain = |text: &str| {
            text.replace("{{ $value | humanizePercentage }}", "N %").replace("{{ $value | humanizeDuration }}", "N s")
        };
        let summary = plain(alert.summary);
        let after = if alert.after == "0m" { String::new() } else { format!(" for {}", alert.after) };
        let _ = write!(
            text,
            "\n## Tidegate{}\n\n{}, {}. When\n\n```promql\n{}\n```\n\nis so{after}. {}\n\n{}\n",
            alert.name,
            labels_out(&summary),
            alert.severity.name(),
            alert.expr,
            alert.meaning,
            alert.remedy
        );
    }
    text
}

/// What Prometheus fills in, as a reader of the page sees it: `{{ $labels.rule }}` becomes `RULE`.
fn labels_out(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{ $labels.") {
        let (name, behind) = after.split_once(" }}").unwrap_or((after, ""));
        out.push_str(before);
        out.push_str(&name.to_uppercase());
        rest = behind;
    }
    out.push_str(rest);
    out
}
