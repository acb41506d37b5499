//! The layered configuration of `serve`: a TOML file, then `TIDEGATE_*` variables, then flags; the later wins, and each
//! value remembers where it came from.
//!
//! - [`keys`]: every key, once. [`cache`]: how the caches run. [`namespaces`]: what `/v1/cache` reads through.
//! - [`value`]: one value, its origin, what it may be.
//! - [`layers`]: reading the layers.
//! - [`watch`]: which servers are watched, and what is judged how. [`sinks`]: where alerts go.
//! - [`tokens`]: who may call.
//! - [`Config`]: the whole, checked.

pub mod cache;
pub mod keys;
pub mod layers;
pub mod namespaces;
pub mod sinks;
pub mod tokens;
pub mod value;
pub mod watch;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;
use tidegate::Stores;
use tidegate::core::{LatePayment, Settings};
use tidegate::feed::FeedOptions;
use tidegate::products::CacheOptions;
use tidegate::queue::QueueOptions;
use tidegate_server::{Limits, Namespace};

use crate::failure::{Failure, Result};
use layers::Layers;
use value::Value;

/// Flags of every command that reads the configuration.
#[derive(Clone, Default, clap::Args)]
pub struct ConfigArgs {
    /// Configuration file (TOML); tidegate.example.toml documents every key
    #[arg(long, value_name = "FILE", env = "TIDEGATE_CONFIG")]
    pub config: Option<PathBuf>,
    /// Address and port to listen on [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<String>,
    /// The ledger [default: sqlite:tidegate-data/ledger.db]
    #[arg(long, value_name = "URL")]
    pub ledger: Option<String>,
    /// Index of deadlines and link between nodes [default: embedded]
    #[arg(long, value_name = "URL")]
    pub store: Option<String>,
    /// How long an order that names no hold time waits for its payment, seconds [default: 1800]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub hold_seconds: Option<String>,
    /// Between the pay_by a buyer is shown and the instant the clock cancels, seconds [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub grace_seconds: Option<String>,
    /// Do not act on deadlines in this process
    #[arg(long)]
    pub no_workers: bool,
}

/// Without the passwords of the URLs.
impl std::fmt::Debug for ConfigArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = |url: &Option<String>| url.as_deref().map(value::without_password);
        f.debug_struct("ConfigArgs")
            .field("config", &self.config)
            .field("listen", &self.listen)
            .field("ledger", &shown(&self.ledger))
            .field("store", &shown(&self.store))
            .finish_non_exhaustive()
    }
}

/// What a server runs with.
#[derive(Debug)]
pub struct Config {
    /// Where it listens.
    pub listen: SocketAddr,
    /// The ledger and the store beside it.
    pub stores: Stores,
    /// How long a deadline belongs to the process that took it, milliseconds.
    pub lease_ms: i64,
    /// The log filter.
    pub log: String,
    /// Commands that may wait for the ledger.
    pub queue_size: usize,
    /// Whether it acts on deadlines.
    pub workers: bool,
    /// Threads; `None`: one a core.
    pub threads: Option<usize>,
    /// Bounds of general queues.
    pub queues: QueueOptions,
    /// How the caches run.
    pub cache: CacheOptions,
    /// How the feed runs.
    pub feed: FeedOptions,
    /// What `/v1/cache` reads through.
    pub namespaces: Vec<Namespace>,
    /// How Redis is watched.
    pub watch: watch::WatchConfig,
    /// Bounds of the HTTP server.
    pub limits: Limits,
    /// Who may call.
    pub tokens: Vec<tokens::Entry>,
    layers: Layers,
}

impl Config {
    /// Reads every layer: the file `args` names, the environment, the flags.
    ///
    /// # Errors
    /// [`Failure::Usage`] lists every fault with its place and what to do.
    pub fn load(args: &ConfigArgs) -> Result<Self> {
        let vars =
            std::env::vars_os().filter_map(|(name, text)| Some((name.into_string().ok()?, text.into_string().ok()?)));
        Self::from_layers(args, vars)
    }

    fn from_layers(args: &ConfigArgs, vars: impl IntoIterator<Item = (String, String)>) -> Result<Self> {
        let mut layers = Layers::default();
        if let Some(path) = &args.config {
            layers.read_file(path);
        }
        layers.read_env(vars);
        for (path, text) in [
            ("listen", args.listen.clone()),
            ("ledger", args.ledger.clone()),
            ("store", args.store.clone()),
            ("hold_seconds", args.hold_seconds.clone()),
            ("grace_seconds", args.grace_seconds.clone()),
            ("workers", args.no_workers.then(|| "false".to_owned())),
        ] {
            layers.read_flag(path, text);
        }
        Self::read(layers)
    }

