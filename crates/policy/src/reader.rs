//! Reads a YAML tree field by field and collects every mistake.
//!
//! A dialect reads a [`Cursor`] with `fields`, `items` and the like. Each of these reports a mistake before it returns
//! nothing, so the dialect can continue and one pass finds all mistakes of a document.

use std::{cell::RefCell, collections::BTreeMap, sync::Arc};

use billhook_objects::{
    ApiVersion, JsonPath,
    yaml::{Key, Node, NodeKind},
};
use serde_json::Value;

use crate::{
    DurationError, GoDuration,
    diagnostic::{Diagnostic, Diagnostics, Severity, nearest},
};

/// Collects the diagnostics of one file.
#[derive(Debug)]
pub(crate) struct Report {
    file: Arc<str>,
    found: RefCell<Diagnostics>,
}

impl Report {
    /// Creates an empty report on `file`.
    pub(crate) fn new(file: &Arc<str>) -> Self {
        Self { file: Arc::clone(file), found: RefCell::default() }
    }

    /// Adds a diagnostic.
    pub(crate) fn add(
        &self,
        severity: Severity,
        (line, column): (usize, usize),
        path: &str,
        problem: impl Into<String>,
        hint: Option<String>,
    ) {
        self.found.borrow_mut().add(severity, || Diagnostic {
            severity,
            file: Arc::clone(&self.file),
            line,
            column,
            path: shortened(path.to_owned()),
            problem: shortened(problem.into()),
            hint: hint.map(shortened),
        });
    }

    /// Returns whether a mistake was found.
    pub(crate) fn has_found(&self) -> bool {
        self.found.borrow().has_errors()
    }

    /// Returns whether further errors are only counted.
    fn is_full(&self) -> bool {
        self.found.borrow().is_full(Severity::Error)
    }

    /// Returns all diagnostics.
    pub(crate) fn into_diagnostics(self) -> Diagnostics {
        self.found.into_inner().sorted()
    }

    /// Returns `value` with the warnings, or only the errors if there are any, so that warnings do not hide them.
    pub(crate) fn finish<T>(self, value: Option<T>) -> Result<(T, Diagnostics), Diagnostics> {
        let found = self.into_diagnostics();
        match value {
            Some(value) if !found.has_errors() => Ok((value, found)),
            _ => Err(found.without_warnings()),
        }
    }
}

/// A node of the tree with its path and the report for its mistakes.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    report: &'a Report,
    node: &'a Node,
    path: String,
}

impl<'a> Cursor<'a> {
    /// Creates a cursor at the root of a document.
    pub(crate) fn root(report: &'a Report, node: &'a Node) -> Self {
        Self { report, node, path: String::new() }
    }

