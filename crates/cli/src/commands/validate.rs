//! `billhook validate`: checks policies, ProviderConfigurations and DeployItems.

use std::path::PathBuf;

use billhook_policy::{Diagnostic, validate};
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

/// Runs the command.
pub(crate) fn run(session: &Session, args: &ValidateArgs) -> Result<Exit, CommandError> {
    let texts = read_texts(session, &args.paths, args.recursive).check()?;
    let (mut found, mut rendered) = (Vec::new(), Vec::new());
    for text in &texts {
        let diagnostics = validate(&text.content, &text.name);
        rendered.extend(diagnostics.iter().map(|diagnostic| diagnostic.render(&text.content)));
        found.extend(diagnostics);
    }
    let errors = found.iter().filter(|diagnostic| diagnostic.is_error()).count();
    if session.json() {
        session.printer.json(&found.iter().map(Row::from).collect::<Vec<_>>());
    } else {
        rendered.iter().for_each(|text| session.printer.text(&format!("{text}\n")));
        let (errors, warnings) = (count(errors, "error"), count(found.len() - errors, "warning"));
        session.printer.out(&format!("{} checked: {errors}, {warnings}", count(texts.len(), "file")));
    }
    Ok(if errors == 0 { Exit::Done } else { Exit::Input })
}