    fn read(mut layers: Layers) -> Result<Self> {
        if layers.is_unread {
            // What it says is unknown, so that nothing can be said of what fits together.
            return Err(refused(&layers.faults));
        }
        let namespaces = namespaces::built(&mut layers);
        let mut watch = watch::built(&mut layers, get);
        let number = |path: &str| get(&layers, path).number().unwrap_or_default();
        let count = |path: &str| usize::try_from(number(path)).unwrap_or(usize::MAX);
        let time = |path: &str| Duration::from_millis(get(&layers, path).time_ms().unwrap_or_default().unsigned_abs());
        let text = |path: &str| get(&layers, path).text().unwrap_or_default().to_owned();
        let settings = Settings {
            hold_seconds: number("hold_seconds"),
            max_hold_seconds: number("max_hold_seconds"),
            grace_seconds: number("grace_seconds"),
            late_payment: if text("late_payment") == "refund" { LatePayment::Refund } else { LatePayment::Revive },
            tombstone_seconds: number("tombstone_days") * 86_400,
        };
        let size = |path: &str| usize::try_from(get(&layers, path).size().unwrap_or_default()).unwrap_or(usize::MAX);
        let usual = Limits::default();
        let limits = Limits {
            max_connections: Some(count("limits.connections"))
                .filter(|n| *n > 0)
                .unwrap_or(usual.max_connections)
                .max(2),
            header_read_timeout: time("limits.header_timeout"),
            max_header_bytes: size("limits.header_size"),
            body_idle_timeout: time("limits.body_timeout"),
            request_timeout: time("limits.request_timeout"),
            write_stall_timeout: time("limits.write_timeout"),
            keep_alive_timeout: time("limits.keep_alive"),
            body_budget_bytes: size("limits.body_memory"),
            answer_budget_bytes: size("limits.answer_memory"),
            max_event_streams: count("limits.event_streams"),
            max_long_polls: count("limits.long_polls"),
            max_lock_ttl: time("locks.max_ttl"),
            stop_patience: time("limits.stop_timeout"),
            ..usual
        };
        let listen = text("listen").parse().unwrap_or_else(|_| SocketAddr::from(([127, 0, 0, 1], 8080)));
        let (log, lease_ms) = (text("log"), get(&layers, "lease").time_ms().unwrap_or_default());
        let (queue_size, threads) = (count("queue_size"), Some(count("threads")).filter(|n| *n > 0));
        let workers = get(&layers, "workers").switch().unwrap_or(true);
        let queues = QueueOptions {
            max_queues: count("queues.max"),
            max_attempts: u32::try_from(number("queues.max_attempts")).unwrap_or(1).max(1),
        };
        let cache = cache::options(|path| get(&layers, path));
        let mut feed = FeedOptions::default();
        feed.scope.window_ms = i64::try_from(time("feed.window").as_millis()).unwrap_or(feed.scope.window_ms);
        feed.scope.own_posts = get(&layers, "feed.own_posts").switch().unwrap_or(true);
        feed.scope.limit_to_recent = Some(count("feed.limit_to_recent")).filter(|limit| *limit > 0);
        feed.follow_cache_bytes = size("feed.follow_cache_bytes");
        feed.page_cache_bytes = size("feed.page_cache_bytes");
        feed.post_for = tidegate::cache::Ttl::try_from(time("feed.body_for")).unwrap_or(feed.post_for);

        // What was refused as it stands is told already; the rest is looked at all the same, so that nothing is told only later.
        let (ledger, store) = (text("ledger"), text("store"));
        let sound = |path: &str| !layers.unsound.contains(path);
        let unusable: Vec<String> =
            faults_of(Some(&*ledger).filter(|_| sound("ledger")), Some(&*store).filter(|_| sound("store")))
                .into_iter()
                .map(|(key, why)| format!("{}: {key}: {why}", get(&layers, key).origin))
                .collect();
        let stores = stores_at(&ledger, &store).ok();
        let stores = stores.map(|stores| {
            stores
                .settings(settings)
                .full_sync(text("sqlite.synchronous") == "full")
                .connections(count("sql.connections"), count("sql.writers"))
                .name(text("redis.name"))
                .partitions(count("redis.partitions"))
                .response_timeout(time("redis.response_timeout"))
                .queues_in_database(text("queues.store") == "ledger")
                .max_followees(count("feed.max_followees"))
        });
        let authority = Some(text("redis.ca_file")).filter(|file| !file.is_empty()).map(|file| {
            let read = std::fs::read(&file);
            read.map_err(|e| {
                format!("{}: redis.ca_file: cannot read {file}: {e}", get(&layers, "redis.ca_file").origin)
            })
        });
        let (authority, unreadable) = match authority.transpose() {
            Ok(authority) => (authority, None),
            Err(fault) => (None, Some(fault)),
        };
        watch.authority.clone_from(&authority);
        let stores = stores.map(|stores| match authority {
            Some(pem) => stores.authority(pem),
            None => stores,
        });
        layers.faults.extend(unusable);
        layers.faults.extend(unreadable);
        let both = ["hold_seconds", "max_hold_seconds"].iter().all(|path| !layers.unsound.contains(path));
        if both && settings.hold_seconds > settings.max_hold_seconds {
            let (hold, max) = (get(&layers, "hold_seconds").origin, get(&layers, "max_hold_seconds").origin);
            layers.faults.push(format!(
                "hold_seconds ({}, from {hold}) is above max_hold_seconds ({}, from {max}); lower the one or raise the other",
                settings.hold_seconds, settings.max_hold_seconds
            ));
        }
        if !layers.names_tokens && !listen.ip().is_loopback() {
            let origin = get(&layers, "listen").origin;
            layers.faults.push(format!(
                "{origin}: listen is {listen}, which other machines can reach, and there are no [[tokens]]: anyone could change orders; \
                 add a token (`tidegate token` makes one) or listen on 127.0.0.1"
            ));
        }
        match stores {
            Some(stores) if layers.faults.is_empty() => {
                let tokens = layers.tokens.clone();
                Ok(Self {
                    listen,
                    stores,
                    lease_ms,
                    log,
                    queue_size,
                    workers,
                    threads,
                    queues,
                    cache,
                    feed,
                    namespaces,
                    watch,
                    limits,
                    tokens,
                    layers,
                })
            }
            _ => Err(refused(&layers.faults)),
        }
    }

