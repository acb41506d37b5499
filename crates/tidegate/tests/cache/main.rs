//! The typed cache, case by case.

mod common;
mod races;
mod speed;
