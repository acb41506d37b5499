//! Values out of a tree: `None` when a node is not what is asked for.

use serde_json::{Map, Number, Value};
use tidegate::core::Millis;

use super::json::Node;
use super::{Faults, Pointer};

/// A text.
pub(crate) fn text<'n>(node: &'n Node<'_>) -> Option<&'n str> {
    match node {
        Node::Text(text) => Some(text),
        _ => None,
    }
}

/// A whole number, written without fraction or exponent, that fits 64 bits.
pub(crate) fn integer(node: &Node<'_>) -> Option<i64> {
    match node {
        Node::Number(digits) => digits.parse().ok(),
        _ => None,
    }
}

/// True or false.
pub(crate) fn flag(node: &Node<'_>) -> Option<bool> {
    match node {
        Node::Bool(flag) => Some(*flag),
        _ => None,
    }
}

/// An instant of RFC 3339; finer than a millisecond is cut off.
pub(crate) fn instant(node: &Node<'_>) -> Option<Millis> {
    text(node).and_then(parse_instant)
}

/// An instant of RFC 3339 in a text.
pub(crate) fn parse_instant(text: &str) -> Option<Millis> {
    let bytes = text.as_bytes();
    // jiff reads more than RFC 3339 does (other separators, weeks, ordinals); the contract does not.
    let separated =
        bytes.len() >= 20 && bytes[..4].iter().all(u8::is_ascii_digit) && matches!(bytes[10], b'T' | b't' | b' ');
    if !separated
        || bytes[4] != b'-'
        || bytes[7] != b'-'
        || bytes[13] != b':'
        || bytes[16] != b':'
        || text.contains('[')
    {
        return None;
    }
    match text.parse::<jiff::Timestamp>() {
        // The contract's instants begin with the year 1.
        Ok(at) => Some(Millis(at.as_millisecond())).filter(|at| *at >= Millis::MIN),
        Err(_) => last_instants(text),
    }
}

/// An instant of the last days of the year 9999, which jiff's own ends before.
fn last_instants(text: &str) -> Option<Millis> {
    let (local, offset) = match text.strip_suffix(['Z', 'z']) {
        Some(local) => (local, 0),
        None => {
            let (local, offset) = text.split_at_checked(text.len().checked_sub(6)?)?;
            let (sign, offset) = (offset.strip_prefix('-').map_or(1, |_| -1), &offset[1..]);
            let (hours, minutes) = offset.split_once(':')?;
            let (hours, minutes): (i64, i64) = (hours.parse().ok()?, minutes.parse().ok()?);
            if !text.is_ascii() || !(0..24).contains(&hours) || !(0..60).contains(&minutes) {
                return None;
            }
            (local, sign * (hours * 60 + minutes) * 60_000)
        }
    };
    let local: jiff::civil::DateTime = local.strip_prefix("9999-12-3").and(Some(local))?.parse().ok()?;
    let since = local.duration_since(jiff::civil::date(1970, 1, 1).at(0, 0, 0, 0));
    let at = Millis(i64::try_from(since.as_millis()).ok()?.checked_sub(offset)?);
    (at <= Millis::MAX).then_some(at)
}

/// A JSON value of the caller's, with every fault in it noted.
pub(crate) fn json(node: &Node<'_>, pointer: &Pointer<'_>, faults: &mut Faults) -> Value {
    match node {
        Node::Null => Value::Null,
        Node::Bool(flag) => Value::Bool(*flag),
        Node::Text(text) => Value::String(text.clone().into_owned()),
        Node::LoneSurrogate => {
            faults.add(pointer, "must not contain a lone surrogate");
            Value::Null
        }
        Node::Number(digits) => match number(digits) {
            Ok(number) => Value::Number(number),
            Err(must) => {
                faults.add(pointer, must);
                Value::Null
            }
        },
        Node::Array(items) => {
            Value::Array(items.iter().enumerate().map(|(i, item)| json(item, &pointer.item(i), faults)).collect())
        }
        Node::Object(members) => {
            let mut object = Map::new();
            for (name, value) in members {
                let place = pointer.member(name);
                let value = json(value, &place, faults);
                if object.insert(name.clone().into_owned(), value).is_some() {
                    faults.add(place, "appears twice; send it once");
                }
            }
            Value::Object(object)
        }
    }
}

/// Writes a JSON value of the caller's as compact JSON, numbers as they were written, and notes every fault in it.
pub(crate) fn compact(node: &Node<'_>, pointer: &Pointer<'_>, faults: &mut Faults, out: &mut String) {
    match node {
        Node::Null => out.push_str("null"),
        Node::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Node::Number(digits) => out.push_str(digits),
        Node::Text(text) => quote(text, out),
        Node::LoneSurrogate => faults.add(pointer, "must not contain a lone surrogate"),
        Node::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                compact(item, &pointer.item(i), faults, out);
            }
            out.push(']');
        }
        Node::Object(members) => {
            let mut names = std::collections::HashSet::new();
            out.push('{');
            for (i, (name, value)) in members.iter().enumerate() {
                let place = pointer.member(name);
                if !names.insert(name) {
                    faults.add(place, "appears twice; send it once");
                }
                if i > 0 {
                    out.push(',');
                }
                quote(name, out);
                out.push(':');
                compact(value, &place, faults, out);
            }
            out.push('}');
        }
    }
}