    /// The ledger and the store as they may be shown.
    pub fn where_it_is(&self) -> [String; 2] {
        ["ledger", "store"].map(|path| value::without_password(get(&self.layers, path).text().unwrap_or_default()))
    }

    /// Every key as `[key, value, where it came from]`, without secrets.
    pub fn shown(&self) -> Vec<[String; 3]> {
        let keys = keys::KEYS.iter().map(|key| {
            let value = self.layers.value(key);
            [key.path.to_owned(), value.shown(key), value.origin.to_string()]
        });
        let tokens = self
            .tokens
            .iter()
            .map(|token| [format!("tokens.{}", token.name), format!("role {}", token.role), token.origin.to_string()]);
        let namespaces = self.layers.namespaces.iter().flat_map(|(name, entry)| entry.shown(name));
        keys.chain(namespaces)
            .chain(watch::shown(&self.layers))
            .chain(sinks::shown(&self.layers))
            .chain(tokens)
            .collect()
    }

    /// The same as one JSON object: `{"key": {"value", "from"}}`.
    pub fn shown_json(&self) -> serde_json::Value {
        self.shown().into_iter().map(|[key, value, from]| (key, json!({ "value": value, "from": from }))).collect()
    }
}

fn get(layers: &Layers, path: &str) -> Value {
    layers.value(keys::find(path).expect("every path the program asks for is in KEYS"))
}

fn refused(faults: &[String]) -> Failure {
    match faults {
        [one] => Failure::Usage(format!("the configuration cannot be used: {one}")),
        many => Failure::Usage(format!("the configuration cannot be used:\n  {}", many.join("\n  "))),
    }
}

/// What is wrong with these URLs, one or both; whether they fit together is asked when each is one.
fn faults_of(ledger: Option<&str>, store: Option<&str>) -> Vec<(&'static str, String)> {
    let ledger_fault = ledger.and_then(|url| Some(told("ledger", url, &Stores::new(url).err()?)));
    let store_fault = store.and_then(|url| Some(told("store", url, &Stores::check_store(url).err()?)));
    match (ledger, store) {
        (Some(ledger), Some(store)) if ledger_fault.is_none() && store_fault.is_none() => {
            stores_at(ledger, store).err().into_iter().collect()
        }
        _ => ledger_fault.into_iter().chain(store_fault).collect(),
    }
}

/// An error of a URL, which is shown without its password.
fn told(key: &'static str, url: &str, e: &tidegate::Error) -> (&'static str, String) {
    (key, format!("{}: {e}", value::without_password(url)))
}

