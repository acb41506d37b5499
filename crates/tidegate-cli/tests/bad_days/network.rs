//! A bad network between every node and its servers, each link spoilt on its own: slow, cut at random, silent, replies lost
//! after their effect.

use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidegate_conformance::servers::{MariaDb, Postgres, Proxy, Redis};

use crate::long;
use crate::server::Start;
use crate::shop::{Shop, home, now};

const NODES: usize = 3;
/// Crowd of each node.
const THREADS: u64 = 2;
/// How long a node may take to be whole again.
const RECOVERY: Duration = Duration::from_secs(15);

/// The links of one node.
struct Links {
    database: Proxy,
    redis: Proxy,
}

/// A shop whose nodes reach nothing but through their own links; its check asks every node through them, too.
fn spoilt(ledger: &str, database: u16, redis: &Redis) -> (Shop, Vec<Links>) {
    let mut links = Vec::new();
    let mut shop = Shop { ledger: ledger.to_owned(), store: redis.url(), nodes: Vec::new() };
    for _ in 0..NODES {
        let link = Links { database: Proxy::start(database), redis: Proxy::start(redis.port()) };
        let ledger = ledger.replace(&format!(":{database}/"), &format!(":{}/", link.database.port()));
        let store = format!("redis://127.0.0.1:{}", link.redis.port());
        shop.nodes.push(Start::on(&ledger, &store).ready());
        links.push(link);
    }
    shop.api(0).sku("x", 1_000_000);
    (shop, links)
}

/// A spoilt network under load, then a good one: nothing lost, nothing twice.
fn weather(ledger: &str, database: u16, spoil: impl Fn(&[Links], &mut StdRng)) {
    let redis = Redis::start();
    let (shop, links) = spoilt(ledger, database, &redis);
    let crowds = shop.crowds(THREADS);
    std::thread::sleep(Duration::from_millis(500));
    spoil(&links, &mut StdRng::seed_from_u64(7));
    let back = now();
    for node in &shop.nodes {
        node.api.wait("ready again", RECOVERY, |api| api.readiness().contains("\"ready\""));
    }
    std::thread::sleep(Duration::from_secs(1));
    let told = home(crowds);
    assert!(told.len() > 50, "only {} acknowledgements", told.len());
    shop.check_since(&told, back);
}

fn on_postgres(spoil: impl Fn(&[Links], &mut StdRng)) {
    let postgres = Postgres::start();
    weather(&postgres.database(), postgres.port(), spoil);
}

fn on_mariadb(spoil: impl Fn(&[Links], &mut StdRng)) {
    let mariadb = MariaDb::start();
    weather(&mariadb.database(), mariadb.port(), spoil);
}

fn lasts() -> Duration {
    Duration::from_secs(if long() { 60 } else { 5 })
}

/// Every answer of every server is a fifth of a second late.
fn slow(links: &[Links], _: &mut StdRng) {
    let delay = |by| links.iter().flat_map(|link| [&link.database, &link.redis]).for_each(|proxy| proxy.delay(by));
    delay(Duration::from_millis(200));
    std::thread::sleep(lasts());
    delay(Duration::ZERO);
}

#[test]
fn every_answer_late_on_postgres() {
    on_postgres(slow);
}

#[test]
fn every_answer_late_on_mariadb() {
    on_mariadb(slow);
}

/// Connections are cut, and answers are swallowed after their effect, of a link at random.
fn torn(links: &[Links], rng: &mut StdRng) {
    let begun = Instant::now();
    while begun.elapsed() < lasts() {
        let link = &links[rng.random_range(0..links.len())];
        let proxy = if rng.random() { &link.database } else { &link.redis };
        if rng.random() {
            proxy.cut()
        } else {
            proxy.cut_replies(rng.random_range(1..4))
        }
        std::thread::sleep(Duration::from_millis(rng.random_range(20..200)));
    }
    links.iter().flat_map(|link| [&link.database, &link.redis]).for_each(|proxy| proxy.cut_replies(0));
}

#[test]
fn connections_cut_and_replies_lost_on_postgres() {
    on_postgres(torn);
}

#[test]
fn connections_cut_and_replies_lost_on_mariadb() {
    on_mariadb(torn);
}

/// For three seconds nothing passes on one node's links, then on everybody's; what was on its way is lost for good.
fn silent(links: &[Links], _: &mut StdRng) {
    for some in [&links[..1], links] {
        let both = || some.iter().flat_map(|link| [&link.database, &link.redis]);
        both().for_each(|proxy| proxy.silence(true));
        std::thread::sleep(Duration::from_secs(3));
        // No TCP goes on with bytes missing: these connections are over, and those begun meanwhile.
        both().for_each(|proxy| proxy.refuse(true));
        both().for_each(Proxy::cut);
        std::thread::sleep(Duration::from_millis(50));
        both().for_each(Proxy::cut);
        both().for_each(|proxy| proxy.silence(false));
        both().for_each(|proxy| proxy.refuse(false));
        std::thread::sleep(Duration::from_secs(2));
    }
}

#[test]
fn silence_for_three_seconds_on_postgres() {
    on_postgres(silent);
}

#[test]
fn silence_for_three_seconds_on_mariadb() {
    on_mariadb(silent);
}

/// Answers come when those who asked have given up: each node's in turn, three seconds late.
fn belated(links: &[Links], _: &mut StdRng) {
    for link in links {
        [&link.database, &link.redis].iter().for_each(|proxy| proxy.delay(Duration::from_secs(3)));
        std::thread::sleep(Duration::from_millis(500));
        [&link.database, &link.redis].iter().for_each(|proxy| proxy.delay(Duration::ZERO));
        std::thread::sleep(Duration::from_secs(3));
    }
}

#[test]
fn answers_three_seconds_late_on_postgres() {
    on_postgres(belated);
}
