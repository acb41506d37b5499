//! The host's clock is moved under a running server (libfaketime, never the host's own clock).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::json;

use crate::server::{Server, Start};

fn libfaketime() -> PathBuf {
    let folders = [
        "/usr/lib/x86_64-linux-gnu/faketime",
        "/usr/lib/aarch64-linux-gnu/faketime",
        "/usr/lib/faketime",
        "/usr/lib64/faketime",
    ];
    let found = folders.iter().map(|folder| Path::new(folder).join("libfaketimeMT.so.1")).find(|path| path.exists());
    found.expect("libfaketime is missing; ./scripts/test installs it (Debian's package faketime)")
}

/// A server whose host's clock is off by `offset` from the start on; its monotonic clock is right.
pub fn off_by(start: Start, offset: &str) -> Start {
    start
        .env("LD_PRELOAD", &libfaketime().to_string_lossy())
        .env("FAKETIME", offset)
        .env("DONT_FAKE_MONOTONIC", "1")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
}

struct Faked {
    server: Server,
    rc: PathBuf,
    _folder: tempfile::TempDir,
}

impl Faked {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let rc = folder.path().join("offset");
        std::fs::write(&rc, "+0\n").expect("writable");
        let server = Start::in_folder(folder.path())
            .env("LD_PRELOAD", &libfaketime().to_string_lossy())
            .env("FAKETIME_TIMESTAMP_FILE", &rc.to_string_lossy())
            .env("FAKETIME_NO_CACHE", "1")
            .env("DONT_FAKE_MONOTONIC", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .ready();
        Self { server, rc, _folder: folder }
    }

    fn step(&self, offset: &str) {
        std::fs::write(&self.rc, format!("{offset}\n")).expect("writable");
    }

    fn status(&self) -> (String, String) {
        let reply = self.server.api.get("/readyz").expect("an answer");
        (reply.json["status"].as_str().unwrap_or_default().to_owned(), reply.json["reasons"].to_string())
    }
}

#[test]
fn a_step_cancels_nothing_early_freezes_nothing_and_is_reported() {
    let faked = Faked::start();
    let api = &faked.server.api;
    api.sku("x", 100);
    assert_eq!(faked.status().0, "ready");
    api.place("before", "x", 1, 1_800).expect("an answer");

    for offset in ["+3600s", "-3600s"] {
        faked.step(offset);
        api.wait("the step is reported", Duration::from_secs(5), |_| {
            let (status, reasons) = faked.status();
            status == "degraded" && reasons.contains("clock")
        });
        let id = format!("at{offset}").replace('+', "p");
        let placed = std::time::Instant::now();
        assert_eq!(api.place(&id, "x", 1, 2).map(|r| r.status), Some(201));
        std::thread::sleep(Duration::from_millis(1_500));
        assert_eq!(api.order(&id)["status"], "pending", "{offset}: cancelled early");
        assert_eq!(api.order("before")["status"], "pending", "{offset}: cancelled early");
        api.wait("time goes on", Duration::from_millis(2_500), |api| api.order(&id)["status"] == "cancelled");
        assert!(placed.elapsed() >= Duration::from_secs(2), "{offset}: {:?}", placed.elapsed());
    }

    faked.step("+60s");
    api.wait("the step is reported", Duration::from_secs(5), |_| faked.status().0 == "degraded");
    let accept = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["clock", "accept", "--to", &format!("http://{}", faked.server.address)])
        .output()
        .expect("the binary starts");
    assert!(accept.status.success(), "{}", String::from_utf8_lossy(&accept.stderr));
    api.wait("the accepted step is followed", Duration::from_secs(5), |_| faked.status().0 == "ready");
    api.wait("all is released", Duration::from_secs(5), |api| api.counts("x") == [99, 1, 0]);
    assert_eq!(
        api.post("/v1/admin/clock", &json!({"advance_ms": 1})).map(|r| r.status),
        Some(404),
        "only a manual clock moves by hand"
    );
    api.check();
}
