//! A mail server (RFC 5321) that delivers nothing.

use std::collections::VecDeque;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use rustls::ServerConfig;

use super::{Listening, PATIENCE, Wire, line, tls_of, wrapped};
use crate::servers::wait_until;

/// How a mail server is to be.
#[derive(Debug, Clone, Default)]
pub struct MailSinkSetup {
    wrapped: bool,
    starttls: bool,
    login: Option<(String, String)>,
    unknown: Option<String>,
    full: Option<String>,
    port: u16,
}

impl MailSinkSetup {
    /// TLS from the first byte.
    #[must_use]
    pub fn wrapped(mut self) -> Self {
        self.wrapped = true;
        self
    }

    /// It offers STARTTLS.
    #[must_use]
    pub fn starttls(mut self) -> Self {
        self.starttls = true;
        self
    }

    /// It takes mail only from this user (`AUTH PLAIN`).
    #[must_use]
    pub fn login(mut self, user: &str, password: &str) -> Self {
        self.login = Some((user.to_owned(), password.to_owned()));
        self
    }

    /// It does not know this recipient.
    #[must_use]
    pub fn unknown(mut self, address: &str) -> Self {
        self.unknown = Some(address.to_owned());
        self
    }

    /// It does not take mail for this recipient for the moment.
    #[must_use]
    pub fn full(mut self, address: &str) -> Self {
        self.full = Some(address.to_owned());
        self
    }

    /// It listens on this port instead of a free one.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }
}

/// A mail that it took.
#[derive(Debug, Clone)]
pub struct Received {
    /// Of the envelope.
    pub from: String,
    /// Of the envelope.
    pub to: Vec<String>,
    /// Headers and body, with line ends as `\n`.
    pub text: String,
    /// Whether it came through TLS.
    pub tls: bool,
    /// Who had logged in.
    pub user: Option<String>,
}

impl Received {
    /// The value of a header, unfolded.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<String> {
        let (head, _) = self.text.split_once("\n\n")?;
        let head = head.replace("\n ", " ");
        let start = format!("{}: ", name.to_lowercase());
        let line = head.lines().find(|line| line.to_lowercase().starts_with(&start))?;
        Some(line[start.len()..].to_owned())
    }
}

#[derive(Default)]
struct State {
    received: Vec<Received>,
    /// Answers to the next messages in place of `250`.
    next: VecDeque<String>,
    hangs: bool,
    connections: usize,
}

/// A mail server that remembers what it was sent.
pub struct MailSink {
    listening: Listening,
    state: Arc<Mutex<State>>,
}

impl MailSink {
    /// Starts one. `folder` has the certificates of `make_certificates`, if it speaks TLS.
    ///
    /// # Panics
    /// When its port is taken, or the certificates are not there.
    #[must_use]
    pub fn start(setup: MailSinkSetup, folder: &Path) -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        let tls = (setup.wrapped || setup.starttls).then(|| tls_of(folder));
        let listener = TcpListener::bind(("127.0.0.1", setup.port)).expect("a free port");
        let listening = Listening::on(listener, move |stream| {
            let session = Session { setup: &setup, state: &shared, tls: tls.as_ref() };
            // A client that breaks off is its own affair.
            let _ = session.run(stream);
        });
        Self { listening, state }
    }

    /// Where it listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.listening.address.port()
    }

    /// What it says to the next messages, once it has them, in place of taking them.
    pub fn refuse_next(&self, answers: &[&str]) {
        self.state.lock().expect("no thread panics").next.extend(answers.iter().map(|text| (*text).to_owned()));
    }

    /// From now on it takes connections and says nothing; or speaks again.
    pub fn hang(&self, hangs: bool) {
        self.state.lock().expect("no thread panics").hangs = hangs;
    }

    /// The mails that it took.
    #[must_use]
    pub fn received(&self) -> Vec<Received> {
        self.state.lock().expect("no thread panics").received.clone()
    }

    /// Connections that it took.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.state.lock().expect("no thread panics").connections
    }

    /// Waits until it took so many, and gives them.
    ///
    /// # Panics
    /// When they do not come.
    #[must_use]
    pub fn wait_for(&self, count: usize) -> Vec<Received> {
        wait_until(&format!("{count} mails"), || self.received().len() >= count);
        self.received()
    }
}

struct Session<'a> {
    setup: &'a MailSinkSetup,
    state: &'a Mutex<State>,
    tls: Option<&'a Arc<ServerConfig>>,
}

/// How a part of a session ended.
enum End {
    Quit,
    StartTls,
}

