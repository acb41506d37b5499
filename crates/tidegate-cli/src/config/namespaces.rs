//! `[cache.namespace.NAME]`: the origins that `/v1/cache` reads through, each with its own knobs.
//!
//! Their variables are `TIDEGATE_CACHE_NAMESPACE_NAME_KEY` and `TIDEGATE_CACHE_NAMESPACE_NAME_HEADERS_HEADER`: a name in
//! capitals stands for the namespace of the file whose name it is with `_` for `.` and `-`, else for a new one.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use tidegate::cache::Ttl;
use tidegate_server::{MAX_NAMESPACES, Namespace, Origin as At, check_namespace_name};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{self, Key, NAMESPACE_KEYS};
use super::layers::{Layers, raw_of};
use super::value::{Origin, Raw, Value};

/// What the path of each key begins with; `NAME` stands for the namespace's.
const PREFIX: &str = "cache.namespace.NAME.";
/// What the variables begin with.
const VARIABLE: &str = "TIDEGATE_CACHE_NAMESPACE_";

/// What the layers say of one namespace.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Where it was first named.
    origin: Origin,
    values: BTreeMap<&'static str, Value>,
    /// By their names in lower case.
    headers: BTreeMap<String, Header>,
    is_unsound: bool,
}

/// A header: never shown.
#[derive(Clone)]
struct Header {
    value: String,
    origin: Origin,
}

impl std::fmt::Debug for Header {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "*** from {}", self.origin)
    }
}

/// A key's last part.
fn leaf(key: &Key) -> &'static str {
    key.path.strip_prefix(PREFIX).unwrap_or(key.path)
}

fn key_of(name: &str) -> Option<&'static Key> {
    NAMESPACE_KEYS.iter().find(|key| leaf(key) == name)
}

/// What may stand in a namespace's table.
fn fields() -> impl Iterator<Item = &'static str> {
    NAMESPACE_KEYS.iter().map(leaf).chain(["url_file", "headers"])
}

/// The entry of a namespace, made at its first mention.
fn entry<'a>(layers: &'a mut Layers, name: &str, origin: &Origin) -> &'a mut Entry {
    layers.namespaces.entry(name.to_owned()).or_insert_with(|| Entry {
        origin: origin.clone(),
        values: BTreeMap::new(),
        headers: BTreeMap::new(),
        is_unsound: false,
    })
}

fn fault(layers: &mut Layers, name: &str, at: &Origin, what: impl std::fmt::Display) {
    entry(layers, name, at).is_unsound = true;
    layers.fault(at, format_args!("cache.namespace.{name}{what}"));
}

/// Sets a key of a namespace in the present layer.
fn set(layers: &mut Layers, name: &str, key: &'static Key, raw: Raw, origin: Origin) {
    let value = Value { raw, origin };
    if let Err(must) = value.check(key) {
        // A URL that is no text has nothing to be shown.
        let shown = value.shown(key);
        fault(layers, name, &value.origin.clone(), format_args!(".{} is {shown:?}, but it {must}", leaf(key)));
    }
    entry(layers, name, &value.origin.clone()).values.insert(leaf(key), value);
}

/// Sets a header of a namespace in the present layer.
fn set_header(layers: &mut Layers, name: &str, header: &str, value: String, origin: Origin) {
    let at = origin.clone();
    entry(layers, name, &at).headers.insert(header.to_lowercase(), Header { value, origin });
}

/// Reads the table `cache.namespace` of a file.
pub fn from_toml(layers: &mut Layers, value: &Spanned<DeValue<'_>>, place: &dyn Fn(usize) -> Origin) {
    let at = place(value.span().start);
    let DeValue::Table(all) = value.get_ref() else {
        return layers.fault(&at, "namespaces are written as [cache.namespace.NAME]");
    };
    for (name, value) in all {
        let at = place(name.span().start);
        match value.get_ref() {
            DeValue::Table(table) => {
                entry(layers, name.get_ref(), &at);
                one_from_toml(layers, name.get_ref(), table, place);
            }
            _ => fault(layers, name.get_ref(), &at, " must be a table; write [cache.namespace.NAME] above its keys"),
        }
    }
}

