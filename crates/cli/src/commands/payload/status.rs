//! `billhook payload status`: shows the versions of a release payload, and what is being deleted.

use billhook_engine::{
    Blocker, ObjectState, ObjectStatus, ReleaseStatus, blocker_texts, name_root_causes, release_status,
};
use billhook_objects::ObjectKey;
use billhook_payload::{
    Settings,
    messages::{UPDATE_FAILED, Upgradeable, resource},
};
use billhook_plan::{AppliedVersion, Failure, Failures, VersionState};
use clap::Args;
use serde::Serialize;

use super::{SettingsArgs, open, rfc3339};
use crate::{
    error::{CommandError, Exit},
    render::{columns, count},
    session::Session,
};

/// Show the versions of a release payload, its progress, what is being deleted, and whether it can be upgraded
#[derive(Debug, Args)]
pub(crate) struct PayloadStatusArgs {
    #[command(flatten)]
    settings: SettingsArgs,
}

/// The status as JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    name: &'a str,
    namespace: &'a str,
    phase: &'a str,
    history: &'a [AppliedVersion],
    /// How many objects exist, of all that the release contains.
    present: usize,
    desired: usize,
    /// What failed in the last pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    failures: Option<FailedManifests<'a>>,
    deletions: Vec<Deletion<'a>>,
    /// Why minor and major updates are not possible.
    #[serde(skip_serializing_if = "Option::is_none")]
    upgradeable: Option<Condition<'a>>,
}

#[derive(Serialize)]
struct FailedManifests<'a> {
    objects: Vec<FailedManifest<'a>>,
    /// How many others there were.
    omitted: usize,
}

#[derive(Serialize)]
struct FailedManifest<'a> {
    object: &'a ObjectKey,
    error: &'a str,
    /// That of an object that is not healthy, else the reference's for all others.
    reason: &'a str,
}

#[derive(Serialize)]
struct Condition<'a> {
    status: &'static str,
    #[serde(flatten)]
    why: &'a Upgradeable,
}

/// An object that is being deleted.
#[derive(Serialize)]
pub(super) struct Deletion<'a> {
    object: &'a ObjectKey,
    /// Its `deletionTimestamp`.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    blockers: &'a [Blocker],
}

/// Runs the command.
pub(super) async fn run(session: &Session, args: &PayloadStatusArgs) -> Result<Exit, CommandError> {
    let chosen = args.settings.read(session)?;
    let (clusters, release) = open(session, &chosen).await?;
    let mut status = release_status(&clusters, &release).await?;
    name_root_causes(&clusters.own, &mut status).await;
    let upgradeable = upgradeable(&status, &chosen.settings);
    if session.json() {
        let ReleaseStatus { name, namespace, phase, history, failures, .. } = &status;
        let (present, desired) = progress(&status);
        let upgradeable = upgradeable.as_ref().map(|why| Condition { status: "False", why });
        let deletions = deletions(&status);
        let failures = failed_manifests(failures);
        let report = Report { name, namespace, phase, history, present, desired, failures, deletions, upgradeable };
        session.printer.json(&report);
    } else {
        lines(&status, upgradeable.as_ref()).iter().for_each(|line| session.printer.out(line));
    }
    Ok(Exit::Done)
}

/// Returns why minor and major updates are not possible: objects that are being deleted because a manifest requested it, and
/// overrides.
pub(super) fn upgradeable(status: &ReleaseStatus, settings: &Settings) -> Option<Upgradeable> {
    let deleting = being_deleted(status).filter(|object| object.deletion_requested).map(|object| &object.object);
    let overrides = (!settings.overrides.is_empty()).then(Upgradeable::overrides);
    Upgradeable::all(Upgradeable::deletions(deleting).into_iter().chain(overrides).collect())
}

fn being_deleted(status: &ReleaseStatus) -> impl Iterator<Item = &ObjectStatus> {
    status.objects.iter().filter(|object| object.state == ObjectState::Deleting)
}

