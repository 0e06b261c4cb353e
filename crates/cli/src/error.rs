//! The one error type of the command line: what to say, the exit code, and what to do about it.

use billhook_engine::{OperationError, Status};

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done, and verified.
    Done,
    /// Failed.
    Failed,
    /// The input is wrong; nothing was touched.
    Input,
    /// Timed out or interrupted, with objects left.
    Unfinished,
    /// Refused by a guard; nothing was touched.
    Refused,
}

impl Exit {
    /// The exit code.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Input => 2,
            Self::Unfinished => 3,
            Self::Refused => 4,
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

/// Why a command could not do what it was asked for.
#[derive(Debug)]
pub(crate) struct CommandError {
    /// How the program ends.
    pub(crate) exit: Exit,
    /// Everything that is wrong.
    pub(crate) problems: Vec<Problem>,
    /// What to do about it.
    pub(crate) hints: Vec<String>,
    /// Whether the server could not be reached, so that it is worth saying which one it is.
    pub(crate) unreachable: bool,
}

/// One thing that is wrong.
#[derive(Debug)]
pub(crate) enum Problem {
    /// Printed behind `error: `, its causes below it.
    Said(String, Vec<String>),
    /// Rendered already, with its place in the source.
    Rendered(String),
}

impl CommandError {
    /// An error that ends in this way.
    pub(crate) fn new(exit: Exit, problem: impl Into<String>) -> Self {
        Self { exit, problems: vec![Problem::Said(problem.into(), Vec::new())], hints: Vec::new(), unreachable: false }
    }

    /// Wrong input.
    pub(crate) fn input(problem: impl Into<String>) -> Self {
        Self::new(Exit::Input, problem)
    }

    /// Everything that is wrong with the input.
    pub(crate) fn inputs(problems: Vec<Problem>) -> Self {
        Self { exit: Exit::Input, problems, hints: Vec::new(), unreachable: false }
    }

    /// Something that failed: `failed to …`, and its causes, each said once.
    pub(crate) fn failed(exit: Exit, error: &(dyn std::error::Error + 'static)) -> Self {
        Self { problems: vec![Problem::failed(error)], ..Self::new(exit, "") }
    }

    /// Adds what to do about it.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }
}

impl Problem {
    /// Something that failed: `failed to …`, and its causes, each said once.
    pub(crate) fn failed(error: &(dyn std::error::Error + 'static)) -> Self {
        let said = format!("failed to {error}");
        let mut causes: Vec<String> = Vec::new();
        let innermost = std::iter::successors(error.source(), |cause| cause.source()).last();
        if innermost.is_some_and(|cause| said.contains(&cause.to_string())) {
            return Self::Said(said, causes);
        }
        let mut next = error.source();
        while let Some(cause) = next {
            let text = cause.to_string();
            // Some errors hold their sources in their own text.
            let known = said.contains(&text) || causes.iter().any(|before| before.contains(&text));
            if !known {
                causes.push(text);
            }
            next = cause.source();
        }
        Self::Said(said, causes)
    }
}

impl From<&str> for Problem {
    fn from(problem: &str) -> Self {
        Self::Said(problem.to_owned(), Vec::new())
    }
}

impl From<String> for Problem {
    fn from(problem: String) -> Self {
        Self::Said(problem, Vec::new())
    }
}

fn said(exit: Exit, problems: Vec<String>) -> CommandError {
    CommandError {
        exit,
        problems: problems.into_iter().map(Problem::from).collect(),
        hints: Vec::new(),
        unreachable: false,
    }
}

impl From<OperationError> for CommandError {
    fn from(error: OperationError) -> Self {
        match error {
            OperationError::Input(problems) => said(Exit::Input, problems),
            OperationError::Refused(problems) | OperationError::Busy(problems) => said(Exit::Refused, problems),
            OperationError::Unreadable(problems) => said(Exit::Failed, problems),
            OperationError::NoRelease(release) => {
                let problem = format!("there is no release {} in namespace {}", release.name(), release.namespace());
                Self::input(problem).hint("billhook list -A shows all releases")
            }
            OperationError::Cluster(error) => error.into(),
        }
    }
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
