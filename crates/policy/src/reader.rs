//! Reading a YAML tree field by field, and remembering every mistake on the way.
//!
//! A dialect takes a [`Cursor`] apart with `fields`, `items` and the like, and goes on after a mistake: each of these
//! has reported what is wrong when it returns nothing. So all mistakes of a document are found in one pass.

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
    found: RefCell<Vec<Diagnostic>>,
}

impl Report {
    /// An empty report on `file`.
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
        self.found.borrow_mut().push(Diagnostic {
            severity,
            file: Arc::clone(&self.file),
            line,
            column,
            path: path.to_owned(),
            problem: problem.into(),
            hint,
        });
    }

    /// All that was found.
    pub(crate) fn into_diagnostics(self) -> Diagnostics {
        Diagnostics::new(self.found.into_inner())
    }

    /// `value` with the warnings, or all errors where there are some. Beside errors, warnings would be noise.
    pub(crate) fn finish<T>(self, value: Option<T>) -> Result<(T, Diagnostics), Diagnostics> {
        let found = self.into_diagnostics();
        match value {
            Some(value) if !found.has_errors() => Ok((value, found)),
            _ => Err(Diagnostics::new(found.into_iter().filter(Diagnostic::is_error).collect())),
        }
    }
}

/// A place in the tree: a node, its path, and where to report what is wrong with it.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    report: &'a Report,
    node: &'a Node,
    path: String,
}

impl<'a> Cursor<'a> {
    /// The root of a document.
    pub(crate) fn root(report: &'a Report, node: &'a Node) -> Self {
        Self { report, node, path: String::new() }
    }

    /// The path from the root, such as `deletionGroups[1]`.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The node itself.
    pub(crate) fn node(&self) -> &'a Node {
        self.node
    }

    /// Reports an error here.
    pub(crate) fn error(&self, problem: impl Into<String>) {
        self.add(Severity::Error, problem, None);
    }

    /// Reports an error here, with how to mend it.
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

    /// Whether the node is `null`, written or left empty.
    pub(crate) fn is_null(&self) -> bool {
        matches!(self.node.kind, NodeKind::Null)
    }

    /// Whether the node is a mapping.
    pub(crate) fn is_mapping(&self) -> bool {
        matches!(self.node.kind, NodeKind::Mapping(_))
    }

    /// Whether the node is a string.
    pub(crate) fn is_text(&self) -> bool {
        matches!(self.node.kind, NodeKind::String(_))
    }

    fn wrong_type(&self, expected: &str) {
        let found = describe(self.node);
        let quote = expected.contains("string") && matches!(self.node.kind, NodeKind::Bool(_) | NodeKind::Number(_));
        let hint = quote.then(|| "put it in quotes".to_owned());
        self.add(Severity::Error, format!("expected {expected}, found {found}"), hint);
    }

    /// The fields of a mapping.
    pub(crate) fn fields(&self) -> Option<Fields<'a>> {
        let NodeKind::Mapping(entries) = &self.node.kind else {
            self.wrong_type("a mapping");
            return None;
        };
        Some(Fields { cursor: self.clone(), entries, known: Vec::new(), elsewhere: Vec::new(), missing: Vec::new() })
    }

    /// The value of a key; none where it is missing, `null`, or this is not a mapping.
    pub(crate) fn child(&self, name: &str) -> Option<Self> {
        let node = self.node.get(name)?;
        Some(Self { report: self.report, node, path: join(&self.path, name) }).filter(|cursor| !cursor.is_null())
    }

    /// The entries of a mapping whose keys are free.
    pub(crate) fn entries(&self) -> Vec<(&'a str, Cursor<'a>)> {
        let NodeKind::Mapping(entries) = &self.node.kind else {
            self.wrong_type("a mapping");
            return Vec::new();
        };
        let cursor = |node, key: &str| Cursor { report: self.report, node, path: join(&self.path, key) };
        entries.iter().map(|(key, node)| (key.text.as_str(), cursor(node, &key.text))).collect()
    }

    /// The items of a list.
    pub(crate) fn items(&self) -> Option<Vec<Cursor<'a>>> {
        let NodeKind::Sequence(items) = &self.node.kind else {
            self.wrong_type("a list");
            return None;
        };
        let cursor = |(index, node)| Cursor { report: self.report, node, path: format!("{}[{index}]", self.path) };
        Some(items.iter().enumerate().map(cursor).collect())
    }

    /// The items of a list that must not be empty.
    pub(crate) fn items_not_empty(&self, hint: &str) -> Option<Vec<Cursor<'a>>> {
        let items = self.items()?;
        if items.is_empty() {
            self.error_with("the list is empty", hint);
            return None;
        }
        Some(items)
    }

    /// A string that is not empty.
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

    /// A list of strings.
    pub(crate) fn texts(&self) -> Vec<String> {
        let items = self.items().unwrap_or_default();
        items.iter().filter_map(Cursor::text).map(str::to_owned).collect()
    }

    /// The strings of a mapping whose keys are free; they may be empty.
    pub(crate) fn text_entries(&self) -> BTreeMap<String, String> {
        let text = |value: &Cursor<'a>| match value.node.as_str() {
            Some("") => Some(""),
            _ => value.text(),
        };
        self.entries().iter().filter_map(|(key, value)| Some(((*key).to_owned(), text(value)?.to_owned()))).collect()
    }

    /// A mapping of anything.
    pub(crate) fn object(&self) -> Option<Value> {
        self.fields().map(|_| self.node.to_value())
    }

    /// An `apiVersion`.
    pub(crate) fn api_version(&self) -> Option<ApiVersion> {
        ApiVersion::parse(self.text()?)
            .map_err(|_| self.error("expected VERSION or GROUP/VERSION, such as v1 or apps/v1"))
            .ok()
    }

    /// A JSONPath.
    pub(crate) fn json_path(&self) -> Option<JsonPath> {
        JsonPath::parse(self.text()?).map_err(|error| self.error(format!("not a JSONPath: {}", error.problem()))).ok()
    }

    /// A boolean.
    pub(crate) fn boolean(&self) -> Option<bool> {
        if let NodeKind::Bool(value) = self.node.kind {
            return Some(value);
        }
        self.wrong_type("true or false");
        None
    }

    /// A whole number.
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

    /// A duration in Go's syntax.
    pub(crate) fn duration(&self) -> Option<GoDuration> {
        let NodeKind::String(text) = &self.node.kind else {
            // `0` needs no unit, and YAML reads it as a number.
            if matches!(&self.node.kind, NodeKind::Number(number) if number.as_i64() == Some(0)) {
                return Some(GoDuration::default());
            }
            self.wrong_type("a duration such as 90s, 5m or 1h30m");
            return None;
        };
        text.parse()
            .map_err(|error: DurationError| self.error(format!("{}, found {text:?}", error.problem())))
            .ok()
    }

    /// A duration that may be `none`, as Landscaper's `Duration` writes a zero; both are none here.
    pub(crate) fn duration_or_none(&self) -> Option<GoDuration> {
        if self.node.as_str() == Some("none") {
            return None;
        }
        self.duration().filter(|duration| *duration != GoDuration::default())
    }

    /// A duration above zero.
    pub(crate) fn duration_above_zero(&self) -> Option<GoDuration> {
        let duration = self.duration()?;
        if duration == GoDuration::default() {
            self.error_with("the duration is zero", "leave the field out for no limit of its own");
            return None;
        }
        Some(duration)
    }

    /// One of several words.
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