/// Returns the objects that are being deleted.
pub(super) fn deletions(status: &ReleaseStatus) -> Vec<Deletion<'_>> {
    let deletion = |object: &'_ ObjectStatus| object.deleted_at.map(|at| rfc3339(Some(at)));
    let all = being_deleted(status);
    all.map(|object| Deletion { object: &object.object, since: deletion(object), blockers: &object.blockers }).collect()
}

/// Returns a line for each object that is being deleted: since when, and what blocks it.
pub(super) fn deletion_lines(status: &ReleaseStatus) -> Vec<String> {
    let line = |object: &ObjectStatus| {
        let since = object.deleted_at.map(|at| format!(" since {}", rfc3339(Some(at)))).unwrap_or_default();
        let blockers = blocker_texts(&object.blockers);
        let blockers = if blockers.is_empty() { String::new() } else { format!(": {}", blockers.join(", ")) };
        format!("deleting{since} {}{blockers}", resource(&object.object))
    };
    being_deleted(status).map(line).collect()
}

fn failed_manifests(Failures { objects, omitted }: &Failures) -> Option<FailedManifests<'_>> {
    let failed = objects.iter().map(|Failure { object, error, code }| {
        let reason = code.as_deref().unwrap_or(UPDATE_FAILED);
        FailedManifest { object, error, reason }
    });
    (!objects.is_empty()).then(|| FailedManifests { objects: failed.collect(), omitted: *omitted })
}

/// Returns the lines about what failed in the last pass, after an empty line.
fn failure_lines(failures: &Failures) -> Vec<String> {
    if failures.is_empty() {
        return Vec::new();
    }
    let failed = count(failures.objects.len() + failures.omitted, "manifest");
    let mut lines = vec![String::new(), format!("{failed} failed in the last pass")];
    for Failure { object, error, .. } in &failures.objects {
        let mut text = error.lines();
        lines.push(format!("  {}: {}", resource(object), text.next().unwrap_or_default()));
        lines.extend(text.map(|line| format!("    {line}")));
    }
    lines.extend((failures.omitted > 0).then(|| format!("  and {} more", failures.omitted)));
    lines
}

/// Returns how many of the objects that the release contains exist, and how many these are.
fn progress(status: &ReleaseStatus) -> (usize, usize) {
    let present = status.objects.iter().filter(|object| object.state == ObjectState::Present).count();
    (present, status.kinds.iter().map(|kind| kind.desired).sum())
}

fn lines(status: &ReleaseStatus, upgradeable: Option<&Upgradeable>) -> Vec<String> {
    let mut lines = vec![
        format!("payload      {}", status.name),
        format!("namespace    {}", status.namespace),
        format!("phase        {}", status.phase),
    ];
    let (present, desired) = progress(status);
    lines.push(format!("objects      {present} of {desired} exist"));
    lines.push(match upgradeable {
        None => "upgradeable  yes".to_owned(),
        Some(why) => format!("upgradeable  no: {}: {}", why.reason, why.message),
    });
    if !status.history.is_empty() {
        lines.push(String::new());
        let mut table = vec![["VERSION", "STATE", "STARTED", "COMPLETED"].map(str::to_owned).to_vec()];
        for version in &status.history {
            let state = match version.state {
                VersionState::Completed => "Completed",
                VersionState::Partial => "Partial",
            };
            let completed = version.completion_time.clone().unwrap_or_else(|| "-".to_owned());
            table.push(vec![version.version.clone(), state.to_owned(), version.started_time.clone(), completed]);
        }
        lines.extend(columns(&table));
    }
    lines.extend(failure_lines(&status.failures));
    let deleting = deletion_lines(status);
    if !deleting.is_empty() {
        lines.extend([String::new(), format!("{} being deleted", count(deleting.len(), "object"))]);
        lines.extend(deleting.into_iter().map(|line| format!("  {line}")));
    }
    lines
}
