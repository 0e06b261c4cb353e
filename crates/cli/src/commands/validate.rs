//! `billhook validate`: checks policies, ProviderConfigurations and DeployItems.

use std::path::PathBuf;

use billhook_policy::{Diagnostic, Severity, validate};
use clap::Args;
use serde::Serialize;

use crate::{
    error::{CommandError, Exit},
    input::read_texts,
    render::count,
    session::Session,
};

/// Check policies, ProviderConfigurations and DeployItems without a cluster
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ValidateArgs {
    /// Check these files and directories; - is standard input
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Read directories recursively
    #[arg(long, short = 'R')]
    recursive: bool,
}

const EXAMPLES: &str = "\
Examples:
  billhook validate policy.yaml
  billhook validate -R deployitems/ -o json";

/// How many diagnostics are printed; the others are counted.
const PRINTED: usize = 100;

/// What `-o json` prints for a diagnostic.
#[derive(Serialize)]
struct Row {
    severity: String,
    file: String,
    line: usize,
    column: usize,
    path: String,
    problem: String,
    hint: Option<String>,
}

impl From<&Diagnostic> for Row {
    fn from(diagnostic: &Diagnostic) -> Self {
        Self {
            severity: diagnostic.severity.to_string(),
            file: diagnostic.file.to_string(),
            line: diagnostic.line,
            column: diagnostic.column,
            path: diagnostic.path.clone(),
            problem: diagnostic.problem.clone(),
            hint: diagnostic.hint.clone(),
        }
    }
}

impl Row {
    /// Returns the row after the listed diagnostics of a file, which says how many there are more.
    fn more(file: &str, problem: String) -> Self {
        let (severity, file) = (Severity::Error.to_string(), file.to_owned());
        Self { severity, file, line: 0, column: 0, path: String::new(), problem, hint: None }
    }
}

/// Runs the command.
pub(crate) fn run(session: &Session, args: &ValidateArgs) -> Result<Exit, CommandError> {
    let texts = read_texts(session, &args.paths, args.recursive).check()?;
    let (mut rows, mut rendered) = (Vec::new(), Vec::new());
    let (mut errors, mut warnings) = (0, 0);
    for text in &texts {
        let diagnostics = validate(&text.content, &text.name);
        rendered.extend(diagnostics.render(&text.content));
        rows.extend(diagnostics.iter().map(Row::from));
        rows.extend(diagnostics.more().map(|more| Row::more(&text.name, more)));
        errors += diagnostics.errors();
        warnings += diagnostics.warnings();
    }
    if session.json() {
        session.printer.json(&rows);
    } else {
        if rendered.len() > PRINTED + 1 {
            rendered.truncate(PRINTED);
            rendered.push(count(errors + warnings - PRINTED, "more problem"));
        }
        rendered.iter().for_each(|text| session.printer.out_lines(&format!("{text}\n")));
        let (errors, warnings) = (count(errors, "error"), count(warnings, "warning"));
        session.printer.out(&format!("{} checked: {errors}, {warnings}", count(texts.len(), "file")));
    }
    Ok(if errors == 0 { Exit::Done } else { Exit::Input })
}
