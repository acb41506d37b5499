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
    let ms = |name: &str| text(name).parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_millisecond);
    let ahead = ms("now").zip(ms("host")).map_or(0, |(now, host)| now - host);
    if !is("manual") {
        lines.push_str(&format!("apart           {ahead} ms\n"));
    }
    if is("manual") {
        lines.push_str("The ledger's clock is a manual one: it moves only by POST /v1/admin/clock.\n");
    } else if is("stepped") {
        lines.push_str("The host's clock was moved. If it is right now, follow it with `tidegate clock accept`.\n");
    }
    if is("catching_up") {
        lines.push_str(&format!(
            "The ledger's clock is {} ahead of the host's and never runs backwards: it runs at half speed until the host's \
             has caught up, in about {}. Holds last up to twice as long meanwhile; nothing is early.\n",
            length(ahead),
            length(ahead.saturating_mul(2))
        ));
    } else if !is("manual") && !is("stepped") {
        lines.push_str("The ledger's clock follows the host's.\n");
    }
    lines
}

/// Whole seconds where milliseconds say nothing more.
fn length(ms: i64) -> String {
    if ms < 10_000 { format!("{ms} ms") } else { format!("{} s", ms / 1_000) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_clock_does_is_told() {
        let at = |now: &str, flag: &str| {
            let mut status = json!({"now": now, "host": "2026-11-29T15:00:00.000Z", "stepped": false, "catching_up": false, "manual": false});
            status[flag] = json!(true);
            readable(&status)
        };
        let ahead = at("2026-11-29T15:01:00.000Z", "catching_up");
        assert!(ahead.contains("apart           60000 ms\n"), "{ahead}");
        assert!(
            ahead.contains("60 s ahead") && ahead.contains("half speed") && ahead.contains("about 120 s"),
            "{ahead}"
        );
        assert!(!ahead.contains("follows"), "{ahead}");
        assert!(at("2026-11-29T15:00:03.000Z", "catching_up").contains("3000 ms ahead"));
        assert!(at("2026-11-29T15:01:00.000Z", "stepped").ends_with("`tidegate clock accept`.\n"));
        assert!(at("2026-11-29T15:00:00.000Z", "none").ends_with("follows the host's.\n"));
        assert!(!at("2026-11-29T15:01:00.000Z", "manual").contains("apart"));
    }
}
