//! `billhook status`: prints the status of a release.

use billhook_engine::{
    ObjectState, ObjectStatus, ReleaseStatus, TargetState, TargetStatus, blocker_texts, name_root_causes,
    readiness::Readiness,
};
use billhook_plan::Phase;
use clap::Args;

use crate::{
    connect::Target,
    error::{CommandError, Exit},
    output::Paint,
    render::{columns, count, place},
    session::Session,
};

/// Show which objects of a release exist and are ready, which are being deleted, and what blocks them
///
/// Exits with 0 whatever the state of the objects is. -v lists the objects that are as deployed and ready, too.
#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Name of the release
    name: String,
    /// Show what the policy selects in the cluster of this targetName; can be repeated
    #[arg(long, value_name = "NAME=KUBECONFIG[#CONTEXT]")]
    target: Vec<Target>,
}

/// How many objects are printed one by one.
const LISTED: usize = 20;

/// Runs the command.
pub(crate) async fn run(session: &Session, args: Status) -> Result<Exit, CommandError> {
    let connection = session.connection().await?;
    let release = connection.release(&args.name)?;
    let clusters = connection.with(session.targets(&args.target).await?);
    let mut status = billhook_engine::release_status(&clusters, &release).await?;
    name_root_causes(&clusters.own, &mut status).await;
    if session.json() {
        session.printer.json(&status);
    } else {
        let lines = text(&status, session.global.verbose > 0, session.printer.out_paint());
        lines.iter().for_each(|line| session.printer.out(line));
    }
    Ok(Exit::Done)
}

fn text(status: &ReleaseStatus, all: bool, paint: Paint) -> Vec<String> {
    let mut lines = vec![
        format!("release    {}", paint.bold(&status.name)),
        format!("namespace  {}", status.namespace),
        format!("phase      {}", status.phase),
        format!("revision   {}", status.revision),
    ];
    lines.extend(status.backup.map(|objects| format!("backup     {}", count(objects, "object"))));
    lines.extend(status.operation.as_ref().map(|locked| format!("operation  {}", locked.holder())));
    if status.revision == 0 {
        lines.push("the record was lost: the objects below were found by the label of the release".to_owned());
    }
    lines.push(String::new());
    let mut table = vec![["KIND", "DESIRED", "LIVE", "READY", "DELETING", "MISSING"].map(str::to_owned).to_vec()];
    for kind in &status.kinds {
        let known = |number: usize| if kind.unreadable.is_some() { "?".to_owned() } else { number.to_string() };
        let numbers = [kind.desired, kind.deleting, kind.missing].map(|number| number.to_string());
        let [desired, deleting, missing] = numbers;
        table.push(vec![kind.kind.to_string(), desired, known(kind.live), known(kind.ready), deleting, missing]);
    }
    lines.extend(columns(&table));
    lines.extend(status.unlisted.iter().map(|failure| format!("{} {failure}", paint.warn("not listed:"))));
    for why in status.kinds.iter().filter_map(|kind| kind.unreadable.as_ref()) {
        lines.push(format!("{} {why}", paint.warn("unreadable:")));
    }
    let (well, unwell): (Vec<_>, Vec<_>) = status.objects.iter().partition(|object| object.is_well());
    // What a deletion has removed so far must not push what blocks it off the list.
    let is_gone = |state: ObjectState| state == ObjectState::Missing && status.phase == Phase::Deleting.to_string();
    let is_shown = |object: &&ObjectStatus| object.state != ObjectState::Unreadable && !is_gone(object.state);
    let mut unwell: Vec<_> = unwell.into_iter().filter(is_shown).collect();
    unwell.sort_by_key(|object| object.state != ObjectState::Deleting);
    if !unwell.is_empty() {
        let heading = format!("{} not as deployed or not ready", count(unwell.len(), "object"));
        section(&heading, &unwell, all, paint, &mut lines);
    }
    lines.extend(meanings(&status.objects).into_iter().map(|meaning| format!("{} {meaning}", paint.warn("note:"))));
    if all && !well.is_empty() {
        let heading = format!("{} as deployed and ready", count(well.len(), "object"));
        section(&heading, &well, all, paint, &mut lines);
    }
    status.targets.iter().for_each(|target| of_target(target, all, paint, &mut lines));
    lines
}

