//! The layers: file, environment, flags. The later wins; what nobody sets is the default.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{self, KEYS, Key, Kind};
use super::namespaces;
use super::sinks;
use super::tokens::{self, Entry};
use super::value::{Origin, Raw, Value};
use super::watch;

/// What has been read so far, and every fault found on the way.
#[derive(Debug, Default)]
pub struct Layers {
    values: BTreeMap<&'static str, Value>,
    /// `[[tokens]]`, with where they were written.
    pub tokens: Vec<Entry>,
    /// Whether any layer names some, sound or not.
    pub names_tokens: bool,
    /// `[cache.namespace.NAME]`, by name.
    pub namespaces: BTreeMap<String, namespaces::Entry>,
    /// `[watch.rule.NAME]`, by rule.
    pub watch_rules: BTreeMap<tidegate::watch::Rule, watch::Entry>,
    /// `[[watch.sink]]`, by number from 1: the file's in their order, then those of variables alone.
    pub sinks: BTreeMap<usize, sinks::Entry>,
    /// Settings with a fault of their own.
    pub unsound: BTreeSet<&'static str>,
    /// The file could not be read, or not as TOML.
    pub is_unread: bool,
    /// What is wrong, one line each.
    pub faults: Vec<String>,
}

impl Layers {
    /// The effective value of `key`.
    pub fn value(&self, key: &Key) -> Value {
        self.values.get(key.path).cloned().unwrap_or_else(|| Value::default_of(key))
    }

    /// Notes a fault of a setting.
    pub fn fault(&mut self, origin: &Origin, what: impl std::fmt::Display) {
        self.faults.push(format!("{origin}: {what}"));
    }

    /// Sets `key` in the present layer.
    fn set(&mut self, key: &'static Key, raw: Raw, origin: Origin) {
        let value = Value { raw, origin };
        if let Err(must) = value.check(key) {
            self.fault(&value.origin, format_args!("{} is {:?}, but it {must}", key.path, value.shown(key)));
            self.unsound.insert(key.path);
        }
        self.values.insert(key.path, value);
    }

    /// Sets `key` to what the file `path` holds, without the line break at its end.
    fn set_from_file(&mut self, key: &'static Key, path: &str, by: Origin) {
        match std::fs::read_to_string(path) {
            Ok(text) => {
                let origin = Origin::Secret { path: path.to_owned(), by: Box::new(by) };
                self.set(key, Raw::Text(text.trim_end().to_owned()), origin);
            }
            Err(e) => {
                self.unsound.insert(key.path);
                self.fault(
                    &by,
                    format_args!("{}_file: cannot read {path}: {e}; check the path and its permissions", key.path),
                );
            }
        }
    }

