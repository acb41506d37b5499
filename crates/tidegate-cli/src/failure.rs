//! How a command ends: its exit code, and one line that says what to do.

use std::fmt;
use std::process::ExitCode;

use crate::output;

/// Why a command did not do what was asked.
#[derive(Debug)]
pub enum Failure {
    /// The work failed, or a check found something: exit code 1.
    Work(String),
    /// The same, and all there is to say has been printed: exit code 1.
    Found,
    /// Usage or configuration: exit code 2.
    Usage(String),
    /// A server it needs is unreachable: exit code 3.
    Unreachable(String),
    /// Interrupted: exit code 130.
    Interrupted,
    /// Whoever read stdout has gone (`| head`): nothing is left to do, exit code 0.
    ReaderGone,
}

/// The result of every command.
pub type Result<T = ()> = std::result::Result<T, Failure>;

impl Failure {
    fn code(&self) -> u8 {
        match self {
            Failure::ReaderGone => 0,
            Failure::Work(_) | Failure::Found => 1,
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
            Failure::Found | Failure::ReaderGone => Ok(()),
        }
    }
}

impl From<tidegate::Error> for Failure {
    fn from(e: tidegate::Error) -> Self {
        match e {
            tidegate::Error::Configuration(why) => Failure::Usage(why),
            other => Failure::Work(other.to_string()),
        }
    }
}

/// Prints what went wrong on stderr and gives the exit code.
pub fn exit(result: Result) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !matches!(failure, Failure::Found | Failure::ReaderGone) {
                output::note(format!("tidegate: {failure}"));
            }
            ExitCode::from(failure.code())
        }
    }
}
