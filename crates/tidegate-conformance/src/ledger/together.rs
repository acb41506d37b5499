//! Several batches at once on one ledger: whatever order they end up in, the rules hold.

use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate_backend::Commit;

use super::*;

/// Tasks that commit at once.
const TASKS: usize = 8;

/// Commits every batch in a task of its own, all at once; the answers come back in the order of the batches.
async fn at_once(ledger: &Arc<dyn Ledger>, batches: Vec<Vec<Command>>) -> Vec<Commit> {
    let commits: Vec<_> = batches
        .into_iter()
        .map(|batch| {
            let ledger = ledger.clone();
            tokio::spawn(async move { ledger.commit(batch.into()).await })
        })
        .collect();
    let mut answers = Vec::new();
    for commit in commits {
        answers.push(commit.await.expect("no task panics").expect("the ledger commits"));
    }
    answers
}

fn verdicts(commits: Vec<Commit>) -> Vec<Verdict> {
    commits.into_iter().flat_map(|commit| commit.verdicts).collect()
}

fn count(verdicts: &[Verdict], wanted: impl Fn(&Verdict) -> bool) -> usize {
    verdicts.iter().filter(|verdict| wanted(verdict)).count()
}

async fn assert_sound(ledger: &Arc<dyn Ledger>) {
    let report = ledger.audit(i64::MAX / 2).await.expect("readable");
    assert!(report.is_sound() && report.checked > 0, "{:?}", report.findings);
}

/// Random colliding commands from several tasks: every row is sound, every event has its place, and a reader that goes by
/// cursor while they commit misses none.
pub async fn concurrent_commits_are_sound_and_no_reader_misses_one(open: Open<'_>) {
    let settings = Settings::default();
    let Opened { ledger, kept: _kept, .. } = open(settings).await;
    let skus = (0..4).map(|i| put(crate::workload::sku(i).as_str(), 300, priced(500))).collect::<Vec<_>>();
    ledger.commit(skus.into()).await.expect("the ledger commits");
    let running = Arc::new(AtomicUsize::new(TASKS));
    let writers: Vec<_> = (0..TASKS)
        .map(|seed| {
            let (ledger, running) = (ledger.clone(), running.clone());
            tokio::spawn(async move {
                let mut rng = rand::rngs::StdRng::seed_from_u64(seed as u64);
                let mut workload = Workload::small(settings);
                (workload.orders, workload.payments) = (100, 120);
                let mut last = 0;
                for _ in 0..30 {
                    let batch: Vec<Command> = (0..1 + rng.below(12)).map(|_| workload.command(&mut rng)).collect();
                    let size = batch.len();
                    let commit = ledger.commit(batch.into()).await.expect("the ledger commits");
                    assert_eq!(commit.verdicts.len(), size);
                    if let Some(cursor) = commit.last_cursor {
                        assert!(cursor > last, "a later commit of one task has later events");
                        last = cursor;
                        let newest = ledger.newest_cursor().await.expect("readable");
                        assert!(newest >= cursor, "what was answered can be read");
                    }
                }
                running.fetch_sub(1, Ordering::SeqCst);
                last
            })
        })
        .collect();
    let clock = tokio::spawn(expire_while(ledger.clone(), running.clone()));
    let mut seen = 0;
    loop {
        // Before the look: what comes after it is seen by the next.
        let done = running.load(Ordering::SeqCst) == 0 && clock.is_finished();
        let page = ledger.events(seen, 40).await.expect("readable");
        for record in &page {
            seen += 1;
            assert_eq!(record.cursor, seen, "no event appears behind one that was read");
        }
        if done && page.is_empty() {
            break;
        }
        tokio::task::yield_now().await;
    }
    let mut last = clock.await.expect("no task panics");
    for writer in writers {
        last = last.max(writer.await.expect("no task panics"));
    }
    assert_eq!((seen, ledger.newest_cursor().await.expect("readable")), (last, last));
    assert!(last > 100, "the commands do something");
    assert_sound(&ledger).await;
}

