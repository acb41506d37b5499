//! The README's program.

include!("program.rs");
