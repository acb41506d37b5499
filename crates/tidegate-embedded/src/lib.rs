//! tidegate-embedded
