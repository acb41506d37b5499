//! `tidegate bench watch`: what it costs to be watched, and how soon a look at a server's settings is over.
//!
//! - [`rounds`]: `tidegate watch` once a second. [`doctor`]: `tidegate doctor` on a million keys.

mod doctor;
mod rounds;

use super::line::Printer;
use super::on_redis::Bench;
use super::{Args, wanted};
use crate::failure::Result;

/// The cases by name, with what each measures.
const CASES: [(&str, &str); 2] = [
    ("rounds", "tidegate watch, a look a second: processor time of it, and of the server"),
    ("doctor", "tidegate doctor on a server with a million keys"),
];

/// Measures.
///
/// # Errors
/// [`Failure::Usage`](crate::failure::Failure::Usage) for a case there is not; [`Failure::Work`](crate::failure::Failure::Work).
pub fn run(args: &Args, printer: &mut Printer) -> Result {
    let wanted = wanted(args, &CASES)?;
    let mut bench = Bench::start(args, printer)?;
    for (name, what) in wanted {
        bench.printer.step(what);
        let measured = match *name {
            "rounds" => rounds::measure(&mut bench),
            _ => doctor::measure(&mut bench),
        };
        bench.erase()?;
        measured?;
    }
    Ok(())
}
