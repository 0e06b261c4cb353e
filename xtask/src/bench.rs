//! `cargo xtask bench`: measures billhook beside the floor and kubectl.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use billhook_testkit::control_plane::Binaries;

use crate::{cargo, progress, run_to_end};

/// Measure billhook beside bare requests and kubectl; `--help` after `--` shows the options
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Arguments for the benchmark
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    // The benchmark would also build the programs, but the longest step should come first.
    Binaries::locate_or_build(progress)?;
    let mut command = cargo();
    command.args(["run", "--profile=dist", "--quiet", "--locked", "--package=billhook-bench", "--"]).args(args.args);
    run_to_end(command)
}
