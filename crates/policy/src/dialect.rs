//! The dialects. Each translates its syntax into the groups of the model.

pub(crate) mod deletion_groups;
pub(crate) mod deployment;
pub(crate) mod rank_rules;
pub(crate) mod resources;
mod settings;

use crate::{
    DeletionGroup, Members, Policy, ResourceClass, ResourceSelector,
    reader::{Cursor, Fields},
};

/// The fields in which a policy is written, wherever it stands.
pub(crate) const POLICY_FIELDS: [&str; 4] =
    ["deletionGroups", "deletionGroupsDuringUpdate", "deletionOrderRules", "deploymentGroups"];

/// The names of the predefined groups.
const CLASSES: [(&str, ResourceClass); 4] = [
    (ResourceClass::Namespaced.as_str(), ResourceClass::Namespaced),
    (ResourceClass::ClusterScoped.as_str(), ResourceClass::ClusterScoped),
    (ResourceClass::Crds.as_str(), ResourceClass::Crds),
    (ResourceClass::Empty.as_str(), ResourceClass::Empty),
];

/// Reads the policy out of a mapping that may hold other fields too; what is not written is the default.
pub(crate) fn policy(fields: &mut Fields<'_>) -> Policy {
    let mut policy = Policy::default();
    let groups = fields.get("deletionGroups");
    let rules = fields.get("deletionOrderRules");
    if let (Some(_), Some(rules)) = (&groups, &rules) {
        rules.error_with("deletionGroups is there too", "write the order in one of the two");
    }
    if let Some(groups) = groups {
        policy.deletion = deletion_groups::read(&groups, deletion_groups::When::Delete);
    }
    if let Some(rules) = rules {
        policy.deletion = rank_rules::read(&rules);
    }
    if let Some(groups) = fields.get("deletionGroupsDuringUpdate") {
        policy.during_update = deletion_groups::read(&groups, deletion_groups::When::Update);
    }
    if let Some(groups) = fields.get("deploymentGroups") {
        policy.deployment = deployment::read(&groups);
    }
    policy
}

/// What a group's item consists of, and so in which syntax it is written.
enum Shape<'a> {
    /// `predefinedResourceGroup: {type: …}`
    Predefined(Cursor<'a>),
    /// `customResourceGroup: {resources: …}`
    Custom(Cursor<'a>),
    /// The proposal's `predefinedResourceGroup: crds`
    Class(Cursor<'a>),
    /// The proposal's `resources: […]`
    Resources(Cursor<'a>),
}

impl<'a> Shape<'a> {
    /// Finds out the shape; reports an item that has none or two.
    fn of(fields: &mut Fields<'a>) -> Result<Self, ShapeError> {
        let names = ["predefinedResourceGroup", "customResourceGroup", "resources"];
        let found: Vec<_> = names.into_iter().filter(|name| fields.has(name)).collect();
        if let [first, second, ..] = found[..] {
            fields.here().error_with(
                format!("{first} and {second} in one group"),
                "make two groups of it: a group has exactly one of predefinedResourceGroup, customResourceGroup or resources",
            );
            names.iter().for_each(|name| fields.ignore(name));
            return Err(ShapeError::Reported);
        }
        let predefined = fields.get("predefinedResourceGroup");
        let custom = fields.get("customResourceGroup").map(Self::Custom);
        // `resources` counts only once it is there: otherwise its mention among the known fields would mislead.
        let resources = fields.has("resources").then(|| fields.get("resources")).flatten().map(Self::Resources);
        let predefined =
            predefined.map(|cursor| if cursor.is_text() { Self::Class(cursor) } else { Self::Predefined(cursor) });
        predefined.or(custom).or(resources).ok_or(ShapeError::Nothing)
    }
}

/// Why an item has no shape.
#[derive(PartialEq, Eq)]
enum ShapeError {
    /// It names no objects at all.
    Nothing,
    /// It names them twice, which is reported already.
    Reported,
}

impl ShapeError {
    /// Reports what is wrong with the item, all its fields considered.
    fn report(self, mut fields: Fields<'_>, settings: &[&'static str]) {
        settings.iter().for_each(|name| fields.ignore(name));
        let here = fields.here().clone();
        let unknown = fields.finish();
        // A misspelt field is the likelier reason for a missing one, and is reported already.
        if self == Self::Nothing && unknown == 0 {
            here.error("a group needs exactly one of predefinedResourceGroup or customResourceGroup");
        }
    }
}

/// Reports groups that no object can reach, because groups before them take it.
fn warn_unreachable(groups: &[(Cursor<'_>, DeletionGroup)]) {
    let mut taken: Vec<ResourceClass> = Vec::new();
    for (cursor, group) in groups {
        let reachable = match &group.members {
            Members::Class(class) => !taken.contains(class),
            Members::Resources(selectors) => taken.len() < 3 || selectors.iter().any(|selector| selector.all),
        };
        if !reachable {
            cursor.warn("no object reaches this group: the groups before it take them all", Some("move it up"));
        }
        if let Members::Class(class) = group.members
            && class != ResourceClass::Empty
            && group.excluded.is_empty()
            && !taken.contains(&class)
        {
            taken.push(class);
        }
    }
}

/// What a custom group is called: its kinds as written, `all ` before those that are deleted wherever they come from.
fn title(selectors: &[ResourceSelector]) -> String {
    const SHOWN: usize = 5;
    let mut names: Vec<String> = Vec::new();
    for selector in selectors {
        let name = format!("{}{}", if selector.all { "all " } else { "" }, selector.kind_name());
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let more = names.len().saturating_sub(SHOWN);
    if more == 0 { names.join(", ") } else { format!("{} and {more} more", names[..SHOWN].join(", ")) }
}