/// Adds objects under a heading: the first ones, or all of them.
fn section(heading: &str, objects: &[&ObjectStatus], all: bool, paint: Paint, lines: &mut Vec<String>) {
    let listed = if all { usize::MAX } else { LISTED };
    lines.extend([String::new(), paint.bold(heading)]);
    let rows: Vec<_> = objects.iter().take(listed).flat_map(|object| rows(object)).collect();
    lines.extend(columns(&rows).into_iter().map(|line| format!("  {line}")));
    if objects.len() > listed {
        lines.push(format!("  and {} more", objects.len() - listed));
    }
}

/// Returns what the states in which an object does not fully belong to the release mean for the next command.
fn meanings(objects: &[ObjectStatus]) -> Vec<&'static str> {
    let meanings = [
        (
            ObjectState::Unlabelled,
            "delete refuses to delete objects without the label of the release unless --yes is given, and apply refuses to \
             change them unless --adopt is given",
        ),
        (
            ObjectState::Claimed,
            "delete does not delete objects with the label of another release, and apply refuses to change them; once that \
             release no longer exists, --adopt takes them over",
        ),
        (
            ObjectState::Replaced,
            "delete does not delete objects that replaced those of the release, and apply refuses to change them unless \
             --adopt is given",
        ),
    ];
    let is_there = |state: ObjectState| objects.iter().any(|object| object.state == state);
    meanings.into_iter().filter(|(state, _)| is_there(*state)).map(|(_, meaning)| meaning).collect()
}

fn of_target(TargetStatus { target, state }: &TargetStatus, all: bool, paint: Paint, lines: &mut Vec<String>) {
    let groups = match state {
        TargetState::Read { groups } => groups,
        TargetState::NotGiven => {
            let advice = format!(
                "target {target}: not read; use --target {target}=KUBECONFIG to show what the policy selects there"
            );
            return lines.extend([String::new(), advice]);
        }
        TargetState::Unreadable { reason } => {
            return lines.extend([String::new(), format!("target {target}: {} {reason}", paint.warn("unreadable:"))]);
        }
    };
    for group in groups {
        let objects: Vec<_> = group.objects.iter().collect();
        let heading = format!("target {target}, group {}: {}", group.group, count(objects.len(), "object"));
        section(&heading, &objects, all, paint, lines);
    }
}

/// Returns a row for the object, and one for each further blocker.
fn rows(object: &ObjectStatus) -> Vec<Vec<String>> {
    let key = &object.object;
    let row = |state: String| vec![key.kind.to_string(), place(key), state];
    let state = match (object.state, &object.readiness) {
        (ObjectState::Deleting, _) => return deleting(object, row),
        (ObjectState::Present, Some(Readiness::Ready)) => "ready".to_owned(),
        (ObjectState::Present, Some(Readiness::NotYet(reason))) => format!("not ready: {reason}"),
        (ObjectState::Present, Some(Readiness::Failed(reason))) => format!("failed: {reason}"),
        (ObjectState::Present, None) => "present".to_owned(),
        (ObjectState::Missing, _) => "missing".to_owned(),
        (ObjectState::Replaced, _) => "another object has this name, without the label of the release".to_owned(),
        (ObjectState::Unlabelled, _) => "without the label of the release".to_owned(),
        (ObjectState::Claimed, _) => "with the label of another release".to_owned(),
        (ObjectState::Obsolete, _) => "from an earlier version, to be pruned".to_owned(),
        (ObjectState::Unreadable, _) => "unreadable".to_owned(),
    };
    vec![row(state)]
}

