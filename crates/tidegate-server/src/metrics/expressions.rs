//! Holds every query of the alert rules and of the dashboard against the catalogue: what it names exists, with the labels it uses.

use std::collections::BTreeSet;

use super::catalogue::{CATALOGUE, Kind, Metric};
use super::{dashboard, rules};

/// What a query names: its metrics, each with the labels that it is asked by; and the labels that sums keep.
struct Named<'a> {
    metrics: Vec<(&'a str, BTreeSet<&'a str>)>,
    kept: BTreeSet<&'a str>,
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn named(expr: &str) -> Named<'_> {
    let mut metrics = Vec::new();
    for (at, _) in expr.match_indices("tidegate_") {
        if expr[..at].ends_with(is_word) {
            continue;
        }
        let length = expr[at..].find(|c| !is_word(c)).unwrap_or(expr.len() - at);
        let rest = &expr[at + length..];
        let inner = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')).map_or("", |(inner, _)| inner);
        let labels = inner.split(',').filter_map(|pair| pair.split(['=', '!']).next()).map(str::trim);
        metrics.push((&expr[at..at + length], labels.filter(|label| !label.is_empty()).collect()));
    }
    let kept = expr.match_indices("by (").filter_map(|(at, by)| expr[at + by.len()..].split_once(')'));
    Named { metrics, kept: kept.flat_map(|(labels, _)| labels.split(',').map(str::trim)).collect() }
}

/// The metric that a series belongs to: a histogram has three kinds of them.
fn metric_of(series: &str) -> Option<&'static Metric> {
    let is_histogram = |metric: &&Metric| matches!(metric.kind, Kind::Histogram(_));
    let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| series.strip_suffix(end));
    let find = |name: &str| CATALOGUE.iter().find(|metric| metric.name == name);
    match find(series) {
        Some(metric) => Some(metric).filter(|metric| !is_histogram(metric)),
        None => find(base?).filter(is_histogram),
    }
}

fn fault(expr: &str) -> Option<String> {
    let named = named(expr);
    let mut labels: BTreeSet<&str> = BTreeSet::new();
    for (series, asked) in &named.metrics {
        let Some(metric) = metric_of(series) else { return Some(format!("{series} is no series of the catalogue")) };
        if let Some(label) = asked.iter().find(|label| !metric.labels.contains(label)) {
            return Some(format!("{series} has no label {label}"));
        }
        // A counter goes up alone: what is of interest is how fast. `unless` asks whether it is there.
        let is_rated = ["rate(", "increase("].iter().any(|of| expr.contains(&format!("{of}{series}")));
        if matches!(metric.kind, Kind::Counter) && !is_rated {
            return Some(format!("{series} counts, and nobody asks how fast"));
        }
        labels.extend(metric.labels);
        labels.extend(series.ends_with("_bucket").then_some("le"));
    }
    if named.metrics.is_empty() {
        return Some("it names no metric of ours".to_owned());
    }
    let unknown = named.kept.iter().find(|label| !labels.contains(*label))?;
    Some(format!("no metric of it has the label {unknown}"))
}

#[test]
fn every_query_asks_for_what_there_is() {
    let alerts = rules::GROUPS.iter().flat_map(|group| group.alerts).map(|alert| alert.expr);
    let panels = dashboard::ROWS.iter().flat_map(|row| row.panels).flat_map(|panel| panel.lines).map(|(expr, _)| *expr);
    let all: Vec<&str> = alerts.chain(panels).collect();
    assert!(all.len() > 60, "{}", all.len());
    for expr in &all {
        assert_eq!(fault(expr), None, "{expr}");
        assert_eq!(expr.matches('(').count(), expr.matches(')').count(), "{expr}");
    }
    // Every part of the product is looked at.
    for part in ["http", "commit", "deadline", "sql", "cache", "queue", "lock", "feed", "watch", "store"] {
        assert!(all.iter().any(|expr| expr.contains(&format!("tidegate_{part}_"))), "{part}");
    }
}

#[test]
fn queries_that_ask_for_what_is_not_are_seen() {
    for (expr, want) in [
        ("sum(rate(tidegate_orders_total[5m]))", "tidegate_orders_total is no series"),
        ("rate(tidegate_commit_seconds[5m])", "tidegate_commit_seconds is no series"),
        ("tidegate_degraded_count", "tidegate_degraded_count is no series"),
        ("max by (why) (tidegate_degraded)", "no metric of it has the label why"),
        ("tidegate_degraded{why=\"x\"} > 0", "tidegate_degraded has no label why"),
        ("tidegate_queue_dead_total > 0", "counts, and nobody asks how fast"),
        ("sum by (le) (rate(tidegate_commit_batch_count[5m]))", "no metric of it has the label le"),
        ("up == 0", "names no metric"),
    ] {
        let fault = fault(expr).unwrap_or_default();
        assert!(fault.contains(want), "{expr}: {fault}");
    }
}

#[test]
fn alerts_have_names_and_pages_of_their_own() {
    let (yaml, page) = (rules::prometheus_alerts_yaml(), rules::alert_rules_markdown());
    let names: Vec<&str> = yaml.lines().filter_map(|line| line.trim_start().strip_prefix("- alert: ")).collect();
    let unique: BTreeSet<&str> = names.iter().copied().collect();
    assert!(names.len() > 20 && unique.len() == names.len(), "{names:?}");
    for name in names {
        assert!(page.contains(&format!("\n## {name}\n")), "{name}");
        assert!(yaml.contains(&format!("alert-rules.md#{}'", name.to_lowercase())), "{name}");
    }
}
