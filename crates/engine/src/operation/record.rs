//! The record of a release, kept true: written before the act, and forgetting an object only when it is gone.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use billhook_cluster::{ApplyOptions, Error, ErrorKind, Token};
use billhook_objects::{Manifest, ObjectKey, ReleaseName, wellknown};
use billhook_plan::{ApplyAction, Entry, Inventory, Phase, Plan, Resource, Work};
use billhook_policy::Policy;

use super::tasks;
use crate::{Clusters, Status, run::Outcome};

/// How long the last write of a record may take once the time is over or the user has interrupted.
const LAST_WRITE: Duration = Duration::from_secs(10);

/// The record of one release during one operation.
pub(super) struct Record {
    pub inventory: Inventory,
    token: Option<Token>,
    /// Whether it was there before.
    exists: bool,
    /// Whether it holds anything that is not written yet.
    dirty: bool,
}

impl Record {
    pub(super) fn new(release: ReleaseName) -> Self {
        Self { inventory: Inventory::new(release), token: None, exists: false, dirty: true }
    }

    /// Reads the record.
    pub(super) async fn load(clusters: &Clusters, release: &ReleaseName) -> Result<Option<Self>, Error> {
        let stored = clusters.inventory().load(release).await?;
        Ok(stored.map(|s| Self { inventory: s.inventory, token: Some(s.token), exists: true, dirty: false }))
    }

    /// Reads the record. Where it is gone together with the Namespace that held it, but that Namespace still carries
    /// the release's label, what is left of the release is this Namespace.
    pub(super) async fn load_what_is_left(clusters: &Clusters, release: &ReleaseName) -> Result<Option<Self>, Error> {
        if let Some(record) = Self::load(clusters, release).await? {
            return Ok(Some(record));
        }
        let key = ObjectKey::new(wellknown::namespace(), None, release.namespace());
        let found = match clusters.own.get_meta(&namespaces(), &key).await {
            Ok(found) => found,
            Err(error) if *error.kind() == ErrorKind::Forbidden => None,
            Err(error) => return Err(error),
        };
        let ours = found.filter(|n| n.labels.get(wellknown::RELEASE_LABEL) == Some(&release.label_value()));
        Ok(ours.map(|namespace| {
            let mut record = Self { exists: true, ..Self::new(release.clone()) };
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
    pub(super) fn known(&self) -> Option<&Inventory> {
        self.exists.then_some(&self.inventory)
    }

    /// Whether all that is known of the release is a Namespace that took the record along.
    pub(super) fn went_with_its_namespace(&self) -> bool {
        self.exists && self.token.is_none()
    }

    /// What an apply intends: the new objects and, until they are gone, the old ones.
    pub(super) fn intend(mut self, manifests: &BTreeMap<ObjectKey, Manifest>, policy: Policy) -> Self {
        let entries = &mut self.inventory.entries;
        for (key, entry) in entries.iter_mut() {
            let obsolete = !manifests.contains_key(key);
            self.dirty |= entry.obsolete != obsolete;
            entry.obsolete = obsolete;
        }
        for (key, manifest) in manifests {
            let digest = manifest.digest();
            match entries.get_mut(key) {
                Some(entry) if entry.digest == digest => {}
                Some(entry) => {
                    // With another digest, the version that our last write returned says nothing any more.
                    entry.resource_version = None;
                    (entry.digest, entry.api_version) = (digest, manifest.api_version.clone());
                    self.dirty = true;
                }
                None => {
                    let api_version = manifest.api_version.clone();
                    let entry = Entry { api_version, digest, uid: None, resource_version: None, obsolete: false };
                    entries.insert(key.clone(), entry);
                    self.dirty = true;
                }
            }
        }
        self.dirty |= self.inventory.policy != policy;
        self.inventory.policy = policy;
        self
    }

    /// Writes what is intended before the first request of an apply.
    pub(super) async fn applying(
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
        if !self.dirty && plan.nodes.iter().all(idle) {
            return Ok(());
        }
        self.bring_namespace(clusters, plan, manifests).await?;
        self.inventory.phase = Phase::Applying;
        let written: Vec<_> = manifests.iter().map(|(key, manifest)| (key, manifest.json())).collect();
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
        let applied = clusters.own.apply(&namespaces(), &key, manifest.json(), &options).await?;
        if let Some(entry) = self.inventory.entries.get_mut(&key) {
            entry.uid = Some(applied.uid);
        }
        Ok(())
    }

    /// Writes what an apply has confirmed.
    pub(super) async fn applied(
        mut self,
        clusters: &Clusters,
        plan: &Plan,
        outcome: &Outcome,
        pruned: bool,
    ) -> Result<(), Error> {
        for applied in &outcome.applied {
            if let Some(entry) = self.inventory.entries.get_mut(&applied.object) {
                let (uid, version) = (Some(applied.uid.clone()), Some(applied.resource_version.clone()));
                self.dirty |= entry.uid != uid || entry.resource_version != version;
                (entry.uid, entry.resource_version) = (uid, version);
            }
        }
        self.forget(plan, outcome, |entry| entry.obsolete && pruned);
        if outcome.summary.status == Status::Done && self.inventory.phase != Phase::Applied {
            self.inventory.phase = Phase::Applied;
            self.dirty = true;
        }
        if !self.dirty {
            return Ok(());
        }
        in_time(outcome, self.save(clusters, None)).await
    }

    /// Claims the record for a deletion: another call that is at work on the release finds out.
    pub(super) async fn deleting(&mut self, clusters: &Clusters) -> Result<(), Error> {
        // A record that was read off a Namespace has no place to be written to: it is on its way.
        if self.token.is_none() {
            return Ok(());
        }
        self.inventory.phase = Phase::Deleting;
        self.save(clusters, None).await
    }

    /// Writes what a deletion has left; the record goes when all that the policy covers is gone.
    pub(super) async fn deleted(mut self, clusters: &Clusters, plan: &Plan, outcome: &Outcome) -> Result<(), Error> {
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
            in_time(outcome, self.save(clusters, None)).await
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
        let before = self.inventory.entries.len();
        self.inventory.entries.retain(|key, entry| {
            let there = planned.contains(key) || stays.contains(key);
            !concerned(entry) || (there && !gone.contains(key))
        });
        self.dirty |= self.inventory.entries.len() != before;
    }

    async fn save(&mut self, clusters: &Clusters, manifests: Option<&[(&ObjectKey, &str)]>) -> Result<(), Error> {
        let token = clusters.inventory().save(&mut self.inventory, self.token.take(), manifests).await?;
        self.token = Some(token);
        self.dirty = false;
        Ok(())
    }
}

/// The last write of a record: where the time is over already, it does not wait for a server that is away. Nothing is
/// lost by that, as the labels say what is left.
async fn in_time(outcome: &Outcome, write: impl Future<Output = Result<(), Error>>) -> Result<(), Error> {
    match outcome.summary.status {
        Status::Done | Status::Failed => write.await,
        _ => tokio::time::timeout(LAST_WRITE, write).await.unwrap_or(Ok(())),
    }
}

pub(super) fn namespaces() -> Resource {
    Resource { kind: wellknown::namespace(), version: "v1".into(), plural: "namespaces".into(), namespaced: false }
}
