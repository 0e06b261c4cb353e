//! The record of a release, kept true: written before the act, and forgetting an object only when it is gone.

use std::collections::{BTreeMap, BTreeSet};

use billhook_cluster::{ApplyOptions, Error, ErrorKind, Token};
use billhook_objects::{Manifest, ObjectKey, ReleaseName, wellknown};
use billhook_plan::{ApplyAction, Entry, Inventory, Phase, Plan, Resource, Work};
use billhook_policy::Policy;

use super::tasks;
use crate::{Clusters, Status, run::Outcome};

/// The record of one release during one operation.
pub(super) struct Record {
    pub inventory: Inventory,
    token: Option<Token>,
    /// As it was read, to see whether there is anything to write; none for a release that is new.
    before: Option<Inventory>,
}

impl Record {
    pub fn new(release: ReleaseName) -> Self {
        Self { inventory: Inventory::new(release), token: None, before: None }
    }

    /// Reads the record. Where it is gone together with the Namespace that held it, but that Namespace still carries
    /// the release's label, what is left of the release is this Namespace.
    pub async fn load(clusters: &Clusters, release: &ReleaseName) -> Result<Option<Self>, Error> {
        if let Some(stored) = clusters.inventory().load(release).await? {
            let (inventory, token) = (stored.inventory, Some(stored.token));
            return Ok(Some(Self { before: Some(inventory.clone()), inventory, token }));
        }
        let key = ObjectKey::new(wellknown::namespace(), None, release.namespace());
        let found = match clusters.own.get_meta(&namespaces(), &key).await {
            Ok(found) => found,
            Err(error) if *error.kind() == ErrorKind::Forbidden => None,
            Err(error) => return Err(error),
        };
        let ours = found.filter(|n| n.labels.get(wellknown::RELEASE_LABEL) == Some(&release.label_value()));
        Ok(ours.map(|namespace| {
            let mut record = Self::new(release.clone());
            let entry = Entry {
                api_version: namespaces().api_version(),
                digest: billhook_objects::Digest::of(&serde_json::Value::Null),
                uid: Some(namespace.uid),
                resource_version: None,
                obsolete: false,
            };
            record.inventory.entries.insert(key, entry);
            record
        }))
    }

    /// The inventory as it was read; none for a new release.
    pub fn known(&self) -> Option<&Inventory> {
        self.before.as_ref().or((!self.inventory.entries.is_empty()).then_some(&self.inventory))
    }

    /// What an apply intends: the new objects and, until they are gone, the old ones.
    pub fn intend(mut self, manifests: &BTreeMap<ObjectKey, Manifest>, policy: Policy) -> Self {
        let entries = &mut self.inventory.entries;
        for (key, entry) in entries.iter_mut() {
            entry.obsolete = !manifests.contains_key(key);
        }
        for (key, manifest) in manifests {
            let digest = manifest.digest();
            let known = entries.get(key);
            let uid = known.and_then(|entry| entry.uid.clone());
            // With another digest, the version that our last write returned says nothing any more.
            let same = known.filter(|entry| entry.digest == digest);
            let resource_version = same.and_then(|entry| entry.resource_version.clone());
            let api_version = manifest.api_version.clone();
            entries.insert(key.clone(), Entry { api_version, digest, uid, resource_version, obsolete: false });
        }
        self.inventory.policy = policy;
        self
    }

    /// Writes what is intended before the first request of an apply.
    pub async fn applying(
        &mut self,
        clusters: &Clusters,
        plan: &Plan,
        manifests: &BTreeMap<ObjectKey, Manifest>,
    ) -> Result<(), Error> {
        let idle = |node: &billhook_plan::Node| match &node.work {
            Work::Apply(work) => {
                work.objects.iter().all(|t| matches!(t.action, ApplyAction::Unchanged | ApplyAction::Await))
            }
            Work::Delete(_) => false,
        };
        if self.before.as_ref() == Some(&self.inventory) && plan.nodes.iter().all(idle) {
            return Ok(());
        }
        self.bring_namespace(clusters, plan, manifests).await?;
        self.inventory.phase = Phase::Applying;
        let written: Vec<_> = manifests.iter().map(|(key, manifest)| (key, &manifest.value)).collect();
        self.save(clusters, Some(&written)).await
    }

