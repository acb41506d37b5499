//! The cases every ledger passes.

mod lists;
mod outbox;
mod together;

pub use lists::*;
pub use outbox::*;
pub use together::*;

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use rand::SeedableRng;
use tidegate_backend::{Deadline, ErrorKind, Ledger, OrderFilter, PageRequest, PaymentFilter, Probe, RefundFilter};
use tidegate_core::command::{Adjust, Cancel, Extend, Park, Pay, Place, PutSku, Rejection};
use tidegate_core::request::PlaceRequest;
use tidegate_core::{
    Command, IdempotencyKey, OrderId, OrderNo, Outcome, Patch, PaymentId, PaymentOutcome, RefundStatus, RefusalCode,
    Settings, SkuId, SkuPatch, Status, Verdict,
};

use crate::twin::Twin;
use crate::workload::{Entropy, Workload, euro};

/// A fresh ledger, and what must live as long as it.
pub struct Opened {
    /// The ledger.
    pub ledger: Arc<dyn Ledger>,
    /// A program with transactions of its own in the ledger's database.
    pub caller: Box<dyn Caller>,
    /// A folder, a server: whatever it needs.
    pub kept: Box<dyn Any + Send>,
}

/// Opens a fresh ledger with these settings and a manual clock.
pub type Open<'a> = &'a (dyn Fn(Settings) -> Pin<Box<dyn Future<Output = Opened> + Send>> + Sync);

async fn fresh(open: Open<'_>) -> (Twin, Box<dyn Any + Send>) {
    fresh_with(open, Settings::default()).await
}

async fn fresh_with(open: Open<'_>, settings: Settings) -> (Twin, Box<dyn Any + Send>) {
    let Opened { ledger, kept, .. } = open(settings).await;
    (Twin::new(ledger, settings), kept)
}

fn put(sku: &str, on_hand: i64, patch: SkuPatch) -> Command {
    Command::PutSku(PutSku { sku: SkuId::parse(sku).expect("a SKU"), patch, on_hand: Some(on_hand), if_version: None })
}

fn priced(amount: i64) -> SkuPatch {
    SkuPatch { price: Patch::Set(euro(amount)), ..SkuPatch::default() }
}

fn place_as(id: &str, buyer: &str, lines: &[(&str, i64)]) -> Place {
    let request = PlaceRequest {
        order_id: Some(id.to_owned()),
        buyer_id: buyer.to_owned(),
        lines: lines.iter().map(|(sku, q)| ((*sku).to_owned(), *q)).collect(),
        ..PlaceRequest::default()
    };
    request.check(&Settings::default(), || unreachable!("the id is chosen")).expect("a valid request")
}

fn place(id: &str, lines: &[(&str, i64)]) -> Command {
    Command::Place(place_as(id, "buyer", lines))
}

fn pay(order: &str, payment: &str, amount: Option<i64>) -> Command {
    Command::Pay(Pay {
        order_id: oid(order),
        payment_id: PaymentId::parse(payment).expect("an id"),
        amount,
        currency: None,
        captured_at: None,
    })
}

fn cancel(id: &str) -> Command {
    Command::Cancel(Cancel { order_id: oid(id), reason: Some("why not".to_owned()), restock: true })
}

fn oid(id: &str) -> OrderId {
    OrderId::parse(id).expect("an order id")
}

fn key(text: &str) -> IdempotencyKey {
    IdempotencyKey::parse(text).expect("a key")
}

fn code(verdict: &Verdict) -> Option<RefusalCode> {
    match verdict {
        Err(Rejection::Refused(refusal)) => Some(refusal.code),
        _ => None,
    }
}

fn first_page(limit: usize) -> PageRequest {
    PageRequest { cursor: None, limit }
}

