//! Product pages: the card of a SKU through the cache, and whether it can be had from the gate's copy.
//!
//! A change of a card makes its page old in the same commit: the ledger writes that into its outbox, the relay deletes the
//! page. Stock changes touch no page: `in_stock` is joined at each read.
//!
//! A SKU that the ledger does not have is answered without asking it: a membership filter of its SKUs. What enters the outbox
//! enters the filter before it counts as delivered, so a node that dies after its commit loses no SKU.
//!
//! Nodes that write one ledger and share no store could not tell each other: their pages are not cached, only loaded once
//! for all who ask at the same time.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tidegate_backend::{Gate, Ledger};
use tidegate_core::cache::products::{NAMESPACE, key, version};
use tidegate_core::{JsonObject, Money, Sku, SkuId};

use crate::Error;
use crate::cache::{Cache, CacheError, Caches, LoadContext, Loaded, Membership, MembershipStatus, Read, Relay, Ttl};

/// Of [`Product`], as it is stored.
const SCHEMA: u32 = 1;
/// SKUs of one read, for the membership filter.
const IDS_A_PAGE: usize = 1_000;
/// How long a write of SKUs waits for the store of the membership filter.
const EXPECTED_WITHIN: Duration = Duration::from_millis(100);

/// What a product page shows of a SKU's card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Product {
    /// Shown name.
    pub title: Option<String>,
    /// Price of one unit.
    pub price: Option<Money>,
    /// Whatever the shop keeps with it.
    #[serde(with = "as_text")]
    pub attributes: Option<JsonObject>,
    /// Takes no new orders.
    pub archived: bool,
}

impl From<Sku> for Product {
    fn from(sku: Sku) -> Self {
        Self { title: sku.title, price: sku.price, attributes: sku.attributes, archived: sku.archived }
    }
}

/// Attributes as the text they are kept as: their order and numbers stay.
mod as_text {
    use super::{Deserialize, Deserializer, JsonObject, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(object: &Option<JsonObject>, to: S) -> Result<S::Ok, S::Error> {
        object.as_ref().map(JsonObject::as_str).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<JsonObject>, D::Error> {
        Ok(Option::<String>::deserialize(from)?.map(|text| JsonObject::from_stored(&text)))
    }
}

/// How product pages are cached. [`crate::cache::CacheBuilder`] says what each means.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct ProductOptions {
    /// 60 s unless set.
    pub fresh_for: Ttl,
    /// 10 min unless set.
    pub stale_for: Option<Ttl>,
    /// 5 s unless set.
    pub absent_for: Option<Ttl>,
    /// 0.1 unless set.
    pub jitter: f64,
    /// 1.0 unless set.
    pub early_refresh: f64,
    /// 64 unless set.
    pub load_budget: usize,
    /// No bound unless set.
    pub load_rate: Option<std::num::NonZeroU32>,
    /// 10 s unless set; a tenth of it is the soft one.
    pub load_timeout: Duration,
    /// 256 KiB unless set.
    pub max_value: usize,
    /// 60 s unless set; `None`: no copies in process.
    pub local_for: Option<Ttl>,
    /// Whether this node refuses unknown SKUs by a membership filter; true unless set. What it writes enters the filters of
    /// other nodes in any case.
    pub membership: bool,
    /// SKUs that filter is made for; 1,000,000 unless set. With more it is built anew, larger.
    pub membership_capacity: u64,
}

impl Default for ProductOptions {
    fn default() -> Self {
        Self {
            fresh_for: Ttl::seconds::<60>(),
            stale_for: Some(Ttl::seconds::<600>()),
            absent_for: Some(Ttl::seconds::<5>()),
            jitter: 0.1,
            early_refresh: 1.0,
            load_budget: 64,
            load_rate: None,
            load_timeout: Duration::from_secs(10),
            max_value: 256 << 10,
            local_for: Some(Ttl::seconds::<60>()),
            membership: true,
            membership_capacity: 1_000_000,
        }
    }
}

/// How the caches of an instance run.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct CacheOptions {
    /// Bytes of all copies in process; 64 MiB unless set.
    pub local_bytes: usize,
    /// Loads at once in this process, all caches together; 64 unless set.
    pub load_budget: usize,
    /// Loads a second in this process; no bound unless set.
    pub load_rate: Option<std::num::NonZeroU32>,
    /// How many of the keys that are read most each cache knows, and brings back when the store has lost them; 1,000 unless set, 0: none.
    pub rewarm: usize,
    /// Of product pages.
    pub products: ProductOptions,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self {
            local_bytes: crate::cache::DEFAULT_LOCAL_BYTES,
            load_budget: crate::cache::DEFAULT_LOAD_BUDGET,
            load_rate: None,
            rewarm: crate::cache::DEFAULT_HOT_KEYS,
            products: ProductOptions::default(),
        }
    }
}

