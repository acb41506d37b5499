//! `[[watch.sink]]`: where alerts of the watch go. A list, so that no variable sets a part of it.

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

/// What the path of each key begins with.
const PREFIX: &str = "watch.sink.";
/// Keys of one kind alone.
const OF_MAIL: [&str; 2] = ["from", "to"];
const OF_HOOK: [&str; 4] = ["format", "template", "signature", "answer_code"];

/// What the file says of one sink.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Where it was written.
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
        let mut entry = Entry { origin, values: BTreeMap::new(), to: Vec::new(), is_unsound: false };
        for (name, value) in table {
            let at = place(name.span().start);
            if let Err(why) = entry.read(name.get_ref(), value.get_ref(), at.clone(), table) {
                entry.is_unsound = true;
                layers.fault(&at, format_args!("watch.sink{why}"));
            }
        }
        layers.sinks.push(entry);
    }
}

impl Entry {
    fn read(&mut self, name: &str, value: &DeValue<'_>, at: Origin, siblings: &DeTable<'_>) -> Result<(), String> {
        if let ("to", DeValue::Array(items)) = (name, value) {
            let texts: Option<Vec<_>> = items.iter().map(|item| Some(item.get_ref().as_str()?.to_owned())).collect();
            self.to = texts.ok_or(".to must be an address in quotes, or a list of them")?;
            let shown = Raw::Text(self.to.join(", "));
            self.values.insert("to", Value { raw: shown, origin: at });
            return Ok(());
        }
        let twin = name.strip_suffix("_file").and_then(key_of).filter(|key| key.has_file_twin());
        let Some(key) = key_of(name).or(twin) else {
            let near = keys::nearest(name, WATCH_SINK_KEYS.iter().map(leaf).chain(["url_file", "template_file"]));
            let near = near.map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
            return Err(format!(": unknown key {name:?}{near}"));
        };
        let raw = raw_of(value).ok_or_else(|| format!(".{name} must be a text in quotes"))?;
        let value = match (twin, raw) {
            (None, raw) => Value { raw, origin: at },
            (Some(_), _) if siblings.contains_key(leaf(key)) => {
                return Err(format!(": {name} and {} are both set; keep one of them", leaf(key)));
            }
            (Some(_), Raw::Text(file)) => {
                let text = read_secret(name, &file)?;
                Value { raw: Raw::Text(text), origin: Origin::Secret { path: file, by: Box::new(at) } }
            }
            (Some(_), _) => return Err(format!(".{name} must be the path of a file, in quotes")),
        };
        // Not the value itself: a URL may be a secret as a whole.
        value.check(key).map_err(|must| format!(".{name}: it {must}"))?;
        if name == "to" {
            self.to = vec![value.text().unwrap_or_default().to_owned()];
        }
        self.values.insert(leaf(key), value);
        Ok(())
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
        let secret = self.text("secret_file").map(|file| read_secret("secret_file", file)).transpose()?;
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
            return Err(": a signature needs a secret_file".to_owned());
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

/// The sinks that the file makes; what is wrong is noted.
pub fn built(layers: &mut Layers) -> Sinks {
    let mut made: Vec<Arc<dyn AlertSink>> = Vec::new();
    for entry in std::mem::take(&mut layers.sinks) {
        // What is unsound is told already.
        match if entry.is_unsound { None } else { Some(entry.built(&made)) } {
            Some(Ok(sink)) if made.iter().any(|other| other.name() == sink.name()) => layers.fault(
                &entry.origin,
                format_args!("watch.sink: two sinks have the name {:?}; give each its own", sink.name()),
            ),
            Some(Ok(_)) if made.len() >= MAX_SINKS => {
                layers.fault(&entry.origin, format_args!("watch.sink: there are more than {MAX_SINKS}"));
            }
            Some(Ok(sink)) => made.push(sink),
            Some(Err(why)) => layers.fault(&entry.origin, format_args!("watch.sink{why}")),
            None => {}
        }
        // They stay, to be shown.
        layers.sinks.push(entry);
    }
    Sinks(made)
}

/// Every key that is set of every sink, as `[key, value, where it came from]`, without secrets.
pub fn shown(layers: &Layers) -> Vec<[String; 3]> {
    let of_sink = |(at, entry): (usize, &Entry)| {
        let row = move |(leaf, value): (&&str, &Value)| {
            let text = value.raw.to_string();
            let shown = if *leaf == "url" { shown_url(&text) } else { text };
            [format!("{PREFIX}{}.{leaf}", at + 1), shown, value.origin.to_string()]
        };
        entry.values.iter().map(row).collect::<Vec<_>>()
    };
    layers.sinks.iter().enumerate().flat_map(of_sink).collect()
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

    fn read(toml: &str) -> (Vec<String>, Vec<[String; 3]>, Vec<String>) {
        let mut layers = Layers::default();
        layers.read_toml("t.toml", toml);
        let sinks = built(&mut layers);
        let names = sinks.0.iter().map(|sink| sink.name().to_owned()).collect();
        (names, shown(&layers), layers.faults)
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
            (format!("{hook}signature = \"feishu\""), "needs a secret_file"),
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
}
