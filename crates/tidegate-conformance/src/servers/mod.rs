//! Private servers for tests: each on a free port of this machine, in a folder of its own, gone when its value is dropped.
//!
//! - `folder.rs`: folders that a server may own, and leftovers of killed tests. `process.rs`: ports, programs, children.
//! - `postgres.rs`, `mariadb.rs`: SQL servers, started from a template that is made once.
//! - `redis.rs`: Redis and Valkey, alone, under Sentinel, in a Cluster. `resp.rs`: orders to them. `proxy.rs`: a proxy that
//!   spoils connections. `sinks/`: a mail server and a web server that remember what they were sent.
//!
//! They work as root (the servers run as user 65534, since most refuse root) and as a plain user. A missing program is a
//! panic that names its Debian package: a test that cannot run must not pass. Calls block for some tenths of a second.

mod folder;
mod mariadb;
mod postgres;
mod process;
mod proxy;
mod redis;
mod resp;
mod sinks;

pub use folder::Folder;
pub use mariadb::MariaDb;
pub use postgres::Postgres;
pub use process::{Process, command, find, free_port, run, wait_until};
pub use proxy::Proxy;
pub use redis::{Cluster, Engine, Redis, Sentinel, Setup, make_certificates};
pub use sinks::{HookAnswer, HookSink, MailSink, MailSinkSetup, Posted, Received};
