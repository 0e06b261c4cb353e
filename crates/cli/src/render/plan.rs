//! Prints a plan: the groups in order, each object under its group, what is not deleted, the notes.

use std::collections::BTreeMap;

use billhook_engine::ObjectDiff;
use billhook_objects::{GroupKind, ObjectKey};
use billhook_plan::{
    ApplyAction, ApplyTask, ApplyWork, Barrier, Collection, Counts, DeleteStep, DeleteTask, DeleteWork, Exclusion,
    Node, Note, Operation, PatchTask, Plan, Query, Select, Severity, Step, Uncovered, UnservedStep, Work,
};
use billhook_policy::{Propagation, UpdateStrategy};
use serde_json::Value;

use crate::{
    output::Paint,
    render::{columns, count, diff, first, place},
    text,
};

/// Returns the text of a plan, as it is printed.
pub fn render_plan(plan: &Plan, paint: Paint) -> String {
    render_plan_with(plan, &[], false, paint)
}

/// Returns the text of a plan with what changes in each object below it.
pub(crate) fn render_plan_with(plan: &Plan, diffs: &[ObjectDiff], full: bool, paint: Paint) -> String {
    let diffs: BTreeMap<_, _> = diffs.iter().map(|diff| ((&diff.object, diff.cluster.as_ref()), diff)).collect();
    let body = |object: &ObjectKey, node: &Node| {
        let diff = diffs.get(&(object, node.cluster.as_ref()));
        diff.map(|diff| diff::body(diff, full, paint)).unwrap_or_default()
    };
    let mut lines = vec![paint.bold(&headline(plan))];
    for (at, node) in plan.nodes.iter().enumerate() {
        lines.push(String::new());
        lines.push(format!("{}{}", paint.bold(&format!("{}. {}", at + 1, node.title)), paint.dim(&facts(node))));
        let mut objects = objects(node).into_iter();
        for line in content(plan, node) {
            lines.push(format!("   {line}"));
            let body = objects.next().flatten().map(|object| body(object, node)).unwrap_or_default();
            lines.extend(body.into_iter().map(|line| format!("      {line}")));
        }
    }
    let (contained, remaining): (Vec<&Uncovered>, _) = plan.uncovered.iter().partition(|u| u.deleted_with.is_some());
    for (title, uncovered) in [("deleted with their Namespace or CRD", contained), ("not deleted", remaining)] {
        if uncovered.is_empty() {
            continue;
        }
        lines.push(String::new());
        lines.push(paint.bold(title));
        let rows: Vec<_> =
            uncovered.iter().map(|u| vec![u.object.kind.to_string(), place(&u.object), u.reason()]).collect();
        lines.extend(columns(&rows).into_iter().map(|line| format!("   {line}")));
    }
    if !plan.unmanaged.is_empty() {
        lines.push(String::new());
        lines.push(paint.bold("no longer managed"));
        let rows: Vec<_> = plan.unmanaged.iter().map(|u| vec![u.object.kind.to_string(), place(&u.object)]).collect();
        lines.extend(columns(&rows).into_iter().map(|line| format!("   {line}")));
    }
    if !plan.notes.is_empty() {
        lines.push(String::new());
        lines.push(paint.bold("notes"));
        lines.extend(plan.notes.iter().map(|n| format!("   {}", note(n, paint))));
    }
    // A note may quote the cluster, and must not begin a line.
    lines.iter().map(|line| paint.line(line) + "\n").collect()
}

/// The number of notes that are printed outside of a plan.
const NOTES: usize = 50;

/// Returns the most severe of the notes that are dangerous or warnings, one a line, and counts the others.
pub(crate) fn warnings(notes: &[Note], paint: Paint) -> Vec<String> {
    let notes: Vec<&Note> = notes.iter().filter(|note| note.severity < Severity::Info).collect();
    first(&notes, NOTES, |n| vec![note(n, paint)])
}

/// Returns the text of a note, on one line.
pub(crate) fn note(note: &Note, paint: Paint) -> String {
    let severity = match note.severity {
        Severity::Dangerous => paint.bad("dangerous"),
        Severity::Warning => paint.warn("warning  "),
        Severity::Info => paint.dim("info     "),
    };
    format!("{severity}  {}", text::note(note))
}

