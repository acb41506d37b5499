//! A strict reader of JSON (RFC 8259) into a borrowed tree that keeps what a decoder needs to point at faults:
//! numbers as they were written, members in order, duplicates included.
//!
//! serde's own tree forgets duplicates and takes `1e400` for a syntax error; the contract answers both at their field.

use std::borrow::Cow;

/// Deepest nesting that is read at all; kept objects have a lower bound of their own.
pub(crate) const MAX_DEPTH: usize = 64;
/// Most values in one body; bounds the tree's memory at about 60 MiB.
pub(crate) const MAX_NODES: usize = 1_000_000;

/// A JSON value, borrowing its text from the body.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Node<'a> {
    Null,
    Bool(bool),
    /// The digits as written: grammar checked, size not.
    Number(&'a str),
    Text(Cow<'a, str>),
    /// A string that JSON's grammar allows and Unicode does not.
    LoneSurrogate,
    Array(Vec<Node<'a>>),
    Object(Vec<(Cow<'a, str>, Node<'a>)>),
}

/// Why a body could not be read into a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JsonFault {
    /// Not JSON. Line and column count from 1, columns in bytes.
    Malformed { line: usize, column: usize, expected: &'static str },
    /// JSON, nested deeper than [`MAX_DEPTH`] below this pointer.
    TooDeep(String),
    /// JSON with more than [`MAX_NODES`] values.
    TooMany,
}

/// Reads one JSON value that fills `body`.
pub(crate) fn parse(body: &[u8]) -> Result<Node<'_>, JsonFault> {
    let text = std::str::from_utf8(body).map_err(|e| malformed(body, e.valid_up_to(), "UTF-8"))?;
    let mut reader = Reader { text, at: 0, nodes: 0 };
    reader.blanks();
    let node = reader.value(0)?;
    reader.blanks();
    if reader.at < text.len() {
        return Err(reader.expected("the end of the body"));
    }
    Ok(node)
}

fn malformed(body: &[u8], at: usize, expected: &'static str) -> JsonFault {
    let before = &body[..at.min(body.len())];
    let line = before.iter().filter(|b| **b == b'\n').count() + 1;
    let column = before.iter().rev().take_while(|b| **b != b'\n').count() + 1;
    JsonFault::Malformed { line, column, expected }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    nodes: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn expected(&self, what: &'static str) -> JsonFault {
        malformed(self.text.as_bytes(), self.at, what)
    }

    fn take(&mut self, byte: u8, what: &'static str) -> Result<(), JsonFault> {
        if self.peek() != Some(byte) {
            return Err(self.expected(what));
        }
        self.at += 1;
        Ok(())
    }

    fn value(&mut self, depth: usize) -> Result<Node<'a>, JsonFault> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(JsonFault::TooMany);
        }
        match self.peek() {
            Some(b'{') if depth < MAX_DEPTH => self.object(depth + 1),
            Some(b'[') if depth < MAX_DEPTH => self.array(depth + 1),
            Some(b'{' | b'[') => Err(JsonFault::TooDeep(String::new())),
            Some(b'"') => Ok(self.string()?.map_or(Node::LoneSurrogate, Node::Text)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => self.word(),
        }
    }

    fn word(&mut self) -> Result<Node<'a>, JsonFault> {
        for (word, node) in [("null", Node::Null), ("true", Node::Bool(true)), ("false", Node::Bool(false))] {
            if self.text[self.at..].starts_with(word) {
                self.at += word.len();
                return Ok(node);
            }
        }
        Err(self.expected("a JSON value"))
    }

    fn object(&mut self, depth: usize) -> Result<Node<'a>, JsonFault> {
        self.at += 1;
        self.blanks();
        let mut members = Vec::new();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Node::Object(members));
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err(self.expected("a member's name in double quotes"));
            }
            let Some(name) = self.string()? else {
                return Err(self.expected("a name without a lone surrogate before this"));
            };
            self.blanks();
            self.take(b':', "a colon")?;
            self.blanks();
            let value = self.value(depth).map_err(|fault| below(fault, &name))?;
            members.push((name, value));
            self.blanks();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => break,
                _ => return Err(self.expected("a comma or a closing brace")),
            }
            self.blanks();
        }
        self.at += 1;
        Ok(Node::Object(members))
    }

    fn array(&mut self, depth: usize) -> Result<Node<'a>, JsonFault> {
        self.at += 1;
        self.blanks();
        let mut items = Vec::new();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Node::Array(items));
        }
        loop {
            let item = self.value(depth).map_err(|fault| below(fault, &items.len().to_string()))?;
            items.push(item);
            self.blanks();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => break,
                _ => return Err(self.expected("a comma or a closing bracket")),
            }
            self.blanks();
        }
        self.at += 1;
        Ok(Node::Array(items))
    }

    fn number(&mut self) -> Result<Node<'a>, JsonFault> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return Err(self.expected("a digit")),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.some_digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.some_digits()?;
        }
        Ok(Node::Number(&self.text[start..self.at]))
    }

    fn digits(&mut self) {
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
    }

    fn some_digits(&mut self) -> Result<(), JsonFault> {
        let start = self.at;
        self.digits();
        if self.at == start { Err(self.expected("a digit")) } else { Ok(()) }
    }

    /// A string; `None` when it has a lone surrogate.
    fn string(&mut self) -> Result<Option<Cow<'a, str>>, JsonFault> {
        self.at += 1;
        let start = self.at;
        loop {
            match self.peek() {
                Some(b'"') => {
                    let text = &self.text[start..self.at];
                    self.at += 1;
                    return Ok(Some(Cow::Borrowed(text)));
                }
                Some(b'\\') => return self.escaped(start),
                Some(0..=0x1f) => return Err(self.expected("an escape in place of a control character")),
                Some(_) => self.at += 1,
                None => return Err(self.expected("a closing double quote")),
            }
        }
    }

    fn escaped(&mut self, start: usize) -> Result<Option<Cow<'a, str>>, JsonFault> {
        let mut text = self.text[start..self.at].to_owned();
        let mut sound = true;
        loop {
            let run = self.at;
            while !matches!(self.peek(), Some(b'"' | b'\\' | 0..=0x1f) | None) {
                self.at += 1;
            }
            text.push_str(&self.text[run..self.at]);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(sound.then_some(Cow::Owned(text)));
                }
                Some(b'\\') => match self.escape()? {
                    Some(c) => text.push(c),
                    None => sound = false,
                },
                Some(_) => return Err(self.expected("an escape in place of a control character")),
                None => return Err(self.expected("a closing double quote")),
            }
        }
    }

    /// One escape; `None` when it is a lone surrogate.
    fn escape(&mut self) -> Result<Option<char>, JsonFault> {
        self.at += 1;
        let plain = match self.peek() {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(),
            _ => return Err(self.expected("an escape that JSON knows")),
        };
        self.at += 1;
        Ok(Some(plain))
    }

    fn unicode_escape(&mut self) -> Result<Option<char>, JsonFault> {
        let first = self.four_hex()?;
        if !(0xd800..0xdc00).contains(&first) {
            return Ok(char::from_u32(first));
        }
        if !self.text[self.at..].starts_with("\\u") {
            return Ok(None);
        }
        let back = self.at;
        self.at += 1;
        let second = self.four_hex()?;
        if !(0xdc00..0xe000).contains(&second) {
            self.at = back;
            return Ok(None);
        }
        Ok(char::from_u32(0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00)))
    }

    /// The four digits after the `u` that `at` points to.
    fn four_hex(&mut self) -> Result<u32, JsonFault> {
        self.at += 1;
        let mut value = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|b| char::from(b).to_digit(16));
            value = value * 16 + digit.ok_or_else(|| self.expected("four hexadecimal digits"))?;
            self.at += 1;
        }
        Ok(value)
    }
}

