//! The faults of one request, as many as the contract lists.

use std::fmt::Display;

use tidegate::core::FieldError;
use tidegate::core::request::MAX_FIELD_ERRORS;

use crate::problem::{self, Problem};

/// Faults found so far, at most [`MAX_FIELD_ERRORS`], one a place: what lies inside something wrong is not told again.
#[derive(Debug, Default)]
pub(crate) struct Faults(Vec<FieldError>);

impl Faults {
    /// Notes that the field at `pointer` is wrong and what it must be.
    pub(crate) fn add(&mut self, pointer: impl Display, detail: impl Into<String>) {
        if self.0.len() >= MAX_FIELD_ERRORS {
            return;
        }
        let pointer = pointer.to_string();
        let told = |fault: &FieldError| {
            pointer.strip_prefix(fault.pointer.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if !self.0.iter().any(told) {
            self.0.push(FieldError::new(pointer, detail));
        }
    }

    /// Notes the faults the rules found in fields whose shape was right.
    pub(crate) fn extend(&mut self, found: Vec<FieldError>) {
        for fault in found {
            self.add(fault.pointer, fault.detail);
        }
    }

    /// Takes over the faults of a part.
    pub(crate) fn absorb(&mut self, part: Faults) {
        self.extend(part.0);
    }

    /// Notes the fault of `value`, if it has one.
    pub(crate) fn take<T>(&mut self, pointer: impl Display, value: Result<T, impl Display>) -> Option<T> {
        value.map_err(|e| self.add(pointer, e.to_string())).ok()
    }

    /// Refuses the request as `invalid` if there is any fault.
    pub(crate) fn refuse(self) -> Result<(), Problem> {
        if self.0.is_empty() { Ok(()) } else { Err(problem::invalid(self.0)) }
    }
}
