//! tidegate-conformance
