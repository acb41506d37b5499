//! The URL template of an origin. A key stands for `{key}` with everything but `A-Z a-z 0-9 - _ . ~` percent-encoded, so
//! whatever it holds it stays within its path segment or query value.
//!
//! A URL parser could still undo that: it takes `.` and `..`, and `%2e` for a dot, as steps of the path. The template may
//! therefore hold no such segment and no half of a percent-encoding, and what the parser makes of each URL is compared with
//! what was written.

use std::fmt::Write;

use reqwest::Url;

/// What stands for the key.
const KEY: &str = "{key}";
/// Longest template, bytes.
const MAX_TEMPLATE_BYTES: usize = 2_048;
/// Most places of the key.
const MAX_PLACES: usize = 8;
/// Stands for any key when a template is tried out.
const SAMPLE: &str = "k";

/// A checked template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Template {
    /// `scheme://host[:port]`, as the parser writes it.
    base: String,
    /// Path and query, around the places of the key.
    pieces: Vec<String>,
}

impl Template {
    /// Reads a template; the error says what it must be.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_TEMPLATE_BYTES {
            return Err(format!("must have at most {MAX_TEMPLATE_BYTES} bytes"));
        }
        let rest = ["http://", "https://"].iter().find_map(|scheme| text.strip_prefix(scheme));
        let rest = rest.ok_or("must begin with http:// or https://")?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, tail) = rest.split_at(end);
        if authority.contains('@') {
            return Err("must not hold a user or password; put them into a header (Authorization)".to_owned());
        }
        if authority.contains(['{', '}']) {
            return Err("must not have {key} in its host or port, only in its path or query".to_owned());
        }
        // A parser would take the next segment for the host, a backslash for a slash, and leave out tabs.
        let good = |b: u8| b.is_ascii_alphanumeric() || b"-._~:[]".contains(&b);
        if authority.is_empty() || !authority.bytes().all(good) {
            return Err(
                "must have a host (of A-Z a-z 0-9 - . or an address; other names in punycode) after ://".to_owned()
            );
        }
        if !tail.starts_with('/') {
            return Err("must have a path after its host, such as http://host/products/{key}".to_owned());
        }
        if tail.contains('#') {
            return Err("must have no fragment (#); origins never see it".to_owned());
        }
        let pieces: Vec<String> = tail.split(KEY).map(str::to_owned).collect();
        if !(2..=MAX_PLACES + 1).contains(&pieces.len()) {
            return Err(format!("must have {KEY} in its path or query, 1 to {MAX_PLACES} times"));
        }
        pieces.iter().try_for_each(|piece| is_sound(piece))?;
        let url = Url::parse(&text.replace(KEY, SAMPLE)).map_err(|e| format!("must be a URL: {e}"))?;
        let base = url.origin().ascii_serialization();
        let template = Self { base, pieces };
        if template.url(SAMPLE).is_none() {
            return Err("must have no . or .. as a segment of its path, and what a URL cannot hold must be \
                        percent-encoded"
                .to_owned());
        }
        Ok(template)
    }

    /// The URL of a key; `None`: the key would not stay in its place.
    pub(crate) fn url(&self, key: &str) -> Option<Url> {
        let mut text = self.base.clone();
        for (i, piece) in self.pieces.iter().enumerate() {
            if i > 0 {
                encode(key, &mut text);
            }
            text.push_str(piece);
        }
        Url::parse(&text).ok().filter(|url| url.as_str() == text)
    }

    /// The host and port, for the log: nothing of it is secret.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// Whether it is reached by TLS.
    pub(crate) fn is_https(&self) -> bool {
        self.base.starts_with("https:")
    }
}

/// Whether a piece between keys is written as a URL wants it.
fn is_sound(piece: &str) -> Result<(), String> {
    let mut bytes = piece.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            // Half of one would become whole with the key.
            b'%' => {
                let whole = [bytes.next(), bytes.next()].iter().all(|b| b.is_some_and(|b| b.is_ascii_hexdigit()));
                if !whole {
                    return Err("must have two hex digits after each %".to_owned());
                }
            }
            b'{' | b'}' => return Err(format!("must have no braces but those of {KEY}")),
            b if b.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/?".contains(&b) => {}
            _ => return Err("must be ASCII, with what a URL cannot hold percent-encoded".to_owned()),
        }
    }
    Ok(())
}

