//! The wording of notes, problems and reasons: the facts, as every front end shows them.
//!
//! A front end adds what its user can do about them. Nothing here names a flag of the command line.

mod notes;
mod problems;

use std::{
    fmt::{Display, Formatter, Result},
    time::Duration,
};

use billhook_objects::GroupKind;

use crate::{Counts, ListFailure, ListScope, UnservedKind, UnservedStep};

impl Display for ListFailure {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "failed to list {}: {}", self.list, self.reason)
    }
}

/// Prints `configmaps in namespace web on target edge`.
impl Display for ListScope {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(&self.plural)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if let Some(namespace) = &self.namespace {
            write!(f, " in namespace {namespace}")?;
        }
        if let Some(cluster) = &self.cluster {
            write!(f, " on target {cluster}")?;
        }
        Ok(())
    }
}

/// Prints `2 ConfigMap, 1 Secret`.
impl Display for Counts {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        for (at, (kind, count)) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { ", " };
            write!(f, "{separator}{count} {kind}")?;
        }
        Ok(())
    }
}

impl Display for UnservedStep {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Self { object, api_version, kind } = self;
        write!(f, "the cluster does not serve {} in {api_version}{}", object.kind.kind, suggestion(kind))
    }
}

/// Returns `; did you mean …?`, or nothing if no other kind is similar.
fn suggestion(kind: &UnservedKind) -> String {
    let elsewhere = kind.elsewhere.iter().map(|(version, GroupKind { kind, .. })| format!("{version} {kind}"));
    let candidates: Vec<_> = elsewhere.chain(kind.similar.clone()).collect();
    if candidates.is_empty() { String::new() } else { format!("; did you mean {}?", candidates.join(" or ")) }
}

/// Formats a count: `1 object`, `3 objects`.
pub fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// Formats a list: `finalizer a`, `finalizers a, b`.
pub fn list(what: &str, names: &[String]) -> String {
    let s = if names.len() == 1 { "" } else { "s" };
    format!("{what}{s} {}", names.join(", "))
}

/// Formats a duration in whole seconds, rounded up: `28s`.
pub fn seconds(duration: Duration) -> String {
    format!("{}s", duration.as_millis().div_ceil(1000).max(1))
}

fn objects(number: usize) -> String {
    count(number, "object")
}

/// Shortens what another program reports to the length of a line.
fn line(text: &str) -> &str {
    const SHOWN: usize = 300;
    &text[..text.floor_char_boundary(SHOWN)]
}

/// Shortens the value of an annotation, which may be 256 KiB long.
fn clip(value: &str) -> &str {
    const SHOWN: usize = 60;
    &value[..value.floor_char_boundary(SHOWN)]
}

/// Formats a part of all objects: `3 of its 5 objects`, `all 5 objects`, `the only object`.
fn of_all(part: usize, all: usize, whose: &str) -> String {
    match (part, all) {
        (1, 1) => "the only object".to_owned(),
        (part, all) if part == all => format!("all {all} objects"),
        (part, all) => format!("{part} of {whose} {}", objects(all)),
    }
}

fn versions(versions: &[String]) -> String {
    if versions.is_empty() { "no version".to_owned() } else { versions.join(", ") }
}

fn joined<T: Display>(all: &[T], separator: &str) -> String {
    all.iter().map(ToString::to_string).collect::<Vec<_>>().join(separator)
}

/// Returns the first few of a list, and how many more there are.
fn first_of<T: Display>(all: &[T]) -> String {
    const SHOWN: usize = 5;
    let shown: Vec<String> = all.iter().take(SHOWN).map(|one| format!("{one:#}")).collect();
    let shown = shown.join(", ");
    if all.len() > SHOWN { format!("{shown} and {} more", all.len() - SHOWN) } else { shown }
}
