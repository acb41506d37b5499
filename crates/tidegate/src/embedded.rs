//! The embedded back ends: SQLite beside the process, gate and deadlines in it.
