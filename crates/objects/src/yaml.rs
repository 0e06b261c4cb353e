//! YAML and JSON read the way kubectl reads them.
//!
//! kubectl splits a stream at lines that begin with `---`, turns each document into JSON by the rules of YAML 1.1 as
//! its YAML library has them (`y` is true, `0644` is octal, `1.0` is the integer 1, of two equal keys the last one
//! counts), and works with the JSON. So does this module; but it keeps lines and columns, for those who have to say
//! where a mistake is. A text that begins with `{` is read as JSON first: several objects may then follow each other.

mod scalar;
mod tree;

use std::fmt;

use serde_json::{Map, Number, Value};

use self::{
    scalar::Scalar,
    tree::{Tree, read_document},
};

/// One document of a stream, as a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// The line of its first node, counted from 1.
    pub line: usize,
    /// What it says; never null, as empty documents are dropped.
    pub value: Value,
}

/// A place in a text; both numbers are counted from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

/// A value and where it was written. A value that an alias stands for has the place of its anchor.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    /// What it is.
    pub kind: NodeKind,
}

/// What a [`Node`] is.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeKind {
    /// Nothing: `null`, `~` or empty.
    Null,
    /// A boolean.
    Bool(bool),
    /// A number.
    Number(Number),
    /// A text.
    String(String),
    /// A sequence.
    Sequence(Vec<Node>),
    /// A mapping in the order of the text; of equal keys only the last one is here.
    Mapping(Vec<(Key, Node)>),
}

/// A key of a mapping and where it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The key as JSON has it: always a text.
    pub text: String,
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
}

impl Node {
    /// The same value without its places.
    pub fn to_value(&self) -> Value {
        self.clone().into_value()
    }

    /// Drops the places.
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

    /// The value of a key; `None` where there is none or this is not a mapping.
    pub fn get(&self, key: &str) -> Option<&Self> {
        match &self.kind {
            NodeKind::Mapping(entries) => entries.iter().find(|(k, _)| k.text == key).map(|(_, node)| node),
            _ => None,
        }
    }

    /// The text, where this is one.
    pub fn as_str(&self) -> Option<&str> {
        if let NodeKind::String(text) = &self.kind { Some(text) } else { None }
    }
}

/// Why a text is not YAML, or not YAML that JSON could say, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("read YAML at line {}, column {}: {kind}", .place.line, .place.column)]
pub struct Error {
    /// Where.
    pub place: Place,
    /// Why.
    pub kind: ErrorKind,
}

/// What is wrong with a text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// It is not YAML; what the parser says.
    Syntax(String),
    /// Something other than a comment follows `---` on its line.
    Separator(String),
    /// After `...` something follows that no `---` begins.
    AfterEnd,
    /// A null, a mapping, a sequence or a number above the largest signed one as a key.
    Key(&'static str),
    /// A text that is not what its tag says.
    Tag {
        /// The tag, such as `!!int`.
        tag: &'static str,
        /// The text.
        text: String,
    },
    /// The value of a merge key `<<` is neither a mapping nor a sequence of mappings.
    Merge,
    /// An alias inside the node that its own anchor names.
    SelfReference,
    /// Aliases make much more of the document than it says itself.
    Aliases,
    /// Infinity or not-a-number, which JSON does not have.
    NotFinite,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(problem) => f.write_str(problem),
            Self::Separator(text) => {
                write!(f, "only a comment may follow the separator '---' on its line, not {text:?}")
            }
            Self::AfterEnd => f.write_str("after '...' a document has to begin with '---'"),
            Self::Key(what) => write!(f, "{what} cannot be a key"),
            Self::Tag { tag, text } => write!(f, "{text:?} is not a {tag}"),
            Self::Merge => f.write_str("the value of '<<' has to be a mapping or a sequence of mappings"),
            Self::SelfReference => f.write_str("an alias stands inside the node that it refers to"),
            Self::Aliases => f.write_str("the aliases make too much of the document"),
            Self::NotFinite => f.write_str("JSON has no infinity and no not-a-number"),
        }
    }
}

