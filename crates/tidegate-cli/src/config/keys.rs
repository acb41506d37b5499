//! Every key of the configuration: one table that the loader, `config check`, the example file and the reference are
//! checked against.

/// What a key's value may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A text that may hold a password: shown without it, and may be given as `<key>_file`.
    Url,
    /// The same, any number of them: a list, or one text with blanks between them; or none.
    Urls,
    /// An IP address and a port.
    Address,
    /// A whole number in this range.
    Count(i64, i64),
    /// 0, which leaves the choice to the program, or a whole number in this range.
    CountOrZero(i64, i64),
    /// What is logged: a level, or directives of tracing.
    LogFilter,
    /// `true` or `false`.
    Switch,
    /// A name of 1 to this many of `A-Z a-z 0-9 . _ -`.
    Name(usize),
    /// A text, which may be given as `<key>_file`.
    Text,
    /// A text.
    Line,
    /// The path of a file, or nothing.
    File,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A length of time in this range, milliseconds: `"500ms"`, `"10s"`, `"5m"`, `"1h"`, `"7d"`.
    Time(i64, i64),
    /// The same, or `"off"`.
    TimeOrOff(i64, i64),
    /// A size in this range, bytes: `"32KiB"`, `"64MiB"`, `"1GiB"`.
    Size(i64, i64),
    /// A number from 0 to this many tenths, such as `0.1`.
    Tenths(i64),
    /// Any number from 0 on, or a size.
    Level,
}

/// One key.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Its path in the file: `listen`, `limits.connections`.
    pub path: &'static str,
    /// What it may be.
    pub kind: Kind,
    /// What it is when nobody sets it.
    pub default: &'static str,
    /// What a number counts; empty when it counts nothing.
    pub unit: &'static str,
    /// The flag of `serve` that sets it, if there is one.
    pub flag: Option<&'static str>,
    /// What it does.
    pub about: &'static str,
}

impl Key {
    /// The environment variable that sets it.
    pub fn env(&self) -> String {
        format!("TIDEGATE_{}", self.path.replace('.', "_").to_uppercase())
    }

    /// Whether `<key>_file` may name a file that holds the value.
    pub fn has_file_twin(&self) -> bool {
        matches!(self.kind, Kind::Url | Kind::Urls | Kind::Text)
    }
}

/// Longest time an order may be held: ten years, in seconds.
const TEN_YEARS: i64 = 315_360_000;

/// Longest of the server's timeouts, in milliseconds.
const HOUR: i64 = 3_600_000;
/// Longest life of a cached entry, in milliseconds.
const YEAR: i64 = 365 * 24 * HOUR;

const fn key(
    path: &'static str,
    kind: Kind,
    default: &'static str,
    unit: &'static str,
    flag: Option<&'static str>,
    about: &'static str,
) -> Key {
    Key { path, kind, default, unit, flag, about }
}

