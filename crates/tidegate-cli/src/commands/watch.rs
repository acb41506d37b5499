//! `tidegate watch`: looks at Redis and Valkey, and says what is wrong and when it is over.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tidegate::blocks::RedisOptions;
use tidegate::core::Millis;
use tidegate::watch::alerts::{self, AlertSink};
use tidegate::watch::{
    self, Change, Finding, Memory, Once, Purpose, Severity, Silence, StateFile, StateKeeper, Watch, WatchOptions,
};
use tidegate_server::{RedisWatch, finding_json};
use tokio::sync::broadcast::error::RecvError;

use crate::config::watch::WatchConfig;
use crate::config::{Config, ConfigArgs, value};
use crate::failure::{Failure, Result};
use crate::{output, runtime};

/// The shortest and the longest time between two looks, milliseconds.
const INTERVAL_MS: (i64, i64) = (100, 3_600_000);

/// Flags of `watch`.
#[derive(clap::Args)]
pub struct Args {
    /// Servers: redis://.., rediss://.., redis-sentinel://.., redis-cluster://.. [default: watch.redis of the configuration]
    #[arg(long, value_name = "URL", num_args = 1..)]
    redis: Vec<String>,
    /// Time between two looks, such as 500ms, 1s, 1m [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = interval)]
    interval: Option<Duration>,
    /// Look twice, print what is wrong, exit; exit code 1 if anything critical is
    #[arg(long)]
    once: bool,
    /// What the servers are used for: what may not be lost, what can be loaded again, or both [default: shared]
    #[arg(long, value_parser = ["state", "cache", "shared"])]
    role: Option<String>,
    /// Keep what is open and which alerts wait in this file, so that nothing is told twice or lost over a restart [default:
    /// watch.state_file of the configuration]
    #[arg(long, value_name = "FILE", conflicts_with = "once")]
    state_file: Option<PathBuf>,
    /// Send one test message to every sink of the configuration, say what became of it, exit; exit code 1 if one was not taken
    #[arg(long, conflicts_with = "once")]
    test_alert: bool,
    /// Print each finding as one JSON object a line, at its opening and at its closing
    #[arg(long)]
    json: bool,
    /// Configuration file (TOML): [watch], [watch.rule.NAME] and [[watch.sink]]
    #[arg(long, value_name = "FILE", env = "TIDEGATE_CONFIG")]
    config: Option<PathBuf>,
}

fn interval(text: &str) -> std::result::Result<Duration, String> {
    let (least, most) = INTERVAL_MS;
    match value::milliseconds(text) {
        Some(ms) if (least..=most).contains(&ms) => Ok(Duration::from_millis(ms.unsigned_abs())),
        _ => Err("write a time from 100ms to 1h, such as 500ms, 1s, 1m".to_owned()),
    }
}

/// A server that is named twice, as the URLs name it: each look would count as two.
fn twice(urls: &[String]) -> Option<(&String, &String)> {
    // What is wrong with a URL is said by whoever connects.
    let read: Vec<_> = urls.iter().filter_map(|url| Some((url, RedisOptions::parse(url).ok()?))).collect();
    let earlier = |at: usize| read[..at].iter().find(|(_, options)| options.names_same(&read[at].1));
    (0..read.len()).find_map(|at| earlier(at).map(|(url, _)| (*url, read[at].0)))
}

/// Says so.
fn no_server_twice(urls: &[String]) -> Result {
    match twice(urls) {
        Some((first, again)) => Err(Failure::Usage(format!(
            "{} and {} name the same servers to watch; name them once",
            value::without_password(first),
            value::without_password(again)
        ))),
        None => Ok(()),
    }
}

/// Runs it.
pub fn run(args: Args) -> Result {
    let Config { watch: config, log, .. } =
        Config::load(&ConfigArgs { config: args.config.clone(), ..ConfigArgs::default() })?;
    if args.test_alert {
        return test_alert(&config.sinks.0, args.json);
    }
    let urls = if args.redis.is_empty() { config.redis } else { args.redis.clone() };
    if urls.is_empty() {
        return Err(Failure::Usage(
            "there is no server to watch; name one with --redis redis://HOST:6379, or with `redis` in [watch] of the configuration".to_owned(),
        ));
    }
    no_server_twice(&urls)?;
    let mut options = WatchOptions { interval: args.interval.unwrap_or(config.interval), settings: config.settings };
    if let Some(purpose) = args.role.as_deref().and_then(Purpose::named) {
        options.settings.purpose = purpose;
    }
    let sources = watch::on_redis_trusting(&urls, config.authority.as_deref(), &options)?;
    if args.once {
        return runtime::run(async { once(&args, watch::look_once(sources, &options).await) });
    }
    super::serve::start_log(&log)?;
    let keeper = args.state_file.as_ref().or(config.state_file.as_ref());
    let keeper = keeper.map(|file| Arc::new(StateFile::new(file)) as Arc<dyn StateKeeper>);
    runtime::start(None)?.block_on(async {
        let signal = runtime::interrupted();
        let watching = Watch::start_alerting(sources, options.clone(), keeper, config.sinks.0).await?;
        output::note(format!(
            "watching {} every {} as {}; Ctrl-C ends",
            urls.iter().map(|url| value::without_password(url)).collect::<Vec<_>>().join(", "),
            value::time_text(i64::try_from(options.interval.as_millis()).unwrap_or(i64::MAX)),
            options.settings.purpose.name()
        ));
        for finding in watching.findings() {
            output::note(format!(
                "open since {}: {} at {}",
                instant(finding.opened_at),
                finding.rule.name(),
                finding.address
            ));
        }
        let told = tokio::select! {
            told = tell(&watching, args.json) => told,
            () = signal => Err(Failure::Interrupted),
        };
        watching.stop().await;
        told
    })
}

