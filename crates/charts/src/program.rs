//! Running a program to its end.

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
};

use tokio::{io::AsyncWriteExt as _, process::Command};

/// Why a program gave no output.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// It is not there.
    #[error("there is no program {}: {hint}", .program.display())]
    Missing {
        /// What was to be run.
        program: PathBuf,
        /// What to do about it.
        hint: &'static str,
    },
    /// It could not be started.
    #[error("start {}", .program.display())]
    Start {
        /// What was to be run.
        program: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// It ended with an error.
    #[error("{} ended with {status}: {stderr}", .program.display())]
    Failed {
        /// What was run.
        program: PathBuf,
        /// How it ended.
        status: ExitStatus,
        /// What it wrote to standard error, or that it wrote nothing.
        stderr: String,
    },
    /// Its output is not text.
    #[error("{} printed something other than UTF-8", .program.display())]
    NotText {
        /// What was run.
        program: PathBuf,
    },
}

/// What would lead a program to a cluster other than by KUBECONFIG. Everything else it finds as the caller has it:
/// proxies, and for a chart that helm finds by itself, helm's own folders.
const WAYS_TO_A_CLUSTER: [&str; 12] = [
    "KUBERNETES_MASTER",
    "KUBERNETES_SERVICE_HOST",
    "KUBERNETES_SERVICE_PORT",
    "HELM_KUBEAPISERVER",
    "HELM_KUBEASGROUPS",
    "HELM_KUBEASUSER",
    "HELM_KUBECAFILE",
    "HELM_KUBECONTEXT",
    "HELM_KUBEINSECURE_SKIP_TLS_VERIFY",
    "HELM_KUBETLS_SERVER_NAME",
    "HELM_KUBETOKEN",
    "HELM_NAMESPACE",
];

/// A program with all that its runs have in common.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    path: PathBuf,
    hint: &'static str,
    folder: Option<PathBuf>,
    environment: Vec<(&'static str, Option<OsString>)>,
}

impl Program {
    /// A program that finds no cluster; `hint` says what to do where it is missing.
    pub(crate) fn new(path: &Path, hint: &'static str) -> Self {
        let none = WAYS_TO_A_CLUSTER.map(|name| (name, None));
        Self { path: path.to_owned(), hint, folder: None, environment: none.into() }.with("KUBECONFIG", "/dev/null")
    }

    /// `helm`, with the oldest version whose flags are used.
    pub(crate) fn helm(path: &Path) -> Self {
        Self::new(path, "install helm 3.8 or newer")
    }

    /// Sets an environment variable.
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.environment.push((name, Some(value.into())));
        self
    }

    /// Removes an environment variable.
    pub(crate) fn without(mut self, name: &'static str) -> Self {
        self.environment.push((name, None));
        self
    }

    /// Runs it in a folder.
    pub(crate) fn within(mut self, folder: &Path) -> Self {
        self.folder = Some(folder.to_owned());
        self
    }

    /// Runs it to its end and gives back what it printed; it is killed when the future is dropped.
    pub(crate) async fn run(&self, arguments: &[OsString]) -> Result<String, ProgramError> {
        self.run_with_input(arguments, "").await
    }

    /// The same with something on its standard input, where no other user of the machine can read it.
    pub(crate) async fn run_with_input(&self, arguments: &[OsString], input: &str) -> Result<String, ProgramError> {
        let mut command = Command::new(&self.path);
        command.args(arguments).kill_on_drop(true);
        command.stdin(if input.is_empty() { Stdio::null() } else { Stdio::piped() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        for (name, value) in &self.environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        let start = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => ProgramError::Missing { program: self.path.clone(), hint: self.hint },
            _ => ProgramError::Start { program: self.path.clone(), source },
        };
        let mut child = command.spawn().map_err(start)?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that ends without reading says why on standard error. What it reads fits into the pipe.
            let _unread = stdin.write_all(input.as_bytes()).await;
        }
        let output = child.wait_with_output().await.map_err(start)?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            let stderr = Some(stderr.trim()).filter(|text| !text.is_empty()).unwrap_or("it said nothing").to_owned();
            return Err(ProgramError::Failed { program: self.path.clone(), status: output.status, stderr });
        }
        String::from_utf8(output.stdout).map_err(|_| ProgramError::NotText { program: self.path.clone() })
    }
}
