//! `tidegate bench deadlines`: what the delay queue does in a second, how late it is, what it costs at rest and on bad days;
//! and side by side with it a broker and the loop that many teams write.
//!
//! - [`rates`]: scheduling, working off, cancelling; [`slow`]: scripts that take long. [`lateness`]: a steady stream, and a pile beside a trickle.
//!   [`bad_days`]: a worker that is killed, far tasks at rest. [`embedded`]: the SQLite file. [`sides`]: the comparison.
//! - [`way`]: a way to have something done later: [`stored`] (our queue), [`naive`] (the loop), `rabbit` (the broker, feature
//!   `rabbitmq`). [`side`]: their private stores. [`child`], [`seen`]: the processes that schedule and work.

mod bad_days;
mod child;
mod embedded;
mod lateness;
mod naive;
#[cfg(feature = "rabbitmq")]
mod rabbit;
mod rates;
mod seen;
pub mod side;
mod sides;
mod slow;
mod stored;
pub mod way;

use std::time::Duration;

use self::child::{Order, Report};
use self::side::Side;
use self::way::Kind;
use super::line::Printer;
use super::on_redis::Bench;
use super::process::Process;
use super::{Args, wanted};
use crate::failure::{Failure, Result};

pub use self::child::run as serve;

/// The cases by name, with what each measures.
const CASES: [(&str, &str); 15] = [
    ("schedule", "tasks scheduled in batches of 512, beside pipelined ZADD and HSET"),
    ("drain", "tasks that are all due claimed and acknowledged, beside the bare commands"),
    ("lateness", "10,000 deadlines a second with 1,000,000 pending, one worker process, the load in another"),
    ("pile", "500,000 due in one second, and a trickle on another queue"),
    ("cancel", "100,000 random tasks cancelled of 1,000,000 pending, alone and while others claim"),
    ("killed", "kill -9 of a busy worker: when its tasks come again, what is lost, what its receipts are worth"),
    ("idle", "1,000,000 far tasks and a worker at rest: round trips, memory"),
    ("embedded", "the SQLite file: 64 callers, 1,000,000 pending opened again"),
    ("side-embedded", "side by side: our queue in a SQLite file"),
    ("side-redis", "side by side: our queue on a Redis with its log (AOF, everysec)"),
    ("side-memory", "side by side: our queue on a Redis that keeps nothing"),
    ("side-mariadb", "side by side: our queue on MariaDB"),
    ("side-postgres", "side by side: our queue on PostgreSQL"),
    ("side-rabbitmq", "side by side: a broker, RabbitMQ (feature rabbitmq)"),
    ("side-naive", "side by side: the loop that many teams write, on a Redis with its log"),
];

impl Bench<'_> {
    /// A process on the Redis that is measured.
    fn process(&self) -> Result<Process> {
        start(&Kind::Redis { url: self.url.clone(), name: self.name.clone() })
    }

    /// Deletes every key of this run, and waits until their memory is free.
    fn clear(&self) -> Result {
        self.erase()?;
        self.on_redis(async |redis| {
            while redis.info("memory", "lazyfree_pending_objects").await? > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Ok(())
        })
    }
}

fn start(kind: &Kind) -> Result<Process> {
    Process::start("deadlines-process", kind)
}

fn ask(process: &mut Process, order: Order) -> Result<Report> {
    process.ask(&order)
}

fn broken(e: impl std::fmt::Display) -> Failure {
    Failure::Work(format!("the queue: {e}"))
}

/// `count` in that time.
fn rate(count: u64, us: u64) -> f64 {
    count as f64 * 1_000_000.0 / us.max(1) as f64
}

/// Measures.
///
/// # Errors
/// [`Failure::Usage`] for a case there is not; [`Failure::Work`].
pub fn run(args: &Args, printer: &mut Printer) -> Result {
    let wanted = wanted(args, &CASES)?;
    let mut bench = Bench::start(args, printer)?;
    for (name, what) in wanted {
        bench.printer.step(what);
        let measured = match *name {
            "schedule" => rates::schedule(&mut bench),
            "drain" => rates::drain(&mut bench),
            "lateness" => lateness::steady(&mut bench),
            "pile" => lateness::pile(&mut bench),
            "cancel" => rates::cancel(&mut bench),
            "killed" => bad_days::killed(&mut bench),
            "idle" => bad_days::idle(&mut bench),
            "embedded" => embedded::callers(&mut bench),
            "side-embedded" => sides::measure(&mut bench, Side::embedded),
            "side-redis" => sides::measure(&mut bench, Side::redis),
            "side-memory" => sides::measure(&mut bench, Side::redis_in_memory),
            "side-mariadb" => sides::measure(&mut bench, Side::mariadb),
            "side-postgres" => sides::measure(&mut bench, Side::postgres),
            "side-rabbitmq" => sides::measure(&mut bench, Side::rabbit),
            _ => sides::measure(&mut bench, Side::naive),
        };
        bench.clear()?;
        measured?;
    }
    Ok(())
}