/// Reads all documents of a stream as values, dropping the empty ones.
///
/// # Errors
///
/// At the first place that is not YAML, or that JSON could not say.
pub fn parse(text: &str) -> Result<Vec<Document>, Error> {
    let mut documents = Vec::new();
    for_each(text, |document| documents.push(document))?;
    Ok(documents)
}

/// Reads all documents of a stream one by one, dropping the empty ones: only one of them is held at a time.
///
/// # Errors
///
/// At the first place that is not YAML, or that JSON could not say; the documents before it have been handed on.
pub fn for_each(text: &str, mut each: impl FnMut(Document)) -> Result<(), Error> {
    let text = without_bom(text);
    let rest = if looks_like_json(text) { read_json(text, &mut each) } else { Rest { at: 0, line: 0 } };
    read_stream(text, rest, |place, value: Value| each(Document { line: place.line, value }))
}

/// Reads all documents of a stream with the places of everything in them, dropping the empty ones.
///
/// # Errors
///
/// At the first place that is not YAML, or that JSON could not say.
pub fn parse_nodes(text: &str) -> Result<Vec<Node>, Error> {
    let mut nodes = Vec::new();
    let text = without_bom(text);
    let mut rest = Rest { at: 0, line: 0 };
    if looks_like_json(text) {
        // JSON is YAML: only where each object ends has to come from the JSON reader.
        let mut objects = serde_json::Deserializer::from_str(text).into_iter::<serde::de::IgnoredAny>();
        while let Some(Ok(_)) = objects.next() {
            let end = objects.byte_offset();
            let piece = text.get(rest.at..end).unwrap_or_default();
            nodes.extend(read_document::<Node>(piece, rest.line)?.map(|(_, node)| node));
            rest = Rest { at: end, line: rest.line + line_breaks(piece) };
        }
    }
    read_stream(text, rest, |_, node| nodes.push(node))?;
    Ok(nodes)
}

/// Where in a text reading goes on: the byte, and the lines before it.
struct Rest {
    at: usize,
    line: usize,
}

