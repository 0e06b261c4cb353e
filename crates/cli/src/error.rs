//! The one error type of the command line: what is wrong, the exit code, and what to do about it.

use std::fmt::Display;

use billhook_engine::{OperationError, Status};
use billhook_objects::ReleaseName;
use billhook_plan::{ListFailure, PlanError, PlanErrorKind, Problem as PlanProblem, Swept};

use crate::{
    render::{count, object},
    text,
};

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Success.
    Done,
    /// Failed.
    Failed,
    /// The input is invalid; nothing was changed.
    Input,
    /// Timed out or interrupted with objects remaining.
    Unfinished,
    /// Stopped by a guard; nothing was changed.
    Refused,
    /// A comparison found differences.
    Different,
    /// A comparison failed; code 1 would mean that it found differences.
    NotCompared,
}

impl Exit {
    /// Returns the exit code.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed | Self::Different => 1,
            Self::Input => 2,
            Self::Unfinished => 3,
            Self::Refused => 4,
            Self::NotCompared => 5,
        }
    }
}

impl From<Status> for Exit {
    fn from(status: Status) -> Self {
        match status {
            Status::Done => Self::Done,
            Status::NotStarted | Status::Interrupted | Status::TimedOut => Self::Unfinished,
            Status::Failed => Self::Failed,
        }
    }
}

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct CommandError {
    /// How the program ends.
    pub(crate) exit: Exit,
    /// Everything that is wrong.
    pub(crate) problems: Vec<Problem>,
    /// What to do about it.
    pub(crate) hints: Vec<String>,
    /// Whether the API server could not be reached: the message then names its address.
    pub(crate) unreachable: bool,
    /// Whether another operation works on the release, or has changed it since it was read.
    pub(crate) is_overtaken: bool,
    /// Whether the work was dropped with requests in flight, so that the lock of the release must remain until it expires.
    pub(crate) is_abandoned: bool,
}

/// One thing that is wrong.
#[derive(Debug)]
pub(crate) enum Problem {
    /// A message, printed after `error: `, and its causes, printed below it.
    Message(String, Vec<String>),
    /// A message that is rendered already, with an excerpt of the source.
    Rendered(String),
    /// One of the things that the message before it is about.
    Listed(String),
}

impl CommandError {
    /// Returns an error of a single problem.
    pub(crate) fn new(exit: Exit, problem: impl Into<Problem>) -> Self {
        Self::all(exit, vec![problem.into()])
    }

    /// Returns an error of several problems.
    pub(crate) fn all(exit: Exit, problems: Vec<Problem>) -> Self {
        Self { exit, problems, hints: Vec::new(), unreachable: false, is_overtaken: false, is_abandoned: false }
    }

    /// Returns an error for invalid input.
    pub(crate) fn input(problem: impl Into<Problem>) -> Self {
        Self::new(Exit::Input, problem)
    }

