//! One value: as it was written, where that was, and what it means.

use std::fmt;

use tracing_subscriber::EnvFilter;

use super::keys::{Key, Kind};

/// What a log filter may look like.
const FILTERS: &str = "write \"info\", or \"info,tidegate=debug\"";

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nobody set it.
    Default,
    /// A line of the configuration file.
    File {
        /// The file as it was named.
        name: String,
        /// From 1.
        line: usize,
    },
    /// An environment variable.
    Env(String),
    /// A flag of the command line.
    Flag(&'static str),
    /// A file that a `..._file` setting names.
    Secret {
        /// The file.
        path: String,
        /// Who named it.
        by: Box<Origin>,
    },
}

impl Origin {
    /// The environment variable, if it was one.
    pub fn variable(&self) -> Option<&str> {
        match self {
            Origin::Env(name) => Some(name),
            Origin::Secret { by, .. } => by.variable(),
            Origin::Default | Origin::File { .. } | Origin::Flag(_) => None,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File { name, line } => write!(f, "{name}:{line}"),
            Origin::Env(name) => f.write_str(name),
            Origin::Flag(name) => f.write_str(name),
            Origin::Secret { path, by } => write!(f, "the file {path} (named by {by})"),
        }
    }
}

/// A value as it was written.
#[derive(Clone, PartialEq, Eq)]
pub enum Raw {
    /// Text: quoted in the file, or from the environment, a flag, a secret's file.
    Text(String),
    /// A bare number of the file.
    Integer(i64),
    /// A bare number of the file with a decimal point.
    Decimal(String),
    /// A bare `true` or `false` of the file.
    Bool(bool),
}

/// Without the text: whether it holds a secret is known to its key alone.
impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Raw::Text(_) => f.write_str("***"),
            Raw::Integer(_) | Raw::Decimal(_) | Raw::Bool(_) => write!(f, "{self}"),
        }
    }
}

impl fmt::Display for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Raw::Text(text) | Raw::Decimal(text) => f.write_str(text),
            Raw::Integer(n) => write!(f, "{n}"),
            Raw::Bool(b) => write!(f, "{b}"),
        }
    }
}

/// A value with its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// As it was written.
    pub raw: Raw,
    /// Where.
    pub origin: Origin,
}

impl Value {
    /// The value of `key` when nobody sets it.
    pub fn default_of(key: &Key) -> Self {
        Self { raw: Raw::Text(key.default.to_owned()), origin: Origin::Default }
    }

    /// Checks the value against `key`; the fault says what it must be.
    pub fn check(&self, key: &Key) -> Result<(), String> {
        match key.kind {
            Kind::Url | Kind::Text | Kind::Line => match self.text() {
                Some("") | None => Err("must be a text in quotes, and not empty".to_owned()),
                Some(_) => Ok(()),
            },
            Kind::Urls => match self.text() {
                Some(_) => Ok(()),
                None => Err("must be a URL in quotes, or a list of them".to_owned()),
            },
            Kind::Address => match self.text().map(str::parse::<std::net::SocketAddr>) {
                Some(Ok(_)) => Ok(()),
                _ => Err("must be an IP address and a port, such as \"127.0.0.1:8080\" or \"[::1]:8080\"".to_owned()),
            },
            Kind::Count(min, max) => match self.number() {
                Some(n) if (min..=max).contains(&n) => Ok(()),
                _ => Err(format!("must be a whole number from {min} to {max}, without quotes ({})", key.unit)),
            },
            Kind::CountOrZero(min, max) => match self.number() {
                Some(n) if n == 0 || (min..=max).contains(&n) => Ok(()),
                _ => Err(format!("must be 0 or a whole number from {min} to {max}, without quotes ({})", key.unit)),
            },
            Kind::LogFilter => match self.text() {
                Some("") | None => Err(format!("must be a text in quotes, and not empty; {FILTERS}")),
                // `serve` reads it in the same way.
                Some(text) => EnvFilter::try_new(text)
                    .map(drop)
                    .map_err(|e| format!("must be a filter of log lines ({e}); {FILTERS}")),
            },
            Kind::Switch => self.switch().map(|_| ()).ok_or_else(|| "must be true or false".to_owned()),
            Kind::Name(longest) => match self.text() {
                Some(text) if is_name(text, longest) => Ok(()),
                _ => Err(format!("must be a name of 1 to {longest} of A-Z a-z 0-9 . _ - in quotes")),
            },
            Kind::File => self.text().map(drop).ok_or_else(|| "must be the path of a file, in quotes".to_owned()),
            Kind::Choice(words) => match self.text() {
                Some(text) if words.contains(&text) => Ok(()),
                _ => Err(format!("must be one of \"{}\"", words.join("\", \""))),
            },
            Kind::Time(min, max) => match self.text().and_then(milliseconds) {
                Some(ms) if (min..=max).contains(&ms) => Ok(()),
                _ => Err(format!(
                    "must be a length of time from \"{}\" to \"{}\", such as \"500ms\", \"10s\", \"5m\", \"1h\", \"7d\"",
                    time_text(min),
                    time_text(max)
                )),
            },
            Kind::TimeOrOff(..) if self.is_off() => Ok(()),
            Kind::TimeOrOff(min, max) => match self.text().and_then(milliseconds) {
                Some(ms) if (min..=max).contains(&ms) => Ok(()),
                _ => Err(format!(
                    "must be \"off\" or a length of time from \"{}\" to \"{}\", such as \"500ms\", \"10s\", \"5m\", \"1h\", \"7d\"",
                    time_text(min),
                    time_text(max)
                )),
            },
            Kind::Tenths(max) => match self.decimal() {
                Some(n) if (0.0..=max as f64 / 10.0).contains(&n) => Ok(()),
                _ => Err(format!("must be a number from 0 to {}, without quotes, such as 0.1", max as f64 / 10.0)),
            },
            Kind::Level => match self.level() {
                Some(n) if n.is_finite() && n >= 0.0 => Ok(()),
                _ => Err("must be a number from 0 on, without quotes, or a size such as \"4MiB\"".to_owned()),
            },
            Kind::Size(min, max) => match self.size() {
                Some(bytes) if (min..=max).contains(&bytes) => Ok(()),
                _ => Err(format!("must be a size from {min} to {max} bytes, such as \"32KiB\", \"64MiB\"")),
            },
        }
    }

