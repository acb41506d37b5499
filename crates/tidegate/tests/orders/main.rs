//! Orders through the library, on the embedded back ends.

mod cases;
mod common;
mod lifecycle;
