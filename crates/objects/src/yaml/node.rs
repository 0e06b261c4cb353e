//! Values with their places in the source.

use std::num::NonZeroUsize;

use serde_json::{Map, Number, Value};

/// A place in a text; lines and columns are counted from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

/// A value with its place. The value of an alias has the place of its anchor.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    /// The value.
    pub kind: NodeKind,
}

/// The value of a [`Node`].
#[derive(Clone, Debug, PartialEq)]
pub enum NodeKind {
    /// `null`, `~` or empty.
    Null,
    /// A boolean.
    Bool(bool),
    /// A number.
    Number(Number),
    /// A string.
    String(String),
    /// A sequence.
    Sequence(Vec<Node>),
    /// A mapping in the order of the text; of equal keys it contains only the last one, as in kubectl.
    Mapping(Vec<(Key, Node)>),
}

/// A key of a mapping with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The key as a string, as in JSON.
    pub text: String,
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    /// The line of an entry with the same key that this one replaces, unless a merge key `<<` is involved.
    pub replaces: Option<NonZeroUsize>,
}

impl Node {
    /// Returns the value without places.
    pub fn to_value(&self) -> Value {
        match &self.kind {
            NodeKind::Null => Value::Null,
            NodeKind::Bool(bool) => Value::Bool(*bool),
            NodeKind::Number(number) => Value::Number(number.clone()),
            NodeKind::String(text) => Value::from(text.as_str()),
            NodeKind::Sequence(items) => items.iter().map(Self::to_value).collect(),
            NodeKind::Mapping(entries) => {
                entries.iter().map(|(key, node)| (key.text.clone(), node.to_value())).collect::<Map<_, _>>().into()
            }
        }
    }

    /// Converts this to the value without places.
    pub fn into_value(self) -> Value {
        match self.kind {
            NodeKind::Null => Value::Null,
            NodeKind::Bool(bool) => Value::Bool(bool),
            NodeKind::Number(number) => Value::Number(number),
            NodeKind::String(text) => Value::String(text),
            NodeKind::Sequence(items) => items.into_iter().map(Self::into_value).collect(),
            NodeKind::Mapping(entries) => {
                entries.into_iter().map(|(key, node)| (key.text, node.into_value())).collect::<Map<_, _>>().into()
            }
        }
    }

    /// Returns the value of a key, or `None` if it is missing or this is not a mapping.
    pub fn get(&self, key: &str) -> Option<&Self> {
        match &self.kind {
            NodeKind::Mapping(entries) => entries.iter().find(|(k, _)| k.text == key).map(|(_, node)| node),
            _ => None,
        }
    }

    /// Returns the string, if this is one.
    pub fn as_str(&self) -> Option<&str> {
        if let NodeKind::String(text) = &self.kind { Some(text) } else { None }
    }
}
