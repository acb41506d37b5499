//! Names of keys: shown whatever bytes they have, their prefixes, and whose they are if they are ours.

use std::fmt::Write;

/// Longest prefix that is told apart, bytes.
const MAX_PREFIX: usize = 64;

/// The name with everything that no terminal and no JSON should meet written as `\n`, `\xff` and the like.
#[must_use]
pub fn escaped(name: &[u8]) -> String {
    let mut out = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                c if c.is_control() && c.is_ascii() => {
                    let _ = write!(out, "\\x{:02x}", u32::from(c));
                }
                // What a terminal would obey, or turn the line around with.
                c if c.is_control()
                    || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') =>
                {
                    let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
                }
                c => out.push(c),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out
}

/// What a key has in common with others of its kind: its name up to the first colon, else up to the first of `/ . - _ |`, else up to
/// the first digit. Nothing where there is none of these, or too late.
#[must_use]
pub fn prefix(name: &[u8]) -> &[u8] {
    let head = &name[..name.len().min(MAX_PREFIX)];
    let colon = head.iter().position(|byte| *byte == b':');
    let other = || head.iter().position(|byte| b"/.-_|".contains(byte));
    match colon.or_else(other) {
        Some(end) => &head[..=end],
        None => &head[..head.iter().position(u8::is_ascii_digit).unwrap_or(0)],
    }
}

/// What a key of Tidegate's is for; `None`: it is somebody else's. These are never to be deleted by hand.
#[must_use]
pub fn purpose(name: &[u8]) -> Option<&'static str> {
    if let Some(rest) = name.strip_prefix(b"tg:") {
        let kind = rest.split(|byte| *byte == b':').nth(1)?;
        return match kind {
            b"c" => Some("Tidegate: a cached entry"),
            b"ct" => Some("Tidegate: a tag of cached entries"),
            b"ch" => Some("Tidegate: the cache's hottest keys"),
            _ => None,
        };
    }
    let part = part_in_braces(name)?;
    let is_numbered = |part: &[u8]| part.len() > 1 && part[1..].iter().all(u8::is_ascii_digit);
    Some(match part {
        b"" => "Tidegate: what the nodes of a shop share",
        b"s" => "Tidegate: stock counters",
        b"hot" => "Tidegate: what processes read most",
        b"m" => "Tidegate: a membership filter",
        b"q" => "Tidegate: a delay queue",
        b"lq" => "Tidegate: locks",
        b"cb" => "Tidegate: what caches tell each other",
        part if part.starts_with(b"cb") => "Tidegate: what caches tell each other",
        part if part[0] == b'd' && is_numbered(part) => "Tidegate: deadlines of orders",
        part if part[0] == b'l' && is_numbered(part) => "Tidegate: locks",
        part if part[0] == b'f' && is_numbered(part) => "Tidegate: the feed's copies",
        _ => return None,
    })
}

/// What stands behind the shop's name in the braces of a key of ours.
fn part_in_braces(name: &[u8]) -> Option<&[u8]> {
    let rest = name.strip_prefix(b"{tg:")?;
    let end = rest.iter().position(|byte| *byte == b'}')?;
    Some(rest[..end].split(|byte| *byte == b':').nth(1).unwrap_or_default())
}

/// Whether a key of Tidegate's holds what cannot be read again elsewhere at once: what is shared, stock, deadlines, queues, locks. Cached
/// entries, the feed's copies, filters and what caches tell each other may go at any time.
pub(crate) fn must_stay(name: &[u8]) -> bool {
    purpose(name).is_some()
        && part_in_braces(name).is_some_and(|part| match part {
            b"" | b"s" | b"q" | b"lq" => true,
            part => matches!(part[0], b'd' | b'l'),
        })
}

/// The shop that a key of Tidegate's belongs to.
pub(crate) fn shop(name: &[u8]) -> Option<String> {
    purpose(name)?;
    let rest = name.strip_prefix(b"{tg:").or_else(|| name.strip_prefix(b"tg:"))?;
    let shop = rest.split(|byte| matches!(byte, b':' | b'}')).next()?;
    Some(String::from_utf8_lossy(shop).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// O12.
    #[test]
    fn any_name_can_be_shown() {
        assert_eq!(escaped(b"user:1"), "user:1");
        assert_eq!(escaped("caf\u{e9}\u{1f600}".as_bytes()), "caf\u{e9}\u{1f600}");
        assert_eq!(escaped(b"a\0b\r\n\t\\\x1b[31m\xff\xfe"), "a\\x00b\\r\\n\\t\\\\\\x1b[31m\\xff\\xfe");
        assert_eq!(escaped("\u{202e}x\u{85}".as_bytes()), "\\u{202e}x\\u{85}");
    }

    #[test]
    fn prefixes() {
        for (name, want) in [
            ("user:1:name", "user:"),
            ("a/b.c", "a/"),
            ("item_77", "item_"),
            ("user17", "user"),
            ("plain", ""),
            ("", ""),
        ] {
            assert_eq!(prefix(name.as_bytes()), want.as_bytes(), "{name}");
        }
        let long = [&[b'x'; 100][..], b":1"].concat();
        assert_eq!(prefix(&long), b"");
    }

    #[test]
    fn what_must_stay() {
        for name in ["{tg:shop:d3}:due", "{tg:shop}:owner", "{tg:shop:q:mail}:t", "{tg:a:l7}:h:x", "{tg:shop:lq}:born"]
        {
            assert!(must_stay(name.as_bytes()), "{name}");
        }
        for name in
            ["{tg:shop:f2}:a:anna", "{tg:shop:cb1}:inv", "tg:shop:c:products:{:mug}:0", "{tg:shop:m:x}:state", "user:1"]
        {
            assert!(!must_stay(name.as_bytes()), "{name}");
        }
        assert_eq!(shop(b"{tg:a:l7}:h:x").as_deref(), Some("a"));
        assert_eq!(shop(b"{tg:b}:owner").as_deref(), Some("b"));
        assert_eq!((shop(b"tg:c.d:ch:products").as_deref(), shop(b"user:1")), (Some("c.d"), None));
    }

    #[test]
    fn our_own_keys_are_known() {
        for (name, want) in [
            ("{tg:shop:d3}:due", "deadlines"),
            ("{tg:shop}:owner", "nodes"),
            ("{tg:shop:q:mail}:t", "queue"),
            ("{tg:shop:l7}:h:x", "locks"),
            ("{tg:shop:f2}:a:anna", "feed"),
            ("{tg:shop:cb1}:inv", "caches"),
            ("{tg::hot}:r:0a", "read most"),
            ("tg:shop:c:products:{:mug}:0", "cached"),
        ] {
            assert!(purpose(name.as_bytes()).is_some_and(|purpose| purpose.contains(want)), "{name}");
        }
        for name in ["tg", "tg:", "tg:x", "{tg:", "{tg:shop:zz}:x", "{tg:shop:d}:x", "user:1", "tgx:shop:c:"] {
            assert_eq!(purpose(name.as_bytes()), None, "{name}");
        }
    }
}
