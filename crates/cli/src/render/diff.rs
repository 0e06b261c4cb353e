//! Prints what an apply would change: for each object a unified diff of its YAML, or a JSON patch.

use std::time::Duration;

use billhook_engine::{DiffAction, DiffChange, ObjectDiff};
use billhook_objects::{ObjectKey, yaml};
use serde::Serialize;
use serde_json::{Value, json};
use similar::{ChangeTag, TextDiff};

use crate::{output::Paint, render::object};

/// How many unchanged lines are shown around a change.
const CONTEXT: usize = 3;
/// How many added or removed lines in a row are shown at most.
const LONGEST: usize = 100;
/// How many of them are shown if they are more.
const SHOWN: usize = 60;
/// How long the shortest difference is searched for; after that, a longer one is shown.
const PATIENCE: Duration = Duration::from_secs(1);

/// Returns the verb of an action.
pub(crate) fn verb(action: DiffAction) -> &'static str {
    match action {
        DiffAction::Create => "create",
        DiffAction::Update => "update",
        DiffAction::Adopt => "adopt",
        DiffAction::Prune => "prune",
    }
}

/// Returns what changes in an object: a heading, and the lines of [`body`].
pub(crate) fn lines(diff: &ObjectDiff, full: bool, paint: Paint) -> Vec<String> {
    let mut lines = vec![paint.bold(&format!("{} {}", verb(diff.action), name(diff)))];
    lines.extend(body(diff, full, paint));
    lines
}

/// Returns the unified diff of an object's YAML. Long additions and removals are cut, unless `full` is set.
pub(crate) fn body(diff: &ObjectDiff, full: bool, paint: Paint) -> Vec<String> {
    let (live, applied, checked) = match &diff.change {
        DiffChange::Failed { message, .. } => return vec![format!("{} {message}", paint.bad("failed:"))],
        DiffChange::Differs { live, applied, checked } => (live.as_ref(), applied.as_ref(), *checked),
    };
    let mut lines = Vec::new();
    if !checked {
        lines.push(paint.warn("not checked by the server"));
    }
    lines.push(paint.bold(&format!("--- live {}", name(diff))));
    lines.push(paint.bold(&format!("+++ applied {}", name(diff))));
    unified(live, applied, full, paint, &mut lines);
    lines
}

fn name(diff: &ObjectDiff) -> String {
    let on = diff.cluster.as_ref().map(|cluster| format!(" on target {cluster}")).unwrap_or_default();
    object(&diff.object) + &on
}

fn unified(live: Option<&Value>, applied: Option<&Value>, full: bool, paint: Paint, lines: &mut Vec<String>) {
    let (old, new) = (live.map(yaml::write).unwrap_or_default(), applied.map(yaml::write).unwrap_or_default());
    let diff = TextDiff::configure().timeout(PATIENCE).diff_lines(old.as_str(), new.as_str());
    for hunk in diff.unified_diff().context_radius(CONTEXT).iter_hunks() {
        lines.push(paint.dim(&hunk.header().to_string()));
        let changes: Vec<_> = hunk.iter_changes().map(|change| (change.tag(), change.value())).collect();
        for run in changes.chunk_by(|(one, _), (next, _)| one == next) {
            let whole = full || run.len() <= LONGEST || run[0].0 == ChangeTag::Equal;
            let shown = if whole { run.len() } else { SHOWN };
            lines.extend(run[..shown].iter().map(|(tag, line)| marked(*tag, line.trim_end_matches('\n'), paint)));
            if shown < run.len() {
                lines.push(paint.dim(&format!("… {} more lines (--full shows them)", run.len() - shown)));
            }
        }
    }
}

fn marked(tag: ChangeTag, line: &str, paint: Paint) -> String {
    match tag {
        ChangeTag::Equal => format!(" {line}"),
        ChangeTag::Delete => paint.bad(&format!("-{line}")),
        ChangeTag::Insert => paint.good(&format!("+{line}")),
    }
}

/// What `-o json` prints for an object.
#[derive(Serialize)]
pub(crate) struct Row<'a> {
    object: &'a ObjectKey,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<&'a str>,
    action: DiffAction,
    /// False if the server cannot check the write yet.
    #[serde(skip_serializing_if = "Clone::clone")]
    checked: bool,
    /// The JSON patch (RFC 6902) from the live object to the applied one.
    #[serde(skip_serializing_if = "Value::is_null")]
    patch: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

