//! `tidegate import-skus`, `import-follows`, `import-posts`: CSV or NDJSON, streamed in batches. Repeatable: what is there
//! already is no fault.
//!
//! - [`rows`]: rows of a file. [`skus`], [`feed`]: what they may say.

mod feed;
mod rows;
mod skus;

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
use rows::{Layout, Row, Rows};

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

/// What is imported.
pub struct Kind {
    /// In the report.
    noun: &'static str,
    /// While it runs.
    doing: &'static str,
    path: &'static str,
    /// The list in the request.
    list: &'static str,
    /// The field that names a row in a refusal.
    name: &'static str,
    /// Most rows of one request; the contract's bound.
    batch: usize,
    layout: &'static Layout,
}

/// `import-skus`.
pub static SKUS: Kind = Kind {
    noun: "SKU",
    doing: "importing SKUs",
    path: "/v1/skus:batch",
    list: "skus",
    name: "sku",
    batch: 1_000,
    layout: &skus::LAYOUT,
};

/// `import-follows`.
pub static FOLLOWS: Kind = Kind {
    noun: "follow",
    doing: "importing follows",
    path: "/v1/follows:batch",
    list: "follows",
    name: "user",
    batch: 5_000,
    layout: &feed::FOLLOWS,
};

/// `import-posts`.
pub static POSTS: Kind = Kind {
    noun: "post",
    doing: "importing posts",
    path: "/v1/posts:batch",
    list: "posts",
    name: "post_id",
    batch: 500,
    layout: &feed::POSTS,
};

/// Flags of the imports.
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
pub fn run(args: Args, kind: &'static Kind) -> Result {
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
    let rows = Rows::open(BufReader::new(input), args.format, kind.layout)
        .map_err(|why| Failure::Usage(format!("{name}: {why}")))?;
    let report = runtime::run(async {
        let source = args.source.open(true).await?;
        let report = import(&source, kind, &name, rows, args.json).await;
        source.close().await?;
        report
    })?;
    let Report { read, created, updated, refused, refusals } = &report;
    if args.json {
        output::json(
            &json!({ "read": read, "created": created, "updated": updated, "refused": refused, "refusals": refusals }),
        )?;
    } else if std::ptr::eq(kind, &FOLLOWS) {
        // The answer to a follow does not say whether it was there already.
        output::line(format!(
            "{} read: {} now there, {refused} refused",
            output::count(*read, "row"),
            output::count(*created, kind.noun)
        ))?;
    } else {
        output::line(format!(
            "{} read: {} created, {updated} there already, {refused} refused",
            output::count(*read, "row"),
            output::count(*created, kind.noun)
        ))?;
    }
    if *refused > 0 { Err(Failure::Found) } else { Ok(()) }
}

async fn import(source: &Source, kind: &'static Kind, name: &str, rows: Rows, quiet: bool) -> Result<Report> {
    // Reading is on a thread of its own: a quiet stdin must not hold up Ctrl-C.
    let (send, mut batches) = mpsc::channel::<Vec<Row>>(2);
    std::thread::spawn(move || read_batches(rows, kind.batch, &send));
    let mut report = Report::default();
    let progress = Progress::new(kind.doing, None, quiet);
    while let Some(batch) = batches.recv().await {
        let count = batch.len() as u64;
        report.read += count;
        put(source, kind, name, batch, &mut report, &progress).await?;
        progress.add(count);
    }
    progress.finish();
    Ok(report)
}

fn read_batches(rows: Rows, most: usize, send: &mpsc::Sender<Vec<Row>>) {
    let mut batch = Vec::new();
    let mut bytes = 0;
    for row in rows {
        bytes += row.bytes;
        batch.push(row);
        if batch.len() >= most || bytes >= BATCH_BYTES {
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

async fn put(
    source: &Source,
    kind: &Kind,
    name: &str,
    batch: Vec<Row>,
    report: &mut Report,
    progress: &Progress,
) -> Result {
    let mut sent = Vec::with_capacity(batch.len());
    let mut bodies = Vec::with_capacity(batch.len());
    for row in batch {
        match row.body {
            Ok(mut body) => {
                let is_sku = std::ptr::eq(kind.layout, &skus::LAYOUT);
                let archived = is_sku && body.remove(skus::ARCHIVED) == Some(Value::Bool(true));
                let named = body.get(kind.name).and_then(Value::as_str).unwrap_or_default().to_owned();
                sent.push((row.line, named, archived));
                bodies.push(Value::Object(body));
            }
            Err(why) => refuse(report, progress, (kind, name, row.line, ""), "unreadable", &why),
        }
    }
    if bodies.is_empty() {
        return Ok(());
    }
    let answer: Value = source.client.post(kind.path, &json!({ kind.list: bodies })).await?;
    let results = answer.get("results").and_then(Value::as_array).filter(|results| results.len() == sent.len());
    let results = results.ok_or_else(|| {
        Failure::Work(format!("the server answered POST {} with another number of results", kind.path))
    })?;
    for ((line, named, archived), result) in sent.iter().zip(results) {
        match result.get("status").and_then(Value::as_u64) {
            Some(201 | 204) => report.created += 1,
            Some(200) => report.updated += 1,
            _ => {
                let part = |field: &str| {
                    result.get("problem").and_then(|p| p.get(field)).and_then(Value::as_str).unwrap_or_default()
                };
                refuse(report, progress, (kind, name, *line, named), part("code"), &detail(result));
                continue;
            }
        }
        if *archived {
            let reply = source
                .client
                .call(reqwest::Method::DELETE, &format!("/v1/skus/{}", segment(named)), None::<&Value>)
                .await?;
            if !reply.is_success() {
                return Err(Failure::Work(format!("archiving {named}: {}", reply.problem())));
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

fn refuse(
    report: &mut Report,
    progress: &Progress,
    (kind, file, line, named): (&Kind, &str, u64, &str),
    code: &str,
    detail: &str,
) {
    report.refused += 1;
    let of = if named.is_empty() { String::new() } else { format!(" {} {named:?}:", kind.noun) };
    progress.note(&format!("{file}:{line}:{of} {code}: {detail}"));
    if report.refusals.len() < MAX_LISTED {
        report.refusals.push(json!({ "line": line, kind.name: named, "code": code, "detail": detail }));
    }
}
