//! `cargo xtask crds`: writes `deploy/crds` from the types of the API.

use std::process::ExitCode;

use anyhow::Result;

/// Write the CustomResourceDefinitions of `deploy/crds` from the types of the API
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only check that they match the types
    #[arg(long)]
    check: bool,
}

/// Runs the command.
pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let mut command = crate::cargo();
    if args.check {
        command.args(["test", "--quiet", "--package", "billhook-deployer", "--lib", "the_checked_in_crds"]);
    } else {
        command.args(["run", "--quiet", "--package", "billhook-deployer", "--example", "crds", "--", "deploy/crds"]);
    }
    crate::run_to_end(command)
}