/// Moves the clock and expires what is due, as long as tasks are running; returns the cursor of its newest event.
async fn expire_while(ledger: Arc<dyn Ledger>, running: Arc<AtomicUsize>) -> i64 {
    let mut last = 0;
    while running.load(Ordering::SeqCst) > 0 {
        let now = ledger.advance(300_000).await.expect("a manual clock");
        let due = ledger.deadlines(Some(now), None, 20).await.expect("readable");
        assert!(due.iter().all(|(_, at)| *at < now));
        let commands: Vec<Command> = due.into_iter().map(|(no, _)| Command::Expire(no)).collect();
        if !commands.is_empty() {
            let commit = ledger.commit(commands.into()).await.expect("the ledger commits");
            assert!(commit.now >= now, "a commit's instant is not before what was shown");
            assert!(commit.verdicts.iter().all(|v| matches!(v, Ok(Outcome::Expired(_) | Outcome::Settled))));
            last = last.max(commit.last_cursor.unwrap_or(0));
        }
        tokio::task::yield_now().await;
    }
    last
}

/// The same chosen id, and the same key, from several batches at once: one order, and everyone gets it.
pub async fn one_id_placed_at_once_is_one_order(open: Open<'_>) {
    let (mut twin, _kept) = fresh(open).await;
    twin.commit(vec![put("x", 1_000, priced(100))]).await;
    for round in 0..5 {
        let id = format!("chosen-{round}");
        let same = (0..TASKS).map(|_| vec![place(&id, &[("x", 2)])]).collect();
        let answers = verdicts(at_once(&twin.ledger, same).await);
        assert_eq!(count(&answers, |v| matches!(v, Ok(Outcome::Placed { replayed: false, .. }))), 1, "{answers:?}");
        assert_eq!(count(&answers, |v| matches!(v, Ok(Outcome::Placed { replayed: true, .. }))), TASKS - 1);

        let id = format!("contested-{round}");
        let other = (0..TASKS).map(|task| vec![place(&id, &[("x", task as i64 + 1)])]).collect();
        let answers = verdicts(at_once(&twin.ledger, other).await);
        assert_eq!(count(&answers, Result::is_ok), 1, "{answers:?}");
        assert_eq!(count(&answers, |v| code(v) == Some(RefusalCode::IdempotencyMismatch)), TASKS - 1);

        let keyed = |task: usize| {
            let id = format!("made-{round}-{task}");
            let key = Some(key(&format!("key-{round}")));
            vec![Command::Place(Place { chosen: false, key, ..place_as(&id, "buyer", &[("x", 1)]) })]
        };
        let answers = verdicts(at_once(&twin.ledger, (0..TASKS).map(keyed).collect()).await);
        let orders = answers.iter().map(|verdict| match verdict {
            Ok(Outcome::Placed { order, .. }) => order.id.clone(),
            other => panic!("a key names an order: {other:?}"),
        });
        let orders: std::collections::BTreeSet<OrderId> = orders.collect();
        assert_eq!(orders.len(), 1, "one key, one order");
        assert_eq!(count(&answers, |v| matches!(v, Ok(Outcome::Placed { replayed: false, .. }))), 1);
    }
    assert_sound(&twin.ledger).await;
}

/// Nobody gets a unit that another has: the last units of two SKUs, asked for in either order of lines.
pub async fn the_last_units_go_to_as_many_as_there_are(open: Open<'_>) {
    let (mut twin, _kept) = fresh(open).await;
    twin.commit(vec![put("a", 37, priced(100)), put("b", 37, priced(100))]).await;
    let lines: [&[(&str, i64)]; 2] = [&[("a", 1), ("b", 1)], &[("b", 1), ("a", 1)]];
    let batch = |task: usize| (0..10).map(|i| place(&format!("o{task}-{i}"), lines[(task + i) % 2])).collect();
    let answers = verdicts(at_once(&twin.ledger, (0..TASKS).map(batch).collect()).await);
    assert_eq!(count(&answers, Result::is_ok), 37);
    assert_eq!(count(&answers, |v| code(v) == Some(RefusalCode::InsufficientStock)), TASKS * 10 - 37);
    for sku in ["a", "b"] {
        let sku = twin.ledger.sku(SkuId::parse(sku).expect("a SKU")).await.expect("readable").expect("it exists");
        assert_eq!(sku.counts.available(), 0);
    }
    assert_sound(&twin.ledger).await;
}

