//! A shop of several nodes on one database and one Redis, and the crowds that buy there.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::kill::{Crowd, Told, verify};
use crate::server::{Api, Server, Start};

/// How late the clock may act on an order, milliseconds.
const LAG_BOUND_MS: i64 = 5_000;

/// Nodes of one ledger.
pub struct Shop {
    pub ledger: String,
    pub store: String,
    pub nodes: Vec<Server>,
}

impl Shop {
    /// `count` nodes, and SKU `x` with a million units.
    pub fn open(ledger: String, store: String, count: usize) -> Self {
        Self::open_with(ledger, store, count, |start| start)
    }

    /// The same, each node started as `how` says.
    pub fn open_with(ledger: String, store: String, count: usize, how: impl Fn(Start) -> Start) -> Self {
        let nodes = (0..count).map(|_| how(Start::on(&ledger, &store)).ready()).collect();
        let shop = Self { ledger, store, nodes };
        shop.api(0).sku("x", 1_000_000);
        shop
    }

    pub fn api(&self, node: usize) -> &Api {
        &self.nodes[node].api
    }

    /// A crowd at every node.
    pub fn crowds(&self, threads: u64) -> Vec<Crowd> {
        self.nodes.iter().map(|node| Crowd::start(&node.api, threads)).collect()
    }

    /// Another process in this node's place.
    pub fn start_again(&mut self, node: usize) {
        self.nodes[node] = Start::on(&self.ledger, &self.store).ready();
    }

    /// Waits until no order that is due is left; the ledger is the same for every node.
    pub fn settle(&self) {
        self.api(0).wait("every due order has ended", Duration::from_secs(10), |api| {
            let page = api.get("/v1/orders?status=pending&limit=500").expect("an answer").json;
            let now = now();
            let mut items = page["items"].as_array().expect("a list").iter();
            items.all(|order| at(order, "release_at").is_some_and(|at| at > now))
        });
    }

    /// Every acknowledgement is still true, every deadline was acted on in time, every invariant holds.
    pub fn check(&self, told: &[(String, Told)]) {
        self.check_since(told, i64::MIN);
    }

    /// The same when nobody could act on deadlines before the instant `back`.
    pub fn check_since(&self, told: &[(String, Told)], back: i64) {
        self.settle();
        verify(self.api(0), told);
        let mut expired = 0;
        for (order, due, ended) in self.ran_out(told) {
            expired += 1;
            let late = ended - due.max(back);
            assert!(due <= ended && late <= LAG_BOUND_MS, "{late} ms late: {order}");
        }
        assert!(expired > 0 || told.len() < 200, "no deadline in {} acknowledgements", told.len());
        self.nodes.iter().for_each(|node| node.api.check());
    }

    /// How late the latest of the orders that ran out was ended, milliseconds.
    pub fn latest(&self, told: &[(String, Told)]) -> i64 {
        self.ran_out(told).map(|(_, due, ended)| ended - due).max().expect("some ran out")
    }

    /// The orders that ran out, when each was due and when it was ended.
    fn ran_out<'a>(&'a self, told: &'a [(String, Told)]) -> impl Iterator<Item = (Value, i64, i64)> + 'a {
        let placed = told.iter().filter(|(_, what)| matches!(what, Told::Placed { .. }));
        let orders = placed.map(|(id, _)| self.api(0).order(id)).filter(|o| o["cancel_reason"] == "payment_timeout");
        orders.map(|order| {
            let [due, ended] = ["release_at", "cancelled_at"].map(|name| at(&order, name).expect("an instant"));
            (order, due, ended)
        })
    }
}

/// This host's instant, milliseconds.
pub fn now() -> i64 {
    Timestamp::now().as_millisecond()
}

/// An instant of an order, milliseconds.
pub fn at(order: &Value, name: &str) -> Option<i64> {
    order[name].as_str()?.parse::<Timestamp>().ok().map(Timestamp::as_millisecond)
}

/// Sends crowds home: everything they were told.
pub fn home(crowds: Vec<Crowd>) -> Vec<(String, Told)> {
    crowds.into_iter().flat_map(Crowd::end).collect()
}
