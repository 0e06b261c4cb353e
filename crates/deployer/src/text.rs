//! The texts of items: which field helps with a problem of a plan, and texts that are cut to a length.

use billhook_plan::{PlanError, Problem};

/// Returns the text of all problems, one a line.
pub(crate) fn problems(error: &PlanError) -> String {
    let line = |problem: &Problem| match field(problem) {
        Some(field) => format!("{problem}; {field}"),
        None => problem.to_string(),
    };
    error.problems.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn field(problem: &Problem) -> Option<&'static str> {
    match problem {
        Problem::UnknownTarget { .. } => Some("targetName must name a Target in the namespace of the DeployItem"),
        Problem::NoNamespace { .. } => Some("set metadata.namespace in the manifest"),
        Problem::NoLastingVersion { .. } => Some("let the new CRD serve one of the old versions"),
        _ => None,
    }
}

/// Quotes an error or a reason in a longer message.
pub(crate) fn quote(text: &str) -> String {
    clip(&one_line(text), 256)
}

/// Puts a text on one line.
pub(crate) fn one_line(text: &str) -> String {
    text.trim().replace(['\n', '\r'], " ")
}

/// Cuts a text to at most `most` bytes.
pub(crate) fn clip(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let cut = text.floor_char_boundary(most.saturating_sub('…'.len_utf8()));
    format!("{}…", &text[..cut])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(clip(&one_line(" a\nb "), 10), "a b");
        assert_eq!(clip("äöü", 6), "äöü");
        assert_eq!(clip("äöüä", 6), "ä…");
    }
}
