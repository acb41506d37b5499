//! What all HTTP clients of the server have in common, whomever they call.

use std::error::Error;
use std::time::Duration;

use reqwest::ClientBuilder;
use reqwest::redirect::Policy;

/// For one connection, TLS included; a name's addresses share it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A client with no proxy, no cookies, no redirects and no repetitions of its own. `tls`: whether it needs the system's
/// certificates; without them it trusts nobody.
pub(crate) fn client(tls: bool) -> ClientBuilder {
    // Whoever installed one first wins; it is the same one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = ClientBuilder::new()
        .user_agent(concat!("tidegate/", env!("CARGO_PKG_VERSION")))
        .redirect(Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .no_proxy()
        .http1_only()
        .connect_timeout(CONNECT_TIMEOUT);
    if tls { builder } else { builder.tls_certs_only([]) }
}

/// An error and what is behind it, without the URL, which may hold a secret.
pub(crate) fn chain(error: &reqwest::Error) -> String {
    let mut text = if error.is_builder() { "the client cannot be built" } else { "the request failed" }.to_owned();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}
