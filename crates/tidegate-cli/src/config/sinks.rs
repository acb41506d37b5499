//! `[[watch.sink]]`: where alerts of the watch go.
//!
//! Their variables are `TIDEGATE_WATCH_SINK_N_KEY`: of the N-th sink of the file, from 1, or of one more.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tidegate::watch::Severity;
use tidegate::watch::alerts::{AlertSink, MAX_SINKS};
use tidegate_server::alerts::{self, CodeField, HookForm, HookOptions, MailOptions, Signature, SinkOptions, Template};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{self, Key, WATCH_SINK_KEYS};
use super::layers::{Layers, raw_of};
use super::value::{self, Origin, Raw, Value};

/// What the path of each key begins with; `N` stands for the sink's number.
const PREFIX: &str = "watch.sink.N.";
/// What the variables begin with.
const VARIABLE: &str = "TIDEGATE_WATCH_SINK_";
/// Keys of one kind alone.
const OF_MAIL: [&str; 2] = ["from", "to"];
const OF_HOOK: [&str; 4] = ["format", "template", "signature", "answer_code"];

/// What the layers say of one sink.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Where it was first named.
    origin: Origin,
    values: BTreeMap<&'static str, Value>,
    to: Vec<String>,
    is_unsound: bool,
}

/// Sinks that are ready.
#[derive(Clone, Default)]
pub struct Sinks(pub Vec<Arc<dyn AlertSink>>);

impl fmt::Debug for Sinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|sink| sink.name())).finish()
    }
}

fn leaf(key: &Key) -> &'static str {
    key.path.strip_prefix(PREFIX).unwrap_or(key.path)
}

fn key_of(name: &str) -> Option<&'static Key> {
    WATCH_SINK_KEYS.iter().find(|key| leaf(key) == name)
}

/// The key that `name` sets, and whether it names a file that holds the value.
fn named(name: &str) -> Result<(&'static Key, bool), String> {
    let twin = || name.strip_suffix("_file").and_then(key_of).filter(|key| key.has_file_twin());
    key_of(name).map(|key| (key, false)).or_else(|| Some((twin()?, true))).ok_or_else(|| {
        let twins = ["url_file", "secret_file", "template_file"];
        let near = keys::nearest(name, WATCH_SINK_KEYS.iter().map(leaf).chain(twins));
        let near = near.map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
        format!(": unknown key {name:?}{near}")
    })
}

/// Reads the list `watch.sink` of a file.
pub fn from_toml(layers: &mut Layers, value: &Spanned<DeValue<'_>>, place: &dyn Fn(usize) -> Origin) {
    let at = place(value.span().start);
    let DeValue::Array(items) = value.get_ref() else {
        return layers.fault(&at, "sinks are written as [[watch.sink]], each with kind and url");
    };
    for item in items {
        let origin = place(item.span().start);
        let DeValue::Table(table) = item.get_ref() else {
            layers.fault(&origin, "a sink is a table; write [[watch.sink]] above its keys");
            continue;
        };
        let mut entry = Entry::new(origin);
        for (name, value) in table {
            let at = place(name.span().start);
            if let Err(why) = entry.read(name.get_ref(), value.get_ref(), at.clone(), table) {
                entry.is_unsound = true;
                layers.fault(&at, format_args!("watch.sink{why}"));
            }
        }
        layers.sinks.insert(layers.sinks.len() + 1, entry);
    }
}

/// Takes the variable `variable`, if it is a sink's; false: it is not.
pub fn from_env(layers: &mut Layers, variable: &str, text: &str) -> bool {
    let Some((digits, name)) = variable.strip_prefix(VARIABLE).and_then(|rest| rest.split_once('_')) else {
        return false;
    };
    // Not 01, which would be another variable for the same.
    let Some(number) = digits.parse::<usize>().ok().filter(|number| number.to_string() == digits) else {
        return false;
    };
    let at = Origin::Env(variable.to_owned());
    let entry = layers.sinks.entry(number).or_insert_with(|| Entry::new(at.clone()));
    if let Err(why) = entry.read_variable(&name.to_lowercase(), text, at.clone()) {
        entry.is_unsound = true;
        layers.fault(&at, format_args!("watch.sink{why}"));
    }
    true
}