    /// Reads the TOML file at `path`.
    pub fn read_file(&mut self, path: &Path) {
        let name = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => self.read_toml(&name, &text),
            Err(e) => {
                self.is_unread = true;
                self.faults.push(format!(
                    "{name}: cannot read the configuration file (--config): {e}; check the path and its permissions"
                ));
            }
        }
    }

    /// Reads TOML `text` that came from the file `name`.
    pub fn read_toml(&mut self, name: &str, text: &str) {
        let line_of = |at: usize| text[..at.min(text.len())].matches('\n').count() + 1;
        let place = |at: usize| Origin::File { name: name.to_owned(), line: line_of(at) };
        match DeTable::parse(text) {
            Ok(table) => self.read_table("", table.get_ref(), &place),
            Err(e) => {
                self.is_unread = true;
                let at = place(e.span().map_or(0, |span| span.start));
                self.fault(&at, format_args!("this is not TOML: {}", e.message().trim_end()));
            }
        }
    }

    fn read_table(&mut self, prefix: &str, table: &DeTable<'_>, place: &dyn Fn(usize) -> Origin) {
        for (name, value) in table {
            let path =
                if prefix.is_empty() { name.get_ref().to_string() } else { format!("{prefix}.{}", name.get_ref()) };
            let origin = place(name.span().start);
            if path == "tokens" {
                let before = self.faults.len();
                self.tokens = tokens::from_toml(value, place, &mut self.faults);
                self.names_tokens = !self.tokens.is_empty() || self.faults.len() > before;
            } else if path == "cache.namespace" {
                namespaces::from_toml(self, value, place);
            } else if path == "watch.rule" {
                watch::from_toml(self, value, place);
            } else if path == "watch.sink" {
                sinks::from_toml(self, value, place);
            } else if let DeValue::Table(inner) = value.get_ref() {
                self.enter(&path, inner, origin, place);
            } else {
                self.read_value(&path, value, origin, table);
            }
        }
    }

    fn enter(&mut self, path: &str, inner: &DeTable<'_>, origin: Origin, place: &dyn Fn(usize) -> Origin) {
        let known = KEYS.iter().any(|key| key.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('.')));
        if known {
            self.read_table(path, inner, place);
        } else {
            let tables: std::collections::BTreeSet<&str> =
                KEYS.iter().filter_map(|key| Some(key.path.split_once('.')?.0)).collect();
            self.unknown(
                &origin,
                &format!("table [{path}]"),
                keys::nearest(path, tables.into_iter().chain(["tokens"])),
            );
        }
    }

    fn read_value(&mut self, path: &str, value: &Spanned<DeValue<'_>>, origin: Origin, siblings: &DeTable<'_>) {
        let twin = path.strip_suffix("_file").and_then(keys::find).filter(|key| key.has_file_twin());
        let Some(key) = keys::find(path).or(twin) else {
            return self.unknown(
                &origin,
                &format!("key {path:?}"),
                keys::nearest(path, KEYS.iter().map(|key| key.path)),
            );
        };
        let list = if key.kind == Kind::Urls { list_of(value.get_ref()) } else { None };
        let raw = match (list.or_else(|| raw_of(value.get_ref())), value.get_ref()) {
            (Some(raw), _) => raw,
            (None, DeValue::Integer(_)) => {
                return self.fault(&origin, format_args!("{path} is a number too large for any setting"));
            }
            (None, _) => {
                self.unsound.insert(key.path);
                let must = Value { raw: Raw::Bool(false), origin: origin.clone() }.check(key).err();
                return self.fault(
                    &origin,
                    format_args!("{path} {}", must.unwrap_or_else(|| "must be true or false".to_owned())),
                );
            }
        };
        match (twin, raw) {
            (None, raw) => self.set(key, raw, origin),
            (Some(_), _) if siblings.keys().any(|name| Some(&**name.get_ref()) == key.path.rsplit('.').next()) => {
                self.fault(&origin, format_args!("{path} and {} are both set; keep one of them", key.path));
            }
            (Some(_), Raw::Text(file)) => self.set_from_file(key, &file, origin),
            (Some(_), _) => self.fault(&origin, format_args!("{path} must be the path of a file, in quotes")),
        }
    }

    fn unknown(&mut self, origin: &Origin, what: &str, nearest: Option<&str>) {
        let hint = nearest.map_or_else(
            || "; `tidegate.example.toml` lists every key".to_owned(),
            |near| format!("; did you mean {near:?}?"),
        );
        self.fault(origin, format_args!("unknown {what}{hint}"));
    }

    /// Reads the `TIDEGATE_*` variables among `vars`.
    pub fn read_env(&mut self, vars: impl IntoIterator<Item = (String, String)>) {
        let mut vars: Vec<_> = vars
            .into_iter()
            .filter(|(name, _)| name.starts_with("TIDEGATE_") && !keys::is_foreign_variable(name))
            .collect();
        vars.sort();
        let known: Vec<(String, &'static Key)> = KEYS.iter().map(|key| (key.env(), key)).collect();
        for (name, text) in &vars {
            let origin = Origin::Env(name.clone());
            let plain = known.iter().find(|(env, _)| env == name);
            let twin = known.iter().find(|(env, key)| key.has_file_twin() && name.strip_suffix("_FILE") == Some(env));
            match (plain, twin) {
                (Some((_, key)), _) => self.set(key, Raw::Text(text.clone()), origin),
                (None, Some((env, key))) => {
                    if vars.iter().any(|(other, _)| other == env) {
                        self.fault(&origin, format_args!("it and {env} are both set; keep one of them"));
                    } else {
                        self.set_from_file(key, text, origin);
                    }
                }
                _ if namespaces::from_env(self, name, text) || watch::from_env(self, name, text) => {}
                _ if sinks::from_env(self, name, text) => {}
                _ if name == "TIDEGATE_TOKENS" => {
                    let before = self.faults.len();
                    self.tokens = tokens::from_env(name, text, &mut self.faults);
                    self.names_tokens = !self.tokens.is_empty() || self.faults.len() > before;
                }
                _ => {
                    let names = known.iter().map(|(env, _)| env.as_str()).chain(["TIDEGATE_TOKENS"]);
                    self.unknown(&origin, "variable", keys::nearest(name, names));
                }
            }
        }
    }

    /// Takes what flags set.
    pub fn read_flag(&mut self, path: &str, text: Option<String>) {
        let (Some(text), Some(key)) = (text, keys::find(path)) else {
            return;
        };
        self.set(key, Raw::Text(text), Origin::Flag(key.flag.unwrap_or("a flag")));
    }
}

/// A list of texts, as one text with blanks between them.
fn list_of(value: &DeValue<'_>) -> Option<Raw> {
    let DeValue::Array(items) = value else { return None };
    let texts: Option<Vec<&str>> = items.iter().map(|item| item.get_ref().as_str()).collect();
    Some(Raw::Text(texts?.join(" ")))
}