/// Every field of an order, a SKU and its card comes back as it went in.
pub async fn order_round_trips(open: Open<'_>) {
    let (mut twin, _kept) = fresh(open).await;
    let attributes = serde_json::json!({"colour": "red", "sizes": [1, 2.5, null]});
    let card = SkuPatch {
        title: Patch::Set("Mug \u{2603}".to_owned()),
        attributes: Patch::Set(tidegate_core::request::attributes(&attributes).expect("small")),
        hold_seconds: Patch::Set(900),
        max_per_order: Patch::Set(10),
        max_per_buyer: Patch::Set(20),
        on_sale_from: Patch::Set(tidegate_core::Millis(1)),
        ..priced(1_299)
    };
    let mut order = place_as("o", "\u{e9}ve", &[("x", 2), ("y", 1)]);
    order.metadata =
        tidegate_core::JsonObject::new(&serde_json::json!({"note": "gift", "n": 1}), 4_096).expect("small");
    order.hold_seconds = Some(120);
    twin.commit(vec![put("x", 5, card), put("y", 1, priced(1))]).await;
    twin.commit(vec![Command::Place(order)]).await;
    twin.commit(vec![pay("o", "p", Some(100)), pay("o", "p2", Some(5_000))]).await;
    twin.commit(vec![Command::Fulfil(oid("o")), put("x", 3, SkuPatch { title: Patch::Clear, ..SkuPatch::default() })])
        .await;
    twin.compare().await;
    assert_eq!(twin.ledger.order(oid("none")).await.expect("readable"), None);
    assert_eq!(twin.ledger.sku(SkuId::parse("none").expect("a SKU")).await.expect("readable"), None);
}

/// A ledger has one number, whatever is committed; another ledger has another.
pub async fn it_has_a_number_of_its_own(open: Open<'_>) {
    let Opened { ledger, kept: _kept, .. } = open(Settings::default()).await;
    let other = open(Settings::default()).await;
    let id = ledger.id();
    assert_ne!(id, other.ledger.id());
    ledger.commit(vec![put("x", 1, priced(100))].into()).await.expect("the ledger commits");
    ledger.close().await.expect("it closes");
    assert_eq!(ledger.id(), id);
}

/// 512 orders of one SKU in one batch: as many accepted as there are units, one SKU row.
pub async fn one_hot_sku_fills_a_batch(open: Open<'_>) {
    let (mut twin, _kept) = fresh(open).await;
    twin.commit(vec![put("hot", 500, priced(100))]).await;
    let verdicts = twin.commit((0..512).map(|i| place(&format!("o{i}"), &[("hot", 1)])).collect()).await;
    assert_eq!(verdicts.iter().filter(|v| v.is_ok()).count(), 500);
    assert!(verdicts[500..].iter().all(|v| code(v) == Some(RefusalCode::InsufficientStock)));
    twin.commit(
        (0..500)
            .map(|i| if i % 2 == 0 { cancel(&format!("o{i}")) } else { pay(&format!("o{i}"), &format!("p{i}"), None) })
            .collect(),
    )
    .await;
    twin.compare().await;
}

/// Refusals of every kind between accepted commands change nothing but their own answer.
pub async fn batch_mates_do_not_spoil_each_other(open: Open<'_>) {
    let (mut twin, _kept) = fresh(open).await;
    let verdicts = twin
        .commit(vec![
            put("x", 3, SkuPatch::default()),
            place("a", &[("x", 1)]),
            place("b", &[("none", 1)]),
            place("c", &[("x", 9)]),
            place("a", &[("x", 2)]),
            Command::Fulfil(oid("a")),
            place("d", &[("x", 2)]),
            place("e", &[("x", 1)]),
        ])
        .await;
    let codes: Vec<_> = verdicts.iter().map(code).collect();
    use RefusalCode as R;
    assert_eq!(
        codes,
        [
            None,
            None,
            Some(R::UnknownSku),
            Some(R::InsufficientStock),
            Some(R::IdempotencyMismatch),
            Some(R::IllegalTransition),
            None,
            Some(R::InsufficientStock)
        ]
    );
    twin.compare().await;
}

/// A key names its order for ever, also when the repeat comes in a later batch; a replay binds its key too.
pub async fn aliases_hold_across_batches(open: Open<'_>) {
    let (mut twin, _kept) = fresh(open).await;
    twin.commit(vec![put("x", 9, SkuPatch::default())]).await;
    let keyed = |id: &str, chosen: bool, k: &str, q: i64| {
        Command::Place(Place { chosen, key: Some(key(k)), ..place_as(id, "buyer", &[("x", q)]) })
    };
    twin.commit(vec![keyed("made-1", false, "k", 1)]).await;
    let again = twin.commit(vec![keyed("made-2", false, "k", 1)]).await;
    assert!(matches!(&again[0], Ok(Outcome::Placed { order, replayed: true }) if order.id == oid("made-1")));
    let mismatch = twin.commit(vec![keyed("made-3", false, "k", 2), keyed("other", true, "k", 1)]).await;
    assert!(mismatch.iter().all(|v| code(v) == Some(RefusalCode::IdempotencyMismatch)));
    twin.commit(vec![place("named", &[("x", 1)])]).await;
    twin.commit(vec![keyed("named", true, "late", 1)]).await;
    let by_key = twin.commit(vec![keyed("made-4", false, "late", 1)]).await;
    assert!(matches!(&by_key[0], Ok(Outcome::Placed { order, replayed: true }) if order.id == oid("named")));
    twin.compare().await;
}