/// Every key, in the order of the example file. `[[tokens]]` stands beside it (`config/tokens.rs`).
#[rustfmt::skip]
pub const KEYS: &[Key] = &[
    key("listen", Kind::Address, "127.0.0.1:8080", "", Some("--listen"), "address and port of the HTTP server; anything but loopback needs [[tokens]]"),
    key("ledger", Kind::Url, "sqlite:tidegate-data/ledger.db", "", Some("--ledger"), "the ledger: sqlite:PATH, relative to the working directory, or mysql://, mariadb://, postgres://, postgresql:// with user:password@host:port/database"),
    key("store", Kind::Url, "embedded", "", Some("--store"), "index of deadlines and link between nodes: embedded, in this process, or redis://, redis-sentinel://, redis-cluster:// (rediss.. for TLS)"),
    key("log", Kind::LogFilter, "info", "", None, "what is logged on stderr: error, warn, info, debug, trace, or a tracing filter; of the Redis client only errors, unless the filter names it (`info,redis=info`)"),
    key("hold_seconds", Kind::Count(1, TEN_YEARS), "1800", "seconds", Some("--hold-seconds"), "how long an order that names no hold time waits for its payment"),
    key("max_hold_seconds", Kind::Count(1, TEN_YEARS), "86400", "seconds", None, "longest hold of an order, extensions included"),
    key("grace_seconds", Kind::Count(0, TEN_YEARS), "0", "seconds", Some("--grace-seconds"), "between the pay_by a buyer is shown and the instant the clock cancels"),
    key("late_payment", Kind::Choice(&["revive", "refund"]), "revive", "", None, "what money does that arrives after the clock cancelled its order"),
    key("tombstone_days", Kind::Count(1, 3_650), "7", "days", None, "how long an id that was cancelled before it was placed stays taken"),
    key("queue_size", Kind::Count(1, 1_000_000), "8192", "commands", None, "commands that may wait for the ledger before calls are refused as overloaded"),
    key("workers", Kind::Switch, "true", "", Some("--no-workers"), "whether this process acts on deadlines"),
    key("lease", Kind::Time(1_000, 60_000), "5s", "time", None, "how long a deadline belongs to the process that took it; one that ends in between is taken over after it at the latest"),
    key("threads", Kind::CountOrZero(2, 1_024), "0", "threads", None, "threads that serve requests, at least 2; 0: one a core"),
    key("sqlite.synchronous", Kind::Choice(&["full", "normal"]), "full", "", None, "full: an answered order survives a power loss; normal: it survives a crash of the process, and a power loss may take the last ones"),
    key("sql.connections", Kind::Count(1, 256), "8", "connections", None, "connections of this process to MySQL, MariaDB or PostgreSQL for reads; a reconciliation takes one more"),
    key("sql.writers", Kind::Count(1, 64), "4", "connections", None, "connections for commits beside them: as many batches may be in flight"),
    key("redis.name", Kind::Name(64), "shop", "", None, "what the keys and the channel in Redis are named after, so that several shops can share it; the same for every process of a ledger"),
    key("redis.partitions", Kind::Count(1, 32), "16", "partitions", None, "partitions of the index of deadlines, which a Cluster spreads; the same for every process of a ledger"),
    key("redis.response_timeout", Kind::Time(50, 10_000), "500ms", "time", None, "how long an answer of Redis may take"),
    key("redis.ca_file", Kind::File, "", "", None, "certificate of the authority (PEM) that rediss:// trusts instead of the system's, also where it is watched"),
    key("cache.local_bytes", Kind::Size(0, 1 << 40), "64MiB", "size", None, "copies of cached entries in this process; 0B: none"),
    key("cache.load_budget", Kind::Count(1, 65_536), "64", "loads", None, "loads from the ledger and from origins at once, all caches of this process together; more wait, then get an old value or 503"),
    key("cache.load_rate", Kind::CountOrZero(1, 1_000_000), "0", "loads a second", None, "loads that may begin in a second, all caches of this process together; 0: no bound"),
    key("cache.rewarm", Kind::CountOrZero(1, 10_000), "1000", "keys", None, "keys that are read most, known of each cache and brought back after Redis has lost them, at most 200 loads a second of all servers; 0: none"),
    key("cache.products.fresh_for", Kind::Time(1, YEAR), "60s", "time", None, "how long a product page is served as it is, unless its SKU is changed"),
    key("cache.products.stale_for", Kind::TimeOrOff(1, YEAR), "10m", "time", None, "how long after that it may be served while it is loaded again, or when that fails; or off"),
    key("cache.products.absent_for", Kind::TimeOrOff(1, YEAR), "5s", "time", None, "how long it is remembered that there is no such SKU; or off"),
    key("cache.products.jitter", Kind::Tenths(9), "0.1", "", None, "the part of these times that chance may take off, so that pages loaded together do not end together: 0 to 0.9"),
    key("cache.products.early_refresh", Kind::Tenths(100), "1.0", "", None, "eagerness to load a page again before its time; 0: never, 1: usual, up to 10"),
    key("cache.products.load_budget", Kind::Count(1, 65_536), "64", "loads", None, "loads of product pages at once"),
    key("cache.products.load_rate", Kind::CountOrZero(1, 1_000_000), "0", "loads a second", None, "loads of product pages that may begin in a second; 0: no bound"),
    key("cache.products.load_timeout", Kind::Time(100, 5 * 60_000), "10s", "time", None, "after this a load has failed; after a tenth of it a reader takes an old page if there is one"),
    key("cache.products.max_value", Kind::Size(0, 16 << 20), "256KiB", "size", None, "larger pages are not stored in Redis"),
    key("cache.products.local_for", Kind::TimeOrOff(1, YEAR), "60s", "time", None, "longest life of a page's copy in this process; or off"),
    key("cache.products.membership", Kind::CountOrZero(1_000, 20_000_000), "1000000", "SKUs", None, "how many SKUs the filter that refuses unknown ones is made for, 2.4 bytes each in Redis (or here); it grows by itself; 0: none"),
    key("queues.store", Kind::Choice(&["auto", "ledger"]), "auto", "", None, "where general queues lie; auto: in Redis where `store` names one, else with the ledger (a file beside SQLite's, tables in its database); ledger: with the ledger in any case"),
    key("queues.max", Kind::Count(1, 1_000_000), "1000", "queues", None, "general queues there may be; the same for every process that shares them"),
    key("queues.max_attempts", Kind::Count(1, 10_000), "20", "attempts", None, "attempts of a task; then it is dead and waits for a person; the same for every process that shares the queues"),
    key("locks.max_ttl", Kind::Time(100, 86_400_000), "1d", "time", None, "longest time a lock is granted for; its holder may renew it"),
    key("feed.max_followees", Kind::Count(1, 1_000_000), "20000", "users", None, "most users that one follows; the same for every node"),
    key("feed.window", Kind::Time(60_000, 7 * 24 * HOUR), "7d", "time", None, "how far back a feed goes; at most 7 days"),
    key("feed.own_posts", Kind::Switch, "true", "", None, "whether one's own posts are in one's feed"),
    key("feed.limit_to_recent", Kind::CountOrZero(1, 500), "0", "users", None, "of those who are followed a feed shows only so many: who posted last when its first page was made; 0: all of them"),
    key("feed.body_for", Kind::Time(1_000, YEAR), "30m", "time", None, "how long a post stays in the cache, unless it changes"),
    key("feed.follow_cache_bytes", Kind::Size(1 << 20, 64 << 30), "64MiB", "size", None, "follow sets that this process keeps, 4 bytes a followee"),
    key("feed.page_cache_bytes", Kind::Size(1 << 20, 64 << 30), "64MiB", "size", None, "first pages that this process keeps"),
    key("watch.redis", Kind::Urls, "", "", None, "Redis and Valkey servers to watch: a URL, or a list of them; redis://.., redis-sentinel://.. (with its replicas), redis-cluster://.. (every node); nothing: the store, if it is one; off: none"),
    key("watch.interval", Kind::Time(100, HOUR), "1s", "time", None, "time between two looks at a server"),
    key("watch.role", Kind::Choice(&["state", "cache", "shared"]), "shared", "", None, "what the servers are used for: state (nothing may be lost), cache (everything can be loaded again), shared (both); of the store, which is watched unless others are named, state unless set"),
    key("watch.state_file", Kind::File, "", "", None, "keeps what is open and which alerts are not delivered yet; nothing: beside a SQLite ledger (LEDGER.watch) while serving, else they are not kept"),
    key("limits.connections", Kind::CountOrZero(2, 1 << 20), "0", "connections", None, "connections at once, the longest idle ones are closed first; 0: three quarters of the open files allowed, at most 16,384"),
    key("limits.header_timeout", Kind::Time(100, HOUR), "10s", "time", None, "from the first byte of a request's headers to their end"),
    key("limits.header_size", Kind::Size(1 << 10, 1 << 20), "32KiB", "size", None, "largest request line and headers"),
    key("limits.body_timeout", Kind::Time(100, HOUR), "10s", "time", None, "longest pause in a request's body"),
    key("limits.request_timeout", Kind::Time(100, HOUR), "30s", "time", None, "for a request's whole body, and again for its answer from the ledger"),
    key("limits.write_timeout", Kind::Time(100, HOUR), "20s", "time", None, "how long a client may leave an answer unread while it is sent"),
    key("limits.keep_alive", Kind::Time(100, HOUR), "75s", "time", None, "longest pause between requests of a connection"),
    key("limits.body_memory", Kind::Size(8 << 20, 1 << 40), "64MiB", "size", None, "large bodies (over 64 KiB) in memory at once, all requests together"),
    key("limits.answer_memory", Kind::Size(32 << 20, 1 << 40), "256MiB", "size", None, "large answers of /v1/cache (over 64 KiB) being sent at once, each value once however many get it"),
    key("limits.event_streams", Kind::Count(0, 1 << 20), "1000", "streams", None, "event streams at once"),
    key("limits.long_polls", Kind::Count(0, 1 << 20), "2000", "calls", None, "claims and requests for locks that wait at once; at most a third of the connections"),
    key("limits.stop_timeout", Kind::Time(0, 6_000), "4s", "time", None, "how long a stop waits for requests under way; the whole stop takes at most 10 s"),
];

