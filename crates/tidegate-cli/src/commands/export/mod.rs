//! `tidegate export`: orders, SKUs or the stock ledger as CSV or NDJSON, streamed page by page. With `--output` an
//! interrupted export goes on where it stopped.

mod columns;
mod sink;

use futures_util::{StreamExt, stream};
use serde_json::Value;

use super::import::Format;
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
/// SKUs whose stock ledgers are asked for at once.
const AT_ONCE: usize = 8;

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
    let mut needs_header = args.format == Format::Csv && cursor.is_none();
    loop {
        let (path, limit) = match args.what {
            What::Orders => ("/v1/orders", PAGE),
            What::Skus => ("/v1/skus", PAGE),
            What::Ledger => ("/v1/skus", LEDGER_PAGE),
        };
        let (items, next) = page(source, path, limit, cursor.as_deref()).await?;
        // Only now: where nothing can be read, nothing is written.
        if std::mem::take(&mut needs_header) {
            sink.csv([columns::of(args.what).map(|column| column.name.to_owned()).collect()])?;
        }
        match args.what {
            What::Ledger => ledgers_of(source, &items, args.format, &mut sink, &progress).await?,
            What::Orders | What::Skus => {
                for item in &items {
                    write(args.what, args.format, item, &mut sink)?;
                    progress.add(1);
                }
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
        output::note(format!("wrote {} to {}", output::count(rows, "row"), path.display()));
    }
    Ok(())
}

/// The stock ledgers of `skus`, in their order; the first pages of a few are asked for at once.
async fn ledgers_of(source: &Source, skus: &[Value], format: Format, sink: &mut Sink, progress: &Progress) -> Result {
    let ids = skus.iter().map(|sku| sku.get("sku").and_then(Value::as_str).unwrap_or_default());
    let first = |id: &'_ str| {
        let path = format!("/v1/skus/{}/ledger", segment(id));
        let id = id.to_owned();
        async move { (id, page(source, &path, PAGE, None).await, path) }
    };
    let mut ledgers = stream::iter(ids).map(first).buffered(AT_ONCE);
    while let Some((id, first, path)) = ledgers.next().await {
        let (mut items, mut next) = first?;
        loop {
            for item in items {
                let mut row = serde_json::Map::from_iter([("sku".to_owned(), Value::from(id.as_str()))]);
                if let Value::Object(fields) = item {
                    row.extend(fields);
                }
                write(What::Ledger, format, &Value::Object(row), sink)?;
                progress.add(1);
            }
            let Some(cursor) = next else { break };
            (items, next) = page(source, &path, PAGE, Some(&cursor)).await?;
        }
    }
    Ok(())
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
