//! What the tests of the ledger share.
#![allow(dead_code, reason = "each test file uses a part")]

use std::path::Path;
use std::sync::Arc;

use tidegate_backend::{Commit, Ledger};
use tidegate_core::command::{Adjust, Cancel, Pay, Place, PutSku};
use tidegate_core::{
    BuyerId, Command, Currency, IdempotencyKey, JsonObject, Millis, Money, OrderId, Outcome, Patch, PaymentId, SkuId,
    SkuPatch,
};
use tidegate_embedded::{Options, SqliteLedger};

/// Options with a manual clock.
pub fn options(folder: &Path) -> Options {
    let mut options = Options::new(folder.join("ledger.db"));
    options.manual_clock = true;
    options
}

pub async fn open(folder: &Path) -> Arc<SqliteLedger> {
    SqliteLedger::open(options(folder)).await.unwrap()
}

pub fn sku_id(text: &str) -> SkuId {
    SkuId::parse(text).unwrap()
}

pub fn order_id(text: &str) -> OrderId {
    OrderId::parse(text).unwrap()
}

pub fn put(sku: &str, on_hand: i64, price: Option<i64>, max_per_buyer: Option<i64>) -> Command {
    let price = price.map(|amount| Money { amount, currency: Currency::parse("EUR").unwrap() });
    let set = |n: Option<i64>| n.map_or(Patch::Keep, Patch::Set);
    Command::PutSku(PutSku {
        sku: sku_id(sku),
        patch: SkuPatch {
            price: price.map_or(Patch::Keep, Patch::Set),
            max_per_buyer: set(max_per_buyer),
            ..SkuPatch::default()
        },
        on_hand: Some(on_hand),
        if_version: None,
    })
}

pub fn limit(sku: &str, max_per_buyer: i64) -> Command {
    Command::PutSku(PutSku {
        sku: sku_id(sku),
        patch: SkuPatch { max_per_buyer: Patch::Set(max_per_buyer), ..SkuPatch::default() },
        on_hand: None,
        if_version: None,
    })
}

pub fn place_of(id: &str, buyer: &str, lines: &[(&str, i64)]) -> Place {
    Place {
        order_id: order_id(id),
        chosen: true,
        key: None,
        buyer_id: BuyerId::parse(buyer).unwrap(),
        lines: lines.iter().map(|(sku, n)| (sku_id(sku), *n)).collect(),
        hold_seconds: None,
        supersedes: None,
        metadata: JsonObject::empty(),
    }
}

pub fn place(id: &str, buyer: &str, lines: &[(&str, i64)]) -> Command {
    Command::Place(place_of(id, buyer, lines))
}

pub fn pay(id: &str, payment: &str, amount: Option<i64>) -> Command {
    Command::Pay(Pay {
        order_id: order_id(id),
        payment_id: PaymentId::parse(payment).unwrap(),
        amount,
        currency: None,
        captured_at: Some(Millis(1_000)),
    })
}

pub fn cancel(id: &str) -> Command {
    Command::Cancel(Cancel { order_id: order_id(id), reason: Some("changed my mind".into()), restock: true })
}

pub fn adjust(sku: &str, delta: i64, key: &str) -> Command {
    Command::Adjust(Adjust {
        sku: sku_id(sku),
        delta,
        reason: "count".into(),
        key: IdempotencyKey::parse(key).unwrap(),
    })
}

pub async fn commit(ledger: &SqliteLedger, commands: Vec<Command>) -> Commit {
    ledger.commit(commands.into()).await.unwrap()
}

/// Commits and expects that nothing was refused.
pub async fn all_well(ledger: &SqliteLedger, commands: Vec<Command>) -> Vec<Outcome> {
    commit(ledger, commands).await.verdicts.into_iter().map(Result::unwrap).collect()
}

/// Every invariant that the auditor checked holds, and it saw something.
pub async fn audit(ledger: &SqliteLedger) {
    let report = ledger.audit(1_000).await.unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    assert!(!report.invariants.is_empty() && report.invariants.values().all(|held| *held), "{report:?}");
}
