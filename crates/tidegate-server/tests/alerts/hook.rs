//! Webhooks.

use std::sync::Arc;
use std::time::Instant;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;
use tidegate::watch::alerts::{Alert, AlertSink};
use tidegate_conformance::servers::{HookAnswer, HookSink, Posted};
use tidegate_server::alerts::{self, CodeField, HookForm, HookOptions, Signature, Template};

use super::{BOUND, closed, opened, put_off, refused, sink};

fn hook(url: String, form: HookForm, secret: Option<&str>) -> Arc<dyn AlertSink> {
    let options = HookOptions { url, form, secret: secret.map(str::to_owned), signature: None, code: None };
    alerts::hook(sink(), options).unwrap()
}

async fn post(sink: &HookSink, form: HookForm, secret: Option<&str>, alert: &Alert) -> Posted {
    hook(sink.url("/hook?key=k"), form, secret).send(alert).await.unwrap();
    sink.posted().pop().unwrap()
}

fn body(posted: &Posted) -> Value {
    serde_json::from_str(&posted.body).unwrap()
}

fn mac(key: &[u8], text: &str) -> String {
    let mut mac: Hmac<Sha256> = Hmac::new_from_slice(key).unwrap();
    mac.update(text.as_bytes());
    BASE64_STANDARD.encode(mac.finalize().into_bytes())
}

#[tokio::test]
async fn the_generic_body_is_signed_over_id_time_and_body() {
    let hooks = HookSink::start();
    let keys = [[7_u8; 32], [8; 32]];
    let secret = keys.map(|key| format!("whsec_{}", BASE64_STANDARD.encode(key))).join(" ");
    let posted = post(&hooks, HookForm::Json, Some(&secret), &opened()).await;
    assert_eq!(posted.target, "/hook?key=k");
    assert_eq!(posted.headers["content-type"], "application/json; charset=utf-8");
    let (id, seconds) = (&posted.headers["webhook-id"], &posted.headers["webhook-timestamp"]);
    assert_eq!(*id, opened().id);
    let signed = format!("{id}.{seconds}.{}", posted.body);
    let want = keys.map(|key| format!("v1,{}", mac(&key, &signed))).join(" ");
    assert_eq!(posted.headers["webhook-signature"], want);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert!(now.abs_diff(seconds.parse().unwrap()) < 60, "{seconds}");
    let document = body(&posted);
    assert_eq!(
        (&document["type"], &document["timestamp"]),
        (&json!("finding.opened"), &json!("2026-11-30T14:46:40.000Z"))
    );
    assert_eq!(
        (&document["data"]["rule"], &document["data"]["evidence"]["bytes"]),
        (&json!("big-value-passing"), &json!(12))
    );
    // The same message has the same id, whenever it is sent.
    let again = post(&hooks, HookForm::Json, Some(&secret), &opened()).await;
    assert_eq!(again.headers["webhook-id"], posted.headers["webhook-id"]);
    let over = body(&post(&hooks, HookForm::Json, None, &closed()).await);
    assert_eq!(
        (&over["type"], &over["data"]["closed_at"]),
        (&json!("finding.closed"), &json!("2026-11-30T14:51:52.000Z"))
    );
    let test = post(&hooks, HookForm::Json, None, &Alert::test(tidegate::core::Millis(5))).await;
    assert!(body(&test)["type"] == "test" && !test.headers.contains_key("webhook-signature"), "{test:?}");
}

#[tokio::test]
async fn chat_systems_get_their_own_bodies_and_signatures() {
    let hooks = HookSink::start();
    let slack = body(&post(&hooks, HookForm::Slack, None, &opened()).await);
    let block = &slack["attachments"][0]["blocks"][0]["text"];
    assert_eq!(block["type"], "plain_text");
    assert!(block["text"].as_str().unwrap().contains("a \"client\" named \\ <!channel>"), "{slack}");
    assert!(!slack["text"].as_str().unwrap().contains('<') && slack["attachments"][0]["color"] == "#d93025", "{slack}");

    hooks.answer(HookAnswer::status(200, "{\"errcode\":0,\"errmsg\":\"ok\"}"));
    let ding = post(&hooks, HookForm::DingTalk, Some("SECx"), &opened()).await;
    assert_eq!(body(&ding)["msgtype"], "text");
    assert!(body(&ding)["text"]["content"].as_str().unwrap().starts_with("Tidegate: critical: "), "{ding:?}");
    let query = |name: &str| {
        let url = reqwest::Url::parse(&format!("http://h{}", ding.target)).unwrap();
        url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned()).unwrap()
    };
    assert_eq!(query("key"), "k");
    assert_eq!(query("sign"), mac(b"SECx", &format!("{}\nSECx", query("timestamp"))));
    assert_eq!(query("timestamp").len(), 13);

    let wecom = body(&post(&hooks, HookForm::WeCom, None, &opened()).await);
    let content = wecom["text"]["content"].as_str().unwrap();
    assert!(wecom["msgtype"] == "text" && content.len() <= 2_048 && content.contains("12 MB é"), "{wecom}");

    hooks.answer(HookAnswer::status(200, "{\"code\":0,\"msg\":\"success\"}"));
    let feishu = body(&post(&hooks, HookForm::Feishu, Some("s"), &closed()).await);
    assert_eq!(feishu["msg_type"], "interactive");
    assert_eq!(feishu["card"]["header"]["template"], "green");
    assert!(
        feishu["card"]["header"]["title"]["content"].as_str().unwrap().contains("over: big-value-passing"),
        "{feishu}"
    );
    let key = format!("{}\ns", feishu["timestamp"].as_str().unwrap());
    assert_eq!(feishu["sign"], mac(key.as_bytes(), ""));

    let template = Template::parse(r#"{"summary": "{{title}}", "details": {"why": "{{cause}}", "n": 1}}"#).unwrap();
    let own = body(&post(&hooks, HookForm::Template(template), None, &opened()).await);
    assert_eq!((&own["details"]["n"], own["details"].as_object().unwrap().len()), (&json!(1), 2));
    assert!(own["details"]["why"].as_str().unwrap().contains("\\ <!channel>  .  MAIL"), "{own}");
}

