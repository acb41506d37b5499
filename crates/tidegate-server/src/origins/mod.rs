//! The read-through cache of HTTP origins: what `/v1/cache` answers from.
//!
//! - [`Origin`], [`Namespace`]: what the configuration says, checked.
//! - `template`: the URL of a key, which no key can leave. `addresses`: which addresses may be asked.
//! - `client`, `fetch`: one call, with every bound. `failure`: why it gave nothing. `page`: what it gave.
//! - [`Namespaces`]: each namespace's cache.

mod addresses;
mod client;
mod failure;
mod fetch;
mod namespace;
mod page;
mod template;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics::Counter;
use tidegate::cache::{Cache, Caches, Loaded};
use tracing::Instrument;

use crate::config::ServerError;
use client::OriginClient;
pub(crate) use failure::{OriginError, Why};
use fetch::{Ask, Fetched, Told, ms_since};
pub use namespace::{MAX_NAMESPACES, Namespace, Origin, check_namespace_name};
pub(crate) use page::{Page, PageCodec, Share};

/// Of [`Page`], as it is stored.
const SCHEMA: u32 = 1;
/// By how much the cache's own time limit is longer than that of a call, at most and at least: the call's is the one that is
/// seen.
const SLACK: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(500)];

/// The caches of the configured namespaces.
pub(crate) struct Namespaces(BTreeMap<String, Cache<String, Page>>);

impl Namespaces {
    /// Makes the caches.
    pub(crate) fn start(caches: &Caches, namespaces: &[Namespace]) -> Result<Self, ServerError> {
        let unusable = |what: String| ServerError::Namespaces(what);
        if namespaces.len() > MAX_NAMESPACES {
            return Err(unusable(format!("{} namespaces are more than {MAX_NAMESPACES}", namespaces.len())));
        }
        let mut clients = Clients::default();
        let mut made = BTreeMap::new();
        let mut with_copies = namespaces.iter().filter(|namespace| namespace.local_for.is_some()).count();
        for namespace in namespaces {
            // Equal parts of what product pages leave.
            let local_bytes = caches.local_bytes_left().checked_div(with_copies).unwrap_or(0);
            with_copies -= usize::from(namespace.local_for.is_some());
            let name = &namespace.name;
            check_namespace_name(name).map_err(|must| unusable(format!("the name {name:?} {must}")))?;
            let client = clients.of(&namespace.origin).map_err(|why| unusable(format!("{name}: {why}")))?;
            if namespace.origin.is_closed(&client) {
                tracing::warn!(
                    namespace = name.as_str(),
                    origin = namespace.origin.base(),
                    "the origin's address is not public: every load will fail until allow_private is set"
                );
            }
            if !(1..=page::MAX_BODY_BYTES).contains(&namespace.max_value) {
                let most = page::MAX_BODY_BYTES;
                return Err(unusable(format!("{name}: max_value is 1 to {most} bytes, not {}", namespace.max_value)));
            }
            let cache = namespace.cache(caches, client, local_bytes).map_err(|e| unusable(format!("{name}: {e}")))?;
            if made.insert(name.clone(), cache).is_some() {
                return Err(unusable(format!("there are two namespaces {name}")));
            }
        }
        Ok(Self(made))
    }

    /// The cache of a namespace.
    pub(crate) fn find(&self, name: &str) -> Option<&Cache<String, Page>> {
        self.0.get(name)
    }
}

/// The clients that namespaces share: one for each set of rights.
#[derive(Default)]
struct Clients(BTreeMap<(bool, bool), OriginClient>);

impl Clients {
    fn of(&mut self, origin: &Origin) -> Result<OriginClient, String> {
        let rights = (origin.allows_private(), origin.is_https());
        if let Some(client) = self.0.get(&rights) {
            return Ok(client.clone());
        }
        let client = OriginClient::new(rights.0, rights.1)?;
        self.0.insert(rights, client.clone());
        Ok(client)
    }
}

impl Namespace {
    fn cache(
        &self,
        caches: &Caches,
        client: OriginClient,
        local_bytes: usize,
    ) -> Result<Cache<String, Page>, tidegate::cache::CacheError> {
        let mut builder = caches
            .cache::<String, Page>(&self.name)
            .codec(PageCodec)
            .schema(SCHEMA)
            .fresh_for(self.fresh_for)
            .jitter(self.jitter)
            .early_refresh(self.early_refresh)
            .load_budget(self.load_budget)
            .load_timeout(
                self.load_timeout / 10,
                self.load_timeout + (self.load_timeout / 10).clamp(SLACK[0], SLACK[1]),
            )
            .max_value(self.max_value + PageCodec::BESIDE);
        if let Some(ttl) = self.stale_for {
            builder = builder.stale_for(ttl);
        }
        if let Some(ttl) = self.absent_for {
            builder = builder.absent_for(ttl);
        }
        if let Some(rate) = self.load_rate {
            builder = builder.load_rate(rate);
        }
        builder = match self.local_for {
            Some(life) if local_bytes > 0 => builder.local(local_bytes, life),
            _ => builder.no_local(),
        };
        let caller = Arc::new(Caller::new(self, client));
        builder.loader(move |key: String, _| {
            let caller = Arc::clone(&caller);
            async move { caller.call(&key).await }
        })
    }
}

/// What makes a namespace's calls.
struct Caller {
    namespace: Arc<str>,
    origin: Origin,
    client: OriginClient,
    limit: Duration,
    bytes: Counter,
}

impl Caller {
    fn new(namespace: &Namespace, client: OriginClient) -> Self {
        let name: Arc<str> = namespace.name.as_str().into();
        Self {
            bytes: metrics::counter!("tidegate_origin_bytes_total", "namespace" => name.to_string()),
            namespace: name,
            origin: namespace.origin.clone(),
            client,
            limit: namespace.load_timeout,
        }
    }

    async fn call(&self, key: &str) -> Result<Loaded<Page>, OriginError> {
        let span = tracing::debug_span!("origin.call", namespace = %self.namespace);
        async {
            let (begun, mut told) = (Instant::now(), Told::default());
            let fetched = match self.origin.url(key) {
                Some(url) => self.ask().fetch(url, &mut told).await,
                None => {
                    Err(OriginError::new(Why::Malformed("was not asked for: the key would leave its place in the URL")))
                }
            };
            self.note(&fetched, told, begun);
            fetched.map(Loaded::from)
        }
        .instrument(span)
        .await
    }

    fn ask(&self) -> Ask<'_> {
        Ask { client: &self.client, headers: self.origin.headers(), limit: self.limit }
    }

    fn note(&self, fetched: &Fetched, told: Told, begun: Instant) {
        let outcome = match fetched {
            Ok(Some(_)) => "ok",
            Ok(None) => "absent",
            Err(error) => error.outcome(),
        };
        let namespace = self.namespace.to_string();
        metrics::counter!("tidegate_origin_calls_total", "namespace" => namespace, "outcome" => outcome).increment(1);
        self.bytes.increment(told.bytes as u64);
        tracing::debug!(outcome, status = told.status, bytes = told.bytes, ms = ms_since(begun), "an origin was asked");
    }
}