/// A page as it was read.
#[derive(Debug, Clone)]
pub struct ProductPage {
    /// The card, its age and where it came from; no value: there is no such SKU.
    pub card: Read<Product>,
    /// Whether a unit can be ordered.
    pub in_stock: bool,
}

/// Product pages: a cheap handle.
#[derive(Clone)]
pub struct Products {
    cache: Cache<SkuId, Product>,
    gate: Arc<dyn Gate>,
    ledger: Arc<dyn Ledger>,
    /// `None`: nothing is cached.
    relay: Option<Relay>,
}

/// Why the cache of pages cannot be made, as the library says it.
fn unusable(e: CacheError) -> Error {
    Error::Configuration(format!("the cache of product pages: {e}"))
}

impl Products {
    /// The pages of a ledger's SKUs. `hears`: whether all that changes them is told to these caches.
    ///
    /// # Errors
    /// [`Error::Configuration`]: the options contradict each other.
    pub(crate) fn start(
        caches: &Caches,
        ledger: Arc<dyn Ledger>,
        gate: Arc<dyn Gate>,
        options: ProductOptions,
        hears: bool,
    ) -> crate::Result<Self> {
        let mut builder = caches
            .cache::<SkuId, Product>(NAMESPACE)
            .schema(SCHEMA)
            .fresh_for(options.fresh_for)
            .jitter(options.jitter)
            .early_refresh(options.early_refresh)
            .load_budget(options.load_budget)
            .load_timeout(options.load_timeout / 10, options.load_timeout)
            .max_value(options.max_value);
        if let Some(ttl) = options.stale_for {
            builder = builder.stale_for(ttl);
        }
        if let Some(ttl) = options.absent_for {
            builder = builder.absent_for(ttl);
        }
        if let Some(rate) = options.load_rate {
            builder = builder.load_rate(rate);
        }
        builder = match options.local_for {
            Some(life) if hears => builder.local_for(life),
            _ => builder.no_local(),
        };
        if !hears {
            // Nothing is kept that could be warmed.
            builder = builder.hot_keys(0);
        }
        if hears && caches.keep_membership() {
            builder = builder.membership(membership(&ledger, options));
        }
        let from = Arc::clone(&ledger);
        let cache = builder.loader(move |sku: SkuId, _: LoadContext| {
            let from = Arc::clone(&from);
            async move { Ok::<_, Error>(loaded(from.sku(sku).await?, hears)) }
        });
        let relay = hears.then(|| caches.relay_ledger(Arc::clone(&ledger)));
        Ok(Self { cache: cache.map_err(unusable)?, gate, ledger, relay })
    }

    /// The page of `sku`. `strong`: no change whose invalidation was acknowledged before this call ([`Products::settled`]) is
    /// missing in it; else for a second at most.
    ///
    /// # Errors
    /// [`CacheError`]; a failure of the ledger is its `Load`, an [`Error`].
    pub async fn get(&self, sku: &SkuId, strong: bool) -> Result<ProductPage, CacheError> {
        let card = if strong { self.cache.read(sku).strong().await? } else { self.cache.get(sku).await? };
        let in_stock = match &card.value {
            Some(product) if !product.archived => self.is_in_stock(sku).await,
            _ => false,
        };
        Ok(ProductPage { card, in_stock })
    }

