//! `billhook forget`: drops the record of a release and the label of its objects.

use std::collections::BTreeMap;

use billhook_engine::Forgotten;
use billhook_objects::ReleaseName;
use clap::Args;
use serde::Serialize;

use crate::{
    commands::operate,
    error::{CommandError, Exit},
    render::{count, object},
    session::{Interrupts, Session},
    text,
};

/// Drop the record of a release and the label of its objects, without deleting anything
///
/// Afterwards the objects belong to no release, and another release can adopt them with --adopt. A release that lost its record
/// is found by its label.
#[derive(Debug, Args)]
pub(crate) struct Forget {
    /// Name of the release
    name: String,
    /// Take over from another operation that works on the release, which then stops [default: refuse]
    #[arg(long)]
    take_over: bool,
}

/// What `-o json` prints.
#[derive(Serialize)]
struct Report<'a> {
    release: String,
    #[serde(flatten)]
    forgotten: &'a Forgotten,
}

/// Runs the command.
pub(crate) async fn run(session: &Session, interrupts: &mut Interrupts, args: Forget) -> Result<Exit, CommandError> {
    let (release, forgotten) = tokio::select! {
        forgotten = forget(session, &args) => forgotten?,
        () = interrupts.next() => {
            let problem = "interrupted; some objects may have lost the label of the release already";
            return Err(CommandError::new(Exit::Unfinished, problem).hint(text::RESUME_UNLOCKED));
        }
    };
    if session.json() {
        session.printer.json(&Report { release: release.to_string(), forgotten: &forgotten });
    } else {
        print(session, &release, &forgotten);
    }
    let complete = forgotten.failed.is_empty() && forgotten.unlisted.is_empty();
    Ok(if complete { Exit::Done } else { Exit::Failed })
}

async fn forget(session: &Session, args: &Forget) -> Result<(ReleaseName, Forgotten), CommandError> {
    let connection = session.connection().await?;
    let release = connection.release(&args.name)?;
    let clusters = connection.with(BTreeMap::new());
    if args.take_over {
        operate::take_over(session, &clusters, &release).await?;
    }
    let forgotten = billhook_engine::forget(&clusters, &release).await?;
    Ok((release, forgotten))
}

fn print(session: &Session, release: &ReleaseName, forgotten: &Forgotten) {
    let Forgotten { objects, failed, unlisted } = forgotten;
    let (out, err) = (session.printer.out_paint(), session.printer.err_paint());
    for key in objects {
        session.printer.out(&format!("label removed from {}", object(key)));
    }
    for (key, why) in failed {
        session.printer.err(&format!("{} {} keeps the label: {why}", err.bad("failed:"), object(key)));
    }
    for failure in unlisted {
        session.printer.err(&format!("{} {failure}", err.warn("not listed:")));
    }
    let number = count(objects.len(), "object");
    if failed.is_empty() && unlisted.is_empty() {
        let what = out.good(&format!("release {release} forgotten"));
        session.printer.out(&format!("{what}: the label of {number} removed, nothing deleted"));
    } else {
        let problem = format!("{} release {release} is not forgotten completely", err.bad("error:"));
        session.printer.err(&format!("{problem}: the label of {number} removed, nothing deleted"));
        session.printer.hint("fix the problem, then run the same command again to resume");
    }
}