/// Every key of a namespace of `/v1/cache` but its headers, in the order of the example file; NAME stands for its name.
#[rustfmt::skip]
pub const NAMESPACE_KEYS: &[Key] = &[
    key("cache.namespace.NAME.url", Kind::Url, "", "", None, "where its values come from: http or https, {key} in the path or the query; also as url_file"),
    key("cache.namespace.NAME.fresh_for", Kind::Time(1, YEAR), "60s", "time", None, "how long a value is served as it is, unless it is deleted"),
    key("cache.namespace.NAME.stale_for", Kind::TimeOrOff(1, YEAR), "10m", "time", None, "how long after that it may be served while it is loaded again, or when that fails; or off"),
    key("cache.namespace.NAME.absent_for", Kind::TimeOrOff(1, YEAR), "5s", "time", None, "how long it is remembered that the origin said 404 or 410; or off"),
    key("cache.namespace.NAME.jitter", Kind::Tenths(9), "0.1", "", None, "the part of these times that chance may take off: 0 to 0.9"),
    key("cache.namespace.NAME.early_refresh", Kind::Tenths(100), "1.0", "", None, "eagerness to load a value again before its time; 0: never, 1: usual, up to 10"),
    key("cache.namespace.NAME.load_budget", Kind::Count(1, 65_536), "16", "loads", None, "calls to the origin at once, within cache.load_budget; each may hold 16 MiB"),
    key("cache.namespace.NAME.load_rate", Kind::CountOrZero(1, 1_000_000), "0", "loads a second", None, "calls to the origin that may begin in a second; 0: no bound"),
    key("cache.namespace.NAME.load_timeout", Kind::Time(100, 5 * 60_000), "10s", "time", None, "for a whole call, connection, redirects and body included; after a tenth of it a reader takes an old value if there is one"),
    key("cache.namespace.NAME.max_value", Kind::Size(1, 16 << 20), "256KiB", "size", None, "larger values are not stored in Redis"),
    key("cache.namespace.NAME.local_for", Kind::TimeOrOff(1, YEAR), "60s", "time", None, "longest life of a value's copy in this process; or off"),
    key("cache.namespace.NAME.allow_private", Kind::Switch, "false", "", None, "whether the origin may have a private, loopback or link-local address"),
];

