//! The watch as a library, on samples that the test gives it.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate::core::Millis;
use tidegate::watch::{
    Answer, Change, Info, Reply, Round, Rule, RuleSettings, Sample, SampleSource, Settings, Silence, StateFile,
    StateKeeper, Watch, WatchOptions, look_once,
};
use tidegate::{BoxFuture, Error};

/// A server whose last snapshot failed, or not.
#[derive(Clone, Default)]
struct Server {
    fails: Arc<AtomicBool>,
    silent: Arc<AtomicBool>,
    looks: Arc<AtomicU64>,
}

impl SampleSource for Server {
    fn round(&mut self) -> BoxFuture<'_, Round> {
        let look = self.looks.fetch_add(1, Ordering::Relaxed);
        let status = if self.fails.load(Ordering::Relaxed) { "err" } else { "ok" };
        let text =
            format!("redis_version:7.0.15\r\nrole:master\r\nused_memory:1\r\nrdb_last_bgsave_status:{status}\r\n");
        let reply = if self.silent.load(Ordering::Relaxed) {
            Reply::Silence { kind: Silence::NoConnection, why: "refused".to_owned(), waited_ms: 0.0 }
        } else {
            Reply::Answer(Box::new(Answer { info: Info::parse(&text), ..Answer::default() }))
        };
        let at = Millis(1_700_000_000_000 + i64::try_from(look).unwrap() * 1_000);
        let sample = Sample { address: "10.0.0.7:6379".to_owned(), at, reply, is_late: false, tls: false };
        Box::pin(async { Round { samples: vec![sample], gone: Vec::new() } })
    }
}

fn options() -> WatchOptions {
    let mut settings = Settings::default();
    settings.set(Rule::SaveFailing, RuleSettings { quiet_ms: 3_000, ..Rule::SaveFailing.defaults() }).unwrap();
    WatchOptions { interval: Duration::from_millis(100), settings }
}

async fn start(server: &Server, keeper: Option<Arc<dyn StateKeeper>>) -> tidegate::Result<Watch> {
    Watch::start(vec![Box::new(server.clone())], options(), keeper).await
}

async fn next(changes: &mut tokio::sync::broadcast::Receiver<Change>) -> Change {
    tokio::time::timeout(Duration::from_secs(10), changes.recv()).await.unwrap().unwrap()
}

// O26
#[tokio::test]
async fn what_is_open_outlives_the_watch() {
    let folder = tempfile::tempdir().unwrap();
    let keeper = || Some(Arc::new(StateFile::new(folder.path().join("state"))) as Arc<dyn StateKeeper>);
    let server = Server::default();
    server.fails.store(true, Ordering::Relaxed);
    let watch = start(&server, keeper()).await.unwrap();
    let mut changes = watch.changes();
    let Change::Opened(opened) = next(&mut changes).await else { panic!("it is not over") };
    assert_eq!((opened.rule, watch.findings()), (Rule::SaveFailing, vec![opened.clone()]));
    assert_eq!(watch.memory()[0].used_bytes, Some(1));
    watch.stop().await;

    let watch = start(&server, keeper()).await.unwrap();
    let mut changes = watch.changes();
    assert_eq!(watch.findings(), std::slice::from_ref(&opened));
    let looks = server.looks.load(Ordering::Relaxed);
    while server.looks.load(Ordering::Relaxed) < looks + 4 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(changes.try_recv().is_err(), "it is told twice");
    server.fails.store(false, Ordering::Relaxed);
    let Change::Closed(closed) = next(&mut changes).await else { panic!("it was open") };
    assert_eq!((&closed.id, watch.findings().len()), (&opened.id, 0));
    assert_eq!(watch.closed(), [closed]);
    watch.stop().await;
    let looks = server.looks.load(Ordering::Relaxed);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(server.looks.load(Ordering::Relaxed), looks, "it goes on after its stop");
}

#[tokio::test]
async fn what_cannot_be_watched_is_refused() {
    struct Broken;
    impl StateKeeper for Broken {
        fn load(&self) -> std::io::Result<Option<String>> {
            Ok(Some("no state".to_owned()))
        }
        fn save(&self, _: &str) -> std::io::Result<()> {
            Ok(())
        }
    }
    let refused = |result: tidegate::Result<Watch>| match result {
        Err(Error::Configuration(why)) => why,
        _ => panic!("it is not refused"),
    };
    let why = refused(start(&Server::default(), Some(Arc::new(Broken))).await);
    assert!(why.contains("delete it"), "{why}");
    let short = WatchOptions { interval: Duration::from_millis(1), ..options() };
    let why = refused(Watch::start(Vec::new(), short, None).await);
    assert!(why.contains("100ms"), "{why}");
}

