//! Whose the objects are that exist already.

use std::collections::HashMap;

use billhook_objects::{Manifest, ObjectKey, ReleaseName, wellknown::RELEASE_LABEL};

use crate::{
    ApplyAction, Entry, Observed, PlanErrorKind,
    error::Problems,
    find::{Finder, State},
};

use super::Scene;

/// What is known of the objects that are applied.
#[derive(Default)]
pub(super) struct Live<'a> {
    /// One for each manifest, in their order.
    pub(super) actions: Vec<ApplyAction>,
    /// Those that exist.
    pub(super) existing: HashMap<&'a ObjectKey, &'a Observed>,
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
                    self.action(manifest, seen.object, &label).unwrap_or_else(|refusal| {
                        problems.add(PlanErrorKind::Refused, refusal);
                        ApplyAction::Update
                    })
                }
                State::Gone | State::NotServed => ApplyAction::Create,
                State::Open(why) => {
                    problems.add(PlanErrorKind::Unreadable, why);
                    ApplyAction::Create
                }
            };
            live.actions.push(action);
        }
        live
    }

    fn action(&self, manifest: &Manifest, object: &Observed, label: &str) -> Result<ApplyAction, String> {
        let key = &manifest.key;
        let entry = self.request.inventory.and_then(|inventory| inventory.entries.get(key));
        let holder = object.labels.get(RELEASE_LABEL);
        let known = entry.is_some_and(|entry| entry.uid.as_ref() == Some(&object.uid));
        let ours = known || holder.is_some_and(|holder| holder == label);
        match holder {
            Some(holder) if !ours => Err(format!("{key} belongs to release {}", ReleaseName::shown(holder))),
            None if !ours && !self.request.adopt => {
                Err(format!("{key} exists and belongs to no release; --adopt takes it up"))
            }
            _ if object.deleting => Err(format!("{key} is being deleted; wait until it is gone")),
            _ if !ours => Ok(ApplyAction::Adopt),
            _ if entry.is_some_and(|entry| is_unchanged(entry, object, manifest)) => Ok(ApplyAction::Unchanged),
            _ => Ok(ApplyAction::Update),
        }
    }
}

/// The digest comes last: it costs most.
fn is_unchanged(entry: &Entry, object: &Observed, manifest: &Manifest) -> bool {
    entry.uid.as_ref() == Some(&object.uid)
        && entry.resource_version.as_ref() == Some(&object.resource_version)
        && entry.digest == manifest.digest()
}
