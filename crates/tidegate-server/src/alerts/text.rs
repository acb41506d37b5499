//! A message in words. What servers and clients may have put into a finding (names of keys, of clients) has neither line breaks nor
//! other control characters here, and is cut to a bound: nothing of it becomes a header, an address or a line of ours.

use tidegate::watch::Severity;
use tidegate::watch::alerts::{Alert, AlertKind};

use crate::shape::instant::Instant;

/// Longest title, bytes.
const TITLE: usize = 200;
/// Longest part of a message, bytes.
const PART: usize = 4_000;

/// `text` without control characters, and without what turns the direction of reading, in at most `most` bytes.
pub(super) fn plain(text: &str, most: usize) -> String {
    let tidy = |c: char| match c {
        c if c.is_control() => ' ',
        '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => ' ',
        c => c,
    };
    cut(text.chars().map(tidy).collect(), most)
}

/// `text` in at most `most` bytes, which show that it was longer.
pub(super) fn cut(mut text: String, most: usize) -> String {
    const MORE: &str = "..";
    if text.len() > most {
        let mut end = most.saturating_sub(MORE.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str(&MORE[..most.min(MORE.len())]);
    }
    text
}

/// One line: what it is, how bad, and where.
pub(super) fn title(alert: &Alert) -> String {
    let title = match (&alert.finding, alert.kind) {
        (Some(finding), AlertKind::Closed) => format!("over: {} at {}", finding.rule.name(), finding.address),
        (Some(finding), _) => format!("{}: {} at {}", finding.severity.name(), finding.rule.name(), finding.address),
        (None, _) => "a test: alerts arrive here".to_owned(),
    };
    plain(&format!("Tidegate: {title}"), TITLE)
}

/// What is wrong, or that it is over and how long it was so.
pub(super) fn cause(alert: &Alert) -> String {
    let Some(finding) = &alert.finding else {
        return "Somebody asked for a test message with `tidegate watch --test-alert`. Nothing is wrong.".to_owned();
    };
    let cause = plain(&finding.cause, PART);
    match finding.closed_at {
        Some(at) => format!("It is over after {} s. It was: {cause}", at.since(finding.opened_at) / 1_000),
        None => cause,
    }
}

/// The numbers it rests on.
pub(super) fn evidence(alert: &Alert) -> String {
    alert.finding.as_ref().map_or_else(String::new, |finding| plain(&finding.evidence_words(), PART))
}

/// The whole in lines.
pub(super) fn body(alert: &Alert) -> String {
    let mut text = format!("{}\n\n{}\n", title(alert), cause(alert));
    let Some(finding) = &alert.finding else { return text };
    let mut line = |name: &str, value: String| {
        text.push_str(name);
        text.push_str(": ");
        text.push_str(&value);
        text.push('\n');
    };
    if alert.kind == AlertKind::Opened {
        line("evidence", evidence(alert));
        line("next", plain(&finding.next_command, PART));
        line("risk", plain(&finding.risk, PART));
    }
    line("opened at", Instant(finding.opened_at).to_string());
    if let Some(at) = finding.closed_at {
        line("over at", Instant(at).to_string());
    }
    line("id", finding.id.clone());
    text
}

/// A colour that says how bad it is: as a number, and by its name.
pub(super) fn colour(alert: &Alert) -> (&'static str, &'static str) {
    match (alert.kind, alert.severity()) {
        (AlertKind::Closed, _) => ("#188038", "green"),
        (AlertKind::Test, _) | (_, Severity::Info) => ("#1a73e8", "blue"),
        (_, Severity::Warning) => ("#f9ab00", "orange"),
        (_, Severity::Critical) => ("#d93025", "red"),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use tidegate::core::Millis;
    use tidegate::watch::{Change, Finding, Rule};

    use super::*;

    /// A finding whose texts try everything.
    pub(in crate::alerts) fn nasty() -> Finding {
        Finding {
            id: "big-value-passing-1796050000000-0a1b2c3d".to_owned(),
            rule: Rule::BigValuePassing,
            severity: Severity::Critical,
            address: "10.0.0.7:6379\r\nBcc: all@example.com".to_owned(),
            opened_at: Millis(1_796_050_000_000),
            closed_at: None,
            cause: "a \"client\" \\ named <!channel>\n.\r\nMAIL FROM:<x>\u{202e}\u{0}{{cause}} sends 12 MB é"
                .to_owned(),
            evidence: BTreeMap::from([("bytes".to_owned(), 12.into()), ("client".to_owned(), serde_json::Value::Null)]),
            next_command: "redis-cli CLIENT LIST".to_owned(),
            risk: "none".to_owned(),
        }
    }

    pub(in crate::alerts) fn opened() -> Alert {
        Alert::of(&Change::Opened(nasty()))
    }

    pub(in crate::alerts) fn closed() -> Alert {
        Alert::of(&Change::Closed(Finding { closed_at: Some(Millis(1_796_050_312_000)), ..nasty() }))
    }

    #[test]
    fn it_says_what_is_to_be_known() {
        let text = body(&opened());
        for words in [
            "Tidegate: critical: big-value-passing at 10.0.0.7:6379",
            "sends 12 MB é",
            "evidence: bytes 12, client unknown\n",
            "next: redis-cli CLIENT LIST\n",
            "opened at: 2026-11-30T14:46:40.000Z\n",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        let text = body(&closed());
        for words in ["Tidegate: over: big-value", "over after 312 s", "over at: 2026-11-30T14:51:52.000Z\n"] {
            assert!(text.contains(words), "{words}: {text}");
        }
        let test = body(&Alert::test(Millis(0)));
        assert!(test.contains("--test-alert") && test.contains("Nothing is wrong"), "{test}");
    }

    #[test]
    fn nothing_of_a_finding_is_a_line_of_its_own() {
        for alert in [opened(), closed()] {
            assert!(!title(&alert).chars().any(char::is_control), "{}", title(&alert));
            let names = [
                "Tidegate: ",
                "a \"client\"",
                "It is over",
                "evidence: ",
                "next: ",
                "risk: ",
                "opened at: ",
                "over at: ",
                "id: ",
            ];
            for line in body(&alert).lines().filter(|line| !line.is_empty()) {
                assert!(names.iter().any(|name| line.starts_with(name)), "{line}");
                assert!(!line.chars().any(|c| c.is_control() || c == '\u{202e}'), "{line}");
            }
        }
    }

    #[test]
    fn it_is_cut_between_characters() {
        assert_eq!(plain("ééé", 6), "ééé");
        assert_eq!(plain("ééé", 5), "é..");
        assert_eq!(plain("éééé", 1), ".");
        let long = Finding { cause: "x".repeat(100_000), ..nasty() };
        assert!(body(&Alert::of(&Change::Opened(long))).len() < 10_000);
    }
}
