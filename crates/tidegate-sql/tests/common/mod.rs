//! What the tests of the SQL ledger share: both servers under one name, commands, the auditor.
#![allow(dead_code, reason = "each test file uses a part")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_backend::{Commit, Ledger};
use tidegate_conformance::servers::{MariaDb, Postgres};
use tidegate_core::command::{Cancel, Pay, Place, PutSku};
use tidegate_core::{
    BuyerId, Command, Currency, JsonObject, Money, Order, OrderId, Outcome, Patch, PaymentId, SkuId, SkuPatch, Verdict,
};
use tidegate_sql::{SqlLedger, SqlOptions};

/// A private server of either dialect.
pub enum Server {
    MariaDb(MariaDb),
    Postgres(Postgres),
}

/// Makes a test of `$case(Server)` on each dialect.
#[macro_export]
macro_rules! on_both {
    ($($case:ident),+ $(,)?) => {
        mod mysql {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$case(super::common::Server::mariadb(&[])).await;
            })+
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$case(super::common::Server::postgres(&[])).await;
            })+
        }
    };
}

macro_rules! to_server {
    ($self:ident, $server:ident => $call:expr) => {
        match $self {
            Server::MariaDb($server) => $call,
            Server::Postgres($server) => $call,
        }
    };
}

impl Server {
    pub fn mariadb(options: &[(&str, &str)]) -> Arc<Self> {
        Arc::new(Self::MariaDb(MariaDb::start_with(options)))
    }

    pub fn postgres(settings: &[(&str, &str)]) -> Arc<Self> {
        Arc::new(Self::Postgres(Postgres::start_with(settings)))
    }

    pub fn is_mariadb(&self) -> bool {
        matches!(self, Self::MariaDb(_))
    }

    pub fn database(&self) -> String {
        to_server!(self, s => s.database())
    }

    pub fn port(&self) -> u16 {
        to_server!(self, s => s.port())
    }

    /// Runs `sql` in the database of `url`.
    pub fn sql(&self, url: &str, sql: &str) -> String {
        let database = url.rsplit('/').next().unwrap();
        to_server!(self, s => s.sql(database, sql))
    }

    pub fn kill(&self) {
        to_server!(self, s => s.kill());
    }

    pub fn restart(&self) {
        to_server!(self, s => s.restart());
    }

    pub fn freeze(&self) {
        to_server!(self, s => s.freeze());
    }

    pub fn thaw(&self) {
        to_server!(self, s => s.thaw());
    }

    pub fn set_read_only(&self, read_only: bool) {
        to_server!(self, s => s.set_read_only(read_only));
    }

    pub fn kill_connections(&self) {
        to_server!(self, s => s.kill_connections());
    }
}

pub async fn open(url: &str) -> Arc<SqlLedger> {
    SqlLedger::open(SqlOptions::new(url)).await.unwrap()
}

/// With a manual clock.
pub async fn open_manual(url: &str) -> Arc<SqlLedger> {
    let mut options = SqlOptions::new(url);
    options.manual_clock = true;
    SqlLedger::open(options).await.unwrap()
}

pub fn sku_id(text: &str) -> SkuId {
    SkuId::parse(text).unwrap()
}

pub fn order_id(text: &str) -> OrderId {
    OrderId::parse(text).unwrap()
}

pub fn put(sku: &str, on_hand: i64, price: Option<i64>) -> Command {
    let euro = |amount| Money { amount, currency: Currency::parse("EUR").unwrap() };
    Command::PutSku(PutSku {
        sku: sku_id(sku),
        patch: SkuPatch { price: price.map_or(Patch::Keep, |p| Patch::Set(euro(p))), ..SkuPatch::default() },
        on_hand: Some(on_hand),
        if_version: None,
    })
}

pub fn place(id: &str, lines: &[(&str, i64)]) -> Command {
    Command::Place(Place {
        order_id: order_id(id),
        chosen: true,
        key: None,
        buyer_id: BuyerId::parse("anna").unwrap(),
        lines: lines.iter().map(|(sku, n)| (sku_id(sku), *n)).collect(),
        hold_seconds: None,
        supersedes: None,
        metadata: JsonObject::empty(),
    })
}

pub fn pay(id: &str, payment: &str) -> Command {
    Command::Pay(Pay {
        order_id: order_id(id),
        payment_id: PaymentId::parse(payment).unwrap(),
        amount: None,
        currency: None,
        captured_at: None,
    })
}

pub fn cancel(id: &str) -> Command {
    Command::Cancel(Cancel { order_id: order_id(id), reason: None, restock: true })
}

pub async fn commit(ledger: &SqlLedger, commands: Vec<Command>) -> Commit {
    ledger.commit(commands.into()).await.unwrap()
}

/// The order that was placed, and whether it was before.
pub fn placed(verdict: &Verdict) -> (Order, bool) {
    match verdict {
        Ok(Outcome::Placed { order, replayed }) => (order.clone(), *replayed),
        other => panic!("no order was placed: {other:?}"),
    }
}

/// Every invariant that the auditor checked holds, and it saw something.
pub async fn audit(ledger: &SqlLedger) {
    let report = ledger.audit(600_000).await.unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    assert!(!report.invariants.is_empty() && report.invariants.values().all(|held| *held), "{report:?}");
}

/// Tries a commit until it is answered, as a caller does; at most for a minute.
pub async fn commit_at_last(ledger: &SqlLedger, commands: Vec<Command>) -> (Commit, usize) {
    let commands: Arc<[Command]> = commands.into();
    let begun = Instant::now();
    for tries in 1.. {
        match ledger.commit(commands.clone()).await {
            Ok(commit) => return (commit, tries),
            Err(e) => {
                assert_eq!(e.kind(), tidegate_backend::ErrorKind::Unavailable, "{e}");
                assert!(begun.elapsed() < Duration::from_secs(60), "the ledger stays away: {e}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    unreachable!("the loop ends by returning")
}
