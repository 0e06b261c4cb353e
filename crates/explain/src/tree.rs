//! Grows the tree of causes: rules say what an object waits for, and the causes of that are found in the same way.

use crate::{
    Cause, ObjectRef,
    case::{Case, Priority},
    rule::{Held, Rule},
};

/// How far the tree follows from the subject.
const DEPTH: usize = 6;
/// How many of the objects that one cause waits for are looked at.
const WIDTH: usize = 4;

/// Returns the causes why an object is not gone, as far as they are known.
pub(crate) fn grow(case: &Case<'_>, rules: &[Rule], subject: &ObjectRef) -> Vec<Cause> {
    causes_of(case, rules, subject, &mut Vec::new())
}

fn causes_of(case: &Case<'_>, rules: &[Rule], object: &ObjectRef, path: &mut Vec<ObjectRef>) -> Vec<Cause> {
    if path.len() >= DEPTH || path.iter().any(|known| known.is_same(object)) {
        return Vec::new();
    }
    let is_subject = path.is_empty();
    let priority = if is_subject { Priority::Subject } else { Priority::Cause };
    let held = Held { object, seen: case.get(object, priority), is_subject };
    let mut causes: Vec<_> = rules.iter().flat_map(|rule| (rule.judge)(case, &held)).collect();
    path.push(object.clone());
    for cause in &mut causes {
        expand(case, rules, cause, path);
    }
    path.pop();
    Cause::sort(&mut causes);
    causes
}

fn expand(case: &Case<'_>, rules: &[Rule], cause: &mut Cause, path: &mut Vec<ObjectRef>) {
    for child in &mut cause.causes {
        expand(case, rules, child, path);
    }
    let mut objects = std::mem::take(&mut cause.waits_for);
    objects.sort();
    objects.dedup();
    for object in objects.iter().take(WIDTH) {
        cause.causes.extend(causes_of(case, rules, object, path));
    }
    Cause::sort(&mut cause.causes);
}

/// Returns the root among causes: of those without a deeper cause, the one with the strongest evidence; of equally strong
/// ones, the one that must be removed first; then the deepest.
pub(crate) fn root(causes: &[Cause]) -> Option<&Cause> {
    let mut best: Option<(&Cause, _)> = None;
    for (cause, depth) in leaves(causes, 0) {
        let rank = (cause.strength, cause.code().precedence(), depth);
        if best.is_none_or(|(_, known)| rank > known) {
            best = Some((cause, rank));
        }
    }
    best.map(|(cause, _)| cause)
}

/// Returns the causes that have no deeper cause, with their depths.
pub(crate) fn leaves(causes: &[Cause], depth: usize) -> Vec<(&Cause, usize)> {
    let mut found = Vec::new();
    for cause in causes {
        if cause.causes.is_empty() {
            found.push((cause, depth));
        } else {
            found.extend(leaves(&cause.causes, depth + 1));
        }
    }
    found
}
