//! `cargo xtask demo`: the main job, shown on a control plane of its own.

use std::process::ExitCode;

use anyhow::Result;
use billhook_testkit::control_plane::Binaries;

use crate::{cargo, progress, run_to_end};

/// Show the main job: deploy an operator with its resources, and delete them in order
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(Args {}: Args) -> Result<ExitCode> {
    Binaries::locate_or_build(progress)?;
    let mut command = cargo();
    command.args(["run", "--quiet", "--release", "--locked", "--package", "billhook-testkit", "--example", "demo"]);
    run_to_end(command)
}
