//! The two syntaxes of a group's item.

use crate::{
    ResourceClass,
    reader::{Cursor, Fields},
};

/// The names of the predefined groups.
pub(super) const CLASSES: [(&str, ResourceClass); 4] = [
    (ResourceClass::Namespaced.as_str(), ResourceClass::Namespaced),
    (ResourceClass::ClusterScoped.as_str(), ResourceClass::ClusterScoped),
    (ResourceClass::Crds.as_str(), ResourceClass::Crds),
    (ResourceClass::Empty.as_str(), ResourceClass::Empty),
];

/// The field that selects a group's objects, which also decides the syntax of the other fields.
pub(super) enum Shape<'a> {
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
    /// Returns the shape of an item and its fields; reports an item without a shape or with several.
    /// `settings` are the other fields that such an item may have.
    pub(super) fn read(item: &Cursor<'a>, settings: &[&'static str]) -> Option<(Self, Fields<'a>)> {
        let names = ["predefinedResourceGroup", "customResourceGroup", "resources"];
        let mut fields = item.fields()?;
        let found: Vec<_> = names.into_iter().filter(|name| fields.has(name)).collect();
        if let [first, second, ..] = found[..] {
            item.error_with(
                format!("{first} and {second} in one group"),
                "split it into two groups: a group has exactly one of predefinedResourceGroup, customResourceGroup or resources",
            );
            names.iter().chain(settings).for_each(|name| fields.ignore(name));
            fields.finish();
            return None;
        }
        let predefined = fields.get("predefinedResourceGroup");
        let predefined =
            predefined.map(|cursor| if cursor.is_text() { Self::Class(cursor) } else { Self::Predefined(cursor) });
        let custom = fields.get("customResourceGroup").map(Self::Custom);
        let resources = fields.get_unlisted("resources").map(Self::Resources);
        if let Some(shape) = predefined.or(custom).or(resources) {
            return Some((shape, fields));
        }
        settings.iter().for_each(|name| fields.ignore(name));
        // A misspelt field, which `finish` reports, is the likelier reason for the missing one.
        if fields.finish() == 0 {
            item.error("a group needs exactly one of predefinedResourceGroup or customResourceGroup");
        }
        None
    }
}