/// Writes `text` as a JSON string.
fn quote(text: &str, out: &mut String) {
    out.push_str(&serde_json::to_string(text).expect("a text can be written"));
}

/// The number, or what it must be. A whole number is kept to its last digit: as a float it would be another one.
fn number(digits: &str) -> Result<Number, &'static str> {
    if let Ok(n) = digits.parse::<i64>() {
        return Ok(n.into());
    }
    if let Ok(n) = digits.parse::<u64>() {
        return Ok(n.into());
    }
    if !digits.contains(['.', 'e', 'E']) {
        return Err("must fit in 64 bits; send larger numbers as strings");
    }
    let float = digits.parse().ok().and_then(Number::from_f64);
    float.ok_or("must be a number that fits a 64-bit float; send larger numbers as strings")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_whole_and_fit() {
        for (digits, want) in [
            ("5", Some(5)),
            ("-5", Some(-5)),
            ("9223372036854775807", Some(i64::MAX)),
            ("9223372036854775808", None),
            ("1e21", None),
            ("1.0", None),
            ("1e400", None),
            ("-0", Some(0)),
        ] {
            assert_eq!(integer(&Node::Number(digits)), want, "{digits}");
        }
    }

    #[test]
    fn numbers_are_kept_or_refused() {
        for (digits, want) in [
            ("-9223372036854775808", Some("-9223372036854775808")),
            ("18446744073709551615", Some("18446744073709551615")),
            ("18446744073709551616", None),
            ("-9223372036854775809", None),
            ("12345678901234567891234", None),
            ("1e21", Some("1e21")),
            ("0.5", Some("0.5")),
            ("1e400", None),
        ] {
            let kept = number(digits).ok().map(|number| number.to_string());
            assert_eq!(kept.map(|text| text.replace("e+", "e")).as_deref(), want, "{digits}");
        }
    }

    #[test]
    fn values_are_kept_as_they_were_written() {
        for (sent, want) in [
            (
                r#" { "a" : [ 1.50, 1e400, -0 , 18446744073709551616 ] } "#,
                r#"{"a":[1.50,1e400,-0,18446744073709551616]}"#,
            ),
            (r#"["\u00e9\n\u0001\""]"#, r#"["é\n\u0001\""]"#),
            ("[]", "[]"),
            ("true", "true"),
        ] {
            let node = super::super::json::parse(sent.as_bytes()).expect("JSON");
            let (mut faults, mut text) = (Faults::default(), String::new());
            compact(&node, &Pointer::Root, &mut faults, &mut text);
            assert!(faults.refuse().is_ok());
            assert_eq!(text, want);
        }
        for sent in [r#"{"a":1,"a":2}"#, r#"["\ud800"]"#] {
            let node = super::super::json::parse(sent.as_bytes()).expect("JSON");
            let mut faults = Faults::default();
            compact(&node, &Pointer::Root, &mut faults, &mut String::new());
            assert!(faults.refuse().is_err(), "{sent}");
        }
    }

    #[test]
    fn instants() {
        for (text, want) in [
            ("2026-11-29T15:08:10.000Z", Some(1_795_964_890_000)),
            ("2026-11-29T16:08:10+01:00", Some(1_795_964_890_000)),
            ("2026-11-29T15:08:10.0009Z", Some(1_795_964_890_000)),
            ("9999-12-30T22:00:01Z", Some(253_402_207_201_000)),
            ("9999-12-31T23:59:59.999Z", Some(253_402_300_799_999)),
            ("9999-12-31T23:59:59.999-00:01", None),
            ("0001-01-01T00:00:00Z", Some(Millis::MIN.0)),
            ("0000-12-31T23:59:59Z", None),
            ("0001-01-01T00:00:00+00:01", None),
            ("9999-12-31T23:59:59+01:00", Some(253_402_297_199_000)),
            ("9999-12-32T00:00:00Z", None),
            ("9999-12-31T23:59:59+é1:0", None),
            ("2026-11-29", None),
            ("2026-11-29T15:08:10", None),
            ("2026-W48-7T15:08:10Z", None),
            ("2026-02-30T00:00:00Z", None),
            ("2026-11-29T15:08:10Z[Europe/Berlin]", None),
            ("", None),
            ("yesterday", None),
            ("éééééééééééééééééééé", None),
        ] {
            assert_eq!(parse_instant(text).map(|at| at.0), want, "{text}");
        }
    }
}