fn one_from_toml(layers: &mut Layers, name: &str, table: &DeTable<'_>, place: &dyn Fn(usize) -> Origin) {
    for (field, value) in table {
        let (field, at) = (field.get_ref().as_ref(), place(field.span().start));
        if field == "headers" {
            headers_from_toml(layers, name, value, place);
            continue;
        }
        let twin = field.strip_suffix("_file").and_then(key_of).filter(|key| key.has_file_twin());
        let Some(key) = key_of(field).or(twin) else {
            let near = keys::nearest(field, fields()).map_or_else(
                || "; `tidegate.example.toml` lists every key".to_owned(),
                |near| format!("; did you mean {near:?}?"),
            );
            fault(layers, name, &at, format_args!(": unknown key {field:?}{near}"));
            continue;
        };
        match (twin, raw_of(value.get_ref())) {
            (Some(key), _) if table.contains_key(leaf(key)) => {
                fault(layers, name, &at, format_args!(": {field} and {} are both set; keep one of them", leaf(key)));
            }
            (Some(_), Some(Raw::Text(file))) => {
                if let Some((text, origin)) = secret(layers, name, field, &file, at) {
                    set(layers, name, key, Raw::Text(text), origin);
                }
            }
            (None, Some(raw)) => set(layers, name, key, raw, at),
            (Some(_), _) => fault(layers, name, &at, format_args!(".{field} must be the path of a file, in quotes")),
            (None, None) => {
                let must =
                    Value { raw: Raw::Bool(key.kind != keys::Kind::Switch), origin: at.clone() }.check(key).err();
                let must = must.unwrap_or_else(|| "must be true or false".to_owned());
                fault(layers, name, &at, format_args!(".{field} {must}"));
            }
        }
    }
}

fn headers_from_toml(layers: &mut Layers, name: &str, value: &Spanned<DeValue<'_>>, place: &dyn Fn(usize) -> Origin) {
    let DeValue::Table(all) = value.get_ref() else {
        let at = place(value.span().start);
        return fault(layers, name, &at, ".headers must be a table, such as { Authorization = \"Bearer ..\" }");
    };
    for (field, value) in all {
        let (field, at) = (field.get_ref().as_ref(), place(field.span().start));
        let DeValue::String(text) = value.get_ref() else {
            fault(layers, name, &at, format_args!(".headers.{field} must be a text in quotes"));
            continue;
        };
        match field.strip_suffix("_file") {
            None => set_header(layers, name, field, text.to_string(), at),
            Some(header) if all.keys().any(|other| other.get_ref().eq_ignore_ascii_case(header)) => {
                fault(layers, name, &at, format_args!(".headers: {field} and {header} are both set; keep one of them"));
            }
            Some(header) => {
                if let Some((text, origin)) = secret(layers, name, &format!("headers.{field}"), text, at) {
                    set_header(layers, name, header, text, origin);
                }
            }
        }
    }
}

/// What the file `path` holds, without the line break at its end.
fn secret(layers: &mut Layers, name: &str, field: &str, path: &str, by: Origin) -> Option<(String, Origin)> {
    match std::fs::read_to_string(path) {
        Ok(text) => Some((text.trim_end().to_owned(), Origin::Secret { path: path.to_owned(), by: Box::new(by) })),
        Err(e) => {
            let what = format!(".{field}: cannot read {path}: {e}; check the path and its permissions");
            fault(layers, name, &by, what);
            None
        }
    }
}