    /// Returns the path from the root, such as `deletionGroups[1]`.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Returns the node itself.
    pub(crate) fn node(&self) -> &'a Node {
        self.node
    }

    /// Reports an error here.
    pub(crate) fn error(&self, problem: impl Into<String>) {
        self.add(Severity::Error, problem, None);
    }

    /// Reports an error here, with a hint how to fix it.
    pub(crate) fn error_with(&self, problem: impl Into<String>, hint: impl Into<String>) {
        self.add(Severity::Error, problem, Some(hint.into()));
    }

    /// Reports a warning here.
    pub(crate) fn warn(&self, problem: impl Into<String>, hint: Option<&str>) {
        self.add(Severity::Warning, problem, hint.map(str::to_owned));
    }

    fn add(&self, severity: Severity, problem: impl Into<String>, hint: Option<String>) {
        self.report.add(severity, (self.node.line, self.node.column), &self.path, problem, hint);
    }

    /// Returns whether the node is `null` or empty.
    pub(crate) fn is_null(&self) -> bool {
        matches!(self.node.kind, NodeKind::Null)
    }

    /// Returns whether the node is a mapping.
    pub(crate) fn is_mapping(&self) -> bool {
        matches!(self.node.kind, NodeKind::Mapping(_))
    }

    /// Returns whether the node is a string.
    pub(crate) fn is_text(&self) -> bool {
        matches!(self.node.kind, NodeKind::String(_))
    }

    fn wrong_type(&self, expected: &str) {
        if self.report.is_full() {
            return self.error("");
        }
        let found = describe(self.node);
        let quote = expected.contains("string") && matches!(self.node.kind, NodeKind::Bool(_) | NodeKind::Number(_));
        let hint = quote.then(|| "put it in quotes".to_owned());
        self.add(Severity::Error, format!("expected {expected}, found {found}"), hint);
    }

    /// Reads a mapping with known fields.
    pub(crate) fn fields(&self) -> Option<Fields<'a>> {
        let NodeKind::Mapping(entries) = &self.node.kind else {
            self.wrong_type("a mapping");
            return None;
        };
        Some(Fields { cursor: self.clone(), entries, known: Vec::new(), elsewhere: Vec::new(), missing: Vec::new() })
    }

    /// Returns the value of a key, or `None` if it is missing or `null`, or if this is not a mapping.
    pub(crate) fn child(&self, name: &str) -> Option<Self> {
        let node = self.node.get(name)?;
        Some(Self { report: self.report, node, path: join(&self.path, name) }).filter(|cursor| !cursor.is_null())
    }

    /// Reads a mapping with arbitrary keys.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&'a str, Cursor<'a>)> {
        let entries = match &self.node.kind {
            NodeKind::Mapping(entries) => &entries[..],
            _ => {
                self.wrong_type("a mapping");
                &[]
            }
        };
        entries.iter().map(move |(key, node)| {
            self.check_repeated(key);
            (key.text.as_str(), Cursor { report: self.report, node, path: join(&self.path, &key.text) })
        })
    }

    /// Reports a key that is given twice, where kubectl would use the last value.
    fn check_repeated(&self, key: &Key) -> bool {
        if let Some(line) = key.replaces {
            let problem = format!("field {:?} is set twice, first in line {line}", key.text);
            let hint = Some("remove one of the two".to_owned());
            self.report.add(Severity::Error, (key.line, key.column), &self.path, problem, hint);
        }
        key.replaces.is_some()
    }

    /// Reads a list.
    pub(crate) fn items(&self) -> Option<Items<'a>> {
        let NodeKind::Sequence(items) = &self.node.kind else {
            self.wrong_type("a list");
            return None;
        };
        Some(Items { list: Some(self.clone()), items: items.iter().enumerate() })
    }

    /// Reads a list that must not be empty.
    pub(crate) fn items_not_empty(&self, hint: &str) -> Option<Items<'a>> {
        let items = self.items()?;
        if items.len() == 0 {
            self.error_with("the list is empty", hint);
            return None;
        }
        Some(items)
    }

    /// Reads a string that must not be empty.
    pub(crate) fn text(&self) -> Option<&'a str> {
        match &self.node.kind {
            NodeKind::String(text) if text.is_empty() => {
                self.error("the string is empty");
                None
            }
            NodeKind::String(text) => Some(text),
            _ => {
                self.wrong_type("a string");
                None
            }
        }
    }

    /// Reads a list of strings.
    pub(crate) fn texts(&self) -> Vec<String> {
        self.items().unwrap_or_default().filter_map(|item| item.text()).map(str::to_owned).collect()
    }

    /// Reads a mapping with arbitrary keys and string values, which may be empty.
    pub(crate) fn text_entries(&self) -> BTreeMap<String, String> {
        let text = |value: &Cursor<'a>| match value.node.as_str() {
            Some("") => Some(""),
            _ => value.text(),
        };
        self.entries().filter_map(|(key, value)| Some((key.to_owned(), text(&value)?.to_owned()))).collect()
    }

    /// Reads a mapping with any content.
    pub(crate) fn object(&self) -> Option<Value> {
        self.fields().map(|_| self.node.to_value())
    }

    /// Reads an `apiVersion`.
    pub(crate) fn api_version(&self) -> Option<ApiVersion> {
        ApiVersion::parse(self.text()?)
            .map_err(|_| self.error("expected VERSION or GROUP/VERSION, such as v1 or apps/v1"))
            .ok()
    }

    /// Reads a JSONPath.
    pub(crate) fn json_path(&self) -> Option<JsonPath> {
        const LONGEST: usize = 4096;
        let text = self.text()?;
        if text.len() > LONGEST {
            self.error(format!("the JSONPath is longer than {LONGEST} bytes"));
            return None;
        }
        JsonPath::parse(text).map_err(|error| self.error(format!("invalid JSONPath: {}", error.problem()))).ok()
    }

    /// Reads a boolean.
    pub(crate) fn boolean(&self) -> Option<bool> {
        if let NodeKind::Bool(value) = self.node.kind {
            return Some(value);
        }
        self.wrong_type("true or false");
        None
    }

    /// Reads an integer.
    pub(crate) fn integer(&self) -> Option<i64> {
        let value = match &self.node.kind {
            NodeKind::Number(number) => number.as_i64(),
            _ => None,
        };
        if value.is_none() {
            self.wrong_type("a whole number");
        }
        value
    }

    /// Reads a duration in Go's syntax.
    pub(crate) fn duration(&self) -> Option<GoDuration> {
        let NodeKind::String(text) = &self.node.kind else {
            // `0` needs no unit, so YAML reads it as a number.
            if matches!(&self.node.kind, NodeKind::Number(number) if number.as_i64() == Some(0)) {
                return Some(GoDuration::default());
            }
            self.wrong_type("a duration such as 90s, 5m or 1h30m");
            return None;
        };
        text.parse().map_err(|error: DurationError| self.error(format!("{}, found {text:?}", error.problem()))).ok()
    }

    /// Reads a duration. Returns `None` for zero and for `none`, which is how Landscaper's `Duration` writes zero.
    pub(crate) fn duration_or_none(&self) -> Option<GoDuration> {
        if self.node.as_str() == Some("none") {
            return None;
        }
        self.duration().filter(|duration| *duration != GoDuration::default())
    }

    /// Reads a duration above zero.
    pub(crate) fn duration_above_zero(&self) -> Option<GoDuration> {
        let duration = self.duration()?;
        if duration == GoDuration::default() {
            self.error_with("the duration is zero", "omit the field for no separate limit");
            return None;
        }
        Some(duration)
    }

    /// Reads one of several words.
    pub(crate) fn one_of<T: Copy>(&self, values: &[(&str, T)]) -> Option<T> {
        let text = self.text()?;
        let found = values.iter().find(|(name, _)| *name == text);
        if found.is_none() {
            let names = || values.iter().map(|(name, _)| *name);
            let meant = nearest(text, names()).map(|name| format!("; did you mean {name:?}?")).unwrap_or_default();
            let all = names().collect::<Vec<_>>().join(", ");
            self.error_with(format!("unknown value {text:?}{meant}"), format!("possible values: {all}"));
        }
        found.map(|(_, value)| *value)
    }
}

