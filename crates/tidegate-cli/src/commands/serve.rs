//! `tidegate serve`: the HTTP API and the workers, until SIGTERM or SIGINT.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidegate::cache::Caches;
use tidegate::watch::{Change, Rule};
use tidegate::{Options, Stores, Tidegate};
use tidegate_server::{RedisWatch, Role, Server, ServerConfig, Surface, Token};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};
use tracing_subscriber::EnvFilter;

use super::source::not_opened;
use crate::config::tokens::Entry;
use crate::config::{Config, ConfigArgs};
use crate::failure::{Failure, Result};
use crate::{output, runtime};

/// What the log lines of the Redis client begin with.
const CLIENT: &str = "redis";

/// A stop is done within this time, whatever is under way; the rest of the ten seconds that are promised is slack.
const STOP_WITHIN: Duration = Duration::from_secs(9);
/// By how much the library's own bound is longer: a close that hangs is seen here, and told apart from one that fails.
const SLACK: Duration = Duration::from_millis(200);

/// Open files beside the connections: the ledger's, its readers', the log.
const OTHER_FILES: u64 = 64;

/// Flags of `serve`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    /// Order time stands still and moves only by POST /v1/admin/clock: for tests, on loopback only
    #[arg(long)]
    manual_clock: bool,
}

/// Runs it.
pub fn run(args: Args) -> Result {
    // Before the configuration: the default number of connections follows from it.
    raise_open_files();
    let config = Config::load(&args.config)?;
    if args.manual_clock && !config.listen.ip().is_loopback() {
        return Err(Failure::Usage(format!(
            "--manual-clock is for tests and needs a loopback address, but listen is {}; listen on 127.0.0.1 or leave the flag out",
            config.listen
        )));
    }
    start_log(&config.log)?;
    let (files, connections) = (getrlimit(Resource::Nofile).current, config.limits.max_connections);
    if let Some(files) = files.filter(|files| *files < connections as u64 + OTHER_FILES) {
        tracing::warn!(
            files,
            connections,
            "fewer files may be open than limits.connections needs; raise it (ulimit -n, LimitNOFILE)"
        );
    }
    let runtime = runtime::start(config.threads)?;
    let served = runtime.block_on(serve(&config, args.manual_clock));
    // Whatever is left (a disk that does not answer) was not acknowledged.
    runtime.shutdown_timeout(Duration::from_millis(100));
    served
}

async fn serve(config: &Config, manual_clock: bool) -> Result {
    let stores = config.stores.clone().queues(config.queues).locks();
    let tidegate = start(config, stores, manual_clock).await?;
    let watching = super::watch::beside(&config.watch, config.stores.file()).await?;
    let redis = watching.as_ref().map(super::watch::Beside::shown);
    // Ends with the watch.
    if let Some(watching) = &redis {
        tokio::spawn(rewarm(watching.watch.changes(), tidegate.caches()));
    }
    let served = listen(config, manual_clock, &tidegate, redis).await;
    let at_once = matches!(served, Err(Failure::Interrupted));
    let watch_stops = async {
        if let Some(watching) = watching.as_ref().filter(|_| !at_once) {
            tokio::select! {
                () = watching.stop() => {}
                () = runtime::interrupted() => {}
            }
        }
    };
    tokio::join!(stop(&tidegate, served), watch_stops).0
}

/// Brings hot keys back when the watch finds that a server may have lost entries.
async fn rewarm(mut changes: broadcast::Receiver<Change>, caches: Caches) {
    loop {
        match changes.recv().await {
            Ok(Change::Opened(finding))
                if matches!(finding.rule, Rule::Restarted | Rule::DataLost | Rule::Evictions) =>
            {
                caches.rewarm();
            }
            Ok(_) | Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return,
        }
    }
}

/// Opens `stores` and starts the library on them.
pub(super) async fn start(config: &Config, stores: Stores, manual_clock: bool) -> Result<Tidegate> {
    tidegate_server::install_metrics().map_err(|e| Failure::Work(format!("cannot start the metrics: {e}")))?;
    let [ledger, _] = config.where_it_is();
    let opened = stores.manual_clock(manual_clock).open().await;
    let parts = opened.map_err(|e| not_opened(&config.stores, &ledger, e))?;
    let options = Options {
        queue_commands: config.queue_size,
        workers: config.workers,
        lease_ms: config.lease_ms,
        cache: config.cache,
        feed: config.feed,
    };
    Ok(Tidegate::start(parts, options).await?)
}

/// Stops the library within what is left of [`STOP_WITHIN`] since the signal that `served` gives; a second signal stops
/// at once. A ledger that does not even answer to a close is left: nothing of what it has not answered was acknowledged.
pub(super) async fn stop(tidegate: &Tidegate, served: Result<Instant>) -> Result {
    let left = match &served {
        Ok(signalled) => STOP_WITHIN.saturating_sub(signalled.elapsed()),
        Err(Failure::Interrupted) => return Err(Failure::Interrupted),
        Err(_) => STOP_WITHIN,
    };
    let stopped = tokio::select! {
        stopped = tokio::time::timeout(left, tidegate.stop(left + SLACK)) => stopped,
        () = runtime::interrupted() => return Err(Failure::Interrupted),
    };
    served?;
    match stopped {
        Ok(closed) => closed?,
        Err(_) => tracing::warn!("the ledger did not close in time and was left; nothing that was answered is lost"),
    }
    tracing::info!("stopped");
    Ok(())
}