fn below(fault: JsonFault, step: &str) -> JsonFault {
    match fault {
        JsonFault::TooDeep(pointer) => JsonFault::TooDeep(format!("/{}{pointer}", super::pointer::escape(step))),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_what_serde_accepts_and_refuses_what_it_refuses() {
        for text in [
            "null",
            " true ",
            "[]",
            "{}",
            "[1,2]",
            r#"{"a":{"b":[1.5e3,-0,"x\n\u00e9\ud83d\ude00"]}}"#,
            "\"é\"",
            "0",
            "-1",
            "1E+2",
            "",
            " ",
            "[",
            "[1,",
            "[1,]",
            "{",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{a:1}",
            "01",
            "1.",
            ".5",
            "-",
            "+1",
            "1e",
            "nul",
            "tru",
            "\"",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\u{1}\"",
            "[1] x",
            "NaN",
            "\u{feff}{}",
            "'a'",
            "1 2",
            "[1}",
            "\"\t\"",
        ] {
            let want = serde_json::from_str::<serde_json::Value>(text).is_ok();
            assert_eq!(parse(text.as_bytes()).is_ok(), want, "{text:?}");
        }
    }

    #[test]
    fn keeps_what_serde_forgets() {
        let node = parse(br#"{"a":1e400,"a":2,"b":"\ud800"}"#).expect("it is JSON");
        let Node::Object(members) = node else { panic!("an object") };
        assert_eq!(members[0], ("a".into(), Node::Number("1e400")));
        assert_eq!(members[1], ("a".into(), Node::Number("2")));
        assert_eq!(members[2].1, Node::LoneSurrogate);
    }

    #[test]
    fn says_where() {
        assert_eq!(parse(b"{\n \"a\": ?}"), Err(JsonFault::Malformed { line: 2, column: 7, expected: "a JSON value" }));
        assert!(matches!(parse(b"\xff"), Err(JsonFault::Malformed { line: 1, column: 1, .. })));
        let deep = format!("{{\"a\":{}1{}}}", "[".repeat(70), "]".repeat(70));
        let Err(JsonFault::TooDeep(pointer)) = parse(deep.as_bytes()) else { panic!("too deep") };
        assert!(pointer.starts_with("/a/0/0"));
    }
}
