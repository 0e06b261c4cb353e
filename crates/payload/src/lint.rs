//! Checks what the guide for object deletion asks of the authors of a payload.

mod deletions;
mod text;

use std::collections::{HashMap, HashSet};

use billhook_objects::{ObjectKey, Source};
use semver::Version;
use serde::Serialize;

use crate::{
    annotations::{DeleteValue, FEATURE_SET},
    problem::ProblemKind,
    read::{Entry, Payload},
    rules::{Decisions, Outcome, Rule, invalid_delete},
    settings::FEATURE_SETS,
};

/// What is checked.
#[derive(Clone, Copy, Debug)]
pub struct Lint<'a> {
    /// The payload.
    pub new: Decided<'a>,
    /// The payload of the version before.
    pub old: Option<Decided<'a>>,
    /// The version of the payload.
    pub version: Option<&'a str>,
    /// The version of the old payload. If it is not known, a payload whose patch number is 0 is a minor update.
    pub old_version: Option<&'a str>,
}

/// A payload and the decisions about its manifests.
#[derive(Clone, Copy, Debug)]
pub struct Decided<'a> {
    /// The payload.
    pub payload: &'a Payload,
    /// The decisions.
    pub decisions: &'a Decisions,
}

impl<'a> Decided<'a> {
    /// Iterates over the manifests that count, with what happens with them.
    fn counting(self) -> impl Iterator<Item = (&'a Entry, Outcome)> {
        let decided = self.payload.entries.iter().zip(&self.decisions.all);
        decided.filter(|(_, decision)| decision.counts()).map(|(entry, decision)| (entry, decision.outcome))
    }

    fn deleted(self) -> impl Iterator<Item = &'a Entry> {
        self.counting().filter(|(_, outcome)| *outcome == Outcome::Deleted).map(|(entry, _)| entry)
    }

    fn applied(self) -> impl Iterator<Item = &'a Entry> {
        self.counting().filter(|(_, outcome)| *outcome != Outcome::Deleted).map(|(entry, _)| entry)
    }
}

/// Something that should be changed in a payload.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The place.
    pub place: Source,
    /// The rule.
    pub code: Code,
    /// The object, if the finding is about one.
    pub object: Option<ObjectKey>,
    /// What is wrong.
    pub text: String,
    /// How to fix it.
    pub fix: String,
}

/// The rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    /// The delete annotation has another value than `"true"`.
    DeleteValue,
    /// An object is deleted whose namespace or CRD is deleted, too.
    DeleteRedundant,
    /// An operator is deleted while its operand's CRD or resources remain.
    DeleteOperandMissing,
    /// Rights are deleted before those who use them.
    DeleteRightsFirst,
    /// A delete manifest is left over in a later minor version.
    DeleteLeftover,
    /// A manifest was dropped and its object would remain forever.
    DroppedWithoutDelete,
    /// A file has a name without run level and component.
    NameNotOrdered,
    /// The annotation for feature sets names one that does not exist.
    FeatureSetUnknown,
    /// Two manifests of one object count at the same time.
    Duplicate,
}

impl Lint<'_> {
    /// Returns all findings in the order of their places.
    ///
    /// Values, names and duplicates are checked for every cluster; everything else for one with the settings of the decisions.
    pub fn findings(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        found.extend(self.values());
        found.extend(self.names());
        found.extend(self.duplicates());
        found.extend(deletions::redundant(self));
        found.extend(deletions::operands(self));
        found.extend(deletions::rights(self));
        found.extend(self.leftover());
        found.extend(deletions::dropped(self));
        found.sort();
        found.dedup();
        found
    }

    fn values(&self) -> impl Iterator<Item = Finding> {
        self.new.payload.entries.iter().flat_map(|entry| {
            let delete = match &entry.annotations.delete {
                Some(DeleteValue::Invalid { value, is_string }) => {
                    let problem = invalid_delete(entry, value, *is_string);
                    Some(text::delete_value(entry, problem.place, &problem.kind))
                }
                _ => None,
            };
            let sets = entry.annotations.feature_sets().unwrap_or_default();
            let unknown = sets.into_iter().find(|set| !FEATURE_SETS.contains(set));
            let place = || entry.place_of(FEATURE_SET);
            delete.into_iter().chain(unknown.map(|set| text::feature_set_unknown(entry, place(), set)))
        })
    }

    fn names(&self) -> impl Iterator<Item = Finding> {
        let mut seen = HashSet::new();
        let unordered = self.new.payload.entries.iter().filter(|entry| entry.step.is_none());
        unordered.filter(move |entry| seen.insert(entry.manifest.source.file.clone())).map(text::name_not_ordered)
    }

    /// Finds manifests of one object that count at the same time on any cluster, whatever its profile and features are.
    fn duplicates(&self) -> Vec<Finding> {
        let mut of_object: HashMap<&ObjectKey, Vec<&Entry>> = HashMap::new();
        let mut found = Vec::new();
        for entry in &self.new.payload.entries {
            let others = of_object.entry(&entry.manifest.key).or_default();
            if let Some(first) = others.iter().find(|other| may_meet(other, entry)) {
                let first = first.manifest.source.clone();
                let kind = ProblemKind::Duplicate { object: entry.manifest.key.clone(), first };
                found.push(text::duplicate(entry, &kind));
            }
            others.push(entry);
        }
        found
    }

    fn leftover(&self) -> Vec<Finding> {
        let Some(old) = self.old.filter(|_| self.is_minor_update()) else { return Vec::new() };
        let deleted: HashSet<_> = old.deleted().map(|entry| &entry.manifest.key).collect();
        let left = self.new.deleted().filter(|entry| deleted.contains(&entry.manifest.key));
        left.map(text::delete_leftover).collect()
    }

    /// Returns whether the payload is of another minor version than the old one.
    fn is_minor_update(&self) -> bool {
        let Some(version) = self.version.and_then(|version| Version::parse(version).ok()) else { return false };
        match self.old_version.and_then(|version| Version::parse(version).ok()) {
            Some(old) => (old.major, old.minor) != (version.major, version.minor),
            None => version.patch == 0,
        }
    }
}

/// Returns whether there are clusters in which both manifests count.
fn may_meet(a: &Entry, b: &Entry) -> bool {
    let (a, b) = (&a.annotations, &b.annotations);
    let profiles: HashSet<&str> = a.profiles().collect();
    let known = |sets: Vec<&str>| sets.iter().all(|set| FEATURE_SETS.contains(set));
    let sets_meet = match (a.feature_sets(), b.feature_sets()) {
        (Some(a), Some(b)) => a.iter().any(|set| b.contains(set)) && known(a) && known(b),
        (Some(sets), None) | (None, Some(sets)) => known(sets),
        (None, None) => true,
    };
    let contradict = |(gate, on): &(&str, bool)| b.feature_gates().contains(&(*gate, !on));
    b.profiles().any(|profile| profiles.contains(profile)) && sets_meet && !a.feature_gates().iter().any(contradict)
}

/// Returns the rule that leaves out the manifest of an object, if there is one.
fn left_out<'a>(decided: Decided<'a>, object: &ObjectKey) -> Option<&'a Rule> {
    let all = decided.payload.entries.iter().zip(&decided.decisions.all);
    let mut of_object = all.filter(|(entry, _)| entry.manifest.key == *object);
    of_object.next().map(|(_, decision)| &decision.rule)
}

#[cfg(test)]
mod tests;
