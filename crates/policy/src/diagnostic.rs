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

    /// Renders the diagnostic with the line of the source and a mark below the place, like a compiler.
    pub fn render(&self, source: &str) -> String {
        let number = self.line.to_string();
        let margin = " ".repeat(number.len());
        let mut out =
            format!("{}: {}\n{margin}--> {}:{}:{}\n", self.severity, self.problem, self.file, self.line, self.column);
        if let Some(text) = source.lines().nth(self.line.saturating_sub(1)) {
            out += &format!("{margin} |\n{number} | {text}\n{margin} | {}\n", mark(text, self.column));
        }
        if !self.path.is_empty() {
            out += &format!("{margin} = at: {}\n", self.path);
        }
        if let Some(hint) = &self.hint {
            out += &format!("{margin} = help: {hint}\n");
        }
        out
    }
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

/// All diagnostics of a document, in the order of its lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostics(Vec<Diagnostic>);

impl Diagnostics {
    /// Sorts diagnostics by their place.
    pub fn new(mut found: Vec<Diagnostic>) -> Self {
        found.sort_by_key(|found| (found.line, found.column, found.severity));
        Self(found)
    }

    /// Returns whether there are no diagnostics.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether any diagnostic is an error.
    pub fn has_errors(&self) -> bool {
        self.0.iter().any(Diagnostic::is_error)
    }

    /// Iterates over the diagnostics in the order of the lines.
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.0.iter()
    }
}

/// Prints one diagnostic per line.
impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, diagnostic) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            diagnostic.fmt(f)?;
        }
        Ok(())
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
        self.0.into_iter()
    }
}

/// Returns the name in `known` that `written` most likely means.
pub fn nearest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Case and separators are the most common mistakes: `force-delete` and `forcedelete` mean `forceDelete`.
    let plain = |text: &str| text.chars().filter(|c| !matches!(c, '-' | '_')).collect::<String>().to_lowercase();
    let written = plain(written);
    known
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(&written, &plain(name)), name))
        .filter(|(distance, name)| *distance <= (name.len() / 3).clamp(1, 4))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
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

    #[test]
    fn render_marks_the_word() {
        let source = "deletionGroups:\n  - typ: crds\n";
        assert_eq!(
            diagnostic(Severity::Error, Some("known: type")).render(source),
            "error: unknown field \"typ\"\n --> p.yaml:2:5\n  |\n2 |   - typ: crds\n  |     ^^^\n  = at: deletionGroups[0]\n  = help: known: type\n"
        );
        // A place outside the source is rendered without an excerpt.
        assert!(!diagnostic(Severity::Error, None).render("").contains('^'));
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
