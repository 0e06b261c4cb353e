//! `billhook payload apply`: makes a pass over a release payload.

mod args;
mod failures;
mod pass;
mod published;
mod told;

use std::time::Duration;

use tokio::time::{Instant, sleep};

pub(crate) use self::args::PayloadApplyArgs;
use self::pass::{End, Passes};
use super::{decide, open, parse, publish::Publisher, read_folder, warn_unused};
use crate::{
    commands::operate,
    error::{CommandError, Exit},
    input,
    session::{Interrupts, Session, timestamp},
};

/// The first pause before another pass that looks whether requested deletions are done; each is twice as long as the last one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest of these pauses.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// Runs the command.
pub(super) async fn run(
    session: &Session,
    interrupts: &mut Interrupts,
    args: &PayloadApplyArgs,
) -> Result<Exit, CommandError> {
    let chosen = args.settings.read(session)?;
    let (payload, problems) = parse(&read_folder(session, &args.folder)?);
    let decisions = decide(&payload, problems, &chosen.settings)?;
    let policy = input::policy(session, args.policy.as_ref())?;
    warn_unused(session, &payload, &chosen.settings);
    let (mut clusters, release) = interrupts.unless(open(session, &chosen)).await?;
    let settings = chosen.settings;
    if args.take_over {
        interrupts.unless(operate::take_over(session, &clusters, &release)).await?;
    }
    let limit = input::time_limit(args.timeout, None);
    let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    let publisher = chosen.cluster_version.map(|name| Publisher::new(&name, &release));
    let passes = Passes { session, args, release, payload, decisions, settings, policy, deadline, publisher };
    let mut pause = FIRST_PAUSE;
    for pass in 0.. {
        match passes.pass(interrupts, &clusters, pass).await? {
            End::Final(exit) => return Ok(exit),
            End::Pending if !args.to_completion => return Ok(Exit::Unfinished),
            End::Pending => {}
        }
        if deadline.is_some_and(|deadline| Instant::now() + pause >= deadline) {
            session.printer.err("timed out: requested deletions are pending; run the same command again to resume");
            return Ok(Exit::Unfinished);
        }
        tokio::select! {
            () = sleep(pause) => {}
            () = interrupts.next() => return Ok(Exit::Unfinished),
        }
        pause = LONGEST_PAUSE.min(pause * 2);
        let now = timestamp();
        clusters.now = now.round(jiff::Unit::Second).unwrap_or(now).to_string();
    }
    Ok(Exit::Unfinished)
}