fn encode(key: &str, to: &mut String) {
    for byte in key.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            to.push(char::from(byte));
        } else {
            // Writing to a text cannot fail.
            let _ = write!(to, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_wrong_is_told() {
        for (text, want) in [
            ("ftp://h/{key}", "must begin with http"),
            ("HTTP//h/{key}", "must begin with http"),
            ("{key}://h/", "must begin with http"),
            ("http://{key}/x", "must not have {key} in its host"),
            ("http://h:{key}/x", "must not have {key} in its host"),
            ("http://{key}.example/x", "must not have {key} in its host"),
            ("http://u:p@h/{key}", "must not hold a user or password"),
            ("http://u{key}@h/{key}", "must not hold a user or password"),
            ("http://h", "must have a path"),
            ("http://h?x={key}", "must have a path"),
            ("http://h/x", "must have {key} in its path or query"),
            ("http://h/x#{key}", "must have no fragment"),
            ("http://h/{key}#x", "must have no fragment"),
            ("http://h/{id}/{key}", "must have no braces"),
            ("http://h/{key}/{", "must have no braces"),
            ("http://h/%2{key}", "must have two hex digits"),
            ("http://h/%{key}2e", "must have two hex digits"),
            ("http://h/%zz/{key}", "must have two hex digits"),
            ("http://h/a/../{key}", "must have no . or .."),
            ("http://h/{key}/..", "must have no . or .."),
            ("http://h/%2E%2e/{key}", "must have no . or .."),
            ("http://h/./{key}", "must have no . or .."),
            ("http://h/a b/{key}", "must be ASCII"),
            ("http://h/a\\b/{key}", "must be ASCII"),
            ("http://h/é/{key}", "must be ASCII"),
            ("http://h/\t{key}", "must be ASCII"),
            ("http://h/?q='{key}'", "percent-encoded"),
            ("http:///{key}", "must have a host"),
            ("http://h\\x/{key}", "must have a host"),
            ("http://h\tx/{key}", "must have a host"),
            ("http://h h/{key}", "must have a host"),
            ("http://%6c/{key}", "must have a host"),
            ("http://:80/{key}", "must be a URL"),
            ("http://h:99999/{key}", "must be a URL"),
            ("http://[::1/{key}", "must be a URL"),
            ("http://h/{key}{key}{key}{key}{key}{key}{key}{key}{key}", "1 to 8 times"),
        ] {
            let refused = Template::parse(text).err().unwrap_or_else(|| panic!("{text} is taken"));
            assert!(refused.contains(want), "{text}: {refused}, wanted {want}");
        }
        assert!(Template::parse(&format!("http://h/{}{{key}}", "x".repeat(3_000))).is_err());
    }

    #[test]
    fn keys_are_encoded() {
        for (template, key, want) in [
            ("http://h/p/{key}", "a-b_c.d~e", "http://h/p/a-b_c.d~e"),
            ("http://H.example:80/p/{key}", "a/b", "http://h.example/p/a%2Fb"),
            (
                "https://h:8443/p/{key}/x?id={key}&a=%20",
                "a?b#c&d=e",
                "https://h:8443/p/a%3Fb%23c%26d%3De/x?id=a%3Fb%23c%26d%3De&a=%20",
            ),
            ("http://h/?q={key}", "é +%2F\\@", "http://h/?q=%C3%A9%20%2B%252F%5C%40"),
            ("http://[::1]:9/v.{key}.json", "..x", "http://[::1]:9/v...x.json"),
        ] {
            let url = Template::parse(template).and_then(|template| template.url(key).ok_or("no URL".to_owned()));
            assert_eq!(url.map(String::from), Ok(want.to_owned()), "{template} {key}");
        }
    }

    const TEMPLATES: &[&str] = &[
        "http://h/{key}",
        "http://h/p/{key}/x",
        "http://h/.{key}",
        "http://h/{key}./x",
        "http://h/a/.{key}./b",
        "http://h/%2e{key}/b",
        "http://h/{key}%2E",
        "http://h/{key}{key}/x",
        "http://h//{key}//",
        "http://h/p;v={key}/x",
        "http://h/x?q={key}&p=/{key}",
    ];

    /// Keys of what parsers are known to stumble over.
    fn keys() -> impl Strategy<Value = String> {
        let atom = prop::sample::select(vec![
            ".",
            "..",
            "%",
            "%2e",
            "%2E",
            "2e",
            "e",
            "/",
            "\\",
            "?",
            "#",
            "@",
            ":",
            "&",
            "=",
            "+",
            " ",
            "\t",
            "\n",
            "\r",
            "\0",
            ";",
            "//",
            "é",
            "{key}",
            "{",
            "\u{202e}",
            "\u{ff0e}",
            "\u{2024}",
            "http://evil/",
            "a",
        ]);
        prop_oneof![
            prop::collection::vec(atom, 1..6).prop_map(|atoms| atoms.concat()),
            "\\PC{1,40}",
            any::<String>().prop_filter("not empty", |key| !key.is_empty()),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]
        #[test]
        fn no_key_leaves_its_place(key in keys()) {
            for text in TEMPLATES {
                let template = Template::parse(text).expect("a template");
                let Some(url) = template.url(&key) else {
                    // Only dots can be taken for steps; the route refuses these keys before.
                    prop_assert!(key == "." || key == "..", "{text} refuses {key:?}");
                    continue;
                };
                let sample = template.url(SAMPLE).expect("a URL");
                let count = |url: &Url| url.path_segments().map(Iterator::count);
                prop_assert_eq!(count(&url), count(&sample));
                let (before, after) = (&template.pieces[0], &template.pieces[template.pieces.len() - 1]);
                let tail = &url.as_str()[template.base.len()..];
                prop_assert!(tail.starts_with(before.as_str()) && tail.ends_with(after.as_str()));
                prop_assert_eq!((url.scheme(), url.host_str(), url.port()), ("http", Some("h"), None));
                prop_assert!(url.fragment().is_none() && url.username().is_empty() && url.password().is_none());
                let pairs = |url: &Url| url.query_pairs().count();
                prop_assert_eq!(pairs(&url), pairs(&sample));
                if *text == "http://h/{key}" {
                    let segment = url.path_segments().and_then(|mut all| all.next()).unwrap_or_default();
                    let decoded = crate::request::path::decode(segment).map(std::borrow::Cow::into_owned);
                    prop_assert_eq!(decoded, Some(key.clone()));
                }
            }
        }
    }
}
