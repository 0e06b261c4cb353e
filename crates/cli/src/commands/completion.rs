//! `billhook completion`: a script that completes the program's arguments.

use clap::Args;
use clap_complete::Shell;

use crate::{error::Exit, session::Session};

/// Print a script that completes the arguments in a shell
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Completion {
    /// The shell
    shell: Shell,
}

const EXAMPLES: &str = "\
Examples:
  source <(billhook completion bash)
  billhook completion zsh > \"${fpath[1]}/_billhook\"";

/// Runs the command.
pub(crate) fn run(session: &Session, args: &Completion) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::command(), "billhook", &mut script);
    session.printer.text(&String::from_utf8_lossy(&script));
    Exit::Done
}
