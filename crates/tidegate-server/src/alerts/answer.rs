//! What the answer of a webhook means.

use std::time::Duration;

use http::{HeaderMap, StatusCode, header};
use serde_json::Value;
use tidegate::watch::alerts::Undelivered;

use super::text;

/// How much of an answer is shown.
const SHOWN: usize = 200;

/// A member of the answer's JSON that must be 0: chat systems answer 200 to what they do not take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeField {
    /// Its name.
    pub name: String,
    /// The codes that mean "later": too many messages, a fault of the system.
    pub later: &'static [i64],
}

impl CodeField {
    /// Any system's; -1 is taken for "later".
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), later: &[-1] }
    }

    /// DingTalk: 130101 and 410100 are too many messages.
    #[must_use]
    pub fn dingtalk() -> Self {
        Self { name: "errcode".to_owned(), later: &[-1, 130_101, 410_100] }
    }

    /// Feishu and Lark: 11232 and 99991400 are too many messages.
    #[must_use]
    pub fn feishu() -> Self {
        Self { name: "code".to_owned(), later: &[-1, 11_232, 99_991_400] }
    }

    /// WeCom: 45009 and 45033 are too many messages.
    #[must_use]
    pub fn wecom() -> Self {
        Self { name: "errcode".to_owned(), later: &[-1, 45_009, 45_033] }
    }

    fn judge(&self, body: &[u8]) -> Result<(), Undelivered> {
        let shown = shown(body);
        let answer: Option<Value> = serde_json::from_slice(body).ok();
        match answer.as_ref().and_then(|answer| answer.get(&self.name)?.as_i64()) {
            Some(0) => Ok(()),
            Some(code) if self.later.contains(&code) => Err(Undelivered::later(format!("it said {shown}"))),
            Some(_) => {
                Err(Undelivered::never(format!("it said {shown}; look the code up in the vendor's documentation")))
            }
            None => {
                Err(Undelivered::later(format!("its answer has no number {:?}: {shown}; check the URL", self.name)))
            }
        }
    }
}

fn shown(body: &[u8]) -> String {
    let text = text::plain(&String::from_utf8_lossy(body), SHOWN);
    if text.trim().is_empty() { "nothing".to_owned() } else { text }
}

/// The pause that `Retry-After` asks for: seconds, or an instant.
fn retry_after(headers: &HeaderMap, now: jiff::Timestamp) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    // An HTTP date is one of mail, whose zone may be written so.
    let at = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
    u64::try_from(at.duration_since(now).as_millis()).ok().map(Duration::from_millis)
}

/// Whether a message was taken.
pub(super) fn judge(
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
    code: Option<&CodeField>,
    now: jiff::Timestamp,
) -> Result<(), Undelivered> {
    let said = || format!("it answered {}: {}", status.as_u16(), shown(body));
    let is_later = status.is_server_error()
        || [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_EARLY, StatusCode::TOO_MANY_REQUESTS].contains(&status);
    match status {
        _ if status.is_success() => code.map_or(Ok(()), |code| code.judge(body)),
        _ if is_later => Err(Undelivered::Later { why: said().into(), after: retry_after(headers, now) }),
        _ if status.is_redirection() => {
            let to = headers.get(header::LOCATION).and_then(|to| to.to_str().ok());
            // Only the host: the rest may hold a secret.
            let to = to.and_then(|to| Some(reqwest::Url::parse(to).ok()?.host_str()?.to_owned()));
            let to = to.map_or_else(String::new, |host| format!(" to {}", text::plain(&host, SHOWN)));
            Err(Undelivered::never(format!(
                "it answered {}, a redirect{to}, which is not followed; write the final URL into the configuration",
                status.as_u16()
            )))
        }
        _ => Err(Undelivered::never(format!("{}; check the URL, the secret and the template", said()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        status: u16,
        header: Option<(&'static str, &'static str)>,
        body: &str,
        code: Option<CodeField>,
    ) -> Result<(), Undelivered> {
        let mut headers = HeaderMap::new();
        if let Some((name, value)) = header {
            headers.insert(name, value.parse().unwrap());
        }
        let now = "2026-11-30T15:00:00Z".parse().unwrap();
        judge(StatusCode::from_u16(status).unwrap(), &headers, body.as_bytes(), code.as_ref(), now)
    }

    fn after(result: Result<(), Undelivered>) -> Option<u64> {
        match result {
            Err(Undelivered::Later { after, .. }) => after.map(|after| after.as_secs()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn statuses() {
        for status in [200, 201, 202, 204] {
            assert_eq!(check(status, None, "ok", None), Ok(()));
        }
        for status in [408, 425, 429, 500, 502, 503, 504] {
            assert_eq!(after(check(status, None, "", None)), None);
        }
        for status in [301, 304, 308, 400, 401, 403, 404, 410, 413, 422] {
            let refused = check(status, None, "no\r\nsuch hook", None);
            assert!(
                matches!(&refused, Err(Undelivered::Never { why }) if why.contains(&status.to_string())),
                "{refused:?}"
            );
        }
        let moved =
            check(302, Some(("location", "https://other.example/secret?x=1")), "", None).unwrap_err().to_string();
        assert!(moved.contains("other.example") && !moved.contains("secret?"), "{moved}");
    }

    #[test]
    fn a_pause_that_is_asked_for() {
        for (text, want) in [
            ("120", Some(120)),
            ("Mon, 30 Nov 2026 15:00:30 GMT", Some(30)),
            ("Mon, 30 Nov 2026 14:00:00 GMT", None),
            ("soon", None),
            ("-5", None),
        ] {
            assert_eq!(after(check(429, Some(("retry-after", text)), "", None)), want, "{text}");
        }
    }

    #[test]
    fn an_error_in_an_answer_of_200() {
        for (code, body, want) in [
            (CodeField::dingtalk(), r#"{"errcode":0,"errmsg":"ok"}"#, "taken"),
            (CodeField::dingtalk(), r#"{"errcode":130101,"errmsg":"send too fast"}"#, "later"),
            (CodeField::dingtalk(), r#"{"errcode":310000,"errmsg":"sign not match"}"#, "never"),
            (CodeField::feishu(), r#"{"code":0,"msg":"success","data":{}}"#, "taken"),
            (CodeField::feishu(), r#"{"code":11232,"msg":"frequency limited"}"#, "later"),
            (
                CodeField::feishu(),
                r#"{"code":19021,"msg":"sign match fail or timestamp is not within one hour"}"#,
                "never",
            ),
            (CodeField::wecom(), r#"{"errcode":0,"errmsg":"ok"}"#, "taken"),
            (CodeField::wecom(), r#"{"errcode":45009,"errmsg":"api freq out of limit"}"#, "later"),
            (CodeField::wecom(), r#"{"errcode":93000,"errmsg":"invalid webhook url"}"#, "never"),
            (CodeField::wecom(), "<html>a proxy's page</html>", "later"),
            (CodeField::named("status"), r#"{"status":"0"}"#, "later"),
            (CodeField::named("status"), r#"{"status":3}"#, "never"),
        ] {
            let got = match check(200, None, body, Some(code)) {
                Ok(()) => "taken",
                Err(Undelivered::Later { .. }) => "later",
                Err(Undelivered::Never { .. }) => "never",
            };
            assert_eq!(got, want, "{body}");
        }
    }
}
