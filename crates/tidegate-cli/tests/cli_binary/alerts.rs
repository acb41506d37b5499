//! Alerts of `tidegate watch` and of `serve`, from a real server to a real sink, over restarts and kills.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tidegate_conformance::servers::{
    HookAnswer, HookSink, MailSink, MailSinkSetup, Redis, Setup, free_port, wait_until,
};

use super::support::{Serve, command, folder, run, run_with, write};

/// A server whose memory is full, or not.
struct Full(Redis);

impl Full {
    fn start() -> Self {
        let setup = Setup::default().option("maxmemory", "20mb").option("maxmemory-policy", "noeviction");
        Self(Redis::start_with(setup))
    }

    fn fill(&self) {
        let script = "for i = 1, 20 do redis.call('SET', 'a' .. i, string.rep('x', 1000000)) end";
        self.0.tell(&["EVAL", script, "0"]);
    }

    fn empty(&self) {
        self.0.tell(&["FLUSHALL"]);
    }

    /// Only `full-noeviction` is judged, and soon over.
    fn config(&self, sinks: &str) -> String {
        let others =
            ["memory-pressure", "data-lost", "client-buffers", "big-value-passing", "slow-commands", "fork-headroom"];
        let off: String = others.iter().map(|rule| format!("[watch.rule.{rule}]\noff = true\n")).collect();
        format!(
            "[watch]\nredis = {:?}\ninterval = \"100ms\"\nrole = \"state\"\n[watch.rule.full-noeviction]\nquiet = \"1s\"\n{off}{sinks}",
            self.0.url()
        )
    }
}

fn hook(sink: &HookSink) -> String {
    format!("[[watch.sink]]\nkind = \"webhook\"\nurl = {:?}\n", sink.url("/hook"))
}

fn mail(port: u16) -> String {
    format!(
        "[[watch.sink]]\nkind = \"smtp\"\nurl = \"smtp://127.0.0.1:{port}\"\nfrom = \"tide@shop.example\"\nto = [\"ann@shop.example\"]\n"
    )
}

fn watching(folder: &Path, config: &str) -> Child {
    let config = write(folder, "watch.toml", config);
    let (config, state) = (config.to_str().expect("UTF-8").to_owned(), folder.join("state.json"));
    let args = ["watch", "--config", &config, "--state-file", state.to_str().expect("UTF-8")];
    let log = std::fs::File::create(folder.join("watch.log")).expect("a log file");
    command(&args).stdout(Stdio::null()).stderr(log).spawn().expect("the binary runs")
}

fn log_of(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("watch.log")).expect("a log")
}