/// Money before its order is kept, listed, and applied in the commit that places the order.
pub async fn unmatched_money_waits_for_its_order(open: Open<'_>) {
    let (mut twin, _kept) = fresh(open).await;
    twin.commit(vec![
        put("x", 5, priced(100)),
        pay("o", "p1", Some(60)),
        pay("o", "p2", Some(60)),
        pay("o", "p3", None),
    ])
    .await;
    let unmatched = PaymentFilter { outcome: Some(PaymentOutcome::Unmatched), ..PaymentFilter::default() };
    assert_eq!(twin.ledger.payments(unmatched.clone(), first_page(9)).await.expect("readable").items.len(), 3);
    twin.commit(vec![place("o", &[("x", 1)])]).await;
    let order = twin.ledger.order(oid("o")).await.expect("readable").expect("placed");
    assert_eq!(order.state.status, Status::Paid);
    assert_eq!(
        order.payments.iter().map(|p| p.outcome).collect::<Vec<_>>(),
        [PaymentOutcome::Partial, PaymentOutcome::Applied, PaymentOutcome::Surplus]
    );
    assert!(twin.ledger.payments(unmatched, first_page(9)).await.expect("readable").items.is_empty());
    twin.compare().await;
}

/// Cancel before place: the id is out of use, its money due back, whichever came first.
pub async fn a_tombstone_sends_money_back(open: Open<'_>) {
    let (mut twin, _kept) = fresh(open).await;
    twin.commit(vec![put("x", 5, priced(100)), pay("o", "before", None)]).await;
    twin.commit(vec![cancel("o")]).await;
    twin.commit(vec![pay("o", "after", Some(7)), cancel("o")]).await;
    let refused = twin.commit(vec![place("o", &[("x", 1)])]).await;
    assert_eq!(code(&refused[0]), Some(RefusalCode::AlreadyCancelled));
    let due = RefundFilter { status: Some(RefundStatus::Due), order_id: Some(oid("o")) };
    assert_eq!(twin.ledger.refunds(due, first_page(9)).await.expect("readable").items.len(), 2);
    assert_eq!(twin.ledger.order(oid("o")).await.expect("readable"), None);
    twin.compare().await;
}

/// A buyer swaps a held last unit for a new order of it; late money on the old one is due back.
pub async fn supersede_is_one_commit(open: Open<'_>) {
    let (mut twin, _kept) = fresh(open).await;
    twin.commit(vec![put("x", 1, priced(100)), place("old", &[("x", 1)])]).await;
    let new = Place { supersedes: Some(oid("old")), ..place_as("new", "buyer", &[("x", 1)]) };
    let theirs = Place { supersedes: Some(oid("old")), ..place_as("theirs", "thief", &[("x", 1)]) };
    let verdicts = twin.commit(vec![Command::Place(theirs), Command::Place(new), pay("old", "late", None)]).await;
    assert_eq!(code(&verdicts[0]), Some(RefusalCode::UnknownOrder));
    assert!(verdicts[1].is_ok());
    assert!(matches!(&verdicts[2], Ok(Outcome::Paid { outcome: PaymentOutcome::RefundDue, .. })));
    twin.compare().await;
}

