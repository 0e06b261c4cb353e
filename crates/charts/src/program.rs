//! Running a program that must not find a cluster.

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
};

use tokio::process::Command;

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

/// What would lead a program to a cluster. Everything else it finds as the caller has it: proxies, credentials of
/// registries, helm's own folders.
const WAYS_TO_A_CLUSTER: [&str; 11] = [
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
];

/// Runs a program to its end and gives back what it printed.
pub(crate) async fn run(program: &Path, arguments: &[OsString], hint: &'static str) -> Result<String, ProgramError> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true).env("KUBECONFIG", "/dev/null");
    for name in WAYS_TO_A_CLUSTER {
        command.env_remove(name);
    }
    let program = || program.to_owned();
    let output = command.output().await.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => ProgramError::Missing { program: program(), hint },
        _ => ProgramError::Start { program: program(), source },
    })?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let stderr = Some(stderr.trim()).filter(|text| !text.is_empty()).unwrap_or("it said nothing").to_owned();
        return Err(ProgramError::Failed { program: program(), status: output.status, stderr });
    }
    String::from_utf8(output.stdout).map_err(|_| ProgramError::NotText { program: program() })
}
