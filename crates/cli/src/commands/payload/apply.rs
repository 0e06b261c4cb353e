//! `billhook payload apply`: makes passes over a release payload.

mod args;
mod content;
mod failures;
mod pass;
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
    pass::{End, Passed, Passes, Turn},
};
use super::{open, publish::Publisher, warn_unused};
use crate::{
    clock::now,
    commands::operate,
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
    let (mut clusters, release) = interrupts.unless(open(session, &chosen)).await?;
    if args.take_over {
        interrupts.unless(operate::take_over(session, &clusters, &release)).await?;
    }
    let deadline = input::time_limit(args.timeout, None).and_then(|limit| Instant::now().checked_add(limit));
    let publisher = chosen.cluster_version.map(|name| Arc::new(Publisher::new(&name, &release)));
    let passes = Passes { session, args, release, content, settings: chosen.settings, policy, publisher };
    for number in 0.. {
        clusters.now = now();
        let turn = Turn { number, deadline, halt: CancellationToken::new(), quiet: false };
        let Passed { end, unpublished, .. } = passes.pass(interrupts, &clusters, turn).await?;
        if let Some(error) = unpublished {
            return Err(error);
        }
        let pending = match end {
            End::Final(exit) => return Ok(exit),
            End::Pending(_) if !args.to_completion => break,
            End::Pending(pending) => pending,
        };
        // Another pass confirms it.
        if !all_gone(session, interrupts, &clusters, pending, deadline).await? {
            break;
        }
    }
    Ok(Exit::Unfinished)
}

/// Waits until the objects of pending deletions are gone, and returns whether they are.
async fn all_gone(
    session: &Session,
    interrupts: &mut Interrupts,
    clusters: &Clusters,
    pending: Vec<(ObjectKey, Uid)>,
    deadline: Option<Instant>,
) -> Result<bool, CommandError> {
    if !session.json() {
        let verb = if pending.len() == 1 { "is" } else { "are" };
        session.printer.err(&format!("waiting until {} {verb} gone", count(pending.len(), "object")));
    }
    let stop = CancellationToken::new();
    let waited = tokio::select! {
        waited = until_gone(clusters, pending, deadline, &stop) => waited?,
        () = interrupts.next() => return Ok(false),
    };
    if waited.status == Status::TimedOut {
        session.printer.err("timed out: requested deletions are pending; run the same command again to resume");
    }
    Ok(waited.status == Status::Done)
}