fn end(mut child: Child, signal: Signal) {
    kill_process(Pid::from_child(&child), signal).expect("the process is there");
    let began = Instant::now();
    child.wait().expect("it can be waited for");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

fn ids(sink: &HookSink) -> Vec<String> {
    sink.posted().iter().map(|posted| posted.headers["webhook-id"].clone()).collect()
}

// O26, over processes.
#[test]
fn each_finding_is_told_once_at_its_opening_and_once_at_its_closing_whatever_ends_between() {
    let (redis, hooks, folder) = (Full::start(), HookSink::start(), folder());
    let port = free_port();
    let config = redis.config(&format!("{}{}", hook(&hooks), mail(port)));
    redis.fill();
    let child = watching(folder.path(), &config);
    assert_eq!(hooks.wait_for(1).len(), 1);
    // Mail cannot be delivered yet; the webhook was not held up. Killed, it still knows that one of the two is told.
    std::thread::sleep(Duration::from_millis(500));
    end(child, Signal::KILL);
    let server = MailSink::start(MailSinkSetup::default().port(port), folder.path());
    let child = watching(folder.path(), &config);
    let mails = server.wait_for(1);
    assert!(
        mails[0].header("subject").is_some_and(|subject| subject.contains("critical: full-noeviction")),
        "{mails:?}"
    );
    redis.empty();
    assert_eq!(hooks.wait_for(2).len(), 2);
    assert_eq!(server.wait_for(2).len(), 2);
    end(child, Signal::TERM);
    let child = watching(folder.path(), &config);
    std::thread::sleep(Duration::from_secs(2));
    end(child, Signal::TERM);
    let ids = ids(&hooks);
    assert!(ids.len() == 2 && ids[0].ends_with("-opened") && ids[1].ends_with("-closed"), "{ids:?}");
    assert_eq!(server.received().len(), 2);
    let of = |mail: &tidegate_conformance::servers::Received| mail.header("message-id").expect("an id");
    let mails: Vec<String> = server.received().iter().map(of).collect();
    assert_eq!(mails, ids.iter().map(|id| format!("<{id}@shop.example>")).collect::<Vec<_>>());
}

#[test]
fn a_kill_between_sending_and_noting_sends_it_again_under_its_id() {
    let (redis, hooks, folder) = (Full::start(), HookSink::start(), folder());
    let config = redis.config(&hook(&hooks));
    redis.fill();
    // The message arrives, and the answer does not.
    hooks.answer(HookAnswer::Hang);
    let child = watching(folder.path(), &config);
    assert_eq!(hooks.wait_for(1).len(), 1);
    end(child, Signal::KILL);
    hooks.answer(HookAnswer::status(200, "ok"));
    let child = watching(folder.path(), &config);
    assert_eq!(hooks.wait_for(2).len(), 2);
    std::thread::sleep(Duration::from_secs(1));
    end(child, Signal::TERM);
    let ids = ids(&hooks);
    assert!(ids.len() == 2 && ids[0] == ids[1], "{ids:?}");
}

#[test]
fn serve_tells_and_keeps_what_it_told_beside_its_ledger() {
    let (redis, hooks, folder) = (Full::start(), HookSink::start(), folder());
    let config = write(folder.path(), "serve.toml", &redis.config(&hook(&hooks)));
    let config = ["--config", config.to_str().expect("UTF-8")];
    redis.fill();
    let serve = Serve::start(folder.path(), &config);
    assert_eq!(hooks.wait_for(1).len(), 1);
    let metrics = || {
        let mut answer = ureq::get(format!("{}/metrics", serve.url)).call().expect("it answers");
        answer.body_mut().read_to_string().expect("text")
    };
    let delivered = "tidegate_watch_alerts_total{sink=\"webhook-127.0.0.1\",outcome=\"delivered\"} 1";
    wait_until("the delivery is counted", || metrics().contains(delivered));
    assert!(metrics().contains("tidegate_watch_alerts_waiting{sink=\"webhook-127.0.0.1\"} 0"), "{}", metrics());
    assert_eq!(serve.stop(Signal::TERM).0, Some(0));
    assert!(folder.path().join("ledger.db.watch").exists());
    let serve = Serve::start(folder.path(), &config);
    std::thread::sleep(Duration::from_secs(1));
    redis.empty();
    assert_eq!(hooks.wait_for(2).len(), 2);
    let (code, took, _) = serve.stop(Signal::TERM);
    assert!(code == Some(0) && took < Duration::from_secs(4), "{code:?} {took:?}");
    let ids = ids(&hooks);
    assert!(ids.len() == 2 && ids[1].ends_with("-closed"), "{ids:?}");
}

#[test]
fn a_test_alert_says_of_each_sink_whether_it_was_taken() {
    let (hooks, folder) = (HookSink::start(), folder());
    let server = MailSink::start(MailSinkSetup::default(), folder.path());
    let test = |sinks: &str, more: &[&str]| {
        let config = write(folder.path(), "test.toml", sinks);
        run(&[&["watch", "--test-alert", "--config", config.to_str().expect("UTF-8")], more].concat())
    };
    let both = format!("{}{}", hook(&hooks), mail(server.port()));
    let taken = test(&both, &[]).expect(0, &[]);
    assert_eq!(taken.out, "webhook-127.0.0.1: taken\nsmtp-127.0.0.1: taken\n");
    let posted: serde_json::Value = serde_json::from_str(&hooks.posted()[0].body).expect("JSON");
    assert_eq!((&posted["type"], server.received().len()), (&"test".into(), 1));
    hooks.answer(HookAnswer::status(403, "go away"));
    let refused = test(&both, &["--json"]).expect(1, &[]);
    let lines: Vec<serde_json::Value> =
        refused.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((&lines[0]["taken"], &lines[1]["taken"]), (&false.into(), &true.into()));
    assert!(lines[0]["error"].as_str().is_some_and(|why| why.contains("403") && why.contains("go away")), "{lines:?}");
    test("", &[]).expect(2, &["[[watch.sink]]"]);
    test("[[watch.sink]]\nkind = \"webhook\"\nurl = \"mailto:x\"\n", &[]).expect(2, &["test.toml:1", "https://"]);
}

#[test]
fn sinks_of_variables_alone_have_secrets_that_nobody_is_shown() {
    let (hooks, folder) = (HookSink::start(), folder());
    let setup = MailSinkSetup::default().login("tide", "s3cret word");
    let server = MailSink::start(setup, folder.path());
    let (url, key) = (format!("smtp://tide@127.0.0.1:{}", server.port()), format!("whsec_{}", "A".repeat(44)));
    let place = write(folder.path(), "hook-url", &format!("{}\n", hooks.url("/s3cret-hook")));
    let variables = [
        ("TIDEGATE_WATCH_SINK_1_KIND", "smtp"),
        ("TIDEGATE_WATCH_SINK_1_URL", &*url),
        ("TIDEGATE_WATCH_SINK_1_SECRET", "s3cret word"),
        ("TIDEGATE_WATCH_SINK_1_FROM", "tide@shop.example"),
        ("TIDEGATE_WATCH_SINK_1_TO", "ann@shop.example, bob@shop.example"),
        ("TIDEGATE_WATCH_SINK_2_KIND", "webhook"),
        ("TIDEGATE_WATCH_SINK_2_URL_FILE", place.to_str().expect("UTF-8")),
        ("TIDEGATE_WATCH_SINK_2_SECRET", &*key),
    ];
    let taken = run_with(&["watch", "--test-alert"], &variables).expect(0, &[]);
    assert_eq!(taken.out, "smtp-127.0.0.1: taken\nwebhook-127.0.0.1: taken\n");
    let mails = server.received();
    assert_eq!((mails[0].user.as_deref(), mails[0].to.len()), (Some("tide"), 2), "{mails:?}");
    let posted = &hooks.posted()[0];
    assert!(posted.target == "/s3cret-hook" && posted.headers["webhook-signature"].starts_with("v1,"), "{posted:?}");
    let shown = run_with(&["config", "check"], &variables).expect(0, &[]).out;
    for want in ["watch.sink.1.secret", "TIDEGATE_WATCH_SINK_1_SECRET", "watch.sink.2.url", "hook-url"] {
        assert!(shown.contains(want), "{want}: {shown}");
    }
    assert!(!shown.contains("s3cret") && !shown.contains(&key), "{shown}");
    let both = [&variables[..], &[("TIDEGATE_WATCH_SINK_2_URL", "http://h/x")]].concat();
    run_with(&["config", "check"], &both).expect(2, &["TIDEGATE_WATCH_SINK_2_URL_FILE", "keep one of them"]);
}

/// What the watch remembers keeps no shop shut.
#[test]
fn serve_opens_beside_a_damaged_state_of_its_watch() {
    let (redis, hooks, folder) = (Full::start(), HookSink::start(), folder());
    let config = write(folder.path(), "serve.toml", &redis.config(&hook(&hooks)));
    let config = ["--config", config.to_str().expect("UTF-8")];
    redis.fill();
    let alerts = r#"{"version":1,"servers":{},"alerts":{"webhook-127.0.0.1":[{"alert":5}]}}"#;
    for damaged in ["garbage".as_bytes(), b"", alerts.as_bytes(), b"{\"version\":1,\xff\xfe"] {
        let before = hooks.wait_for(0).len();
        std::fs::write(folder.path().join("ledger.db.watch"), damaged).expect("it can be written");
        let serve = Serve::start(folder.path(), &config);
        assert_eq!(hooks.wait_for(before + 1).len(), before + 1, "it watches");
        assert_eq!(serve.stop(Signal::TERM).0, Some(0));
        let kept = std::fs::read(folder.path().join("ledger.db.watch.damaged")).expect("it is kept");
        assert_eq!(kept, damaged);
    }
}

/// Two watches on one state file would overwrite what the other knows; a killed one is in nobody's way.
#[test]
fn one_state_file_has_one_watch() {
    let (redis, folder) = (Redis::start(), folder());
    let config = format!("[watch]\nredis = {:?}\nstate_file = {:?}\n", redis.url(), folder.path().join("state.json"));
    let child = watching(folder.path(), &config);
    wait_until("it has its state", || log_of(folder.path()).contains("watching "));
    let config = write(folder.path(), "second.toml", &config);
    let config = config.to_str().expect("UTF-8");
    run(&["watch", "--config", config]).expect(2, &["another watch", "state.json", "--state-file"]);
    let ledger = format!("sqlite:{}", folder.path().join("ledger.db").display());
    let serve = ["serve", "--config", config, "--ledger", &ledger, "--listen", "127.0.0.1:0"];
    run(&serve).expect(2, &["another watch", "state.json"]);
    end(child, Signal::KILL);
    let child = watching(folder.path(), &std::fs::read_to_string(config).expect("it is there"));
    std::thread::sleep(Duration::from_secs(1));
    end(child, Signal::TERM);
    let log = log_of(folder.path());
    assert!(log.contains("watching ") && !log.contains("another watch"), "{log}");
    let nowhere = folder.path().join("none/state.json");
    let nowhere = nowhere.to_str().expect("UTF-8");
    run(&["watch", "--redis", &redis.url(), "--state-file", nowhere]).expect(2, &["mkdir -p", "does not exist"]);
}

/// A watch that did not run for a while has not seen what was then.
#[test]
fn a_watch_that_was_blind_says_so() {
    let (redis, folder) = (Redis::start(), folder());
    let config = format!("[watch]\nredis = {:?}\ninterval = \"100ms\"\n", redis.url());
    let child = watching(folder.path(), &config);
    wait_until("it looks", || log_of(folder.path()).contains("watching "));
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::STOP).expect("the process is there");
    std::thread::sleep(Duration::from_secs(6));
    kill_process(pid, Signal::CONT).expect("the process is there");
    wait_until("it says so", || log_of(folder.path()).contains("the watch was blind"));
    end(child, Signal::TERM);
}