    /// A release that brings the Namespace of its own record: this one object is applied before the record can be.
    async fn bring_namespace(
        &mut self,
        clusters: &Clusters,
        plan: &Plan,
        manifests: &BTreeMap<ObjectKey, Manifest>,
    ) -> Result<(), Error> {
        let key = ObjectKey::new(wellknown::namespace(), None, self.inventory.release.namespace());
        let created = plan.nodes.iter().any(|node| match &node.work {
            Work::Apply(work) => work.objects.iter().any(|t| t.object == key && t.action == ApplyAction::Create),
            Work::Delete(_) => false,
        });
        let Some(manifest) = manifests.get(&key).filter(|_| created) else { return Ok(()) };
        let options = ApplyOptions { force_conflicts: false, dry_run: false };
        let applied = clusters.own.apply(&namespaces(), &manifest.value, &options).await?;
        if let Some(entry) = self.inventory.entries.get_mut(&key) {
            entry.uid = Some(applied.uid);
        }
        Ok(())
    }

    /// Writes what an apply has confirmed.
    pub async fn applied(
        mut self,
        clusters: &Clusters,
        plan: &Plan,
        outcome: &Outcome,
        pruned: bool,
    ) -> Result<(), Error> {
        for applied in &outcome.applied {
            if let Some(entry) = self.inventory.entries.get_mut(&applied.object) {
                entry.uid = Some(applied.uid.clone());
                entry.resource_version = Some(applied.resource_version.clone());
            }
        }
        self.forget(plan, outcome, |entry| entry.obsolete && pruned);
        if outcome.summary.status == Status::Done {
            self.inventory.phase = Phase::Applied;
        }
        if self.before.as_ref() == Some(&self.inventory) {
            return Ok(());
        }
        self.save(clusters, None).await
    }

    /// Writes that a deletion is begun.
    pub async fn deleting(&mut self, clusters: &Clusters) -> Result<(), Error> {
        // A record that was read off a Namespace has no place to be written to: it is on its way.
        if self.token.is_none() || self.inventory.phase == Phase::Deleting {
            return Ok(());
        }
        self.inventory.phase = Phase::Deleting;
        self.save(clusters, None).await
    }

    /// Writes what a deletion has left; the record goes when all that the policy covers is gone.
    pub async fn deleted(mut self, clusters: &Clusters, plan: &Plan, outcome: &Outcome) -> Result<(), Error> {
        let Some(token) = self.token.clone() else { return Ok(()) };
        let release = self.inventory.release.clone();
        let with_namespace = |error: &Error| {
            let namespace = ObjectKey::new(wellknown::namespace(), None, release.namespace());
            let unwritable = error.code() == Some(404) || *error.kind() == ErrorKind::Refused;
            tasks(plan).contains(&namespace) && unwritable
        };
        let written = if outcome.summary.status == Status::Done {
            clusters.inventory().remove(&release, token).await
        } else {
            self.forget(plan, outcome, |_| true);
            self.save(clusters, None).await
        };
        match written {
            // The record went with its Namespace: what is left of it is known by its label.
            Err(error) if with_namespace(&error) => Ok(()),
            written => written,
        }
    }

    /// Forgets what is gone: the objects of which the API server said so during the run, and those that were looked
    /// for when the plan was made and not found (they are in no node and not among those that stay).
    fn forget(&mut self, plan: &Plan, outcome: &Outcome, concerned: impl Fn(&Entry) -> bool) {
        let gone: BTreeSet<_> = outcome.gone.iter().collect();
        let planned = tasks(plan);
        let stays: BTreeSet<_> = plan.uncovered.iter().map(|uncovered| &uncovered.object).collect();
        self.inventory.entries.retain(|key, entry| {
            let there = planned.contains(key) || stays.contains(key);
            !concerned(entry) || (there && !gone.contains(key))
        });
    }

    async fn save(
        &mut self,
        clusters: &Clusters,
        manifests: Option<&[(&ObjectKey, &serde_json::Value)]>,
    ) -> Result<(), Error> {
        let token = clusters.inventory().save(&mut self.inventory, self.token.take(), manifests).await?;
        self.token = Some(token);
        Ok(())
    }
}

fn namespaces() -> Resource {
    Resource { kind: wellknown::namespace(), version: "v1".into(), plural: "namespaces".into(), namespaced: false }
}
