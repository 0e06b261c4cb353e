//! Runs a program and returns its output.

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
};

use tokio::{io::AsyncWriteExt as _, process::Command};

/// An error of running a program.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// The program does not exist.
    #[error("program {} not found: {hint}", .program.display())]
    Missing {
        /// The path of the program.
        program: PathBuf,
        /// What to do about it.
        hint: &'static str,
    },
    /// The program could not be started.
    #[error("start {}", .program.display())]
    Start {
        /// The path of the program.
        program: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The program failed.
    #[error("{} failed with {status}: {stderr}", .program.display())]
    Failed {
        /// The path of the program.
        program: PathBuf,
        /// Its exit status.
        status: ExitStatus,
        /// Its standard error, or a note that it is empty.
        stderr: String,
    },
    /// The output is not text.
    #[error("the output of {} is not UTF-8", .program.display())]
    NotText {
        /// The path of the program.
        program: PathBuf,
    },
}

/// Environment variables other than KUBECONFIG that point a program to a cluster. All others are inherited, such as proxies,
/// and helm's own folders for a chart that helm resolves itself.
const CLUSTER_VARIABLES: [&str; 12] = [
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

/// A program with its working folder and environment.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    path: PathBuf,
    hint: &'static str,
    folder: Option<PathBuf>,
    environment: Vec<(&'static str, Option<OsString>)>,
}

impl Program {
    /// Creates a program without access to a cluster. `hint` tells what to do if the program is missing.
    pub(crate) fn new(path: &Path, hint: &'static str) -> Self {
        let none = CLUSTER_VARIABLES.map(|name| (name, None));
        Self { path: path.to_owned(), hint, folder: None, environment: none.into() }.with("KUBECONFIG", "/dev/null")
    }

    /// Creates a program for helm.
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

    /// Sets the working folder.
    pub(crate) fn within(mut self, folder: &Path) -> Self {
        self.folder = Some(folder.to_owned());
        self
    }

    /// Runs the program and returns its standard output. Dropping the future kills the program.
    pub(crate) async fn run(&self, arguments: &[OsString]) -> Result<String, ProgramError> {
        self.run_with_input(arguments, "").await
    }

    /// Runs the program with some standard input, which other users of the machine cannot read.
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
            // If the program ends before it reads the input, its standard error tells why. The input fits into the pipe.
            let _unread = stdin.write_all(input.as_bytes()).await;
        }
        let output = child.wait_with_output().await.map_err(start)?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            let stderr = Some(stderr.trim()).filter(|text| !text.is_empty()).unwrap_or("no error message").to_owned();
            return Err(ProgramError::Failed { program: self.path.clone(), status: output.status, stderr });
        }
        String::from_utf8(output.stdout).map_err(|_| ProgramError::NotText { program: self.path.clone() })
    }
}
