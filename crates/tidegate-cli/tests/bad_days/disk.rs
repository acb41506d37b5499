//! A full disk and a read-only folder: clear errors, nothing lost.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use crate::server::Start;

#[test]
fn a_full_disk_refuses_clearly_and_recovers() {
    full_disk("");
}

/// A log line that cannot be written must not end a request.
#[test]
fn a_full_disk_that_has_the_log_too() {
    full_disk("2>/dev/full");
}

fn full_disk(log: &str) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mount = format!(
        "mount -t tmpfs -o size=6m tidegate {0} && dd if=/dev/zero of={0}/filler bs=1M count=3 status=none && exec \"$0\" \"$@\" {log}",
        folder.path().display()
    );
    let server = Start::in_folder(folder.path()).wrapped(&["unshare", "-rm", "sh", "-c", &mount]).ready();
    server.api.sku("x", 1_000_000);
    let mut told = Vec::new();
    let refused = (0..200_000).find_map(|i| {
        let id = format!("o{i}");
        let reply = server.api.place(&id, "x", 1, 600).expect("an answer, whatever the disk does");
        if reply.status == 201 {
            told.push(id);
            return None;
        }
        Some(reply)
    });
    let refused = refused.expect("six megabytes fill up");
    assert_eq!((refused.status, refused.code()), (503, "ledger-unavailable"), "{refused:?}");
    for i in 0..50 {
        let again = server.api.place(&format!("again{i}"), "x", 1, 600).expect("an answer, whatever the disk does");
        assert!(again.status == 201 || again.code() == "ledger-unavailable", "{again:?}");
        if again.status == 201 {
            told.push(format!("again{i}"));
        }
    }
    assert!(refused.json["detail"].as_str().is_some_and(|d| !d.is_empty()));
    assert_eq!(server.api.get("/readyz").map(|r| r.status), Some(503), "orders cannot be placed, and it says so");
    assert_eq!(server.api.get("/healthz").map(|r| r.status), Some(200));
    for id in told.iter().rev().take(50) {
        server.api.order(id);
    }
    // The filler is in the server's own mount.
    let filler = format!("/proc/{}/root{}/filler", server.child.id(), folder.path().display());
    std::fs::remove_file(filler).expect("the filler can be removed");
    server.api.wait("it recovers by itself", Duration::from_secs(10), |api| {
        api.get("/readyz").is_some_and(|r| r.status == 200)
    });
    assert_eq!(server.api.place("after", "x", 1, 600).map(|r| r.status), Some(201));
    for id in &told {
        server.api.order(id);
    }
    assert_eq!(server.api.counts("x")[1], i64::try_from(told.len()).expect("few") + 1);
    server.api.check();
}

#[test]
fn a_read_only_folder_is_told_at_the_start() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let data = folder.path().join("data");
    std::fs::create_dir(&data).expect("a folder");
    let server = Start::in_folder(&data).ready();
    server.api.sku("x", 5);
    assert!(server.terminate().success());
    let chmod = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("it is ours")
    };
    chmod(folder.path(), 0o755);
    for entry in std::fs::read_dir(&data).expect("readable").flatten() {
        chmod(&entry.path(), 0o444);
    }
    chmod(&data, 0o555);
    // Permission bits stop nobody who is root.
    let root = Command::new("id").arg("-u").output().is_ok_and(|out| out.stdout.starts_with(b"0\n"));
    let wrapper: &[&str] =
        if root { &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] } else { &["env"] };
    let begun = std::time::Instant::now();
    let (code, said) = Start::in_folder(&data).wrapped(wrapper).refused();
    assert!(matches!(code, Some(1 | 2)), "{code:?} {said}");
    assert!(said.contains("data"), "it names the place: {said}");
    assert!(begun.elapsed() < Duration::from_secs(10));
    chmod(&data, 0o755);
    for entry in std::fs::read_dir(&data).expect("readable").flatten() {
        chmod(&entry.path(), 0o644);
    }
    let server = Start::in_folder(&data).ready();
    assert_eq!(server.api.counts("x"), [5, 0, 0]);
}
