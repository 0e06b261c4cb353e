//! Whose the objects are that exist already.

use std::collections::HashMap;

use billhook_objects::{Manifest, ObjectKey, ReleaseName, wellknown::RELEASE_LABEL};
use billhook_policy::ManifestPolicy;

use crate::{
    ApplyAction, Directives, Entry, Note, NoteCode, Observed, PlanErrorKind,
    delete::info,
    error::Problems,
    find::{Finder, State},
};

use super::{Scene, labels};

/// How the labels end by which Landscaper's deployers know the objects of a DeployItem; the value is the item's name.
const DEPLOY_ITEM_LABEL: &str = ".deployer.landscaper.gardener.cloud/deployitem";

/// What is known of the objects that are applied.
#[derive(Default)]
pub(super) struct Live<'a> {
    /// One for each manifest, in their order; none for what is left to somebody else.
    pub(super) actions: Vec<Option<ApplyAction>>,
    /// Those that exist.
    pub(super) existing: HashMap<&'a ObjectKey, &'a Observed>,
    pub(super) notes: Vec<Note>,
}

impl Scene<'_> {
    pub(super) fn own<'s>(&'s self, finder: &Finder<'s>, problems: &mut Problems) -> Live<'s> {
        let label = self.request.release.label_value();
        let mut live = Live { actions: Vec::with_capacity(self.request.manifests.len()), ..Live::default() };
        for manifest in self.request.manifests {
            let key = &manifest.key;
            let state = match self.request.not_served.contains(&key.kind) {
                true => State::NotServed,
                false => finder.state(&key.kind, key.namespace.as_deref(), &key.name),
            };
            let action = match state {
                State::Found(seen) => {
                    live.existing.insert(key, seen.object);
                    let action = self.action(manifest, seen.object, &label).unwrap_or_else(|(kind, refusal)| {
                        problems.add(kind, refusal);
                        None
                    });
                    if action.is_none() {
                        let message =
                            format!("{key} exists and is not the release's: with the policy fallback it stays");
                        live.notes.push(info(NoteCode::Fallback, message).about(key.clone()));
                    }
                    action
                }
                State::Gone | State::NotServed => Some(ApplyAction::Create),
                State::Open(why) => {
                    problems.add(PlanErrorKind::Unreadable, why);
                    None
                }
            };
            live.actions.push(action);
        }
        live
    }

    /// What is done with an object that exists; nothing where it is left to somebody else.
    fn action(
        &self,
        manifest: &Manifest,
        object: &Observed,
        label: &str,
    ) -> Result<Option<ApplyAction>, (PlanErrorKind, String)> {
        let key = &manifest.key;
        let directives = self.directives(key);
        let entry = self.request.inventory.and_then(|inventory| inventory.entries.get(key));
        let holder = object.labels.get(RELEASE_LABEL);
        let known = entry.is_some_and(|entry| entry.uid.as_ref() == Some(&object.uid));
        let ours = known || holder.is_some_and(|holder| holder == label);
        if directives.policy == ManifestPolicy::Fallback && !ours && !is_of_same_item(manifest, object) {
            return Ok(None);
        }
        let refused = |problem| Err((PlanErrorKind::Refused, problem));
        let action = match holder {
            Some(holder) if !ours => {
                return refused(format!("{key} belongs to release {}", ReleaseName::shown(holder)));
            }
            None if !ours && !self.request.adopt => {
                return refused(format!("{key} exists and belongs to no release; --adopt takes it up"));
            }
            _ if object.deleting => {
                return Err((PlanErrorKind::Busy, format!("{key} is being deleted; wait until it is gone")));
            }
            _ if directives.policy == ManifestPolicy::Immutable => ApplyAction::Unchanged,
            _ if !ours => ApplyAction::Adopt,
            _ if entry.is_some_and(|e| is_unchanged(e, object, manifest, &directives)) => ApplyAction::Unchanged,
            _ => ApplyAction::Update,
        };
        Ok(Some(action))
    }
}

/// Whether an object carries the label of the DeployItem that the manifest carries.
fn is_of_same_item(manifest: &Manifest, object: &Observed) -> bool {
    let own = labels(manifest);
    own.iter().any(|(label, item)| label.ends_with(DEPLOY_ITEM_LABEL) && object.labels.get(label) == Some(item))
}

/// The digest comes last: it costs most.
fn is_unchanged(entry: &Entry, object: &Observed, manifest: &Manifest, directives: &Directives) -> bool {
    entry.uid.as_ref() == Some(&object.uid)
        && entry.resource_version.as_ref() == Some(&object.resource_version)
        && entry.digest == directives.digest(manifest)
}