/// Returns what a plan does in a few words: `delete release shop/web: 12 objects in 3 groups`.
pub(crate) fn headline(plan: &Plan) -> String {
    let verb = plan.operation.name();
    let what = match &plan.release {
        Some(release) => format!("{verb} release {release}"),
        None if plan.operation == Operation::Clean => verb.to_owned(),
        None => format!("{verb} the objects in the manifests"),
    };
    format!("{what}: {}", amounts(plan))
}

fn amounts(plan: &Plan) -> String {
    let actions = [
        (ApplyAction::Create, "to create"),
        (ApplyAction::Update, "to update"),
        (ApplyAction::Adopt, "to adopt"),
        (ApplyAction::Recreate, "to recreate"),
        (ApplyAction::Unchanged, "unchanged"),
    ];
    let tasks: Vec<&ApplyTask> = plan.apply_tasks().collect();
    let mut parts = Vec::new();
    for (action, words) in actions {
        let number = tasks.iter().filter(|task| task.action == action).count();
        if number > 0 {
            parts.push(format!("{number} {words}"));
        }
    }
    let (deletions, collections) = (plan.delete_nodes().map(|(_, work)| work.objects.len()).sum(), collections(plan));
    let requested = plan.delete_steps().count();
    if requested > 0 {
        parts.push(format!("{requested} to delete"));
    }
    let more = if collections > 0 { " and any that appear meanwhile" } else { "" };
    match plan.operation {
        Operation::Apply if deletions + collections > 0 => parts.push(format!("{deletions} to prune{more}")),
        Operation::Delete | Operation::Clean if deletions + collections > 0 => {
            let groups = count(groups(plan), "group");
            parts.push(format!("{}{more} in {groups}", count(deletions, "object")));
        }
        Operation::Apply | Operation::Restore | Operation::Delete | Operation::Clean => {}
    }
    if parts.is_empty() { "nothing to do".to_owned() } else { parts.join(", ") }
}

/// Returns how many collections are deleted.
pub(crate) fn collections(plan: &Plan) -> usize {
    let of = |node: &Node| if let Work::Delete(work) = &node.work { work.collections.len() } else { 0 };
    plan.nodes.iter().map(of).sum()
}

/// Returns how many groups are deleted.
fn groups(plan: &Plan) -> usize {
    plan.nodes.iter().filter(|node| matches!(node.work, Work::Delete(_))).count()
}

/// Returns the settings of a group.
pub(crate) fn facts(node: &Node) -> String {
    let mut facts = Vec::new();
    if !node.path.is_empty() && node.path != node.title {
        facts.push(node.path.clone());
    }
    if let Some(cluster) = &node.cluster {
        facts.push(format!("on target {cluster}"));
    }
    facts.push(match (&node.work, node.barrier) {
        (Work::Apply(work), Barrier::Requested) => format!("{}, without waiting", count(work.objects.len(), "object")),
        (Work::Apply(work), _) => match work.objects.iter().filter(|task| task.wait).count() {
            0 => format!("{}, without waiting", count(work.objects.len(), "object")),
            waited if waited == work.objects.len() => format!("{}, until ready", count(waited, "object")),
            waited => format!("{}, until {waited} of them are ready", count(work.objects.len(), "object")),
        },
        (Work::Delete(work), Barrier::Gone) => format!("{}, until gone", count(work.objects.len(), "object")),
        (Work::Delete(work), _) => format!("{}, without waiting", count(work.objects.len(), "object")),
        (Work::Patch(work), _) => count(work.objects.len(), "object"),
        (Work::Sequence(work), _) => format!("{}, in this order", count(work.steps.len(), "object")),
    });
    match &node.work {
        Work::Apply(work) => facts.extend(strategy(work)),
        Work::Delete(work) => facts.extend(settings(work)),
        Work::Patch(_) | Work::Sequence(_) => {}
    }
    facts.extend(node.timeout.map(|timeout| format!("timeout {timeout}")));
    format!("  ({})", facts.join("; "))
}

/// Returns the strategy by which objects are written, if it is not the default.
fn strategy(work: &ApplyWork) -> Option<String> {
    let strategy = work.objects.iter().map(|task| task.strategy).find(|s| *s != UpdateStrategy::default())?;
    let name = match strategy {
        UpdateStrategy::ServerSide => "server-side",
        UpdateStrategy::Update => "update",
        UpdateStrategy::Patch => "patch",
        UpdateStrategy::Merge => "merge",
        UpdateStrategy::MergeOverwrite => "merge-overwrite",
    };
    Some(format!("update strategy {name}"))
}