/// Every key of a rule of the watch; NAME stands for the rule's. Each rule has defaults of its own.
#[rustfmt::skip]
pub const WATCH_RULE_KEYS: &[Key] = &[
    key("watch.rule.NAME.off", Kind::Switch, "false", "", None, "whether the rule is left out"),
    key("watch.rule.NAME.threshold", Kind::Level, "the rule's", "", None, "from here on a sample is bad, in the rule's own unit"),
    key("watch.rule.NAME.clear", Kind::Level, "the rule's", "", None, "up to here a sample is well again"),
    key("watch.rule.NAME.samples", Kind::Count(1, 64), "the rule's", "samples", None, "so many bad samples of the last `of` open a finding"),
    key("watch.rule.NAME.of", Kind::Count(1, 64), "the rule's", "samples", None, "how many samples are looked at"),
    key("watch.rule.NAME.min_uptime", Kind::Time(0, YEAR), "the rule's", "time", None, "nothing is opened before the server has run for so long"),
    key("watch.rule.NAME.min_size", Kind::Level, "the rule's", "", None, "nothing is opened below this size: bytes, or keys where the rule counts keys"),
    key("watch.rule.NAME.quiet", Kind::Time(0, HOUR), "30s", "time", None, "a finding is over when every sample of so long a time was well"),
];

/// Every key of a sink of the watch, in the order of the example file; N stands for its number, from 1.
#[rustfmt::skip]
pub const WATCH_SINK_KEYS: &[Key] = &[
    key("watch.sink.N.kind", Kind::Choice(&["smtp", "webhook"]), "", "", None, "what it speaks"),
    key("watch.sink.N.url", Kind::Text, "", "", None, "smtps://USER@HOST:465 (TLS from the start) or smtp://USER@HOST:587 (STARTTLS; ?tls=required, opportunistic or off); https:// or http:// of a webhook; also as url_file"),
    key("watch.sink.N.secret", Kind::Text, "", "", None, "the password of the mail server, or the secret that signs a webhook's messages; also as secret_file"),
    key("watch.sink.N.severity", Kind::Choice(&["info", "warning", "critical"]), "info", "", None, "the least that it hears of"),
    key("watch.sink.N.name", Kind::Name(64), "KIND-HOST", "", None, "its name in logs and metrics, and in the state file: its messages wait under it"),
    key("watch.sink.N.ca_file", Kind::File, "", "", None, "certificate of the authority (PEM) that it trusts instead of the system's"),
    key("watch.sink.N.from", Kind::Line, "", "", None, "the sender: a@b.example or \"Name <a@b.example>\""),
    key("watch.sink.N.to", Kind::Line, "", "", None, "the recipients, a list of up to 50; in the variable with commas between them"),
    key("watch.sink.N.format", Kind::Choice(&["json", "slack", "dingtalk", "feishu", "wecom"]), "json", "", None, "the body of a webhook"),
    key("watch.sink.N.template", Kind::Text, "", "", None, "a body of your own instead: a JSON object in whose texts {{name}} stands for a field; also as template_file"),
    key("watch.sink.N.signature", Kind::Choice(&["standard", "dingtalk", "feishu"]), "the format's", "", None, "how messages are signed, if there is a secret"),
    key("watch.sink.N.answer_code", Kind::Name(64), "the format's", "", None, "a number of the answer's JSON that must be 0"),
];

