//! Requests as they arrive: path, query, headers, body, judged completely before the library is asked.
//!
//! - [`json`] reads a body into a borrowed tree, [`fields`] takes typed fields out of it and notes every fault.
//! - [`bodies`] (and [`bodies_of_products`] for queues and locks, [`bodies_of_feed`]) declares each body once: it is decoded, refused and described from the same table.
//! - [`cursor`] makes and reads the cursors of queues, [`feed_cursor`] those of feeds.
//! - [`path`] and [`query`] decode the address, [`headers`] what the headers say.

pub(crate) mod bodies;
pub(crate) mod bodies_of_feed;
pub(crate) mod bodies_of_products;
pub(crate) mod body;
pub(crate) mod cursor;
pub(crate) mod decode;
pub(crate) mod faults;
pub(crate) mod feed_cursor;
pub(crate) mod fields;
pub(crate) mod headers;
pub(crate) mod json;
pub(crate) mod path;
pub(crate) mod pointer;
pub(crate) mod query;

pub(crate) use faults::Faults;
pub(crate) use fields::{Field, Fields, Kind, Shape};
pub(crate) use pointer::Pointer;