/// A report told several times at once is stored once; a payment and a cancel at once end in paid and given back, or in
/// cancelled and due back.
pub async fn money_told_at_once_counts_once(open: Open<'_>) {
    let (mut twin, _kept) = fresh(open).await;
    twin.commit(vec![put("x", 1_000, priced(100)), place("o", &[("x", 1)])]).await;
    let answers = verdicts(at_once(&twin.ledger, (0..TASKS).map(|_| vec![pay("o", "p", None)]).collect()).await);
    let outcome = |wanted| move |v: &Verdict| matches!(v, Ok(Outcome::Paid { outcome, .. }) if *outcome == wanted);
    assert_eq!(count(&answers, outcome(PaymentOutcome::Applied)), 1, "{answers:?}");
    assert_eq!(count(&answers, outcome(PaymentOutcome::Duplicate)), TASKS - 1);
    for round in 0..6 {
        let (order, payment) = (format!("race-{round}"), format!("race-{round}"));
        twin.ledger.commit(vec![place(&order, &[("x", 1)])].into()).await.expect("the ledger commits");
        let race = vec![vec![pay(&order, &payment, None)], vec![cancel(&order)], vec![pay(&order, "p", None)]];
        let answers = verdicts(at_once(&twin.ledger, race).await);
        assert!(answers[..2].iter().all(Result::is_ok), "{answers:?}");
        assert_eq!(code(&answers[2]), Some(RefusalCode::PaymentIdReused), "that payment is another order's");
        let order = twin.ledger.order(oid(&order)).await.expect("readable").expect("placed");
        assert_eq!(order.state.status, Status::Cancelled);
        assert_eq!(order.payments.iter().map(|p| p.refunds.len()).collect::<Vec<_>>(), [1], "its money is due back");
    }
    let due = RefundFilter { status: Some(RefundStatus::Due), order_id: None };
    assert_eq!(twin.ledger.refunds(due, first_page(50)).await.expect("readable").items.len(), 6);
    assert_sound(&twin.ledger).await;
}

/// Closing finishes what was begun: every call is answered, later ones as unavailable, and closing again does nothing.
pub async fn it_closes_while_batches_come_in(open: Open<'_>) {
    let Opened { ledger, kept: _kept, .. } = open(Settings::default()).await;
    ledger.commit(vec![put("x", 1_000, priced(100))].into()).await.expect("the ledger commits");
    let writers: Vec<_> = (0..TASKS)
        .map(|task| {
            let ledger = ledger.clone();
            tokio::spawn(async move {
                for i in 0..1_000 {
                    if let Err(e) = ledger.commit(vec![place(&format!("o{task}-{i}"), &[("x", 1)])].into()).await {
                        return (i, e.kind());
                    }
                }
                panic!("the ledger was closed");
            })
        })
        .collect();
    while ledger.newest_cursor().await.expect("readable") < 20 {
        tokio::task::yield_now().await;
    }
    ledger.close().await.expect("it closes");
    for writer in writers {
        let (_, kind) = writer.await.expect("no task panics");
        assert_eq!(kind, ErrorKind::Unavailable);
    }
    assert_eq!(ledger.order(oid("o0-0")).await.err().map(|e| e.kind()), Some(ErrorKind::Unavailable));
    assert_eq!(ledger.audit(0).await.err().map(|e| e.kind()), Some(ErrorKind::Unavailable));
    ledger.close().await.expect("closing again does nothing");
}
