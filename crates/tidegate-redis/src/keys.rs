//! Every key and channel. `NAME` is [`crate::RedisOptions::name`], `P` a partition; what stands in braces decides who in a
//! Cluster holds a key.
//!
//! | key | type | what |
//! | --- | --- | --- |
//! | `{tg:NAME:dP}:due` | sorted set | member: order number, instant (8 bytes each); score: when it is claimable next |
//! | `{tg:NAME:dP}:held` | hash | order number -> what is known of an order that was claimed; `r` -> the last receipt |
//! | `{tg:NAME:dP}:mark` | string | the server that held all deadlines when the index was last whole |
//! | `{tg:NAME}:owner` | string | the ledger that has the name, and the number of partitions |
//! | `{tg:NAME}:nodes` | hash | node -> its last heartbeat, Redis time in milliseconds |
//! | `{tg:NAME}:rebuild` | string, expires | who rebuilds the index now |
//! | `{tg:NAME:s:TAG}:stock:SKU` | string | units of a SKU of a [`crate::StockCounter`]; TAG: the SKU's hash tag, or the SKU |
//! | `{tg:NAME:s:TAG}:op:ID` | string, expires | what an operation did |
//! | `{..}:probe` | string, expires | whether the server that holds keys of these braces takes writes |
//!
//! Channels: `tg:NAME:earlier` (a partition has an earlier head), `tg:NAME:bus:LEDGER` ([`crate::RedisBus`]; without `:LEDGER`
//! where none is named).

use tidegate_backend::LedgerId;

/// Most partitions: each gets a share of every claim.
pub(crate) const MAX_PARTITIONS: usize = 32;

/// The keys of one shop.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    name: String,
}

impl Keys {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned() }
    }

    /// `due`, `held` and `mark` of a partition.
    pub(crate) fn partition(&self, partition: usize) -> [Vec<u8>; 3] {
        ["due", "held", "mark"].map(|part| format!("{{tg:{}:d{partition}}}:{part}", self.name).into_bytes())
    }

    pub(crate) fn owner(&self) -> Vec<u8> {
        format!("{{tg:{}}}:owner", self.name).into_bytes()
    }

    pub(crate) fn nodes(&self) -> Vec<u8> {
        format!("{{tg:{}}}:nodes", self.name).into_bytes()
    }

    pub(crate) fn rebuild(&self) -> Vec<u8> {
        format!("{{tg:{}}}:rebuild", self.name).into_bytes()
    }

    /// What stands in braces in a SKU, as Redis reads keys; else the SKU itself.
    pub(crate) fn stock_tag(sku: &str) -> &str {
        let tagged = sku.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
        tagged.filter(|tag| !tag.is_empty()).unwrap_or(sku)
    }

    pub(crate) fn stock(&self, sku: &str) -> Vec<u8> {
        format!("{{tg:{}:s:{}}}:stock:{sku}", self.name, plain(Self::stock_tag(sku))).into_bytes()
    }

    pub(crate) fn stock_operation(&self, tag: &str, id: &str) -> Vec<u8> {
        format!("{{tg:{}:s:{}}}:op:{id}", self.name, plain(tag)).into_bytes()
    }

    pub(crate) fn earlier_channel(&self) -> String {
        format!("tg:{}:earlier", self.name)
    }

    /// What another ledger says under this name is not heard.
    pub(crate) fn bus_channel(&self, ledger: Option<LedgerId>) -> String {
        let of = ledger.map_or_else(String::new, |ledger| format!(":{ledger}"));
        format!("tg:{}:bus{of}", self.name)
    }
}

/// A tag inside our braces must not close them.
fn plain(tag: &str) -> std::borrow::Cow<'_, str> {
    if tag.contains('}') { tag.replace('}', "%7D").into() } else { tag.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skus_with_a_tag_lie_together() {
        for (sku, tag) in [("mug", "mug"), ("{sale}mug", "sale"), ("a{b}c{d}", "b"), ("{}x", "{}x"), ("a}{b", "a}{b")] {
            assert_eq!(Keys::stock_tag(sku), tag);
        }
        let keys = Keys::new("shop");
        assert_eq!(keys.stock("a}b"), b"{tg:shop:s:a%7Db}:stock:a}b");
        assert_eq!(keys.stock_operation("sale", "1"), b"{tg:shop:s:sale}:op:1");
    }
}
