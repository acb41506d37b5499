//! Webhooks: one POST a message, no redirects, no proxy, every part with a bound.

use std::time::Duration;

use http::header::CONTENT_TYPE;
use reqwest::{Certificate, Client, Url};
use serde_json::{Value, json};
use tidegate::BoxFuture;
use tidegate::watch::Severity;
use tidegate::watch::alerts::{Alert, AlertKind, AlertSink, Undelivered};

use super::answer::{self, CodeField};
use super::sign::{self, Signature, Signer};
use super::template::Template;
use super::{SinkOptions, text};
use crate::outgoing::{self, chain};
use crate::shape::instant::Instant;

/// For a whole call, connection and answer included.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How much of an answer is read, bytes.
const ANSWER: usize = 64 << 10;

/// What the body of a webhook is.
#[derive(Debug, Clone, PartialEq)]
pub enum HookForm {
    /// `{"type", "timestamp", "data"}` with the finding as `/v1/redis/findings` shows it.
    Json,
    /// Slack, and what takes its bodies (Mattermost, Rocket.Chat, Discord's `/slack`).
    Slack,
    /// A robot of DingTalk.
    DingTalk,
    /// A robot of Feishu or Lark.
    Feishu,
    /// A robot of WeCom.
    WeCom,
    /// A template of the caller's.
    Template(Template),
}

impl HookForm {
    /// The form with this name in the configuration.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "json" => HookForm::Json,
            "slack" => HookForm::Slack,
            "dingtalk" => HookForm::DingTalk,
            "feishu" => HookForm::Feishu,
            "wecom" => HookForm::WeCom,
            _ => return None,
        })
    }

    /// The template that it is, but for [`HookForm::Json`].
    fn template(&self) -> Result<Option<Template>, String> {
        let shipped = match self {
            HookForm::Json => return Ok(None),
            HookForm::Template(template) => return Ok(Some(template.clone())),
            HookForm::Slack => include_str!("templates/slack.json"),
            HookForm::DingTalk => include_str!("templates/dingtalk.json"),
            HookForm::Feishu => include_str!("templates/feishu.json"),
            HookForm::WeCom => include_str!("templates/wecom.json"),
        };
        Template::parse(shipped).map(Some)
    }

    fn code(&self) -> Option<CodeField> {
        match self {
            HookForm::DingTalk => Some(CodeField::dingtalk()),
            HookForm::Feishu => Some(CodeField::feishu()),
            HookForm::WeCom => Some(CodeField::wecom()),
            HookForm::Json | HookForm::Slack | HookForm::Template(_) => None,
        }
    }

    fn signature(&self) -> Signature {
        match self {
            HookForm::DingTalk => Signature::DingTalk,
            HookForm::Feishu => Signature::Feishu,
            HookForm::Json | HookForm::Slack | HookForm::WeCom | HookForm::Template(_) => Signature::Standard,
        }
    }
}

/// What a webhook needs.
#[derive(Clone)]
pub struct HookOptions {
    /// Where it is: `http` or `https`. It may hold a secret.
    pub url: String,
    /// Its body.
    pub form: HookForm,
    /// With it, messages are signed.
    pub secret: Option<String>,
    /// How; the form's own way unless set.
    pub signature: Option<Signature>,
    /// What of the answer must be 0; the form's own unless set.
    pub code: Option<CodeField>,
}

/// A webhook.
pub(super) struct Hook {
    sink: SinkOptions,
    client: Client,
    url: Url,
    template: Option<Template>,
    signer: Option<Signer>,
    code: Option<CodeField>,
}

