//! Who may call what: tokens and roles, and the check that no web page drives the server.

use http::header::{HOST, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, Version};
use subtle::ConstantTimeEq;

use crate::config::{Role, Token, hash_token};
use crate::problem::{self, Problem, catalogue};
use crate::request::headers::bearer;

/// Who may call a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Everybody.
    Open,
    /// Whoever has a token of at least this role.
    Needs(Role),
}

/// The tokens of a server. None: everybody who can reach its loopback address may do everything.
pub(crate) struct Tokens(Vec<Token>);

impl Tokens {
    /// Keeps `tokens`.
    pub(crate) fn new(tokens: Vec<Token>) -> Self {
        Self(tokens)
    }

    /// Refuses a request whose token does not cover `access`.
    pub(crate) fn check(&self, access: Access, headers: &HeaderMap) -> Result<(), Problem> {
        let Access::Needs(role) = access else { return Ok(()) };
        if self.0.is_empty() {
            return Ok(());
        }
        let Some(sent) = bearer(headers) else {
            let detail = "Send a token of the server's configuration in the header Authorization: Bearer <token>.";
            return Err(Problem::new(&catalogue::UNAUTHENTICATED, detail));
        };
        let Some(token) = self.find(sent) else {
            return Err(Problem::new(
                &catalogue::UNAUTHENTICATED,
                "The token is not one of the server's; check the configuration.",
            ));
        };
        if token.role >= role {
            return Ok(());
        }
        let detail = format!(
            "This token has the role {}; this call needs a token of the role {}.",
            token.role.name(),
            role.name()
        );
        Err(Problem::new(&catalogue::FORBIDDEN, detail))
    }

    /// Every token is compared, each in constant time, so that the time tells nothing.
    fn find(&self, sent: &str) -> Option<&Token> {
        let hash = hash_token(sent);
        let mut found = None;
        for token in &self.0 {
            if bool::from(token.sha256.ct_eq(&hash)) {
                found = Some(token);
            }
        }
        found
    }
}

/// Refuses a request that a web page of another origin may have sent, or that names a host which is not ours: a page
/// whose name was rebound to our address must not be able to drive a local server.
///
/// On a loopback address our names are those of the loopback. On any other address the server cannot know its names;
/// there every call needs a token, which a foreign page does not have.
pub(crate) fn check_origin(parts: &Parts, loopback: bool) -> Result<(), Problem> {
    let mut hosts = parts.headers.get_all(HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().unwrap_or_default(),
        (None, _) if parts.version == Version::HTTP_10 => "",
        _ => return Err(problem::malformed("Send exactly one Host header.")),
    };
    let authority = parts.uri.authority().map_or(host, |authority| authority.as_str());
    if loopback && !host.is_empty() && !(is_loopback_name(host) && is_loopback_name(authority)) {
        return Err(Problem::new(
            &catalogue::FORBIDDEN_ORIGIN,
            "This host is not the server's own; call it as localhost or 127.0.0.1.",
        ));
    }
    let mut origins = parts.headers.get_all(ORIGIN).iter();
    let own = origins.all(|origin| {
        let text = origin.to_str().unwrap_or_default();
        let named = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
        named.is_some_and(|named| !named.is_empty() && named.eq_ignore_ascii_case(authority))
    });
    if own {
        return Ok(());
    }
    let detail = "Web pages of another origin may not call this server; call it from a program or from its own pages.";
    Err(Problem::new(&catalogue::FORBIDDEN_ORIGIN, detail))
}

fn is_loopback_name(authority: &str) -> bool {
    let name = match authority.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => authority,
    };
    let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || bare.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(host: &str, origin: Option<&str>, loopback: bool) -> Option<&'static str> {
        let mut request = http::Request::get("/v1/orders").header(HOST, host);
        if let Some(origin) = origin {
            request = request.header(ORIGIN, origin);
        }
        let (parts, ()) = request.body(()).expect("a request").into_parts();
        check_origin(&parts, loopback).err().map(|problem| problem.kind().code)
    }

    #[test]
    fn origins() {
        let foreign = Some("forbidden-origin");
        for (host, origin, loopback, want) in [
            ("127.0.0.1:8080", None, true, None),
            ("localhost:8080", None, true, None),
            ("[::1]:8080", None, true, None),
            ("LOCALHOST", None, true, None),
            ("evil.example:8080", None, true, foreign),
            ("localhost.evil.example", None, true, foreign),
            ("127.0.0.1.evil.example", None, true, foreign),
            ("127.0.0.1:8080", Some("http://127.0.0.1:8080"), true, None),
            ("localhost:8080", Some("http://localhost:3000"), true, foreign),
            ("localhost:8080", Some("null"), true, foreign),
            ("localhost:8080", Some("https://evil.example"), true, foreign),
            ("shop.example", None, false, None),
            ("shop.example", Some("https://shop.example"), false, None),
            ("shop.example", Some("https://evil.example"), false, foreign),
        ] {
            assert_eq!(verdict(host, origin, loopback), want, "{host} {origin:?}");
        }
    }
}