/// A limit that is set later counts the orders there are, in that commit.
pub async fn a_limit_counts_what_there_is(open: Open<'_>) {
    let (mut twin, _kept) = fresh(open).await;
    twin.commit(vec![put("x", 50, SkuPatch::default()), place("a", &[("x", 2)]), place("b", &[("x", 1)]), cancel("b")])
        .await;
    let limit = |n| SkuPatch { max_per_buyer: n, ..SkuPatch::default() };
    let put = |n| {
        Command::PutSku(PutSku {
            sku: SkuId::parse("x").expect("a SKU"),
            patch: limit(n),
            on_hand: None,
            if_version: None,
        })
    };
    let verdicts = twin
        .commit(vec![put(Patch::Set(3)), place("c", &[("x", 2)]), place("d", &[("x", 1)]), place("e", &[("x", 1)])])
        .await;
    assert_eq!(
        verdicts.iter().map(code).collect::<Vec<_>>(),
        [None, Some(RefusalCode::LimitReached), None, Some(RefusalCode::LimitReached)]
    );
    twin.commit(vec![put(Patch::Clear), place("f", &[("x", 9)]), put(Patch::Set(12)), place("g", &[("x", 1)])]).await;
    twin.compare().await;
    assert_eq!(code(&twin.commit(vec![place("h", &[("x", 1)])]).await[0]), Some(RefusalCode::LimitReached));
}

/// Probes: known ids, keys and tombstones; copies; unknown SKUs.
pub async fn probes_know_orders_keys_and_stock(open: Open<'_>) {
    let (mut twin, _kept) = fresh(open).await;
    let keyed = Place { chosen: false, key: Some(key("k")), ..place_as("made", "buyer", &[("x", 2)]) };
    twin.commit(vec![
        put("x", 5, SkuPatch::default()),
        place("o", &[("x", 1)]),
        Command::Place(keyed),
        cancel("dead"),
        pay("unmatched", "p", Some(1)),
    ])
    .await;
    let sku = |s: &str| SkuId::parse(s).expect("a SKU");
    let probe = |id: Option<&str>, k: Option<&str>| Probe {
        order_id: id.map(oid),
        key: k.map(key),
        skus: vec![sku("x"), sku("none")],
    };
    let mut probes = vec![
        probe(Some("o"), None),
        probe(None, Some("k")),
        probe(Some("dead"), None),
        probe(Some("new"), Some("new")),
        probe(None, None),
        probe(Some("unmatched"), None),
    ];
    probes.extend((0..400).map(|i| probe(Some(&format!("n{i}")), None)));
    let answers = twin.ledger.probe(probes).await.expect("readable");
    let known: Vec<_> = answers.iter().take(5).map(|a| a.known).collect();
    assert_eq!(known, [true, true, true, false, false]);
    assert!(answers[6..].iter().all(|a| !a.known));
    for answer in &answers {
        assert_eq!(answer.copies[0].as_ref().map(|c| c.available), Some(2));
        assert_eq!(answer.copies[1], None);
    }
}

/// Deadlines: earliest first, page by page, before an instant; parked orders are left out until they are tried again.
pub async fn deadlines_come_earliest_first_without_the_parked(open: Open<'_>) {
    let (mut twin, _kept) = fresh(open).await;
    twin.commit(vec![put("x", 99, SkuPatch::default())]).await;
    for i in 0..10_u32 {
        let mut order = place_as(&format!("o{i}"), "buyer", &[("x", 1)]);
        order.hold_seconds = Some(i64::from(100 - i));
        twin.commit(vec![Command::Place(order)]).await;
    }
    twin.commit(vec![
        pay("o3", "p", Some(1)),
        Command::Park(Park { order: OrderNo(5), tries: 20, reason: "stuck".to_owned() }),
    ])
    .await;
    let mut all = Vec::new();
    loop {
        let after = all.last().map(|(no, at)| (*at, *no));
        let page = twin.ledger.deadlines(None, after, 3).await.expect("readable");
        if page.is_empty() {
            break;
        }
        all.extend(page);
    }
    let numbers: Vec<_> = all.iter().map(|(no, _)| twin.ours(*no).0).collect();
    assert_eq!(numbers, [10, 9, 8, 7, 6, 3, 2, 1], "without the paid (4) and the parked (5)");
    let before = all[3].1;
    assert_eq!(twin.ledger.deadlines(Some(before), None, 99).await.expect("readable").len(), 3, "before is exclusive");
    assert_eq!(twin.ledger.parked(first_page(9)).await.expect("readable").items.len(), 1);

    let unparked = twin.ledger.commit(vec![Command::Unpark(oid("o4"))].into()).await.expect("it commits");
    let fifth = twin.theirs(OrderNo(5)).expect("placed");
    let told = &unparked.deadlines;
    assert!(matches!(told[..], [Deadline::At(no, _)] if no == fifth), "its deadline is told again: {told:?}");
    assert_eq!(twin.ledger.deadlines(None, None, 99).await.expect("readable").len(), 9);
    let extend = Extend { order_id: oid("o9"), hold_seconds: 5_000 };
    let moved = twin.ledger.commit(vec![Command::Extend(extend)].into()).await.expect("it commits");
    let last = twin.theirs(OrderNo(10)).expect("placed");
    assert!(moved.deadlines.iter().any(|d| matches!(d, Deadline::At(no, _) if *no == last)));
}

