//! `tidegate worker`: the background work alone, beside `serve --no-workers`, on a ledger that a database server holds.

use std::time::{Duration, Instant};

use tidegate::Tidegate;
use tidegate_server::{Server, Surface};

use super::serve::{raise_open_files, server_config, start, start_log, stop, until_signalled};
use crate::config::{Config, ConfigArgs};
use crate::failure::{Failure, Result};
use crate::{output, runtime};

/// Flags of `worker`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    /// Order time stands still and moves only by POST /v1/admin/clock of a server: for tests
    #[arg(long)]
    manual_clock: bool,
}

/// Runs it until SIGTERM or SIGINT.
pub fn run(mut args: Args) -> Result {
    if args.config.no_workers {
        return Err(Failure::Usage("worker --no-workers would do nothing; leave the flag out".to_owned()));
    }
    raise_open_files();
    // The address of a configuration that it shares with servers is theirs: only the flag is meant for it.
    let pages = args.config.listen.is_some();
    args.config.listen.get_or_insert_with(|| "127.0.0.1:0".to_owned());
    let mut config = Config::load(&args.config)?;
    config.workers = true;
    if let Some(file) = config.stores.file() {
        return Err(Failure::Usage(format!(
            "a SQLite ledger ({}) is owned by one process, which does its own background work: run `tidegate serve` without \
             --no-workers; separate workers need a ledger on MySQL, MariaDB or PostgreSQL",
            file.display()
        )));
    }
    start_log(&config.log)?;
    let runtime = runtime::start(config.threads)?;
    let worked = runtime.block_on(async {
        let tidegate = start(&config, config.stores.clone(), args.manual_clock).await?;
        let worked = work(&config, args.manual_clock, pages, &tidegate).await;
        stop(&tidegate, worked).await
    });
    runtime.shutdown_timeout(Duration::from_millis(100));
    worked
}

/// Works until a signal, whose instant it gives.
async fn work(config: &Config, manual_clock: bool, pages: bool, tidegate: &Tidegate) -> Result<Instant> {
    let [ledger, store] = config.where_it_is();
    // Whoever reads the line may send a signal at once.
    let signal = runtime::interrupted();
    let name = concat!("tidegate ", env!("CARGO_PKG_VERSION"), " worker");
    if !pages {
        tracing::info!(ledger, store, "ready");
        // A closed stdout is no reason not to work.
        let _ = output::line(format!("{name} ready"));
        signal.await;
        tracing::info!("stopping; a second signal stops at once");
        return Ok(Instant::now());
    }
    let server = Server::bind(server_config(config, manual_clock, Surface::Probes)?, tidegate.clone());
    let server = server.map_err(|e| Failure::Usage(e.to_string()))?;
    let address = server.local_addr();
    tracing::info!(%address, ledger, store, "ready");
    let _ = output::line(format!("{name} ready, listening on http://{address}"));
    until_signalled(server, signal).await
}