/// A value of a file, if a setting can have such a one.
pub(super) fn raw_of(value: &DeValue<'_>) -> Option<Raw> {
    match value {
        DeValue::String(text) => Some(Raw::Text(text.to_string())),
        DeValue::Boolean(b) => Some(Raw::Bool(*b)),
        DeValue::Float(n) => Some(Raw::Decimal(n.as_str().to_owned())),
        DeValue::Integer(n) => i64::from_str_radix(n.as_str(), n.radix()).ok().map(Raw::Integer),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(toml: &str, env: &[(&str, &str)]) -> Layers {
        let mut layers = Layers::default();
        layers.read_toml("t.toml", toml);
        layers.read_env(env.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())));
        layers
    }

    fn shown(layers: &Layers, path: &str) -> String {
        let key = keys::find(path).unwrap();
        let value = layers.value(key);
        format!("{} from {}", value.shown(key), value.origin)
    }

    #[test]
    fn the_later_layer_wins_and_is_named() {
        let mut layers = read("hold_seconds = 60\n[limits]\nconnections = 7", &[("TIDEGATE_LIMITS_CONNECTIONS", "8")]);
        assert_eq!(shown(&layers, "hold_seconds"), "60 from t.toml:1");
        assert_eq!(shown(&layers, "limits.connections"), "8 from TIDEGATE_LIMITS_CONNECTIONS");
        assert_eq!(shown(&layers, "grace_seconds"), "0 from default");
        layers.read_flag("hold_seconds", Some("5".to_owned()));
        assert_eq!(shown(&layers, "hold_seconds"), "5 from --hold-seconds");
        assert_eq!(layers.faults, Vec::<String>::new());
    }

    #[test]
    fn faults_name_place_and_remedy() {
        for (toml, env, want) in [
            ("\nhold_second = 5", &[][..], "t.toml:2: unknown key \"hold_second\"; did you mean \"hold_seconds\"?"),
            ("[limit]\nconnections = 5", &[], "t.toml:1: unknown table [limit]; did you mean \"limits\"?"),
            ("hold_seconds = \"5\"", &[], "t.toml:1: hold_seconds is \"5\", but it must be a whole number from 1"),
            ("hold_seconds = 0", &[], "t.toml:1: hold_seconds is \"0\", but it must be a whole number from 1"),
            ("hold_seconds = [1]", &[], "t.toml:1: hold_seconds must be a whole number"),
            ("workers = \"yes\"", &[], "t.toml:1: workers is \"yes\", but it must be true or false"),
            ("listen = \"localhost\"", &[], "t.toml:1: listen is \"localhost\", but it must be an IP address"),
            ("a = ", &[], "t.toml:1: this is not TOML"),
            ("log = \"zzz==\"", &[], "t.toml:1: log is \"zzz==\", but it must be a filter of log lines ("),
            ("log = 5", &[], "t.toml:1: log is \"5\", but it must be a text in quotes"),
            ("", &[("TIDEGATE_LOG", "!!!")], "TIDEGATE_LOG: log is \"!!!\", but it must be a filter of log lines ("),
            ("threads = 1", &[], "t.toml:1: threads is \"1\", but it must be 0 or a whole number from 2 to 1024"),
            ("[limits]\nconnections = 1", &[], "t.toml:2: limits.connections is \"1\", but it must be 0 or a whole"),
            ("ledger = \"sqlite:a\"\nledger_file = \"b\"", &[], "t.toml:2: ledger_file and ledger are both set"),
            (
                "[watch]\nredis = \"redis://a\"\nredis_file = \"b\"",
                &[],
                "t.toml:3: watch.redis_file and watch.redis are both set",
            ),
            ("ledger_file = \"/nonexistent/x\"", &[], "t.toml:1: ledger_file: cannot read /nonexistent/x"),
            (
                "",
                &[("TIDEGATE_HOLD_SECOND", "5")],
                "TIDEGATE_HOLD_SECOND: unknown variable; did you mean \"TIDEGATE_HOLD_SECONDS\"?",
            ),
            (
                "",
                &[("TIDEGATE_LIMITS_HEADER_TIMEOUT", "10")],
                "TIDEGATE_LIMITS_HEADER_TIMEOUT: limits.header_timeout is \"10\", but it must be a length of time",
            ),
        ] {
            let faults = read(toml, env).faults;
            assert!(faults.len() == 1 && faults[0].starts_with(want), "{toml:?}: {faults:?}, wanted {want:?}");
        }
    }

    #[test]
    fn variables_of_others_are_left_alone() {
        let vars = [
            ("TIDEGATE_SERVICE_HOST", "10.0.0.1"),
            ("TIDEGATE_PORT_80_TCP", "x"),
            ("TIDEGATE_URL", "x"),
            ("PATH", "x"),
        ];
        assert_eq!(read("", &vars).faults, Vec::<String>::new());
    }

    #[test]
    fn a_secret_comes_from_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("url");
        std::fs::write(&file, "sqlite:x.db\n").unwrap();
        let layers = read("ledger = \"sqlite:other.db\"", &[("TIDEGATE_LEDGER_FILE", file.to_str().unwrap())]);
        assert_eq!(
            shown(&layers, "ledger"),
            format!("sqlite:x.db from the file {} (named by TIDEGATE_LEDGER_FILE)", file.display())
        );
    }
}
