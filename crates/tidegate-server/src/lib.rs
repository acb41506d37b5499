//! Tidegate over HTTP: routes, authentication, events, metrics. It serves a [`tidegate::Tidegate`]; it decides nothing.
//!
//! - [`Server`]: listens, answers, ends in order (`serve/`).
//! - [`ServerConfig`], [`Limits`], [`Token`]: what it is started with.
//! - `router.rs` and `routes/`: one table of routes; each is matched, authorised, measured and described from its row.
//! - `pipeline.rs`: one request, from its head to its response, in the contract's order of refusals.
//! - `request/`: paths, queries, headers and bodies, judged completely. `shape/`: what is answered.
//! - `origins/`: the read-through cache of HTTP origins, with every bound on what is asked and what comes back.
//! - [`alerts`]: sinks of the watch over Redis, e-mail and webhooks. `outgoing.rs`: the HTTP client that both call with.
//! - [`RedisWatch`]: what `/v1/redis` shows.
//! - `problem/`: every error is a problem document, from one catalogue.
//! - [`openapi_json`], [`metrics_markdown`], [`problems_markdown`]: the reference, generated from the code; so are alert rules and a
//!   dashboard ([`prometheus_alerts_yaml`], [`alert_rules_markdown`], [`grafana_dashboard_json`]).

#![forbid(unsafe_code)]

mod access;
pub mod alerts;
mod app;
mod call;
mod config;
mod metrics;
mod openapi;
mod origins;
mod outgoing;
mod pages;
mod pipeline;
mod problem;
mod redis;
mod reply;
mod request;
mod router;
mod routes;
mod serve;
mod shape;

pub use config::{Limits, Role, ServerConfig, ServerError, Surface, Token, hash_token};
pub use metrics::catalogue::metrics_markdown;
pub use metrics::dashboard::grafana_dashboard_json;
pub use metrics::rules::{alert_rules_markdown, prometheus_alerts_yaml};
pub use metrics::{MetricsHandle, install_metrics};
pub use openapi::openapi_json;
pub use origins::{MAX_NAMESPACES, Namespace, Origin, check_namespace_name};
pub use problem::page::problems_markdown;
pub use redis::RedisWatch;
pub use serve::Server;
pub use shape::hot_keys::hot_keys_json;
pub use shape::redis::{big_keys_json, finding_json};
