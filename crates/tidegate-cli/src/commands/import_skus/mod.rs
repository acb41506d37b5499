//! `tidegate import-skus`: SKUs from CSV or NDJSON, streamed in batches. Repeatable: what is there already with the same
//! stock is no fault.

mod rows;

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::PathBuf;

use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::source::{Source, SourceArgs};
use crate::client::segment;
use crate::failure::{Failure, Result};
use crate::progress::Progress;
use crate::{output, runtime};
use rows::{Row, Rows};

/// Most SKUs of one request; the contract's bound.
const BATCH_ROWS: usize = 1_000;
/// Most bytes of one request, well below the contract's 8 MiB.
const BATCH_BYTES: usize = 4 << 20;
/// Most refusals listed in the JSON report; all are counted, and all are told on stderr.
const MAX_LISTED: usize = 1_000;

/// How SKUs and orders are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Comma-separated, with a header
    Csv,
    /// One JSON object a line
    Ndjson,
}

/// Flags of `import-skus`.
#[derive(clap::Args)]
pub struct Args {
    /// File to read; - is stdin
    file: PathBuf,
    /// How it is written [default: by its first character]
    #[arg(long, value_enum)]
    format: Option<Format>,
    #[command(flatten)]
    source: SourceArgs,
    /// Print the report as one JSON object
    #[arg(long)]
    json: bool,
}

/// What became of the rows.
#[derive(Debug, Default)]
struct Report {
    read: u64,
    created: u64,
    updated: u64,
    refused: u64,
    refusals: Vec<Value>,
}

/// Runs it. Exit code 1 when a row was refused.
pub fn run(args: Args) -> Result {
    let name = args.file.display().to_string();
    let input: Box<dyn Read + Send> = if name == "-" {
        Box::new(std::io::stdin())
    } else {
        let open = File::open(&args.file).and_then(|file| {
            if file.metadata()?.is_dir() { Err(std::io::ErrorKind::IsADirectory.into()) } else { Ok(file) }
        });
        Box::new(
            open.map_err(|e| Failure::Usage(format!("cannot read {name}: {e}; check the path and its permissions")))?,
        )
    };
    let rows =
        Rows::open(BufReader::new(input), args.format).map_err(|why| Failure::Usage(format!("{name}: {why}")))?;
    let report = runtime::run(async {
        let source = args.source.open(true).await?;
        let report = import(&source, &name, rows, args.json).await;
        source.close().await?;
        report
    })?;
    let Report { read, created, updated, refused, refusals } = &report;
    if args.json {
        output::json(
            &json!({ "read": read, "created": created, "updated": updated, "refused": refused, "refusals": refusals }),
        )?;
    } else {
        output::line(format!(
            "{} read: {} created, {updated} there already, {refused} refused",
            output::count(*read, "row"),
            output::count(*created, "SKU")
        ))?;
    }
    if *refused > 0 { Err(Failure::Found) } else { Ok(()) }
}

async fn import(source: &Source, name: &str, rows: Rows, quiet: bool) -> Result<Report> {
    // Reading is on a thread of its own: a quiet stdin must not hold up Ctrl-C.
    let (send, mut batches) = mpsc::channel::<Vec<Row>>(2);
    std::thread::spawn(move || read_batches(rows, &send));
    let mut report = Report::default();
    let progress = Progress::new("importing SKUs", None, quiet);
    while let Some(batch) = batches.recv().await {
        let count = batch.len() as u64;
        report.read += count;
        put(source, name, batch, &mut report, &progress).await?;
        progress.add(count);
    }
    progress.finish();
    Ok(report)
}

fn read_batches(rows: Rows, send: &mpsc::Sender<Vec<Row>>) {
    let mut batch = Vec::new();
    let mut bytes = 0;
    for row in rows {
        bytes += row.bytes;
        batch.push(row);
        if batch.len() >= BATCH_ROWS || bytes >= BATCH_BYTES {
            bytes = 0;
            if send.blocking_send(std::mem::take(&mut batch)).is_err() {
                return;
            }
        }
    }
    if !batch.is_empty() {
        // Nobody listens any more only when the command is over.
        let _ = send.blocking_send(batch);
    }
}

async fn put(source: &Source, name: &str, batch: Vec<Row>, report: &mut Report, progress: &Progress) -> Result {
    let mut sent = Vec::with_capacity(batch.len());
    let mut skus = Vec::with_capacity(batch.len());
    for row in batch {
        match row.sku {
            Ok(sku) => {
                sent.push((
                    row.line,
                    sku.get("sku").and_then(Value::as_str).unwrap_or_default().to_owned(),
                    row.archived,
                ));
                skus.push(Value::Object(sku));
            }
            Err(why) => refuse(report, progress, name, row.line, "", "unreadable", &why),
        }
    }
    if skus.is_empty() {
        return Ok(());
    }
    let answer: Value = source.client.post("/v1/skus:batch", &json!({ "skus": skus })).await?;
    let results = answer.get("results").and_then(Value::as_array).filter(|results| results.len() == sent.len());
    let results = results.ok_or_else(|| {
        Failure::Work("the server answered POST /v1/skus:batch with another number of results".to_owned())
    })?;
    for ((line, sku, archived), result) in sent.iter().zip(results) {
        match result.get("status").and_then(Value::as_u64) {
            Some(201) => report.created += 1,
            Some(200) => report.updated += 1,
            _ => {
                let part = |field: &str| {
                    result.get("problem").and_then(|p| p.get(field)).and_then(Value::as_str).unwrap_or_default()
                };
                refuse(report, progress, name, *line, sku, part("code"), &detail(result));
                continue;
            }
        }
        if *archived {
            let reply = source
                .client
                .call(reqwest::Method::DELETE, &format!("/v1/skus/{}", segment(sku)), None::<&Value>)
                .await?;
            if !reply.is_success() {
                return Err(Failure::Work(format!("archiving {sku}: {}", reply.problem())));
            }
        }
    }
    Ok(())
}

/// The problem's detail, with the fields it names.
fn detail(result: &Value) -> String {
    let problem = result.get("problem").cloned().unwrap_or_default();
    let reply = crate::client::Reply { status: 0, body: problem };
    let text = reply.problem();
    let detail = text.split_once(": ").map_or(text.as_str(), |(_, detail)| detail);
    // It is the row that is to be corrected, not a request.
    detail
        .replace("; correct it and send the request again", "")
        .replace("; correct what errors points at and send the request again", "")
}

fn refuse(report: &mut Report, progress: &Progress, name: &str, line: u64, sku: &str, code: &str, detail: &str) {
    report.refused += 1;
    let of = if sku.is_empty() { String::new() } else { format!(" SKU {sku:?}:") };
    progress.note(&format!("{name}:{line}:{of} {code}: {detail}"));
    if report.refusals.len() < MAX_LISTED {
        report.refusals.push(json!({ "line": line, "sku": sku, "code": code, "detail": detail }));
    }
}
