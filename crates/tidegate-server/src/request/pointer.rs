//! JSON pointers (RFC 6901), built from the inside out and only when there is a fault to point at.

use std::borrow::Cow;
use std::fmt;

/// A place in a body: a chain on the stack, so that a request without faults allocates nothing for it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Pointer<'p> {
    /// The whole body.
    Root,
    /// A member of an object.
    Member(&'p Pointer<'p>, &'p str),
    /// An item of an array.
    Item(&'p Pointer<'p>, usize),
}

impl<'p> Pointer<'p> {
    /// The member `name` below this place.
    pub(crate) fn member(&'p self, name: &'p str) -> Self {
        Self::Member(self, name)
    }

    /// The item `index` below this place.
    pub(crate) fn item(&'p self, index: usize) -> Self {
        Self::Item(self, index)
    }
}

impl fmt::Display for Pointer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Member(parent, name) => write!(f, "{parent}/{}", escape(name)),
            Self::Item(parent, index) => write!(f, "{parent}/{index}"),
        }
    }
}

/// A member's name as a step of a pointer: `~` and `/` escaped.
pub(crate) fn escape(name: &str) -> Cow<'_, str> {
    if name.contains(['~', '/']) { Cow::Owned(name.replace('~', "~0").replace('/', "~1")) } else { Cow::Borrowed(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_both_characters() {
        let root = Pointer::Root;
        let lines = root.member("lines");
        let first = lines.item(0);
        assert_eq!(first.member("a/b~c").to_string(), "/lines/0/a~1b~0c");
        assert_eq!(Pointer::Root.to_string(), "");
    }
}
