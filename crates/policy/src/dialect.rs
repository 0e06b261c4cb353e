//! The dialects, each of which translates its syntax into the groups of the model.

pub(crate) mod deletion_groups;
pub(crate) mod deployment;
pub(crate) mod rank_rules;
pub(crate) mod resources;
mod settings;
mod shape;
pub(crate) mod stages;

use crate::{Policy, reader::Fields};

/// The fields of a policy in every kind of document.
pub(crate) const POLICY_FIELDS: [&str; 4] =
    ["deletionGroups", "deletionGroupsDuringUpdate", "deletionOrderRules", "deploymentGroups"];

/// Reads the policy from a mapping that may have other fields too; missing fields get their defaults.
pub(crate) fn policy(fields: &mut Fields<'_>) -> Policy {
    let mut policy = Policy::default();
    let groups = fields.get("deletionGroups");
    let rules = fields.get("deletionOrderRules");
    if let (Some(_), Some(rules)) = (&groups, &rules) {
        rules.error_with("deletionGroups is also set", "use only one of the two");
    }
    if let Some(groups) = groups {
        policy.deletion = deletion_groups::read(&groups, deletion_groups::Purpose::Delete);
    }
    if let Some(rules) = rules {
        policy.deletion = rank_rules::read(&rules);
    }
    if let Some(groups) = fields.get("deletionGroupsDuringUpdate") {
        policy.during_update = deletion_groups::read(&groups, deletion_groups::Purpose::Update);
    }
    if let Some(groups) = fields.get("deploymentGroups") {
        policy.deployment = deployment::read(&groups);
    }
    policy
}
