//! `deletionGroups` and `deletionGroupsDuringUpdate`, in the released syntax and in that of the proposal.
//!
//! Each item of the list has one of the two syntaxes; a list may mix them.

use super::{
    resources::{self, EntrySyntax, title},
    settings::{self, DeletionSettings, ForceSpelling},
    shape::{CLASSES, Shape},
};
use crate::{
    DeletionGroup, Members, ResourceClass,
    reader::{Cursor, Fields},
};

/// The operation that uses a list of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The deletion of a release.
    Delete,
    /// The pruning of an update.
    Update,
}

/// Reads a list of groups. An empty list means the default, like a missing one; `type: empty` deletes nothing.
pub(crate) fn read(list: &Cursor<'_>, purpose: Purpose) -> Vec<DeletionGroup> {
    let items = list.items().unwrap_or_default();
    if items.len() == 0 {
        return DeletionGroup::defaults();
    }
    let groups: Vec<_> = items.filter_map(|item| group(&item).map(|group| (item, group))).collect();
    warn_unreachable(&groups);
    if purpose == Purpose::Update {
        groups.iter().for_each(|(cursor, group)| warn_delete_all(cursor, group));
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// Warns of `deleteAllResources` in an update. The Landscaper documents call it disastrous, but it may be intended.
fn warn_delete_all(cursor: &Cursor<'_>, group: &DeletionGroup) {
    if matches!(&group.members, Members::Resources(selectors) if selectors.iter().any(|selector| selector.all)) {
        cursor.warn(
            "each update deletes all objects of these kinds, even those that the release did not deploy",
            Some("set it in deletionGroups to delete them only with the release"),
        );
    }
}

/// Warns of groups that are always empty because earlier groups select all of their objects.
fn warn_unreachable(groups: &[(Cursor<'_>, DeletionGroup)]) {
    let mut taken: Vec<ResourceClass> = Vec::new();
    for (cursor, group) in groups {
        let reachable = match &group.members {
            Members::Class(class) => !taken.contains(class),
            Members::Resources(selectors) => taken.len() < 3 || selectors.iter().any(|selector| selector.all),
        };
        if !reachable {
            cursor
                .warn("this group is always empty: the groups before it select all of its objects", Some("move it up"));
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

fn group(item: &Cursor<'_>) -> Option<DeletionGroup> {
    let settings = [&settings::NAMES[..], &["force-delete"]].concat();
    let (shape, mut fields) = Shape::read(item, &settings)?;
    let group = match shape {
        Shape::Predefined(inner) => {
            settings_belong_inside(&mut fields, "move it into predefinedResourceGroup");
            predefined(&inner)
        }
        Shape::Custom(inner) => {
            settings_belong_inside(&mut fields, "move it into customResourceGroup");
            custom(&inner)
        }
        Shape::Class(class) => {
            let members = class.one_of(&CLASSES).map(|class| (class.as_str().to_owned(), Members::Class(class)));
            proposed(members, &mut fields)
        }
        Shape::Resources(list) => {
            let selectors = resources::read(&list, EntrySyntax::GroupVersion);
            proposed(Some((title(&selectors), Members::Resources(selectors))), &mut fields)
        }
    };
    fields.finish();
    group.map(|group| DeletionGroup { path: item.path().to_owned(), ..group })
}

fn settings_belong_inside(fields: &mut Fields<'_>, hint: &'static str) {
    fields.elsewhere(&settings::NAMES, hint);
    fields.elsewhere(&["deleteAllResources", "targetName"], "move it into customResourceGroup");
    fields.elsewhere(&["force-delete"], "set forceDelete: true inside the group");
}

fn predefined(inner: &Cursor<'_>) -> Option<DeletionGroup> {
    let mut fields = inner.fields()?;
    let class = fields.required("type").and_then(|class| class.one_of(&CLASSES));
    let settings = DeletionSettings::read(&mut fields, ForceSpelling::Camel);
    fields.elsewhere(&["resources", "deleteAllResources", "targetName"], "only a customResourceGroup supports it");
    fields.finish();
    let mut group = DeletionGroup::new(class?.as_str(), Members::Class(class?));
    settings.apply(&mut group);
    Some(group)
}

fn custom(inner: &Cursor<'_>) -> Option<DeletionGroup> {
    let mut fields = inner.fields()?;
    let mut selectors =
        fields.required("resources").map(|list| resources::read(&list, EntrySyntax::ApiVersion)).unwrap_or_default();
    let settings = DeletionSettings::read(&mut fields, ForceSpelling::Camel);
    let all = fields.get("deleteAllResources").and_then(|all| all.boolean()).unwrap_or_default();
    let target = fields.get("targetName");
    if let Some(target) = target.as_ref().filter(|_| !all) {
        target.error_with("targetName requires deleteAllResources", "set deleteAllResources: true");
    }
    fields.elsewhere(&["type"], "only a predefinedResourceGroup supports it");
    fields.finish();
    selectors.iter_mut().for_each(|selector| selector.all = all);
    let mut group = DeletionGroup::new(title(&selectors), Members::Resources(selectors));
    settings.apply(&mut group);
    group.target = target.and_then(|target| target.text()).map(str::to_owned);
    Some(group)
}

/// Builds a group in the proposal's syntax, which has the settings at the level of the item.
fn proposed(members: Option<(String, Members)>, fields: &mut Fields<'_>) -> Option<DeletionGroup> {
    let settings = DeletionSettings::read(fields, ForceSpelling::Either);
    fields.elsewhere(&["deleteAllResources"], "set selector: {all: true} in the entries of resources");
    fields.elsewhere(&["targetName"], "only a customResourceGroup supports it");
    let (title, members) = members?;
    let mut group = DeletionGroup::new(title, members);
    settings.apply(&mut group);
    Some(group)
}
