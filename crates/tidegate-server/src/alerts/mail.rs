//! E-mail by SMTP (RFC 5321): a connection a message, with TLS from the start (`smtps`) or from STARTTLS on (`smtp`).

use std::time::Duration;

use lettre::message::header::{ContentTransferEncoding, ContentType, HeaderName, HeaderValue};
use lettre::message::{Mailbox, Message};
use lettre::transport::smtp::authentication::{Credentials, DEFAULT_MECHANISMS};
use lettre::transport::smtp::client::{AsyncSmtpConnection, Certificate, CertificateStore, TlsParameters};
use lettre::transport::smtp::commands::{Data, Mail as MailFrom, Rcpt};
use lettre::transport::smtp::extension::ClientId;
use reqwest::Url;
use tidegate::BoxFuture;
use tidegate::watch::Severity;
use tidegate::watch::alerts::{Alert, AlertKind, AlertSink, Undelivered};
use tokio::time::timeout;

use super::{SinkOptions, text};
use crate::request::path;

/// For a whole message, connection included: the client bounds only the connecting by itself.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Most recipients.
const MAX_TO: usize = 50;

/// What e-mail needs.
#[derive(Clone)]
pub struct MailOptions {
    /// `smtps://user:password@host:465` or `smtp://host:587`; for `smtp` also `?tls=required` (the default but for this machine),
    /// `opportunistic` or `off`.
    pub url: String,
    /// The password, if it is not in the URL.
    pub password: Option<String>,
    /// The sender, `a@b.example` or `Name <a@b.example>`.
    pub from: String,
    /// The recipients, 1 to 50.
    pub to: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tls {
    Wrapped,
    Required,
    Opportunistic,
    Off,
}

/// A mail server, a sender and recipients.
pub(super) struct Mail {
    sink: SinkOptions,
    host: String,
    port: u16,
    tls: Tls,
    parameters: TlsParameters,
    credentials: Option<Credentials>,
    from: Mailbox,
    to: Vec<Mailbox>,
}

impl Mail {
    pub(super) fn new(sink: SinkOptions, options: MailOptions) -> Result<Self, String> {
        // Whoever installed one first wins; it is the same one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let url = Url::parse(&options.url)
            .map_err(|e| format!("the URL cannot be read: {e}; write smtps://HOST or smtp://HOST"))?;
        let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
        let tls = tls(&url, &host)?;
        let port = url.port().unwrap_or(if tls == Tls::Wrapped { 465 } else { 587 });
        let credentials = credentials(&url, options.password)?;
        if credentials.is_some() && matches!(tls, Tls::Opportunistic | Tls::Off) && !is_loopback(&host) {
            return Err("a password is sent only over TLS; leave ?tls= out of the URL".to_owned());
        }
        let mailbox = |text: &String| text.parse::<Mailbox>().map_err(|e| format!("{text:?} is no address: {e}"));
        let from = mailbox(&options.from)?;
        let to = options.to.iter().map(mailbox).collect::<Result<Vec<_>, _>>()?;
        if to.is_empty() || to.len() > MAX_TO {
            return Err(format!("`to` has 1 to {MAX_TO} addresses"));
        }
        let parameters = parameters(&host, sink.authority.as_deref())?;
        Ok(Self { sink, host, port, tls, parameters, credentials, from, to })
    }

    fn message(&self, alert: &Alert) -> Result<Vec<u8>, String> {
        let domain = self.from.email.domain();
        let mut message = Message::builder()
            .from(self.from.clone())
            .subject(text::title(alert))
            // The same at each attempt: a reader that gets it twice can tell.
            .message_id(Some(format!("<{}@{domain}>", alert.id)))
            .raw_header(automatic())
            .header(ContentType::TEXT_PLAIN)
            .header(ContentTransferEncoding::QuotedPrintable);
        if alert.kind == AlertKind::Closed {
            let opening = format!("<{}-{}@{domain}>", alert.subject_id(), AlertKind::Opened.name());
            message = message.in_reply_to(opening.clone()).references(opening);
        }
        for to in &self.to {
            message = message.to(to.clone());
        }
        message.body(text::body(alert)).map(|message| message.formatted()).map_err(|e| e.to_string())
    }

    async fn connect(&self) -> Result<AsyncSmtpConnection, lettre::transport::smtp::Error> {
        let hello = ClientId::default();
        let wrapped = (self.tls == Tls::Wrapped).then(|| self.parameters.clone());
        let to = (self.host.as_str(), self.port);
        let mut connection = AsyncSmtpConnection::connect_tokio1(to, Some(TIMEOUT), &hello, wrapped, None).await?;
        if self.tls == Tls::Required || (self.tls == Tls::Opportunistic && connection.can_starttls()) {
            connection.starttls(self.parameters.clone(), &hello).await?;
        }
        if let Some(credentials) = &self.credentials {
            connection.auth(DEFAULT_MECHANISMS, credentials).await?;
        }
        Ok(connection)
    }

