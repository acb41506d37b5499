//! The HTTP client of the tools: JSON in, JSON out, problem documents as readable errors.

use std::path::PathBuf;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Method, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::failure::{Failure, Result};

/// Where a server listens when nothing else is said.
pub const DEFAULT_URL: &str = "http://127.0.0.1:8080";
/// Until a connection stands.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Until an answer is there, whole.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Times a request is sent that is answered with `503` and `Retry-After`.
const MAX_TRIES: u32 = 6;
/// Longest wait between two tries, whatever `Retry-After` says.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// Longest answer body, in bytes: an export page of 500 large orders stays far below it.
const MAX_ANSWER: usize = 256 << 20;

/// Which server a tool talks to.
#[derive(Debug, Clone, clap::Args)]
pub struct ServerArgs {
    /// Server to talk to [default: http://127.0.0.1:8080]
    #[arg(long, value_name = "URL", env = "TIDEGATE_URL")]
    pub to: Option<String>,
    /// Token of the server; better given by the environment, where `ps` does not show it
    #[arg(long, value_name = "TOKEN", env = "TIDEGATE_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// File that holds the token
    #[arg(long, value_name = "FILE", env = "TIDEGATE_TOKEN_FILE")]
    pub token_file: Option<PathBuf>,
}

impl ServerArgs {
    /// The client of that server.
    ///
    /// # Errors
    /// [`Failure::Usage`] for a URL or token that cannot be one, or a token's file that cannot be read.
    pub fn client(&self) -> Result<Client> {
        if self.token.is_some() && self.token_file.is_some() {
            return Err(Failure::Usage(
                "--token (TIDEGATE_TOKEN) and --token-file (TIDEGATE_TOKEN_FILE) are both set; give one of the two, and unset the other"
                    .to_owned(),
            ));
        }
        let from_file = self.token_file.as_ref().map(|path| {
            std::fs::read_to_string(path).map_err(|e| {
                Failure::Usage(format!("--token-file (TIDEGATE_TOKEN_FILE): cannot read {}: {e}", path.display()))
            })
        });
        let token = from_file.transpose()?.or_else(|| self.token.clone());
        Client::new(self.to.as_deref(), token.as_deref())
    }
}

/// An answer, whatever its status.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// The JSON body; `null` when there is none or it is not JSON.
    pub body: Value,
}

impl Reply {
    /// Whether the status is 2xx.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// `code: detail` of a problem document with the fields it points at, each thing once and without a full stop; or
    /// the bare status.
    pub fn problem(&self) -> String {
        let field = |name: &str| self.body.get(name).and_then(Value::as_str);
        let detail = field("detail").map(|detail| detail.trim_end_matches('.'));
        let mut text = match (field("code"), detail) {
            (Some(code), Some(detail)) => format!("{code}: {detail}"),
            (Some(code), None) => code.to_owned(),
            _ => format!("HTTP status {}", self.status),
        };
        let errors = self.body.get("errors").and_then(Value::as_array).into_iter().flatten();
        let part = |fault: &Value, name: &str| {
            fault.get(name).and_then(Value::as_str).unwrap_or_default().trim_end_matches('.').to_owned()
        };
        let faults = errors.map(|fault| (part(fault, "pointer"), part(fault, "detail")));
        // The detail of a problem with one fault is that fault.
        let untold = faults.filter(|(_, what)| !detail.is_some_and(|detail| detail.contains(what)));
        let untold: Vec<_> = untold.take(5).map(|(pointer, what)| format!("{pointer} {what}")).collect();
        if !untold.is_empty() {
            text.push_str(&format!(": {}", untold.join("; ")));
        }
        text
    }
}

/// A client of one server. Cheap to clone; one connection pool for all clones.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    base: String,
    token: Option<String>,
}

