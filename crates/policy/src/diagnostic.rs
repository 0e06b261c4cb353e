//! Mistakes in a policy, with their path and their line in the source.

use std::{fmt, sync::Arc};

/// The severity of a [`Diagnostic`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The document is invalid and cannot be used.
    Error,
    /// The document is valid, but may not have the effect that its author expects.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
        })
    }
}

/// An error or warning about a place in a source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// The file as the user named it.
    pub file: Arc<str>,
    /// The line, counted from 1.
    pub line: usize,
    /// The column, counted from 1.
    pub column: usize,
    /// The path in the document, such as `deletionGroups[1].customResourceGroup`; empty for the document itself.
    pub path: String,
    /// The problem, as a lower-case fragment.
    pub problem: String,
    /// How to fix it.
    pub hint: Option<String>,
}

impl Diagnostic {
    /// Returns whether this makes the document invalid.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// Returns `PATH: problem (hint)`, the form for documents that are not files, such as objects in a cluster.
    pub fn at_path(&self) -> String {
        if self.path.is_empty() { self.message() } else { format!("{}: {}", self.path, self.message()) }
    }

    fn message(&self) -> String {
        match &self.hint {
            Some(hint) => format!("{} ({hint})", self.problem),
            None => self.problem.clone(),
        }
    }

    /// Renders the diagnostic with an excerpt of its line and a mark below the place, like a compiler.
    fn render(&self, line: Option<&str>) -> String {
        // The texts may quote the source, which must not begin a line.
        let one_line = |text: &str| text.replace('\n', "\\n");
        let number = self.line.to_string();
        let margin = " ".repeat(number.len());
        let (severity, file, problem) = (self.severity, &self.file, one_line(&self.problem));
        let mut out = format!("{severity}: {problem}\n{margin}--> {file}:{}:{}\n", self.line, self.column);
        if let Some(line) = line {
            let (text, column) = excerpt(line, self.column);
            out += &format!("{margin} |\n{number} | {text}\n{margin} | {}\n", mark(&text, column));
        }
        if !self.path.is_empty() {
            out += &format!("{margin} = at: {}\n", one_line(&self.path));
        }
        if let Some(hint) = &self.hint {
            out += &format!("{margin} = help: {}\n", one_line(hint));
        }
        out
    }
}

/// Returns at most 160 characters of a line around a column, and the column in them. `…` replaces what is cut.
fn excerpt(line: &str, column: usize) -> (String, usize) {
    const WIDTH: usize = 158;
    let cut_after = |text: &str| text.char_indices().nth(WIDTH).map(|(end, _)| end);
    let skipped = if cut_after(line).is_some() { column.saturating_sub(WIDTH / 2) } else { 0 };
    let mut rest = line.chars();
    if skipped > 0 {
        rest.nth(skipped - 1);
    }
    let (start, rest) = (if skipped > 0 { "…" } else { "" }, rest.as_str());
    let text = match cut_after(rest) {
        Some(end) => format!("{start}{}…", &rest[..end]),
        None => format!("{start}{rest}"),
    };
    (text, column - skipped + start.chars().count())
}

/// Returns the `^^^` below the word that begins at `column`.
fn mark(text: &str, column: usize) -> String {
    let start = column.saturating_sub(1);
    // Tabs are kept, so that the mark is below its word whatever the width of a tab.
    let indent: String = text.chars().take(start).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
    let word = text.chars().skip(start).take_while(|c| !c.is_whitespace() && !matches!(c, ':' | ',' | ']' | '}'));
    indent + &"^".repeat(word.count().max(1))
}

/// Prints `FILE:LINE:COL: PATH: problem (hint)`, with `warning: ` before the problem of a warning.
impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: ", self.file, self.line, self.column)?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        if self.severity == Severity::Warning {
            f.write_str("warning: ")?;
        }
        f.write_str(&self.message())
    }
}

/// The diagnostics of a document in the order of its lines: up to [`LISTED`](Self::LISTED) errors and as many warnings.
/// The others are only counted, so that the number of mistakes does not determine the memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostics {
    listed: Vec<Diagnostic>,
    errors: usize,
    warnings: usize,
}

