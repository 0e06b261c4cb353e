//! `stages`: all objects of certain kinds are deleted, stage by stage. This is how Gardener cleans a cluster before it
//! deletes it (gardener/gardener `docs/usage/advanced/shoot_cleanup.md`).

use std::{collections::HashMap, sync::Arc, time::Duration};

use billhook_objects::ApiVersion;

use super::{
    resources::{self, EntrySyntax, title},
    settings,
};
use crate::{
    DeletionGroup, Diagnostics, Force, GoDuration, LabelSelector, Members, Policy, ResourceSelector,
    diagnostic::Severity,
    document::only_document,
    reader::{Cursor, Report},
    selector::is_label_name,
};

/// The time limit of a stage that sets none.
const TIMEOUT: GoDuration = minutes(10);

/// The stages of a cleaning, in order: each starts when all objects of the stage before it are gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stages(Vec<Stage>);

/// Objects that are deleted together.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stage {
    name: String,
    /// Where it is in the file; empty for a default stage.
    path: String,
    entries: Vec<Entry>,
    /// The grace period of the requests, for kinds that have one.
    grace_period: Option<GoDuration>,
    timeout: GoDuration,
}

/// Some of the objects of a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    selector: ResourceSelector,
    /// How long after its `deletionTimestamp` an object loses its finalizers; `None` for never.
    finalize_after: Option<GoDuration>,
}

/// No stage has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no stage {name:?}; the stages are {}", stages.join(", "))]
pub struct UnknownStage {
    name: String,
    stages: Vec<String>,
}

/// Gardener's stages, with the names that its annotations have for them.
impl Default for Stages {
    fn default() -> Self {
        const SHORT: GoDuration = minutes(5);
        const LONG: GoDuration = minutes(60);
        Self(vec![
            default(
                "webhooks",
                &[(
                    "admissionregistration.k8s.io",
                    &["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"],
                    SHORT,
                )],
            ),
            default(
                "extended-apis",
                &[
                    ("apiregistration.k8s.io", &["APIService"], LONG),
                    ("apiextensions.k8s.io", &["CustomResourceDefinition"], LONG),
                ],
            ),
            default(
                "kubernetes-resources",
                &[
                    ("batch", &["CronJob", "Job"], SHORT),
                    ("apps", &["DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"], SHORT),
                    ("networking.k8s.io", &["Ingress"], SHORT),
                    ("", &["Pod", "ReplicationController", "Service", "PersistentVolumeClaim"], SHORT),
                    ("snapshot.storage.k8s.io", &["VolumeSnapshot", "VolumeSnapshotContent"], LONG),
                ],
            ),
        ])
    }
}

/// Builds a default stage from its kinds, each with its group and when finalizers are removed.
fn default(name: &str, kinds: &[(&str, &[&str], GoDuration)]) -> Stage {
    let of_group = |(group, kinds, after): &(&str, &[&str], GoDuration)| {
        let entry = |kind: &&str| Entry {
            selector: ResourceSelector {
                api_version: ApiVersion::new(*group, "v1"),
                kind: (*kind).to_owned(),
                names: Vec::new(),
                namespaces: Vec::new(),
                label_selector: LabelSelector::default(),
                all: false,
            },
            finalize_after: Some(*after),
        };
        kinds.iter().map(entry).collect::<Vec<_>>()
    };
    Stage {
        name: name.to_owned(),
        path: String::new(),
        entries: kinds.iter().flat_map(of_group).collect(),
        grace_period: Some(minutes(5)),
        timeout: TIMEOUT,
    }
}

impl Stages {
    /// Removes the finalizers of a stage's objects this long after their `deletionTimestamp`, where that is earlier than the
    /// stage says. Their grace period is then no longer than that.
    ///
    /// # Errors
    ///
    /// Fails if no stage has this name.
    pub fn finalize_after(&mut self, name: &str, after: GoDuration) -> Result<(), UnknownStage> {
        let Some(stage) = self.0.iter_mut().find(|stage| stage.name == name) else {
            let stages = self.0.iter().map(|stage| stage.name.clone()).collect();
            return Err(UnknownStage { name: name.to_owned(), stages });
        };
        let is_later = |entry: &&mut Entry| entry.finalize_after.is_none_or(|own| after < own);
        for entry in stage.entries.iter_mut().filter(is_later) {
            entry.finalize_after = Some(after);
            stage.grace_period = stage.grace_period.map(|own| own.min(after));
        }
        Ok(())
    }

    /// Compiles the stages: each becomes a group or, if finalizers are not removed from all of its objects after the same
    /// time, several groups that run beside each other.
    pub fn policy(&self) -> Policy {
        let mut groups: Vec<DeletionGroup> = Vec::new();
        let mut before = Vec::new();
        for stage in &self.0 {
            let first = groups.len();
            for part in stage.parts() {
                groups.push(DeletionGroup { after: Some(before.clone()), ..stage.group(&part, groups.len() > first) });
            }
            before = (first..groups.len()).collect();
        }
        Policy { deletion: groups, during_update: Vec::new(), deployment: Vec::new() }
    }
}

