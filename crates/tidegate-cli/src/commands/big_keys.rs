//! `tidegate big-keys`: which keys of Redis and Valkey take the most memory.

use std::sync::Arc;
use std::time::Duration;

use tidegate::big_keys::{self, BigKeysOptions, Histogram, MAX_TOP, Pace, Progress, Report, Route, Sum};
use tidegate::core::watch::bytes;
use tidegate_server::big_keys_json;

use crate::config::value;
use crate::failure::{Failure, Result};
use crate::{output, runtime};

/// The shortest and the longest deadline, milliseconds.
const DEADLINE_MS: (i64, i64) = (1_000, 86_400_000);
/// How often progress is told.
const TELL: Duration = Duration::from_secs(2);
/// Longest name in the table, characters, and how many prefixes it has.
const SHOWN: usize = 60;
const PREFIXES: usize = 10;

/// Flags of `big-keys`.
#[derive(clap::Args)]
pub struct Args {
    /// The server: redis://.., rediss://.., redis-sentinel://.., redis-cluster://..
    #[arg(long, value_name = "URL")]
    redis: String,
    /// Keys to list, up to 1000
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=MAX_TOP as u64))]
    top: u64,
    /// How keys are looked at: by histograms of sizes (Redis 8, experimental), by a replication snapshot, by SCAN, or by whichever is cheapest
    #[arg(long, default_value = "auto", value_parser = ["auto", "keysizes", "snapshot", "scan"])]
    route: String,
    /// How much haste is made: gentle leaves the server its time for others
    #[arg(long, default_value = "gentle", value_parser = ["gentle", "fast"])]
    pace: String,
    /// How long it may take, such as 90s, 10m; SCAN ends there with what it has
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = deadline)]
    deadline: Duration,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn deadline(text: &str) -> std::result::Result<Duration, String> {
    let (least, most) = DEADLINE_MS;
    match value::milliseconds(text) {
        Some(ms) if (least..=most).contains(&ms) => Ok(Duration::from_millis(ms.unsigned_abs())),
        _ => Err("write a time from 1s to 24h, such as 90s, 10m".to_owned()),
    }
}

/// Runs it.
pub fn run(args: Args) -> Result {
    let progress = Arc::new(Progress::default());
    let options = BigKeysOptions {
        top: usize::try_from(args.top).unwrap_or(MAX_TOP),
        route: match args.route.as_str() {
            "keysizes" => Route::KeySizes,
            "snapshot" => Route::Snapshot,
            "scan" => Route::Scan,
            _ => Route::Auto,
        },
        pace: if args.pace == "fast" { Pace::Fast } else { Pace::Gentle },
        deadline: args.deadline,
        progress: Arc::clone(&progress),
    };
    let report = runtime::run(async {
        let look = big_keys::look(&args.redis, &options);
        tokio::pin!(look);
        loop {
            tokio::select! {
                report = &mut look => return report.map_err(|e| failed(e, &args.redis)),
                () = tokio::time::sleep(TELL) => tell(&progress),
            }
        }
    })?;
    if args.json { output::json(&big_keys_json(&report)) } else { output::raw(words(&report)) }
}

fn failed(e: tidegate::Error, url: &str) -> Failure {
    match e {
        tidegate::Error::Redis(why) => Failure::Unreachable(format!("{}: {why}", value::without_password(url))),
        other => other.into(),
    }
}

fn tell(progress: &Progress) {
    let (scanned, total, sum) = progress.seen();
    output::note(format!("{scanned} of about {total} keys, {}", bytes(sum)));
}

/// How many keys have which size, a line a bin.
fn sizes(of: &[Histogram]) -> String {
    let mut rows = vec![["type", "from", "below", "keys"].map(str::to_owned).to_vec()];
    for histogram in of {
        let size = |n: u64| if histogram.is_bytes { bytes(n) } else { format!("{n} elements") };
        rows.extend(histogram.bins.iter().filter(|(_, keys)| *keys > 0).map(|(from, keys)| {
            vec![histogram.kind.name().to_owned(), size(*from), size(Histogram::below(*from)), keys.to_string()]
        }));
    }
    output::table(&rows)
}

fn short(name: &[u8]) -> String {
    // Enough of it for the table, whatever it is escaped to.
    let text = big_keys::escaped(&name[..name.len().min(SHOWN * 4)]);
    if text.chars().count() <= SHOWN {
        return text;
    }
    format!("{}.. ({} bytes)", text.chars().take(SHOWN).collect::<String>(), name.len())
}

fn words(report: &Report) -> String {
    let unknown = || "unknown".to_owned();
    // What some sizes are missing from is more than it says.
    let sum_of = |known: Option<u64>, unknowns: u64| match known {
        Some(sum) if unknowns > 0 => format!("at least {}", bytes(sum)),
        Some(sum) => bytes(sum),
        None => unknown(),
    };
    let mut rows = vec![
        ["bytes", "type", "encoding", "elements", "expires in", "delete blocks", "key", "is"]
            .map(str::to_owned)
            .to_vec(),
    ];
    rows.extend(report.items.iter().map(|key| {
        vec![
            key.bytes.map_or_else(unknown, bytes),
            key.kind.name().to_owned(),
            key.encoding.clone().unwrap_or_else(unknown),
            key.elements.map_or_else(unknown, |elements| elements.to_string()),
            key.ttl_ms.map_or_else(String::new, |ms| format!("{} s", ms / 1_000)),
            key.delete_blocks_ms().map_or_else(unknown, |ms| format!("{ms:.1} ms")),
            if key.database == 0 { short(&key.name) } else { format!("{} (db {})", short(&key.name), key.database) },
            key.purpose.unwrap_or_default().to_owned(),
        ]
    }));
    let sums = |head: &str, of: Vec<(String, Sum)>| {
        let mut rows = vec![[head, "keys", "bytes"].map(str::to_owned).to_vec()];
        rows.extend(
            of.into_iter().map(|(name, sum)| vec![name, sum.keys.to_string(), sum_of(sum.known_bytes(), sum.unknown)]),
        );
        output::table(&rows)
    };
    let kinds = report.kinds.iter().map(|(kind, sum)| (kind.name().to_owned(), *sum)).collect();
    let prefixes = report.prefixes.iter().take(PREFIXES).map(|(prefix, sum)| {
        let name = if prefix.is_empty() { "(none)".to_owned() } else { big_keys::escaped(prefix) };
        (name, *sum)
    });
    let mut text =
        format!("{}\n{}\n{}\n", output::table(&rows), sums("type", kinds), sums("prefix", prefixes.collect()));
    if !report.slots.is_empty() {
        let slots = report.slots.iter().take(PREFIXES).map(|(slot, sum)| (format!("slot {slot}"), *sum)).collect();
        text.push_str(&format!("{}\n", sums("slot", slots)));
    }
    if report.items.is_empty() && !report.sizes.is_empty() {
        text = format!("{}\n", sizes(&report.sizes));
    }
    text.push_str(&format!(
        "looked at {} of {} keys ({:.1} %), {}, route {}\n",
        report.scanned,
        report.total,
        report.confidence * 100.0,
        sum_of(report.known_bytes(), report.unknown),
        report.route
    ));
    if let Some(ms) = report.fork_pause_ms {
        text.push_str(&format!("the fork for the snapshot held the server up for {ms:.1} ms\n"));
    }
    for note in &report.notes {
        text.push_str(&format!("{note}\n"));
    }
    if report.items.iter().any(|key| key.purpose.is_some()) {
        text.push_str("Tidegate's own keys are no garbage: do not delete them by hand\n");
    }
    text
}
