//! `cargo xtask test`: passes all tests on a machine that has nothing but Rust and Go.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use billhook_testkit::control_plane::Binaries;

use crate::{cargo, progress, run_to_end};

/// Build what the tests need, then run them all
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Passed on to `cargo test`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    // Tests build on demand, too, but nobody would see the progress of minutes of building.
    let binaries = Binaries::locate_or_build(progress)?;
    let helm = Binaries::helm(progress)?;
    Binaries::registry(progress)?;
    let mut command = cargo();
    command.args(["test", "--locked"]).env("BILLHOOK_KUBECTL", binaries.kubectl()).env("BILLHOOK_HELM", helm);
    let selects = |arg: &OsString| ["-p", "--package"].iter().any(|flag| arg == flag);
    if !args.args.iter().any(selects) {
        command.arg("--workspace");
    }
    // A `--` that comes first is not among the arguments: it is taken for the end of our own options.
    if !args.args.is_empty() && std::env::args_os().nth(2).is_some_and(|first| first == "--") {
        command.arg("--");
    }
    command.args(args.args);
    run_to_end(command)
}