/// Sends a test message to each of `sinks`.
fn test_alert(sinks: &[Arc<dyn AlertSink>], json: bool) -> Result {
    if sinks.is_empty() {
        return Err(Failure::Usage(
            "there is no sink to test; add [[watch.sink]] to the configuration (--config FILE), or set TIDEGATE_WATCH_SINK_1_KIND and TIDEGATE_WATCH_SINK_1_URL".to_owned(),
        ));
    }
    let answers = runtime::run(async { Ok(alerts::test(sinks).await) })?;
    for (sink, answer) in &answers {
        let error = answer.as_ref().err().map(ToString::to_string);
        match (json, error) {
            (true, error) => output::json(&json!({ "sink": sink, "taken": error.is_none(), "error": error }))?,
            (false, None) => output::line(format!("{sink}: taken"))?,
            (false, Some(why)) => output::line(format!("{sink}: not taken: {why}"))?,
        }
    }
    if answers.iter().all(|(_, answer)| answer.is_ok()) { Ok(()) } else { Err(Failure::Found) }
}

/// A watch beside a server, if its configuration names servers to watch: what it finds goes to the log, the metrics and the sinks.
/// `ledger` is the file of the ledger, if it is one: what is open is kept beside it.
pub async fn beside(config: &WatchConfig, ledger: Option<&Path>) -> Result<Option<Beside>> {
    if config.redis.is_empty() {
        return Ok(None);
    }
    no_server_twice(&config.redis)?;
    let options = WatchOptions { interval: config.interval, settings: config.settings.clone() };
    let sources = watch::on_redis_trusting(&config.redis, config.authority.as_deref(), &options)?;
    let file = config.state_file.clone().or_else(|| {
        let mut file = ledger?.as_os_str().to_owned();
        file.push(".watch");
        Some(PathBuf::from(file))
    });
    if file.is_none() && !config.sinks.0.is_empty() {
        tracing::warn!(
            "watch.state_file is not set: after a restart what is open is told again, and alerts that wait are lost"
        );
    }
    // A shop is opened whatever became of what its watch remembers.
    let keeper = file.map(|file| Arc::new(StateFile::new(file).set_aside_if_damaged()) as Arc<dyn StateKeeper>);
    let watching = Watch::start_alerting(sources, options, keeper, config.sinks.0.clone()).await?;
    let mut changes = watching.changes();
    let log = tokio::spawn(async move {
        loop {
            match changes.recv().await {
                Ok(change) => log(&change),
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
        }
    });
    let shown =
        RedisWatch { watch: Arc::new(watching), urls: config.redis.clone(), authority: config.authority.clone() };
    Ok(Some(Beside { shown, log }))
}

/// A watch that runs beside a server. Dropped, it ends.
pub struct Beside {
    shown: RedisWatch,
    log: tokio::task::JoinHandle<()>,
}

impl Beside {
    /// What the server shows of it.
    pub fn shown(&self) -> RedisWatch {
        self.shown.clone()
    }

    /// Ends it, and keeps what it knows.
    pub async fn stop(&self) {
        self.shown.watch.stop().await;
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.log.abort();
    }
}

fn log(change: &Change) {
    let finding = change.finding();
    let (rule, server, next) = (finding.rule.name(), &finding.address, &finding.next_command);
    match (change, finding.severity) {
        (Change::Closed(_), _) => tracing::info!(rule, server, "over"),
        (Change::Opened(_), Severity::Critical) => tracing::error!(rule, server, next, "{}", finding.cause),
        (Change::Opened(_), Severity::Warning) => tracing::warn!(rule, server, next, "{}", finding.cause),
        (Change::Opened(_), Severity::Info) => tracing::info!(rule, server, next, "{}", finding.cause),
    }
}

/// Prints every change until stdout is gone.
async fn tell(watching: &Watch, json: bool) -> Result {
    let mut changes = watching.changes();
    loop {
        match changes.recv().await {
            Ok(change) if json => output::json(&finding_json(change.finding()))?,
            Ok(change) => output::raw(words(&change))?,
            Err(RecvError::Lagged(count)) => {
                output::note(format!("{count} messages came faster than they could be printed"))
            }
            Err(RecvError::Closed) => return Err(Failure::Work("the watch ended by itself".to_owned())),
        }
    }
}

fn once(args: &Args, seen: Once) -> Result {
    let mut findings = seen.findings;
    findings.sort_by_key(|finding| (std::cmp::Reverse(finding.severity), finding.rule, finding.address.clone()));
    if args.json {
        findings.iter().try_for_each(|finding| output::json(&finding_json(finding)))?;
    } else {
        if !seen.memory.is_empty() {
            output::raw(table(&seen.memory))?;
        }
        findings.iter().try_for_each(|finding| output::raw(format!("\n{}", opened(finding))))?;
        if findings.is_empty() {
            output::line("nothing wrong")?;
        }
    }
    if seen.memory.is_empty()
        && let Some((address, kind, why)) = seen.silent.first()
    {
        match kind {
            Silence::NoConnection | Silence::TooManyClients => {
                return Err(Failure::Unreachable(format!(
                    "{address} cannot be reached: {why}; check the URL and whether the server runs"
                )));
            }
            Silence::Refused => {
                return Err(Failure::Usage(format!(
                    "{address} does not let us in: {why}; check user and password in the URL"
                )));
            }
            Silence::NoMaster => {
                let service = address.split_once('/').map_or("", |(_, service)| service);
                return Err(Failure::Unreachable(format!(
                    "the sentinels name no server of {service:?}: {why}; check the URL and whether they run"
                )));
            }
            Silence::Timeout | Silence::Busy => {}
        }
    }
    if findings.iter().any(|finding| finding.severity == Severity::Critical) { Err(Failure::Found) } else { Ok(()) }
}

/// An instant as answers write it.
pub fn instant(at: Millis) -> String {
    jiff::Timestamp::from_millisecond(at.0).map_or_else(|_| at.0.to_string(), |at| format!("{at:.3}"))
}

fn words(change: &Change) -> String {
    match change {
        Change::Opened(finding) => opened(finding),
        Change::Closed(finding) => {
            let lasted = finding.closed_at.map_or(0, |at| at.since(finding.opened_at)) / 1_000;
            let at = finding.closed_at.map(instant).unwrap_or_default();
            format!("{at} over      {} at {} after {lasted} s\n", finding.rule.name(), finding.address)
        }
    }
}

fn opened(finding: &Finding) -> String {
    format!(
        "{} {} {} at {}\n  {}\n  evidence: {}\n  next: {}\n  risk: {}\n",
        instant(finding.opened_at),
        severity(finding.severity),
        finding.rule.name(),
        finding.address,
        finding.cause,
        finding.evidence_words(),
        finding.next_command,
        finding.risk
    )
}

/// Its name in a column, coloured on a terminal.
pub fn severity(severity: Severity) -> String {
    let name = format!("{:9}", severity.name());
    let is_plain =
        !std::io::stdout().is_terminal() || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    match severity {
        _ if is_plain => name,
        Severity::Critical => format!("\x1b[31m{name}\x1b[0m"),
        Severity::Warning => format!("\x1b[33m{name}\x1b[0m"),
        Severity::Info => name,
    }
}

/// The memory of servers as a table.
fn table(servers: &[Memory]) -> String {
    let head = ["server", "version", "role", "used", "resident", "limit", "pressure", "policy", "keys"];
    let bytes = |n: Option<u64>| n.map_or_else(|| "unknown".to_owned(), tidegate::core::watch::bytes);
    let text = |text: Option<&str>| text.unwrap_or("unknown").to_owned();
    let row = |memory: &Memory| {
        let limit = match (memory.limit_bytes, memory.limit_source) {
            (Some(limit), Some(source)) => format!("{} ({source})", tidegate::core::watch::bytes(limit)),
            _ => "unknown".to_owned(),
        };
        vec![
            memory.address.clone(),
            format!("{} {}", memory.server, text(memory.version.as_deref())),
            text(memory.role),
            bytes(memory.used_bytes),
            bytes(memory.rss_bytes),
            limit,
            memory.pressure.map_or_else(|| "unknown".to_owned(), |share| format!("{:.1} %", share * 100.0)),
            text(memory.policy.as_deref()),
            memory.keys.map_or_else(|| "unknown".to_owned(), |keys| keys.to_string()),
        ]
    };
    let rows: Vec<Vec<String>> =
        std::iter::once(head.map(str::to_owned).to_vec()).chain(servers.iter().map(row)).collect();
    output::table(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_server_is_watched_twice() {
        let urls = |urls: &[&str]| urls.iter().map(|url| (*url).to_owned()).collect::<Vec<_>>();
        let fault = |named: &[&str]| no_server_twice(&urls(named)).err().map(|e| format!("{e:?}"));
        for named in [&["redis://a", "redis://b", "redis://:s3cret@a:6379/1"][..], &["redis://a", "redis://a"]] {
            let fault = fault(named).unwrap();
            assert!(fault.contains("name the same servers") && !fault.contains("s3cret"), "{fault}");
        }
        assert_eq!(fault(&["redis://a", "redis://b", "redis-cluster://a", "odd", "odd"]), None);
    }

    #[test]
    fn intervals() {
        assert_eq!(interval("500ms"), Ok(Duration::from_millis(500)));
        for text in ["1", "10ms", "2h", "-1s", ""] {
            assert!(interval(text).is_err(), "{text}");
        }
    }
}
