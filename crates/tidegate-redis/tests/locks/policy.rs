//! A server that may delete locks grants none.

use std::sync::Arc;

use tidegate_backend::{ErrorKind, LockStore};
use tidegate_conformance::servers::{Redis, Setup};
use tidegate_core::lock::{Acquire, Acquired, LockName, LockToken};

use super::contract::open_on;

#[tokio::test]
async fn a_policy_that_evicts_what_expires_is_refused() {
    for (policy, granted) in [("noeviction", true), ("volatile-lru", false), ("volatile-ttl", false)] {
        let redis = Redis::start_with(Setup::default().option("maxmemory-policy", policy));
        let locks = Arc::clone(&open_on(&redis.url(), "policy").await);
        let asked = Acquire {
            token: LockToken::parse("0123456789abcdef").unwrap(),
            process: locks.process(),
            ttl_ms: 1_000,
            floor: None,
            wait: false,
        };
        match locks.acquire(&LockName::parse("l").unwrap(), &asked).await {
            Ok(Acquired::Granted { .. }) => assert!(granted, "{policy}"),
            Err(e) => assert!(
                !granted && e.kind() == ErrorKind::Configuration && e.to_string().contains("noeviction"),
                "{policy}: {e}"
            ),
            other => panic!("{policy}: {other:?}"),
        }
        locks.close().await;
    }
}