#[tokio::test]
async fn answers_are_judged() {
    let hooks = HookSink::start();
    let json = hook(hooks.url("/"), HookForm::Json, None);
    let wait = HookAnswer::Status(429, vec![("retry-after", "7".to_owned())], "slow down".to_owned());
    hooks.answer_next([wait, HookAnswer::status(500, "oh"), HookAnswer::Close, HookAnswer::status(404, "no hook")]);
    let (why, after) = put_off(json.send(&opened()).await);
    assert!(why.contains("429") && why.contains("slow down") && after.unwrap().as_secs() == 7, "{why} {after:?}");
    assert!(put_off(json.send(&opened()).await).0.contains("500"));
    put_off(json.send(&opened()).await);
    assert!(refused(json.send(&opened()).await).contains("check the URL"));
    // A redirect is not followed.
    hooks.answer_next([HookAnswer::Status(307, vec![("location", hooks.url("/other"))], String::new())]);
    assert!(refused(json.send(&opened()).await).contains("redirect"));
    assert!(hooks.posted().iter().all(|posted| posted.target == "/"));
    // An error in an answer of 200.
    let ding = hook(hooks.url("/"), HookForm::DingTalk, None);
    hooks.answer_next([
        HookAnswer::status(200, "{\"errcode\":130101,\"errmsg\":\"too fast\"}"),
        HookAnswer::status(200, "{\"errcode\":310000,\"errmsg\":\"keywords not in content\"}"),
    ]);
    assert!(put_off(ding.send(&opened()).await).0.contains("too fast"));
    assert!(refused(ding.send(&opened()).await).contains("keywords not in content"));
    let mut own = HookOptions {
        url: hooks.url("/"),
        form: HookForm::Template(Template::parse("{}").unwrap()),
        secret: None,
        signature: None,
        code: Some(CodeField::named("ret")),
    };
    hooks.answer_next([HookAnswer::status(200, "{\"ret\":0}"), HookAnswer::status(200, "{\"ret\":9}")]);
    let custom = alerts::hook(sink(), own.clone()).unwrap();
    custom.send(&opened()).await.unwrap();
    refused(custom.send(&opened()).await);
    (own.secret, own.signature) = (Some("not base64!".to_owned()), Some(Signature::Standard));
    assert!(alerts::hook(sink(), own).err().unwrap().contains("openssl rand"));
}

#[tokio::test]
async fn one_that_hangs_or_is_not_there_ends_in_time_and_tells_no_secret() {
    let hooks = HookSink::start();
    hooks.answer(HookAnswer::Hang);
    let began = Instant::now();
    let hanging = hook(hooks.url("/s3cret"), HookForm::Json, None);
    let (why, _) = put_off(hanging.send(&opened()).await);
    assert!(began.elapsed() < BOUND && !why.contains("s3cret"), "{why}");
    let port = tidegate_conformance::servers::free_port();
    let (why, _) =
        put_off(hook(format!("http://127.0.0.1:{port}/s3cret"), HookForm::Slack, None).send(&opened()).await);
    assert!(why.contains("refused") && !why.contains("s3cret"), "{why}");
    for url in ["s3cret", "ftp://h/s3cret", "mailto:s3cret"] {
        let options =
            HookOptions { url: url.to_owned(), form: HookForm::Json, secret: None, signature: None, code: None };
        let why = alerts::hook(sink(), options).err().unwrap();
        assert!(why.contains("https://") && !why.contains("s3cret"), "{why}");
    }
}
