//! `tidegate clock`: the ledger's clock against the host's.

use serde_json::{Value, json};

use super::source::SourceArgs;
use crate::failure::Result;
use crate::{output, runtime};

/// Flags of `clock`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Show both clocks and how far they are apart
    #[command(after_help = "Example:\n  tidegate clock show --to http://127.0.0.1:8080")]
    Show(WhatArgs),
    /// Follow the host's clock after it was moved by more than 2 s
    #[command(after_help = "Example:\n  tidegate clock accept --to http://127.0.0.1:8080")]
    Accept(WhatArgs),
}

#[derive(clap::Args)]
struct WhatArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs it.
pub fn run(args: Args) -> Result {
    let (args, accept) = match args.what {
        What::Show(args) => (args, false),
        What::Accept(args) => (args, true),
    };
    runtime::run(async {
        let source = args.source.open(false).await?;
        let status: Value = match accept {
            false => source.client.get("/v1/admin/clock").await?,
            true => source.client.post("/v1/admin/clock/accept", &json!({})).await?,
        };
        source.close().await?;
        if args.json { output::json(&status) } else { output::raw(readable(&status)) }
    })
}

fn readable(status: &Value) -> String {
    let text = |name: &str| status.get(name).and_then(Value::as_str).unwrap_or("unknown");
    let is = |name: &str| status.get(name) == Some(&Value::Bool(true));
    let mut lines = format!("ledger's clock  {}\nhost's clock    {}\n", text("now"), text("host"));
    let apart = |name: &str| text(name).parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_millisecond);
    if let (Some(now), Some(host), false) = (apart("now"), apart("host"), is("manual")) {
        lines.push_str(&format!("apart           {} ms\n", now - host));
    }
    lines.push_str(match (is("manual"), is("stepped")) {
        (true, _) => "The ledger's clock is a manual one: it moves only by POST /v1/admin/clock.\n",
        (_, true) => "The host's clock was moved. If it is right now, follow it with `tidegate clock accept`.\n",
        _ => "The ledger's clock follows the host's.\n",
    });
    lines
}
