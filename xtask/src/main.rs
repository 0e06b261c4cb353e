//! Development commands: `cargo xtask <command>`. Each command has its own file.

mod bench;
mod crds;
mod dist;
mod image;
mod schemas;
mod test;
mod testbed;

use std::process::{Command, ExitCode, ExitStatus};

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about, disable_version_flag = true)]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    Bench(bench::Args),
    Crds(crds::Args),
    Dist(dist::Args),
    Image(image::Args),
    Schemas(schemas::Args),
    Test(test::Args),
    Testbed(testbed::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Task::Dist(args) => dist::run(args),
        Task::Image(args) => image::run(args),
        Task::Bench(args) => bench::run(args),
        Task::Crds(args) => crds::run(args),
        Task::Schemas(args) => schemas::run(args),
        Task::Test(args) => test::run(args),
        Task::Testbed(args) => testbed::run(args),
    };
    result.unwrap_or_else(|error| {
        progress(&format!("error: {error:#}"));
        ExitCode::FAILURE
    })
}

/// Writes a line to standard error, because a shell evaluates standard output.
#[expect(clippy::print_stderr, reason = "the one place that does it")]
fn progress(line: &str) {
    eprintln!("{line}");
}

/// Returns a command for the cargo that runs this program.
fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    command
}

/// Runs a command to its end and returns its exit code.
fn run_to_end(mut command: Command) -> Result<ExitCode> {
    let program = command.get_program().to_owned();
    let status = command.status().with_context(|| format!("failed to run {}", program.display()))?;
    Ok(exit_code(status))
}

fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.map_or(ExitCode::FAILURE, ExitCode::from)
}