impl Diagnostics {
    /// The number of errors, and of warnings, that are listed.
    pub const LISTED: usize = 100;

    /// Adds a diagnostic, or counts it if enough are listed.
    pub(crate) fn add(&mut self, severity: Severity, diagnostic: impl FnOnce() -> Diagnostic) {
        if !self.is_full(severity) {
            self.listed.push(diagnostic());
        }
        match severity {
            Severity::Error => self.errors += 1,
            Severity::Warning => self.warnings += 1,
        }
    }

    /// Returns whether further diagnostics of this severity are only counted.
    pub(crate) fn is_full(&self, severity: Severity) -> bool {
        let count = if severity == Severity::Error { self.errors } else { self.warnings };
        count >= Self::LISTED
    }

    /// Sorts the diagnostics by their place.
    pub(crate) fn sorted(mut self) -> Self {
        self.listed.sort_by_key(|found| (found.line, found.column, found.severity));
        self
    }

    /// Removes the warnings.
    pub(crate) fn without_warnings(mut self) -> Self {
        self.listed.retain(Diagnostic::is_error);
        Self { warnings: 0, ..self }
    }

    /// Returns whether there are no diagnostics.
    pub fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// Returns whether any diagnostic is an error.
    pub fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// Returns the number of errors, with those that are not listed.
    pub fn errors(&self) -> usize {
        self.errors
    }

    /// Returns the number of warnings, with those that are not listed.
    pub fn warnings(&self) -> usize {
        self.warnings
    }

    /// Returns how many diagnostics are not listed, as a text such as `19900 more errors`; `None` if all are listed.
    pub fn more(&self) -> Option<String> {
        let counts = [(self.errors, "error"), (self.warnings, "warning")];
        let more = counts.into_iter().filter(|(count, _)| *count > Self::LISTED).map(|(count, what)| {
            let more = count - Self::LISTED;
            format!("{more} more {what}{}", if more == 1 { "" } else { "s" })
        });
        Some(more.collect::<Vec<_>>().join(" and ")).filter(|text| !text.is_empty())
    }

    /// Iterates over the listed diagnostics in the order of the lines.
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.listed.iter()
    }

    /// Renders each listed diagnostic with an excerpt of the source, and then how many there are more.
    pub fn render(&self, source: &str) -> Vec<String> {
        let mut lines = (1..).zip(source.lines()).peekable();
        let listed = self.listed.iter().map(|found| {
            while lines.next_if(|(number, _)| *number < found.line).is_some() {}
            found.render(lines.peek().filter(|(number, _)| *number == found.line).map(|(_, line)| *line))
        });
        listed.chain(self.more().map(|more| format!("{more}\n"))).collect()
    }
}

/// Prints one diagnostic per line.
impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listed = self.listed.iter().map(ToString::to_string);
        f.write_str(&listed.chain(self.more()).collect::<Vec<_>>().join("\n"))
    }
}

impl std::error::Error for Diagnostics {}

impl<'a> IntoIterator for &'a Diagnostics {
    type Item = &'a Diagnostic;
    type IntoIter = std::slice::Iter<'a, Diagnostic>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl IntoIterator for Diagnostics {
    type Item = Diagnostic;
    type IntoIter = std::vec::IntoIter<Diagnostic>;
    fn into_iter(self) -> Self::IntoIter {
        self.listed.into_iter()
    }
}

/// Returns the name in `known` that `written` most likely means.
pub fn nearest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Case and separators are the most common mistakes: `force-delete` and `forcedelete` mean `forceDelete`.
    let plain = |text: &str| text.chars().filter(|c| !matches!(c, '-' | '_')).collect::<String>().to_lowercase();
    let written = plain(written);
    let length = written.chars().count();
    let limit = |name: &str| (name.len() / 3).clamp(1, 4);
    known
        .into_iter()
        // The distance is at least the difference of the lengths. This also bounds the cost of a long name.
        .filter(|name| plain_length(name).abs_diff(length) <= limit(name))
        .map(|name| (strsim::damerau_levenshtein(&written, &plain(name)), name))
        .filter(|(distance, name)| *distance <= limit(name))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