fn deleting(object: &ObjectStatus, row: impl Fn(String) -> Vec<String>) -> Vec<Vec<String>> {
    let mut blockers = blocker_texts(&object.blockers);
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
    use billhook_engine::{Blocker, KindStatus, TargetGroup};
    use billhook_objects::{GroupKind, ObjectKey};

    use super::*;

    fn shown(revision: u64, finalizers: &[&str], blockers: Vec<Blocker>) -> Vec<String> {
        let kind = GroupKind::new("", "Namespace");
        let object = ObjectStatus {
            deletion_requested: false,
            object: ObjectKey::new(kind.clone(), None, "shop"),
            uid: None,
            state: ObjectState::Deleting,
            readiness: None,
            finalizers: finalizers.iter().map(|finalizer| (*finalizer).to_owned()).collect(),
            blockers,
            deleted_at: None,
        };
        let status = ReleaseStatus {
            backup: None,
            name: "web".into(),
            namespace: "shop".into(),
            phase: "deleting".into(),
            revision,
            history: Vec::new(),
            failures: Default::default(),
            kinds: vec![KindStatus { kind, desired: 1, live: 1, ready: 0, deleting: 1, missing: 0, unreadable: None }],
            objects: vec![object],
            operation: None,
            targets: Vec::new(),
            unlisted: Vec::new(),
        };
        text(&status, false, Paint(false))
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
                "                             NamespaceContentRemaining: pods. has 1\nleft",
            ]
        );
        let unread = shown(3, &["a.example/x"], Vec::new());
        assert_eq!(unread.last().unwrap(), "  Namespace  shop  deleting: finalizer a.example/x");
        assert_eq!(shown(3, &[], Vec::new()).last().unwrap(), "  Namespace  shop  deleting");
    }

    #[test]
    fn what_blocks_a_deletion_comes_first_and_what_is_gone_is_left_out() {
        let object = |name: &str, state| ObjectStatus {
            deletion_requested: false,
            deleted_at: None,
            object: ObjectKey::new(GroupKind::new("", "Pod"), Some("shop"), name),
            uid: None,
            state,
            readiness: None,
            finalizers: Vec::new(),
            blockers: Vec::new(),
        };
        let status = |phase: &str| ReleaseStatus {
            backup: None,
            history: Vec::new(),
            failures: Default::default(),
            name: "web".into(),
            namespace: "shop".into(),
            phase: phase.into(),
            revision: 1,
            kinds: Vec::new(),
            objects: vec![object("a", ObjectState::Missing), object("b", ObjectState::Deleting)],
            unlisted: Vec::new(),
            operation: None,
            targets: Vec::new(),
        };
        let shown = |phase: &str| text(&status(phase), false, Paint(false))[8..].to_vec();
        assert_eq!(shown("deleting"), ["  Pod  shop/b  deleting"]);
        assert_eq!(shown("applied"), ["  Pod  shop/b  deleting", "  Pod  shop/a  missing"]);
    }

    #[test]
    fn a_record_that_was_deleted_with_its_namespace_is_explained() {
        let lines = shown(0, &[], Vec::new());
        assert_eq!((lines[2].as_str(), lines[4].starts_with("the record was lost")), ("phase      deleting", true));
    }

    #[test]
    fn readiness_and_other_clusters_are_shown() {
        let object = |name: &str, readiness: Option<Readiness>| ObjectStatus {
            deletion_requested: false,
            object: ObjectKey::new(GroupKind::new("", "Pod"), Some("shop"), name),
            uid: None,
            state: ObjectState::Present,
            readiness,
            finalizers: Vec::new(),
            blockers: Vec::new(),
            deleted_at: None,
        };
        let groups = vec![TargetGroup { group: "pods".into(), objects: vec![object("far", None)] }];
        let target = |name: &str, state| TargetStatus { target: name.into(), state };
        let status = ReleaseStatus {
            backup: None,
            name: "web".into(),
            namespace: "shop".into(),
            phase: "applied".into(),
            revision: 1,
            history: Vec::new(),
            failures: Default::default(),
            kinds: Vec::new(),
            objects: vec![
                object("a", Some(Readiness::Ready)),
                object("b", Some(Readiness::NotYet("0 of 1 updated".into()))),
                object("c", Some(Readiness::Failed("the pod failed".into()))),
            ],
            unlisted: Vec::new(),
            operation: None,
            targets: vec![target("edge", TargetState::Read { groups }), target("far", TargetState::NotGiven)],
        };
        let shown = [
            "",
            "2 objects not as deployed or not ready",
            "  Pod  shop/b  not ready: 0 of 1 updated",
            "  Pod  shop/c  failed: the pod failed",
            "",
            "target edge, group pods: 1 object",
            "  Pod  shop/far  present",
            "",
            "target far: not read; use --target far=KUBECONFIG to show what the policy selects there",
        ];
        assert_eq!(text(&status, false, Paint(false))[6..], shown);
        let all = text(&status, true, Paint(false));
        assert!(all.iter().any(|line| line == "  Pod  shop/a  ready"), "{all:?}");
    }
}