impl Client {
    /// A client of the server at `to` (default [`DEFAULT_URL`]) that shows `token`. Follows no redirects. Does not
    /// connect yet. Call it under [`crate::runtime`], which puts the TLS provider in place.
    ///
    /// # Errors
    /// [`Failure::Usage`] for a URL or token that cannot be one.
    pub fn new(to: Option<&str>, token: Option<&str>) -> Result<Self> {
        let base = to.unwrap_or(DEFAULT_URL).trim_end_matches('/');
        let url = Url::parse(base).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let Some(url) = url.filter(|url| url.query().is_none() && url.fragment().is_none()) else {
            return Err(Failure::Usage(format!(
                "--to (TIDEGATE_URL): {base:?} is no server's URL; write it as {DEFAULT_URL}"
            )));
        };
        let token = token.map(str::trim).filter(|token| !token.is_empty());
        if token.is_some_and(|token| !token.bytes().all(|b| b.is_ascii_graphic())) {
            return Err(Failure::Usage(
                "--token (TIDEGATE_TOKEN): a token is visible ASCII without blanks; `tidegate token` makes one"
                    .to_owned(),
            ));
        }
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("tidegate/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(ANSWER_TIMEOUT)
            .tcp_nodelay(true);
        if url.scheme() == "http" {
            // No redirect can lead to TLS, so a host without root certificates is no obstacle.
            builder = builder.tls_certs_only([]);
        }
        if is_loopback(&url) {
            builder = builder.no_proxy();
        }
        let http =
            builder.build().map_err(|e| Failure::Usage(format!("cannot set up TLS for {base}: {}", chain(&e))))?;
        Ok(Self { http, base: base.to_owned(), token: token.map(str::to_owned) })
    }

    /// The server's URL, without a slash at its end.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Sends one request and gives the answer whatever its status; `path` begins with `/` and is encoded already
    /// ([`segment`]). A `503` with `Retry-After` is sent again a few times: nothing was acknowledged.
    ///
    /// # Errors
    /// [`Failure::Unreachable`] when no answer comes.
    pub async fn call<B: Serialize + ?Sized>(&self, method: Method, path: &str, body: Option<&B>) -> Result<Reply> {
        let body = match body {
            Some(body) => Some(
                serde_json::to_vec(body)
                    .map_err(|e| Failure::Work(format!("cannot write the request as JSON: {e}")))?,
            ),
            None => None,
        };
        let mut tries = 1;
        loop {
            let (reply, wait) = self.once(&method, path, body.as_deref()).await?;
            match wait {
                Some(wait) if tries < MAX_TRIES => tokio::time::sleep(wait.min(MAX_WAIT)).await,
                _ => return Ok(reply),
            }
            tries += 1;
        }
    }

    async fn once(&self, method: &Method, path: &str, body: Option<&[u8]>) -> Result<(Reply, Option<Duration>)> {
        let mut request = self.http.request(method.clone(), format!("{}{path}", self.base));
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, "application/json").body(body.to_vec());
        }
        let mut response = request.send().await.map_err(|e| self.unreachable(&e))?;
        let status = response.status();
        let wait = (status == StatusCode::SERVICE_UNAVAILABLE)
            .then(|| response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs))
            .flatten();
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|e| self.unreachable(&e))? {
            if bytes.len() + chunk.len() > MAX_ANSWER {
                return Err(Failure::Work(format!(
                    "the answer of {} to {path} is larger than {MAX_ANSWER} bytes; ask for smaller pages",
                    self.base
                )));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok((Reply { status: status.as_u16(), body: serde_json::from_slice(&bytes).unwrap_or(Value::Null) }, wait))
    }

    fn unreachable(&self, e: &reqwest::Error) -> Failure {
        let what = if e.is_timeout() { "did not answer in time" } else { "cannot be reached" };
        Failure::Unreachable(format!(
            "the server at {} {what} ({}); start it with `tidegate serve`, or name another with --to (TIDEGATE_URL)",
            self.base,
            chain(e)
        ))
    }

    /// As [`Client::call`]; anything but 2xx is a failure with the problem's `code: detail`.
    ///
    /// # Errors
    /// [`Failure::Unreachable`]; [`Failure::Usage`] for 401 and 403; else [`Failure::Work`].
    pub async fn send<T: DeserializeOwned>(&self, method: Method, path: &str, body: Option<&Value>) -> Result<T> {
        let reply = self.call(method.clone(), path, body).await?;
        if !reply.is_success() {
            return Err(match reply.status {
                401 if self.token.is_none() => Failure::Usage(format!(
                    "unauthenticated: the server at {} wants a token; give one with --token or TIDEGATE_TOKEN",
                    self.base
                )),
                403 if reply.body.get("code").and_then(Value::as_str) != Some("forbidden") => {
                    Failure::Usage(reply.problem())
                }
                401 | 403 => {
                    Failure::Usage(format!("{}; give another token with --token or TIDEGATE_TOKEN", reply.problem()))
                }
                _ => Failure::Work(format!("{method} {path}: {}", reply.problem())),
            });
        }
        T::deserialize(reply.body).map_err(|e| {
            Failure::Work(format!("the answer of {} to {method} {path} is not what this version of tidegate expects: {e}; is it a Tidegate server of version {}?", self.base, env!("CARGO_PKG_VERSION")))
        })
    }

    /// `GET`, as [`Client::send`].
    ///
    /// # Errors
    /// As [`Client::send`].
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.send(Method::GET, path, None).await
    }

    /// `POST`, as [`Client::send`].
    ///
    /// # Errors
    /// As [`Client::send`].
    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: &Value) -> Result<T> {
        self.send(Method::POST, path, Some(body)).await
    }
}

/// `text` as one segment of a path or one value of a query, percent-encoded.
pub fn segment(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// An error with its causes, without saying the same twice.
fn chain(e: &(dyn std::error::Error + 'static)) -> String {
    let mut text = String::new();
    let mut next = Some(e);
    while let Some(e) = next {
        let part = e.to_string();
        if !text.ends_with(&part) {
            text = if text.is_empty() { part } else { format!("{text}: {part}") };
        }
        next = e.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_encoded() {
        assert_eq!(segment("a/b %2F É~"), "a%2Fb%20%252F%20%C3%89~");
    }

    #[test]
    fn problems_read_as_one_line() {
        let reply = Reply {
            status: 422,
            body: serde_json::json!({"code": "invalid", "detail": "mend it", "errors": [{"pointer": "/lines", "detail": "must have a line"}]}),
        };
        assert_eq!(reply.problem(), "invalid: mend it: /lines must have a line");
        let reply = Reply {
            status: 422,
            body: serde_json::json!({"code": "invalid", "detail": "/on_hand must be whole; correct it.", "errors": [{"pointer": "/on_hand", "detail": "must be whole"}]}),
        };
        assert_eq!(reply.problem(), "invalid: /on_hand must be whole; correct it");
        assert_eq!(Reply { status: 500, body: Value::Null }.problem(), "HTTP status 500");
    }

    #[test]
    fn bad_urls_and_tokens_are_usage() {
        for (to, token) in
            [(Some("127.0.0.1:8080"), None), (Some("ftp://x"), None), (Some("http://x/?a"), None), (None, Some("a b"))]
        {
            let _ = rustls::crypto::ring::default_provider().install_default();
            assert!(matches!(Client::new(to, token), Err(Failure::Usage(_))), "{to:?} {token:?}");
        }
    }
}
