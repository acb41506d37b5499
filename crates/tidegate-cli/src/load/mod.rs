//! The load generator of `demo`, `replay` and `bench`: buyers that talk real HTTP and cost little beside the server.
//!
//! - [`target`]: where to talk to, taken apart once. [`conn`]: one keep-alive connection. [`pool`]: a bounded set of them.
//! - [`drive`]: closed loops (as fast as answers come) and open loops (at a rate, timed from the intended start).
//! - [`record`]: what came back and how long it took.
//! - [`shapes`]: the few fields of the answers that are read. [`events`]: the event log, page by page.
//! - [`own_server`]: a server in this process on embedded back ends. [`random`]: repeatable choices.
//! - [`occupancy`]: what the answers say about oversells and false "sold out". [`verify`]: every
//!   accepted order read again. [`summary`]: what is reported.

pub mod conn;
pub mod drive;
pub mod events;
pub mod occupancy;
pub mod own_server;
pub mod pool;
pub mod random;
pub mod record;
pub mod shapes;
pub mod summary;
pub mod target;
pub mod verify;
