//! The command line as its users meet it: the real binary, its exit codes, what it prints and where.

mod alerts;
mod bench;
mod bench_feed;
mod bench_queues;
mod big_keys;
mod cache;
mod config;
mod doctor;
mod hot_keys;
mod queues;
mod rewarm;
mod serve;
mod servers;
mod support;
mod tools;
mod watch;
