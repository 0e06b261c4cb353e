//! What the program takes from outside.

use std::{collections::BTreeMap, ffi::OsString, io, path::PathBuf, sync::Arc};

use billhook_cluster::{Cluster, Error, Options};

/// Connects to the cluster of a client configuration.
pub type Connect = Arc<dyn Fn(kube::Config, Options) -> Result<Cluster, Error> + Send + Sync>;

/// Everything the program takes from outside: `main` fills it from the process, tests from a scenario.
pub struct World {
    /// The arguments, starting with the name of the program.
    pub args: Vec<OsString>,
    /// The environment variables.
    pub env: BTreeMap<String, String>,
    /// The working directory: relative paths start here.
    pub directory: PathBuf,
    /// Standard input.
    pub stdin: Box<dyn io::Read + Send>,
    /// Whether standard input is a terminal, so that a user can answer questions.
    pub stdin_terminal: bool,
    /// Standard output.
    pub stdout: Box<dyn io::Write + Send>,
    /// Whether standard output is a terminal.
    pub stdout_terminal: bool,
    /// Standard error.
    pub stderr: Box<dyn io::Write + Send>,
    /// Whether standard error is a terminal.
    pub stderr_terminal: bool,
    /// Receives a message for each Ctrl-C.
    pub interrupts: tokio::sync::mpsc::Receiver<()>,
    /// Connects to clusters.
    pub connect: Connect,
}