/// What a node is, in words.
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

/// The fields of a mapping; `finish` reports those that nobody asked for.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    cursor: Cursor<'a>,
    entries: &'a [(Key, Node)],
    known: Vec<&'static str>,
    elsewhere: Vec<(&'static str, &'static str)>,
    missing: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    /// The mapping itself.
    pub(crate) fn here(&self) -> &Cursor<'a> {
        &self.cursor
    }

    /// Whether a field is there and not `null`. Does not make the field known.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.entries.iter().any(|(key, node)| key.text == name && !matches!(node.kind, NodeKind::Null))
    }

    /// The value of a field, `null` included.
    pub(crate) fn raw(&mut self, name: &'static str) -> Option<Cursor<'a>> {
        self.ignore(name);
        let (_, node) = self.entries.iter().find(|(key, _)| key.text == name)?;
        Some(Cursor { report: self.cursor.report, node, path: join(&self.cursor.path, name) })
    }

    /// The value of a field; none where it is missing or `null`.
    pub(crate) fn get(&mut self, name: &'static str) -> Option<Cursor<'a>> {
        self.raw(name).filter(|cursor| !cursor.is_null())
    }

    /// The value of a field; none where it is missing, `null` or an empty string, all of which are the same to
    /// Landscaper.
    pub(crate) fn filled(&mut self, name: &'static str) -> Option<Cursor<'a>> {
        self.get(name).filter(|cursor| cursor.node.as_str() != Some(""))
    }

    /// The text of a field, where it is [filled](Self::filled).
    pub(crate) fn filled_text(&mut self, name: &'static str) -> Option<String> {
        self.filled(name)?.text().map(str::to_owned)
    }

    /// The value of a boolean field; false where it is missing.
    pub(crate) fn flag(&mut self, name: &'static str) -> bool {
        self.get(name).and_then(|cursor| cursor.boolean()).unwrap_or_default()
    }

    /// The items of a list; none where it is missing.
    pub(crate) fn list(&mut self, name: &'static str) -> Vec<Cursor<'a>> {
        self.get(name).and_then(|cursor| cursor.items()).unwrap_or_default()
    }

    /// The value of a field that must be there; `finish` reports it where it is not.
    pub(crate) fn required(&mut self, name: &'static str) -> Option<Cursor<'a>> {
        let found = self.get(name);
        if found.is_none() {
            self.missing.push(name);
        }
        found
    }

    /// Makes a field known without looking at it.
    pub(crate) fn ignore(&mut self, name: &'static str) {
        if !self.known.contains(&name) {
            self.known.push(name);
        }
    }

    /// Fields that people put here although they belong elsewhere: `hint` says where.
    pub(crate) fn elsewhere(&mut self, names: &[&'static str], hint: &'static str) {
        self.elsewhere.extend(names.iter().map(|name| (*name, hint)));
    }

    /// Reports unknown, misplaced and missing fields, and says how many there were.
    pub(crate) fn finish(self) -> usize {
        let mut reported = 0;
        for name in &self.missing {
            // A field that is misspelt is reported as such, and not as a missing one too.
            let misspelt = |key: &Key| !self.known.contains(&key.text.as_str()) && self.meant(&key.text) == Some(name);
            if !self.entries.iter().any(|(key, _)| misspelt(key)) {
                reported += 1;
                self.cursor.error(format!("missing field {name:?}"));
            }
        }
        for (key, _) in self.entries {
            let text = key.text.as_str();
            let (problem, hint) = if let Some((_, hint)) = self.elsewhere.iter().find(|(name, _)| *name == text) {
                (format!("field {text:?} is not possible here"), Some((*hint).to_owned()))
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
        match self.meant(text) {
            Some(name) => (format!("unknown field {text:?}; did you mean {name:?}?"), None),
            None => (format!("unknown field {text:?}"), Some(format!("known fields: {}", self.known.join(", ")))),
        }
    }
}

fn join(path: &str, field: &str) -> String {
    if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") }
}
