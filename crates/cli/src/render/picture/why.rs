//! The picture of explanations: what is wrong at the left, what it holds up at the right, and the chain between them.

use std::collections::BTreeMap;

use billhook_explain::{Cause, Document, Fact, Finding, NextStep, ObjectRef, RootCause, State};

use super::{Card, Item, Mark, Picture, Tone};
use crate::{
    output::Paint,
    render::{
        count,
        why::{risk, short, state, without_cause},
    },
};

const LEGEND: [(Tone, &str, &str); 6] = [
    (Tone::Bad, "✕", "root cause"),
    (Tone::Warn, "◷", "slow"),
    (Tone::Change, "→", "waits for it"),
    (Tone::Plain, "■", "blocked"),
    (Tone::Muted, "□", "not blocked"),
    (Tone::Warn, "?", "unknown"),
];
const ROOT: usize = 0;
const SLOW: usize = 1;
const WAITS: usize = 2;
const BLOCKED: usize = 3;
const FREE: usize = 4;
const UNKNOWN: usize = 5;

/// How many of the requests that failed are listed.
const LISTED: usize = 50;

/// What is between a root and the objects that it holds up: each object with its distance from these, and what is known.
type Chain = BTreeMap<ObjectRef, (usize, Vec<Mark>)>;

/// Draws a document.
pub(crate) fn picture(document: &Document) -> Picture {
    let groups = document.groups();
    let blocked = document.findings.iter().filter(|finding| finding.is_blocked()).count();
    let title = match (document.findings.len(), blocked) {
        (0, _) => "nothing is being deleted".to_owned(),
        (all, 0) => format!("{}, none is blocked", count(all, "object")),
        (all, blocked) => format!("{blocked} of {} blocked", count(all, "object")),
    };
    let mut picture = Picture::new(&title, &LEGEND);
    picture.fact(&count(document.requests, "request"));
    for unread in document.unread.iter().take(LISTED) {
        picture.notice(Mark::new(Tone::Warn, &format!("not read: {}: {}", unread.what, unread.why)));
    }
    if document.unread.len() > LISTED {
        picture.notice(Mark::new(Tone::Warn, &format!("not read: {} more", document.unread.len() - LISTED)));
    }
    let chains: Vec<_> = groups.iter().map(|group| chain(group)).collect();
    let longest =
        chains.iter().flat_map(|chain| chain.values()).map(|(distance, _)| *distance).max().unwrap_or_default();
    picture.column("root cause", false);
    (0..longest).for_each(|_| {
        picture.column("holds up", false);
    });
    picture.column("what was asked about", false);
    for (group, chain) in groups.iter().zip(chains) {
        of_group(&mut picture, group, chain, longest);
    }
    picture
}

fn of_group(picture: &mut Picture, group: &[&Finding], chain: Chain, longest: usize) {
    let Some(first) = group.first() else { return };
    let lane = picture.lane("");
    let mut before = Vec::new();
    if let Some(root) = &first.root_cause {
        let mut card = Card::new(0, lane, &root.code.as_str(), &responsible(root));
        let state = if root.is_slow || !first.is_blocked() { SLOW } else { ROOT };
        card.add(&root.object.group_kind().to_string(), Item::new(&name(&root.object), state, of_root(root, group)));
        before = vec![picture.card(card)];
    }
    for distance in (1..=longest).rev() {
        let mut card = Card::new(longest + 1 - distance, lane, "", "");
        for (object, (_, marks)) in chain.iter().filter(|(_, (of, _))| *of == distance) {
            card.add(&object.group_kind().to_string(), Item::new(&name(object), WAITS, marks.clone()));
        }
        if !card.is_empty() {
            before = vec![picture.card(card.after(before))];
        }
    }
    let title = match (group.len(), first.is_blocked()) {
        (_, _) if first.root_cause.is_none() => "no cause is known".to_owned(),
        (objects, true) => format!("{} blocked", count(objects, "object")),
        (objects, false) => count(objects, "object"),
    };
    let mut card = Card::new(longest + 1, lane, &title, "");
    for finding in group {
        card.add(&finding.object.group_kind().to_string(), subject(finding));
    }
    picture.card(card.after(before));
}

