//! `billhook payload plan`: shows the graph of a pass over a payload.

use std::path::PathBuf;

use billhook_payload::{HistoryEntry, State, UpdateState, graph, preconditions};
use clap::{Args, ValueEnum};

use super::{Chosen, SettingsArgs, decide, entries, open, parse, read_folder, warn_unused};
use crate::{
    error::{CommandError, Exit},
    render::payload::{Pass, lines, picture},
    session::Session,
};

/// Show the task graph of a release payload, and by which rule each manifest counts
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PayloadPlanArgs {
    /// Plan the manifests of this directory
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// The version of the payload
    #[arg(long)]
    version: String,
    /// Plan the way from this version, which was completed
    #[arg(long, value_name = "VERSION", conflicts_with = "state")]
    from_version: Option<String>,
    /// Plan for this state of the release
    #[arg(long)]
    state: Option<StateArg>,
    #[command(flatten)]
    settings: SettingsArgs,
}

const EXAMPLES: &str = "\
Examples:
  billhook payload plan release/ --version 4.21.0 --from-version 4.20.3
  billhook payload plan release/ --version 4.20.0 --state initializing -o json
  billhook payload plan release/ --version 4.21.0 --state updating -o html > plan.html
  billhook payload plan release/ --version 4.21.0 --state updating -o dot | dot -Tpdf > plan.pdf";

/// The values of `--state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum StateArg {
    /// No version was completed yet
    Initializing,
    /// Another version than the last completed one is applied
    Updating,
    /// The last completed version is applied again
    Reconciling,
}

/// Runs the command.
pub(super) async fn run(session: &Session, args: &PayloadPlanArgs) -> Result<Exit, CommandError> {
    let chosen = args.settings.read(session)?;
    let history = history(session, args, &chosen).await?;
    let (payload, problems) = parse(&read_folder(&session.directory, &args.folder)?);
    let decisions = decide(&payload, problems, &chosen.settings)?;
    warn_unused(session, &payload, &chosen.settings);
    let state = match args.state {
        Some(StateArg::Initializing) => State::Initializing,
        Some(StateArg::Updating) => State::Updating,
        Some(StateArg::Reconciling) => State::Reconciling,
        None => State::of(&history, &args.version),
    };
    let change = preconditions::Change { history: &history, version: &args.version, upgradeable: None, leftover: &[] };
    let pass = Pass {
        name: &chosen.name,
        version: &args.version,
        from_version: args.from_version.as_deref(),
        state,
        // The seed is the number of the pass, and there was none.
        seed: 0,
        payload: &payload,
        decisions: &decisions,
        graph: graph(&payload, &decisions, state, 0),
        preconditions: preconditions::check(&change),
    };
    let printer = &session.printer;
    match picture::render(&pass, session.global.output) {
        Some(drawn) => printer.raw(&drawn),
        None if session.json() => printer.json(&pass.json()),
        None => printer.out_lines(&lines::render(&pass, printer.out_paint())),
    }
    Ok(Exit::Done)
}

/// Returns the history that the flags describe, or that of the record.
async fn history(
    session: &Session,
    args: &PayloadPlanArgs,
    chosen: &Chosen,
) -> Result<Vec<HistoryEntry>, CommandError> {
    match (&args.from_version, args.state) {
        (Some(version), _) => Ok(vec![HistoryEntry { version: version.clone(), state: UpdateState::Completed }]),
        (None, Some(_)) => Ok(Vec::new()),
        (None, None) => {
            let read = async {
                let (clusters, release) = open(session, chosen).await?;
                Ok(entries(&billhook_engine::release_history(&clusters, &release).await?))
            };
            let hint = "pass --from-version VERSION or --state STATE to plan without a cluster";
            read.await.map_err(|error: CommandError| error.hint(hint))
        }
    }
}
