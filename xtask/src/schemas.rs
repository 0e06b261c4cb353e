//! `cargo xtask schemas`: writes the sandbox's schemas of Kubernetes' own kinds.

use std::process::ExitCode;

use anyhow::Result;

/// Write the sandbox's schemas of Kubernetes' own kinds from the OpenAPI documents of a real API server
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only check that they match the documents
    #[arg(long)]
    check: bool,
}

/// Runs the command.
pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let mut command = crate::cargo();
    command.args(["test", "--quiet", "--package", "billhook-testkit", "--test", "control_plane"]);
    command.args(["the_schemas_of_the_sandbox_are_those_of_the_api_server"]);
    // The file is that of the Kubernetes version of the testbed.
    command.env_remove("KUBEBUILDER_ASSETS");
    if !args.check {
        command.env("BILLHOOK_WRITE_SCHEMAS", "1");
    }
    crate::run_to_end(command)
}
