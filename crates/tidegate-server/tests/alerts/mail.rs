//! E-mail.

use std::sync::Arc;
use std::time::Instant;

use tidegate::watch::alerts::{Alert, AlertSink};
use tidegate_conformance::servers::{MailSink, MailSinkSetup, make_certificates};
use tidegate_server::alerts::{self, MailOptions, SinkOptions};

use super::{BOUND, closed, opened, put_off, refused, sink};

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    make_certificates(folder.path());
    folder
}

fn options(url: String) -> MailOptions {
    MailOptions {
        url,
        password: None,
        from: "Tidegate é <tide@shop.example>".to_owned(),
        to: vec!["ann@shop.example".to_owned(), "Bob <bob@shop.example>".to_owned()],
    }
}

fn mail(url: String) -> Arc<dyn AlertSink> {
    alerts::mail(sink(), options(url)).unwrap()
}

fn trusting(folder: &tempfile::TempDir, options: MailOptions) -> Arc<dyn AlertSink> {
    let authority = std::fs::read(folder.path().join("ca.crt")).unwrap();
    alerts::mail(SinkOptions { authority: Some(authority), ..sink() }, options).unwrap()
}

#[tokio::test]
async fn a_finding_is_two_mails_of_one_thread_and_none_of_its_texts_is_a_header_or_a_command() {
    let folder = folder();
    let server = MailSink::start(MailSinkSetup::default(), folder.path());
    let mail = mail(format!("smtp://127.0.0.1:{}", server.port()));
    mail.send(&opened()).await.unwrap();
    mail.send(&closed()).await.unwrap();
    let received = server.received();
    let [first, second] = &received[..] else { panic!("{received:?}") };
    for mail in [first, second] {
        assert_eq!(
            (mail.from.as_str(), &mail.to[..]),
            ("tide@shop.example", &["ann@shop.example".to_owned(), "bob@shop.example".to_owned()][..])
        );
        assert!(mail.header("bcc").is_none() && mail.header("date").is_some(), "{}", mail.text);
        assert_eq!(mail.header("auto-submitted").as_deref(), Some("auto-generated"));
        let (head, body) = mail.text.split_once("\n\n").unwrap();
        // Long lines are broken for the way (RFC 2045).
        let body = body.replace("=\n", "");
        assert!(head.lines().all(|line| line.starts_with(' ') || line.split_once(": ").is_some_and(|(name, _)| !name.contains(' '))), "{head}");
        assert!(body.contains("10.0.0.7:6379  Bcc: all@example.com") && body.contains("MAIL FROM:<x>"), "{body}");
        assert!(!mail.tls && mail.user.is_none());
    }
    let subject = first.header("subject").unwrap();
    assert!(subject.starts_with("Tidegate: critical: big-value-passing at 10.0.0.7:6379 "), "{subject}");
    let id = first.header("message-id").unwrap();
    assert_eq!(id, format!("<{}@shop.example>", opened().id));
    assert_eq!((second.header("in-reply-to"), second.header("references")), (Some(id.clone()), Some(id)));
    assert!(second.header("subject").unwrap().contains("over: big-value-passing"));
}