impl Stage {
    /// Divides the entries by when finalizers are removed, in the order of the first of each.
    fn parts(&self) -> Vec<Vec<&Entry>> {
        let mut parts: Vec<Vec<&Entry>> = Vec::new();
        for entry in &self.entries {
            match parts.iter_mut().find(|part| part[0].finalize_after == entry.finalize_after) {
                Some(part) => part.push(entry),
                None => parts.push(vec![entry]),
            }
        }
        parts
    }

    fn group(&self, part: &[&Entry], is_further: bool) -> DeletionGroup {
        let mut selectors: Vec<_> = part.iter().map(|entry| entry.selector.clone()).collect();
        let of = if is_further { format!("{}: {}", self.name, title(&selectors)) } else { self.name.clone() };
        selectors.iter_mut().for_each(|selector| selector.all = true);
        let after = part.first().and_then(|entry| entry.finalize_after);
        // Gardener annotates at the end of the grace period, which it halves for these kinds if finalizers are removed earlier.
        // So the sidecar has time before that.
        let grace = self.grace_period.unwrap_or_default();
        let release = after.map_or(grace, |after| grace.min(GoDuration(after.0 / 2)));
        DeletionGroup {
            path: self.path.clone(),
            release_snapshots: Some(release),
            force: after.map(|after| Force { after, ..Force::default() }),
            timeout: Some(self.timeout),
            grace_period: self.grace_period,
            new_objects: after,
            ..DeletionGroup::new(of, Members::Resources(selectors))
        }
    }
}

/// Reads a stages file.
///
/// # Errors
///
/// Returns all mistakes of the file.
pub fn read_stages(text: &str, file: &Arc<str>) -> Result<Stages, Diagnostics> {
    let report = Report::new(file);
    let node = only_document(text, &report, "stages file");
    if node.is_none() && !report.has_found() {
        let hint = Some("it must contain the field stages".to_owned());
        report.add(Severity::Error, (1, 1), "", "the stages file is empty", hint);
    }
    let read = node.as_ref().and_then(|node| document(&Cursor::root(&report, node)));
    report.finish(read).map(|(stages, _)| stages)
}

fn document(cursor: &Cursor<'_>) -> Option<Stages> {
    let mut fields = cursor.fields()?;
    let list = fields.required("stages");
    fields.finish();
    let mut names = HashMap::new();
    let stages = list?.items_not_empty("list at least one stage")?.filter_map(|item| stage(&item, &mut names));
    Some(Stages(stages.collect()))
}

/// Reads a stage. `names` has the paths of the stages before it.
fn stage(item: &Cursor<'_>, names: &mut HashMap<String, String>) -> Option<Stage> {
    let mut fields = item.fields()?;
    let name = fields.required("name").and_then(|cursor| name(&cursor, item.path(), names));
    let resources = fields.required("resources");
    let grace_period = fields.get("gracePeriod").and_then(|cursor| cursor.duration());
    let finalize_after = fields.get("finalizeAfter").and_then(|cursor| cursor.duration());
    let timeout = settings::timeout(&mut fields).unwrap_or(TIMEOUT);
    fields.elsewhere(&["forceDelete", "forceAfter"], "use finalizeAfter");
    fields.elsewhere(&["gracePeriodSeconds"], "use gracePeriod, a duration");
    fields.elsewhere(&["deleteAllResources"], "a stage contains all objects of its kinds");
    fields.finish();
    let items = resources?.items_not_empty("list at least one kind of object")?;
    let entries = items.filter_map(|item| entry(&item, finalize_after)).collect();
    Some(Stage { name: name?, path: item.path().to_owned(), entries, grace_period, timeout })
}

fn entry(item: &Cursor<'_>, of_stage: Option<GoDuration>) -> Option<Entry> {
    let mut fields = item.fields()?;
    let selector = resources::selector(&mut fields, EntrySyntax::Stage);
    let own = fields.get("finalizeAfter").and_then(|cursor| cursor.duration());
    fields.finish();
    Some(Entry { selector: selector?, finalize_after: own.or(of_stage) })
}

/// Reads a name, which the command line uses too. It must differ from those of all stages before it.
fn name(cursor: &Cursor<'_>, path: &str, names: &mut HashMap<String, String>) -> Option<String> {
    let name = cursor.text()?;
    if !is_label_name(name) {
        cursor.error_with(format!("{name:?} is not a name"), "use up to 63 letters, digits, '-', '_' and '.'");
        return None;
    }
    if let Some(same) = names.get(name) {
        cursor.error_with(format!("the name {name:?} is already used by {same}"), "give each stage its own name");
    }
    names.entry(name.to_owned()).or_insert_with(|| path.to_owned());
    Some(name.to_owned())
}

const fn minutes(minutes: u64) -> GoDuration {
    GoDuration(Duration::from_secs(60 * minutes))
}