fn plain_length(name: &str) -> usize {
    name.chars().filter(|c| !matches!(c, '-' | '_')).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diagnostic(severity: Severity, hint: Option<&str>) -> Diagnostic {
        Diagnostic {
            severity,
            file: "p.yaml".into(),
            line: 2,
            column: 5,
            path: "deletionGroups[0]".to_owned(),
            problem: "unknown field \"typ\"".to_owned(),
            hint: hint.map(str::to_owned),
        }
    }

    #[test]
    fn display_is_one_line() {
        assert_eq!(
            diagnostic(Severity::Error, Some("known: type")).to_string(),
            "p.yaml:2:5: deletionGroups[0]: unknown field \"typ\" (known: type)"
        );
        assert_eq!(
            diagnostic(Severity::Warning, None).to_string(),
            "p.yaml:2:5: deletionGroups[0]: warning: unknown field \"typ\""
        );
        assert_eq!(
            diagnostic(Severity::Error, Some("known: type")).at_path(),
            "deletionGroups[0]: unknown field \"typ\" (known: type)"
        );
    }

    fn listed(diagnostic: Diagnostic) -> Diagnostics {
        let mut found = Diagnostics::default();
        found.add(diagnostic.severity, || diagnostic);
        found
    }

    #[test]
    fn an_excerpt_is_cut_around_the_place() {
        let check = |line: &str, column, start: &str, end: &str, expected_column| {
            let (text, column) = excerpt(line, column);
            assert!(text.chars().count() <= 160, "{text:?}");
            assert!(text.starts_with(start) && text.ends_with(end), "{text:?}");
            assert_eq!(column, expected_column, "{text:?}");
        };
        check("short", 3, "short", "short", 3);
        check(&"ä".repeat(158), 100, "ää", "ää", 100);
        let long = format!("{}here{}", "ä".repeat(1000), "b".repeat(1000));
        check(&long, 1001, "…ä", "b…", 80);
        assert_eq!(excerpt(&long, 1001).0.chars().nth(79), Some('h'));
        check(&long, 1, "ää", "ä…", 1);
        check(&long, 2004, "…b", "bb", 80);
        check(&long, 9999, "…", "", 80);
    }

    #[test]
    fn diagnostics_after_the_first_hundred_are_only_counted() {
        let mut found = Diagnostics::default();
        for _ in 0..250 {
            found.add(Severity::Error, || diagnostic(Severity::Error, None));
        }
        for _ in 0..101 {
            found.add(Severity::Warning, || diagnostic(Severity::Warning, None));
        }
        assert_eq!((found.errors(), found.warnings(), found.iter().count()), (250, 101, 200));
        let rendered = found.render("");
        assert_eq!((rendered.len(), rendered[200].as_str()), (201, "150 more errors and 1 more warning\n"));
        assert!(found.to_string().ends_with("\n150 more errors and 1 more warning"));
        assert_eq!(found.without_warnings().more().as_deref(), Some("150 more errors"));
    }

    #[test]
    fn render_marks_the_word() {
        let source = "deletionGroups:\n  - typ: crds\n";
        assert_eq!(
            listed(diagnostic(Severity::Error, Some("known: type"))).render(source).concat(),
            "error: unknown field \"typ\"\n --> p.yaml:2:5\n  |\n2 |   - typ: crds\n  |     ^^^\n  = at: deletionGroups[0]\n  = help: known: type\n"
        );
        // A place outside the source is rendered without an excerpt.
        assert!(!listed(diagnostic(Severity::Error, None)).render("").concat().contains('^'));
    }

    #[test]
    fn nearest_forgives_case_separators_and_slips() {
        let known = ["forceDelete", "forceAfter", "finalizers", "timeout", "type", "kind"];
        for (written, expected) in [
            ("forcedelete", Some("forceDelete")),
            ("force-delete", Some("forceDelete")),
            ("forceDelte", Some("forceDelete")),
            ("finaliser", Some("finalizers")),
            ("time_out", Some("timeout")),
            ("kinds", Some("kind")),
            ("somethingElse", None),
            ("", None),
        ] {
            assert_eq!(nearest(written, known), expected, "{written}");
        }
    }
}