impl Session<'_> {
    fn run(&self, stream: TcpStream) -> io::Result<()> {
        let hangs = {
            let mut state = self.state.lock().expect("no thread panics");
            state.connections += 1;
            state.hangs
        };
        if hangs {
            thread::sleep(PATIENCE);
            return Ok(());
        }
        if let (true, Some(tls)) = (self.setup.wrapped, self.tls) {
            let mut wire = wrapped(tls, stream);
            say(&mut wire, "220 sink ready")?;
            return self.talk(&mut wire, true).map(drop);
        }
        let mut plain = stream;
        say(&mut plain, "220 sink ready")?;
        if let (End::StartTls, Some(tls)) = (self.talk(&mut plain, false)?, self.tls) {
            self.talk(&mut wrapped(tls, plain), true)?;
        }
        Ok(())
    }

    fn talk(&self, wire: &mut dyn Wire, tls: bool) -> io::Result<End> {
        let (mut from, mut to, mut user) = (String::new(), Vec::new(), None);
        while let Some(text) = line(wire)? {
            let (verb, rest) = text.split_once([' ', ':']).unwrap_or((&text, ""));
            match verb.to_uppercase().as_str() {
                "EHLO" => {
                    let mut lines = vec!["sink".to_owned(), "8BITMIME".to_owned()];
                    lines.extend((self.setup.starttls && !tls).then(|| "STARTTLS".to_owned()));
                    lines.extend(self.setup.login.as_ref().map(|_| "AUTH PLAIN".to_owned()));
                    let last = lines.len() - 1;
                    for (at, line) in lines.iter().enumerate() {
                        say(wire, &format!("250{}{line}", if at == last { ' ' } else { '-' }))?;
                    }
                }
                "STARTTLS" if self.setup.starttls && !tls => {
                    say(wire, "220 go on")?;
                    return Ok(End::StartTls);
                }
                "AUTH" => {
                    let known =
                        self.setup.login.as_ref().filter(|(user, password)| rest == plain_login(user, password));
                    user = known.map(|(user, _)| user.clone());
                    say(wire, if user.is_some() { "235 welcome" } else { "535 5.7.8 wrong user or password" })?;
                }
                "MAIL" if self.setup.login.is_some() && user.is_none() => say(wire, "530 5.7.0 log in first")?,
                "MAIL" => {
                    from = address(rest);
                    to.clear();
                    say(wire, "250 ok")?;
                }
                "RCPT" if self.setup.unknown.as_deref() == Some(&address(rest)) => say(wire, "550 5.1.1 no such user")?,
                "RCPT" if self.setup.full.as_deref() == Some(&address(rest)) => say(wire, "452 4.2.2 mailbox full")?,
                "RCPT" => {
                    to.push(address(rest));
                    say(wire, "250 ok")?;
                }
                "DATA" if to.is_empty() => say(wire, "503 no recipients")?,
                "DATA" => {
                    say(wire, "354 go on")?;
                    let text = message(wire)?;
                    let answer = {
                        let mut state = self.state.lock().expect("no thread panics");
                        let refused = state.next.pop_front();
                        if refused.is_none() {
                            let mail = Received { from: from.clone(), to: to.clone(), text, tls, user: user.clone() };
                            state.received.push(mail);
                        }
                        refused.unwrap_or_else(|| "250 taken".to_owned())
                    };
                    say(wire, &answer)?;
                }
                "QUIT" => {
                    say(wire, "221 bye")?;
                    return Ok(End::Quit);
                }
                _ => say(wire, "500 what")?,
            }
        }
        Ok(End::Quit)
    }
}

fn say(wire: &mut dyn Wire, text: &str) -> io::Result<()> {
    wire.write_all(format!("{text}\r\n").as_bytes())?;
    wire.flush()
}

/// What stands between `<` and `>`.
fn address(text: &str) -> String {
    text.split_once('<').and_then(|(_, rest)| rest.split_once('>')).map_or(String::new(), |(inner, _)| inner.to_owned())
}

/// The lines up to the one with a dot alone, each without the dot that was put before one at its start.
fn message(wire: &mut dyn Wire) -> io::Result<String> {
    let mut text = String::new();
    while let Some(line) = line(wire)?.filter(|line| line != ".") {
        text.push_str(line.strip_prefix('.').unwrap_or(&line));
        text.push('\n');
    }
    Ok(text)
}

/// What `AUTH` has behind it, for this user (RFC 4616, in base64).
fn plain_login(user: &str, password: &str) -> String {
    use base64::Engine as _;
    format!("PLAIN {}", base64::prelude::BASE64_STANDARD.encode(format!("\0{user}\0{password}")))
}
