//! Redis and Valkey.
