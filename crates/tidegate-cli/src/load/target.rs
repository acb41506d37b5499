//! Where the load goes, taken apart once.

use http::HeaderValue;

use crate::failure::{Failure, Result};

/// A server, ready to be called: nothing of it is parsed again for a request.
#[derive(Debug, Clone)]
pub struct Target {
    /// `host:port` to connect to.
    pub authority: String,
    /// The `Host` header.
    pub host: HeaderValue,
    /// The `Authorization` header, if there is a token.
    pub bearer: Option<HeaderValue>,
    /// What comes before every path (usually nothing).
    pub prefix: String,
    /// The whole base as it was given, for `https` and for messages.
    pub base: String,
    /// Whether it is `https`.
    pub tls: bool,
}

impl Target {
    /// Takes `url` (`http://host:port[/prefix]` or `https://..`) apart.
    ///
    /// # Errors
    /// [`Failure::Usage`] when it is no such URL, or the token cannot stand in a header.
    pub fn parse(url: &str, token: Option<&str>) -> Result<Self> {
        let wrong = |why: &str| Failure::Usage(format!("--to {url}: {why}; give it as http://host:port"));
        let uri: http::Uri = url.parse().map_err(|_| wrong("no URL"))?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong("neither http nor https")),
        };
        let authority = uri.authority().ok_or_else(|| wrong("no host"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("a name and password in the URL are not used; give --token"));
        }
        let port = authority.port_u16().unwrap_or(if tls { 443 } else { 80 });
        let host = HeaderValue::from_str(authority.as_str()).map_err(|_| wrong("no host"))?;
        let bearer = token.map(bearer).transpose()?;
        let prefix = uri.path().trim_end_matches('/').to_owned();
        let base = url.trim_end_matches('/').to_owned();
        Ok(Self { authority: format!("{}:{port}", authority.host()), host, bearer, prefix, base, tls })
    }

    /// A server on this machine, without a token.
    ///
    /// # Errors
    /// Never for a socket address.
    pub fn local(addr: std::net::SocketAddr) -> Result<Self> {
        Self::parse(&format!("http://{addr}"), None)
    }
}

fn bearer(token: &str) -> Result<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
        .map_err(|_| Failure::Usage("--token: it holds characters no header can carry".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        for (url, want) in [
            ("http://127.0.0.1:8080", Some(("127.0.0.1:8080", "", false))),
            ("http://[::1]:8080/", Some(("[::1]:8080", "", false))),
            ("https://shop.example/tide/", Some(("shop.example:443", "/tide", true))),
            ("127.0.0.1:8080", None),
            ("ftp://a", None),
            ("http://a:b@host", None),
        ] {
            let got = Target::parse(url, None).ok();
            assert_eq!(got.as_ref().map(|t| (t.authority.as_str(), t.prefix.as_str(), t.tls)), want, "{url}");
        }
        assert!(Target::parse("http://a", Some("a\nb")).is_err());
    }
}
