//! Pages for people. They load nothing from elsewhere, and their policy lets nothing else run.

pub(crate) mod docs;
pub(crate) mod status;

use std::fmt::Write;

use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS};
use http::{HeaderValue, Response, StatusCode};
use sha2::{Digest, Sha256};

use crate::reply::{self, Body};

const STYLE: &str = include_str!("style.css");

/// A page with the policy that fits it.
pub(crate) struct Page {
    html: bytes::Bytes,
    policy: HeaderValue,
}

impl Page {
    /// A page with this title, body (HTML) and script (none if empty).
    pub(crate) fn new(title: &str, body: &str, script: &str) -> Self {
        let (style_hash, script_hash) = (base64(&Sha256::digest(STYLE)), base64(&Sha256::digest(script)));
        let scripts = if script.is_empty() { "'none'".to_owned() } else { format!("'sha256-{script_hash}'") };
        let policy = format!(
            "default-src 'none'; style-src 'sha256-{style_hash}'; script-src {scripts}; connect-src 'self'; img-src 'self' data:; \
             base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        );
        let script = if script.is_empty() { String::new() } else { format!("<script>{script}</script>") };
        let html = format!(
            "<!doctype html><html lang=en><head><meta charset=utf-8><meta name=viewport content=\"width=device-width, initial-scale=1\">\
             <link rel=icon href=data:,><title>{} - Tidegate</title><style>{STYLE}</style></head><body><main>{body}</main>{script}</body></html>",
            escape(title)
        );
        Self {
            html: html.into(),
            policy: HeaderValue::try_from(policy).unwrap_or(HeaderValue::from_static("default-src 'none'")),
        }
    }

    /// The response.
    pub(crate) fn response(&self) -> Response<Body> {
        let mut response = reply::with_type(StatusCode::OK, "text/html; charset=utf-8", self.html.clone());
        let headers = response.headers_mut();
        headers.insert(CONTENT_SECURITY_POLICY, self.policy.clone());
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        response
    }
}

/// `text` as HTML text or as the value of a quoted attribute.
pub(crate) fn escape(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            other => html.push(other),
        }
    }
    html
}

/// Text with `backticks` as HTML.
pub(crate) fn code_spans(text: &str) -> String {
    let mut html = String::new();
    for (i, part) in text.split('`').enumerate() {
        let part = escape(part);
        // Writing to a string cannot fail.
        let _ = if i % 2 == 1 { write!(html, "<code>{part}</code>") } else { write!(html, "{part}") };
    }
    html
}

/// RFC 4648, section 4: what a policy's hashes are written in.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for i in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * i) & 63) as usize];
            text.push(if i > chunk.len() { '=' } else { char::from(digit) });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_rfc_4648() {
        for (text, want) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(text.as_bytes()), want);
        }
    }
}
