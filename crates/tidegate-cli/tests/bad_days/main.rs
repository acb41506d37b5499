//! Bad days: the real binary, killed, starved, filled, stopped, talked nonsense to, its clock moved; several of it on servers
//! that are killed, frozen and emptied.
//! Rounds are sized for every run; `./scripts/test --long` runs more.

mod clock;
mod database;
mod disk;
mod failover;
mod feed;
mod kill;
mod network;
mod nodes;
mod nonsense;
mod pages;
mod parts;
mod redis;
mod server;
mod shop;
mod stop;

/// Whether the long versions were asked for.
fn long() -> bool {
    std::env::var_os("TIDEGATE_TEST_LONG").is_some()
}
