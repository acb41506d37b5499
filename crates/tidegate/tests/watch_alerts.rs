//! Alerts of the watch as a library: what is told, how often, over restarts, and by whom it is not held up.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate::core::Millis;
use tidegate::watch::alerts::{self, Alert, AlertKind, AlertSink, MAX_AGE_MS, SEND_TIMEOUT, Undelivered};
use tidegate::watch::{
    Answer, Finding, Info, Reply, Round, Rule, RuleSettings, Sample, SampleSource, Settings, Severity, Silence,
    StateFile, StateKeeper, Watch, WatchOptions,
};
use tidegate::{BoxFuture, Error};

/// The share of its memory that a server uses in each second of its life.
#[derive(Clone)]
struct Server {
    share: Arc<dyn Fn(u64) -> f64 + Send + Sync>,
    second: Arc<AtomicU64>,
    /// It has lived for so long when this second comes.
    until: u64,
    /// The instant of its first second: messages that are a day old are not sent.
    began: i64,
}

impl Server {
    fn new(share: impl Fn(u64) -> f64 + Send + Sync + 'static) -> Self {
        Self { share: Arc::new(share), second: Arc::default(), until: u64::MAX, began: now() }
    }

    fn second(&self) -> u64 {
        self.second.load(Ordering::Relaxed)
    }
}

fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

const LIMIT: u64 = 1_000_000_000;

impl SampleSource for Server {
    fn round(&mut self) -> BoxFuture<'_, Round> {
        if self.second() >= self.until {
            return Box::pin(async { Round::default() });
        }
        let second = self.second.fetch_add(1, Ordering::Relaxed);
        let used = ((self.share)(second) * LIMIT as f64) as u64;
        let text = format!(
            "redis_version:7.0.15\r\nrole:master\r\nuptime_in_seconds:{second}\r\nused_memory:{used}\r\nmem_not_counted_for_evict:0\r\n\
             used_memory_rss:{used}\r\nmaxmemory:{LIMIT}\r\nmaxmemory_policy:noeviction\r\ndb0:keys=5,expires=5,avg_ttl=0\r\n"
        );
        let reply = Reply::Answer(Box::new(Answer { info: Info::parse(&text), ..Answer::default() }));
        let at = Millis(self.began + i64::try_from(second).unwrap() * 1_000);
        let sample = Sample { address: "10.0.0.7:6379".to_owned(), at, reply, is_late: false, tls: false };
        Box::pin(async { Round { samples: vec![sample], gone: Vec::new() } })
    }
}

type Answering = Box<dyn Fn(&Alert, usize) -> Result<(), Undelivered> + Send + Sync>;

/// A sink that answers as it is told (by the message and how many came before), and remembers every attempt.
struct Sink {
    name: &'static str,
    least: Severity,
    hangs: bool,
    answer: Answering,
    attempts: Mutex<Vec<(Alert, bool)>>,
}

impl Sink {
    fn new(
        name: &'static str,
        answer: impl Fn(&Alert, usize) -> Result<(), Undelivered> + Send + Sync + 'static,
    ) -> Self {
        Self { name, least: Severity::Info, hangs: false, answer: Box::new(answer), attempts: Mutex::default() }
    }

    fn good(name: &'static str) -> Arc<Self> {
        Arc::new(Self::new(name, |_, _| Ok(())))
    }

    fn taken(&self) -> Vec<String> {
        self.attempts.lock().unwrap().iter().filter(|(_, taken)| *taken).map(|(alert, _)| alert.id.clone()).collect()
    }

    fn attempts(&self) -> usize {
        self.attempts.lock().unwrap().len()
    }
}

impl AlertSink for Sink {
    fn name(&self) -> &str {
        self.name
    }

    fn least(&self) -> Severity {
        self.least
    }

    fn send<'a>(&'a self, alert: &'a Alert) -> BoxFuture<'a, Result<(), Undelivered>> {
        Box::pin(async move {
            let result = {
                let mut attempts = self.attempts.lock().unwrap();
                let result = (self.answer)(alert, attempts.len());
                attempts.push((alert.clone(), result.is_ok() && !self.hangs));
                result
            };
            if self.hangs {
                std::future::pending::<()>().await;
            }
            result
        })
    }
}

