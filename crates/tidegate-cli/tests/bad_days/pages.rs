//! Product pages on two nodes of one ledger and one Redis: a change is seen everywhere, whatever dies on the way.

use std::time::{Duration, Instant};

use serde_json::json;
use tidegate_conformance::servers::{MariaDb, Postgres, Redis};

use crate::server::{Api, Start};
use crate::shop::Shop;

fn set_price(api: &Api, amount: i64) -> String {
    let put = api.put("/v1/skus/x", &json!({"price": {"amount": amount, "currency": "EUR"}})).expect("an answer");
    assert_eq!(put.status, 200, "{put:?}");
    put.header("x-cache-invalidation").to_owned()
}

/// The price that the page shows.
fn price(api: &Api, query: &str) -> i64 {
    let page = api.get(&format!("/v1/products/x{query}")).expect("an answer");
    page.json["price"]["amount"].as_i64().unwrap_or_else(|| panic!("{page:?}"))
}

#[test]
fn a_change_is_seen_at_once_on_its_node_and_within_a_second_on_the_others() {
    let (mariadb, redis) = (MariaDb::start(), Redis::start());
    let shop = Shop::open(mariadb.database(), redis.url(), 2);
    let [a, b] = [0, 1].map(|node| shop.api(node).clone());
    for amount in 1_000..1_040 {
        let (writer, reader) = if amount % 2 == 0 { (&a, &b) } else { (&b, &a) };
        price(reader, "");
        assert_eq!(set_price(writer, amount), "", "the store answers");
        let changed = Instant::now();
        assert_eq!(price(writer, ""), amount);
        assert_eq!(price(reader, "?read=strong"), amount);
        while price(reader, "") != amount {
            assert!(changed.elapsed() < Duration::from_millis(1_500), "{amount} is not seen");
        }
    }
    let served = b.get("/v1/products/x").expect("an answer");
    assert_eq!(served.header("x-cache"), "hit-local", "it is a cache all the same");
}

#[test]
fn what_a_dead_node_could_not_delete_another_deletes() {
    let (postgres, redis) = (Postgres::start(), Redis::start());
    let mut shop = Shop::open(postgres.database(), redis.url(), 2);
    let [a, b] = [0, 1].map(|node| shop.api(node).clone());
    set_price(&a, 1);
    b.wait("the first price", Duration::from_secs(2), |b| price(b, "") == 1);
    redis.freeze();
    assert_eq!(set_price(&a, 2), "pending", "committed, though the page cannot be deleted yet");
    shop.nodes[0].child.kill().expect("it can be killed");
    shop.nodes[0].child.wait().expect("it ends");
    redis.thaw();
    b.wait("the price of the dead", Duration::from_secs(10), |b| price(b, "") == 2);
    assert_eq!(price(&b, "?read=strong"), 2);
    shop.start_again(0);
    assert_eq!(price(shop.api(0), "?read=strong"), 2);
}

#[test]
fn pages_are_answered_while_redis_is_away() {
    let (postgres, redis) = (Postgres::start(), Redis::start());
    let shop = Shop::open(postgres.database(), redis.url(), 2);
    let [a, b] = [0, 1].map(|node| shop.api(node).clone());
    set_price(&a, 7);
    assert_eq!((price(&a, ""), price(&b, "")), (7, 7));
    redis.freeze();
    let begun = Instant::now();
    let mut longest = Duration::ZERO;
    while begun.elapsed() < Duration::from_secs(4) {
        let asked = Instant::now();
        assert_eq!(price(&b, ""), 7);
        longest = longest.max(asked.elapsed());
    }
    assert!(longest < Duration::from_millis(1_500), "{longest:?}");
    set_price(&a, 8);
    redis.thaw();
    for api in [&a, &b] {
        api.wait("the price set meanwhile", Duration::from_secs(10), |api| price(api, "") == 8);
    }
}

