//! Measures the SQLite ledger against the bare loop: `cargo run --release -p tidegate-embedded --features ceiling
//! --example measure_sqlite -- <folder> [orders]`. The folder must be on the disk to be measured.
#![expect(clippy::print_stdout, reason = "its output is its purpose")]

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidegate_backend::{Commit, Ledger, Probe};
use tidegate_core::command::{Place, PutSku};
use tidegate_core::{BuyerId, Command, JsonObject, OrderId, OrderNo, SkuId, SkuPatch};
use tidegate_embedded::{EmbeddedDeadlines, Options, SqliteLedger};

/// How long each commit since the last report took, the wait behind the one before it included.
static LATENCIES: Mutex<Vec<Duration>> = Mutex::new(Vec::new());

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

fn batches(from: usize, orders: usize, batch: usize, sku: &SkuId) -> Fallible<Vec<Arc<[Command]>>> {
    let all = (from..from + orders).map(|n| place(n, sku)).collect::<Fallible<Vec<_>>>()?;
    Ok(all.chunks(batch).map(Into::into).collect())
}

/// Commits `batches` with one waiting while one is written, as group commit does.
async fn run(ledger: &Arc<SqliteLedger>, batches: Vec<Arc<[Command]>>) -> Fallible<Vec<Commit>> {
    let mut commits = Vec::with_capacity(batches.len());
    let mut ahead: Option<tokio::task::JoinHandle<_>> = None;
    for batch in batches {
        let ledger = ledger.clone();
        let next = tokio::spawn(async move {
            let begun = Instant::now();
            let commit = ledger.commit(batch).await;
            LATENCIES.lock().unwrap_or_else(PoisonError::into_inner).push(begun.elapsed());
            commit
        });
        if let Some(before) = ahead.replace(next) {
            commits.push(before.await??);
        }
    }
    if let Some(last) = ahead {
        commits.push(last.await??);
    }
    Ok(commits)
}

fn report(what: &str, count: usize, took: Duration) {
    let mut all = std::mem::take(&mut *LATENCIES.lock().unwrap_or_else(PoisonError::into_inner));
    all.sort();
    let at = |share: f64| all.get((all.len() as f64 * share) as usize).or(all.last()).copied().unwrap_or_default();
    let rate = count as f64 / took.as_secs_f64();
    print!("{what:<44} {rate:>10.0} /s   {count} in {took:.2?}");
    if all.is_empty() {
        println!();
    } else {
        println!("   a commit: p50 {:.1?} p99 {:.1?} max {:.1?}", at(0.5), at(0.99), at(1.0));
    }
}

fn resident() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmRSS")).unwrap_or("VmRSS unknown");
    line.to_owned()
}