    /// Hands the message over; recipients that the server does not take are left out, if it takes any, also those that it might take
    /// later: the next messages would have to wait until it does.
    async fn hand_over(
        &self,
        connection: &mut AsyncSmtpConnection,
        alert: &Alert,
        message: &[u8],
    ) -> Result<(), Undelivered> {
        connection.command(MailFrom::new(Some(self.from.email.clone()), Vec::new())).await.map_err(failed)?;
        let mut refused = Vec::new();
        for to in &self.to {
            match connection.command(Rcpt::new(to.email.clone(), Vec::new())).await {
                Ok(_) => {}
                Err(e) if e.status().is_some() => refused.push((to.email.to_string(), e)),
                Err(e) => return Err(failed(e)),
            }
        }
        let all = refused.len() == self.to.len();
        if let Some((_, e)) = refused.pop_if(|_| all) {
            return Err(failed(e));
        }
        connection.command(Data).await.map_err(failed)?;
        connection.message(message).await.map_err(failed)?;
        let name = |(to, e): &(String, lettre::transport::smtp::Error)| {
            let now = if e.is_transient() { "for the moment, and is not tried again: " } else { "" };
            format!("{to} ({now}{})", said(e))
        };
        let names: Vec<String> = refused.iter().map(name).collect();
        match names.as_slice() {
            [] => Ok(()),
            names if alert.kind == AlertKind::Test => {
                Err(Undelivered::never(format!("the server took it, but not for {}", names.join(", "))))
            }
            names => {
                tracing::warn!(sink = self.sink.name, "an alert was not taken for {}", names.join(", "));
                Ok(())
            }
        }
    }

    async fn deliver(&self, alert: &Alert) -> Result<(), Undelivered> {
        let message = self.message(alert).map_err(Undelivered::never)?;
        let sending = async {
            let mut connection = self.connect().await.map_err(failed)?;
            let result = self.hand_over(&mut connection, alert, &message).await;
            // What was taken stays taken, whatever becomes of the goodbye.
            let _ = timeout(Duration::from_secs(1), connection.abort()).await;
            result
        };
        let in_time = timeout(TIMEOUT, sending).await;
        in_time
            .unwrap_or_else(|_| Err(Undelivered::later(format!("the mail server did not answer within {TIMEOUT:?}"))))
    }
}

fn tls(url: &Url, host: &str) -> Result<Tls, String> {
    let asked = url.query_pairs().find(|(name, _)| name == "tls").map(|(_, value)| value.into_owned());
    if url.query_pairs().any(|(name, _)| name != "tls") || !matches!(url.path(), "" | "/") || host.is_empty() {
        return Err(
            "the URL of a mail server is smtps://USER@HOST:PORT or smtp://USER@HOST:PORT?tls=.., and nothing more"
                .to_owned(),
        );
    }
    match (url.scheme(), asked.as_deref()) {
        ("smtps", None) => Ok(Tls::Wrapped),
        ("smtp", Some("required")) => Ok(Tls::Required),
        // Nobody stands between us and this machine, and its certificate is seldom one that can be held against anything.
        ("smtp", None) => Ok(if is_loopback(host) { Tls::Off } else { Tls::Required }),
        ("smtp", Some("opportunistic")) => Ok(Tls::Opportunistic),
        ("smtp", Some("off")) => Ok(Tls::Off),
        ("smtp", Some(_)) => Err("?tls= is one of required, opportunistic, off".to_owned()),
        _ => Err("the URL of a mail server begins with smtps:// (TLS from the start) or smtp:// (STARTTLS)".to_owned()),
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn credentials(url: &Url, password: Option<String>) -> Result<Option<Credentials>, String> {
    let decoded = |text: &str| path::decode(text).map(std::borrow::Cow::into_owned);
    let broken = || "user or password of the URL are not percent-encoded as they must be".to_owned();
    let user = decoded(url.username()).ok_or_else(broken)?;
    let in_url = url.password().map(|text| decoded(text).ok_or_else(broken)).transpose()?;
    match (user.is_empty(), in_url, password) {
        (true, None, None) => Ok(None),
        (true, ..) => Err("there is a password but no user; write smtps://USER@HOST".to_owned()),
        (false, Some(_), Some(_)) => {
            Err("the password stands in the URL and in secret (or secret_file); keep one of them".to_owned())
        }
        (false, Some(password), None) | (false, None, Some(password)) => Ok(Some(Credentials::new(user, password))),
        (false, None, None) => Err("there is a user but no password; add secret_file or secret".to_owned()),
    }
}

fn parameters(host: &str, authority: Option<&[u8]>) -> Result<TlsParameters, String> {
    let mut builder = TlsParameters::builder(host.to_owned());
    if let Some(pem) = authority {
        let authority = Certificate::from_pem(pem).map_err(|e| format!("ca_file: {e}"))?;
        builder = builder.certificate_store(CertificateStore::None).add_root_certificate(authority);
    }
    builder.build().map_err(|e| format!("TLS to the mail server cannot be set up: {e}"))
}

/// Answering machines do not answer to it (RFC 3834).
fn automatic() -> HeaderValue {
    HeaderValue::new(HeaderName::new_from_ascii_str("Auto-Submitted"), "auto-generated".to_owned())
}

fn said(e: &lettre::transport::smtp::Error) -> String {
    let mut text = e.to_string();
    let mut source = std::error::Error::source(e);
    while let Some(error) = source {
        let more = error.to_string();
        text = match (text.contains(&more), more.contains(&text)) {
            (true, _) => text,
            (false, true) => more,
            (false, false) => format!("{text}: {more}"),
        };
        source = error.source();
    }
    text::plain(&text, 300)
}

fn failed(e: lettre::transport::smtp::Error) -> Undelivered {
    let why = said(&e);
    if e.is_permanent() {
        Undelivered::never(format!("the mail server refused it: {why}; check user, password and addresses"))
    } else if e.is_tls() || why.contains("certificate") {
        Undelivered::later(format!("no TLS with the mail server: {why}; check the host's name and ca_file"))
    } else {
        Undelivered::later(format!("the mail server did not take it: {why}"))
    }
}

impl AlertSink for Mail {
    fn name(&self) -> &str {
        &self.sink.name
    }

    fn least(&self) -> Severity {
        self.sink.least
    }

    fn send<'a>(&'a self, alert: &'a Alert) -> BoxFuture<'a, Result<(), Undelivered>> {
        Box::pin(self.deliver(alert))
    }
}