/// The ledger and the store at these URLs.
///
/// # Errors
/// Which of the two cannot be used (`ledger`, `store`), its URL without a password, and what to do.
pub fn stores_at(ledger: &str, store: &str) -> std::result::Result<Stores, (&'static str, String)> {
    let stores = Stores::new(ledger).map_err(|e| told("ledger", ledger, &e))?;
    stores.store(store).map_err(|e| told("store", store, &e))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(args: ConfigArgs) -> Result<Config> {
        Config::from_layers(&args, [])
    }

    #[test]
    fn defaults_are_the_rules_defaults() {
        let config = load(ConfigArgs::default()).unwrap();
        assert_eq!(*config.stores.rules(), Settings::default());
        assert_eq!(config.stores.file(), Some(std::path::Path::new("tidegate-data/ledger.db")));
        assert_eq!(config.limits, Limits::default());
        assert!(config.workers && config.threads.is_none());
        assert_eq!(config.lease_ms, tidegate::Options::default().lease_ms);
        assert_eq!(config.cache, CacheOptions::default());
        assert_eq!(config.queues, QueueOptions::default());
        assert_eq!(config.feed, FeedOptions::default());
    }

    /// Whoever logs it with `{:?}` gives nothing away.
    #[test]
    fn no_secret_is_in_what_is_debugged() {
        let dir = tempfile::tempdir().unwrap();
        let hash = "5ec4e7".repeat(11)[..64].to_owned();
        let toml = format!(
            "store = \"redis://u:s3cret@h\"\n\
             [watch]\nredis = [\"redis://:s3cret@a\", \"redis://u:s3cret@b\"]\n\
             [cache.namespace.x]\nurl = \"http://h/s3cret/{{key}}?token=s3cret\"\nheaders = {{ A = \"s3cret\" }}\n\
             [[watch.sink]]\nkind = \"smtp\"\nurl = \"smtps://u:s3cret@h\"\nfrom = \"a@b.example\"\nto = \"c@d.example\"\n\
             [[watch.sink]]\nkind = \"webhook\"\nurl = \"https://h/s3cret\"\ntemplate = '{{\"key\": \"s3cret\"}}'\n\
             [[tokens]]\nname = \"web\"\nrole = \"shop\"\nsha256 = \"{hash}\"\n"
        );
        let file = dir.path().join("t.toml");
        std::fs::write(&file, toml).unwrap();
        let args =
            ConfigArgs { config: Some(file), ledger: Some("mysql://u:s3cret@h/d".to_owned()), ..ConfigArgs::default() };
        let env = [("TIDEGATE_WATCH_SINK_2_SECRET".to_owned(), "s3cret".to_owned())];
        let loaded = Config::from_layers(&args, []).unwrap();
        let mut layers = Layers::default();
        layers.read_file(args.config.as_deref().unwrap());
        layers.read_env(env);
        let told = format!("{args:?} {loaded:?} {layers:?}");
        assert!(!told.contains("s3cret") && !told.contains("5ec4e7"), "{told}");
        // It is there, and read.
        assert!(
            loaded.watch.redis[0].contains("s3cret") && loaded.namespaces.len() == 1 && told.contains("web"),
            "{told}"
        );
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let on = |change: fn(&mut ConfigArgs)| {
            let mut args = ConfigArgs::default();
            change(&mut args);
            load(args).err().map_or_else(String::new, |e| e.to_string())
        };
        for (refusal, want) in [
            (on(|a| a.listen = Some("0.0.0.0:80".into())), "no [[tokens]]"),
            (on(|a| a.hold_seconds = Some("90000".into())), "above max_hold_seconds"),
            (
                on(|a| a.store = Some("redis://:pw@h".into())),
                "--store: store: redis://:***@h: one process owns a SQLite ledger",
            ),
            (
                on(|a| a.store = Some("memcached://u:pw@h".into())),
                "--store: store: memcached://u:***@h: it is no store",
            ),
            (
                on(|a| a.ledger = Some("oracle://u:pw@h/d".into())),
                "--ledger: ledger: oracle://u:***@h/d: it is no ledger",
            ),
            (
                on(|a| a.ledger = Some("mysql://u:a/b@h/d".into())),
                "--ledger: ledger: mysql://u:***@h/d: its user or password",
            ),
            (on(|a| a.ledger = Some("mysql://u:pw@h:99999/d".into())), "--ledger: ledger: mysql://u:***@h:99999/d: "),
            (on(|a| a.ledger = Some("mysql://u:pw@h".into())), "it names no database"),
            (on(|a| a.ledger = Some("postgres://u:pw@h/d?sslmode=bogus".into())), "cannot be used"),
            (on(|a| a.ledger = Some("ledger.db".into())), "write sqlite:PATH"),
            (on(|a| a.ledger = Some("sqlite:".into())), "names no file"),
            (on(|a| a.config = Some("/nonexistent.toml".into())), "cannot read the configuration file"),
        ] {
            assert!(refusal.contains(want), "{refusal:?} lacks {want:?}");
        }
    }

    #[test]
    fn every_fault_is_told_at_once() {
        let args = ConfigArgs {
            ledger: Some("oracle://u:pw@h/d".into()),
            store: Some("memcached://h".into()),
            hold_seconds: Some("90000".into()),
            grace_seconds: Some("soon".into()),
            listen: Some("0.0.0.0:80".into()),
            ..ConfigArgs::default()
        };
        let told = load(args).unwrap_err().to_string();
        let lines: Vec<&str> = told.lines().skip(1).collect();
        for want in [
            "--grace-seconds",
            "--ledger: ledger: oracle",
            "--store: store: memcached",
            "max_hold_seconds",
            "[[tokens]]",
        ] {
            assert_eq!(lines.iter().filter(|line| line.contains(want)).count(), 1, "{want}: {told}");
        }
        assert_eq!(lines.len(), 5, "{told}");
        assert!(!told.contains("SQLite"), "{told}");
        for (ledger, store) in [("", "embedded"), ("sqlite:", ""), ("sqlite:x", "nonsense")] {
            let args = ConfigArgs { ledger: Some(ledger.into()), store: Some(store.into()), ..ConfigArgs::default() };
            let told = load(args).unwrap_err().to_string();
            let count = |key: &str| told.matches(key).count();
            assert!(count("--ledger: ") <= 1 && count("--store: ") <= 1, "{told}");
        }
    }

    #[test]
    fn the_reference_has_every_key() {
        let text = include_str!("../../../../docs/reference/configuration.md");
        for row in keys::reference_rows() {
            let line = format!("| {} |", row.join(" | "));
            assert!(text.contains(&line), "docs/reference/configuration.md lacks this line:\n{line}");
        }
    }

    #[test]
    fn the_example_names_every_key_with_its_default_and_unit() {
        let text = include_str!("../../../../tidegate.example.toml");
        let mut layers = Layers::default();
        layers.read_toml("tidegate.example.toml", text);
        assert_eq!(layers.faults, Vec::<String>::new());
        for key in keys::KEYS {
            let value = layers.value(key);
            assert!(matches!(value.origin, value::Origin::File { .. }), "the example leaves out {}", key.path);
            assert_eq!(value.raw.to_string(), key.default, "{}", key.path);
            let value::Origin::File { line, .. } = value.origin else {
                continue;
            };
            let above = text.lines().take(line - 1).collect::<Vec<_>>();
            let about = above.iter().rev().take_while(|line| line.starts_with('#')).copied().collect::<String>();
            assert!(!about.is_empty(), "{} has no comment above it", key.path);
            let unit = if matches!(key.unit, "time" | "size") { "" } else { key.unit };
            assert!(about.contains(unit), "the comment above {} does not name its unit, {}", key.path, key.unit);
        }
        let from = text.find("# [cache.namespace.items]").unwrap();
        let block = text[from..].split("\n\n").next().unwrap();
        let block: String = block.lines().map(|line| format!("{}\n", &line[2..])).collect();
        let mut layers = Layers::default();
        layers.read_toml("tidegate.example.toml", &block);
        assert_eq!(namespaces::built(&mut layers).len(), 1);
        assert_eq!(layers.faults, Vec::<String>::new(), "the commented-out namespace");
        let shown = layers.namespaces["items"].shown("items");
        for key in keys::NAMESPACE_KEYS {
            let path = key.path.replace("NAME", "items");
            let [_, value, from] = shown.iter().find(|row| row[0] == path).unwrap();
            assert!(from.starts_with("tidegate.example.toml"), "the example leaves out {path}");
            assert!(key.default.is_empty() || value == key.default, "{path} is {value}");
            let line = block.lines().find(|line| line.starts_with(path.rsplit('.').next().unwrap())).unwrap();
            let unit = if matches!(key.unit, "time" | "size") { "" } else { key.unit };
            assert!(line.contains(unit), "{path} does not name its unit, {unit}");
        }
        let tokens = &text[text.find("# [[tokens]]").unwrap()..];
        let commented: String =
            tokens.lines().filter_map(|line| line.strip_prefix("# ")).map(|line| format!("{line}\n")).collect();
        let mut layers = Layers::default();
        layers.read_toml("tidegate.example.toml", &commented);
        assert_eq!(layers.faults, Vec::<String>::new(), "the commented-out part");
        assert_eq!(layers.tokens.len(), 1);
    }
}