    /// The text.
    pub fn text(&self) -> Option<&str> {
        match &self.raw {
            Raw::Text(text) => Some(text.trim()),
            _ => None,
        }
    }

    /// The number. Numbers come as text from everywhere but the file; there a quoted number is a fault.
    pub fn number(&self) -> Option<i64> {
        match (&self.raw, &self.origin) {
            (Raw::Integer(n), _) => Some(*n),
            (Raw::Text(_), Origin::File { .. }) | (Raw::Bool(_) | Raw::Decimal(_), _) => None,
            (Raw::Text(text), _) => text.trim().parse().ok(),
        }
    }

    /// The number, which may have a decimal point. As for [`Value::number`], a quoted one of the file is a fault.
    pub fn decimal(&self) -> Option<f64> {
        match (&self.raw, &self.origin) {
            (Raw::Integer(n), _) => Some(*n as f64),
            (Raw::Text(_), Origin::File { .. }) | (Raw::Bool(_), _) => None,
            (Raw::Text(text) | Raw::Decimal(text), _) => text.trim().parse().ok(),
        }
    }

    /// Whether it is `"off"`.
    pub fn is_off(&self) -> bool {
        self.text() == Some("off")
    }

    /// The switch: `true`, `false`; outside the file `1`, `0`, `yes`, `no`, `on`, `off` as well.
    pub fn switch(&self) -> Option<bool> {
        match (&self.raw, &self.origin) {
            (Raw::Bool(b), _) => Some(*b),
            (Raw::Text(_), Origin::File { .. }) | (Raw::Integer(_) | Raw::Decimal(_), _) => None,
            (Raw::Text(text), _) => match text.trim() {
                "true" | "1" | "yes" | "on" => Some(true),
                "false" | "0" | "no" | "off" => Some(false),
                _ => None,
            },
        }
    }

    /// The length of time, milliseconds.
    pub fn time_ms(&self) -> Option<i64> {
        self.text().and_then(milliseconds)
    }

    /// The size, bytes.
    pub fn size(&self) -> Option<i64> {
        self.text().and_then(bytes)
    }

    /// The number, or the size in bytes.
    pub fn level(&self) -> Option<f64> {
        self.size().map(|bytes| bytes as f64).or_else(|| self.decimal())
    }

    /// The value as `config check` shows it: a password in a URL is hidden.
    pub fn shown(&self, key: &Key) -> String {
        let text = self.raw.to_string();
        match key.kind {
            Kind::Url => without_password(&text),
            Kind::Urls => text.split_whitespace().map(without_password).collect::<Vec<_>>().join(" "),
            _ => text,
        }
    }
}

fn is_name(text: &str, longest: usize) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    (1..=longest).contains(&text.len()) && text.bytes().all(allowed)
}

