//! Paths in objects, which are only formatted for messages.

use std::fmt;

/// A path from its last element.
#[derive(Clone, Copy)]
pub(super) enum Path<'a> {
    Root,
    /// `.spec`
    Field(&'a Path<'a>, &'a str),
    /// `[0]`
    Index(&'a Path<'a>, usize),
    /// `[name]`, an entry of a map where the API distinguishes it from a field.
    Key(&'a Path<'a>, &'a str),
}

impl Path<'_> {
    pub(super) fn is_root(&self) -> bool {
        matches!(self, Self::Root)
    }
}

/// `spec.containers[0].name`
impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Path::Root, name) => f.write_str(name),
            Self::Field(parent, name) => write!(f, "{parent}.{name}"),
            Self::Index(parent, index) => write!(f, "{parent}[{index}]"),
            Self::Key(parent, key) => write!(f, "{parent}[{key}]"),
        }
    }
}
