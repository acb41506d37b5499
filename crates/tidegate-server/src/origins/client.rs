//! The HTTP clients that ask origins: a look at each address before it is connected to.

use std::cell::Cell;
use std::error::Error as StdError;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, Response, Url};
use tokio::sync::Semaphore;
use tower::util::MapRequestLayer;

use super::addresses::is_public;
use crate::outgoing;

/// Connections that are kept open to a host without a request.
const IDLE_CONNECTIONS: usize = 32;
/// How long: less than servers keep them, or a request would meet a connection that is just being closed.
const IDLE_FOR: Duration = Duration::from_secs(4);
/// Most headers of an answer; the client reads no head over 400 KiB.
const MAX_HEADERS: usize = 100;
/// Names that are looked up at once: each look-up takes a thread while the system's resolver hangs.
const LOOKUPS: usize = 32;

/// A client and what it may connect to.
#[derive(Debug, Clone)]
pub(super) struct OriginClient {
    http: Client,
    allow_private: bool,
}

impl OriginClient {
    /// A client. `tls`: whether it needs the system's certificates; without them no https origin is trusted.
    pub(super) fn new(allow_private: bool, tls: bool) -> Result<Self, String> {
        let http = outgoing::client(tls)
            .http1_max_headers(MAX_HEADERS)
            .pool_idle_timeout(IDLE_FOR)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .tcp_nodelay(true)
            .connector_layer(MapRequestLayer::new(connecting))
            .dns_resolver(Guard { allow_private, lookups: Arc::new(Semaphore::new(LOOKUPS)) })
            .build()
            .map_err(|e| outgoing::chain(&e))?;
        Ok(Self { http, allow_private })
    }

    /// Whether the URL's host is an address that may not be asked. Names are looked at when they are resolved.
    pub(super) fn refuses(&self, url: &Url) -> bool {
        let host = url.host_str().unwrap_or_default();
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        !self.allow_private && bare.parse().is_ok_and(|address| !is_public(address))
    }

    pub(super) fn get(&self, url: Url) -> reqwest::RequestBuilder {
        self.http.get(url)
    }
}

tokio::task_local! {
    /// Whether the request that this task sends has asked for a connection of its own.
    static CONNECTS: Cell<bool>;
}

/// A connection is asked for.
fn connecting<R>(request: R) -> R {
    // Outside of it nobody wants to know.
    let _ = CONNECTS.try_with(|connects| connects.set(true));
    request
}

/// Sends a request; with the result, whether it went out on a connection of an earlier one.
pub(super) async fn send(request: reqwest::RequestBuilder) -> (reqwest::Result<Response>, bool) {
    let sending = async {
        let result = request.send().await;
        (result, !CONNECTS.with(Cell::get))
    };
    CONNECTS.scope(Cell::new(false), sending).await
}

/// Resolves names with the system's resolver, and gives only addresses that may be connected to.
struct Guard {
    allow_private: bool,
    lookups: Arc<Semaphore>,
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let (allow_private, lookups) = (self.allow_private, Arc::clone(&self.lookups));
        Box::pin(async move {
            // Never closed.
            let _turn = lookups.acquire_owned().await?;
            let mut addresses: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            if !allow_private && !addresses.is_empty() {
                addresses.retain(|address| is_public(address.ip()));
                if addresses.is_empty() {
                    return Err(Box::new(NotPublic) as _);
                }
            }
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// A name has only addresses that may not be asked.
#[derive(Debug)]
struct NotPublic;

impl fmt::Display for NotPublic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a public address")
    }
}

impl StdError for NotPublic {}

/// Whether a request failed because its host has no address that may be asked.
pub(super) fn is_closed(error: &reqwest::Error) -> bool {
    let mut source = error.source();
    while let Some(error) = source {
        if error.is::<NotPublic>() {
            return true;
        }
        source = error.source();
    }
    false
}
