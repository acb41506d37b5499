//! Queues and locks over real sockets, in one process and on Redis.

#[allow(dead_code, reason = "these tests use a part of it")]
#[path = "../http/client.rs"]
mod client;
mod days;
mod locks;
mod queue_bodies;
mod queues;
mod shared;