impl<'a> From<&'a ObjectDiff> for Row<'a> {
    fn from(diff: &'a ObjectDiff) -> Self {
        let (patch, checked, error) = match &diff.change {
            DiffChange::Differs { live, applied, checked } => (patch(live.as_ref(), applied.as_ref()), *checked, None),
            DiffChange::Failed { message, .. } => (Value::Null, true, Some(message.as_str())),
        };
        Self { object: &diff.object, cluster: diff.cluster.as_deref(), action: diff.action, checked, patch, error }
    }
}

fn patch(live: Option<&Value>, applied: Option<&Value>) -> Value {
    match (live, applied) {
        (Some(live), Some(applied)) => json!(json_patch::diff(live, applied)),
        (None, Some(applied)) => json!([{ "op": "add", "path": "", "value": applied }]),
        (_, None) => json!([{ "op": "remove", "path": "" }]),
    }
}

#[cfg(test)]
mod tests {
    use billhook_engine::RefusedBy;
    use billhook_objects::GroupKind;

    use super::*;

    fn diff(live: Option<Value>, applied: Option<Value>) -> ObjectDiff {
        ObjectDiff {
            object: ObjectKey::new(GroupKind::new("apps", "Deployment"), Some("shop"), "web"),
            cluster: None,
            action: DiffAction::Update,
            change: DiffChange::Differs { live, applied, checked: true },
        }
    }

    fn check(diff: &ObjectDiff, full: bool, expected: &str) {
        assert_eq!(lines(diff, full, Paint(false)).join("\n"), expected.trim_end());
    }

    #[test]
    fn changed_lines_have_three_lines_around_them() {
        let object = |e: i64| json!({"a": 1, "b": 2, "c": 3, "d": 4, "e": e, "f": 6});
        check(
            &diff(Some(object(5)), Some(object(0))),
            false,
            "\
update Deployment.apps shop/web
--- live Deployment.apps shop/web
+++ applied Deployment.apps shop/web
@@ -2,5 +2,5 @@
 b: 2
 c: 3
 d: 4
-e: 5
+e: 0
 f: 6
",
        );
    }

    #[test]
    fn long_additions_are_cut_unless_all_lines_are_wanted() {
        let long = diff(None, Some(json!((0..150).collect::<Vec<_>>())));
        let folded = lines(&long, false, Paint(false));
        assert_eq!(folded.len(), 4 + SHOWN + 1);
        assert_eq!(folded[3], "@@ -0,0 +1,150 @@");
        assert_eq!(folded[4 + SHOWN - 1..], ["+- 59", "… 90 more lines (--full shows them)"]);
        assert_eq!(lines(&long, true, Paint(false)).len(), 4 + 150);
        let short = diff(Some(json!((0..100).collect::<Vec<_>>())), None);
        assert_eq!(lines(&short, false, Paint(false)).len(), 4 + 100);
    }

    #[test]
    fn a_patch_leads_from_the_live_object_to_the_applied_one() {
        let row = |diff: &ObjectDiff| json!(Row::from(diff));
        let changed = row(&diff(Some(json!({"a": [1, 2], "b": 1})), Some(json!({"a": [1, 3], "c": 2}))));
        let expected = json!([
            {"op": "replace", "path": "/a/1", "value": 3}, {"op": "add", "path": "/c", "value": 2}, {"op": "remove", "path": "/b"},
        ]);
        assert_eq!(changed["patch"], expected);
        assert_eq!((changed.get("checked"), changed.get("error"), changed.get("cluster")), (None, None, None));
        assert_eq!(row(&diff(None, Some(json!(1))))["patch"], json!([{"op": "add", "path": "", "value": 1}]));
        assert_eq!(row(&diff(Some(json!(1)), None))["patch"], json!([{"op": "remove", "path": ""}]));
        let change = DiffChange::Failed { message: "no".into(), by: RefusedBy::Server };
        let failed = ObjectDiff { change, ..diff(None, None) };
        assert_eq!((&row(&failed)["error"], row(&failed).get("patch")), (&json!("no"), None));
        check(&failed, false, "update Deployment.apps shop/web\nfailed: no");
    }
}
