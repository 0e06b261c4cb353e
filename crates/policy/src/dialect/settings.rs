//! The settings of a group that all dialects share.

use super::resources::{self, EntrySyntax};
use crate::{
    DeletionGroup, Force, GoDuration, Propagation, ResourceSelector,
    reader::{Cursor, Fields},
};

/// The names of all settings of a deletion group.
pub(super) const NAMES: [&str; 7] = [
    "forceDelete",
    "forceAfter",
    "finalizers",
    "gracePeriodSeconds",
    "propagationPolicy",
    "timeout",
    "excludedResources",
];

/// The spelling of `forceDelete` in a dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ForceSpelling {
    /// `forceDelete` only.
    Camel,
    /// `force-delete`, the proposal's spelling, or `forceDelete`.
    Either,
}

/// The settings of a deletion group.
#[derive(Debug, Default)]
pub(super) struct DeletionSettings {
    force: Option<Force>,
    propagation: Option<Propagation>,
    timeout: Option<GoDuration>,
    excluded: Vec<ResourceSelector>,
}

impl DeletionSettings {
    /// Reads the settings from the fields of a group.
    pub(super) fn read(fields: &mut Fields<'_>, spelling: ForceSpelling) -> Self {
        const POLICIES: [(&str, Propagation); 3] = [
            ("Background", Propagation::Background),
            ("Foreground", Propagation::Foreground),
            ("Orphan", Propagation::Orphan),
        ];
        let (force, force_after) = force(fields, spelling);
        let propagation = fields.get("propagationPolicy").and_then(|cursor| cursor.one_of(&POLICIES));
        let timeout = timeout(fields);
        if let (Some(force), Some(cursor), Some(timeout)) = (&force, force_after, timeout) {
            check_force_after(&cursor, force.after, timeout);
        }
        Self { force, propagation, timeout, excluded: excluded(fields) }
    }

    /// Sets these settings on a group.
    pub(super) fn apply(self, group: &mut DeletionGroup) {
        group.force = self.force;
        group.propagation = self.propagation;
        group.timeout = self.timeout;
        group.excluded.extend(self.excluded);
    }
}

/// Reads the group's own time limit.
pub(super) fn timeout(fields: &mut Fields<'_>) -> Option<GoDuration> {
    fields.get("timeout")?.duration_above_zero()
}

/// Reads the selectors of the objects that do not belong to a group.
pub(super) fn excluded(fields: &mut Fields<'_>) -> Vec<ResourceSelector> {
    fields.get("excludedResources").map(|list| resources::read(&list, EntrySyntax::Either)).unwrap_or_default()
}

/// Reads the force stage, and returns it with the place of its `forceAfter`.
fn force<'a>(fields: &mut Fields<'a>, spelling: ForceSpelling) -> (Option<Force>, Option<Cursor<'a>>) {
    let mut given = fields.get("forceDelete");
    if spelling == ForceSpelling::Either
        && let Some(hyphenated) = fields.get("force-delete")
    {
        if given.is_some() {
            hyphenated.error_with("forceDelete is also set", "use only one of the two");
        }
        given = given.or(Some(hyphenated));
    }
    // `None` is a mistake that has been reported and must not cause further ones.
    let enabled = given.map_or(Some(false), |cursor| enabled(&cursor));
    let after = fields.get("forceAfter");
    let finalizers = fields.get("finalizers");
    let grace = fields.get("gracePeriodSeconds");
    if enabled == Some(false) {
        for (cursor, name) in [(&after, "forceAfter"), (&finalizers, "finalizers"), (&grace, "gracePeriodSeconds")] {
            if let Some(cursor) = cursor {
                cursor.error_with(format!("{name} requires forceDelete"), "set forceDelete: true");
            }
        }
    }
    let force = Force {
        after: after.as_ref().and_then(Cursor::duration).unwrap_or_default(),
        finalizers: finalizers.map(|cursor| finalizer_names(&cursor)).unwrap_or_default(),
        end_grace_period: grace.is_some_and(|cursor| ends_grace_period(&cursor)),
    };
    ((enabled == Some(true)).then_some(force), after)
}

/// Rejects a force stage that starts only after the group has ended.
fn check_force_after(cursor: &Cursor<'_>, after: GoDuration, timeout: GoDuration) {
    if timeout < after {
        let problem = format!("the group ends after its timeout of {timeout}, before forceAfter ({after}) has passed");
        cursor.error_with(problem, "set timeout above forceAfter");
    }
}

/// Reads `gracePeriodSeconds: 0`: the only value that ends the grace period of Pods.
fn ends_grace_period(cursor: &Cursor<'_>) -> bool {
    let seconds = cursor.integer();
    if seconds.is_some_and(|seconds| seconds != 0) {
        cursor.error_with("gracePeriodSeconds can only be 0", "use forceAfter for the time before the Pods are forced");
    }
    seconds == Some(0)
}

/// Reads `true` or `{enabled: true}`.
fn enabled(cursor: &Cursor<'_>) -> Option<bool> {
    if !cursor.is_mapping() {
        return cursor.boolean();
    }
    let mut fields = cursor.fields()?;
    let enabled = fields.required("enabled").and_then(|enabled| enabled.boolean());
    fields.finish();
    enabled
}

/// Reads finalizers. An empty list is rejected: it reads as "remove none", but means "remove all" in the model.
fn finalizer_names(cursor: &Cursor<'_>) -> Vec<String> {
    let items = cursor.items_not_empty("omit the field to remove all finalizers");
    items.unwrap_or_default().filter_map(|item| item.text()).map(str::to_owned).collect()
}
