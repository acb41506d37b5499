//! `tidegate hot-keys`: which keys of Redis and Valkey are read most.

use tidegate::hot_keys::{self, HotKey, HotKeysOptions, MAX_SECONDS, MAX_TOP, Report, escaped};
use tidegate_server::hot_keys_json;

use crate::config::value;
use crate::failure::{Failure, Result};
use crate::{output, runtime};

/// Longest name in the table, characters.
const SHOWN: usize = 80;

/// Flags of `hot-keys`.
#[derive(clap::Args)]
pub struct Args {
    /// The server: redis://.., rediss://.., redis-sentinel://.., redis-cluster://..
    #[arg(long, value_name = "URL")]
    redis: String,
    /// Over the last so many seconds, up to 30; a server that counts itself is watched for as long
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SECONDS)))]
    seconds: u32,
    /// Keys to list, up to 64
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=MAX_TOP as u64))]
    top: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs it.
pub fn run(args: Args) -> Result {
    let top = usize::try_from(args.top).unwrap_or(MAX_TOP);
    let options = HotKeysOptions { seconds: args.seconds, top };
    let failed = |e: tidegate::Error| match e {
        tidegate::Error::Redis(why) => Failure::Unreachable(format!("{}: {why}", value::without_password(&args.redis))),
        other => other.into(),
    };
    let report = runtime::run(async { hot_keys::look(&args.redis, &options).await.map_err(failed) })?;
    if args.json { output::json(&hot_keys_json(&report)) } else { output::raw(words(&report)) }
}

fn words(report: &Report) -> String {
    let rate = |hot: &HotKey| match (hot.per_second, hot.error, hot.cpu_us_per_second) {
        (Some(rate), Some(error), _) if error >= 0.5 => format!("{rate:.1} (to {:.1})", rate + error),
        (Some(rate), ..) => format!("{rate:.1}"),
        (None, _, Some(us)) => format!("{us:.0} µs"),
        (None, _, None) => "unknown".to_owned(),
    };
    let counts_time = report.items.iter().any(|hot| hot.per_second.is_none());
    let of = if counts_time { "time a second" } else { "reads a second" };
    let mut rows = vec![["share", of, "key", "is"].map(str::to_owned).to_vec()];
    rows.extend(report.items.iter().map(|hot| {
        let share = format!("{:.2} %", hot.share * 100.0);
        vec![share, rate(hot), short(&hot.name), hot.purpose.unwrap_or_default().to_owned()]
    }));
    let mut text = format!("{}\nover {:.1} s, source {}\n", output::table(&rows), report.seconds, report.source.name());
    for note in &report.notes {
        text.push_str(&format!("{note}\n"));
    }
    text
}

fn short(name: &[u8]) -> String {
    let text = escaped(&name[..name.len().min(SHOWN * 4)]);
    if text.chars().count() <= SHOWN {
        return text;
    }
    format!("{}.. ({} bytes)", text.chars().take(SHOWN).collect::<String>(), name.len())
}