/// Takes the variable `variable`, if it is a namespace's; false: it is not.
pub fn from_env(layers: &mut Layers, variable: &str, text: &str) -> bool {
    let Some(rest) = variable.strip_prefix(VARIABLE) else { return false };
    let at = Origin::Env(variable.to_owned());
    if let Some((name, header)) =
        rest.split_once("_HEADERS_").filter(|(name, header)| !name.is_empty() && !header.is_empty())
    {
        let name = named(layers, name);
        let (header, value) = match header.strip_suffix("_FILE") {
            Some(header) => (header, secret(layers, &name, "headers", text, at)),
            None => (header, Some((text.to_owned(), at))),
        };
        let header = header.replace('_', "-");
        let other = |entry: &Entry| Some(entry.headers.get(&header.to_lowercase())?.origin.variable()?.to_owned());
        if let Some(other) = layers.namespaces.get(&name).and_then(other) {
            both(layers, &name, variable, &other);
        } else if let Some((value, origin)) = value {
            set_header(layers, &name, &header, value, origin);
        }
        return true;
    }
    let found = NAMESPACE_KEYS.iter().find_map(|key| {
        let (rest, is_file) = match rest.strip_suffix("_FILE").filter(|_| key.has_file_twin()) {
            Some(rest) => (rest, true),
            None => (rest, false),
        };
        let name = rest.strip_suffix(&leaf(key).to_uppercase())?.strip_suffix('_')?;
        (!name.is_empty()).then_some((key, name, is_file))
    });
    let Some((key, name, is_file)) = found else { return false };
    let name = named(layers, name);
    let other = |entry: &Entry| Some(entry.values.get(leaf(key))?.origin.variable()?.to_owned());
    if let Some(other) = layers.namespaces.get(&name).and_then(other) {
        both(layers, &name, variable, &other);
    } else if !is_file {
        set(layers, &name, key, Raw::Text(text.to_owned()), at);
    } else if let Some((text, origin)) = secret(layers, &name, leaf(key), text, at) {
        set(layers, &name, key, Raw::Text(text), origin);
    }
    true
}

/// The file's is overruled by a variable; two variables for one value contradict each other.
fn both(layers: &mut Layers, name: &str, variable: &str, other: &str) {
    let at = Origin::Env(variable.to_owned());
    fault(layers, name, &at, format_args!(": it and {other} are both set; keep one of them"));
}

/// The namespace that a variable means.
fn named(layers: &Layers, variable: &str) -> String {
    let same = |name: &&String| name.replace(['.', '-'], "_").to_uppercase() == variable;
    layers.namespaces.keys().find(same).cloned().unwrap_or_else(|| variable.to_lowercase())
}

impl Entry {
    fn value(&self, key: &Key) -> Value {
        self.values.get(leaf(key)).cloned().unwrap_or_else(|| Value::default_of(key))
    }

    fn get(&self, name: &str) -> Value {
        self.value(key_of(name).expect("every name the program asks for is in NAMESPACE_KEYS"))
    }

    /// Every key as `[key, value, where it came from]`, without secrets.
    pub fn shown(&self, name: &str) -> Vec<[String; 3]> {
        let path = |leaf: &str| format!("cache.namespace.{name}.{leaf}");
        let keys = NAMESPACE_KEYS.iter().map(|key| {
            let value = self.value(key);
            let shown = if leaf(key) == "url" { shown_url(&value.raw.to_string()) } else { value.shown(key) };
            [path(leaf(key)), shown, value.origin.to_string()]
        });
        let headers = self.headers.iter();
        let headers =
            headers.map(|(header, it)| [path(&format!("headers.{header}")), "***".to_owned(), it.origin.to_string()]);
        keys.chain(headers).collect()
    }

