//! The wording of findings.

use billhook_objects::{ObjectKey, Source};

use super::{Code, Finding};
use crate::{
    annotations::DELETE, messages::resource, problem::ProblemKind, read::Entry, rules::Rule, settings::FEATURE_SETS,
};

impl Code {
    /// All codes.
    pub const ALL: [Self; 9] = [
        Self::DeleteValue,
        Self::DeleteRedundant,
        Self::DeleteOperandMissing,
        Self::DeleteRightsFirst,
        Self::DeleteLeftover,
        Self::DroppedWithoutDelete,
        Self::NameNotOrdered,
        Self::FeatureSetUnknown,
        Self::Duplicate,
    ];

    /// Returns the code as users see it.
    pub fn name(self) -> &'static str {
        match self {
            Self::DeleteValue => "delete-value",
            Self::DeleteRedundant => "delete-redundant",
            Self::DeleteOperandMissing => "delete-operand-missing",
            Self::DeleteRightsFirst => "delete-rights-first",
            Self::DeleteLeftover => "delete-leftover",
            Self::DroppedWithoutDelete => "dropped-without-delete",
            Self::NameNotOrdered => "name-not-ordered",
            Self::FeatureSetUnknown => "feature-set-unknown",
            Self::Duplicate => "duplicate",
        }
    }

    /// Returns what the rule finds, in one sentence.
    pub fn summary(self) -> &'static str {
        match self {
            Self::DeleteValue => "The delete annotation has another value than \"true\".",
            Self::DeleteRedundant => "An object is deleted whose namespace or CRD is deleted, too.",
            Self::DeleteOperandMissing => "An operator is deleted while its operand's CRD or resources remain.",
            Self::DeleteRightsFirst => "Rights are deleted before those who use them.",
            Self::DeleteLeftover => "A delete manifest is left over in a later minor version.",
            Self::DroppedWithoutDelete => "A manifest was dropped, and its object would remain forever.",
            Self::NameNotOrdered => "The name of a file has no run level and component.",
            Self::FeatureSetUnknown => "A manifest names a feature set that does not exist, so it never counts.",
            Self::Duplicate => "Two manifests of one object count at the same time.",
        }
    }

    /// Returns whether the payload cannot be used with such a finding.
    pub fn is_error(self) -> bool {
        matches!(self, Self::DeleteValue | Self::Duplicate)
    }
}

fn finding(code: Code, entry: &Entry, place: Source, text: String, fix: impl Into<String>) -> Finding {
    Finding { place, code, object: Some(entry.manifest.key.clone()), text, fix: fix.into() }
}

fn of_delete(code: Code, entry: &Entry, text: String, fix: impl Into<String>) -> Finding {
    finding(code, entry, entry.place_of(DELETE), text, fix)
}

pub(super) fn delete_value(entry: &Entry, place: Source, problem: &ProblemKind) -> Finding {
    let fix = "set the annotation to the string \"true\", or remove it";
    finding(Code::DeleteValue, entry, place, problem.to_string(), fix)
}

pub(super) fn feature_set_unknown(entry: &Entry, place: Source, set: &str) -> Finding {
    let text = format!("the feature set \"{set}\" does not exist, so {} never counts", resource(&entry.manifest.key));
    let fix = match billhook_policy::nearest(set.trim(), FEATURE_SETS) {
        Some(near) => format!("write {near}"),
        None => format!("use some of {}, separated by commas", FEATURE_SETS.join(", ")),
    };
    finding(Code::FeatureSetUnknown, entry, place, text, fix)
}

pub(super) fn name_not_ordered(entry: &Entry) -> Finding {
    let place = Source { line: 1, ..entry.manifest.source.clone() };
    let text = format!("the name {} has no run level and component", entry.file_name());
    let fix = "name the file 0000_LEVEL_COMPONENT_REST.yaml, such as 0000_50_my-operator_07_deployment.yaml";
    Finding { place, code: Code::NameNotOrdered, object: None, text, fix: fix.to_owned() }
}

pub(super) fn duplicate(entry: &Entry, problem: &ProblemKind) -> Finding {
    let place = entry.manifest.source.clone();
    let fix = "remove one of them, or restrict them to different profiles, feature sets or feature gates";
    finding(Code::Duplicate, entry, place, problem.to_string(), fix)
}

pub(super) fn delete_redundant(entry: &Entry, because: &ObjectKey) -> Finding {
    let text = format!("{} is deleted together with {}", resource(&entry.manifest.key), resource(because));
    of_delete(Code::DeleteRedundant, entry, text, "drop this manifest")
}

pub(super) fn operand_missing(entry: &Entry, component: &str, operands: &[&ObjectKey]) -> Finding {
    const NAMED: usize = 3;
    let mut names: Vec<_> = operands.iter().take(NAMED).map(|object| resource(object)).collect();
    if operands.len() > NAMED {
        names.push(format!("{} more", operands.len() - NAMED));
    }
    let text = format!(
        "{} is deleted, {component} has no other workload, and its operands remain: {}",
        resource(&entry.manifest.key),
        names.join(", ")
    );
    let fix = "delete the operand before its operator, or keep the operator until the operand is gone";
    of_delete(Code::DeleteOperandMissing, entry, text, fix)
}

pub(super) fn rights_first(entry: &Entry, user: &ObjectKey, remains: bool) -> Finding {
    let of_namespace = user.kind.is("", "Namespace");
    let (rights, user) = (resource(&entry.manifest.key), resource(user));
    let (text, fix) = if remains {
        (format!("{rights} is deleted while {user} remains and uses it"), "delete the workload first")
    } else {
        let fix = "rename the files so that the workload or its namespace is deleted first";
        let whose = if of_namespace { "whose workloads may use it" } else { "which uses it" };
        (format!("{rights} is deleted before {user}, {whose}"), fix)
    };
    of_delete(Code::DeleteRightsFirst, entry, text, fix)
}

pub(super) fn delete_leftover(entry: &Entry) -> Finding {
    let text = format!(
        "the old payload already deleted {}, and a minor update that still does so is blocked",
        resource(&entry.manifest.key)
    );
    of_delete(Code::DeleteLeftover, entry, text, "drop this manifest")
}

pub(super) fn dropped(entry: &Entry, left_out: Option<&Rule>) -> Finding {
    let object = resource(&entry.manifest.key);
    let text = match left_out {
        None => format!("{object} is in the old payload, not in this one, and nothing deletes it: it remains forever"),
        Some(rule) => {
            format!("{object} counts in the old payload and is left out of this one ({rule}): it remains forever")
        }
    };
    let fix = format!("keep its manifest for one minor version with the annotation {DELETE}: \"true\"");
    finding(Code::DroppedWithoutDelete, entry, entry.manifest.source.clone(), text, fix)
}
