//! The `billhook` program as a library, so that tests can run the real program in-process.
//!
//! A [`World`] holds everything the program takes from outside, and [`run`] returns its exit code. All output passes
//! through a [`Printer`]: results go to standard output, everything else to standard error.

mod args;
mod backup_dir;
mod chart;
mod clock;
mod commands;
mod config;
mod connect;
mod error;
mod input;
mod log;
mod output;
mod program;
#[cfg(feature = "sandbox")]
mod rehearsal;
mod render;
mod report;
#[cfg(feature = "sandbox")]
mod sandbox;
mod session;
mod terminal;
mod text;
mod watched;
mod world;

use std::ffi::OsString;

pub use billhook_cluster::{Cluster, Error as ClusterError, Options as ClusterOptions};
pub use log::Logging;
pub use output::{Paint, Printer};
pub use render::plan::render_plan;
pub use report::{ReportOptions, Reporter};
pub use terminal::restore as restore_terminal;
pub use text::INTERRUPTED_TWICE;
pub use world::{Connect, World};

/// Runs the program and returns its exit code.
pub async fn run(world: World) -> u8 {
    program::run(world).await.code()
}

/// Returns the command line's definition, for completions and man pages.
pub fn command() -> clap::Command {
    program::command("billhook")
}

/// Returns what the program logs to standard error, which is a terminal or not; nothing if the arguments cannot be parsed.
pub fn logging(args: &[OsString], terminal: bool) -> Option<Logging> {
    program::logging(args, terminal)
}
