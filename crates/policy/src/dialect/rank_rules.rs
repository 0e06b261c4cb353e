//! `deletionOrderRules`: every object has a rank, and the ranks go one after the other.

use super::{
    resources::{self, Entries},
    settings::{ForceSpelling, Settings},
    title,
};
use crate::{DeletionGroup, Members, ResourceClass, ResourceSelector, reader::Cursor};

/// The rank that objects of a class have unless a rule names them.
const DEFAULTS: [(i64, ResourceClass); 3] =
    [(100, ResourceClass::Namespaced), (200, ResourceClass::ClusterScoped), (300, ResourceClass::Crds)];

/// A rule, be it written or added.
struct Rule {
    rank: i64,
    path: String,
    members: RuleMembers,
    settings: Settings,
}

enum RuleMembers {
    Default(ResourceClass),
    Types(Vec<ResourceSelector>),
}

/// Reads a list of rules.
pub(crate) fn read(list: &Cursor<'_>) -> Vec<DeletionGroup> {
    let mut rules: Vec<Rule> = Vec::new();
    for item in list.items().unwrap_or_default() {
        let Some(rule) = rule(&item, &rules) else { continue };
        rules.push(rule);
    }
    add_missing(&mut rules);
    rules.sort_by_key(|rule| rule.rank);
    compile(rules)
}

fn rule(item: &Cursor<'_>, earlier: &[Rule]) -> Option<Rule> {
    let mut fields = item.fields()?;
    let rank = fields.required("deletionRank").and_then(|cursor| rank(&cursor, earlier));
    let class = DEFAULTS.iter().find(|(default, _)| Some(*default) == rank).map(|(_, class)| *class);
    let types = fields.get("types");
    match (rank, class, &types) {
        (Some(rank), Some(class), Some(types)) => types.error_with(
            format!("types in the rule of rank {rank}, which is that of all {} objects", describe(class)),
            "choose another rank for these types",
        ),
        (Some(_), None, None) => {
            item.error_with("missing field \"types\"", "only the default ranks 100, 200 and 300 go without types");
        }
        _ => {}
    }
    let types = types.map(|list| resources::read(&list, Entries::GroupVersion)).unwrap_or_default();
    if class.is_none() && rank.is_some_and(|rank| rank > DEFAULTS[0].0) {
        refuse_exclusions(fields.get("excludedResources"));
    }
    let settings = Settings::read(&mut fields, ForceSpelling::Camel);
    fields.elsewhere(&["deleteAllResources"], "write selector: {all: true} in the entries of types");
    fields.elsewhere(&["targetName"], "only a customResourceGroup of deletionGroups can have it");
    fields.elsewhere(&["resources"], "a rule has types");
    fields.finish();
    let members = class.map_or(RuleMembers::Types(types), RuleMembers::Default);
    Some(Rule { rank: rank?, path: item.path().to_owned(), members, settings })
}

/// A rank that no rule before it has.
fn rank(cursor: &Cursor<'_>, earlier: &[Rule]) -> Option<i64> {
    let rank = cursor.integer()?;
    if let Some(same) = earlier.iter().find(|rule| rule.rank == rank) {
        cursor.error_with(format!("rank {rank} is that of {} too", same.path), "give each rule a rank of its own");
    }
    Some(rank)
}

/// What a rule names does not go with its default rank. If a late rule left some of it out again, that would go with
/// neither of the two, which nobody expects.
fn refuse_exclusions(excluded: Option<Cursor<'_>>) {
    if let Some(excluded) = excluded {
        excluded.error_with(
            "excludedResources in a rule with types whose rank is above 100",
            "name what is wanted in types, by names, namespaces or labelSelector",
        );
    }
}

fn describe(class: ResourceClass) -> &'static str {
    match class {
        ResourceClass::Namespaced => "namespaced",
        ResourceClass::ClusterScoped => "cluster-scoped",
        ResourceClass::Crds => "CRD",
        ResourceClass::Empty => "no",
    }
}

fn add_missing(rules: &mut Vec<Rule>) {
    for (rank, class) in DEFAULTS {
        if !rules.iter().any(|rule| rule.rank == rank) {
            let members = RuleMembers::Default(class);
            rules.push(Rule { rank, path: String::new(), members, settings: Settings::default() });
        }
    }
}

/// Turns sorted rules into groups. In a list of groups the first match wins, which is right among explicit rules and
/// for those before a default rank; what a rule after it names must be kept out of the default rank.
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