/// Every key as a row of a table: key, default, unit, variable, flag, what it does.
pub fn reference_rows() -> Vec<[String; 6]> {
    let code = |text: &str| if text.is_empty() { String::new() } else { format!("`{text}`") };
    let row = |key: &Key| {
        let measured = matches!(key.kind, Kind::Time(..) | Kind::TimeOrOff(..) | Kind::Size(..));
        let unit = if measured { "" } else { key.unit };
        let flag = key.flag.unwrap_or_default();
        [code(key.path), code(key.default), unit.to_owned(), code(&key.env()), code(flag), key.about.to_owned()]
    };
    KEYS.iter().chain(NAMESPACE_KEYS).chain(WATCH_RULE_KEYS).chain(WATCH_SINK_KEYS).map(row).collect()
}

/// The key at `path`.
pub fn find(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.path == path)
}

/// Variables that begin with `TIDEGATE_` and are no keys: read by the tools, the tests, or set by Kubernetes for a
/// service of this name.
pub fn is_foreign_variable(name: &str) -> bool {
    const OTHERS: [&str; 8] = [
        "TIDEGATE_CONFIG",
        "TIDEGATE_URL",
        "TIDEGATE_TOKEN",
        "TIDEGATE_TOKEN_FILE",
        "TIDEGATE_BIN",
        "TIDEGATE_VALKEY_SERVER",
        "TIDEGATE_WRITE_DOCS",
        "TIDEGATE_PORT",
    ];
    OTHERS.contains(&name)
        || ["TIDEGATE_SERVICE_", "TIDEGATE_PORT_", "TIDEGATE_TEST_"].iter().any(|prefix| name.starts_with(prefix))
}

/// The known name nearest to `name`, if one is near enough to be meant.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| text.replace('-', "_").to_lowercase();
    let leaf = |text: &str| text.rsplit('.').next().unwrap_or_default().to_owned();
    let name = plain(name);
    known
        .into_iter()
        .map(|candidate| {
            let whole = distance(&name, &plain(candidate)) * 2;
            // A key in the wrong table: the right leaf is worth one more step.
            let by_leaf = distance(&leaf(&name), &leaf(&plain(candidate))) * 2 + 1;
            (whole.min(by_leaf), candidate)
        })
        .min_by_key(|(score, _)| *score)
        .filter(|(score, candidate)| *score <= (candidate.len() / 3).max(2) * 2)
        .map(|(_, candidate)| candidate)
}

/// Edits (insert, delete, replace) from `a` to `b`.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let replaced = corner + usize::from(x != *y);
            corner = row[j + 1];
            row[j + 1] = replaced.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggestions() {
        let known = || KEYS.iter().map(|key| key.path);
        for (typed, want) in [
            ("hold_second", Some("hold_seconds")),
            ("hold-seconds", Some("hold_seconds")),
            ("Listen", Some("listen")),
            ("synchronous", Some("sqlite.synchronous")),
            ("limits.conections", Some("limits.connections")),
            ("limits.hold_seconds", Some("hold_seconds")),
            ("quite_another_thing", None),
        ] {
            assert_eq!(nearest(typed, known()), want, "{typed}");
        }
    }

    #[test]
    fn variables_of_the_tests_are_no_keys() {
        for name in ["TIDEGATE_VALKEY_SERVER", "TIDEGATE_TEST_ENGINE", "TIDEGATE_TEST_LONG", "TIDEGATE_BIN"] {
            assert!(is_foreign_variable(name), "{name}");
        }
        assert!(!is_foreign_variable("TIDEGATE_LEDGR"));
    }

    #[test]
    fn paths_are_unique() {
        let paths: std::collections::BTreeSet<_> = KEYS.iter().map(|key| key.path).collect();
        assert_eq!(paths.len(), KEYS.len());
    }
}
