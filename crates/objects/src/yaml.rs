//! YAML and JSON read the way kubectl reads them.
//!
//! kubectl splits a stream at lines that start with `---`, converts each document to JSON by the YAML 1.1 rules of its
//! YAML library (`y` is true, `0644` is octal, `1.0` is the integer 1, the last of two equal keys wins), and uses the
//! JSON. This module does the same, but keeps lines and columns for error messages. A text that starts with `{` is read
//! as JSON first, so it may contain several consecutive objects.

mod error;
mod limits;
mod node;
mod plain;
mod scalar;
mod tree;
mod write;

use serde_json::Value;

use self::tree::{Tree, read_document};
pub use self::{
    error::{Error, ErrorKind},
    node::{Key, Node, NodeKind, Place},
    write::write,
};

/// One document of a stream, as a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// The line of its first node, counted from 1.
    pub line: usize,
    /// The value; never null, as empty documents are dropped.
    pub value: Value,
}

/// Reads all documents of a stream as values, and drops empty ones.
///
/// # Errors
///
/// Fails at the first place that is not YAML or has no equivalent in JSON.
pub fn parse(text: &str) -> Result<Vec<Document>, Error> {
    let mut documents = Vec::new();
    for_each(text, |document| documents.push(document))?;
    Ok(documents)
}

/// Reads the documents of a stream one by one, so that only one is in memory, and drops empty ones.
///
/// # Errors
///
/// Fails at the first place that is not YAML or has no equivalent in JSON, after the documents before it.
pub fn for_each(text: &str, mut each: impl FnMut(Document)) -> Result<(), Error> {
    let text = without_bom(text);
    let rest = if looks_like_json(text) { read_json(text, &mut each) } else { Rest { at: 0, line: 0 } };
    read_stream(text, rest, |place, value: Value| each(Document { line: place.line, value }))
}

/// Reads all documents of a stream with the places of their values, and drops empty ones.
///
/// # Errors
///
/// Fails at the first place that is not YAML or has no equivalent in JSON.
pub fn parse_nodes(text: &str) -> Result<Vec<Node>, Error> {
    let mut nodes = Vec::new();
    let text = without_bom(text);
    let mut rest = Rest { at: 0, line: 0 };
    if looks_like_json(text) {
        // JSON is YAML: the JSON reader is only needed to find the end of each object.
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

/// Reads a text with a single document that has no anchors, aliases, merge keys, tags and duplicate keys, and returns it with
/// the places of its values; `None` if it is empty.
///
/// Parsers treat these features differently, so a text with them may mean one thing to the program that checks it and another
/// one to the program that uses it.
///
/// # Errors
///
/// Fails at the first such feature, at a second document, and at the first place that is not YAML or has no equivalent in
/// JSON.
pub fn parse_plain(text: &str) -> Result<Option<Node>, Error> {
    plain::check_features(without_bom(text))?;
    let mut nodes = parse_nodes(text)?.into_iter();
    let only = nodes.next();
    if let Some(Node { line, column, .. }) = nodes.next() {
        return Err(Error { place: Place { line, column }, kind: ErrorKind::NotPlain("a second document") });
    }
    only.iter().try_for_each(plain::check_keys)?;
    Ok(only)
}

/// The position at which reading continues: the byte, and the number of lines before it.
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

/// Reads the JSON objects at the beginning, and returns where other text starts, which may be YAML.
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

/// Turns floats without a fraction into integers, as kubectl does when it writes them as JSON.
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

/// Reads the documents between lines that start with `---`. Like kubectl, it ignores the context of these lines.
fn read_stream<T: Tree>(text: &str, rest: Rest, mut found: impl FnMut(Place, T)) -> Result<(), Error> {
    let mut read = |from: usize, to: usize, line: usize| -> Result<(), Error> {
        let document = text.get(from..to).unwrap_or_default();
        if document.bytes().all(|byte| matches!(byte, b' ' | b'\n' | b'\r')) {
            return Ok(());
        }
        let document = read_document(document, line)?;
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