    /// The namespace, or what is wrong with it, each with its place.
    fn built(&self, name: &str) -> Result<Namespace, Vec<String>> {
        let path = format!("cache.namespace.{name}");
        let url = self.get("url");
        if url.origin == Origin::Default {
            return Err(vec![format!(
                "{}: {path} needs a url, such as \"https://catalogue.example/items/{{key}}\"",
                self.origin
            )]);
        }
        let allow_private = self.get("allow_private").switch().unwrap_or(false);
        let mut at = At::new(url.text().unwrap_or_default(), allow_private)
            .map_err(|must| vec![format!("{}: {path}.url {must}", url.origin)])?;
        let mut faults = Vec::new();
        for (header, Header { value, origin }) in &self.headers {
            match at.clone().header(header, value) {
                Ok(with) => at = with,
                Err(why) => faults.push(format!("{origin}: {path}.headers.{header} {why}")),
            }
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        Ok(self.with_knobs(Namespace::new(name, at)))
    }

    fn with_knobs(&self, mut to: Namespace) -> Namespace {
        let number = |name: &str| self.get(name).number().unwrap_or_default();
        let time = |name: &str| Duration::from_millis(self.get(name).time_ms().unwrap_or_default().unsigned_abs());
        // None for "off".
        let ttl = |name: &str| Ttl::try_from(time(name)).ok();
        let part = |name: &str| self.get(name).decimal().unwrap_or_default();
        to.fresh_for = ttl("fresh_for").unwrap_or(to.fresh_for);
        to.stale_for = ttl("stale_for");
        to.absent_for = ttl("absent_for");
        to.jitter = part("jitter");
        to.early_refresh = part("early_refresh");
        to.load_budget = usize::try_from(number("load_budget")).unwrap_or(1).max(1);
        to.load_rate = u32::try_from(number("load_rate")).ok().and_then(NonZeroU32::new);
        to.load_timeout = time("load_timeout");
        to.max_value = usize::try_from(self.get("max_value").size().unwrap_or_default()).unwrap_or(usize::MAX).max(1);
        to.local_for = ttl("local_for");
        to
    }
}

/// The namespaces that the layers make; what is wrong is noted.
pub fn built(layers: &mut Layers) -> Vec<Namespace> {
    let mut made = Vec::with_capacity(layers.namespaces.len());
    let mut faults = Vec::new();
    for (name, entry) in &layers.namespaces {
        if let Err(must) = check_namespace_name(name) {
            faults.push(format!("{}: cache.namespace.{name}: the name {must}", entry.origin));
        } else if !entry.is_unsound {
            match entry.built(name) {
                Ok(namespace) => made.push(namespace),
                Err(found) => faults.extend(found),
            }
        }
    }
    if layers.namespaces.len() > MAX_NAMESPACES {
        let count = layers.namespaces.len();
        faults.push(format!(
            "there are {count} namespaces ([cache.namespace.NAME]) and at most {MAX_NAMESPACES} are served"
        ));
    }
    layers.faults.extend(faults);
    made
}

/// A URL without what its query may hide: only what stands for the key is shown.
fn shown_url(url: &str) -> String {
    let Some((path, query)) = url.split_once('?') else { return url.to_owned() };
    let pairs = query.split('&').map(|pair| match pair.split_once('=') {
        Some((_, "{key}")) | None => pair.to_owned(),
        Some((name, _)) => format!("{name}=***"),
    });
    format!("{path}?{}", pairs.collect::<Vec<_>>().join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(toml: &str, env: &[(&str, &str)]) -> (Layers, Vec<Namespace>) {
        let mut layers = Layers::default();
        layers.read_toml("t.toml", toml);
        layers.read_env(env.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())));
        let built = built(&mut layers);
        (layers, built)
    }

    #[test]
    fn a_value_has_one_variable() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        std::fs::write(&file, "http://h/{key}\n").unwrap();
        let file = file.to_str().unwrap();
        let url = ("TIDEGATE_CACHE_NAMESPACE_X_URL", "http://i/{key}");
        let url_file = ("TIDEGATE_CACHE_NAMESPACE_X_URL_FILE", file);
        for (more, want) in [
            (
                &[url_file][..],
                "NAMESPACE_X_URL_FILE: cache.namespace.x: it and TIDEGATE_CACHE_NAMESPACE_X_URL are both set",
            ),
            (
                &[
                    ("TIDEGATE_CACHE_NAMESPACE_X_HEADERS_A_B", "1"),
                    ("TIDEGATE_CACHE_NAMESPACE_X_HEADERS_A_B_FILE", file),
                ],
                "X_HEADERS_A_B_FILE: cache.namespace.x: it and TIDEGATE_CACHE_NAMESPACE_X_HEADERS_A_B are both set",
            ),
        ] {
            let (layers, _) = read("", &[&[url], more].concat());
            assert!(layers.faults.len() == 1 && layers.faults[0].contains(want), "{:?}", layers.faults);
        }
        // A variable overrules the file, whichever of the two each sets.
        let (layers, made) = read("[cache.namespace.x]\nurl = \"http://i/{key}\"\n", &[url_file]);
        assert_eq!((layers.faults.len(), made.len()), (0, 1), "{:?}", layers.faults);
    }

    const WHOLE: &str = r#"
