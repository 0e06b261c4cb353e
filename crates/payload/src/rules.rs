//! Decides for each manifest whether it counts and what happens with its object, and by which rule.

use std::collections::{BTreeSet, HashMap};

use billhook_objects::ObjectKey;
use serde::{Serialize, Serializer};

use crate::{
    annotations::{Annotations, DELETE, DeleteValue, EXCLUDE_PREFIX, FEATURE_GATE, FEATURE_SET},
    problem::{Problem, ProblemKind},
    read::{Entry, Payload},
    settings::{FEATURE_SETS, Settings},
};

/// What happens with a manifest, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What happens.
    pub outcome: Outcome,
    /// The rule that decided.
    pub rule: Rule,
}

/// What happens with a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// Its object is created or updated.
    Applied,
    /// Its object is created, and left as it is if it exists.
    CreatedOnly,
    /// Its object is deleted.
    Deleted,
    /// Nothing happens: the manifest does not count.
    LeftOut,
}

/// The rule that decided about a manifest. Its text is in `text`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "code", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum Rule {
    /// An annotation excludes it from clusters of this identifier.
    Excluded {
        /// The annotation.
        annotation: String,
    },
    /// Its annotation for feature sets contains a name that does not exist.
    UnknownFeatureSet {
        /// The name.
        value: String,
        /// The whole annotation.
        listed: String,
    },
    /// Its annotation for feature sets does not contain that of the cluster.
    FeatureSet {
        /// The feature set of the cluster.
        required: String,
        /// The whole annotation.
        listed: String,
    },
    /// It needs a feature gate that is off.
    FeatureGateOff {
        /// The feature gate.
        gate: String,
    },
    /// It needs a feature gate to be off that is on.
    FeatureGateOn {
        /// The feature gate.
        gate: String,
    },
    /// No annotation includes it in the profile.
    NotInProfile {
        /// The missing annotation.
        annotation: String,
    },
    /// The annotation for the profile is not `"true"`.
    ProfileValue {
        /// The annotation.
        annotation: String,
        /// Its value.
        value: String,
    },
    /// It needs capabilities that are not enabled.
    Capabilities {
        /// These capabilities.
        disabled: Vec<String>,
    },
    /// Somebody else manages its object.
    Override,
    /// The delete annotation.
    Delete,
    /// The create-only annotation.
    CreateOnly,
    /// All filters accept it.
    Included {
        /// The annotation for the profile.
        annotation: String,
    },
}

impl Decision {
    /// Returns whether the manifest counts.
    pub fn counts(&self) -> bool {
        self.outcome != Outcome::LeftOut
    }
}

/// Serializes the outcome, the rule as data, and its text.
impl Serialize for Decision {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Row<'a> {
            outcome: Outcome,
            rule: &'a Rule,
            why: String,
        }
        Row { outcome: self.outcome, rule: &self.rule, why: self.rule.to_string() }.serialize(serializer)
    }
}

/// The decisions about all manifests of a payload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decisions {
    /// A decision for each entry of the payload.
    pub all: Vec<Decision>,
    /// Mistakes for which the payload must not be used.
    pub problems: Vec<Problem>,
}

impl Decisions {
    /// Decides about each manifest, by the filters of the reference in its order. What a filter left out is not looked at
    /// further: an excluded manifest is never deleted.
    pub fn new(payload: &Payload, settings: &Settings) -> Self {
        let mut found = Self::default();
        for entry in &payload.entries {
            let decision = match filter(entry, settings) {
                Ok(()) => found.action(entry, settings),
                Err(Ruled::Out(rule)) => Decision { outcome: Outcome::LeftOut, rule },
                Err(Ruled::Wrong) => {
                    let kind = ProblemKind::FeatureSetAndGate { object: entry.manifest.key.clone() };
                    found.problems.push(Problem { place: entry.place_of(FEATURE_GATE), kind });
                    // The payload is not used, so this decision has no effect.
                    let rule = Rule::Included { annotation: settings.include_annotation() };
                    Decision { outcome: Outcome::Applied, rule }
                }
            };
            found.all.push(decision);
        }
        found.find_duplicates(payload);
        found.problems.sort();
        found
    }

    /// Decides what happens with the object of a manifest that counts: deleting takes precedence over create-only.
    fn action(&mut self, entry: &Entry, settings: &Settings) -> Decision {
        let (outcome, rule) = match &entry.annotations.delete {
            Some(DeleteValue::True) => (Outcome::Deleted, Rule::Delete),
            Some(DeleteValue::Invalid { value, is_string }) => {
                self.problems.push(invalid_delete(entry, value, *is_string));
                (Outcome::Deleted, Rule::Delete)
            }
            None if entry.annotations.is_create_only() => (Outcome::CreatedOnly, Rule::CreateOnly),
            None => (Outcome::Applied, Rule::Included { annotation: settings.include_annotation() }),
        };
        Decision { outcome, rule }
    }

    fn find_duplicates(&mut self, payload: &Payload) {
        let mut first: HashMap<&ObjectKey, &Entry> = HashMap::new();
        for (entry, decision) in payload.entries.iter().zip(&self.all) {
            if !decision.counts() {
                continue;
            }
            let key = &entry.manifest.key;
            match first.get(key) {
                None => {
                    first.insert(key, entry);
                }
                Some(first) => {
                    let first = first.manifest.source.clone();
                    let kind = ProblemKind::Duplicate { object: key.clone(), first };
                    self.problems.push(Problem { place: entry.manifest.source.clone(), kind });
                }
            }
        }
    }