/// Either part that is damaged is treated alike: it stops the start, or is kept for a look where that was asked for.
#[tokio::test]
async fn a_damaged_state_is_refused_or_set_aside() {
    let folder = tempfile::tempdir().unwrap();
    let (file, damaged) = (folder.path().join("state"), folder.path().join("state.damaged"));
    let alerts = br#"{"version":1,"servers":{},"alerts":{"a":[{"alert":5}]}}"#;
    for text in [&b"{"[..], b"", b"{\"version\":9,\"servers\":{}}", b"\xff\xfe", alerts] {
        std::fs::write(&file, text).unwrap();
        let keeper = Arc::new(StateFile::new(&file));
        let Err(Error::Configuration(why)) = start(&Server::default(), Some(keeper)).await else {
            panic!("{text:?} is not refused")
        };
        assert!(why.contains("delete it to begin anew") && why.contains("state"), "{why}");
        assert_eq!(std::fs::read(&file).unwrap(), text, "it is not touched");
        let keeper = Arc::new(StateFile::new(&file).set_aside_if_damaged());
        let watch = start(&Server::default(), Some(keeper)).await.unwrap();
        watch.stop().await;
        assert_eq!(std::fs::read(&damaged).unwrap(), text);
        assert!(std::fs::read_to_string(&file).unwrap().contains("\"version\":1"), "it began anew");
    }
}

/// A state is read once, and by one watch.
#[tokio::test]
async fn a_state_has_one_watch() {
    let folder = tempfile::tempdir().unwrap();
    let keeper = || Some(Arc::new(StateFile::new(folder.path().join("state"))) as Arc<dyn StateKeeper>);
    let first = start(&Server::default(), keeper()).await.unwrap();
    let Err(Error::Configuration(why)) = start(&Server::default(), keeper()).await else { panic!("it is not refused") };
    assert!(why.contains("another watch") && why.contains("end that one"), "{why}");
    first.stop().await;
    let second = start(&Server::default(), keeper()).await.unwrap();
    drop(second);
    start(&Server::default(), keeper()).await.unwrap().stop().await;
    let nowhere = Arc::new(StateFile::new(folder.path().join("none/state")));
    let Err(Error::Configuration(why)) = start(&Server::default(), Some(nowhere)).await else {
        panic!("it is started")
    };
    assert!(why.contains("mkdir -p"), "{why}");
}

/// A link stays one, and leads whoever takes it to the file and its lock.
#[tokio::test]
async fn a_state_file_may_be_a_link() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("there")).unwrap();
    let (link, second) = (folder.path().join("link"), folder.path().join("second"));
    std::os::unix::fs::symlink("there/state", &link).unwrap();
    std::os::unix::fs::symlink(&link, &second).unwrap();
    let file = folder.path().join("there/state");
    let keeper = |path: &std::path::Path| Some(Arc::new(StateFile::new(path)) as Arc<dyn StateKeeper>);
    let watch = start(&Server::default(), keeper(&link)).await.unwrap();
    for path in [&file, &link, &second] {
        assert!(matches!(start(&Server::default(), keeper(path)).await, Err(Error::Configuration(_))), "{path:?}");
    }
    watch.stop().await;
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink() && file.is_file());
    start(&Server::default(), keeper(&second)).await.unwrap().stop().await;
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink() && !folder.path().join("link.lock").exists());
}

/// A pipe would never be read to its end, and a device is not to be replaced.
#[tokio::test]
async fn a_state_file_is_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for path in [&pipe, folder.path(), std::path::Path::new("/dev/null")] {
        let keeper = Arc::new(StateFile::new(path));
        let server = Server::default();
        let starting = start(&server, Some(keeper));
        let started = tokio::time::timeout(Duration::from_secs(10), starting).await.unwrap();
        let Err(Error::Configuration(why)) = started else { panic!("{path:?} is taken") };
        assert!(why.contains("no regular file") && why.contains("--state-file"), "{why}");
    }
}