fn options() -> WatchOptions {
    let mut settings = Settings::default();
    for rule in Rule::ALL.iter().filter(|rule| **rule != Rule::MemoryPressure) {
        settings.set(*rule, RuleSettings { off: true, ..rule.defaults() }).unwrap();
    }
    WatchOptions { interval: Duration::from_secs(1), settings }
}

async fn start(server: &Server, state: &Path, sinks: &[Arc<Sink>]) -> tidegate::Result<Watch> {
    let keeper = Arc::new(StateFile::new(state)) as Arc<dyn StateKeeper>;
    let sinks = sinks.iter().map(|sink| Arc::clone(sink) as Arc<dyn AlertSink>).collect();
    Watch::start_alerting(vec![Box::new(server.clone())], options(), Some(keeper), sinks).await
}

/// Time is paused: a sleep takes none.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..20_000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    panic!("never {what}");
}

fn state() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("state");
    (folder, file)
}

// O26: an hour around the limit, with a restart every ten minutes: one message at the opening, one at the closing.
#[tokio::test(start_paused = true)]
async fn an_hour_around_the_limit_is_two_messages() {
    const HOUR: u64 = 3_600;
    let around = |second: u64| match second {
        0..10 => 0.5,
        // Above and below the threshold, of 0.87, and now and then below the clear level, of 0.8, for less than it must be well.
        10..HOUR if second % 90 < 20 => 0.75,
        10..HOUR if second.is_multiple_of(2) => 0.88,
        10..HOUR => 0.86,
        _ => 0.5,
    };
    let ((_folder, file), mut server, sink) = (state(), Server::new(around), Sink::good("a"));
    for end in [600, 1_200, 1_800, 2_400, 3_000, HOUR, HOUR + 120] {
        server.until = end;
        let watch = start(&server, &file, &[Arc::clone(&sink)]).await.unwrap();
        until("so late", || server.second() >= end).await;
        watch.stop().await;
        assert_eq!(sink.taken().len(), if end > HOUR { 2 } else { 1 }, "after {end} s");
    }
    let attempts = sink.attempts.lock().unwrap();
    let [(opened, _), (closed, _)] = &attempts[..] else { panic!("{attempts:?}") };
    assert_eq!((opened.kind, closed.kind), (AlertKind::Opened, AlertKind::Closed));
    let of =
        |alert: &Alert| alert.finding.clone().map(|finding: Finding| (finding.id, finding.rule, finding.opened_at));
    assert_eq!(of(opened), of(closed));
    assert!(closed.finding.as_ref().unwrap().closed_at.unwrap() >= Millis(server.began + 3_600_000));
    assert_eq!(opened.id.strip_suffix("-opened"), closed.id.strip_suffix("-closed"));
}

