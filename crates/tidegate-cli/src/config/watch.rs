//! `[watch]` and `[watch.rule.NAME]`: which servers are watched, and what is judged how.
//!
//! The variables of a rule are `TIDEGATE_WATCH_RULE_NAME_KEY`, its name in capitals with `_` for `-`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use tidegate::watch::{Purpose, Rule, RuleSettings, Settings};
use toml::Spanned;
use toml::de::DeValue;

use super::keys::{self, Key, WATCH_RULE_KEYS};
use super::layers::{Layers, raw_of};
use super::sinks::{self, Sinks};
use super::value::{self, Origin, Raw, Value};

/// What the path of each key begins with; `NAME` stands for the rule's.
const PREFIX: &str = "watch.rule.NAME.";
/// No server is watched, the store's neither.
const OFF: &str = "off";
/// What the variables begin with.
const VARIABLE: &str = "TIDEGATE_WATCH_RULE_";

/// What the layers set of one rule, by the last part of the key.
pub type Entry = BTreeMap<&'static str, Value>;

/// How Redis is watched.
#[derive(Clone)]
pub struct WatchConfig {
    /// The servers, by their URLs; the store's, if none are named and it is one.
    pub redis: Vec<String>,
    /// The authority (PEM) that TLS trusts instead of the system's.
    pub authority: Option<Vec<u8>>,
    /// Between two looks.
    pub interval: Duration,
    /// What is judged, and how.
    pub settings: Settings,
    /// Keeps what is open, and alerts that are not delivered yet.
    pub state_file: Option<PathBuf>,
    /// Where alerts go.
    pub sinks: Sinks,
}

/// Without the passwords of the URLs.
impl std::fmt::Debug for WatchConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let redis: Vec<String> = self.redis.iter().map(|url| value::without_password(url)).collect();
        f.debug_struct("WatchConfig")
            .field("redis", &redis)
            .field("interval", &self.interval)
            .field("settings", &self.settings)
            .field("state_file", &self.state_file)
            .field("sinks", &self.sinks)
            .finish_non_exhaustive()
    }
}

fn leaf(key: &Key) -> &'static str {
    key.path.strip_prefix(PREFIX).unwrap_or(key.path)
}

fn key_of(name: &str) -> Option<&'static Key> {
    WATCH_RULE_KEYS.iter().find(|key| leaf(key) == name)
}

fn fault(layers: &mut Layers, rule: &str, at: &Origin, what: std::fmt::Arguments<'_>) {
    layers.fault(at, format_args!("watch.rule.{rule}{what}"));
}

fn set(layers: &mut Layers, rule: Rule, key: &'static Key, raw: Raw, origin: Origin) {
    let value = Value { raw, origin };
    if let Err(must) = value.check(key) {
        let shown = value.shown(key);
        fault(layers, rule.name(), &value.origin.clone(), format_args!(".{} is {shown:?}, but it {must}", leaf(key)));
        return;
    }
    layers.watch_rules.entry(rule).or_default().insert(leaf(key), value);
}

/// Reads the table `watch.rule` of a file.
pub fn from_toml(layers: &mut Layers, value: &Spanned<DeValue<'_>>, place: &dyn Fn(usize) -> Origin) {
    let at = place(value.span().start);
    let DeValue::Table(all) = value.get_ref() else {
        return layers.fault(&at, "rules are written as [watch.rule.NAME]");
    };
    for (name, value) in all {
        let (name, at) = (name.get_ref().as_ref(), place(name.span().start));
        let Some(rule) = Rule::named(name) else {
            let near = keys::nearest(name, Rule::ALL.iter().map(|rule| rule.name()));
            let near = near.map_or_else(
                || "; docs/operations/watch.md lists them".to_owned(),
                |near| format!("; did you mean {near:?}?"),
            );
            fault(layers, name, &at, format_args!(": there is no such rule{near}"));
            continue;
        };
        let DeValue::Table(fields) = value.get_ref() else {
            fault(layers, name, &at, format_args!(" must be a table; write [watch.rule.{name}] above its keys"));
            continue;
        };
        for (field, value) in fields {
            let (field, at) = (field.get_ref().as_ref(), place(field.span().start));
            match (key_of(field), raw_of(value.get_ref())) {
                (Some(key), Some(raw)) => set(layers, rule, key, raw, at),
                (Some(_), None) => {
                    fault(layers, name, &at, format_args!(".{field} must be a number, a text or a switch"))
                }
                (None, _) => {
                    let near = keys::nearest(field, WATCH_RULE_KEYS.iter().map(leaf));
                    let near = near.map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
                    fault(layers, name, &at, format_args!(": unknown key {field:?}{near}"));
                }
            }
        }
    }
}