    /// Returns an error for an operation that failed: `failed to …`, with its causes.
    pub(crate) fn failed(exit: Exit, error: &(dyn std::error::Error + 'static)) -> Self {
        Self::new(exit, Problem::failed(error))
    }

    /// Returns an error for an operation that failed for one reason: `failed to …: reason`.
    pub(crate) fn failed_to(what: impl Display, reason: impl Display) -> Self {
        Self::new(Exit::Failed, Problem::caused(format!("failed to {what}"), reason))
    }

    /// Returns all problems and hints as one line.
    pub(crate) fn in_one_line(&self) -> String {
        let problems = self.problems.iter().flat_map(|problem| match problem {
            Problem::Message(text, causes) => std::iter::once(text).chain(causes).collect::<Vec<_>>(),
            Problem::Rendered(text) | Problem::Listed(text) => vec![text],
        });
        let (problems, hints) = (problems.map(String::as_str).collect::<Vec<_>>().join(": "), self.hints.join("; "));
        let all = if hints.is_empty() { problems } else { format!("{problems} ({hints})") };
        all.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Returns the first problems, one a line.
    pub(crate) fn text(&self) -> String {
        const LISTED: usize = 20;
        let mut lines: Vec<String> = self.problems.iter().take(LISTED).map(Problem::line).collect();
        let more = self.problems.len().saturating_sub(LISTED);
        lines.extend((more > 0).then(|| count(more, "more problem")));
        lines.join("\n")
    }

    /// Notes that the work was dropped with requests in flight.
    pub(crate) fn abandoned(self) -> Self {
        Self { is_abandoned: true, ..self }
    }

    /// Adds what to do about it.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }
}

/// Returns both values, or the errors of both: what does not depend on each other is reported together.
pub(crate) fn both<A, B>(a: Result<A, CommandError>, b: Result<B, CommandError>) -> Result<(A, B), CommandError> {
    match (a, b) {
        (Ok(a), Ok(b)) => Ok((a, b)),
        (Err(mut error), Err(other)) => {
            // Invalid input is reported as such, whatever else failed.
            error.exit = if other.exit == Exit::Input { other.exit } else { error.exit };
            error.problems.extend(other.problems);
            for hint in other.hints {
                if !error.hints.contains(&hint) {
                    error.hints.push(hint);
                }
            }
            error.unreachable |= other.unreachable;
            Err(error)
        }
        (Err(error), _) | (_, Err(error)) => Err(error),
    }
}

impl Problem {
    /// Returns it in one line; of an excerpt, the first.
    pub(crate) fn line(&self) -> String {
        match self {
            Self::Message(message, causes) => {
                std::iter::once(message).chain(causes).map(String::as_str).collect::<Vec<_>>().join(": ")
            }
            Self::Rendered(text) | Self::Listed(text) => text.lines().next().unwrap_or_default().to_owned(),
        }
    }

    /// Returns a problem with a single cause.
    pub(crate) fn caused(message: impl Into<String>, cause: impl Display) -> Self {
        Self::Message(message.into(), vec![cause.to_string()])
    }

    /// Returns the problem of an operation that failed: `failed to …`, with each of its causes once.
    pub(crate) fn failed(error: &(dyn std::error::Error + 'static)) -> Self {
        let message = format!("failed to {error}");
        let mut causes: Vec<String> = Vec::new();
        let innermost = std::iter::successors(error.source(), |cause| cause.source()).last();
        if innermost.is_some_and(|cause| message.contains(&cause.to_string())) {
            return Self::Message(message, causes);
        }
        let mut next = error.source();
        while let Some(cause) = next {
            let text = cause.to_string();
            // Some errors repeat their sources in their own text.
            let known = message.contains(&text) || causes.iter().any(|before| before.contains(&text));
            if !known {
                causes.push(text);
            }
            next = cause.source();
        }
        Self::Message(message, causes)
    }
}

impl From<&str> for Problem {
    fn from(message: &str) -> Self {
        Self::from(message.to_owned())
    }
}

impl From<String> for Problem {
    fn from(message: String) -> Self {
        Self::Message(message, Vec::new())
    }
}

impl From<PlanError> for CommandError {
    fn from(error: PlanError) -> Self {
        let exit = match error.kind {
            PlanErrorKind::Input => Exit::Input,
            PlanErrorKind::Unreadable => Exit::Failed,
            PlanErrorKind::Refused | PlanErrorKind::Busy => Exit::Refused,
        };
        let is_overtaken = |of: &PlanProblem| matches!(of, PlanProblem::Locked(_) | PlanProblem::Outdated { .. });
        let is_overtaken = error.problems.iter().any(is_overtaken);
        let problems = error.problems.iter().map(|problem| problem.to_string().into()).collect();
        Self { hints: text::hints(&error.problems), is_overtaken, ..Self::all(exit, problems) }
    }
}

impl From<OperationError> for CommandError {
    fn from(error: OperationError) -> Self {
        match error {
            OperationError::Plan(error) => error.into(),
            OperationError::NoRelease(release, unlisted) => {
                let problem = format!("release {} not found in namespace {}", release.name(), release.namespace());
                Self::input(not_listed(problem, &unlisted)).hint("run billhook list -A to list all releases")
            }
            OperationError::PolicyLost(release, swept) => policy_lost(&release, &swept),
            OperationError::LockLost(release) => {
                let problem = format!(
                    "the lock of release {release} was lost: another operation took over, or it could not be renewed"
                );
                Self::new(Exit::Unfinished, problem).hint("run the same command again to resume")
            }
            OperationError::NoBackup(release) => {
                let problem = format!("release {release} has no backup");
                Self::input(problem).hint("delete --backup writes one, and so does a deletion with a force stage")
            }
            OperationError::NotSaved { release, why } => {
                let whose = release.map(|release| format!(" of release {release}")).unwrap_or_default();
                let problem =
                    Problem::caused(format!("failed to save the live objects{whose}; nothing was deleted"), why);
                Self::new(Exit::Failed, problem).hint("delete without a backup with --backup=false")
            }
            OperationError::Cluster(error) => error.into(),
        }
    }
}

/// Adds what could not be listed to a problem.
fn not_listed(problem: String, unlisted: &[ListFailure]) -> Problem {
    Problem::Message(problem, unlisted.iter().map(ToString::to_string).collect())
}

/// Refuses to delete a release whose policy was lost with its record, and lists its objects.
fn policy_lost(release: &ReleaseName, swept: &Swept) -> CommandError {
    const LISTED: usize = 20;
    let objects = swept.entries.len();
    let found = count(objects, "object");
    let carry = if objects == 1 { "carries" } else { "carry" };
    let problem = format!(
        "the record of release {release} was lost, and its policy with it; {found} {carry} its label; nothing was changed"
    );
    let mut problems: Vec<Problem> = vec![problem.into()];
    problems.extend(swept.entries.keys().take(LISTED).map(|key| Problem::Listed(object(key))));
    if objects > LISTED {
        problems.push(Problem::Listed(format!("and {} more", objects - LISTED)));
    }
    problems.extend(swept.unlisted.iter().map(|failure| Problem::Listed(failure.to_string())));
    CommandError::all(Exit::Refused, problems)
        .hint("choose the policy with --policy FILE or --policy default, which deletes all of them")
        .hint(format!(
            "keep the objects and drop the label with billhook forget {}",
            text::argument(release.namespace(), release.name())
        ))
}

impl From<billhook_cluster::Error> for CommandError {
    fn from(error: billhook_cluster::Error) -> Self {
        let unreachable = *error.kind() == billhook_cluster::ErrorKind::Unreachable;
        Self { unreachable, ..Self::failed(Exit::Failed, &error) }
    }
}

impl From<billhook_charts::Error> for CommandError {
    fn from(error: billhook_charts::Error) -> Self {
        use billhook_charts::{ErrorKind, ProgramError};
        let program_itself = matches!(
            &error.kind,
            ErrorKind::Folder(_)
                | ErrorKind::Version(_)
                | ErrorKind::Program(
                    ProgramError::Missing { .. } | ProgramError::Start { .. } | ProgramError::NotText { .. }
                )
        );
        Self::failed(if program_itself { Exit::Failed } else { Exit::Input }, &error)
    }
}
