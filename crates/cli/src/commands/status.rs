//! `billhook status`: prints the status of a release.

use std::collections::BTreeMap;

use billhook_engine::{ObjectState, ObjectStatus, ReleaseStatus};
use clap::Args;

use crate::{
    error::{CommandError, Exit},
    output::Paint,
    render::{columns, count, place},
    session::Session,
};

/// Show which objects of a release exist, which are being deleted, and what blocks them
#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Name of the release
    name: String,
}

/// How many objects are printed one by one.
const LISTED: usize = 20;

/// Runs the command.
pub(crate) async fn run(session: &Session, args: Status) -> Result<Exit, CommandError> {
    let connection = session.connection().await?;
    let release = connection.release(&args.name)?;
    let status = billhook_engine::release_status(&connection.with(BTreeMap::new()), &release).await?;
    if session.json() {
        session.printer.json(&status);
    } else {
        text(&status, session.printer.out_paint()).iter().for_each(|line| session.printer.out(line));
    }
    Ok(Exit::Done)
}

fn text(status: &ReleaseStatus, paint: Paint) -> Vec<String> {
    let mut lines = vec![
        format!("release    {}", paint.bold(&status.name)),
        format!("namespace  {}", status.namespace),
        format!("phase      {}", status.phase),
        format!("revision   {}", status.revision),
    ];
    if status.revision == 0 {
        lines.push("the record was lost: the objects below were found by the label of the release".to_owned());
    }
    lines.push(String::new());
    let mut table = vec![["KIND", "DESIRED", "LIVE", "DELETING", "MISSING"].map(str::to_owned).to_vec()];
    for kind in &status.kinds {
        let live = if kind.unreadable.is_some() { "?".to_owned() } else { kind.live.to_string() };
        let numbers = [kind.desired.to_string(), live, kind.deleting.to_string(), kind.missing.to_string()];
        table.push([kind.kind.to_string()].into_iter().chain(numbers).collect());
    }
    lines.extend(columns(&table));
    lines.extend(status.unlisted.iter().map(|failure| format!("{} {failure}", paint.warn("not listed:"))));
    for why in status.kinds.iter().filter_map(|kind| kind.unreadable.as_ref()) {
        lines.push(format!("{} {why}", paint.warn("unreadable:")));
    }
    let objects: Vec<_> = status.objects.iter().filter(|object| object.state != ObjectState::Unreadable).collect();
    if !objects.is_empty() {
        lines.push(String::new());
        lines.push(paint.bold(&format!("{} not as deployed", count(objects.len(), "object"))));
        let rows: Vec<_> = objects.iter().take(LISTED).flat_map(|object| rows(object)).collect();
        lines.extend(columns(&rows).into_iter().map(|line| format!("  {line}")));
        if objects.len() > LISTED {
            lines.push(format!("  and {} more", objects.len() - LISTED));
        }
    }
    lines
}

/// Returns a row for the object, and one for each further blocker.
fn rows(object: &ObjectStatus) -> Vec<Vec<String>> {
    let key = &object.object;
    let row = |state: String| vec![key.kind.to_string(), place(key), state];
    let state = match object.state {
        ObjectState::Deleting => return deleting(object, row),
        ObjectState::Missing => "missing",
        ObjectState::Replaced => "replaced by another object of the same name",
        ObjectState::Obsolete => "from an earlier version, to be pruned",
        ObjectState::Unreadable => "unreadable",
    };
    vec![row(state.to_owned())]
}

fn deleting(object: &ObjectStatus, row: impl Fn(String) -> Vec<String>) -> Vec<Vec<String>> {
    let mut blockers: Vec<_> = object.blockers.iter().map(|blocker| blocker.to_string().replace('\n', " ")).collect();
    if blockers.is_empty() {
        blockers.extend(object.finalizers.iter().map(|finalizer| format!("finalizer {finalizer}")));
    }
    let mut blockers = blockers.into_iter();
    let first = blockers.next().map_or_else(|| "deleting".to_owned(), |blocker| format!("deleting: {blocker}"));
    let more = blockers.map(|blocker| vec![String::new(), String::new(), format!("          {blocker}")]);
    [row(first)].into_iter().chain(more).collect()
}

#[cfg(test)]
mod tests {
    use billhook_engine::{Blocker, KindStatus};
    use billhook_objects::{GroupKind, ObjectKey};

    use super::*;

    fn shown(revision: u64, finalizers: &[&str], blockers: Vec<Blocker>) -> Vec<String> {
        let kind = GroupKind::new("", "Namespace");
        let object = ObjectStatus {
            object: ObjectKey::new(kind.clone(), None, "shop"),
            state: ObjectState::Deleting,
            finalizers: finalizers.iter().map(|finalizer| (*finalizer).to_owned()).collect(),
            blockers,
        };
        let status = ReleaseStatus {
            name: "web".into(),
            namespace: "shop".into(),
            phase: "deleting".into(),
            revision,
            kinds: vec![KindStatus { kind, desired: 1, live: 1, deleting: 1, missing: 0, unreadable: None }],
            objects: vec![object],
            unlisted: Vec::new(),
        };
        text(&status, Paint(false))
    }

    #[test]
    fn an_object_that_is_being_deleted_is_shown_with_its_blockers() {
        let finalizer = Blocker::Finalizer { finalizer: "a.example/x".into(), manager: Some("operator".into()) };
        let condition =
            Blocker::Condition { condition: "NamespaceContentRemaining".into(), message: "pods. has 1\nleft".into() };
        let lines = shown(3, &["a.example/x"], vec![finalizer, condition]);
        assert_eq!(
            lines[lines.len() - 2..],
            [
                "  Namespace  shop  deleting: finalizer a.example/x (set by operator)",
                "                             NamespaceContentRemaining: pods. has 1 left",
            ]
        );
        let unread = shown(3, &["a.example/x"], Vec::new());
        assert_eq!(unread.last().unwrap(), "  Namespace  shop  deleting: finalizer a.example/x");
        assert_eq!(shown(3, &[], Vec::new()).last().unwrap(), "  Namespace  shop  deleting");
    }

    #[test]
    fn a_record_that_was_deleted_with_its_namespace_is_explained() {
        let lines = shown(0, &[], Vec::new());
        assert_eq!((lines[2].as_str(), lines[4].starts_with("the record was deleted")), ("phase      deleting", true));
    }
}