/// The items of a list, each with a cursor of its own that is made when it is needed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Items<'a> {
    list: Option<Cursor<'a>>,
    items: std::iter::Enumerate<std::slice::Iter<'a, Node>>,
}

impl<'a> Iterator for Items<'a> {
    type Item = Cursor<'a>;

    fn next(&mut self) -> Option<Cursor<'a>> {
        let (list, (index, node)) = (self.list.as_ref()?, self.items.next()?);
        Some(Cursor { report: list.report, node, path: format!("{}[{index}]", list.path) })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.items.size_hint()
    }
}

impl ExactSizeIterator for Items<'_> {}

/// Names the type of a node.
fn describe(node: &Node) -> &'static str {
    match node.kind {
        NodeKind::Null => "nothing",
        NodeKind::Bool(_) => "a boolean",
        NodeKind::Number(_) => "a number",
        NodeKind::String(_) => "a string",
        NodeKind::Sequence(_) => "a list",
        NodeKind::Mapping(_) => "a mapping",
    }
}

/// The fields of a mapping; `finish` reports those that were not read.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    cursor: Cursor<'a>,
    entries: &'a [(Key, Node)],
    known: Vec<&'static str>,
    elsewhere: Vec<(&'static str, &'static str)>,
    missing: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    /// Returns the mapping itself.
    pub(crate) fn here(&self) -> &Cursor<'a> {
        &self.cursor
    }

    /// Returns whether a field is present and not `null`, without making it a known field.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.entries.iter().any(|(key, node)| key.text == name && !matches!(node.kind, NodeKind::Null))
    }

    /// Returns the value of a field, which may be `null`.
    pub(crate) fn raw(&mut self, name: &'static str) -> Option<Cursor<'a>> {
        self.ignore(name);
        let (_, node) = self.entries.iter().find(|(key, _)| key.text == name)?;
        Some(Cursor { report: self.cursor.report, node, path: join(&self.cursor.path, name) })
    }

    /// Returns the value of a field, or `None` if it is missing or `null`.
    pub(crate) fn get(&mut self, name: &'static str) -> Option<Cursor<'a>> {
        self.raw(name).filter(|cursor| !cursor.is_null())
    }

    /// Returns the value of a field like [`get`](Self::get), but makes it a known field only if it is set, so that hints do
    /// not suggest it.
    pub(crate) fn get_unlisted(&mut self, name: &'static str) -> Option<Cursor<'a>> {
        if self.has(name) { self.get(name) } else { None }
    }

    /// Returns the value of a field, or `None` if it is missing, `null` or an empty string, which Landscaper treats
    /// alike.
    pub(crate) fn filled(&mut self, name: &'static str) -> Option<Cursor<'a>> {
        self.get(name).filter(|cursor| cursor.node.as_str() != Some(""))
    }

    /// Returns the text of a field that is [filled](Self::filled).
    pub(crate) fn filled_text(&mut self, name: &'static str) -> Option<String> {
        self.filled(name)?.text().map(str::to_owned)
    }

    /// Returns the value of a boolean field; false if it is missing.
    pub(crate) fn flag(&mut self, name: &'static str) -> bool {
        self.get(name).and_then(|cursor| cursor.boolean()).unwrap_or_default()
    }

    /// Returns the items of a list; none if it is missing.
    pub(crate) fn list(&mut self, name: &'static str) -> Items<'a> {
        self.get(name).and_then(|cursor| cursor.items()).unwrap_or_default()
    }

    /// Returns the value of a required field; `finish` reports it if it is missing.
    pub(crate) fn required(&mut self, name: &'static str) -> Option<Cursor<'a>> {
        let found = self.get(name);
        if found.is_none() {
            self.missing.push(name);
        }
        found
    }

    /// Makes a field known without reading it.
    pub(crate) fn ignore(&mut self, name: &'static str) {
        if !self.known.contains(&name) {
            self.known.push(name);
        }
    }

    /// Registers fields that belong elsewhere, with a hint where.
    pub(crate) fn elsewhere(&mut self, names: &[&'static str], hint: &'static str) {
        self.elsewhere.extend(names.iter().map(|name| (*name, hint)));
    }

    /// Reports unknown, misplaced, repeated and missing fields, and returns their number.
    pub(crate) fn finish(self) -> usize {
        let mut reported = 0;
        for name in &self.missing {
            // A misspelt field is reported as unknown, and not also as missing. Names are only compared as long as the
            // mistakes are listed, because this is slow.
            let meant = |key: &Key| self.cursor.report.is_full() || self.meant(&key.text) == Some(name);
            let misspelt = |key: &Key| !self.known.contains(&key.text.as_str()) && meant(key);
            if !self.entries.iter().any(|(key, _)| misspelt(key)) {
                reported += 1;
                self.cursor.error(format!("missing field {name:?}"));
            }
        }
        for (key, _) in self.entries {
            let text = key.text.as_str();
            reported += usize::from(self.cursor.check_repeated(key));
            let (problem, hint) = if let Some((_, hint)) = self.elsewhere.iter().find(|(name, _)| *name == text) {
                (format!("field {text:?} is not allowed here"), Some((*hint).to_owned()))
            } else if !self.known.contains(&text) {
                self.unknown(text)
            } else {
                continue;
            };
            reported += 1;
            self.cursor.report.add(Severity::Error, (key.line, key.column), &self.cursor.path, problem, hint);
        }
        reported
    }

    fn meant(&self, text: &str) -> Option<&'static str> {
        nearest(text, self.known.iter().copied())
    }

    fn unknown(&self, text: &str) -> (String, Option<String>) {
        if self.cursor.report.is_full() {
            return Default::default();
        }
        match self.meant(text) {
            Some(name) => (format!("unknown field {text:?}; did you mean {name:?}?"), None),
            None => (format!("unknown field {text:?}"), Some(format!("known fields: {}", self.known.join(", ")))),
        }
    }
}

fn join(path: &str, field: &str) -> String {
    if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") }
}

/// Cuts the text of a diagnostic, which may contain any text of the document.
fn shortened(text: String) -> String {
    const LONGEST: usize = 1000;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