impl Entry {
    fn new(origin: Origin) -> Self {
        Self { origin, values: BTreeMap::new(), to: Vec::new(), is_unsound: false }
    }

    fn read(&mut self, name: &str, value: &DeValue<'_>, at: Origin, siblings: &DeTable<'_>) -> Result<(), String> {
        if let ("to", DeValue::Array(items)) = (name, value) {
            let texts: Option<Vec<_>> = items.iter().map(|item| Some(item.get_ref().as_str()?.to_owned())).collect();
            self.to = texts.ok_or(".to must be an address in quotes, or a list of them")?;
            let shown = Raw::Text(self.to.join(", "));
            self.values.insert("to", Value { raw: shown, origin: at });
            return Ok(());
        }
        let (key, is_file) = named(name)?;
        if is_file && siblings.contains_key(leaf(key)) {
            return Err(format!(": {name} and {} are both set; keep one of them", leaf(key)));
        }
        match (raw_of(value), is_file) {
            (Some(Raw::Text(file)), true) => self.set_from_file(key, name, file, at),
            (Some(raw), false) => self.set(key, name, Value { raw, origin: at }),
            (_, true) => Err(format!(".{name} must be the path of a file, in quotes")),
            (None, false) => Err(format!(".{name} must be a text in quotes")),
        }
    }

    fn read_variable(&mut self, name: &str, text: &str, at: Origin) -> Result<(), String> {
        let (key, is_file) = named(name)?;
        // The file's is overruled; two variables for one value contradict each other.
        if let Some(other) = self.values.get(leaf(key)).and_then(|value| value.origin.variable()) {
            return Err(format!(".{name}: it and {other} are both set; keep one of them"));
        }
        match is_file {
            true => self.set_from_file(key, name, text.to_owned(), at),
            false => self.set(key, name, Value { raw: Raw::Text(text.to_owned()), origin: at }),
        }
    }

    fn set_from_file(&mut self, key: &'static Key, name: &str, file: String, by: Origin) -> Result<(), String> {
        let text = read_secret(name, &file)?;
        self.set(key, name, Value { raw: Raw::Text(text), origin: Origin::Secret { path: file, by: Box::new(by) } })
    }

    fn set(&mut self, key: &'static Key, name: &str, value: Value) -> Result<(), String> {
        // Not the value itself: a URL may be a secret as a whole.
        value.check(key).map_err(|must| format!(".{name}: it {must}"))?;
        if name == "to" {
            let text = value.text().unwrap_or_default();
            self.to = match value.origin.variable() {
                Some(_) => text.split(',').map(|address| address.trim().to_owned()).collect(),
                None => vec![text.to_owned()],
            };
        }
        self.values.insert(leaf(key), value);
        Ok(())
    }

    /// Where it was written, with the variables that set a part of it.
    fn place(&self) -> String {
        let mut places = vec![self.origin.to_string()];
        for variable in self.values.values().filter_map(|value| value.origin.variable()) {
            if !places.iter().any(|place| place == variable) {
                places.push(variable.to_owned());
            }
        }
        places.join(", ")
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.values.get(name)?.text()
    }

    /// Its name: its own, or its kind and host.
    fn name(&self, taken: &[Arc<dyn AlertSink>]) -> String {
        if let Some(name) = self.text("name") {
            return name.to_owned();
        }
        let host = self.text("url").and_then(|url| Some(reqwest::Url::parse(url).ok()?.host_str()?.to_owned()));
        let plain = format!("{}-{}", self.text("kind").unwrap_or_default(), host.unwrap_or_default());
        let is_taken = |name: &str| taken.iter().any(|sink| sink.name() == name);
        let numbered = (2..).map(|n| format!("{plain}-{n}"));
        std::iter::once(plain.clone()).chain(numbered).find(|name| !is_taken(name)).unwrap_or_default()
    }