    /// Returns the indexes of the entries that count, in their order.
    pub fn counting(&self) -> impl Iterator<Item = usize> {
        self.all.iter().enumerate().filter(|(_, decision)| decision.counts()).map(|(at, _)| at)
    }

    /// Returns how many manifests have an outcome.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.all.iter().filter(|decision| decision.outcome == outcome).count()
    }
}

/// Returns the problem of a delete annotation with another value than `"true"`.
pub(crate) fn invalid_delete(entry: &Entry, value: &str, is_string: bool) -> Problem {
    let (object, value) = (entry.manifest.key.clone(), value.to_owned());
    Problem { place: entry.place_of(DELETE), kind: ProblemKind::DeleteValue { object, value, is_string } }
}

/// Why a manifest does not pass the filters.
enum Ruled {
    /// A filter leaves it out.
    Out(Rule),
    /// It has annotations that exclude each other.
    Wrong,
}

fn filter(entry: &Entry, settings: &Settings) -> Result<(), Ruled> {
    let annotations = &entry.annotations;
    if let Some(identifier) = &settings.exclude {
        let annotation = format!("{EXCLUDE_PREFIX}{identifier}");
        if annotations.get(&annotation) == Some("true") {
            return Err(Ruled::Out(Rule::Excluded { annotation }));
        }
    }
    if annotations.get(FEATURE_SET).is_some() && annotations.get(FEATURE_GATE).is_some() {
        return Err(Ruled::Wrong);
    }
    by_feature(annotations, settings).map_err(Ruled::Out)?;
    let annotation = settings.include_annotation();
    match annotations.get(&annotation) {
        Some("true") => {}
        None => return Err(Ruled::Out(Rule::NotInProfile { annotation })),
        Some(value) => return Err(Ruled::Out(Rule::ProfileValue { annotation, value: value.to_owned() })),
    }
    if let Some(enabled) = &settings.capabilities {
        let needed = annotations.capabilities().into_iter();
        let disabled: Vec<_> = needed.filter(|name| !enabled.contains(*name)).map(str::to_owned).collect();
        if !disabled.is_empty() {
            return Err(Ruled::Out(Rule::Capabilities { disabled }));
        }
    }
    if settings.overrides.iter().any(|other| other.is(&entry.manifest.key)) {
        return Err(Ruled::Out(Rule::Override));
    }
    Ok(())
}

fn by_feature(annotations: &Annotations, settings: &Settings) -> Result<(), Rule> {
    let listed = || annotations.get(FEATURE_SET).unwrap_or_default().to_owned();
    if let Some(sets) = annotations.feature_sets() {
        if let Some(value) = sets.iter().find(|set| !FEATURE_SETS.contains(set)) {
            return Err(Rule::UnknownFeatureSet { value: (*value).to_owned(), listed: listed() });
        }
        if !sets.contains(&settings.feature_set()) {
            return Err(Rule::FeatureSet { required: settings.feature_set().to_owned(), listed: listed() });
        }
    }
    for (gate, must_be_on) in annotations.feature_gates() {
        let gate_is_on = settings.feature_gates.contains(gate);
        if gate_is_on != must_be_on {
            let gate = gate.to_owned();
            return Err(if must_be_on { Rule::FeatureGateOff { gate } } else { Rule::FeatureGateOn { gate } });
        }
    }
    Ok(())
}

/// A setting that has no effect on a payload, which may be a slip of the pen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unused {
    /// No manifest is included in the profile.
    Profile {
        /// The profile.
        profile: String,
        /// The profiles of the payload.
        named: Vec<String>,
    },
    /// The feature set does not exist.
    FeatureSet {
        /// The feature set.
        feature_set: String,
    },
    /// No manifest needs the capability.
    Capability {
        /// The capability.
        capability: String,
    },
    /// No manifest is of the object.
    Override {
        /// The index in [`Settings::overrides`].
        at: usize,
    },
}

/// Returns the settings that have no effect on the payload.
pub fn unused(payload: &Payload, settings: &Settings) -> Vec<Unused> {
    let mut found = Vec::new();
    let annotations = || payload.entries.iter().map(|entry| &entry.annotations);
    let profiles: BTreeSet<&str> = annotations().flat_map(Annotations::profiles).collect();
    if !profiles.contains(settings.profile.as_str()) {
        let named = profiles.into_iter().map(str::to_owned).collect();
        found.push(Unused::Profile { profile: settings.profile.clone(), named });
    }
    if !FEATURE_SETS.contains(&settings.feature_set()) {
        found.push(Unused::FeatureSet { feature_set: settings.feature_set.clone() });
    }
    let named: BTreeSet<&str> = annotations().flat_map(Annotations::capabilities).collect();
    let chosen = settings.capabilities.iter().flatten().filter(|name| !named.contains(name.as_str()));
    found.extend(chosen.map(|name| Unused::Capability { capability: name.clone() }));
    let idle = settings.overrides.iter().enumerate();
    let idle = idle.filter(|(_, other)| !payload.entries.iter().any(|entry| other.is(&entry.manifest.key)));
    found.extend(idle.map(|(at, _)| Unused::Override { at }));
    found
}

#[cfg(test)]
mod tests;