/// What a process costs that has opened the ledger of an earlier run and scheduled its deadlines.
async fn idle(path: PathBuf) -> Fallible<()> {
    println!("before                    {}", resident());
    let mut options = Options::new(path);
    options.manual_clock = true;
    let begun = Instant::now();
    let ledger = SqliteLedger::open(options).await?;
    println!("open {:?}           {}", begun.elapsed(), resident());
    let _kept = index(&ledger, "deadlines listed and scheduled").await?;
    println!("scheduled                 {}", resident());
    let ticks = || {
        std::fs::read_to_string("/proc/self/stat")
            .unwrap_or_default()
            .split(' ')
            .skip(13)
            .take(2)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let before = ticks();
    tokio::time::sleep(Duration::from_secs(5)).await;
    println!("CPU ticks before and after 5 s of nothing: {before:?} {:?}", ticks());
    ledger.close().await?;
    Ok(())
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Fallible<()> {
    let mut args = std::env::args().skip(1);
    let folder = PathBuf::from(args.next().ok_or("name a folder")?);
    let second = args.next();
    if second.as_deref() == Some("idle") {
        return idle(folder.join("full/ledger.db")).await;
    }
    let full: usize = second.map_or(Ok(1_000_000), |n| n.parse())?;
    let fresh = |name: &str| {
        let path = folder.join(name);
        let _ = std::fs::remove_dir_all(&path);
        path.join("ledger.db")
    };
    for batch in [256, 512] {
        let path = fresh("ceiling");
        std::fs::create_dir_all(path.parent().ok_or("a folder")?)?;
        let done =
            tokio::task::spawn_blocking(move || tidegate_embedded::sqlite::ceiling(&path, 100_000, batch)).await??;
        report(&format!("bare loop, empty, batches of {batch}"), done.orders, done.took);
    }
    let sku = SkuId::parse("hot")?;
    let put = PutSku { sku: sku.clone(), patch: SkuPatch::default(), on_hand: Some(1 << 40), if_version: None };
    for batch in [256, 512] {
        let ledger = SqliteLedger::open(Options::new(fresh("empty"))).await?;
        ledger.commit(vec![Command::PutSku(put.clone())].into()).await?;
        let work = batches(0, 100_000, batch, &sku)?;
        let begun = Instant::now();
        run(&ledger, work).await?;
        report(&format!("place, empty, batches of {batch}"), 100_000, begun.elapsed());
        ledger.close().await?;
    }
    println!("{}", resident());

    let path = fresh("full");
    // A manual clock, so that half an hour can pass below.
    let mut full_options = Options::new(&path);
    full_options.manual_clock = true;
    let ledger = SqliteLedger::open(full_options.clone()).await?;
    ledger.commit(vec![Command::PutSku(put)].into()).await?;
    let begun = Instant::now();
    for from in (0..full).step_by(100_000) {
        let step = Instant::now();
        run(&ledger, batches(from, 100_000.min(full - from), 512, &sku)?).await?;
        report(&format!("  filling from {from}"), 100_000, step.elapsed());
        ledger.advance(1_000).await?;
    }
    report("filling, batches of 512", full, begun.elapsed());
    for batch in [256, 512] {
        let work = batches(full + batch * 1_000, 50_000, batch, &sku)?;
        let begun = Instant::now();
        let commits = run(&ledger, work).await?;
        report(&format!("place, full, batches of {batch}"), 50_000, begun.elapsed());
        drop(commits);
    }
    println!("{}", resident());
    let begun = Instant::now();
    ledger.close().await?;
    println!("close {:?}", begun.elapsed());

    let begun = Instant::now();
    let ledger = SqliteLedger::open(full_options).await?;
    println!("open {:?}", begun.elapsed());
    let _kept = index(&ledger, "deadlines listed and scheduled after open").await?;
    println!("{}", resident());

    let probes: Vec<Vec<Probe>> = (0..200)
        .map(|_| {
            (0..500)
                .map(|_| {
                    Ok(Probe {
                        order_id: Some(OrderId::parse(&uuid::Uuid::now_v7().to_string())?),
                        key: None,
                        skus: vec![sku.clone()],
                    })
                })
                .collect::<Fallible<Vec<_>>>()
        })
        .collect::<Fallible<_>>()?;
    let begun = Instant::now();
    for batch in probes {
        ledger.probe(batch).await?;
    }
    report("probes, 500 a read", 100_000, begun.elapsed());

    let numbers: Vec<i64> = (1..=100_000.min(full as i64)).collect();
    let cancels: Vec<Arc<[Command]>> = {
        let mut ids = Vec::new();
        let mut cursor = None;
        while ids.len() < numbers.len() {
            let page = ledger.orders(Default::default(), tidegate_backend::PageRequest { cursor, limit: 500 }).await?;
            ids.extend(page.items.into_iter().map(|o| o.id));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        let all: Vec<Command> = ids
            .into_iter()
            .map(|order_id| Command::Cancel(tidegate_core::command::Cancel { order_id, reason: None, restock: true }))
            .collect();
        all.chunks(512).map(Into::into).collect()
    };
    let begun = Instant::now();
    run(&ledger, cancels).await?;
    report("cancel, batches of 512", numbers.len(), begun.elapsed());
    let looks: Vec<Arc<[Command]>> =
        numbers.chunks(512).map(|c| c.iter().map(|n| Command::Expire(OrderNo(*n))).collect()).collect();
    let begun = Instant::now();
    run(&ledger, looks).await?;
    report("expire, not due yet (load and decide only)", numbers.len(), begun.elapsed());
    ledger.advance(1_800_000).await?;
    let looks: Vec<Arc<[Command]>> =
        numbers.chunks(512).map(|c| c.iter().map(|n| Command::Expire(OrderNo(*n))).collect()).collect();
    let begun = Instant::now();
    run(&ledger, looks).await?;
    report("expire, batches of 512", numbers.len(), begun.elapsed());
    let begun = Instant::now();
    let found = ledger.audit(1_000_000_000).await?;
    println!("audit {:?}: {} rows, {} findings", begun.elapsed(), found.checked, found.findings.len());
    println!("{}", resident());
    ledger.close().await?;
    for entry in std::fs::read_dir(path.parent().ok_or("a folder")?)? {
        let entry = entry?;
        println!("{:?} {} MiB", entry.file_name(), entry.metadata()?.len() >> 20);
    }
    Ok(())
}

/// Rebuilds the deadline index from the ledger, as a start does.
async fn index(ledger: &SqliteLedger, what: &str) -> Result<EmbeddedDeadlines, tidegate_backend::Error> {
    let queue = EmbeddedDeadlines::new();
    let begun = Instant::now();
    let (mut after, mut count) = (None, 0);
    loop {
        let due = ledger.deadlines(None, after, 10_000).await?;
        let Some((no, at)) = due.last() else { break };
        after = Some((*at, *no));
        count += due.len();
        tidegate_backend::DeadlineQueue::schedule(&queue, &due).await?;
    }
    report(what, count, begun.elapsed());
    Ok(queue)
}
