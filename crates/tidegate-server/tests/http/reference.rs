//! The reference pages say what the code says. `TIDEGATE_WRITE_DOCS=1 cargo test -p tidegate-server` writes them anew.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn compare(name: &str, generated: &str) {
    let path = root().join("docs").join(name);
    if std::env::var_os("TIDEGATE_WRITE_DOCS").is_some() {
        std::fs::write(&path, generated).expect("the page is written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == generated,
        "docs/{name} is not what the code says; write it anew with TIDEGATE_WRITE_DOCS=1 cargo test -p tidegate-server"
    );
}

#[test]
fn pages_are_up_to_date() {
    compare("reference/openapi.json", &tidegate_server::openapi_json());
    compare("reference/problems.md", &tidegate_server::problems_markdown());
    compare("reference/metrics.md", &tidegate_server::metrics_markdown());
    compare("operations/prometheus-alerts.yml", &tidegate_server::prometheus_alerts_yaml());
    compare("operations/alert-rules.md", &tidegate_server::alert_rules_markdown());
    compare("operations/grafana-dashboard.json", &tidegate_server::grafana_dashboard_json());
}

fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => members.iter().for_each(|(name, value)| match value {
            Value::String(target) if name == "$ref" => drop(found.insert(target.clone())),
            value => references(value, found),
        }),
        Value::Array(items) => items.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[test]
fn the_description_holds_together() {
    let document: Value = serde_json::from_str(&tidegate_server::openapi_json()).expect("JSON");
    assert!(document["openapi"].as_str().is_some_and(|v| v.starts_with("3.1")));
    let mut targets = BTreeSet::new();
    references(&document, &mut targets);
    for target in &targets {
        let pointer = target.strip_prefix('#').expect("a local reference");
        assert!(document.pointer(pointer).is_some(), "{target} leads nowhere");
    }
    for name in document["components"]["schemas"].as_object().expect("schemas").keys() {
        assert!(targets.contains(&format!("#/components/schemas/{name}")), "{name} is not used");
    }
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (verb, operation) in item.as_object().expect("operations") {
            let described = ["operationId", "summary", "description"]
                .iter()
                .all(|field| operation[field].as_str().is_some_and(|text| !text.is_empty()));
            assert!(described, "{verb} {path}");
            for parameter in path.split('/').filter_map(|s| s.strip_prefix('{')?.strip_suffix('}')) {
                let named = operation["parameters"]
                    .as_array()
                    .is_some_and(|all| all.iter().any(|p| p["name"] == parameter && p["in"] == "path"));
                assert!(named, "{verb} {path} {parameter}");
            }
        }
    }
}

/// Names of metrics in the sources of the crates that emit them.
fn emitted(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            emitted(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text = std::fs::read_to_string(&path).expect("a source");
            if path.ends_with("metrics/catalogue.rs") {
                continue;
            }
            // Where a table of names stands between the macro and the name.
            let named = text.match_indices("\"tidegate_").filter_map(|(at, _)| text[at + 1..].split('"').next());
            let metric = |name: &&str| ["_total", "_seconds"].iter().any(|end| name.ends_with(end));
            found.extend(named.filter(metric).map(str::to_owned));
            for (at, _) in text.match_indices("metrics::") {
                let call = &text[at + 9..];
                if let Some(rest) =
                    ["counter!(", "gauge!(", "histogram!("].iter().find_map(|name| call.strip_prefix(name))
                    && let Some(name) = rest.trim_start().strip_prefix('"').and_then(|rest| rest.split('"').next())
                {
                    found.insert(name.to_owned());
                }
            }
        }
    }
}

#[test]
fn every_metric_is_in_the_catalogue_and_the_other_way_round() {
    let mut found = BTreeSet::new();
    for name in ["tidegate", "tidegate-embedded", "tidegate-sql", "tidegate-redis", "tidegate-server"] {
        emitted(&root().join("crates").join(name).join("src"), &mut found);
    }
    let listed: BTreeSet<String> = tidegate_server::metrics_markdown()
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next().map(str::to_owned))
        .collect();
    assert_eq!(found, listed);
}

#[test]
fn every_event_is_told_of() {
    let page = std::fs::read_to_string(root().join("docs/reference/events.md")).expect("the page");
    for (_, name) in tidegate::core::EventKind::ALL {
        assert!(page.contains(&format!("| `{name}` |")), "{name}");
    }
}

/// Two shapes of one name would hide one another.
#[test]
fn findings_of_the_watch_and_differences_of_a_reconciliation_are_described_each() {
    let document: Value = serde_json::from_str(&tidegate_server::openapi_json()).expect("JSON");
    let items = |schema: &str, list: &str| {
        let list = &document["components"]["schemas"][schema]["properties"][list];
        let name = list["items"]["$ref"].as_str().expect("a reference").rsplit('/').next().expect("a name");
        let properties = document["components"]["schemas"][name]["properties"].as_object().expect("properties");
        properties.keys().cloned().collect::<Vec<_>>()
    };
    let of_watch = items("FindingPage", "items");
    for field in ["id", "rule", "severity", "evidence", "next_command"] {
        assert!(of_watch.iter().any(|there| there == field), "{field}: {of_watch:?}");
    }
    assert_eq!(items("Reconciliation", "findings"), ["detail", "invariant"]);
}
