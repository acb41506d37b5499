//! How much a commit looks at: with 50,000 orders around its own, no more than belongs to them.

use tidegate_backend::Ledger;
use tidegate_core::command::{Cancel, Park, Pay, Place};
use tidegate_core::{BuyerId, Command, IdempotencyKey, JsonObject, OrderId, OrderNo, PaymentId, SkuId};

use crate::connect::{Address, Role};
use crate::crowd::{self, analyze, fill, rows_read};
use crate::{SqlLedger, SqlOptions};

/// Orders of a batch.
const SIZE: i64 = 50;
/// Rows that a batch may look at for each of its orders: the order, its lines, payments, refunds, each perhaps twice.
const EACH: i64 = 30;

fn id(text: String) -> OrderId {
    OrderId::parse(&text).unwrap()
}

fn place(round: i64, name: &str, i: i64, supersedes: Option<&str>) -> Command {
    let sku = |text: &str| SkuId::parse(text).unwrap();
    Command::Place(Place {
        order_id: id(format!("{name}-{round}-{i}")),
        chosen: true,
        key: IdempotencyKey::parse(&format!("key-{name}-{round}-{i}")).ok(),
        buyer_id: BuyerId::parse("anna").unwrap(),
        lines: vec![(sku("s2"), 1), (sku("s3"), 1)],
        hold_seconds: None,
        supersedes: supersedes.map(|name| id(format!("{name}-{round}-{i}"))),
        metadata: JsonObject::empty(),
    })
}

fn pay(order: String, round: i64, i: i64) -> Command {
    let payment_id = PaymentId::parse(&format!("for-{order}-{round}-{i}")).unwrap();
    Command::Pay(Pay { order_id: id(order), payment_id, amount: None, currency: None, captured_at: None })
}

fn cancel(order: String) -> Command {
    Command::Cancel(Cancel { order_id: id(order), reason: None, restock: true })
}

/// The `i`th command of the batches of a round. Of the orders there are, see [`fill`], each is used once.
type Batch = fn(i64, i64) -> Command;

const BATCHES: [(&str, Batch); 11] = [
    ("new orders", |round, i| place(round, "new", i, None)),
    ("replaced orders", |round, i| place(round, "other", i, Some("new"))),
    ("repeats", |round, i| place(round, "new", i, None)),
    ("payments", |round, i| pay(format!("other-{round}-{i}"), round, i)),
    ("payments of old orders", |round, i| pay(format!("o{}", i * 1_000 + 4 + round), round, i)),
    ("payments of no order", |round, i| pay(format!("unheard-{i}"), round, i)),
    ("cancels of paid orders", |round, i| cancel(format!("other-{round}-{i}"))),
    ("cancels of old orders", |round, i| cancel(format!("o{}", i * 1_000 + 500 + round))),
    ("deadlines", |round, i| Command::Expire(OrderNo(i * 1_000 + 6 + round))),
    ("parked orders tried again", |_, i| Command::Unpark(id(format!("o{}", i * 1_000 + 2)))),
    ("orders to park", |round, i| {
        Command::Park(Park { order: OrderNo(i * 1_000 + 8 + round), tries: 1, reason: "stuck".to_owned() })
    }),
];

async fn every_commit_looks_at_its_rows_only(ledger: &SqlLedger, round: i64) {
    let parts = ledger.parts().unwrap();
    for (name, command) in BATCHES {
        let batch: Vec<Command> = (0..SIZE).map(|i| command(round, i)).collect();
        let mut lease = parts.writes.get().await.unwrap();
        let start = rows_read(&mut lease).await;
        let own = rows_read(&mut lease).await - start;
        drop(lease);
        let commit = ledger.commit(batch.into()).await.unwrap();
        // There is one writer's connection, so it is the one that committed.
        let looked_at = rows_read(&mut parts.writes.get().await.unwrap()).await - start - 2 * own;
        assert!(commit.verdicts.iter().all(Result::is_ok), "{name}: {:?}", commit.verdicts);
        assert!(looked_at <= EACH * SIZE, "{SIZE} {name} look at {looked_at} rows");
    }
}

async fn check(url: &str) {
    let mut options = SqlOptions::new(url);
    (options.writers, options.manual_clock) = (1, true);
    let ledger = SqlLedger::open(options).await.unwrap();
    let mut session = Address::parse(url).unwrap().connect(Role::Audit).await.unwrap();
    fill(&mut session).await;
    every_commit_looks_at_its_rows_only(&ledger, 0).await;
    analyze(&mut session).await;
    every_commit_looks_at_its_rows_only(&ledger, 1).await;
    ledger.close().await.unwrap();
}

#[tokio::test]
async fn no_commit_walks_a_table_on_mariadb() {
    let server = crowd::mariadb();
    check(&server.database()).await;
}

#[tokio::test]
async fn no_commit_walks_a_table_on_postgres() {
    let server = crowd::postgres();
    check(&server.database()).await;
}