    fn built(&self, taken: &[Arc<dyn AlertSink>]) -> Result<Arc<dyn AlertSink>, String> {
        let kind = self.text("kind").ok_or(" needs a kind: \"smtp\" or \"webhook\"")?;
        let url = self.text("url").ok_or(" needs a url (or url_file)")?.to_owned();
        let foreign: &[&str] = if kind == "smtp" { &OF_HOOK } else { &OF_MAIL };
        if let Some(name) = foreign.iter().find(|name| self.values.contains_key(*name)) {
            return Err(format!(": {name} is no key of a sink of the kind {kind:?}"));
        }
        let least = match self.text("severity") {
            Some("critical") => Severity::Critical,
            Some("warning") => Severity::Warning,
            _ => Severity::Info,
        };
        let file = |name: &str| self.text(name).map(|file| read_bytes(name, file)).transpose();
        // As it is but for a line break at its end: a password may begin with a blank.
        let secret = self.values.get("secret").map(|secret| secret.raw.to_string().trim_end().to_owned());
        let sink = SinkOptions { name: self.name(taken), least, authority: file("ca_file")? };
        if kind == "smtp" {
            let from = self.text("from").ok_or(" needs the sender: from = \"tidegate@example.com\"")?.to_owned();
            let options = MailOptions { url, password: secret, from, to: self.to.clone() };
            return alerts::mail(sink, options).map_err(|why| format!(": {why}"));
        }
        let form = match (self.text("template"), self.text("format")) {
            (Some(_), Some(_)) => return Err(": template and format are both set; keep one of them".to_owned()),
            (Some(text), None) => HookForm::Template(Template::parse(text).map_err(|why| format!(": {why}"))?),
            (None, name) => HookForm::named(name.unwrap_or("json")).unwrap_or(HookForm::Json),
        };
        let signature = match self.text("signature") {
            Some("dingtalk") => Some(Signature::DingTalk),
            Some("feishu") => Some(Signature::Feishu),
            Some(_) => Some(Signature::Standard),
            None => None,
        };
        if signature.is_some() && secret.is_none() {
            return Err(": a signature needs a secret (or secret_file)".to_owned());
        }
        let code = self.text("answer_code").map(CodeField::named);
        alerts::hook(sink, HookOptions { url, form, secret, signature, code }).map_err(|why| format!(": {why}"))
    }
}

fn read_bytes(name: &str, file: &str) -> Result<Vec<u8>, String> {
    std::fs::read(file).map_err(|e| format!(".{name}: cannot read {file}: {e}; check the path and its permissions"))
}

fn read_secret(name: &str, file: &str) -> Result<String, String> {
    let bytes = read_bytes(name, file)?;
    let text = String::from_utf8(bytes).map_err(|_| format!(".{name}: {file} is no text"))?;
    Ok(text.trim_end().to_owned())
}

/// The sinks that the layers make; what is wrong is noted.
pub fn built(layers: &mut Layers) -> Sinks {
    let mut made: Vec<Arc<dyn AlertSink>> = Vec::new();
    let mut next = 1;
    for (&number, entry) in &layers.sinks {
        let fault = if number != next {
            Some(format!(
                ": the next sink is number {next}, not {number}: they are numbered from 1 on, the file's first, without gaps"
            ))
        } else if entry.is_unsound {
            // That is told already.
            None
        } else {
            match entry.built(&made) {
                Ok(sink) if made.iter().any(|other| other.name() == sink.name()) => {
                    Some(format!(": two sinks have the name {:?}; give each its own", sink.name()))
                }
                Ok(_) if made.len() >= MAX_SINKS => Some(format!(": there are more than {MAX_SINKS}")),
                Ok(sink) => {
                    made.push(sink);
                    None
                }
                Err(why) => Some(why),
            }
        };
        if let Some(what) = fault {
            layers.faults.push(format!("{}: watch.sink{what}", entry.place()));
        }
        next = number.saturating_add(1);
    }
    Sinks(made)
}

/// Every key that is set of every sink, as `[key, value, where it came from]`, without secrets.
pub fn shown(layers: &Layers) -> Vec<[String; 3]> {
    let of_sink = |(number, entry): (&usize, &Entry)| {
        let row = |(leaf, value): (&&str, &Value)| {
            let text = value.raw.to_string();
            let shown = match *leaf {
                "url" => shown_url(&text),
                "secret" => "***".to_owned(),
                _ => text,
            };
            [format!("watch.sink.{number}.{leaf}"), shown, value.origin.to_string()]
        };
        entry.values.iter().map(row).collect::<Vec<_>>()
    };
    layers.sinks.iter().flat_map(of_sink).collect()
}

