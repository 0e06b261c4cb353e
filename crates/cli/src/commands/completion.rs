//! `billhook completion`: prints a shell completion script.

use clap::Args;
use clap_complete::Shell;

use crate::{error::Exit, session::Session};

/// Print a shell completion script
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionArgs {
    /// Generate the script for this shell
    shell: Shell,
}

const EXAMPLES: &str = "\
Examples:
  source <(billhook completion bash)
  billhook completion zsh > \"${fpath[1]}/_billhook\"";

/// Runs the command for the command line that `definition` describes.
pub(crate) fn run(session: &Session, args: &CompletionArgs, definition: &mut clap::Command) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, definition, "billhook", &mut script);
    session.printer.raw(&String::from_utf8_lossy(&script));
    Exit::Done
}
