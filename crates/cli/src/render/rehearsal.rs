//! A rehearsal as text: the order, what would remain and why, what else would be deleted, and who was played.

use std::{collections::BTreeMap, time::Duration};

use billhook_engine::{Blocker, Event, Left, Status, Summary};
use billhook_explain::{Document, Finding};
use billhook_objects::ObjectKey;

use super::{columns, count, duration, first, object, why};
use crate::{
    output::Paint,
    rehearsal::{Controller, Other, PACE, Rehearsed},
};

/// How many objects of a group, and others, are listed; the rest is counted.
const LISTED: usize = 10;

/// A group, as far as it got.
#[derive(Default)]
struct Group {
    title: String,
    total: usize,
    gone: Vec<ObjectKey>,
    ended: Option<(Status, Duration)>,
}

/// Returns the text. `all` lists everything.
pub(crate) fn lines(rehearsed: &Rehearsed, all: bool, paint: Paint) -> Vec<String> {
    let listed = if all { usize::MAX } else { LISTED };
    let mut lines = vec![paint.bold("rehearsed on a copy of the cluster; nothing was changed")];
    let groups = groups(&rehearsed.events);
    let number = groups.len();
    for (at, group) in groups.iter().enumerate() {
        lines.push(format!("group {}/{number} {}: {}", at + 1, group.title, reached(group, paint)));
        lines.extend(indent(first(&group.gone, listed, |key| vec![object(key)])));
    }
    let findings = rehearsed.why.findings.len() + rehearsed.report.unexplained;
    if findings > 0 {
        lines.push(String::new());
        lines.push(format!("{}:", paint.bad(&verb(findings, "would be stuck"))));
        let causes = if all { why::lines(&rehearsed.why, all, paint) } else { causes(&rehearsed.why, paint) };
        lines.extend(indent(causes));
        let more = rehearsed.report.unexplained;
        lines.extend((more > 0).then(|| format!("  {} more were not explained", count(more, "object"))));
    }
    refused(&rehearsed.summary, listed, paint, &mut lines);
    others(&rehearsed.report.others, listed, paint, &mut lines);
    controllers(&rehearsed.report.controllers, listed, &mut lines);
    lines.push(String::new());
    lines.push(end(rehearsed, findings, paint));
    lines
}

fn groups(events: &[Event]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for event in events {
        match event {
            Event::Started { nodes, .. } => {
                let new = |(title, total): &(String, usize)| Group {
                    title: title.clone(),
                    total: *total,
                    ..Group::default()
                };
                groups = nodes.iter().map(new).collect();
            }
            Event::NodeStarted { node, objects, .. } => {
                if let Some(group) = groups.get_mut(*node) {
                    group.total = *objects;
                }
            }
            Event::Gone { node, object, .. } => {
                if let Some(group) = groups.get_mut(*node) {
                    group.gone.push(object.clone());
                }
            }
            Event::NodeFinished { node, status, elapsed_ms, .. } => {
                if let Some(group) = groups.get_mut(*node) {
                    group.ended = Some((*status, Duration::from_millis(*elapsed_ms)));
                }
            }
            _ => {}
        }
    }
    groups
}

/// Returns how far a group got: `2 of 3 deleted after 1.0s`.
fn reached(group: &Group, paint: Paint) -> String {
    let gone = group.gone.len();
    match group.ended {
        Some((Status::Done, elapsed)) => {
            format!("{} after {}", paint.good(&format!("{} deleted", count(gone, "object"))), duration(elapsed))
        }
        Some((status, elapsed)) => {
            let how = match status {
                Status::TimedOut => "the time limit is reached",
                Status::Interrupted | Status::NotStarted => "it is interrupted",
                Status::Done | Status::Failed => "it fails",
            };
            let reached = format!("{gone} of {} deleted", group.total.max(gone));
            format!("{} when {how} after {}", paint.bad(&reached), duration(elapsed))
        }
        None => paint.warn(&format!("not started: {}", count(group.total, "object"))),
    }
}

