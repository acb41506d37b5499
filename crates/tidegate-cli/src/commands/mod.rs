//! One file a verb: its flags and what it does. `source.rs` is what the tools share.

pub mod bench;
pub mod big_keys;
pub mod clock;
pub mod completions;
pub mod config;
pub mod demo;
pub mod doctor;
pub mod export;
pub mod hot_keys;
pub mod import;
pub mod openapi;
pub mod queue;
pub mod reconcile;
pub mod replay;
pub mod serve;
pub mod source;
pub mod token;
pub mod watch;
pub mod worker;

use clap::{Parser, Subcommand};

use crate::failure::Result;

/// The command line.
#[derive(Parser)]
#[command(
    name = "tidegate",
    version,
    about = "Orders that live and die on time: holds, deadlines, payments, nothing oversold",
    after_help = "Exit codes: 0 done, 1 the work failed or a check found something, 2 usage or configuration, \
                  3 a server it needs is unreachable, 130 interrupted.\n\nExample:\n  tidegate serve"
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The verbs.
#[derive(Subcommand)]
enum Command {
    /// Serve the HTTP API and act on deadlines
    #[command(after_help = "Example:\n  tidegate serve --ledger sqlite:/var/lib/tidegate/ledger.db --hold-seconds 900")]
    Serve(serve::Args),
    /// Do the background work alone, beside `serve --no-workers` on MySQL, MariaDB or PostgreSQL
    #[command(
        after_help = "It takes the configuration of `serve`, but listens only with the flag --listen, and then answers /healthz, \
                            /readyz and /metrics alone.\n\nExample:\n  tidegate worker --ledger postgres://tidegate@db/shop --store redis://cache \
                            --listen 127.0.0.1:9101"
    )]
    Worker(worker::Args),
    /// Sell a whole flash sale in one command and check every invariant
    #[command(after_help = "Example:\n  tidegate demo --orders 5000 --seed 7")]
    Demo(demo::Args),
    /// Replay real orders from CSV
    #[command(after_help = "Example:\n  tidegate replay orders-2010-12.csv --stock-from-total 0.9")]
    Replay(replay::Args),
    /// Import SKUs from CSV or NDJSON; repeatable
    #[command(after_help = "Example:\n  tidegate import-skus catalogue.csv --to http://127.0.0.1:8080\n\n\
                            CSV columns: sku, title, price (decimal) or price_minor, currency, on_hand, hold_seconds, \
                            max_per_order, max_per_buyer, on_sale_from, attributes (JSON)")]
    ImportSkus(import::Args),
    /// Import follows from CSV or NDJSON; repeatable
    #[command(after_help = "Example:\n  tidegate import-follows follows.csv --to http://127.0.0.1:8080\n\n\
                            CSV columns: user, other, since (RFC 3339; left out: now)")]
    ImportFollows(import::Args),
    /// Import posts and reposts from CSV or NDJSON; repeatable when each has its post_id
    #[command(after_help = "Example:\n  tidegate import-posts posts.ndjson --to http://127.0.0.1:8080\n\n\
                            CSV columns: author, post_id, body or repost_of, published_at, visibility")]
    ImportPosts(import::Args),
    /// Export orders, SKUs or the stock ledger as CSV or NDJSON
    #[command(after_help = "Example:\n  tidegate export orders --format ndjson --output orders.ndjson")]
    Export(export::Args),
    /// Compare gate and deadlines with the ledger, repair them, check every invariant that the ledger alone can show
    #[command(
        after_help = "Checked are I1 to I6 and I8. I9 is the comparison of gate and deadlines itself. I7 and I10 need to know \
                            what callers were told: `demo` checks both, `replay` I7.\n\nExample:\n  tidegate reconcile --ledger sqlite:tidegate-data/ledger.db"
    )]
    Reconcile(reconcile::Args),
    /// Show the ledger's clock, or accept a step of the host's
    #[command(after_help = "Example:\n  tidegate clock show")]
    Clock(clock::Args),
    /// Look at queues and their tasks on a server; requeue, cancel, purge
    #[command(after_help = "Example:\n  tidegate queue stats\n  tidegate queue dead mail")]
    Queue(queue::Args),
    /// Watch Redis and Valkey: say what is wrong, why, and what to type next
    #[command(
        after_help = "Example:\n  tidegate watch --redis redis://cache:6379 --role cache\n  tidegate watch --redis redis://queue:6379 --role state --once"
    )]
    Watch(watch::Args),
    /// Say which keys of Redis and Valkey take the most memory
    #[command(
        after_help = "Example:\n  tidegate big-keys --redis redis://cache:6379\n  tidegate big-keys --redis redis-cluster://n1,n2 --route scan --deadline 30m --json"
    )]
    BigKeys(big_keys::Args),
    /// List the keys of Redis or Valkey that are read most
    #[command(
        after_help = "Example:\n  tidegate hot-keys --redis redis://cache:6379\n  tidegate hot-keys --redis redis-cluster://n1,n2 --seconds 30 --json"
    )]
    HotKeys(hot_keys::Args),
    /// Say how servers of Redis and Valkey are set up, against what they are used for, and how to mend it
    #[command(after_help = "Exit code 1: something is critical, or a setting could not be set.\n\n\
                      Example:\n  tidegate doctor --redis redis://queue:6379 --role state\n  tidegate doctor --redis redis-cluster://n1,n2 --role cache --apply --yes")]
    Doctor(doctor::Args),
    /// Measure rates and latencies
    #[command(after_help = "Example:\n  tidegate bench orders --json\n  tidegate bench cache --scale 0.1")]
    Bench(bench::Args),
    /// Check the configuration
    #[command(after_help = "Example:\n  tidegate config check --config tidegate.toml")]
    Config(config::Args),
    /// Print the description of the HTTP API (OpenAPI, JSON)
    #[command(after_help = "Example:\n  tidegate openapi > openapi.json")]
    Openapi(openapi::Args),
    /// Print shell completions
    #[command(after_help = "Example:\n  tidegate completions bash > /etc/bash_completion.d/tidegate")]
    Completions(completions::Args),
    /// Make a new API token
    #[command(after_help = "Example:\n  tidegate token --name web --role shop")]
    Token(token::Args),
}

/// Runs one verb to its end.
pub fn run(cli: Cli) -> Result {
    match cli.command {
        Command::Serve(args) => serve::run(args),
        Command::Worker(args) => worker::run(args),
        Command::Demo(args) => demo::run(args),
        Command::Replay(args) => replay::run(args),
        Command::ImportSkus(args) => import::run(args, &import::SKUS),
        Command::ImportFollows(args) => import::run(args, &import::FOLLOWS),
        Command::ImportPosts(args) => import::run(args, &import::POSTS),
        Command::Export(args) => export::run(args),
        Command::Reconcile(args) => reconcile::run(args),
        Command::Clock(args) => clock::run(args),
        Command::Queue(args) => queue::run(args),
        Command::Watch(args) => watch::run(args),
        Command::BigKeys(args) => big_keys::run(args),
        Command::HotKeys(args) => hot_keys::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Config(args) => config::run(args),
        Command::Openapi(args) => openapi::run(args),
        Command::Completions(args) => completions::run(args),
        Command::Token(args) => token::run(args),
    }
}
