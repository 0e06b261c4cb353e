//! `deletionGroups` and `deletionGroupsDuringUpdate`: the syntax as released, and the one proposed before it.
//!
//! Each item of the list is in one of the two; a list may mix them.

use super::{
    CLASSES, Shape,
    resources::{self, Entries},
    settings::{self, ForceSpelling, Settings},
    title, warn_unreachable,
};
use crate::{
    DeletionGroup, Members,
    reader::{Cursor, Fields},
};

/// What a list of groups is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// The deletion of a release.
    Delete,
    /// The pruning of an update.
    Update,
}

/// Reads a list of groups. An empty one is the default, as is a missing one: the documents have `type: empty` for
/// deleting nothing.
pub(crate) fn read(list: &Cursor<'_>, when: When) -> Vec<DeletionGroup> {
    let items = list.items().unwrap_or_default();
    if items.is_empty() {
        return DeletionGroup::defaults();
    }
    let groups: Vec<_> = items.into_iter().filter_map(|item| group(&item).map(|group| (item, group))).collect();
    warn_unreachable(&groups);
    if when == When::Update {
        groups.iter().for_each(|(cursor, group)| warn_all(cursor, group));
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// The documents call it disastrous; it may be wanted all the same.
fn warn_all(cursor: &Cursor<'_>, group: &DeletionGroup) {
    if matches!(&group.members, Members::Resources(selectors) if selectors.iter().any(|selector| selector.all)) {
        cursor.warn(
            "each update deletes all objects of these kinds, whoever made them",
            Some("in deletionGroups it would hold for the deletion of the release alone"),
        );
    }
}

fn group(item: &Cursor<'_>) -> Option<DeletionGroup> {
    let mut fields = item.fields()?;
    let shape = match Shape::of(&mut fields) {
        Ok(shape) => shape,
        Err(error) => {
            let settings = [&settings::NAMES[..], &["force-delete"]].concat();
            error.report(fields, &settings);
            return None;
        }
    };
    let group = match shape {
        Shape::Predefined(inner) => {
            settings_belong_inside(&mut fields, "write it inside predefinedResourceGroup");
            predefined(&inner)
        }
        Shape::Custom(inner) => {
            settings_belong_inside(&mut fields, "write it inside customResourceGroup");
            custom(&inner)
        }
        Shape::Class(class) => {
            let members = class.one_of(&CLASSES).map(|class| (class.as_str().to_owned(), Members::Class(class)));
            proposed(members, &mut fields)
        }
        Shape::Resources(list) => {
            let selectors = resources::read(&list, Entries::GroupVersion);
            proposed(Some((title(&selectors), Members::Resources(selectors))), &mut fields)
        }
    };
    fields.finish();
    group.map(|group| DeletionGroup { path: item.path().to_owned(), ..group })
}

fn settings_belong_inside(fields: &mut Fields<'_>, hint: &'static str) {
    fields.elsewhere(&settings::NAMES, hint);
    fields.elsewhere(&["deleteAllResources", "targetName"], "write it inside customResourceGroup");
    fields.elsewhere(&["force-delete"], "write forceDelete: true inside the group");
}

fn predefined(inner: &Cursor<'_>) -> Option<DeletionGroup> {
    let mut fields = inner.fields()?;
    let class = fields.required("type").and_then(|class| class.one_of(&CLASSES));
    let settings = Settings::read(&mut fields, ForceSpelling::Camel);
    fields.elsewhere(&["resources", "deleteAllResources", "targetName"], "only a customResourceGroup can have it");
    fields.finish();
    let mut group = DeletionGroup::new(class?.as_str(), Members::Class(class?));
    settings.apply(&mut group);
    Some(group)
}

fn custom(inner: &Cursor<'_>) -> Option<DeletionGroup> {
    let mut fields = inner.fields()?;
    let mut selectors =
        fields.required("resources").map(|list| resources::read(&list, Entries::ApiVersion)).unwrap_or_default();
    let settings = Settings::read(&mut fields, ForceSpelling::Camel);
    let all = fields.get("deleteAllResources").and_then(|all| all.boolean()).unwrap_or_default();
    let target = fields.get("targetName");
    if let Some(target) = target.as_ref().filter(|_| !all) {
        target.error_with("targetName without deleteAllResources", "set deleteAllResources: true");
    }
    fields.elsewhere(&["type"], "only a predefinedResourceGroup can have it");
    fields.finish();
    selectors.iter_mut().for_each(|selector| selector.all = all);
    let mut group = DeletionGroup::new(title(&selectors), Members::Resources(selectors));
    settings.apply(&mut group);
    group.target = target.and_then(|target| target.text()).map(str::to_owned);
    Some(group)
}

/// A group of the proposal's syntax, whose settings stand at the level of the item.
fn proposed(members: Option<(String, Members)>, fields: &mut Fields<'_>) -> Option<DeletionGroup> {
    let settings = Settings::read(fields, ForceSpelling::Either);
    fields.elsewhere(&["deleteAllResources"], "write selector: {all: true} in the entries of resources");
    fields.elsewhere(&["targetName"], "only a customResourceGroup can have it");
    let (title, members) = members?;
    let mut group = DeletionGroup::new(title, members);
    settings.apply(&mut group);
    Some(group)
}