/// Money that waits for a day is named until it is flagged.
pub async fn stale_money_is_flagged_once(open: Open<'_>) {
    let (mut twin, _kept) = fresh(open).await;
    twin.commit(vec![pay("o", "p1", Some(1)), pay("o", "p2", Some(1))]).await;
    let now = twin.advance(1_000).await;
    assert!(twin.ledger.stale_unmatched(now.plus(-2_000), 9).await.expect("readable").is_empty());
    let stale = twin.ledger.stale_unmatched(now, 9).await.expect("readable");
    assert_eq!(stale.len(), 2);
    twin.commit(stale.into_iter().map(Command::FlagUnmatched).collect()).await;
    assert!(twin.ledger.stale_unmatched(now, 9).await.expect("readable").is_empty());
    twin.compare().await;
}

/// Old tombstones and request keys go, young ones stay.
pub async fn pruning_is_bounded_and_complete(open: Open<'_>) {
    let (mut twin, _kept) = fresh(open).await;
    twin.commit(vec![put("x", 9, SkuPatch::default()), cancel("old"), pay("paid", "p", Some(1)), cancel("paid")]).await;
    let now = twin.advance(10_000).await;
    twin.commit(vec![cancel("young")]).await;
    while twin.ledger.prune(now, now).await.expect("it can write") {}
    let probe = |id: &str| Probe { order_id: Some(oid(id)), key: None, skus: Vec::new() };
    let known: Vec<_> = twin
        .ledger
        .probe(vec![probe("old"), probe("young")])
        .await
        .expect("readable")
        .iter()
        .map(|a| a.known)
        .collect();
    assert_eq!(known, [false, true]);
    let kept = PaymentFilter { order_id: Some(oid("paid")), ..PaymentFilter::default() };
    assert_eq!(
        twin.ledger.payments(kept, first_page(9)).await.expect("readable").items.len(),
        1,
        "money is never pruned"
    );
    let report = twin.ledger.audit(i64::MAX / 2).await.expect("readable");
    assert!(report.is_sound(), "{:?}", report.findings);
}

/// No collation folds an id: case, accents, trailing dots and numbers stay apart.
pub async fn ids_are_bytes(open: Open<'_>) {
    let (mut twin, _kept) = fresh(open).await;
    let names = ["12345", "12345.", "0012", "1e3", "a", "A", "\u{c9}", "E\u{301}", "\u{e9}", "a b", "%41", "a/b"];
    twin.commit(names.iter().zip(1..).map(|(name, n)| put(name, n, SkuPatch::default())).collect()).await;
    let verdicts =
        twin.commit(names.iter().zip(1..).map(|(name, n)| place(&format!("o{n}"), &[(name, n)])).collect()).await;
    assert!(verdicts.iter().all(Result::is_ok));
    let cases = twin.commit(vec![place("case", &[("a", 1)]), place("CASE", &[("a", 1)])]).await;
    assert!(cases.iter().all(|v| code(v) == Some(RefusalCode::InsufficientStock)));
    twin.compare().await;
}

/// An adjustment's key makes a repeat harmless for seven days, and is free again after.
pub async fn adjustments_repeat_for_a_week(open: Open<'_>) {
    let (mut twin, _kept) = fresh(open).await;
    let adjust = |delta| {
        Command::Adjust(Adjust {
            sku: SkuId::parse("x").expect("a SKU"),
            delta,
            reason: "delivery".to_owned(),
            key: key("k"),
        })
    };
    twin.commit(vec![put("x", 0, SkuPatch::default()), adjust(3), adjust(3)]).await;
    assert_eq!(code(&twin.commit(vec![adjust(4)]).await[0]), Some(RefusalCode::IdempotencyMismatch));
    twin.advance(8 * 86_400_000).await;
    twin.commit(vec![adjust(4)]).await;
    assert_eq!(twin.oracle.sku(&SkuId::parse("x").expect("a SKU")).map(|s| s.counts.on_hand), Some(7));
    twin.compare().await;
}

