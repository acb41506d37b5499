//! Bodies of webhooks by templates: a JSON document in whose texts `{{name}}` stands for a field of the message.
//!
//! A template is read as JSON before anything is filled in, and what is filled in is a piece of a text in it: whatever a
//! finding holds, it cannot leave that text.

use serde_json::Value;
use tidegate::watch::alerts::Alert;

use super::text;
use crate::shape::instant::Instant;

/// The fields of a message, by the names that templates use.
pub const FIELDS: [&str; 17] = [
    "id",
    "kind",
    "severity",
    "rule",
    "address",
    "title",
    "title_mrkdwn",
    "text",
    "cause",
    "evidence",
    "next_command",
    "risk",
    "opened_at",
    "closed_at",
    "finding_id",
    "colour",
    "colour_name",
];
/// Longest template, bytes.
const MAX_TEMPLATE: usize = 64 << 10;

/// A template that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Template(Value);

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    /// It is no JSON object, or names what is no field.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_TEMPLATE {
            return Err(format!("a template has at most {MAX_TEMPLATE} bytes"));
        }
        let value: Value = serde_json::from_str(text)
            .map_err(|e| format!("the template is not JSON ({e}); write {{{{name}}}} only inside of quotes"))?;
        if !value.is_object() {
            return Err("a template must be a JSON object".to_owned());
        }
        let template = Self(value);
        map(&template.0, &mut |text| pieces(text).map(|_| String::new()))?;
        Ok(template)
    }

    /// The body for `alert`.
    pub(super) fn fill(&self, alert: &Alert) -> Value {
        let filled = map(&self.0, &mut |text| Ok(fill(text, alert)));
        filled.unwrap_or_default()
    }
}

/// A piece of a text: as it stands, or a field and how long it may be.
enum Piece<'a> {
    Text(&'a str),
    Field(&'static str, usize),
}

fn pieces(text: &str) -> Result<Vec<Piece<'_>>, String> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        let (inner, behind) = after.split_once("}}").ok_or_else(|| format!("{{{{ is not closed in {text:?}"))?;
        let (name, most) = inner.split_once(':').unwrap_or((inner, ""));
        let field = FIELDS.iter().find(|field| **field == name.trim());
        let field = field.ok_or_else(|| format!("{{{{{inner}}}}} is no field; there are {}", FIELDS.join(", ")))?;
        let most = match most.trim() {
            "" => usize::MAX,
            digits => digits.parse().map_err(|_| {
                format!("{{{{{inner}}}}}: behind the colon stands the most bytes, such as {{{{text:2000}}}}")
            })?,
        };
        pieces.extend([Piece::Text(before), Piece::Field(field, most)]);
        rest = behind;
    }
    pieces.push(Piece::Text(rest));
    Ok(pieces)
}

fn fill(text: &str, alert: &Alert) -> String {
    let filled = pieces(text).unwrap_or_default().into_iter().map(|piece| match piece {
        Piece::Text(text) => text.to_owned(),
        Piece::Field(name, most) => text::cut(field(name, alert), most),
    });
    filled.collect()
}

fn map(value: &Value, text: &mut impl FnMut(&str) -> Result<String, String>) -> Result<Value, String> {
    Ok(match value {
        Value::String(inner) => Value::String(text(inner)?),
        Value::Array(items) => items.iter().map(|item| map(item, text)).collect::<Result<_, _>>()?,
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| Ok((name.clone(), map(value, text)?));
            Value::Object(members.iter().map(member).collect::<Result<_, String>>()?)
        }
        other => other.clone(),
    })
}

fn field(name: &str, alert: &Alert) -> String {
    let finding = alert.finding.as_ref();
    let of = |part: fn(&tidegate::watch::Finding) -> &str| {
        finding.map_or_else(String::new, |finding| text::plain(part(finding), usize::MAX))
    };
    match name {
        "id" => alert.id.clone(),
        "kind" => alert.kind.name().to_owned(),
        "severity" => alert.severity().name().to_owned(),
        "rule" => alert.rule().to_owned(),
        "address" => of(|finding| &finding.address),
        "title" => text::title(alert),
        // The three that Slack's markup takes for its own.
        "title_mrkdwn" => text::title(alert).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;"),
        "text" => text::body(alert),
        "cause" => text::cause(alert),
        "evidence" => text::evidence(alert),
        "next_command" => of(|finding| &finding.next_command),
        "risk" => of(|finding| &finding.risk),
        "opened_at" => finding.map_or_else(String::new, |finding| Instant(finding.opened_at).to_string()),
        "closed_at" => {
            finding.and_then(|finding| finding.closed_at).map_or_else(String::new, |at| Instant(at).to_string())
        }
        "finding_id" => alert.subject_id().to_owned(),
        "colour" => text::colour(alert).0.to_owned(),
        "colour_name" => text::colour(alert).1.to_owned(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tidegate::core::Millis;

    use super::super::text::tests::{closed, opened};
    use super::*;

    #[test]
    fn what_is_filled_in_stays_in_its_text() {
        let template =
            Template::parse(r#"{"a": ["{{severity}} {{ rule }}: {{cause}}"], "n": 5, "{{id}}": "{{text:20}}"}"#)
                .unwrap();
        let body = template.fill(&opened());
        let again: Value = serde_json::from_str(&body.to_string()).unwrap();
        assert_eq!(again, body);
        let text = body["a"][0].as_str().unwrap();
        // What looks like a field in a finding is none.
        assert!(
            text.starts_with("critical big-value-passing: a \"client\" \\ named <!channel> .")
                && text.contains("{{cause}} sends"),
            "{text}"
        );
        assert_eq!((&body["n"], &body["{{id}}"]), (&json!(5), &json!("Tidegate: critical..")));
        let all = FIELDS.map(|name| format!("\"{name}\": \"{{{{{name}}}}}\"")).join(",");
        let all = Template::parse(&format!("{{{all}}}")).unwrap();
        for alert in [opened(), closed()] {
            let body = all.fill(&alert);
            let empty: Vec<_> = FIELDS.into_iter().filter(|name| body[*name] == "").collect();
            assert_eq!(empty, if alert == closed() { vec![] } else { vec!["closed_at"] });
            assert_eq!((&body["kind"], &body["id"]), (&json!(alert.kind.name()), &json!(alert.id)));
        }
        assert_eq!(all.fill(&Alert::test(Millis(0)))["rule"], "test");
    }

    #[test]
    fn templates_are_checked() {
        for (text, want) in [
            ("{\"a\": {{text}}}", "only inside of quotes"),
            ("[\"{{text}}\"]", "must be a JSON object"),
            ("{\"a\": \"{{txt}}\"}", "{{txt}} is no field; there are id, kind"),
            ("{\"a\": [{\"b\": \"x {{text\"}]}", "is not closed"),
            ("{\"a\": \"{{text:many}}\"}", "most bytes"),
        ] {
            let fault = Template::parse(text).unwrap_err();
            assert!(fault.contains(want), "{text}: {fault}");
        }
        assert!(Template::parse(&format!("{{\"a\": \"{}\"}}", "x".repeat(MAX_TEMPLATE))).is_err());
    }
}
