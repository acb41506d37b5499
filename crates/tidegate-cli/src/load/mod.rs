//! The load generator of `demo` and `bench`.