fn without_bom(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

fn looks_like_json(text: &str) -> bool {
    text.trim_start().starts_with('{')
}

fn line_breaks(text: &str) -> usize {
    text.bytes().filter(|byte| *byte == b'\n').count()
}

/// Reads the JSON objects at the beginning, and says where something else begins, which may then be YAML.
fn read_json(text: &str, each: &mut impl FnMut(Document)) -> Rest {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let mut rest = Rest { at: 0, line: 0 };
    while let Some(Ok(mut value)) = values.next() {
        let end = values.byte_offset();
        let piece = text.get(rest.at..end).unwrap_or_default();
        let blank = piece.len() - piece.trim_start().len();
        let line = 1 + rest.line + line_breaks(&piece[..blank]);
        shorten_floats(&mut value);
        if !value.is_null() {
            each(Document { line, value });
        }
        rest = Rest { at: end, line: rest.line + line_breaks(piece) };
    }
    rest
}

/// Turns floats without a fraction into integers, which is what they are once kubectl has written them as JSON.
fn shorten_floats(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(float) = number.as_f64().filter(|_| number.is_f64())
                && let Some(short) = scalar::number(float)
            {
                *number = short;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(shorten_floats),
        Value::Object(entries) => entries.values_mut().for_each(shorten_floats),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// Reads the documents between the lines that begin with `---`, whatever stands around these lines, as kubectl does.
fn read_stream<T: Tree>(text: &str, rest: Rest, mut found: impl FnMut(Place, T)) -> Result<(), Error> {
    let mut read = |from: usize, to: usize, line: usize| -> Result<(), Error> {
        let document = read_document(text.get(from..to).unwrap_or_default(), line)?;
        if let Some((place, tree)) = document {
            found(place, tree);
        }
        Ok(())
    };
    let (mut start, mut start_line) = (rest.at, rest.line);
    let (mut at, mut line) = (rest.at, rest.line);
    for row in text.get(rest.at..).unwrap_or_default().split_inclusive('\n') {
        if let Some(after) = row.strip_prefix("---") {
            read(start, at, start_line)?;
            let after = after.trim();
            if !after.is_empty() && !after.starts_with('#') {
                let place = Place { line: line + 1, column: 1 };
                return Err(Error { place, kind: ErrorKind::Separator(after.to_owned()) });
            }
            (start, start_line) = (at + row.len(), line + 1);
        }
        at += row.len();
        line += 1;
    }
    read(start, at, start_line)
}

impl Tree for Value {
    type Entries = Map<String, Value>;

    fn scalar(scalar: Scalar, _: Place) -> Self {
        match scalar {
            Scalar::Null => Self::Null,
            Scalar::Bool(bool) => Self::Bool(bool),
            Scalar::Int(int) => Self::from(int),
            Scalar::Uint(uint) => Self::from(uint),
            Scalar::Float(float) => scalar::number(float).map_or(Self::Null, Self::Number),
            Scalar::String(text) => Self::String(text),
        }
    }

    fn sequence(items: Vec<Self>, _: Place) -> Self {
        Self::Array(items)
    }

    fn mapping(entries: Self::Entries, _: Place) -> Self {
        Self::Object(entries)
    }

    fn insert(entries: &mut Self::Entries, key: Key, value: Self) {
        entries.insert(key.text, value);
    }

    fn merge(entries: &mut Self::Entries, from: Self) -> Result<(), Self> {
        match from {
            Self::Object(from) => {
                entries.extend(from);
                Ok(())
            }
            other => Err(other),
        }
    }

    fn items(self) -> Option<Vec<Self>> {
        if let Self::Array(items) = self { Some(items) } else { None }
    }
}

impl Tree for Node {
    type Entries = Vec<(Key, Node)>;

    fn scalar(scalar: Scalar, Place { line, column }: Place) -> Self {
        let kind = match scalar {
            Scalar::Null => NodeKind::Null,
            Scalar::Bool(bool) => NodeKind::Bool(bool),
            Scalar::Int(int) => NodeKind::Number(int.into()),
            Scalar::Uint(uint) => NodeKind::Number(uint.into()),
            Scalar::Float(float) => scalar::number(float).map_or(NodeKind::Null, NodeKind::Number),
            Scalar::String(text) => NodeKind::String(text),
        };
        Self { line, column, kind }
    }

    fn sequence(items: Vec<Self>, Place { line, column }: Place) -> Self {
        Self { line, column, kind: NodeKind::Sequence(items) }
    }

    fn mapping(entries: Self::Entries, Place { line, column }: Place) -> Self {
        let mut last = std::collections::HashMap::with_capacity(entries.len());
        for (index, (key, _)) in entries.iter().enumerate() {
            last.insert(key.text.clone(), index);
        }
        let kept = entries.into_iter().enumerate();
        let kept = kept.filter(|(index, (key, _))| last.get(&key.text) == Some(index)).map(|(_, entry)| entry);
        Self { line, column, kind: NodeKind::Mapping(kept.collect()) }
    }

    fn insert(entries: &mut Self::Entries, key: Key, value: Self) {
        entries.push((key, value));
    }

    fn merge(entries: &mut Self::Entries, from: Self) -> Result<(), Self> {
        match from.kind {
            NodeKind::Mapping(from) => {
                entries.extend(from);
                Ok(())
            }
            kind => Err(Self { kind, ..from }),
        }
    }

    fn items(self) -> Option<Vec<Self>> {
        if let NodeKind::Sequence(items) = self.kind { Some(items) } else { None }
    }
}
