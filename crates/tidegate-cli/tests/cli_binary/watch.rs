//! `tidegate watch` on a real server.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use tidegate_conformance::servers::{Redis, Setup};

use super::support::{command, folder, run, write};

fn fill(redis: &Redis, mib: usize) {
    let script = "for i = 1, tonumber(ARGV[1]) do redis.call('SET', 'a' .. i, string.rep('x', 1000000)) end";
    redis.tell(&["EVAL", script, "0", &mib.to_string()]);
}

fn small() -> Redis {
    Redis::start_with(Setup::default().option("maxmemory", "20mb").option("maxmemory-policy", "noeviction"))
}

#[test]
fn once() {
    let redis = small();
    let url = redis.url();
    let quiet = run(&["watch", "--redis", &url, "--once", "--interval", "200ms"]).expect(0, &[]);
    assert!(quiet.out.contains("20.0 MiB (maxmemory)") && quiet.out.contains("nothing wrong"), "{}", quiet.out);
    run(&["watch", "--redis", &url, "--once", "--json", "--interval", "200ms"]).expect(0, &[]);
    fill(&redis, 20);
    let full = run(&["watch", "--redis", &url, "--once", "--json", "--interval", "200ms"]).expect(1, &[]);
    let findings: Vec<Value> = full.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let full = findings.iter().find(|finding| finding["rule"] == "full-noeviction").unwrap();
    assert_eq!(full["severity"], "critical");
    for field in ["id", "address", "opened_at", "cause", "evidence", "next_command", "risk"] {
        assert!(!full[field].is_null(), "{field}: {full}");
    }
    assert!(full["opened_at"].as_str().unwrap().ends_with('Z') && full.get("closed_at").is_none());
    // What the server is for decides.
    let words = run(&["watch", "--redis", &url, "--once", "--role", "cache", "--interval", "200ms"]).expect(1, &[]);
    assert!(words.out.contains("maxmemory-policy allkeys-lru"), "{}", words.out);
}

#[test]
fn what_cannot_be_done_is_said() {
    for (args, code, words) in [
        (&["watch"][..], 2, &["--redis redis://HOST:6379"][..]),
        (&["watch", "--redis", "http://x"], 2, &["redis://"]),
        (&["watch", "--redis", "redis://x", "--interval", "1"], 2, &["500ms"]),
        (&["watch", "--redis", "redis://x", "--role", "master"], 2, &["state"]),
        (&["watch", "--redis", "redis://x", "redis://:secret@x:6379"], 2, &["name the same servers"]),
        (
            &["watch", "--redis", "redis://:secret@127.0.0.1:1", "--once", "--interval", "100ms"],
            3,
            &["127.0.0.1:1", "cannot be reached"],
        ),
        (
            &["watch", "--redis", "redis-sentinel://:secret@127.0.0.1:1/shop", "--once", "--interval", "100ms"],
            3,
            &["127.0.0.1:1", "the sentinels name no server of \"shop\"", "does not answer"],
        ),
    ] {
        let run = run(args).expect(code, words);
        assert!(!run.err.contains("secret"), "{}", run.err);
    }
    let redis = Redis::start_with(Setup::default().user("ann", "right"));
    let url = redis.url().replace("right", "wrong");
    let run = run(&["watch", "--redis", &url, "--once", "--interval", "100ms"]).expect(2, &["does not let us in"]);
    assert!(!run.err.contains("wrong@"), "{}", run.err);
}

/// A watch that runs; its lines of stdout.
fn watching(args: &[&str]) -> (Child, std::sync::mpsc::Receiver<String>) {
    let mut child = command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
    let (lines, heard) = std::sync::mpsc::channel();
    let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    std::thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| lines.send(line)));
    (child, heard)
}

fn stopped(mut child: Child) -> (Option<i32>, String) {
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::TERM).expect("the process is there");
    let began = Instant::now();
    let mut stderr = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut stderr).expect("the pipe can be read");
    let code = child.wait().expect("it can be waited for").code();
    assert!(began.elapsed() < Duration::from_secs(5));
    (code, stderr)
}

// O26
#[test]
fn a_finding_is_told_once_and_once_when_it_is_over() {
    let (redis, folder) = (small(), folder());
    fill(&redis, 20);
    let config = write(
        folder.path(),
        "watch.toml",
        &format!(
            "[watch]\nredis = [\"{}\"]\ninterval = \"100ms\"\nrole = \"state\"\n[watch.rule.memory-pressure]\noff = true\n[watch.rule.full-noeviction]\nquiet = \"1s\"\n\
         [watch.rule.data-lost]\noff = true\n",
            redis.url()
        ),
    );
    let state = folder.path().join("state.json");
    let args = ["watch", "--config", config.to_str().unwrap(), "--state-file", state.to_str().unwrap(), "--json"];
    let line = |heard: &std::sync::mpsc::Receiver<String>| -> Value {
        serde_json::from_str(&heard.recv_timeout(Duration::from_secs(10)).expect("a finding in time")).unwrap()
    };
    let (child, heard) = watching(&args);
    let opened = line(&heard);
    assert_eq!((&opened["rule"], opened.get("closed_at")), (&"full-noeviction".into(), None));
    let (code, stderr) = stopped(child);
    assert!(code == Some(130) && stderr.contains("as state"), "{code:?} {stderr}");
    // Started again, it says on stderr what is open, and repeats nothing.
    let (child, heard) = watching(&args);
    assert!(heard.recv_timeout(Duration::from_secs(1)).is_err());
    redis.tell(&["FLUSHALL"]);
    let closed = line(&heard);
    assert_eq!((&closed["id"], &closed["opened_at"]), (&opened["id"], &opened["opened_at"]));
    assert!(closed["closed_at"].as_str() > closed["opened_at"].as_str(), "{closed}");
    let (_, stderr) = stopped(child);
    assert!(stderr.contains("open since") && stderr.contains("full-noeviction"), "{stderr}");
}

#[test]
fn a_state_that_cannot_be_read_is_not_overwritten() {
    let folder = folder();
    let state = write(folder.path(), "state.json", "{\"version\": 1");
    let args = ["watch", "--redis", "redis://127.0.0.1:1", "--state-file", state.to_str().unwrap()];
    run(&args).expect(2, &["delete it to begin anew", state.to_str().unwrap()]);
    assert_eq!(std::fs::read_to_string(&state).unwrap(), "{\"version\": 1");
}
