//! The explanation as text: for each root cause the sentence, the objects that it blocks, the chain with its evidence, who is
//! responsible, and the next steps.

use billhook_explain::{Cause, Document, Fact, Finding, NextStep, ResponsibleState, Risk, State};

use crate::output::Paint;

/// How long a line is at most. Anybody who may write a condition or an Event decides how long its message is.
const WIDTH: usize = 1000;
/// How many objects with the same root cause, steps, and requests that failed are printed.
const LISTED: usize = 10;

/// Returns the text of a document. `all` shows the chain of each object, and not only of the first one with the same root cause.
pub(crate) fn lines(document: &Document, all: bool, paint: Paint) -> Vec<String> {
    let mut lines = Vec::new();
    for group in document.groups() {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        of_group(&group, all, paint, &mut lines);
    }
    lines
}

/// Returns the beginning of a text that is too long.
pub(crate) fn short(text: &str) -> String {
    match text.char_indices().nth(WIDTH) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or(text)),
        None => text.to_owned(),
    }
}

/// Returns what could not be read.
pub(crate) fn unread(document: &Document, all: bool) -> Vec<String> {
    let listed = if all { usize::MAX } else { LISTED };
    let shown = |unread: &billhook_explain::Unread| short(&format!("not read: {}: {}", unread.what, unread.why));
    let mut lines: Vec<_> = document.unread.iter().take(listed).map(shown).collect();
    let more = document.unread.len().saturating_sub(listed);
    lines.extend((more > 0).then(|| format!("not read: {more} more; -v shows them")));
    lines
}

fn of_group(group: &[&Finding], all: bool, paint: Paint, lines: &mut Vec<String>) {
    let Some(first) = group.first() else { return };
    let Some(root) = &first.root_cause else {
        lines.extend(group.iter().map(|finding| without_cause(finding)));
        return;
    };
    lines.push(paint.bold(&short(&root.sentence())));
    let listed = if all { usize::MAX } else { LISTED };
    let label = if first.is_blocked() { "blocks" } else { "concerns" };
    lines.push(format!("  {label}:"));
    lines.extend(group.iter().take(listed).map(|finding| format!("    {}", named(finding))));
    lines.extend((group.len() > listed).then(|| format!("    and {} more", group.len() - listed)));
    for finding in group.iter().take(if all { usize::MAX } else { 1 }) {
        lines.push(format!("  why {} is not gone:", finding.object));
        finding.causes.iter().for_each(|cause| chain(cause, 2, paint, lines));
    }
    if let Some(responsible) = &root.responsible {
        lines.push(format!("  responsible: {} ({})", responsible.name, state(responsible.state)));
    }
    let mut steps: Vec<&NextStep> = Vec::new();
    for step in group.iter().flat_map(|finding| &finding.next_steps) {
        if !steps.contains(&step) {
            steps.push(step);
        }
    }
    steps.sort_by_key(|step| step.risk);
    if steps.is_empty() {
        return;
    }
    lines.push("  next steps, the safest first:".to_owned());
    for (number, step) in steps.iter().take(listed).enumerate() {
        lines.push(format!("    {}. {}{}", number + 1, risk(step.risk, paint), step.message));
        lines.extend(step.command.as_ref().map(|command| format!("       {}", paint.good(command))));
    }
    lines.extend((steps.len() > listed).then(|| format!("    and {} more", steps.len() - listed)));
}

/// Returns what is said of an object of which no cause is known.
pub(crate) fn without_cause(finding: &Finding) -> String {
    let object = &finding.object;
    match finding.state {
        State::Gone => format!("{object} does not exist"),
        State::Unknown => format!("{object} could not be read"),
        State::Deleting | State::Present => {
            format!("{}: nothing that could be read says what it waits for", named(finding))
        }
    }
}

/// Returns an object with its state.
fn named(finding: &Finding) -> String {
    match (finding.state, &finding.deleting_since) {
        (State::Deleting, Some(since)) => format!("{} (being deleted since {since})", finding.object),
        (State::Deleting, None) => format!("{} (being deleted)", finding.object),
        (State::Present, _) => format!("{} (present)", finding.object),
        (State::Gone | State::Unknown, _) => finding.object.to_string(),
    }
}

