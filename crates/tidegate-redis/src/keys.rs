//! Every key and channel. `NAME` is [`crate::RedisOptions::name`], `P` a partition; what stands in braces decides who in a
//! Cluster holds a key.
//!
//! | key | type | what |
//! | --- | --- | --- |
//! | `{tg:NAME:dP}:due` | sorted set | member: order number, instant (8 bytes each); score: when it is claimable next |
//! | `{tg:NAME:dP}:held` | hash | order number -> what is known of an order that was claimed; `r` -> the last receipt |
//! | `{tg:NAME:dP}:mark` | string | the server that held all deadlines when the index was last whole |
//! | `{tg:NAME}:nodes` | hash | node -> its last heartbeat, Redis time in milliseconds |
//! | `{tg:NAME}:rebuild` | string, expires | who rebuilds the index now |
//! | `{tg:NAME:s:SKU}:stock`, `..:ops`, `..:ages` | string, hash, sorted set | a [`crate::StockCounter`] |
//!
//! Channels: `tg:NAME:earlier` (a partition has an earlier head), `tg:NAME:bus` ([`crate::RedisBus`]).

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

    pub(crate) fn nodes(&self) -> Vec<u8> {
        format!("{{tg:{}}}:nodes", self.name).into_bytes()
    }

    pub(crate) fn rebuild(&self) -> Vec<u8> {
        format!("{{tg:{}}}:rebuild", self.name).into_bytes()
    }

    pub(crate) fn earlier_channel(&self) -> String {
        format!("tg:{}:earlier", self.name)
    }

    pub(crate) fn bus_channel(&self) -> String {
        format!("tg:{}:bus", self.name)
    }
}
