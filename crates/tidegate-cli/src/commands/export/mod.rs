//! `tidegate export`: orders, SKUs or the stock ledger as CSV or NDJSON, streamed page by page. With `--output` an
//! interrupted export goes on where it stopped.

mod columns;
mod sink;

use serde_json::Value;

use super::import_skus::Format;
use super::source::{Source, SourceArgs};
use crate::client::segment;
use crate::failure::{Failure, Result};
use crate::progress::Progress;
use crate::{output, runtime};
use sink::Sink;

/// Items of one page; the contract's bound.
const PAGE: usize = 500;
/// SKUs of one page of the stock ledger: an interrupted export repeats at most these.
const LEDGER_PAGE: usize = 50;

/// What is exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum What {
    /// Orders, newest first; as CSV one row a line of the order
    Orders,
    /// SKUs with their stock
    Skus,
    /// Every change of every SKU's stock
    Ledger,
}

/// Flags of `export`.
#[derive(clap::Args)]
pub struct Args {
    /// What to export
    what: What,
    /// How to write it
    #[arg(long, value_enum, default_value = "csv")]
    format: Format,
    /// File to write; run the same command again after an interruption and it goes on [default: stdout]
    #[arg(long, value_name = "FILE")]
    output: Option<std::path::PathBuf>,
    #[command(flatten)]
    source: SourceArgs,
}

/// Runs it.
pub fn run(args: Args) -> Result {
    runtime::run(async {
        let source = args.source.open(false).await?;
        let done = export(&source, &args).await;
        source.close().await?;
        done
    })
}

async fn export(source: &Source, args: &Args) -> Result {
    let label = format!("{:?} {:?} of {}", args.what, args.format, source.label);
    let (mut sink, mut cursor) = Sink::open(args.output.as_deref(), &label)?;
    let progress = Progress::new(format!("exporting {:?}", args.what).to_lowercase(), None, false);
    if args.format == Format::Csv && cursor.is_none() {
        sink.csv([columns::of(args.what).map(|column| column.name.to_owned()).collect()])?;
    }
    loop {
        let (path, limit) = match args.what {
            What::Orders => ("/v1/orders", PAGE),
            What::Skus => ("/v1/skus", PAGE),
            What::Ledger => ("/v1/skus", LEDGER_PAGE),
        };
        let (items, next) = page(source, path, limit, cursor.as_deref()).await?;
        for item in &items {
            if args.what == What::Ledger {
                ledger_of(source, item, args.format, &mut sink, &progress).await?;
            } else {
                write(args.what, args.format, item, &mut sink)?;
                progress.add(1);
            }
        }
        match next {
            Some(next) => sink.page_done(&next)?,
            None => break,
        }
        cursor = Some(sink.cursor().to_owned());
    }
    progress.finish();
    let rows = sink.finish()?;
    if let Some(path) = &args.output {
        output::note(format!("wrote {rows} rows to {}", path.display()));
    }
    Ok(())
}

/// One SKU's stock ledger, page by page.
async fn ledger_of(source: &Source, sku: &Value, format: Format, sink: &mut Sink, progress: &Progress) -> Result {
    let id = sku.get("sku").and_then(Value::as_str).unwrap_or_default();
    let path = format!("/v1/skus/{}/ledger", segment(id));
    let mut cursor = None;
    loop {
        let (items, next) = page(source, &path, PAGE, cursor.as_deref()).await?;
        for item in items {
            let mut row = serde_json::Map::from_iter([("sku".to_owned(), Value::from(id))]);
            if let Value::Object(fields) = item {
                row.extend(fields);
            }
            write(What::Ledger, format, &Value::Object(row), sink)?;
            progress.add(1);
        }
        match next {
            Some(next) => cursor = Some(next),
            None => return Ok(()),
        }
    }
}

async fn page(source: &Source, path: &str, limit: usize, cursor: Option<&str>) -> Result<(Vec<Value>, Option<String>)> {
    let cursor = cursor.map_or_else(String::new, |cursor| format!("&cursor={}", segment(cursor)));
    let mut page: Value = source.client.get(&format!("{path}?limit={limit}{cursor}")).await?;
    let next = page.get("next_cursor").and_then(Value::as_str).map(str::to_owned);
    match page.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) => Ok((items, next)),
        _ => Err(Failure::Work(format!("the answer to GET {path} has no items; is it a Tidegate server?"))),
    }
}

fn write(what: What, format: Format, item: &Value, sink: &mut Sink) -> Result {
    match format {
        Format::Ndjson => sink.line(&item.to_string()),
        Format::Csv => sink.csv(columns::rows(what, item)),
    }
}
