//! `billhook payload apply`: makes passes over a release payload.

mod args;
mod content;
mod failures;
mod pass;
mod passes;
mod published;
mod told;
mod watch;

use std::sync::Arc;

use billhook_engine::{Clusters, Status, until_gone};
use billhook_objects::{ObjectKey, Uid};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(crate) use self::args::PayloadApplyArgs;
use self::{
    content::Content,
    pass::{End, Passed, Turn},
    passes::Passes,
};
use super::{open, publish::Publisher, warn_unused};
use crate::{
    clock::now,
    commands::take_over::taking_over,
    error::{CommandError, Exit},
    input,
    render::count,
    session::{Interrupts, Session},
};

/// Runs the command.
pub(super) async fn run(
    session: &Session,
    interrupts: &mut Interrupts,
    args: &PayloadApplyArgs,
) -> Result<Exit, CommandError> {
    let chosen = args.settings.read(session)?;
    let policy = input::policy(session, args.policy.as_ref())?;
    if let Some(interval) = args.watch {
        return watch::run(session, interrupts, args, interval, chosen, policy).await;
    }
    let content = Arc::new(Content::read(&session.directory, &args.folder, &chosen.settings)?);
    warn_unused(session, &content.payload, &chosen.settings);
    let (clusters, release) = interrupts.unless(open(session, &chosen)).await?;
    let deadline = input::time_limit(args.timeout, None).and_then(|limit| Instant::now().checked_add(limit));
    let publisher = chosen.cluster_version.map(|name| Arc::new(Publisher::new(&name, &release)));
    let passes = Passes { session, args, release, content, settings: chosen.settings, policy, publisher };
    let taken = Some(&passes.release).filter(|_| args.take_over);
    let work = async |interrupts: &mut Interrupts| repeated(&passes, interrupts, &clusters, deadline).await;
    taking_over(session, interrupts, &CancellationToken::new(), (&clusters, taken), work).await
}

/// Makes a pass, or passes until all requested deletions are done.
async fn repeated(
    passes: &Passes<'_>,
    interrupts: &mut Interrupts,
    clusters: &Clusters,
    deadline: Option<Instant>,
) -> Result<Exit, CommandError> {
    for number in 0.. {
        let clusters = Clusters { now: now(), ..clusters.clone() };
        let turn = Turn { number, deadline, halt: CancellationToken::new(), quiet: false };
        let Passed { end, unpublished, .. } = passes.pass(interrupts, &clusters, turn).await?;
        if let Some(error) = unpublished {
            return Err(error);
        }
        let pending = match end {
            End::Final(exit) => return Ok(exit),
            End::Pending(_) if !passes.args.to_completion => break,
            End::Pending(pending) => pending,
        };
        // Another pass confirms it.
        all_gone(passes.session, interrupts, &clusters, pending, deadline).await?;
    }
    Ok(Exit::Unfinished)
}

/// Waits until the objects of pending deletions are gone.
async fn all_gone(
    session: &Session,
    interrupts: &mut Interrupts,
    clusters: &Clusters,
    pending: Vec<(ObjectKey, Uid)>,
    deadline: Option<Instant>,
) -> Result<(), CommandError> {
    let number = count(pending.len(), "object");
    if !session.json() {
        let verb = if pending.len() == 1 { "is" } else { "are" };
        session.printer.err(&format!("waiting until {number} {verb} gone"));
    }
    let stop = CancellationToken::new();
    let ended = tokio::select! {
        waited = until_gone(clusters, pending, deadline, &stop) => match waited?.status {
            Status::Done => return Ok(()),
            _ => "timed out",
        },
        () = interrupts.next() => "interrupted",
    };
    let problem = format!("{ended}: requested deletions are pending ({number})");
    Err(CommandError::new(Exit::Unfinished, problem).hint("run the same command again to resume"))
}