/// Full for a minute, then well.
fn one_finding() -> Server {
    Server::new(|second| if second < 60 { 0.89 } else { 0.5 })
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_hangs_or_fails_delays_no_other() {
    let ((_folder, file), server) = (state(), one_finding());
    let hanging = Arc::new(Sink { hangs: true, ..Sink::new("hanging", |_, _| Ok(())) });
    let failing = Arc::new(Sink::new("failing", |_, before| match before {
        0..3 => Err(Undelivered::later("not now")),
        _ => Ok(()),
    }));
    let refusing = Arc::new(Sink::new("refusing", |_, _| Err(Undelivered::never("no such hook"))));
    let picky = Arc::new(Sink { least: Severity::Critical, ..Sink::new("picky", |_, _| Ok(())) });
    let good = Sink::good("good");
    let sinks = [&hanging, &failing, &refusing, &picky, &good].map(Arc::clone);
    let watch = start(&server, &file, &sinks).await.unwrap();
    until("told", || !good.taken().is_empty()).await;
    assert!(server.second() < 10, "at once: {}", server.second());
    until("told again", || good.taken().len() == 2 && failing.taken().len() == 2).await;
    // In order, each once; what is refused is not tried again, what was not taken is.
    assert_eq!(failing.taken(), good.taken());
    assert_eq!((failing.attempts(), refusing.attempts(), picky.attempts()), (5, 2, 0));
    let attempts = hanging.attempts();
    until("tried again", || hanging.attempts() > attempts).await;
    assert!(hanging.taken().is_empty());
    let stopping = tokio::time::Instant::now();
    watch.stop().await;
    assert!(stopping.elapsed() < Duration::from_secs(5), "{:?}", stopping.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_restart_loses_nothing_and_repeats_nothing() {
    let ((_folder, file), server) = (state(), one_finding());
    let (dead, good) = (Arc::new(Sink::new("a", |_, _| Err(Undelivered::later("down")))), Sink::good("b"));
    let watch = start(&server, &file, &[Arc::clone(&dead), Arc::clone(&good)]).await.unwrap();
    until("over", || good.taken().len() == 2).await;
    watch.stop().await;
    let (told, tries) = (good.taken(), dead.attempts());
    assert!(tries > 3 && dead.taken().is_empty());
    assert!(std::fs::read_to_string(&file).unwrap().contains("alerts"));

    // The same names, both well now.
    let (a, b) = (Sink::good("a"), Sink::good("b"));
    let watch = start(&server, &file, &[Arc::clone(&a), Arc::clone(&b)]).await.unwrap();
    until("delivered", || a.taken().len() == 2).await;
    assert_eq!((a.taken(), b.attempts()), (told, 0));
    watch.stop().await;
    let watch = start(&server, &file, &[Arc::clone(&a), Arc::clone(&b)]).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    watch.stop().await;
    assert_eq!((a.attempts(), b.attempts()), (2, 0));
}

/// A message that was taken, but not noted before the process died, comes again under its id.
#[tokio::test(start_paused = true)]
async fn what_is_not_known_to_be_taken_is_sent_again_under_the_same_id() {
    let ((_folder, file), server) = (state(), one_finding());
    let first = Arc::new(Sink { hangs: true, ..Sink::new("a", |_, _| Ok(())) });
    let watch = start(&server, &file, &[Arc::clone(&first)]).await.unwrap();
    until("sent", || first.attempts() == 1).await;
    // As by kill -9: nothing is kept any more.
    drop(watch);
    let again = Sink::good("a");
    let watch = start(&server, &file, &[Arc::clone(&again)]).await.unwrap();
    until("sent again", || again.attempts() >= 1).await;
    watch.stop().await;
    let id = |sink: &Sink| sink.attempts.lock().unwrap()[0].0.id.clone();
    assert_eq!(id(&first), id(&again));
}

/// A server that is silent for as long as it likes: what was delivered is kept all the same, before the look is over.
#[tokio::test]
async fn what_was_taken_is_kept_while_a_look_waits() {
    struct Waiting(Server);
    impl SampleSource for Waiting {
        fn round(&mut self) -> BoxFuture<'_, Round> {
            if self.0.second() < 6 { self.0.round() } else { Box::pin(std::future::pending()) }
        }
    }
    let ((_folder, file), server) = (state(), one_finding());
    let watch = async |sink: &Arc<Sink>| {
        let keeper = Arc::new(StateFile::new(&file)) as Arc<dyn StateKeeper>;
        let options = WatchOptions { interval: Duration::from_millis(100), ..options() };
        let sinks = vec![Arc::clone(sink) as Arc<dyn AlertSink>];
        Watch::start_alerting(vec![Box::new(Waiting(server.clone()))], options, Some(keeper), sinks).await.unwrap()
    };
    let first = Sink::good("a");
    let watching = watch(&first).await;
    let is_kept = || {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        first.attempts() == 1 && text.contains("memory-pressure") && !text.contains("-opened")
    };
    let began = std::time::Instant::now();
    while !is_kept() {
        assert!(began.elapsed() < Duration::from_secs(20), "never kept");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // As by kill -9.
    drop(watching);
    let again = Sink::good("a");
    let watching = watch(&again).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(watching);
    assert_eq!((server.second(), again.attempts()), (6, 0));
}

/// As many servers as may be watched, all dead at once, and a sink that takes whatever it is given.
#[tokio::test(start_paused = true)]
async fn a_sink_that_is_well_gets_all_that_opens_at_once() {
    const SERVERS: usize = 1_024;
    struct Dead(i64);
    impl SampleSource for Dead {
        fn round(&mut self) -> BoxFuture<'_, Round> {
            self.0 += 1_000;
            let sample = |n: usize| Sample {
                address: format!("10.0.{}.{}:6379", n / 256, n % 256),
                at: Millis(self.0),
                reply: Reply::Silence { kind: Silence::NoConnection, why: "refused".to_owned(), waited_ms: 0.0 },
                is_late: false,
                tls: false,
            };
            let samples = (0..SERVERS).map(sample).collect();
            Box::pin(async { Round { samples, gone: Vec::new() } })
        }
    }
    let ((_folder, file), sink) = (state(), Sink::good("a"));
    let keeper = Arc::new(StateFile::new(&file)) as Arc<dyn StateKeeper>;
    let sinks = vec![Arc::clone(&sink) as Arc<dyn AlertSink>];
    let options = WatchOptions { settings: Settings::default(), ..options() };
    let watch = Watch::start_alerting(vec![Box::new(Dead(now()))], options, Some(keeper), sinks).await.unwrap();
    until("told of each", || sink.attempts() == SERVERS).await;
    watch.stop().await;
    let told: std::collections::BTreeSet<String> = sink.taken().into_iter().collect();
    assert_eq!(told.len(), SERVERS);
}

#[tokio::test(start_paused = true)]
async fn what_is_a_day_old_is_not_sent_any_more() {
    let ((_folder, file), mut server) = (state(), one_finding());
    server.began -= MAX_AGE_MS + 600_000;
    let sink = Sink::good("a");
    let watch = start(&server, &file, &[Arc::clone(&sink)]).await.unwrap();
    until("over", || server.second() > 120 && watch.closed().len() == 1).await;
    watch.stop().await;
    assert_eq!(sink.attempts(), 0);
    assert!(!std::fs::read_to_string(&file).unwrap().contains("-opened"));
}

#[tokio::test(start_paused = true)]
async fn states_of_older_releases_and_of_other_sinks_are_read() {
    let ((_folder, file), server, sink) = (state(), one_finding(), Sink::good("a"));
    std::fs::write(&file, "{\"version\":1,\"servers\":{}}").unwrap();
    let watch = start(&server, &file, &[Arc::clone(&sink)]).await.unwrap();
    until("told", || sink.attempts() == 1).await;
    watch.stop().await;
    // A sink that is not configured any more takes its messages with it; a judge without sinks reads the rest.
    let text = std::fs::read_to_string(&file).unwrap();
    let keeper = Arc::new(StateFile::new(&file)) as Arc<dyn StateKeeper>;
    let watch = Watch::start(vec![Box::new(server.clone())], options(), Some(keeper)).await.unwrap();
    assert_eq!(watch.findings().len(), 1, "{text}");
    watch.stop().await;
    let bad =
        text.replacen("\"version\":1", "\"version\":1,\"alerts\":7", 1).replacen("\"alerts\":{", "\"other\":{", 1);
    std::fs::write(&file, bad).unwrap();
    let why = match start(&server, &file, &[sink]).await {
        Err(Error::Configuration(why)) => why,
        _ => panic!("it is not refused"),
    };
    assert!(why.contains("delete it"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn sinks_are_tested_together_and_each_answers_for_itself() {
    let hanging = Arc::new(Sink { hangs: true, ..Sink::new("hanging", |_, _| Ok(())) });
    let refusing = Arc::new(Sink::new("refusing", |_, _| Err(Undelivered::never("no such hook"))));
    let good = Sink::good("good");
    let sinks: Vec<Arc<dyn AlertSink>> = vec![hanging, refusing, Arc::clone(&good) as _];
    let began = tokio::time::Instant::now();
    let answers = alerts::test(&sinks).await;
    assert!(began.elapsed() <= SEND_TIMEOUT + Duration::from_secs(1));
    let names: Vec<(&str, bool)> = answers.iter().map(|(name, answer)| (name.as_str(), answer.is_ok())).collect();
    assert_eq!(names, [("hanging", false), ("refusing", false), ("good", true)]);
    assert!(answers[1].1.as_ref().unwrap_err().to_string().contains("no such hook"));
    assert_eq!(good.attempts.lock().unwrap()[0].0.kind, AlertKind::Test);
    let same = [Sink::good("x"), Sink::good("x")];
    let (_folder, file) = state();
    assert!(matches!(start(&one_finding(), &file, &same).await, Err(Error::Configuration(_))));
}
