//! `billhook forget`: drops the record of a release and the label of its objects.

use std::collections::BTreeMap;

use billhook_engine::{Clusters, Forgotten};
use billhook_objects::ReleaseName;
use clap::Args;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::{
    commands::take_over::taking_over,
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
    let (clusters, release) = interrupts.unless(open(session, &args.name)).await?;
    let taken = Some(&release).filter(|_| args.take_over);
    let work = async |interrupts: &mut Interrupts| forget(interrupts, &clusters, &release).await;
    let forgotten = taking_over(session, interrupts, &CancellationToken::new(), (&clusters, taken), work).await?;
    if session.json() {
        session.printer.json(&Report { release: release.to_string(), forgotten: &forgotten });
    } else {
        print(session, &release, &forgotten);
    }
    let complete = forgotten.failed.is_empty() && forgotten.unlisted.is_empty();
    Ok(if complete { Exit::Done } else { Exit::Failed })
}

async fn open(session: &Session, name: &str) -> Result<(Clusters, ReleaseName), CommandError> {
    let connection = session.connection().await?;
    let release = connection.release(name)?;
    Ok((connection.with(BTreeMap::new()), release))
}

async fn forget(
    interrupts: &mut Interrupts,
    clusters: &Clusters,
    release: &ReleaseName,
) -> Result<Forgotten, CommandError> {
    let prepared = interrupts.unless(async { Ok(billhook_engine::prepare_forget(clusters, release).await?) }).await?;
    tokio::select! {
        forgotten = billhook_engine::forget(clusters, prepared) => Ok(forgotten?),
        () = interrupts.next() => {
            let problem = "interrupted; some objects may have lost the label of the release already";
            Err(CommandError::new(Exit::Unfinished, problem).hint(text::RESUME_UNLOCKED).abandoned())
        }
    }
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
