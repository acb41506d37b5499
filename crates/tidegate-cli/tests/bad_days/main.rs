//! Bad days: the real binary, killed, starved, filled, stopped, talked nonsense to, its clock moved.
//! Rounds are sized for every run; `./scripts/test --long` runs more.

mod clock;
mod disk;
mod kill;
mod nonsense;
mod server;
mod stop;

/// Whether the long versions were asked for.
fn long() -> bool {
    std::env::var_os("TIDEGATE_TEST_LONG").is_some()
}
