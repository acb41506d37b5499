//! The server over real sockets, on embedded back ends.

mod access;
mod bodies;
mod cache;
mod cache_bounds;
mod cache_crowds;
mod client;
mod connections;
mod events;
mod orders;
mod origin;
mod pages;
mod products;
mod reference;
mod requests;
mod stock;
mod stopping;
mod warm;