/// A disk that takes nothing stops no watch.
#[tokio::test]
async fn a_state_that_cannot_be_kept_stops_nothing() {
    #[derive(Default)]
    struct Full(Mutex<u32>);
    impl StateKeeper for Full {
        fn load(&self) -> std::io::Result<Option<String>> {
            Ok(None)
        }
        fn save(&self, _: &str) -> std::io::Result<()> {
            *self.0.lock().unwrap() += 1;
            Err(std::io::Error::other("no space"))
        }
    }
    let (server, keeper) = (Server::default(), Arc::new(Full::default()));
    server.fails.store(true, Ordering::Relaxed);
    let watch = start(&server, Some(Arc::clone(&keeper) as Arc<dyn StateKeeper>)).await.unwrap();
    let mut changes = watch.changes();
    next(&mut changes).await;
    server.fails.store(false, Ordering::Relaxed);
    next(&mut changes).await;
    watch.stop().await;
    assert!(*keeper.0.lock().unwrap() >= 2);
}

/// What is open on servers that nobody names any more, and by rules that are off now, is over when the watch is started again.
#[tokio::test]
async fn what_is_not_watched_any_more_is_closed() {
    /// One server at an address of its own.
    struct At(&'static str, Server);
    impl SampleSource for At {
        fn round(&mut self) -> BoxFuture<'_, Round> {
            Box::pin(async {
                let mut round = self.1.round().await;
                round.samples.iter_mut().for_each(|sample| sample.address = self.0.to_owned());
                round
            })
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let keeper = || Some(Arc::new(StateFile::new(folder.path().join("state"))) as Arc<dyn StateKeeper>);
    let (failing, well) = (Server::default(), Server::default());
    failing.fails.store(true, Ordering::Relaxed);
    let start_at = async |servers: &[(&'static str, &Server)], options| {
        let sources = servers.iter().map(|(address, server)| Box::new(At(address, (*server).clone())) as _).collect();
        Watch::start(sources, options, keeper()).await.unwrap()
    };
    let watch = start_at(&[("a:1", &failing), ("b:1", &failing)], options()).await;
    let mut changes = watch.changes();
    let mut opened = [next(&mut changes).await.finding().clone(), next(&mut changes).await.finding().clone()];
    opened.sort_by(|a, b| a.address.cmp(&b.address));
    watch.stop().await;

    // Nobody answers: whether a server left is not known.
    well.silent.store(true, Ordering::Relaxed);
    let watch = start_at(&[("b:1", &well)], options()).await;
    let mut changes = watch.changes();
    let looks = well.looks.load(Ordering::Relaxed);
    while well.looks.load(Ordering::Relaxed) < looks + 3 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(watch.closed().is_empty());
    failing.looks.store(100, Ordering::Relaxed);
    watch.stop().await;
    while changes.try_recv().is_ok() {}
    let watch = start_at(&[("b:1", &failing)], options()).await;
    let mut changes = watch.changes();
    let Change::Closed(closed) = next(&mut changes).await else { panic!("it was open") };
    assert_eq!((&closed.id, &closed.address[..]), (&opened[0].id, "a:1"));
    assert!(closed.closed_at.is_some());
    watch.stop().await;
    assert!(!std::fs::read_to_string(folder.path().join("state")).unwrap().contains("a:1"), "it is forgotten");

    let mut off = options();
    let rule = RuleSettings { off: true, ..Rule::SaveFailing.defaults() };
    off.settings.set(Rule::SaveFailing, rule).unwrap();
    let watch = start_at(&[("b:1", &failing)], off).await;
    let Change::Closed(closed) = next(&mut watch.changes()).await else { panic!("it was open") };
    assert_eq!((&closed.id, &closed.address[..]), (&opened[1].id, "b:1"));
    watch.stop().await;
}

#[tokio::test]
async fn two_looks_are_enough_for_whoever_asks_once() {
    let server = Server::default();
    let look = async || look_once(vec![Box::new(server.clone())], &options()).await;
    let seen = look().await;
    assert!(seen.findings.is_empty() && seen.silent.is_empty() && seen.memory.len() == 1, "{seen:?}");
    server.silent.store(true, Ordering::Relaxed);
    let seen = look().await;
    assert_eq!((seen.findings[0].rule, seen.silent.len(), seen.memory.len()), (Rule::BlockedServer, 1, 0));
}
