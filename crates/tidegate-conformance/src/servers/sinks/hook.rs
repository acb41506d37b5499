//! A web server that takes POSTs.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use super::{Listening, PATIENCE, Wire, line};
use crate::servers::wait_until;

/// What it answers.
#[derive(Debug, Clone)]
pub enum HookAnswer {
    /// This status, with these headers and this body.
    Status(u16, Vec<(&'static str, String)>, String),
    /// Nothing, for half a minute.
    Hang,
    /// It takes the request and breaks off.
    Close,
}

impl HookAnswer {
    /// A status and a body.
    #[must_use]
    pub fn status(status: u16, body: &str) -> Self {
        HookAnswer::Status(status, Vec::new(), body.to_owned())
    }
}

/// A request that it got.
#[derive(Debug, Clone)]
pub struct Posted {
    /// Path and query.
    pub target: String,
    /// By their names in lower case.
    pub headers: BTreeMap<String, String>,
    /// As it came.
    pub body: String,
    /// When it was complete.
    pub at: Instant,
}

#[derive(Default)]
struct State {
    posted: Vec<Posted>,
    next: VecDeque<HookAnswer>,
    usual: Option<HookAnswer>,
}

/// A web server that remembers what it was sent.
pub struct HookSink {
    listening: Listening,
    state: Arc<Mutex<State>>,
}

impl HookSink {
    /// Starts one that answers 200.
    #[must_use]
    pub fn start() -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        let listening = Listening::start(move |mut stream| {
            // A client that breaks off is its own affair.
            let _ = serve(&mut stream, &shared);
        });
        Self { listening, state }
    }

    /// `http://127.0.0.1:PORT` and `path`.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.listening.address)
    }

    /// What it answers from now on.
    pub fn answer(&self, answer: HookAnswer) {
        self.state.lock().expect("no thread panics").usual = Some(answer);
    }

    /// What it answers to the next requests, before that.
    pub fn answer_next(&self, answers: impl IntoIterator<Item = HookAnswer>) {
        self.state.lock().expect("no thread panics").next.extend(answers);
    }

    /// What it got.
    #[must_use]
    pub fn posted(&self) -> Vec<Posted> {
        self.state.lock().expect("no thread panics").posted.clone()
    }

    /// Waits until it got so many, and gives them.
    ///
    /// # Panics
    /// When they do not come.
    #[must_use]
    pub fn wait_for(&self, count: usize) -> Vec<Posted> {
        wait_until(&format!("{count} posts"), || self.posted().len() >= count);
        self.posted()
    }
}

fn serve(wire: &mut dyn Wire, state: &Mutex<State>) -> io::Result<()> {
    while let Some(first) = line(wire)? {
        let target = first.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut headers = BTreeMap::new();
        while let Some(text) = line(wire)?.filter(|text| !text.is_empty()) {
            let (name, value) = text.split_once(':').unwrap_or((&text, ""));
            headers.insert(name.to_lowercase(), value.trim().to_owned());
        }
        let length = headers.get("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        wire.read_exact(&mut body)?;
        let body = String::from_utf8_lossy(&body).into_owned();
        let answer = {
            let mut state = state.lock().expect("no thread panics");
            state.posted.push(Posted { target, headers, body, at: Instant::now() });
            let next = state.next.pop_front();
            next.or_else(|| state.usual.clone()).unwrap_or_else(|| HookAnswer::status(200, "ok"))
        };
        match answer {
            HookAnswer::Status(status, headers, body) => {
                let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
                let length = body.len();
                let head = format!("HTTP/1.1 {status} As told\r\n{headers}content-length: {length}\r\n\r\n{body}");
                wire.write_all(head.as_bytes())?;
                wire.flush()?;
            }
            HookAnswer::Hang => {
                thread::sleep(PATIENCE);
                return Ok(());
            }
            HookAnswer::Close => return Ok(()),
        }
    }
    Ok(())
}