[cache.namespace.items]
url = "https://catalogue.example/items/{key}?lang=en&id={key}"
headers = { Authorization = "Bearer sesame", X-Shop = "7" }
fresh_for = "5s"
stale_for = "off"
absent_for = "off"
jitter = 0
early_refresh = 0.5
load_budget = 3
load_rate = 50
load_timeout = "2s"
max_value = "1MiB"
local_for = "off"
allow_private = true
[cache.namespace."a.b-c"]
url = "http://h/{key}"
"#;

    #[test]
    fn a_namespace_is_what_it_says() {
        let (layers, made) = read(WHOLE, &[]);
        assert_eq!(layers.faults, Vec::<String>::new());
        let [plain, items] = made.as_slice() else { panic!("{made:?}") };
        let usual = Namespace::new("x", plain.origin.clone());
        assert_eq!(plain.name, "a.b-c");
        assert_eq!(
            (plain.fresh_for, plain.stale_for, plain.absent_for, plain.local_for, plain.load_rate, plain.max_value),
            (usual.fresh_for, usual.stale_for, usual.absent_for, usual.local_for, usual.load_rate, usual.max_value),
        );
        assert_eq!(
            (plain.load_budget, plain.load_timeout, plain.jitter, plain.early_refresh),
            (usual.load_budget, usual.load_timeout, usual.jitter, usual.early_refresh)
        );
        assert_eq!(
            (items.fresh_for, items.stale_for, items.absent_for, items.local_for),
            (Ttl::seconds::<5>(), None, None, None)
        );
        assert_eq!((items.load_budget, items.load_rate, items.max_value), (3, NonZeroU32::new(50), 1 << 20));
        assert_eq!((items.load_timeout, items.jitter, items.early_refresh), (Duration::from_secs(2), 0.0, 0.5));
        let shown = format!("{:?} {layers:?} {items:?}", layers.namespaces["items"].shown("items"));
        assert!(!shown.contains("sesame"), "{shown}");
        for want in [
            "items/{key}?lang=***&id={key}",
            "cache.namespace.items.headers.authorization",
            "t.toml:4",
            "allow_private: true",
        ] {
            assert!(shown.contains(want), "{want}: {shown}");
        }
    }

    #[test]
    fn variables_stand_above_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("secret");
        std::fs::write(&file, "Bearer from-file\n").unwrap();
        let file = file.to_str().unwrap();
        let (layers, made) = read(
            WHOLE,
            &[
                ("TIDEGATE_CACHE_NAMESPACE_ITEMS_FRESH_FOR", "7s"),
                ("TIDEGATE_CACHE_NAMESPACE_A_B_C_URL", "http://other/{key}"),
                ("TIDEGATE_CACHE_NAMESPACE_ITEMS_HEADERS_AUTHORIZATION_FILE", file),
                ("TIDEGATE_CACHE_NAMESPACE_ITEMS_HEADERS_X_MORE", "1"),
                ("TIDEGATE_CACHE_NAMESPACE_NEW_URL", "http://new/{key}"),
                ("TIDEGATE_CACHE_NAMESPACE_NEW_LOAD_RATE", "9"),
            ],
        );
        assert_eq!(layers.faults, Vec::<String>::new());
        let by_name = |name: &str| made.iter().find(|one| one.name == name).expect("a namespace");
        assert_eq!(by_name("items").fresh_for, Ttl::seconds::<7>());
        assert_eq!(by_name("new").load_rate, NonZeroU32::new(9));
        assert_eq!(layers.namespaces["items"].headers["authorization"].value, "Bearer from-file");
        assert_eq!(layers.namespaces["items"].headers["x-more"].value, "1");
        assert_eq!(layers.namespaces["a.b-c"].get("url").text(), Some("http://other/{key}"));
    }

    #[test]
    fn faults_name_place_and_remedy() {
        let of = |line: &str| format!("[cache.namespace.x]\nurl = \"http://h/{{key}}\"\n{line}");
        for (toml, want) in [
            ("[cache.namespace.x]".to_owned(), "t.toml:1: cache.namespace.x needs a url"),
            ("[cache]\nnamespace = 5".to_owned(), "t.toml:2: namespaces are written as [cache.namespace.NAME]"),
            ("[cache.namespace]\nx = 5".to_owned(), "t.toml:2: cache.namespace.x must be a table"),
            ("[cache.namespaces.x]\nurl = \"u\"".to_owned(), "t.toml:1: unknown table [cache.namespaces]"),
            (
                "[cache.namespace.products]\nurl = \"http://h/{key}\"".to_owned(),
                "t.toml:1: cache.namespace.products: the name is the name of a cache of Tidegate's own",
            ),
            (
                "[cache.namespace.X]\nurl = \"http://h/{key}\"".to_owned(),
                "t.toml:1: cache.namespace.X: the name must be 1 to 64",
            ),
            ("[cache.namespace.x]\nurl = \"http://h/\"".to_owned(), "t.toml:2: cache.namespace.x.url must have {key}"),
            (
                "[cache.namespace.x]\nurl = \"http://u:sesame@h/{key}\"".to_owned(),
                "t.toml:2: cache.namespace.x.url must not hold a user",
            ),
            (
                "[cache.namespace.x]\nurl = 5".to_owned(),
                "t.toml:2: cache.namespace.x.url is \"5\", but it must be a text",
            ),
            (
                "[cache.namespace.x]\nurl_file = \"/nonexistent\"".to_owned(),
                "t.toml:2: cache.namespace.x.url_file: cannot read /nonexistent",
            ),
            (of("url_file = \"f\""), "t.toml:3: cache.namespace.x: url_file and url are both set"),
            (
                of("freshfor = \"5s\""),
                "t.toml:3: cache.namespace.x: unknown key \"freshfor\"; did you mean \"fresh_for\"?",
            ),
            (of("fresh_for = 5"), "t.toml:3: cache.namespace.x.fresh_for is \"5\", but it must be a length of time"),
            (of("fresh_for = \"off\""), "t.toml:3: cache.namespace.x.fresh_for is \"off\", but it must be a length"),
            (of("stale_for = \"0s\""), "t.toml:3: cache.namespace.x.stale_for is \"0s\", but it must be \"off\" or"),
            (
                of("jitter = 1.0"),
                "t.toml:3: cache.namespace.x.jitter is \"1.0\", but it must be a number from 0 to 0.9",
            ),
            (of("early_refresh = -1"), "t.toml:3: cache.namespace.x.early_refresh is \"-1\", but it must be a number"),
            (
                of("load_budget = 0"),
                "t.toml:3: cache.namespace.x.load_budget is \"0\", but it must be a whole number from 1",
            ),
            (of("load_rate = -1"), "t.toml:3: cache.namespace.x.load_rate is \"-1\", but it must be 0 or"),
            (
                of("load_timeout = \"1h\""),
                "t.toml:3: cache.namespace.x.load_timeout is \"1h\", but it must be a length",
            ),
            (of("max_value = \"17MiB\""), "t.toml:3: cache.namespace.x.max_value is \"17MiB\", but it must be a size"),
            (of("max_value = [1]"), "t.toml:3: cache.namespace.x.max_value must be a size"),
            (
                of("allow_private = \"yes\""),
                "t.toml:3: cache.namespace.x.allow_private is \"yes\", but it must be true",
            ),
            (of("allow_private = [1]"), "t.toml:3: cache.namespace.x.allow_private must be true or false"),
            (of("headers = \"x: sesame\""), "t.toml:3: cache.namespace.x.headers must be a table"),
            (of("headers = { a = 5 }"), "t.toml:3: cache.namespace.x.headers.a must be a text in quotes"),
            (of("headers = { Host = \"sesame\" }"), "t.toml:3: cache.namespace.x.headers.host is decided by"),
            (of("headers = { \"a b\" = \"sesame\" }"), "t.toml:3: cache.namespace.x.headers.a b is no name"),
            (of("headers = { a = \"sesame\\n\" }"), "t.toml:3: cache.namespace.x.headers.a must be visible ASCII"),
            (
                of("headers = { a = \"sesame\", a_file = \"f\" }"),
                "t.toml:3: cache.namespace.x.headers: a_file and a are both set",
            ),
            (of("headers = { a_file = \"/nonexistent\" }"), "t.toml:3: cache.namespace.x.headers.a_file: cannot read"),
        ] {
            let faults = read(&toml, &[]).0.faults;
            assert!(faults.len() == 1 && faults[0].starts_with(want), "{toml}: {faults:?}, wanted {want}");
            assert!(!faults[0].contains("sesame"), "{faults:?}");
        }
        let many: String = (0..65).map(|n| format!("[cache.namespace.n{n}]\nurl = \"http://h/{{key}}\"\n")).collect();
        assert!(read(&many, &[]).0.faults[0].contains("65 namespaces"));
        let (layers, _) = read("", &[("TIDEGATE_CACHE_NAMESPACE_X_FRESH", "5s")]);
        assert!(
            layers.faults[0].starts_with("TIDEGATE_CACHE_NAMESPACE_X_FRESH: unknown variable"),
            "{:?}",
            layers.faults
        );
    }
}
