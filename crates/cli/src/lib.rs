//! The `billhook` program as a library, so that scenarios run the very program in-process.
//!
//! All that it takes from outside comes in a [`World`]; [`run`] returns its exit code. What it prints goes through one
//! gate, [`Printer`]: results on standard output, everything else on standard error.

mod args;
mod chart;
mod commands;
mod config;
mod error;
mod input;
mod output;
mod render;
mod report;
mod sandbox;
mod session;

use std::{collections::BTreeMap, ffi::OsString, io, path::PathBuf, sync::Arc};

pub use billhook_cluster::{Cluster, Error as ClusterError, Options as ClusterOptions};
pub use output::{Paint, Printer};
pub use render::plan::render_plan;
pub use report::{ReportOptions, Reporter};

/// How a configuration becomes a [`Cluster`].
pub type Connect = Arc<dyn Fn(kube::Config, ClusterOptions) -> Result<Cluster, ClusterError> + Send + Sync>;

/// Everything the program takes from outside; `main` fills it from the process, tests from a scenario.
pub struct World {
    /// The arguments, the name of the program first.
    pub args: Vec<OsString>,
    /// The environment.
    pub env: BTreeMap<String, String>,
    /// The directory that relative paths start from.
    pub directory: PathBuf,
    /// Standard input.
    pub stdin: Box<dyn io::Read + Send>,
    /// Whether somebody sits at standard input and can be asked.
    pub stdin_terminal: bool,
    /// Where results go.
    pub stdout: Box<dyn io::Write + Send>,
    /// Whether results go to a terminal.
    pub stdout_terminal: bool,
    /// Where everything else goes.
    pub stderr: Box<dyn io::Write + Send>,
    /// Whether everything else goes to a terminal.
    pub stderr_terminal: bool,
    /// A message for each Ctrl-C.
    pub interrupts: tokio::sync::mpsc::Receiver<()>,
    /// How a configuration becomes a cluster.
    pub connect: Connect,
}

/// Runs the program and returns its exit code.
pub async fn run(world: World) -> u8 {
    commands::run(world).await.code()
}

/// The command line as clap knows it, for completions and man pages.
pub fn command() -> clap::Command {
    args::command("billhook")
}

/// How often `-v` stands among the arguments; 0 where they cannot be parsed.
pub fn verbosity(args: &[OsString]) -> u8 {
    let may = |arg: &OsString| arg.to_str().is_some_and(|arg| arg.starts_with("-") && arg.contains('v'));
    if !args.iter().any(may) {
        return 0;
    }
    args::parse(args, "billhook").map_or(0, |cli| cli.common.verbose)
}
