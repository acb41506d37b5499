//! Starting the binary, and a client of a few lines.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A folder of its own for a test.
pub fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// The command, without any `TIDEGATE_*` variable of whoever runs the tests.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TIDEGATE_") {
            command.env_remove(name);
        }
    }
    command.args(args).stdin(Stdio::null());
    command
}

/// How a run ended.
#[derive(Debug)]
pub struct Run {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
        Self { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }
}

impl Run {
    /// Checks the exit code and that stderr holds each of `words`.
    #[track_caller]
    pub fn expect(self, code: i32, words: &[&str]) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        for word in words {
            assert!(self.err.contains(word), "stderr lacks {word:?}: {self:?}");
        }
        self
    }

    /// Stdout as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("stdout is not JSON ({e}): {self:?}"))
    }
}

/// Runs it to its end.
pub fn run(args: &[&str]) -> Run {
    run_with(args, &[])
}

/// The same with variables in its environment.
pub fn run_with(args: &[&str], variables: &[(&str, &str)]) -> Run {
    command(args).envs(variables.iter().copied()).output().expect("the binary runs").into()
}

/// A running `tidegate serve` on a free port.
pub struct Serve {
    pub child: Child,
    pub url: String,
    out: BufReader<ChildStdout>,
}

/// The URL of a ledger in `folder`.
pub fn ledger(folder: &Path) -> String {
    format!("sqlite:{}", folder.join("ledger.db").display())
}

impl Serve {
    /// Starts it over the ledger in `folder`, if `more` names no other, and waits for its line.
    pub fn start(folder: &Path, more: &[&str]) -> Self {
        let log = std::fs::File::create(folder.join("serve.log")).expect("a log file");
        Self::start_with_stderr(folder, more, log.into())
    }

    /// The same, with its log going to `stderr`.
    pub fn start_with_stderr(folder: &Path, more: &[&str], stderr: Stdio) -> Self {
        let ledger = ledger(folder);
        let mut args = vec!["serve", "--listen", "127.0.0.1:0"];
        if !more.contains(&"--ledger") {
            args.extend(["--ledger", &ledger]);
        }
        args.extend(more);
        Self::spawn(command(&args), folder, stderr)
    }

    /// The same as a command that is ready to be run.
    pub fn spawn(mut command: Command, folder: &Path, stderr: Stdio) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(stderr).spawn().expect("the binary runs");
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        out.read_line(&mut line).expect("a line");
        let url = line.trim_end().split_once(" listening on ").map(|(_, url)| url.to_owned());
        let Some(url) = url else {
            let status = child.wait();
            let log = std::fs::read_to_string(folder.join("serve.log"));
            panic!("serve printed {line:?} and ended {status:?}: {log:?}");
        };
        assert!(line.starts_with("tidegate "), "{line:?}");
        Self { child, url, out }
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("the process is there");
    }

    /// Signals, waits, and gives the exit code, how long it took, and what else it printed on stdout.
    pub fn stop(mut self, signal: Signal) -> (Option<i32>, Duration, String) {
        let began = Instant::now();
        self.signal(signal);
        let status: ExitStatus = self.child.wait().expect("it can be waited for");
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).expect("the pipe can be read");
        (status.code(), began.elapsed(), rest)
    }

    /// One request; status and body.
    pub fn call(&self, method: &str, path: &str, token: Option<&str>, body: Option<&Value>) -> (u16, Value) {
        let address = self.url.trim_start_matches("http://");
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        let body = body.map(Value::to_string);
        let mut request = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n");
        if let Some(token) = token {
            request.push_str(&format!("authorization: Bearer {token}\r\n"));
        }
        if let Some(body) = &body {
            request.push_str(&format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len()));
        }
        request.push_str("\r\n");
        request.push_str(body.as_deref().unwrap_or_default());
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        (status, serde_json::from_str(body).unwrap_or_default())
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        // It has ended already in most tests.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes a file in `folder`.
pub fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("the folder can be written");
    path
}
