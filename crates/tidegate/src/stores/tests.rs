//! What is refused, and how it is said.

use super::*;

fn refusal(ledger: &str, store: &str) -> Option<String> {
    Stores::new(ledger).and_then(|stores| stores.store(store)).err().map(|e| e.to_string())
}

#[test]
fn what_cannot_be_used_is_refused_without_its_password() {
    for (ledger, store, want) in [
        ("ledger.db", "embedded", "it is no ledger; write sqlite:PATH"),
        ("oracle://scott:tiger@h/d", "embedded", "it is no ledger; write sqlite:PATH"),
        ("sqlite:", "embedded", "it names no file"),
        ("sqlite::memory:", "embedded", "it names no file"),
        ("sqlite:a.db?x=1", "embedded", "it names no file"),
        ("sqlite:a.db", "memcached://u:tiger@h", "it is no store; write embedded"),
        ("sqlite:a.db", "embedded:", "it is no store; write embedded"),
        ("mysql://u:ti/tiger@h/d", "embedded", "its user or password holds a character"),
        ("sqlite:a.db", "redis://:ti?tiger@h", "its user or password holds a character"),
    ] {
        let refused = refusal(ledger, store).unwrap_or_else(|| panic!("{ledger} with {store} is taken"));
        assert!(refused.starts_with(want) && !refused.contains("tiger"), "{refused}");
    }
    assert_eq!(refusal("sqlite:a.db", "embedded"), None);
    assert_eq!(
        Stores::new("sqlite://a/b.db").map(|s| s.file().map(Path::to_path_buf)).ok().flatten(),
        Some("a/b.db".into())
    );
}

#[cfg(all(feature = "mysql", feature = "postgres", feature = "redis"))]
#[test]
fn a_sqlite_file_is_not_shared_and_a_server_is() {
    let refused = refusal("sqlite:a.db", "redis://:tiger@h").expect("refused");
    assert!(refused.starts_with("one process owns a SQLite ledger") && !refused.contains("tiger"), "{refused}");
    for ledger in ["mysql://u:p@h/d", "mariadb://u:p@h/d", "postgres://u:p@h/d", "postgresql://u:p@h/d"] {
        for store in ["embedded", "redis://h", "rediss://h", "redis-sentinel://h/s", "redis-cluster://h"] {
            assert_eq!(refusal(ledger, store), None, "{ledger} with {store}");
        }
    }
    let shown = format!("{:?}", Stores::new("mysql://u:tiger@h/d").expect("a ledger"));
    assert!(!shown.contains("tiger"), "{shown}");
}
