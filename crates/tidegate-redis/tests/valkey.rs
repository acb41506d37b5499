//! The contract of deadline queues on Valkey (the server that `TIDEGATE_VALKEY_SERVER` names).

mod common;

use std::sync::Arc;

use tidegate_backend::DeadlineQueue;
use tidegate_conformance::servers::{Engine, Redis, Setup};

async fn open() -> (Arc<dyn DeadlineQueue>, Redis) {
    let valkey = Redis::start_with(Setup::default().engine(Engine::Valkey));
    (Arc::new(common::open(&valkey.url()).await), valkey)
}

tidegate_conformance::deadline_conformance!(open);