/// Takes the variable `variable`, if it is a rule's; false: it is not.
pub fn from_env(layers: &mut Layers, variable: &str, text: &str) -> bool {
    let Some(rest) = variable.strip_prefix(VARIABLE) else { return false };
    let found = Rule::ALL.iter().find_map(|rule| {
        let name = rule.name().replace('-', "_").to_uppercase();
        let field = rest.strip_prefix(&name)?.strip_prefix('_')?.to_lowercase();
        Some((*rule, key_of(&field)?))
    });
    let Some((rule, key)) = found else { return false };
    set(layers, rule, key, Raw::Text(text.to_owned()), Origin::Env(variable.to_owned()));
    true
}

/// The settings of every rule that is set, as `[key, value, where it came from]`.
pub fn shown(layers: &Layers) -> Vec<[String; 3]> {
    let of_rule = |(rule, entry): (&Rule, &Entry)| {
        let rule = rule.name();
        let row = move |(leaf, value): (&&str, &Value)| {
            [format!("watch.rule.{rule}.{leaf}"), value.raw.to_string(), value.origin.to_string()]
        };
        entry.iter().map(row).collect::<Vec<_>>()
    };
    layers.watch_rules.iter().flat_map(of_rule).collect()
}

/// What the layers make; what is wrong is noted.
pub fn built(layers: &mut Layers, get: impl Fn(&Layers, &str) -> Value) -> WatchConfig {
    let named = get(layers, "watch.redis");
    let mut redis: Vec<String> = named.text().unwrap_or_default().split_whitespace().map(str::to_owned).collect();
    let role = get(layers, "watch.role");
    let mut purpose = role.text().and_then(Purpose::named).unwrap_or_default();
    let store = get(layers, "store").text().filter(|url| url.starts_with("redis")).map(str::to_owned);
    if redis == [OFF] {
        redis.clear();
    } else if let (true, Some(store)) = (redis.is_empty(), store) {
        redis.push(store);
        // It must not evict, or the server would not have it.
        purpose = if role.origin == Origin::Default { Purpose::State } else { purpose };
    }
    let interval = get(layers, "watch.interval").time_ms().unwrap_or(1_000);
    let mut settings = Settings::new(purpose);
    for (rule, entry) in layers.watch_rules.clone() {
        let Some(origin) = entry.values().next().map(|value| value.origin.clone()) else { continue };
        if let Err(why) = settings.set(rule, with(rule.defaults(), &entry)) {
            fault(layers, rule.name(), &origin, format_args!(": {why}"));
        }
    }
    let state_file = get(layers, "watch.state_file").text().filter(|file| !file.is_empty()).map(PathBuf::from);
    let interval = Duration::from_millis(interval.unsigned_abs());
    WatchConfig { redis, authority: None, interval, settings, state_file, sinks: sinks::built(layers) }
}

