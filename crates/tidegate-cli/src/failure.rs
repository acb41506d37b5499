//! How a command ends: its exit code, and one line that says what to do.

use std::fmt;
use std::process::ExitCode;

/// Why a command did not do what was asked.
#[derive(Debug)]
pub enum Failure {
    /// The work failed, or a check found something: exit code 1.
    Work(String),
    /// Usage or configuration: exit code 2.
    Usage(String),
    /// A server it needs is unreachable: exit code 3.
    Unreachable(String),
    /// Interrupted: exit code 130.
    Interrupted,
}

/// The result of every command.
pub type Result<T = ()> = std::result::Result<T, Failure>;

impl Failure {
    fn code(&self) -> u8 {
        match self {
            Failure::Work(_) => 1,
            Failure::Usage(_) => 2,
            Failure::Unreachable(_) => 3,
            Failure::Interrupted => 130,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Work(why) | Failure::Usage(why) | Failure::Unreachable(why) => f.write_str(why),
            Failure::Interrupted => f.write_str("interrupted"),
        }
    }
}

/// Prints what went wrong on stderr and gives the exit code.
#[expect(clippy::print_stderr, reason = "the one place where a command's failure is told")]
pub fn exit(result: Result) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("tidegate: {failure}");
            ExitCode::from(failure.code())
        }
    }
}
