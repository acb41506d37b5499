//! The server over real sockets, on embedded back ends.

mod access;
mod bodies;
mod client;
mod connections;
mod events;
mod orders;
mod pages;
mod products;
mod reference;
mod requests;
mod stock;
mod stopping;