fn with(mut settings: RuleSettings, entry: &Entry) -> RuleSettings {
    let number = |name: &str| entry.get(name).and_then(Value::level);
    let count = |name: &str| entry.get(name).and_then(Value::number).and_then(|n| u32::try_from(n).ok());
    let time = |name: &str| entry.get(name).and_then(Value::time_ms).map(i64::unsigned_abs);
    settings.off = entry.get("off").and_then(Value::switch).unwrap_or(settings.off);
    settings.threshold = number("threshold").unwrap_or(settings.threshold);
    // A threshold that is set below the usual clear level takes that with it.
    settings.clear = number("clear").unwrap_or(settings.clear.min(settings.threshold));
    settings.of = count("of").unwrap_or(settings.of.max(count("samples").unwrap_or(1)));
    settings.samples = count("samples").unwrap_or(settings.samples.min(settings.of));
    settings.min_uptime_s = time("min_uptime").map_or(settings.min_uptime_s, |ms| ms / 1_000);
    settings.min_size = number("min_size").map_or(settings.min_size, |size| size as u64);
    settings.quiet_ms = time("quiet").unwrap_or(settings.quiet_ms);
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(toml: &str, env: &[(&str, &str)]) -> (WatchConfig, Vec<String>) {
        let mut layers = Layers::default();
        layers.read_toml("t.toml", toml);
        layers.read_env(env.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())));
        let built = built(&mut layers, |layers, path| layers.value(keys::find(path).unwrap()));
        (built, layers.faults)
    }

    #[test]
    fn servers_and_rules() {
        let (watch, faults) = read(
            "[watch]\nredis = [\"redis://a\", \"redis://b:1\"]\ninterval = \"5s\"\nrole = \"state\"\n\
             [watch.rule.memory-pressure]\nthreshold = 0.5\nsamples = 1\n[watch.rule.evictions]\noff = true\n\
             [watch.rule.big-value-passing]\nthreshold = \"4MiB\"\n",
            &[("TIDEGATE_WATCH_RULE_FRAGMENTATION_MIN_UPTIME", "5s"), ("TIDEGATE_WATCH_RULE_FRAGMENTATION_OF", "3")],
        );
        assert_eq!(faults, Vec::<String>::new());
        assert_eq!(
            (&watch.redis[..], watch.interval),
            (&["redis://a".to_owned(), "redis://b:1".to_owned()][..], Duration::from_secs(5))
        );
        assert_eq!(watch.settings.purpose, Purpose::State);
        let pressure = watch.settings.of(Rule::MemoryPressure);
        assert_eq!((pressure.threshold, pressure.clear, pressure.samples, pressure.of), (0.5, 0.5, 1, 5));
        assert!(watch.settings.of(Rule::Evictions).off && !watch.settings.of(Rule::EvictionOfState).off);
        assert_eq!(watch.settings.of(Rule::BigValuePassing).threshold, 4_194_304.0);
        let fragmentation = watch.settings.of(Rule::Fragmentation);
        assert_eq!((fragmentation.samples, fragmentation.of, fragmentation.min_uptime_s), (3, 3, 5));
        let stored = |watch: &str| {
            let (watch, faults) = read(&format!("store = \"redis://s\"\n[watch]\n{watch}"), &[]);
            assert_eq!(faults, Vec::<String>::new());
            (watch.redis, watch.settings.purpose)
        };
        let (own, other) = (vec!["redis://s".to_owned()], vec!["redis://a".to_owned()]);
        assert_eq!(stored(""), (own.clone(), Purpose::State));
        assert_eq!(stored("redis = \"\"\nrole = \"shared\""), (own, Purpose::Shared));
        assert_eq!(stored("redis = \"redis://a\""), (other, Purpose::Shared));
        assert_eq!(stored("redis = \"off\"").0, Vec::<String>::new());
        let (watch, faults) = read("[watch]\nredis = \"redis://:pw@a\"\n", &[]);
        assert_eq!((watch.redis.len(), faults.len(), watch.settings.purpose), (1, 0, Purpose::Shared));
    }

    #[test]
    fn faults_are_named() {
        for (toml, want) in [
            (
                "[watch.rule.memory-presure]\noff = true",
                "t.toml:1: watch.rule.memory-presure: there is no such rule; did you mean \"memory-pressure\"?",
            ),
            (
                "[watch.rule.swapping]\ntreshold = 1",
                "t.toml:2: watch.rule.swapping: unknown key \"treshold\"; did you mean \"threshold\"?",
            ),
            (
                "[watch.rule.swapping]\nthreshold = \"much\"",
                "t.toml:2: watch.rule.swapping.threshold is \"much\", but it must be",
            ),
            ("[watch.rule.swapping]\nclear = 0.9\nthreshold = 0.1", "clear (0.9) must not be above threshold (0.1)"),
            ("[watch.rule.swapping]\nsamples = 9\nof = 3", "samples (9) of (3)"),
            ("[watch.rule]\nswapping = 3", "must be a table"),
            ("[watch]\nrole = \"master\"", "must be one of \"state\", \"cache\", \"shared\""),
            ("[watch]\nredis = [1]", "must be a URL in quotes, or a list of them"),
            ("[watch]\ninterval = \"1\"", "must be a length of time"),
        ] {
            let (_, faults) = read(toml, &[]);
            assert!(faults.len() == 1 && faults[0].contains(want), "{toml}: {faults:?}");
        }
    }
}