#[tokio::test]
async fn tls_from_the_start_or_from_starttls_on_with_a_login() {
    let folder = folder();
    let login = MailSinkSetup::default().login("tide", "p@ss/word");
    let wrapped = MailSink::start(login.clone().wrapped(), folder.path());
    let upgraded = MailSink::start(login.starttls(), folder.path());
    let in_url = options(format!("smtps://tide:p%40ss%2Fword@localhost:{}", wrapped.port()));
    let beside = MailOptions {
        password: Some("p@ss/word".to_owned()),
        ..options(format!("smtp://tide@localhost:{}?tls=required", upgraded.port()))
    };
    for (server, options) in [(&wrapped, in_url.clone()), (&upgraded, beside.clone())] {
        trusting(&folder, options).send(&opened()).await.unwrap();
        let received = server.received();
        assert!(received.len() == 1 && received[0].tls && received[0].user.as_deref() == Some("tide"), "{received:?}");
    }
    // An authority that is not known, and a password that is wrong.
    let (why, _) = put_off(alerts::mail(sink(), in_url).unwrap().send(&opened()).await);
    assert!(why.contains("TLS") && why.contains("ca_file"), "{why}");
    let wrong = MailOptions { password: Some("wr0ng".to_owned()), ..beside };
    let why = refused(trusting(&folder, wrong).send(&opened()).await);
    assert!(why.contains("wrong user or password") && !why.contains("wr0ng"), "{why}");
    // Nothing is sent in the clear to a server that does not offer STARTTLS, where it was asked for.
    let plain = MailSink::start(MailSinkSetup::default(), folder.path());
    let (why, _) = put_off(
        trusting(&folder, options(format!("smtp://localhost:{}?tls=required", plain.port()))).send(&opened()).await,
    );
    assert!(why.contains("STARTTLS") && plain.received().is_empty(), "{why}");
}

#[tokio::test]
async fn what_the_server_says_decides_whether_it_is_tried_again() {
    let folder = folder();
    let server = MailSink::start(MailSinkSetup::default().unknown("bob@shop.example"), folder.path());
    let url = format!("smtp://127.0.0.1:{}", server.port());
    server.refuse_next(&["451 4.7.1 greylisted", "554 5.7.1 no such luck"]);
    let mail = mail(url.clone());
    assert!(put_off(mail.send(&opened()).await).0.contains("greylisted"));
    assert!(refused(mail.send(&opened()).await).contains("no such luck"));
    // One of two recipients is known: he gets it; a test tells of the other.
    mail.send(&opened()).await.unwrap();
    assert_eq!(server.received()[0].to, ["ann@shop.example"]);
    let why = refused(mail.send(&Alert::test(tidegate::core::Millis(1))).await);
    assert!(why.contains("bob@shop.example") && why.contains("no such user"), "{why}");
    let alone = MailOptions { to: vec!["bob@shop.example".to_owned()], ..options(url) };
    assert!(refused(alerts::mail(sink(), alone).unwrap().send(&opened()).await).contains("no such user"));
}

/// One full mailbox holds up nobody; alone it is tried again.
#[tokio::test]
async fn a_recipient_that_is_refused_for_the_moment_is_left_out_or_waited_for() {
    let folder = folder();
    let server = MailSink::start(MailSinkSetup::default().full("bob@shop.example"), folder.path());
    let url = format!("smtp://127.0.0.1:{}", server.port());
    let both = mail(url.clone());
    both.send(&opened()).await.unwrap();
    assert_eq!(server.received()[0].to, ["ann@shop.example"]);
    let why = refused(both.send(&Alert::test(tidegate::core::Millis(1))).await);
    assert!(why.contains("bob@shop.example (for the moment, and is not tried again") && why.contains("full"), "{why}");
    let alone = MailOptions { to: vec!["bob@shop.example".to_owned()], ..options(url) };
    assert!(put_off(alerts::mail(sink(), alone).unwrap().send(&opened()).await).0.contains("mailbox full"));
}

#[tokio::test]
async fn a_server_that_hangs_or_is_not_there_ends_in_time() {
    let folder = folder();
    let server = MailSink::start(MailSinkSetup::default(), folder.path());
    server.hang(true);
    let began = Instant::now();
    let mail = mail(format!("smtp://127.0.0.1:{}", server.port()));
    assert!(put_off(mail.send(&opened()).await).0.contains("did not answer"));
    assert!(began.elapsed() < BOUND, "{:?}", began.elapsed());
    server.hang(false);
    mail.send(&opened()).await.unwrap();
    let port = tidegate_conformance::servers::free_port();
    put_off(self::mail(format!("smtp://127.0.0.1:{port}")).send(&opened()).await);
}
