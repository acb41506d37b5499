//! The server over real sockets, on embedded back ends.

mod client;
mod orders;
mod stock;
