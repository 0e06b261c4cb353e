//! `deletionOrderRules`: every object has a rank, and the ranks are deleted in ascending order.

use std::collections::HashMap;

use super::{
    resources::{self, EntrySyntax, title},
    settings::{DeletionSettings, ForceSpelling},
};
use crate::{DeletionGroup, Members, ResourceClass, ResourceSelector, reader::Cursor};

/// The ranks of objects that no rule selects.
const DEFAULTS: [(i64, ResourceClass); 3] =
    [(100, ResourceClass::Namespaced), (200, ResourceClass::ClusterScoped), (300, ResourceClass::Crds)];

/// A rule from the policy, or one added for a default rank.
struct Rule {
    rank: i64,
    path: String,
    members: RuleMembers,
    settings: DeletionSettings,
}

enum RuleMembers {
    Default(ResourceClass),
    Types(Vec<ResourceSelector>),
}

/// Reads a list of rules.
pub(crate) fn read(list: &Cursor<'_>) -> Vec<DeletionGroup> {
    let mut used = HashMap::new();
    let rules = list.items().unwrap_or_default().filter_map(|item| rule(&item, &mut used));
    let mut rules: Vec<Rule> = rules.collect();
    add_missing(&mut rules);
    rules.sort_by_key(|rule| rule.rank);
    compile(rules)
}

fn rule(item: &Cursor<'_>, used: &mut HashMap<i64, String>) -> Option<Rule> {
    let mut fields = item.fields()?;
    let rank = fields.required("deletionRank").and_then(|cursor| rank(&cursor, used));
    let class = DEFAULTS.iter().find(|(default, _)| Some(*default) == rank).map(|(_, class)| *class);
    let types = fields.get("types");
    match (rank, class, &types) {
        (Some(rank), Some(class), Some(types)) => types.error_with(
            format!("types are not allowed at rank {rank}, the default rank of {}", describe(class)),
            "choose another rank for these types",
        ),
        (Some(_), None, None) => {
            item.error_with(
                "missing field \"types\"",
                "only rules for the default ranks 100, 200 and 300 have no types",
            );
        }
        _ => {}
    }
    let types = types.map(|list| resources::read(&list, EntrySyntax::GroupVersion)).unwrap_or_default();
    if class.is_none() && rank.is_some_and(|rank| rank > DEFAULTS[0].0) {
        reject_exclusions(fields.get("excludedResources"));
    }
    let settings = DeletionSettings::read(&mut fields, ForceSpelling::Camel);
    fields.elsewhere(&["deleteAllResources"], "set selector: {all: true} in the entries of types");
    fields.elsewhere(&["targetName"], "only a customResourceGroup of deletionGroups supports it");
    fields.elsewhere(&["resources"], "use types");
    fields.finish();
    let members = class.map_or(RuleMembers::Types(types), RuleMembers::Default);
    used.entry(rank?).or_insert_with(|| item.path().to_owned());
    Some(Rule { rank: rank?, path: item.path().to_owned(), members, settings })
}

/// Reads a rank, which must differ from those of all earlier rules; `used` has their paths.
fn rank(cursor: &Cursor<'_>, used: &HashMap<i64, String>) -> Option<i64> {
    let rank = cursor.integer()?;
    if let Some(same) = used.get(&rank) {
        cursor.error_with(format!("rank {rank} is already used by {same}"), "give each rule its own rank");
    }
    Some(rank)
}

/// Rejects exclusions in a rule after a default rank. A rule removes its types from their default rank, so objects that
/// it excludes would not be deleted at all.
fn reject_exclusions(excluded: Option<Cursor<'_>>) {
    if let Some(excluded) = excluded {
        excluded.error_with(
            "excludedResources is not allowed in a rule with types and a rank above 100",
            "narrow types with names, namespaces or labelSelector instead",
        );
    }
}

fn describe(class: ResourceClass) -> &'static str {
    match class {
        ResourceClass::Namespaced => "namespaced objects",
        ResourceClass::ClusterScoped => "cluster-scoped objects",
        ResourceClass::Crds => "CRDs",
        ResourceClass::Empty => "no objects",
    }
}

fn add_missing(rules: &mut Vec<Rule>) {
    for (rank, class) in DEFAULTS {
        if !rules.iter().any(|rule| rule.rank == rank) {
            let members = RuleMembers::Default(class);
            rules.push(Rule { rank, path: String::new(), members, settings: DeletionSettings::default() });
        }
    }
}

/// Turns sorted rules into groups. In a list of groups the first match wins, so a default rank must exclude the types of
/// all later rules.
fn compile(rules: Vec<Rule>) -> Vec<DeletionGroup> {
    let explicit: Vec<(i64, ResourceSelector)> = rules
        .iter()
        .filter_map(|rule| match &rule.members {
            RuleMembers::Types(types) => Some(types.iter().map(|selector| (rule.rank, selector.clone()))),
            RuleMembers::Default(_) => None,
        })
        .flatten()
        .collect();
    rules.into_iter().map(|rule| group(rule, &explicit)).collect()
}

fn group(rule: Rule, explicit: &[(i64, ResourceSelector)]) -> DeletionGroup {
    let (title, members, excluded) = match rule.members {
        RuleMembers::Types(types) => (title(&types), Members::Resources(types), Vec::new()),
        RuleMembers::Default(class) => {
            let later = explicit.iter().filter(|(rank, _)| *rank > rule.rank);
            let excluded = later.map(|(_, selector)| ResourceSelector { all: false, ..selector.clone() }).collect();
            (class.as_str().to_owned(), Members::Class(class), excluded)
        }
    };
    let mut group = DeletionGroup::new(format!("rank {}: {title}", rule.rank), members);
    group.path = rule.path;
    group.excluded = excluded;
    rule.settings.apply(&mut group);
    group
}
