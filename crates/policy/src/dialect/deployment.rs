//! `deploymentGroups`: the order of a deployment, in the syntax of the deletion groups.

use super::{
    CLASSES, Shape,
    resources::{self, Entries},
    settings, title,
};
use crate::{
    DeploymentGroup, GoDuration, Members, ResourceClass, ResourceSelector, WaitFor,
    reader::{Cursor, Fields},
};

/// Reads a list of groups; an empty one is the default order.
pub(crate) fn read(list: &Cursor<'_>) -> Vec<DeploymentGroup> {
    list.items().unwrap_or_default().iter().filter_map(group).collect()
}

/// What a deployment group has beside its members.
#[derive(Default)]
struct Settings {
    wait_for: Option<WaitFor>,
    timeout: Option<GoDuration>,
    excluded: Vec<ResourceSelector>,
}

fn group(item: &Cursor<'_>) -> Option<DeploymentGroup> {
    let mut fields = item.fields()?;
    let shape = match Shape::of(&mut fields) {
        Ok(shape) => shape,
        Err(error) => {
            error.report(fields, &["waitFor", "timeout", "excludedResources"]);
            return None;
        }
    };
    let mut outer = Settings::default();
    let (members, inner) = match shape {
        Shape::Predefined(inner) => {
            outer.wait_for = wait_for(&mut fields);
            fields.elsewhere(&["timeout", "excludedResources"], "write it inside predefinedResourceGroup");
            predefined(&inner)
        }
        Shape::Custom(inner) => {
            outer.wait_for = wait_for(&mut fields);
            fields.elsewhere(&["timeout", "excludedResources"], "write it inside customResourceGroup");
            custom(&inner)
        }
        Shape::Class(cursor) => (class(&cursor), settings(&mut fields)),
        Shape::Resources(list) => (resources_of(&list, Entries::GroupVersionOwn), settings(&mut fields)),
    };
    if outer.wait_for.is_some() && inner.wait_for.is_some() {
        item.error_with("waitFor is there twice", "write it beside the group or inside it");
    }
    refuse_deletion(&mut fields);
    fields.finish();
    let (title, members) = members?;
    Some(DeploymentGroup {
        title,
        path: item.path().to_owned(),
        members,
        excluded: inner.excluded,
        wait_for: outer.wait_for.or(inner.wait_for).unwrap_or_default(),
        timeout: inner.timeout,
    })
}

fn predefined(inner: &Cursor<'_>) -> (Option<(String, Members)>, Settings) {
    let Some(mut fields) = inner.fields() else { return Default::default() };
    let members = fields.required("type").and_then(|cursor| class(&cursor));
    let settings = settings(&mut fields);
    refuse_deletion(&mut fields);
    fields.finish();
    (members, settings)
}

fn custom(inner: &Cursor<'_>) -> (Option<(String, Members)>, Settings) {
    let Some(mut fields) = inner.fields() else { return Default::default() };
    let members = fields.required("resources").and_then(|list| resources_of(&list, Entries::ApiVersion));
    let settings = settings(&mut fields);
    refuse_deletion(&mut fields);
    fields.finish();
    (members, settings)
}

/// `empty` says nothing here: what no group names is deployed after the last one all the same.
fn class(cursor: &Cursor<'_>) -> Option<(String, Members)> {
    let [classes @ .., (_, ResourceClass::Empty)] = &CLASSES else { return None };
    cursor.one_of(classes).map(|class| (class.as_str().to_owned(), Members::Class(class)))
}

fn resources_of(list: &Cursor<'_>, entries: Entries) -> Option<(String, Members)> {
    let selectors = resources::read(list, entries);
    Some((title(&selectors), Members::Resources(selectors)))
}

fn settings(fields: &mut Fields<'_>) -> Settings {
    Settings { wait_for: wait_for(fields), timeout: settings::timeout(fields), excluded: settings::excluded(fields) }
}

fn wait_for(fields: &mut Fields<'_>) -> Option<WaitFor> {
    fields.get("waitFor")?.one_of(&[("exists", WaitFor::Exists), ("ready", WaitFor::Ready)])
}

fn refuse_deletion(fields: &mut Fields<'_>) {
    let names = ["forceDelete", "force-delete", "forceAfter", "finalizers", "propagationPolicy"];
    fields.elsewhere(&names, "a deployment deletes nothing");
    fields.elsewhere(&["deleteAllResources"], "a deployment deletes nothing");
    fields.elsewhere(&["targetName"], "a deployment goes to the cluster of the release");
}