fn settings(work: &DeleteWork) -> Vec<String> {
    let mut settings = Vec::new();
    match work.propagation {
        Propagation::Background => {}
        Propagation::Foreground => settings.push("dependents first".to_owned()),
        Propagation::Orphan => settings.push("dependents are orphaned".to_owned()),
    }
    settings.extend(work.grace_period.map(|period| format!("grace period {period}")));
    settings.extend(work.release_snapshots.map(|after| format!("annotates VolumeSnapshotContents after {after}")));
    if let Some(force) = &work.force {
        let which = if force.finalizers.is_empty() { "all finalizers".to_owned() } else { force.finalizers.join(", ") };
        let when = if force.after.0.is_zero() { "immediately".to_owned() } else { format!("after {}", force.after) };
        settings.push(format!("force: removes {which} {when}"));
    }
    settings
}

fn content(plan: &Plan, node: &Node) -> Vec<String> {
    match &node.work {
        Work::Apply(work) => columns(&work.objects.iter().map(apply_row).collect::<Vec<_>>()),
        Work::Delete(work) => {
            let mut lines = columns(&work.objects.iter().map(delete_row).collect::<Vec<_>>());
            let queried = work.collections.iter().filter_map(|c| Some((c, plan.queries.get(c.query)?)));
            lines.extend(queried.map(|(collection, query)| describe(collection, query)));
            lines
        }
        Work::Patch(work) => columns(&work.objects.iter().map(patch_row).collect::<Vec<_>>()),
        Work::Sequence(work) => columns(&work.steps.iter().map(step_row).collect::<Vec<_>>()),
    }
}

/// Returns the objects that a node changes, in the order of the lines of its content; none for one that it only waits for.
fn objects(node: &Node) -> Vec<Option<&ObjectKey>> {
    match &node.work {
        Work::Apply(work) => {
            work.objects.iter().map(|task| Some(&task.object).filter(|_| task.action != ApplyAction::Await)).collect()
        }
        Work::Delete(work) => work.objects.iter().map(|task| Some(&task.object)).collect(),
        Work::Patch(_) => Vec::new(),
        Work::Sequence(work) => work.steps.iter().map(|step| Some(step.object())).collect(),
    }
}

fn step_row(step: &Step) -> Vec<String> {
    match step {
        Step::Apply(task) => {
            let mut row = apply_row(task);
            if let Some(marks) = row.last_mut().filter(|_| task.wait) {
                *marks = format!("{marks} (until ready)").trim_start().to_owned();
            }
            row
        }
        Step::Delete(DeleteStep { object, .. }) => {
            vec!["delete".to_owned(), object.kind.to_string(), place(object), String::new()]
        }
        Step::Unserved(UnservedStep { object, .. }) => {
            let mark = "(not served)".to_owned();
            vec!["fail".to_owned(), object.kind.to_string(), place(object), mark]
        }
    }
}

fn apply_row(task: &ApplyTask) -> Vec<String> {
    let action = match task.action {
        ApplyAction::Create => "create",
        ApplyAction::Update => "update",
        ApplyAction::Adopt => "adopt",
        ApplyAction::Unchanged => "unchanged",
        ApplyAction::Await => "wait for",
        ApplyAction::Recreate => "recreate",
    };
    let mark = match task.recreate {
        _ if task.action == ApplyAction::Recreate => "(once it is gone)",
        Some(_) => "(recreated if the update is invalid)",
        None => "",
    };
    vec![action.to_owned(), task.object.kind.to_string(), place(&task.object), mark.to_owned()]
}

fn patch_row(task: &PatchTask) -> Vec<String> {
    vec![task.object.kind.to_string(), place(&task.object), format!("({})", named_fields(task))]
}

/// Names the patched fields without their values, since these may be secrets.
pub(crate) fn named_fields(task: &PatchTask) -> String {
    let mut fields = Vec::new();
    name_fields("", &task.patch, &mut fields);
    fields.join(", ")
}