/// Listens until a signal and the end of the requests under way; gives the instant of the signal.
async fn listen(
    config: &Config,
    manual_clock: bool,
    tidegate: &Tidegate,
    redis: Option<RedisWatch>,
) -> Result<Instant> {
    let whole = ServerConfig { redis, ..server_config(config, manual_clock, Surface::Whole)? };
    let server = Server::bind(whole, tidegate.clone());
    let server = server.map_err(|e| Failure::Usage(e.to_string()))?;
    let address = server.local_addr();
    let [ledger, store] = config.where_it_is();
    tracing::info!(%address, ledger, store, workers = config.workers, tokens = config.tokens.len(), "ready");
    // Whoever reads the line may send a signal at once.
    let signal = runtime::interrupted();
    // A closed stdout is no reason not to serve.
    let _ = output::line(format!("tidegate {} listening on http://{address}", env!("CARGO_PKG_VERSION")));
    until_signalled(server, signal).await
}

/// Serves until `first`, a signal, and the end of the requests under way; gives the instant of the signal.
pub(super) async fn until_signalled(
    server: Server,
    first: impl Future<Output = ()> + Send + 'static,
) -> Result<Instant> {
    let (signalled, signal) = watch::channel(None);
    let serving = server.serve(async move {
        first.await;
        tracing::info!("stopping; a second signal stops at once");
        signalled.send_replace(Some(Instant::now()));
    });
    let mut second = signal.clone();
    tokio::select! {
        ended = serving => ended.map_err(|e| Failure::Work(format!("the server ended: {e}")))?,
        () = async {
            // The other end is dropped only once the server has ended, which ends this select.
            let _ = second.wait_for(Option::is_some).await;
            runtime::interrupted().await;
        } => return Err(Failure::Interrupted),
    }
    let signalled = *signal.borrow();
    signalled.ok_or_else(|| Failure::Work("the server ended by itself; its log says why".to_owned()))
}

/// The HTTP server's part of the configuration.
pub(super) fn server_config(config: &Config, manual_clock: bool, surface: Surface) -> Result<ServerConfig> {
    let tokens = config.tokens.iter().map(token);
    Ok(ServerConfig {
        listen: config.listen,
        tokens: tokens.collect::<Result<_>>()?,
        limits: config.limits,
        manual_clock,
        surface,
        namespaces: config.namespaces.clone(),
        redis: None,
    })
}

/// A token of the server from the words of the configuration.
pub fn token(entry: &Entry) -> Result<Token> {
    let role = [Role::Read, Role::Shop, Role::Ops].into_iter().find(|role| role.name() == entry.role);
    let unusable = || Failure::Usage(format!("{}: token {:?} cannot be used", entry.origin, entry.name));
    Ok(Token { name: entry.name.clone(), sha256: entry.hash().ok_or_else(unusable)?, role: role.ok_or_else(unusable)? })
}

/// Logs to stderr what `filter` lets through.
pub(super) fn start_log(filter: &str) -> Result {
    let filter = EnvFilter::try_new(directives(filter))
        .map_err(|e| Failure::Usage(format!("log (TIDEGATE_LOG) is {filter:?}, which is no filter: {e}")))?;
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let started = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| output::Stderr)
        // It would complain with `eprintln!`, which panics where stderr cannot be written.
        .log_internal_errors(false)
        .with_ansi(colours)
        .try_init();
    started.map_err(|e| Failure::Work(format!("cannot start the log: {e}")))
}

/// `filter`, and of the Redis client errors only, unless the filter names it: it has lines for each command that meets a lost
/// server, where ours has one when it begins and one when it ends.
fn directives(filter: &str) -> String {
    let named = filter.split(',').any(|directive| {
        let target = directive.trim().split(['=', '[']).next().unwrap_or_default();
        target == CLIENT || target.starts_with("redis::")
    });
    if named { filter.to_owned() } else { format!("{filter},{CLIENT}=error") }
}

/// Raises the soft limit on open files to the hard one.
pub(super) fn raise_open_files() {
    let hard = getrlimit(Resource::Nofile).maximum;
    // Refused only where a sandbox forbids it; then the server takes fewer connections.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_redis_client_is_quiet_unless_it_is_named() {
        for (filter, directives) in [
            ("info", "info,redis=error"),
            ("info,tidegate_redis=debug", "info,tidegate_redis=debug,redis=error"),
            ("warn,redis=info", "warn,redis=info"),
            ("redis::cluster_handling=trace", "redis::cluster_handling=trace"),
        ] {
            assert_eq!(super::directives(filter), directives);
            EnvFilter::try_new(super::directives(filter)).expect("a filter");
        }
    }
}