    /// By the gate's copy; a SKU so new that the gate has not heard of it is looked up.
    async fn is_in_stock(&self, sku: &SkuId) -> bool {
        match self.gate.copy_of(sku) {
            Some(copy) => !copy.archived && copy.available > 0,
            None => matches!(self.ledger.sku(sku.clone()).await, Ok(Some(sku)) if sku.counts.available() > 0),
        }
    }

    /// Up to `most` of the SKUs whose pages are read most in this process lately, the hottest first.
    #[must_use]
    pub fn hottest(&self, most: usize) -> Vec<crate::cache::HotKey<SkuId>> {
        self.cache.hottest(most)
    }

    /// Waits until pages of this process show what was committed here about `sku`; false: not within `patience`, and then
    /// they may be old until the store answers.
    pub async fn settled(&self, sku: &SkuId, patience: Duration) -> bool {
        match &self.relay {
            Some(relay) => relay.settled(NAMESPACE, key(sku).as_bytes(), patience).await,
            None => true,
        }
    }

    /// The relay of the ledger's outbox.
    pub(crate) fn relay(&self) -> Option<Relay> {
        self.relay.clone()
    }

    /// SKUs that are about to be committed enter the membership filter before, so that no node refuses them from their commit
    /// on. If the store does not answer in time, they enter it with the outbox, a moment after.
    pub(crate) async fn expect(&self, skus: impl Iterator<Item = &SkuId>) {
        let Some(membership) = self.cache.membership() else { return };
        let new: Vec<SkuId> = skus.filter(|sku| self.gate.copy_of(sku).is_none()).cloned().collect();
        if new.is_empty() {
            return;
        }
        match tokio::time::timeout(EXPECTED_WITHIN, membership.add_many(&new)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "new SKUs could not be added to the membership filter before"),
            Err(_) => tracing::debug!("new SKUs could not be added to the membership filter in time"),
        }
    }

    /// The membership filter of the ledger's SKUs, if there is one.
    ///
    /// # Errors
    /// [`CacheError::Store`]: its store does not answer.
    pub async fn membership(&self) -> Result<Option<MembershipStatus>, CacheError> {
        match self.cache.membership() {
            Some(membership) => membership.status().await.map(Some),
            None => Ok(None),
        }
    }

    /// Whether this instance takes invalidations from the ledger's outbox.
    pub(crate) fn takes_invalidations(&self) -> bool {
        self.relay.is_some()
    }

    /// Hands on what a commit made old.
    pub(crate) fn made_old(&self, entries: Vec<tidegate_backend::OutboxEntry>) {
        if let Some(relay) = &self.relay {
            relay.hand(entries);
        }
    }
}

/// The filter of a ledger's SKUs. Every SKU enters it after its commit, too, with the outbox: no addition needs to settle.
fn membership(ledger: &Arc<dyn Ledger>, options: ProductOptions) -> Membership<SkuId> {
    if !options.membership {
        return Membership::additions_only();
    }
    let ledger = Arc::clone(ledger);
    let ids = move |after: Option<SkuId>| {
        let ledger = Arc::clone(&ledger);
        async move {
            let page = ledger.copies(after, IDS_A_PAGE).await?;
            Ok::<_, Error>(page.into_iter().map(|(sku, _)| sku).collect())
        }
    };
    Membership::of(ids).capacity(options.membership_capacity).settle(Duration::ZERO)
}

fn loaded(sku: Option<Sku>, cached: bool) -> Loaded<Product> {
    let Some(sku) = sku else { return if cached { Loaded::absent() } else { Loaded::absent().uncached() } };
    let version = version(&sku);
    let product = Product::from(sku);
    let loaded = if cached { Loaded::value(product) } else { Loaded::uncacheable(product) };
    match version {
        Some(version) => loaded.version(version),
        None => loaded,
    }
}