/// What a node has committed its own readers see at once, whether Redis answers or not, and still when it answers again and
/// has what it had.
#[test]
fn a_node_sees_its_own_changes_while_redis_is_frozen_and_right_after() {
    let (postgres, redis) = (Postgres::start(), Redis::start());
    let shop = Shop::open(postgres.database(), redis.url(), 2);
    let [a, b] = [0, 1].map(|node| shop.api(node).clone());
    let page = |sku: &str, query: &str| a.get(&format!("/v1/products/{sku}{query}")).expect("an answer");
    // Absences and pages that Redis, and both processes, remember.
    let new: Vec<String> = (0..30).map(|n| format!("new-{n}")).collect();
    for sku in &new {
        for api in [&a, &b] {
            assert_eq!(api.get(&format!("/v1/products/{sku}")).expect("an answer").status, 404);
        }
    }
    set_price(&a, 1);
    assert_eq!((price(&a, ""), price(&b, "")), (1, 1));
    redis.freeze();
    for sku in &new[..3] {
        assert_eq!(page(sku, "").status, 404);
        let put = a.put(&format!("/v1/skus/{sku}"), &json!({"on_hand": 1})).expect("an answer");
        assert_eq!((put.status, put.header("x-cache-invalidation")), (201, "pending"), "{put:?}");
        assert_eq!((page(sku, "").status, page(sku, "?read=strong").status), (200, 200), "{sku}");
    }
    assert_eq!(set_price(&a, 2), "pending");
    assert_eq!((price(&a, ""), price(&a, "?read=strong")), (2, 2));
    // Written while Redis is away, and read at the very moment it is back.
    std::thread::scope(|threads| {
        for sku in &new[3..] {
            let a = a.clone();
            threads.spawn(move || {
                let put = a.put(&format!("/v1/skus/{sku}"), &json!({"on_hand": 1})).expect("an answer");
                assert_eq!(put.status, 201, "{put:?}");
            });
        }
    });
    assert_eq!(set_price(&a, 3), "pending");
    redis.thaw();
    let thawed = Instant::now();
    while thawed.elapsed() < Duration::from_secs(2) {
        for (at, sku) in new.iter().enumerate() {
            let query = if at % 2 == 0 { "" } else { "?read=strong" };
            let seen = page(sku, query);
            assert_eq!(seen.status, 200, "{sku}{query} {:?} after the thaw: {seen:?}", thawed.elapsed());
        }
        assert_eq!((price(&a, ""), price(&a, "?read=strong")), (3, 3));
    }
    for sku in &new {
        assert_eq!(b.get(&format!("/v1/products/{sku}")).expect("an answer").status, 200, "{sku}");
    }
    assert_eq!(price(&b, ""), 3);
}

#[test]
fn the_settings_of_the_cache_are_taken() {
    let folder = tempfile::tempdir().expect("a folder");
    let start = Start::in_folder(folder.path())
        .env("TIDEGATE_CACHE_PRODUCTS_LOCAL_FOR", "off")
        .env("TIDEGATE_CACHE_PRODUCTS_ABSENT_FOR", "off")
        .env("TIDEGATE_CACHE_PRODUCTS_FRESH_FOR", "100ms")
        .env("TIDEGATE_CACHE_PRODUCTS_STALE_FOR", "off")
        .env("TIDEGATE_CACHE_PRODUCTS_MEMBERSHIP", "0");
    let server = start.ready();
    let api = Api::new(server.address);
    api.sku("x", 1);
    let from = |path: &str| api.get(path).expect("an answer").header("x-cache").to_owned();
    assert_eq!([from("/v1/products/none"), from("/v1/products/none")], ["miss", "miss"], "absences are not remembered");
    from("/v1/products/x");
    assert_eq!(from("/v1/products/x"), "hit", "no copies in process");
    std::thread::sleep(Duration::from_millis(150));
    assert_eq!(from("/v1/products/x"), "miss", "not fresh, and not to be served stale");
}
