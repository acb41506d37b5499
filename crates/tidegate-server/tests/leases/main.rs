//! Queues and locks over real sockets: in one process, on Redis, in a database.

#[allow(dead_code, reason = "these tests use a part of it")]
#[path = "../http/client.rs"]
mod client;
mod database;
mod days;
mod locks;
mod queue_bodies;
mod queues;
mod refusals;
mod repeats;
mod shared;