/// An order number nobody has, and orders that are not due, change nothing.
pub async fn contradicting_rows_fail_alone(open: Open<'_>) {
    let (mut twin, _kept) = fresh(open).await;
    twin.commit(vec![put("x", 5, SkuPatch::default()), place("a", &[("x", 1)]), place("b", &[("x", 1)])]).await;
    let early = twin.commit(vec![Command::Expire(OrderNo(1)), Command::Expire(OrderNo(77))]).await;
    assert!(matches!(early[..], [Ok(Outcome::NotDue(_)), Ok(Outcome::Settled)]));
    twin.advance(1_800_000).await;
    let due = twin
        .commit(vec![
            pay("b", "p", None),
            Command::Expire(OrderNo(1)),
            Command::Expire(OrderNo(2)),
            Command::Expire(OrderNo(1)),
        ])
        .await;
    assert!(matches!(due[..], [Ok(_), Ok(Outcome::Expired(_)), Ok(Outcome::Settled), Ok(Outcome::Settled)]));
    twin.compare().await;
}

/// Orders of a thousand lines are expired a few at a time: a batch that would write too many lines is refused whole,
/// and half of it is not.
pub async fn long_orders_are_ended_in_small_batches(open: Open<'_>) {
    let (mut twin, _kept) = fresh(open).await;
    let skus: Vec<String> = (0..1_000).map(|i| format!("s{i}")).collect();
    for some in skus.chunks(500) {
        twin.commit(some.iter().map(|sku| put(sku, 100, SkuPatch::default())).collect()).await;
    }
    let lines: Vec<(&str, i64)> = skus.iter().map(|sku| (sku.as_str(), 1)).collect();
    for i in 0..20 {
        twin.commit(vec![place(&format!("o{i}"), &lines)]).await;
    }
    twin.advance(1_800_000).await;
    let expire =
        |numbers: std::ops::RangeInclusive<i64>| numbers.map(|no| Command::Expire(OrderNo(no))).collect::<Vec<_>>();
    let theirs = (1..=20).filter_map(|no| twin.theirs(OrderNo(no))).map(Command::Expire).collect::<Vec<_>>();
    assert_eq!(theirs.len(), 20);
    let all = twin.ledger.commit(theirs.into()).await;
    assert_eq!(all.err().map(|e| e.kind()), Some(ErrorKind::Command));
    for first in [1, 6, 11, 16] {
        let ended = twin.commit(expire(first..=first + 4)).await;
        assert!(ended.iter().all(|verdict| matches!(verdict, Ok(Outcome::Expired(_)))));
    }
    twin.compare().await;
}

/// Rounds of the random cases; more with `./scripts/test --long`.
fn rounds() -> u64 {
    if std::env::var_os("TIDEGATE_TEST_LONG").is_some() { 60 } else { 6 }
}

async fn random_batches(open: Open<'_>, settings: Settings) {
    // What the last round used: a server that its ledgers share goes on from round to round.
    let mut last = None;
    for seed in 0..rounds() {
        let (mut twin, kept) = fresh_with(open, settings).await;
        let mut rng = rand::rngs::StdRng::seed_from_u64(seed);
        let workload = Workload::small(settings);
        for _ in 0..60 {
            let batch = (0..1 + rng.below(16)).map(|_| workload.command(&mut rng)).collect();
            twin.commit(batch).await;
            twin.advance(i64::try_from(rng.below(300_000)).expect("small")).await;
        }
        twin.compare().await;
        twin.ledger.close().await.expect("it closes");
        last = Some(kept);
    }
    drop(last);
}

/// Random colliding commands: every answer, event and row as the oracle's.
pub async fn random_batches_agree_with_the_oracle(open: Open<'_>) {
    random_batches(open, Settings::default()).await;
}

/// The same with a grace period and without revival.
pub async fn random_batches_with_grace_agree_with_the_oracle(open: Open<'_>) {
    let settings = Settings {
        grace_seconds: 60,
        hold_seconds: 120,
        late_payment: tidegate_core::LatePayment::Refund,
        ..Settings::default()
    };
    random_batches(open, settings).await;
}
