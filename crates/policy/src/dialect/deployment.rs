//! `deploymentGroups`: the order of a deployment, in the syntax of the deletion groups.

use super::{
    resources::{self, EntrySyntax, title},
    settings,
    shape::{CLASSES, Shape},
};
use crate::{
    DeploymentGroup, GoDuration, Members, ResourceClass, ResourceSelector, WaitFor,
    reader::{Cursor, Fields},
};

/// Reads a list of groups; an empty list means the default order.
pub(crate) fn read(list: &Cursor<'_>) -> Vec<DeploymentGroup> {
    list.items().unwrap_or_default().filter_map(|item| group(&item)).collect()
}

/// The settings of a deployment group.
#[derive(Default)]
struct DeploymentSettings {
    wait_for: Option<WaitFor>,
    timeout: Option<GoDuration>,
    excluded: Vec<ResourceSelector>,
}

fn group(item: &Cursor<'_>) -> Option<DeploymentGroup> {
    let (shape, mut fields) = Shape::read(item, &["waitFor", "timeout", "excludedResources"])?;
    let mut wait_beside = None;
    let (members, inner) = match shape {
        Shape::Predefined(inner) => {
            wait_beside = wait_for(&mut fields);
            fields.elsewhere(&["timeout", "excludedResources"], "move it into predefinedResourceGroup");
            predefined(&inner)
        }
        Shape::Custom(inner) => {
            wait_beside = wait_for(&mut fields);
            fields.elsewhere(&["timeout", "excludedResources"], "move it into customResourceGroup");
            custom(&inner)
        }
        Shape::Class(cursor) => (class(&cursor), settings(&mut fields)),
        Shape::Resources(list) => (resources_of(&list, EntrySyntax::GroupVersionOwn), settings(&mut fields)),
    };
    if wait_beside.is_some() && inner.wait_for.is_some() {
        item.error_with("waitFor is set twice", "set it either beside the group or inside it");
    }
    reject_deletion_settings(&mut fields);
    fields.finish();
    let (title, members) = members?;
    Some(DeploymentGroup {
        title,
        path: item.path().to_owned(),
        members,
        excluded: inner.excluded,
        wait_for: wait_beside.or(inner.wait_for).unwrap_or_default(),
        timeout: inner.timeout,
    })
}

fn predefined(inner: &Cursor<'_>) -> (Option<(String, Members)>, DeploymentSettings) {
    let Some(mut fields) = inner.fields() else { return Default::default() };
    let members = fields.required("type").and_then(|cursor| class(&cursor));
    let settings = settings(&mut fields);
    reject_deletion_settings(&mut fields);
    fields.finish();
    (members, settings)
}

fn custom(inner: &Cursor<'_>) -> (Option<(String, Members)>, DeploymentSettings) {
    let Some(mut fields) = inner.fields() else { return Default::default() };
    let members = fields.required("resources").and_then(|list| resources_of(&list, EntrySyntax::ApiVersion));
    let settings = settings(&mut fields);
    reject_deletion_settings(&mut fields);
    fields.finish();
    (members, settings)
}

/// Reads a predefined class. `empty` is not allowed: it would have no effect, because objects that no group selects are
/// deployed after the last group.
fn class(cursor: &Cursor<'_>) -> Option<(String, Members)> {
    let [classes @ .., (_, ResourceClass::Empty)] = &CLASSES else { return None };
    cursor.one_of(classes).map(|class| (class.as_str().to_owned(), Members::Class(class)))
}

fn resources_of(list: &Cursor<'_>, entries: EntrySyntax) -> Option<(String, Members)> {
    let selectors = resources::read(list, entries);
    Some((title(&selectors), Members::Resources(selectors)))
}

fn settings(fields: &mut Fields<'_>) -> DeploymentSettings {
    DeploymentSettings {
        wait_for: wait_for(fields),
        timeout: settings::timeout(fields),
        excluded: settings::excluded(fields),
    }
}

fn wait_for(fields: &mut Fields<'_>) -> Option<WaitFor> {
    fields.get("waitFor")?.one_of(&[("exists", WaitFor::Exists), ("ready", WaitFor::Ready)])
}

fn reject_deletion_settings(fields: &mut Fields<'_>) {
    let names = ["forceDelete", "force-delete", "forceAfter", "finalizers", "gracePeriodSeconds", "propagationPolicy"];
    fields.elsewhere(&names, "a deployment deletes nothing");
    fields.elsewhere(&["deleteAllResources"], "a deployment deletes nothing");
    fields.elsewhere(&["targetName"], "a deployment changes only the cluster of the release");
}
