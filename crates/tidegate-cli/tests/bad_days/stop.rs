//! SIGTERM under load, also while a store stands still: nothing acknowledged is lost, and it ends within ten seconds.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use tidegate_conformance::servers::{MariaDb, Postgres, Redis};

use crate::kill::{Crowd, verify};
use crate::server::{Start, signal};
use crate::shop::{Shop, home};

#[test]
fn terminated_under_load_with_slow_clients_about() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut told = Vec::new();
    for round in 0..3 {
        let server = Start::in_folder(folder.path()).ready();
        if round == 0 {
            server.api.sku("x", 1_000_000);
        }
        verify(&server.api, &told);
        let crowd = Crowd::start(&server.api, 4);
        let mut slow: Vec<TcpStream> = (0..20).filter_map(|_| TcpStream::connect(server.address).ok()).collect();
        for (i, stream) in slow.iter_mut().enumerate() {
            let part = &b"POST /v1/orders HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 900\r\n\r\n{"[..40 + 3 * i];
            stream.write_all(part).expect("it listens");
        }
        std::thread::sleep(Duration::from_millis(400));
        let status = server.terminate();
        assert!(status.success(), "{status}");
        told.extend(crowd.end());
    }
    assert!(told.len() > 100);
    let server = Start::in_folder(folder.path()).ready();
    verify(&server.api, &told);
    server.api.check();
}

/// `freeze` stops a store under load; both nodes are told to stop at once, and are gone within ten seconds. What they had
/// acknowledged is there once `thaw` has woken it.
fn stopped_while_frozen(ledger: String, store: String, freeze: impl Fn(), thaw: impl Fn()) {
    let mut shop = Shop::open(ledger, store, 2);
    let crowds = shop.crowds(2);
    std::thread::sleep(Duration::from_millis(700));
    freeze();
    std::thread::sleep(Duration::from_millis(300));
    let nodes = std::mem::take(&mut shop.nodes);
    let begun = Instant::now();
    nodes.iter().for_each(|node| signal(node.child.id(), "TERM"));
    let ends: Vec<_> = nodes.into_iter().map(|node| node.ended(begun)).collect();
    assert!(ends.iter().all(|end| end.code().is_some()), "{ends:?}");
    let told = home(crowds);
    thaw();
    shop.nodes.push(Start::on(&shop.ledger, &shop.store).ready());
    assert!(told.len() > 20, "only {} acknowledgements", told.len());
    shop.settle();
    verify(shop.api(0), &told);
    shop.api(0).check();
}

#[test]
fn stopped_while_redis_is_frozen() {
    let (postgres, redis) = (Postgres::start(), Redis::start());
    stopped_while_frozen(postgres.database(), redis.url(), || redis.freeze(), || redis.thaw());
}

#[test]
fn stopped_while_postgres_is_frozen() {
    let (postgres, redis) = (Postgres::start(), Redis::start());
    stopped_while_frozen(postgres.database(), redis.url(), || postgres.freeze(), || postgres.thaw());
}

#[test]
fn stopped_while_mariadb_is_frozen() {
    let (mariadb, redis) = (MariaDb::start(), Redis::start());
    stopped_while_frozen(mariadb.database(), redis.url(), || mariadb.freeze(), || mariadb.thaw());
}

#[test]
fn time_zones_change_nothing() {
    for zone in ["Australia/Brisbane", "America/Los_Angeles", "Europe/London", "nonsense/zone"] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let server = Start::in_folder(folder.path()).env("TZ", zone).ready();
        server.api.sku("x", 5);
        let order = server.api.place("o", "x", 1, 1_800).expect("an answer").json;
        let seconds = |field: &str| {
            order[field]
                .as_str()
                .and_then(|at| at.parse::<jiff::Timestamp>().ok())
                .expect("an instant")
                .as_millisecond()
        };
        assert_eq!(seconds("pay_by") - seconds("placed_at"), 1_800_000, "{zone}");
        assert!((jiff::Timestamp::now().as_millisecond() - seconds("placed_at")).abs() < 10_000, "{zone}: {order}");
        std::thread::sleep(Duration::from_millis(1_200));
        assert_eq!(server.api.order("o")["status"], "pending", "{zone}: nothing is cancelled early");
    }
}