/// A length of time such as `10s`, in milliseconds.
pub fn milliseconds(text: &str) -> Option<i64> {
    measured(text, &[("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)])
}

/// A size such as `64MiB`, in bytes.
fn bytes(text: &str) -> Option<i64> {
    measured(text, &[("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)])
}

/// A whole number and one of `units`.
fn measured(text: &str, units: &[(&str, i64)]) -> Option<i64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: i64 = text[..digits].parse().ok()?;
    let (_, unit) = units.iter().find(|(name, _)| *name == text[digits..].trim_start())?;
    number.checked_mul(*unit)
}

/// A length of time as people write it.
pub fn time_text(ms: i64) -> String {
    match ms {
        ms if ms % 86_400_000 == 0 && ms > 0 => format!("{}d", ms / 86_400_000),
        ms if ms % 3_600_000 == 0 && ms > 0 => format!("{}h", ms / 3_600_000),
        ms if ms % 60_000 == 0 && ms > 0 => format!("{}m", ms / 60_000),
        ms if ms % 1_000 == 0 => format!("{}s", ms / 1_000),
        ms => format!("{ms}ms"),
    }
}

/// A URL whose password is replaced by `***`: in the user part, and in query values that may be one. A password that is
/// not written as a URL wants it (`/`, `?`, `#` or `@` in it), is hidden, too: rather too much is hidden than too little.
pub fn without_password(url: &str) -> String {
    if url.starts_with("sqlite:") {
        return url.to_owned();
    }
    let (scheme, rest) = match url.find("://") {
        Some(at) => url.split_at(at + 3),
        None => ("", url),
    };
    let shown = match rest.rsplit_once('@') {
        Some((user, host)) if user.contains(':') => {
            let name = user.split(':').next().unwrap_or_default();
            // The last @ may stand in the middle of a secret of the query.
            let last_part = user.rsplit(['?', '&']).next().and_then(|part| part.split_once('='));
            let host = match last_part {
                Some((key, _)) if is_secret(key) => host.find('&').map_or("", |end| &host[end..]),
                _ => host,
            };
            format!("{name}:***@{host}")
        }
        _ => rest.to_owned(),
    };
    let Some((path, query)) = shown.split_once('?') else {
        return format!("{scheme}{shown}");
    };
    let parts = query.split('&').map(|part| match part.split_once('=') {
        Some((name, _)) if is_secret(name) => format!("{name}=***"),
        _ => part.to_owned(),
    });
    format!("{scheme}{path}?{}", parts.collect::<Vec<_>>().join("&"))
}

fn is_secret(name: &str) -> bool {
    let name = name.to_lowercase();
    name.contains("pass") || name.contains("secret")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, want) in [
            ("500ms", Some(500)),
            ("10s", Some(10_000)),
            ("5 m", Some(300_000)),
            ("1h", Some(3_600_000)),
            ("7d", Some(604_800_000)),
            ("10", None),
            ("s", None),
            ("-1s", None),
            ("1.5s", None),
            ("99999999999999999d", None),
        ] {
            assert_eq!(milliseconds(text), want, "{text}");
        }
    }

    #[test]
    fn sizes() {
        for (text, want) in
            [("32KiB", Some(32_768)), ("64 MiB", Some(67_108_864)), ("1kb", None), ("5", None), ("7B", Some(7))]
        {
            assert_eq!(bytes(text), want, "{text}");
        }
    }

    #[test]
    fn passwords_are_hidden() {
        for (url, want) in [
            ("mysql://root:s3cret@db:3306/t?ssl=on", "mysql://root:***@db:3306/t?ssl=on"),
            ("redis://:p%40s@h", "redis://:***@h"),
            ("postgres://u@h/d?password=x&a=b", "postgres://u@h/d?password=***&a=b"),
            ("postgres://u:a@b@h/d", "postgres://u:***@h/d"),
            ("sqlite:a/b.db", "sqlite:a/b.db"),
            ("sqlite:a:b@c.db", "sqlite:a:b@c.db"),
            ("mysql://u:s3/cr?et#x@h:1/d", "mysql://u:***@h:1/d"),
            ("mysql://u:s3/cr@et/x@h/d?ssl=on", "mysql://u:***@h/d?ssl=on"),
            ("redis://:a/b@h", "redis://:***@h"),
            ("postgres://u:p@h/d?password=x@y&a=b", "postgres://u:***@&a=b"),
            ("postgres://u@h:1/d?password=x@y", "postgres://u@h:***@"),
            ("postgres://u@h/d?password=x@y", "postgres://u@h/d?password=***"),
            ("mysql:/u:s3@h/d", "mysql:***@h/d"),
        ] {
            assert_eq!(without_password(url), want, "{url}");
        }
    }
}
