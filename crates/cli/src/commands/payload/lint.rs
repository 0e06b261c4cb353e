//! `billhook payload lint`: checks what the guide for object deletion asks of the authors of a payload.

use std::path::PathBuf;

use billhook_payload::{
    Decisions, Problem, ProblemKind,
    lint::{Decided, Lint},
};
use clap::Args;

use super::{SettingsArgs, invalid, parse, read_both, warn_unused};
use crate::{
    args::OutputFormat,
    error::{CommandError, Exit},
    input::SourceText,
    render::{count, payload::findings},
    session::Session,
};

/// Check a release payload and its delete annotations without a cluster
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LintArgs {
    /// Check the manifests of this directory
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Compare with the payload of the version before
    #[arg(long, value_name = "OLD_DIR")]
    from: Option<PathBuf>,
    /// The version of the payload
    #[arg(long)]
    version: Option<String>,
    /// The version of the payload before [default: another minor version if --version ends in .0, else the same]
    #[arg(long, value_name = "VERSION", requires = "from")]
    from_version: Option<String>,
    #[command(flatten)]
    settings: SettingsArgs,
}

const EXAMPLES: &str = "\
Examples:
  billhook payload lint release/
  billhook payload lint release/ --from release-4.20/ --version 4.21.0
  billhook payload lint release/ -o sarif > payload.sarif

Exit codes: 0 without findings, 2 with findings or invalid input.";

/// Runs the command.
pub(super) fn run(session: &Session, args: &LintArgs) -> Result<Exit, CommandError> {
    let settings = args.settings.read(session)?.settings;
    let (new, old) = read_both(session, &args.folder, args.from.as_ref())?;
    let read = |texts: &Vec<SourceText>| {
        let (payload, problems) = parse(texts);
        let decisions = Decisions::new(&payload, &settings);
        (payload, decisions, problems)
    };
    let (new, old) = (read(&new), old.as_ref().map(read));
    let mut problems: Vec<Problem> = Vec::new();
    for (_, decisions, unreadable) in std::iter::once(&new).chain(&old) {
        problems.extend(unreadable.iter().chain(&decisions.problems).filter(|problem| !is_finding(problem)).cloned());
    }
    if !problems.is_empty() {
        return Err(invalid(&problems));
    }
    warn_unused(session, &new.0, &settings);
    let lint = Lint {
        new: Decided { payload: &new.0, decisions: &new.1 },
        old: old.as_ref().map(|(payload, decisions, _)| Decided { payload, decisions }),
        version: args.version.as_deref(),
        old_version: args.from_version.as_deref(),
    };
    let found = lint.findings();
    match session.global.output {
        OutputFormat::Json => session.printer.json(&findings::rows(&found)),
        OutputFormat::Sarif => session.printer.json(&findings::sarif(&found)),
        _ => {
            found
                .iter()
                .for_each(|finding| session.printer.out_lines(&findings::text(finding, session.printer.out_paint())));
            let manifests = count(new.0.entries.len(), "manifest");
            session.printer.out(&format!("{manifests} checked: {}", count(found.len(), "finding")));
        }
    }
    Ok(if found.is_empty() { Exit::Done } else { Exit::Input })
}

/// Returns whether the lint reports this problem as a finding.
fn is_finding(problem: &Problem) -> bool {
    matches!(problem.kind, ProblemKind::DeleteValue { .. } | ProblemKind::Duplicate { .. })
}