impl Hook {
    pub(super) fn new(sink: SinkOptions, options: HookOptions) -> Result<Self, String> {
        // Not the URL itself: it may be a secret as a whole.
        let url =
            Url::parse(&options.url).map_err(|e| format!("the URL cannot be read: {e}; write https://HOST/PATH"))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err("the URL of a webhook begins with https:// or http://, and a host".to_owned());
        }
        let signature = options.signature.unwrap_or_else(|| options.form.signature());
        let signer = options.secret.as_deref().map(|secret| Signer::new(signature, secret)).transpose()?;
        let client = client(&sink, url.scheme() == "https")?;
        let code = options.code.or_else(|| options.form.code());
        Ok(Self { client, url, template: options.form.template()?, signer, code, sink })
    }

    fn body(&self, alert: &Alert) -> Value {
        self.template.as_ref().map_or_else(|| document(alert), |template| template.fill(alert))
    }

    async fn post(&self, alert: &Alert) -> Result<(), Undelivered> {
        let now = jiff::Timestamp::now();
        let request = self.request(alert, now).map_err(|e| Undelivered::never(e.to_string()))?;
        let failed = |e: reqwest::Error| Undelivered::later(chain(&e));
        let mut response = self.client.execute(request).await.map_err(failed)?;
        let mut body = Vec::new();
        while body.len() < ANSWER
            && let Some(part) = response.chunk().await.map_err(failed)?
        {
            body.extend_from_slice(&part[..part.len().min(ANSWER - body.len())]);
        }
        answer::judge(response.status(), response.headers(), &body, self.code.as_ref(), now)
    }

    fn request(&self, alert: &Alert, now: jiff::Timestamp) -> Result<reqwest::Request, reqwest::Error> {
        let mut url = self.url.clone();
        let mut body = self.body(alert);
        match &self.signer {
            Some(Signer::DingTalk(secret)) => {
                let milliseconds = now.as_millisecond();
                let sign = sign::dingtalk(secret, milliseconds);
                url.query_pairs_mut().append_pair("timestamp", &milliseconds.to_string()).append_pair("sign", &sign);
            }
            Some(Signer::Feishu(secret)) => {
                body["timestamp"] = now.as_second().to_string().into();
                body["sign"] = sign::feishu(secret, now.as_second()).into();
            }
            Some(Signer::Standard(_)) | None => {}
        }
        let body = body.to_string();
        let mut request = self.client.post(url).header(CONTENT_TYPE, "application/json; charset=utf-8");
        if let Some(Signer::Standard(keys)) = &self.signer {
            let seconds = now.as_second();
            request = request
                .header("webhook-id", &alert.id)
                .header("webhook-timestamp", seconds)
                .header("webhook-signature", sign::standard(keys, &alert.id, seconds, body.as_bytes()));
        } else {
            request = request.header("webhook-id", &alert.id);
        }
        request.body(body).build()
    }
}

/// The generic body.
fn document(alert: &Alert) -> Value {
    let kind = match alert.kind {
        AlertKind::Opened => "finding.opened",
        AlertKind::Closed => "finding.closed",
        AlertKind::Test => "test",
    };
    let data = match &alert.finding {
        Some(finding) => serde_json::to_value(crate::shape::redis::FindingShape::new(finding)).unwrap_or_default(),
        None => json!({ "text": text::body(alert) }),
    };
    json!({ "type": kind, "timestamp": Instant(alert.at).to_string(), "data": data })
}

fn client(sink: &SinkOptions, tls: bool) -> Result<Client, String> {
    // Alerts are rare: a connection that was kept would be one that has died.
    let mut builder = outgoing::client(tls).timeout(TIMEOUT).pool_max_idle_per_host(0);
    if let Some(pem) = &sink.authority {
        let authority = Certificate::from_pem_bundle(pem).map_err(|e| format!("ca_file: {}", chain(&e)))?;
        builder = builder.tls_certs_only(authority);
    }
    builder.build().map_err(|e| chain(&e))
}

impl AlertSink for Hook {
    fn name(&self) -> &str {
        &self.sink.name
    }

    fn least(&self) -> Severity {
        self.sink.least
    }

    fn send<'a>(&'a self, alert: &'a Alert) -> BoxFuture<'a, Result<(), Undelivered>> {
        Box::pin(self.post(alert))
    }
}
