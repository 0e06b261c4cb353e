//! Errors of the YAML reader.

use std::{fmt, num::NonZeroUsize};

use super::{
    limits::{MAX_COPIED, MAX_HEIGHT, MAX_NESTING},
    node::Place,
};

/// A text that is not YAML, or is YAML without an equivalent in JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("read YAML at line {}, column {}: {kind}", .place.line, .place.column)]
pub struct Error {
    /// The place of the error.
    pub place: Place,
    /// The reason.
    pub kind: ErrorKind,
}

/// The reason why a text cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The text is not YAML, with the message of the parser.
    Syntax(String),
    /// Something other than a comment follows `---` on its line.
    Separator(String),
    /// A document after `...` does not start with `---`.
    AfterEnd,
    /// A key is null, a mapping, a sequence or a number above the largest signed integer.
    Key(&'static str),
    /// A text does not have the type of its tag.
    Tag {
        /// The tag, such as `!!int`.
        tag: &'static str,
        /// The text.
        text: String,
    },
    /// The value of a merge key `<<` is neither a mapping nor a sequence of mappings.
    Merge,
    /// An alias is inside the node of its own anchor.
    SelfReference,
    /// Aliases expand to a much larger or deeper document.
    Aliases,
    /// Mappings and sequences are nested too deeply.
    Depth,
    /// A number is infinity or NaN, which JSON does not have.
    NotFinite,
    /// A feature of YAML that [`parse_plain`](super::parse_plain) rejects, such as an anchor.
    NotPlain(&'static str),
    /// A mapping has a key twice, which only [`parse_plain`](super::parse_plain) rejects.
    Duplicate {
        /// The key.
        key: String,
        /// The line of the first one.
        line: NonZeroUsize,
    },
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(problem) => f.write_str(problem),
            Self::Separator(text) => {
                write!(f, "only a comment may follow the separator '---' on its line, not {text:?}")
            }
            Self::AfterEnd => f.write_str("after '...' the next document must begin with '---'"),
            Self::Key(what) => write!(f, "{what} cannot be a key"),
            Self::Tag { tag, text } => write!(f, "{text:?} is not a {tag}"),
            Self::Merge => f.write_str("the value of '<<' must be a mapping or a sequence of mappings"),
            Self::SelfReference => f.write_str("the alias is inside the node that it refers to"),
            Self::Aliases => write!(
                f,
                "the aliases expand to too large a document: at most {} MiB and {} levels are allowed",
                MAX_COPIED >> 20,
                MAX_HEIGHT
            ),
            Self::Depth => write!(f, "mappings and lists are nested more than {MAX_NESTING} levels deep"),
            Self::NotFinite => f.write_str("JSON has neither infinity nor NaN"),
            Self::NotPlain(what) => write!(f, "{what} is not allowed here"),
            Self::Duplicate { key, line } => write!(f, "the key {key:?} is already used in line {line}"),
        }
    }
}
