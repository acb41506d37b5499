//! The watch on real servers: faults are put into them, and must be told in time.
#![allow(clippy::unwrap_used, reason = "tests")]

mod clients;
mod disk;
mod memory;
mod replicas;
mod sampler;
mod servers;
mod soak;

use std::time::{Duration, Instant};

use tidegate_backend::watch::{Round, SampleSource};
use tidegate_conformance::servers::{Redis, Setup};
use tidegate_core::watch::{Change, Finding, Judge, Purpose, Rule, RuleSettings, Settings};
use tidegate_redis::{RedisOptions, RedisSamples};

/// Between two looks.
const EVERY: Duration = Duration::from_millis(200);
/// A fault must be told within this time, once a rule's own gates hold; they are short here.
const IN_TIME: Duration = Duration::from_secs(10);

/// A watch over one server or several.
struct Watching {
    samples: RedisSamples,
    judge: Judge,
    last: Round,
}

/// The settings of a test: no age, no size, two bad samples of three.
fn short(purpose: Purpose) -> Settings {
    let mut settings = Settings::new(purpose);
    for rule in Rule::ALL {
        let usual = rule.defaults();
        let (samples, of) = (usual.samples.min(2), usual.of.min(3));
        let quiet_ms = 1_000;
        settings.set(*rule, RuleSettings { samples, of, min_uptime_s: 0, quiet_ms, ..usual }).unwrap();
    }
    settings
}

fn with(mut settings: Settings, rule: Rule, change: impl FnOnce(&mut RuleSettings)) -> Settings {
    let mut one = settings.of(rule);
    change(&mut one);
    settings.set(rule, one).unwrap();
    settings
}

impl Watching {
    fn new(url: &str, settings: Settings) -> Self {
        let samples = RedisSamples::new(RedisOptions::parse(url).unwrap(), Duration::from_millis(800));
        Self { samples, judge: Judge::new(settings), last: Round::default() }
    }

    /// One look.
    async fn look(&mut self) -> Vec<Change> {
        self.last = self.samples.round().await;
        self.last.samples.iter().flat_map(|sample| self.judge.judge(sample)).collect()
    }

    async fn quiet(&mut self, looks: usize) {
        for _ in 0..looks {
            let changes = self.look().await;
            assert!(changes.is_empty(), "{changes:#?}");
            tokio::time::sleep(EVERY).await;
        }
    }

    /// Looks until `rule` is told; `meanwhile` keeps the fault up.
    async fn told(&mut self, rule: Rule, mut meanwhile: impl FnMut()) -> Finding {
        let began = Instant::now();
        loop {
            // It may have opened together with another.
            if let Some(finding) = self.judge.open().find(|finding| finding.rule == rule).cloned() {
                assert!(!finding.cause.is_empty() && !finding.evidence.is_empty(), "{finding:#?}");
                assert!(!finding.next_command.is_empty() && !finding.risk.is_empty(), "{finding:#?}");
                return finding;
            }
            assert!(
                began.elapsed() < IN_TIME,
                "{} is not told: {:?}",
                rule.name(),
                self.judge.memory().collect::<Vec<_>>()
            );
            tokio::time::sleep(EVERY).await;
            meanwhile();
            self.look().await;
        }
    }

    /// Looks until `rule` is over.
    async fn over(&mut self, rule: Rule) {
        let began = Instant::now();
        while self.judge.open().any(|finding| finding.rule == rule) {
            assert!(began.elapsed() < IN_TIME, "{} does not end", rule.name());
            self.look().await;
            tokio::time::sleep(EVERY).await;
        }
    }
}

/// Writes `count` values of `bytes` bytes under keys that begin with `name`.
fn fill(redis: &Redis, name: &str, count: usize, bytes: usize) {
    let script =
        "for i = 1, tonumber(ARGV[2]) do redis.call('SET', ARGV[1] .. i, string.rep('x', tonumber(ARGV[3]))) end";
    redis.tell(&["EVAL", script, "0", name, &count.to_string(), &bytes.to_string()]);
}

fn with_options(options: &[(&str, &str)]) -> Redis {
    Redis::start_with(options.iter().fold(Setup::default(), |setup, (name, value)| setup.option(name, value)))
}

/// The guide says of each rule which fault is put into a real server, and by which test.
#[test]
fn the_guide_has_the_fault_of_every_rule() {
    const FILES: &[(&str, &str)] = &[
        ("clients", include_str!("clients.rs")),
        ("disk", include_str!("disk.rs")),
        ("memory", include_str!("memory.rs")),
        ("replicas", include_str!("replicas.rs")),
        ("sampler", include_str!("sampler.rs")),
        ("servers", include_str!("servers.rs")),
    ];
    let guide = include_str!("../../../../docs/operations/watch.md");
    let part = guide.split_once("| rule | fault | test |").unwrap().1;
    let rows: Vec<Vec<&str>> = part
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`')).collect())
        .collect();
    let (mut by_servers, mut named) = (0, std::collections::BTreeSet::new());
    for row in &rows {
        let &[name, _, test] = row.as_slice() else { panic!("{row:?}") };
        let rule = Rule::named(name).unwrap_or_else(|| panic!("{name} is no rule"));
        named.insert(rule);
        if test == "on samples" {
            assert_eq!(rule, Rule::Swapping, "a real server can show it");
            continue;
        }
        by_servers += 1;
        let (file, function) = test.split_once("::").unwrap_or_else(|| panic!("{test} is no test"));
        let text = FILES.iter().find(|(name, _)| *name == file).unwrap_or_else(|| panic!("{file} is no file")).1;
        let body = text.split_once(&format!("async fn {function}()")).unwrap_or_else(|| panic!("{test} is no test")).1;
        let body = body.split_once("\n}\n").map_or(body, |(body, _)| body);
        assert!(body.contains(&format!("Rule::{rule:?}")), "{test} does not wait for {name}");
    }
    assert_eq!(named.len(), Rule::ALL.len(), "each rule has a row");
    assert!(by_servers >= 20, "{by_servers}");
}