/// Returns each root cause once, with the objects that it holds and the safest next step. What objects of one kind say of themselves
/// is one cause, too.
fn causes(why: &Document, paint: Paint) -> Vec<String> {
    let mut causes: BTreeMap<String, Vec<&Finding>> = BTreeMap::new();
    for finding in &why.findings {
        let cause = match &finding.root_cause {
            None => "nothing that could be read says what it waits for".to_owned(),
            Some(root) if root.object.group_kind() == finding.object.group_kind() => root.message.clone(),
            // That of others, which may hold objects of its own kind, too.
            Some(root) => {
                let own = why.findings.iter().any(|other| other.object.is_same(&root.object));
                if own { root.message.clone() } else { root.sentence() }
            }
        };
        causes.entry(cause).or_default().push(finding);
    }
    let mut lines = Vec::new();
    for (cause, findings) in &causes {
        lines.push(paint.bold(&why::short(cause)));
        lines.extend(indent(first(findings, LISTED, |finding| vec![finding.object.to_string()])));
        let step = findings.iter().find_map(|finding| finding.safe_step().or(finding.next_steps.first()));
        if let Some(step) = step {
            lines.push(format!("  next: {}{}", why::risk(step.risk, paint), why::short(&step.message)));
            lines.extend(step.command.as_ref().map(|command| format!("        {}", paint.good(command))));
        }
    }
    lines
}

/// Adds the objects whose deletion is rejected.
fn refused(summary: &Summary, listed: usize, paint: Paint, lines: &mut Vec<String>) {
    let message = |left: &Left| {
        left.blockers.iter().find_map(|blocker| match blocker {
            Blocker::Refused { message, .. } => Some(message.clone()),
            _ => None,
        })
    };
    let refused: Vec<_> = summary.left.iter().filter_map(|left| Some((&left.object, message(left)?))).collect();
    if !refused.is_empty() {
        lines.push(String::new());
        lines.push(format!("{}:", paint.bad(&verb(refused.len(), "could not be deleted"))));
        lines.extend(indent(first(&refused, listed, |(key, message)| vec![object(key), why::short(message)])));
    }
}

fn others(others: &[Other], listed: usize, paint: Paint, lines: &mut Vec<String>) {
    if others.is_empty() {
        return;
    }
    lines.push(String::new());
    let what = verb(others.len(), "would be deleted, too");
    lines.push(format!("{}:", paint.warn(&format!("not of the release: {what}"))));
    let row = |other: &Other| {
        let with = other
            .with
            .as_ref()
            .map_or_else(|| "selected by the policy".to_owned(), |with| format!("with {}", object(with)));
        vec![object(&other.object), with]
    };
    lines.extend(indent(first(others, listed, row)));
}

fn controllers(controllers: &[Controller], listed: usize, lines: &mut Vec<String>) {
    if controllers.is_empty() {
        return;
    }
    lines.push(String::new());
    lines.push(format!("who removes finalizers, taken to need {} for each object:", duration(PACE)));
    let row = |controller: &Controller| {
        let Controller { finalizer, kind, objects, name, played, problem } = controller;
        let who = match (name, played, problem.as_str()) {
            (None, ..) => "nobody is known, so it remains".to_owned(),
            (Some(name), true, _) => name.clone(),
            (Some(name), false, "") => format!("{name} does not work"),
            (Some(name), false, problem) => format!("{name} does not work: {problem}"),
        };
        vec![finalizer.clone(), format!("{objects} {kind}"), who]
    };
    let rows: Vec<_> = controllers.iter().take(listed).map(row).collect();
    lines.extend(indent(columns(&rows)));
    let more = controllers.len().saturating_sub(listed);
    lines.extend((more > 0).then(|| format!("  and {more} more")));
}

fn end(rehearsed: &Rehearsed, findings: usize, paint: Paint) -> String {
    let elapsed = duration(Duration::from_millis(rehearsed.summary.elapsed_ms));
    let left = rehearsed.summary.left.len().max(findings);
    match rehearsed.summary.status {
        Status::Done if findings == 0 => {
            let known = if rehearsed.report.missing.is_empty() { "" } else { ", as far as the cluster could be read" };
            format!("{}{known}: it would be done after about {elapsed}", paint.good("the deletion would succeed"))
        }
        Status::Failed => format!("{}: {}", paint.bad("the deletion would fail"), verb(left, "would remain")),
        _ => format!("{}: {} after {elapsed}", paint.bad("the deletion would not end"), verb(left, "would remain")),
    }
}

fn verb(objects: usize, verb: &str) -> String {
    format!("{} {verb}", count(objects, "object"))
}

fn indent(lines: Vec<String>) -> impl Iterator<Item = String> {
    lines.into_iter().map(|line| if line.is_empty() { line } else { format!("  {line}") })
}
