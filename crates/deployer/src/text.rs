//! What the status of a DeployItem adds to the facts of a plan: which field helps.

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
        Problem::NoObjects
        | Problem::AmbiguousKind { .. }
        | Problem::NotServed { .. }
        | Problem::Misspelt { .. }
        | Problem::VersionNotServed { .. }
        | Problem::VersionNotDefined { .. }
        | Problem::HasNamespace { .. }
        | Problem::Duplicate { .. }
        | Problem::TooEarly { .. }
        | Problem::MissingNamespace { .. }
        | Problem::ListFailed(_)
        | Problem::NotLookedUp { .. }
        | Problem::UnavailableApi { .. }
        | Problem::SystemNamespace { .. }
        | Problem::OtherRelease { .. }
        | Problem::Unowned { .. }
        | Problem::BeingDeleted { .. } => None,
    }
}