fn name_fields(path: &str, value: &Value, fields: &mut Vec<String>) {
    match value.as_object().filter(|map| !map.is_empty()) {
        Some(map) => map.iter().for_each(|(key, value)| name_fields(&format!("{path}.{key}"), value, fields)),
        None => fields.push(path.trim_start_matches('.').to_owned()),
    }
}

/// Returns what is special about a deletion.
pub(crate) fn marks(task: &DeleteTask) -> Vec<String> {
    let mut marks = Vec::new();
    if task.deleting {
        marks.push("already deleting".to_owned());
    }
    if !task.finalizers.is_empty() {
        marks.push(format!("finalizers: {}", task.finalizers.join(", ")));
    }
    if let Some(after) = task.annotations.treatment().finalize_after {
        marks.push(format!("finalizers removed {after} after the deletion"));
    }
    marks
}

fn delete_row(task: &DeleteTask) -> Vec<String> {
    let marks = marks(task);
    let marks = if marks.is_empty() { String::new() } else { format!("({})", marks.join("; ")) };
    vec![task.object.kind.to_string(), place(&task.object), marks]
}

/// Returns `+ every Widget.example in a, b, including any that appear meanwhile, except …`.
pub(crate) fn describe(collection: &Collection, query: &Query) -> String {
    let mut text = format!("+ every {}", query.resource.kind);
    let namespaces = match &query.namespace {
        Some(namespace) => vec![namespace.clone()],
        None => collection.namespaces.clone(),
    };
    text += &filter(&collection.names, &namespaces, &collection.label_selector.to_query());
    if let Select::Labels(labels) = &query.select
        && collection.label_selector.is_empty()
    {
        text += &format!(" labelled {labels}");
    }
    text += ", including any that appear meanwhile";
    let excluded: Vec<_> = collection.excluded.iter().map(exclusion).collect();
    if !excluded.is_empty() {
        text += &format!(", except {}", excluded.join(", "));
    }
    text
}

fn exclusion(exclusion: &Exclusion) -> String {
    let prefixes = exclusion.name_prefixes.iter().map(|prefix| format!("{prefix}*"));
    let names: Vec<_> = exclusion.names.iter().cloned().chain(prefixes).collect();
    let prefixes = exclusion.namespace_prefixes.iter().map(|prefix| format!("{prefix}*"));
    let namespaces: Vec<_> = exclusion.namespaces.iter().cloned().chain(prefixes).collect();
    let text = filter(&names, &namespaces, &exclusion.label_selector.to_query());
    match text.trim_start().trim_start_matches("named ") {
        "" if !exclusion.owners.is_empty() => "what excluded objects own".to_owned(),
        "" => "all".to_owned(),
        text => text.to_owned(),
    }
}

fn filter(names: &[String], namespaces: &[String], labels: &str) -> String {
    let mut text = String::new();
    if !names.is_empty() {
        text += &format!(" named {}", names.join(" or "));
    }
    if !namespaces.is_empty() {
        text += &format!(" in {}", namespaces.join(", "));
    }
    if !labels.is_empty() {
        text += &format!(" labelled {labels}");
    }
    text
}

/// Returns what a plan deletes, by kind: `2 ConfigMap, 1 Namespace`.
pub(crate) fn deletions_by_kind(plan: &Plan) -> String {
    plan.deleted().map(|(_, object, ..)| &object.kind).collect::<Counts>().to_string()
}

/// Returns what a plan deletes as a table with a line for each kind.
pub(crate) fn deletion_table(plan: &Plan) -> Vec<String> {
    let counts: Counts = plan.deleted().map(|(_, object, ..)| &object.kind).collect();
    let rows: Vec<(GroupKind, usize)> = counts.into();
    columns(&rows.into_iter().map(|(kind, count)| vec![count.to_string(), kind.to_string()]).collect::<Vec<_>>())
}

/// Returns the question to confirm: `Delete 12 objects of release shop/web in 3 groups?`, or, with a collection, `Delete 12
/// objects of release shop/web, and any that appear meanwhile, in 3 groups?`.
pub(crate) fn question(plan: &Plan) -> String {
    let of = plan.release.as_ref().map(|release| format!(" of release {release}")).unwrap_or_default();
    let more = if collections(plan) > 0 { ", and any that appear meanwhile," } else { "" };
    format!("Delete {}{of}{more} in {}?", count(plan.deletions(), "object"), count(groups(plan), "group"))
}
