//! Measures the SQL ledger: `cargo run --release -p tidegate-sql --features ceiling --example measure_sql -- <url> [orders] [orders a batch]
//! [batches in flight]`, on an empty database. A private server for it: `cargo run -p tidegate-conformance --features servers
//! --example with_servers -- postgres -- target/release/examples/measure_sql {postgres}`.
#![expect(clippy::print_stdout, reason = "its output is its purpose")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, TryStreamExt, stream};
use tidegate_backend::{Commit, Ledger, Probe};
use tidegate_core::command::{Pay, Place, PutSku};
use tidegate_core::{BuyerId, Command, JsonObject, OrderId, OrderNo, PaymentId, SkuId, SkuPatch};
use tidegate_sql::{SqlLedger, SqlOptions, ceiling, one_by_one};

type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn place(n: usize, sku: &SkuId) -> Fallible<Command> {
    Ok(Command::Place(Place {
        order_id: OrderId::parse(&uuid::Uuid::now_v7().to_string())?,
        chosen: false,
        key: None,
        buyer_id: BuyerId::parse(&format!("buyer-{}", n * 7_919 % 10_000_019))?,
        lines: vec![(sku.clone(), 1)],
        hold_seconds: None,
        supersedes: None,
        metadata: JsonObject::empty(),
    }))
}

fn pay(order: &OrderId) -> Fallible<Command> {
    Ok(Command::Pay(Pay {
        payment_id: PaymentId::parse(&format!("pay-{order}"))?,
        order_id: order.clone(),
        amount: None,
        currency: None,
        captured_at: None,
    }))
}

/// Commits `commands` in batches of `batch`, `flight` of them at a time; gives the commits in order.
async fn run(
    ledger: &Arc<SqlLedger>,
    what: &str,
    commands: Vec<Command>,
    batch: usize,
    flight: usize,
) -> Fallible<Vec<Commit>> {
    let count = commands.len();
    let batches: Vec<Arc<[Command]>> = commands.chunks(batch).map(Into::into).collect();
    let begun = Instant::now();
    let commits = stream::iter(batches).map(|batch| {
        let ledger = ledger.clone();
        async move {
            let begun = Instant::now();
            let commit = tokio::spawn(async move { ledger.commit(batch).await }).await??;
            Fallible::Ok((commit, begun.elapsed()))
        }
    });
    let commits: Vec<(Commit, Duration)> = commits.buffered(flight).try_collect().await?;
    let took = begun.elapsed();
    let mut all: Vec<Duration> = commits.iter().map(|(_, took)| *took).collect();
    all.sort();
    let at = |share: f64| all[((all.len() as f64 * share) as usize).min(all.len() - 1)];
    let refused = commits.iter().flat_map(|(c, _)| &c.verdicts).filter(|v| v.is_err()).count();
    let rate = count as f64 / took.as_secs_f64();
    println!(
        "{what:<44} {rate:>9.0} /s   {count} in {took:.2?}   a commit: p50 {:.1?} p99 {:.1?} max {:.1?}   refused {refused}",
        at(0.5),
        at(0.99),
        at(1.0)
    );
    Ok(commits.into_iter().map(|(commit, _)| commit).collect())
}

fn placed(commits: &[Commit]) -> Vec<(OrderNo, OrderId)> {
    let verdicts = commits.iter().flat_map(|c| &c.verdicts);
    let order = |v: &tidegate_core::Verdict| match v {
        Ok(tidegate_core::command::Outcome::Placed { order, .. }) => Some((order.no, order.id.clone())),
        _ => None,
    };
    verdicts.filter_map(order).collect()
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Fallible<()> {
    let mut args = std::env::args().skip(1);
    let url = args.next().ok_or("name a database")?;
    let mut number = |default: usize| args.next().map_or(Ok(default), |n| n.parse());
    let (orders, batch, flight) = (number(50_000)?, number(512)?, number(2)?);
    println!("{orders} orders, {batch} a batch, {flight} batches in flight");
    let ledger = SqlLedger::open(SqlOptions::new(&url)).await?;
    let sku = |n: usize| SkuId::parse(&format!("sku-{n}"));
    let skus: Vec<SkuId> = (0..100).map(sku).collect::<Result<_, _>>()?;
    let put = |sku: &SkuId| {
        Command::PutSku(PutSku {
            sku: sku.clone(),
            patch: SkuPatch::default(),
            on_hand: Some(1_000_000_000),
            if_version: None,
        })
    };
    ledger.commit(skus.iter().map(put).collect()).await?;
    let all = (0..orders).map(|n| place(n, &skus[0])).collect::<Fallible<Vec<_>>>()?;
    let hot = run(&ledger, "place, one SKU", all, batch, flight).await?;
    let all = (0..orders).map(|n| place(n, &skus[n % skus.len()])).collect::<Fallible<Vec<_>>>()?;
    let spread = run(&ledger, "place, a hundred SKUs", all, batch, flight).await?;
    let all = placed(&hot).iter().map(|(_, id)| pay(id)).collect::<Fallible<Vec<_>>>()?;
    run(&ledger, "pay, one SKU", all, batch, flight).await?;
    ledger.commit(Arc::from(vec![put(&skus[1])])).await?;
    let all = placed(&spread).iter().map(|(_, id)| cancel(id)).collect();
    run(&ledger, "cancel, a hundred SKUs", all, batch, flight).await?;
    let probes: Vec<Probe> = placed(&hot)
        .iter()
        .take(500)
        .map(|(_, id)| Probe { order_id: Some(id.clone()), key: None, skus: vec![skus[0].clone()] })
        .collect();
    let begun = Instant::now();
    for _ in 0..100 {
        ledger.probe(probes.clone()).await?;
    }
    println!("{:<44} {:>9.0} /s", "probe, 500 in a read", 100.0 * probes.len() as f64 / begun.elapsed().as_secs_f64());
    let begun = Instant::now();
    let report = ledger.audit(60_000).await?;
    println!("audited in {:.2?}: {} findings", begun.elapsed(), report.findings.len());
    let bare = ceiling(&url, orders, batch).await?;
    println!("{:<44} {:>9.0} /s   {} in {:.2?}", "the bare loop, one SKU", bare.rate, bare.orders, bare.took);
    let single = one_by_one(&url, (orders / 20).clamp(100, 5_000), 16).await?;
    println!(
        "{:<44} {:>9.0} /s   {} in {:.2?}",
        "a transaction an order, 16 clients", single.rate, single.orders, single.took
    );
    ledger.close().await?;
    Ok(())
}

fn cancel(order: &OrderId) -> Command {
    Command::Cancel(tidegate_core::command::Cancel { order_id: order.clone(), restock: true, reason: None })
}