/// Where it leads, without what may be a secret: all of a webhook's behind the host.
fn shown_url(url: &str) -> String {
    let hidden = value::without_password(url);
    match hidden.split_once("://") {
        Some((scheme @ ("http" | "https"), rest)) => {
            let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
            format!("{scheme}://{host}/***")
        }
        Some(_) => hidden,
        None => "***".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_with(toml: &str, env: &[(&str, &str)]) -> (Vec<String>, Vec<[String; 3]>, Vec<String>) {
        let mut layers = Layers::default();
        layers.read_toml("t.toml", toml);
        layers.read_env(env.iter().map(|(name, text)| (format!("TIDEGATE_WATCH_SINK_{name}"), (*text).to_owned())));
        let sinks = built(&mut layers);
        let names = sinks.0.iter().map(|sink| sink.name().to_owned()).collect();
        (names, shown(&layers), layers.faults)
    }

    fn read(toml: &str) -> (Vec<String>, Vec<[String; 3]>, Vec<String>) {
        read_with(toml, &[])
    }

    #[test]
    fn sinks_of_each_kind() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let (url, key) =
            (file("url", "http://hooks.example/T0/s3cret\n"), file("key", &format!("whsec_{}\n", "A".repeat(44))));
        let (names, shown, faults) = read(&format!(
            "[[watch.sink]]\nkind = \"smtp\"\nurl = \"smtp://127.0.0.1:25\"\nfrom = \"Tide <a@b.example>\"\nto = [\"c@d.example\", \"e@f.example\"]\n\
             [[watch.sink]]\nkind = \"webhook\"\nurl_file = {url:?}\nformat = \"slack\"\nseverity = \"critical\"\n\
             [[watch.sink]]\nkind = \"webhook\"\nurl_file = {url:?}\nsecret_file = {key:?}\n\
             [[watch.sink]]\nkind = \"webhook\"\nname = \"mine\"\nurl = \"http://h/s3cret\"\ntemplate = '''{{\"a\": \"{{{{text}}}}\"}}'''\nanswer_code = \"status\"\n"
        ));
        assert_eq!(faults, Vec::<String>::new());
        assert_eq!(names, ["smtp-127.0.0.1", "webhook-hooks.example", "webhook-hooks.example-2", "mine"]);
        let value = |path: &str| shown.iter().find(|row| row[0] == path).map(|row| row[1].as_str());
        assert_eq!(value("watch.sink.2.url"), Some("http://hooks.example/***"));
        assert_eq!(value("watch.sink.1.to"), Some("c@d.example, e@f.example"));
        assert!(shown.iter().all(|row| !row[1].contains("s3cret")), "{shown:?}");
    }

    #[test]
    fn faults_are_named() {
        let mail = "kind = \"smtp\"\nurl = \"smtp://127.0.0.1\"\nfrom = \"a@b.example\"\nto = \"c@d.example\"\n";
        let hook = "kind = \"webhook\"\nurl = \"http://h/x\"\n";
        for (sink, want) in [
            ("url = \"http://h\"".to_owned(), "t.toml:1: watch.sink needs a kind"),
            ("kind = \"webhook\"".to_owned(), "watch.sink needs a url (or url_file)"),
            ("kind = \"pager\"\nurl = \"http://h\"".to_owned(), "must be one of \"smtp\", \"webhook\""),
            (
                format!("{hook}formt = \"slack\""),
                "t.toml:4: watch.sink: unknown key \"formt\"; did you mean \"format\"?",
            ),
            (format!("{hook}format = \"teams\""), "must be one of \"json\", \"slack\""),
            (format!("{hook}format = \"slack\"\ntemplate = '{{}}'"), "template and format are both set"),
            (format!("{hook}template = '{{\"a\": {{{{text}}}}}}'"), "only inside of quotes"),
            (format!("{hook}template = '{{\"a\": \"{{{{txt}}}}\"}}'"), "{{txt}} is no field"),
            (format!("{hook}from = \"a@b\""), "from is no key of a sink of the kind \"webhook\""),
            (format!("{hook}signature = \"feishu\""), "a signature needs a secret"),
            (format!("{hook}secret = \"a\"\nsecret_file = \"/x\""), "secret_file and secret are both set"),
            (format!("{hook}secret_file = \"/nonexistent\""), "secret_file: cannot read /nonexistent"),
            (format!("{hook}ca_file = \"/nonexistent\""), "ca_file: cannot read /nonexistent"),
            ("kind = \"webhook\"\nurl = \"ftp://h/x\"".to_owned(), "begins with https:// or http://"),
            (mail.replace("smtp://127.0.0.1", "http://h"), "begins with smtps://"),
            (mail.replace("smtp://127.0.0.1", "smtp://u@127.0.0.1"), "add secret_file"),
            (mail.replace("smtp://127.0.0.1", "smtp://u:p@mail.example?tls=off"), "a password is sent only over TLS"),
            (mail.replace("smtp://127.0.0.1", "smtp://h?tls=maybe"), "required, opportunistic, off"),
            (mail.replace("smtp://127.0.0.1", "smtp://h/path"), "and nothing more"),
            (mail.replace("c@d.example", "nobody"), "\"nobody\" is no address"),
            (mail.replace("from =", "# from ="), "needs the sender"),
            (mail.replace("to =", "# to ="), "`to` has 1 to 50 addresses"),
            (mail.replace("to = \"c@d.example\"", "to = [1]"), "a list of them"),
            (format!("{mail}format = \"slack\""), "format is no key of a sink of the kind \"smtp\""),
        ] {
            let (_, _, faults) = read(&format!("[[watch.sink]]\n{sink}"));
            assert!(faults.len() == 1 && faults[0].contains(want), "{sink}: {faults:?}");
        }
        let (_, _, faults) = read(&format!("[[watch.sink]]\n{hook}name = \"a\"\n[[watch.sink]]\n{hook}name = \"a\""));
        assert!(faults.len() == 1 && faults[0].contains("the name \"a\""), "{faults:?}");
        let (_, _, faults) = read("[watch]\nsink = 5");
        assert!(faults.len() == 1 && faults[0].contains("[[watch.sink]]"), "{faults:?}");
    }

    #[test]
    fn variables_set_parts_of_the_files_sinks_and_add_others() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("password");
        std::fs::write(&file, "s3cret pass\n").unwrap();
        let mail = "[[watch.sink]]\nkind = \"smtp\"\nurl = \"smtps://u@mail.example\"\nfrom = \"a@b.example\"\nto = \"c@d.example\"\n\
                    severity = \"critical\"\n";
        let (names, shown, faults) = read_with(
            mail,
            &[
                ("1_SECRET_FILE", file.to_str().unwrap()),
                ("1_TO", "e@f.example, Ann <g@h.example>"),
                ("1_SEVERITY", "warning"),
                ("2_KIND", "webhook"),
                ("2_URL", "https://hooks.example/s3cret"),
                ("2_SECRET", &format!("whsec_{}", "A".repeat(44))),
            ],
        );
        assert_eq!(faults, Vec::<String>::new());
        assert_eq!(names, ["smtp-mail.example", "webhook-hooks.example"]);
        let row = |path: &str| shown.iter().find(|row| row[0] == path).map(|[_, value, from]| (&**value, &**from));
        let from_file = format!("the file {} (named by TIDEGATE_WATCH_SINK_1_SECRET_FILE)", file.display());
        assert_eq!(row("watch.sink.1.secret"), Some(("***", &*from_file)));
        assert_eq!(row("watch.sink.1.severity"), Some(("warning", "TIDEGATE_WATCH_SINK_1_SEVERITY")));
        assert_eq!(row("watch.sink.1.from"), Some(("a@b.example", "t.toml:4")));
        assert_eq!(row("watch.sink.2.url"), Some(("https://hooks.example/***", "TIDEGATE_WATCH_SINK_2_URL")));
        assert_eq!(row("watch.sink.2.secret"), Some(("***", "TIDEGATE_WATCH_SINK_2_SECRET")));
        assert!(!format!("{shown:?}").contains("s3cret") && !format!("{shown:?}").contains("whsec_"), "{shown:?}");
        // More than nine: the tenth comes behind the second.
        let ten: Vec<(String, &str)> =
            (1..=10).flat_map(|n| [(format!("{n}_KIND"), "webhook"), (format!("{n}_URL"), "http://h/x")]).collect();
        let ten: Vec<(&str, &str)> = ten.iter().map(|(name, text)| (&**name, *text)).collect();
        let (names, _, faults) = read_with("", &ten);
        assert_eq!((names.len(), faults), (10, Vec::new()));
        assert_eq!(names[9], "webhook-h-10");
    }

    #[test]
    fn faults_of_variables_are_named() {
        let hook = [("1_KIND", "webhook"), ("1_URL", "http://h/x")];
        for (more, want) in [
            (&[("1_FORMT", "json")][..], "SINK_1_FORMT: watch.sink: unknown key \"formt\"; did you mean \"format\"?"),
            (
                &[("1_URL_FILE", "/x")],
                "SINK_1_URL_FILE: watch.sink.url_file: it and TIDEGATE_WATCH_SINK_1_URL are both",
            ),
            (
                &[("1_SECRET_FILE", "/nonexistent")],
                "SINK_1_SECRET_FILE: watch.sink.secret_file: cannot read /nonexistent",
            ),
            (&[("1_SECRET", "")], "SINK_1_SECRET: watch.sink.secret: it must be a text"),
            (&[("1_SECRET", "short")], "SINK_1_URL: watch.sink: the secret of a signed webhook is whsec_"),
            (&[("1_FORMAT", "teams")], "SINK_1_FORMAT: watch.sink.format: it must be one of \"json\""),
            (&[("1_TEMPLATE", "{}"), ("1_FORMAT", "slack")], "template and format are both set"),
            (&[("3_SECRET", "x")], "SINK_3_SECRET: watch.sink: the next sink is number 2, not 3"),
            (&[("0_KIND", "smtp")], "SINK_0_KIND: watch.sink: the next sink is number 1, not 0"),
            (&[("2_SECRET", "x")], "SINK_2_SECRET: watch.sink needs a kind"),
            (&[("01_KIND", "smtp")], "SINK_01_KIND: unknown variable"),
            (&[("ONE_KIND", "smtp")], "SINK_ONE_KIND: unknown variable"),
        ] {
            let (_, _, faults) = read_with("", &[&hook[..], more].concat());
            assert!(faults.len() == 1 && faults[0].contains(want), "{more:?}: {faults:?}");
            assert!(faults[0].starts_with("TIDEGATE_WATCH_SINK_"), "{faults:?}");
        }
        let of_file = "[[watch.sink]]\nkind = \"webhook\"\nurl = \"http://h/x\"\nformat = \"slack\"\n";
        let (_, _, faults) = read_with(of_file, &[("1_TEMPLATE", "{}")]);
        let want = "t.toml:1, TIDEGATE_WATCH_SINK_1_TEMPLATE: watch.sink: template and format are both set";
        assert!(faults.len() == 1 && faults[0].starts_with(want), "{faults:?}");
    }

    /// The example file's, with their hashes and blanks taken away and their secrets where they are said to be.
    #[test]
    fn the_sinks_of_the_example_are_accepted() {
        let text = include_str!("../../../../tidegate.example.toml");
        let from = text.find("# [[watch.sink]]").unwrap();
        let block: Vec<&str> = text[from..].lines().take_while(|line| line.starts_with('#')).collect();
        let block: String = block.iter().map(|line| format!("{}\n", line.trim_start_matches(['#', ' ']))).collect();
        let dir = tempfile::tempdir().unwrap();
        let secrets = dir.path().display().to_string();
        for line in block.lines().filter_map(|line| line.split_once("_file = \"/run/secrets/")) {
            let name = line.1.split('"').next().unwrap();
            std::fs::write(dir.path().join(name), format!("whsec_{}\n", "A".repeat(44))).unwrap();
        }
        let block = block.replace("/run/secrets", &secrets);
        let (names, shown, faults) = read(&block);
        assert_eq!(faults, Vec::<String>::new(), "{block}");
        let of = |leaf: &str| {
            let values = shown.iter().filter(|row| row[0].rsplit('.').next() == Some(leaf));
            values.map(|row| row[1].as_str()).collect::<Vec<_>>()
        };
        assert_eq!(of("kind"), ["smtp", "webhook", "webhook", "webhook", "webhook", "webhook", "webhook"]);
        assert_eq!(of("format"), ["json", "slack", "dingtalk", "feishu", "wecom"]);
        assert_eq!((of("template").len(), of("secret").len(), names.len()), (1, 4, 7), "{shown:?}");
    }
}