fn subject(finding: &Finding) -> Item {
    let state = match finding.state {
        State::Unknown => UNKNOWN,
        _ if finding.is_blocked() => BLOCKED,
        State::Deleting | State::Present | State::Gone => FREE,
    };
    let since =
        finding.deleting_since.iter().map(|since| Mark::new(Tone::Muted, &format!("being deleted since {since}")));
    let mut marks: Vec<_> = since.collect();
    if finding.root_cause.is_none() {
        marks.push(Mark::new(Tone::Warn, &without_cause(finding)));
    }
    let own = finding.causes.iter().filter(|cause| cause.object.is_same(&finding.object));
    own.for_each(|cause| marks.extend(of_cause(cause)));
    Item::new(&name(&finding.object), state, marks)
}

/// Returns the sentence, the evidence and the next steps of a root.
fn of_root(root: &RootCause, group: &[&Finding]) -> Vec<Mark> {
    let tone = if root.is_slow { Tone::Warn } else { Tone::Bad };
    let mut marks = vec![Mark::new(tone, &short(&root.message))];
    let causes = group.iter().flat_map(|finding| all(&finding.causes));
    let mut own = causes.filter(|cause| cause.code() == root.code && cause.object == root.object);
    if let Some(cause) = own.next() {
        marks.extend(cause.evidence.iter().map(evidence));
    }
    let mut steps: Vec<&NextStep> = Vec::new();
    for step in group.iter().flat_map(|finding| &finding.next_steps) {
        if !steps.contains(&step) {
            steps.push(step);
        }
    }
    steps.sort_by_key(|step| step.risk);
    for (number, step) in (1..).zip(steps.iter().take(LISTED)) {
        marks.push(Mark::new(Tone::Plain, &format!("{number}. {}{}", risk(step.risk, Paint(false)), step.message)));
        marks.extend(step.command.as_ref().map(|command| Mark::code(Tone::Good, command)));
    }
    marks
}

fn responsible(root: &RootCause) -> String {
    let party = root.responsible.as_ref();
    party.map(|party| format!("responsible: {} ({})", party.name, state(party.state))).unwrap_or_default()
}

/// Returns the objects between the root of a group and its objects.
fn chain(group: &[&Finding]) -> Chain {
    let mut chain = Chain::new();
    for finding in group {
        finding.causes.iter().for_each(|cause| add(finding, cause, 0, &mut chain));
    }
    // What was asked about, too, is at the right.
    chain.retain(|object, _| !group.iter().any(|finding| finding.object.is_same(object)));
    chain
}

fn add(finding: &Finding, cause: &Cause, depth: usize, chain: &mut Chain) {
    let is_root = finding.root_cause.as_ref().is_some_and(|root| root.object.is_same(&cause.object));
    if !is_root && !cause.object.is_same(&finding.object) {
        let (distance, marks) = chain.entry(ObjectRef { uid: None, ..cause.object.clone() }).or_default();
        *distance = (*distance).max(depth.max(1));
        for mark in of_cause(cause) {
            if !marks.iter().any(|known| known.text == mark.text) {
                marks.push(mark);
            }
        }
    }
    cause.causes.iter().for_each(|deeper| add(finding, deeper, depth + 1, chain));
}

fn of_cause(cause: &Cause) -> Vec<Mark> {
    let sentence = Mark::new(Tone::Plain, &short(&cause.reason.to_string()));
    std::iter::once(sentence).chain(cause.evidence.iter().map(evidence)).collect()
}

fn evidence(fact: &Fact) -> Mark {
    let path = if fact.path.is_empty() { String::new() } else { format!(" {}", fact.path) };
    Mark::new(Tone::Muted, &short(&format!("{}{path}: {}", fact.object, fact.value)))
}

fn all(causes: &[Cause]) -> Vec<&Cause> {
    causes.iter().flat_map(|cause| std::iter::once(cause).chain(all(&cause.causes))).collect()
}

fn name(object: &ObjectRef) -> String {
    object.namespace.as_ref().map_or_else(|| object.name.clone(), |namespace| format!("{namespace}/{}", object.name))
}
