//! A server that may delete locks grants none.

use std::sync::Arc;

use tidegate_backend::{ErrorKind, LockStore};
use tidegate_conformance::servers::{Redis, Setup};
use tidegate_core::lock::{Acquire, Acquired, AskId, LockName, LockToken};

use super::contract::open_on;

#[tokio::test]
async fn a_policy_that_evicts_what_expires_is_refused() {
    for (policy, granted) in [("noeviction", true), ("volatile-lru", false), ("volatile-ttl", false)] {
        let redis = Redis::start_with(Setup::default().option("maxmemory-policy", policy));
        let locks = Arc::clone(&open_on(&redis.url(), "policy").await);
        let asked = Acquire {
            token: LockToken::parse("0123456789abcdef").unwrap(),
            ask: AskId(1),
            process: locks.process(),
            ttl_ms: 1_000,
            floor: None,
            wait: false,
        };
        match locks.acquire(&LockName::parse("l").unwrap(), &asked).await {
            Ok(Acquired::Granted { .. }) => assert!(granted, "{policy}"),
            Err(e) => assert!(
                !granted
                    && e.kind() == ErrorKind::Configuration
                    && e.to_string().contains("CONFIG SET maxmemory-policy noeviction"),
                "{policy}: {e}"
            ),
            other => panic!("{policy}: {other:?}"),
        }
        locks.close().await;
    }
}

/// Somebody changes the policy while locks are in use, and back again.
#[tokio::test]
async fn a_policy_that_changes_is_noticed() {
    let redis = Redis::start();
    let locks = open_on(&redis.url(), "policy").await;
    let asked = |n: u32| Acquire {
        token: LockToken::parse(&format!("0123456789abcdef-{n}")).unwrap(),
        ask: AskId(1),
        process: locks.process(),
        ttl_ms: 100,
        floor: None,
        wait: false,
    };
    let granted = async |n: u32| locks.acquire(&LockName::parse(&format!("l-{n}")).unwrap(), &asked(n)).await.is_ok();
    assert!(granted(0).await && locks.trouble().is_none());
    for (n, policy, expected) in [(1, "volatile-lru", false), (2, "noeviction", true)] {
        redis.tell(&["CONFIG", "SET", "maxmemory-policy", policy]);
        let began = std::time::Instant::now();
        while granted(n).await != expected {
            assert!(began.elapsed().as_secs() < 8, "{policy} is not noticed");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        assert_eq!(locks.trouble().is_none(), expected);
    }
    locks.close().await;
}
