//! The wording of problems and rules: the facts, as every front end shows them. Nothing here names a flag.

use std::fmt::{Display, Formatter, Result};

use crate::{
    annotations::{CREATE_ONLY, DELETE, FEATURE_GATE, FEATURE_SET},
    messages::resource,
    problem::{Problem, ProblemKind},
    rules::{Outcome, Rule, Unused},
    settings::FEATURE_SETS,
};

impl Display for Problem {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{}: {}", self.place, self.kind)
    }
}

impl Display for ProblemKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Yaml { reason } => write!(f, "not valid YAML: {reason}"),
            Self::NoManifests => f.write_str("neither this file nor any other of the payload contains a manifest"),
            Self::NotObject { reason } => f.write_str(reason),
            Self::AnnotationsNotMapping { value } => {
                write!(f, "metadata.annotations is {value}: expected a mapping of strings")
            }
            Self::NotString { annotation, value } => {
                write!(f, "the value {value} of the annotation {annotation} is not a string: put it in quotes")
            }
            Self::FeatureSetAndGate { object } => {
                write!(f, "{} has both annotations {FEATURE_SET} and {FEATURE_GATE}: remove one", resource(object))
            }
            // The words are those of the cluster-version operator.
            Self::DeleteValue { object, value, is_string } => {
                write!(f, "{}: invalid delete annotation \"{DELETE}\" value: \"{value}\"", resource(object))?;
                if !is_string && value == "true" { f.write_str(" (not a string: put it in quotes)") } else { Ok(()) }
            }
            Self::Duplicate { object, first } => {
                write!(f, "{} is also defined at {first}, and both manifests count at the same time", resource(object))
            }
        }
    }
}

/// Prints what happens: `applied`, `created only`, `deleted`, `left out`.
impl Display for Outcome {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(match self {
            Self::Applied => "applied",
            Self::CreatedOnly => "created only",
            Self::Deleted => "deleted",
            Self::LeftOut => "left out",
        })
    }
}

impl Display for Rule {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Excluded { annotation } => write!(f, "{annotation}=true"),
            Self::UnknownFeatureSet { value, listed } => {
                write!(f, "unknown feature set \"{value}\" in {FEATURE_SET}={listed}")
            }
            Self::FeatureSet { required, listed } => {
                write!(f, "the feature set is {required}, and {FEATURE_SET}={listed}")
            }
            Self::FeatureGateOff { gate } => write!(f, "the feature gate {gate} is required and off"),
            Self::FeatureGateOn { gate } => write!(f, "the feature gate {gate} must be off and is on"),
            Self::NotInProfile { annotation } => write!(f, "{annotation} is not set"),
            Self::ProfileValue { annotation, value } => write!(f, "{annotation}={value}, which is not true"),
            Self::Capabilities { disabled } => write!(f, "disabled capabilities: {}", disabled.join(", ")),
            Self::Override => f.write_str("an override leaves the object to another manager"),
            Self::Delete => write!(f, "{DELETE}=true"),
            Self::CreateOnly => write!(f, "{CREATE_ONLY}=true"),
            Self::Included { annotation } => write!(f, "{annotation}=true"),
        }
    }
}

impl Display for Unused {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Profile { profile, named } if named.is_empty() => {
                write!(f, "no manifest is included in the profile {profile}, nor in any other")
            }
            Self::Profile { profile, named } => {
                write!(f, "no manifest is included in the profile {profile}; the payload has {}", named.join(", "))
            }
            Self::FeatureSet { feature_set } => {
                write!(f, "the feature set {feature_set} does not exist; known are {}", FEATURE_SETS.join(", "))
            }
            Self::Capability { capability } => write!(f, "no manifest needs the capability {capability}"),
            Self::Override { at } => write!(f, "no manifest is of the object of override {}", at + 1),
        }
    }
}