/// Adds a cause, its evidence, and its causes below it.
fn chain(cause: &Cause, depth: usize, paint: Paint, lines: &mut Vec<String>) {
    let indent = "  ".repeat(depth);
    lines.push(format!("{indent}{}", short(&format!("{}: {}", cause.object, cause.reason))));
    for Fact { object, path, value } in &cause.evidence {
        let place = if path.is_empty() { object.to_string() } else { format!("{object} {path}") };
        lines.push(format!("{indent}  {}", paint.dim(&short(&format!("{place}: {value}")))));
    }
    cause.causes.iter().for_each(|deeper| chain(deeper, depth + 1, paint, lines));
}

/// Returns whether a party works.
pub(crate) fn state(state: ResponsibleState) -> &'static str {
    match state {
        ResponsibleState::Working => "works",
        ResponsibleState::Failing => "does not work",
        ResponsibleState::Absent => "absent",
        ResponsibleState::Unknown => "not known whether it works",
    }
}

/// Returns what is lost, before a step with a risk.
pub(crate) fn risk(risk: Risk, paint: Paint) -> String {
    let text = match risk {
        Risk::None => return String::new(),
        Risk::LeavesExternal => "leaves resources outside of the cluster: ",
        Risk::AffectsOthers => "affects others: ",
        Risk::LosesData => "loses data: ",
    };
    paint.warn(text)
}

#[cfg(test)]
mod tests {
    use billhook_explain::{Code, ObjectRef, Responsible, RootCause, Unread};
    use billhook_objects::ApiVersion;

    use super::*;

    fn object(kind: &str, name: &str) -> ObjectRef {
        ObjectRef::new(ApiVersion::new("", "v1"), kind, None, name)
    }

    fn finding(name: &str, cause: Option<(Code, &str)>) -> Finding {
        let root = |(code, message): (Code, &str)| RootCause {
            code,
            message: message.to_owned(),
            object: object("Node", "n"),
            responsible: Some(Responsible { name: "the kubelet".into(), state: ResponsibleState::Failing }),
            is_slow: false,
        };
        let step = |command: &str, risk| NextStep { risk, message: "do it".into(), command: Some(command.to_owned()) };
        Finding {
            object: object("Namespace", name),
            state: State::Deleting,
            deleting_since: Some("2026-01-01T00:00:00Z".into()),
            root_cause: cause.map(root),
            causes: Vec::new(),
            next_steps: vec![step("drop it", Risk::LosesData), step("kubectl get x", Risk::None)],
        }
    }

    #[test]
    fn objects_with_the_same_root_cause_are_shown_once() {
        let cause = Some((Code::PodNotTerminated, "it is off"));
        let findings = vec![finding("lonely", None), finding("a", cause), finding("b", cause)];
        let shown = lines(&Document::new(3, findings, []), false, Paint(false));
        let expected = [
            "Node n: it is off",
            "  blocks:",
            "    Namespace a (being deleted since 2026-01-01T00:00:00Z)",
            "    Namespace b (being deleted since 2026-01-01T00:00:00Z)",
            "  why Namespace a is not gone:",
            "  responsible: the kubelet (does not work)",
            "  next steps, the safest first:",
            "    1. do it",
            "       kubectl get x",
            "    2. loses data: do it",
            "       drop it",
            "",
            "Namespace lonely (being deleted since 2026-01-01T00:00:00Z): nothing that could be read says what it waits for",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn what_the_cluster_says_has_a_limit() {
        let long = "é".repeat(3000);
        let shown = lines(&Document::new(1, vec![finding("a", Some((Code::InUse, &long)))], []), true, Paint(false));
        assert!(shown.iter().all(|line| line.chars().count() <= WIDTH + 10), "{shown:?}");
        let failed = |number: usize| Unread { what: format!("list {number:02}"), why: "no".into() };
        let document = Document::new(1, Vec::new(), (0..12).map(failed));
        let listed = unread(&document, false);
        assert_eq!((listed.len(), listed.last().map(String::as_str)), (11, Some("not read: 2 more; -v shows them")));
        assert_eq!(unread(&document, true).len(), 12);
    }
}
