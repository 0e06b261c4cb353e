//! The record of a release, kept true: written before the act, and forgetting an object only when it is gone.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use billhook_cluster::{Error, ErrorKind, Stored, Token};
use billhook_objects::{Digest, Manifest, ObjectKey, ReleaseName, wellknown};
use billhook_plan::{ApplyAction, ApplyTask, Directives, Entry, Inventory, Phase, Plan, Resource, Work};
use billhook_policy::{ManifestPolicy, Policy};
use serde_json::Value;

use super::{Inherited, applied, tasks};
use crate::{Clusters, Status, node::AppliedObject, run::Outcome, write};

/// How long the last write of a record may take once the time is over or the user has interrupted.
const LAST_WRITE: Duration = Duration::from_secs(10);

/// The record of one release during one operation.
pub(super) struct Record {
    pub inventory: Inventory,
    /// What the next write must present; none where there is no record yet.
    token: Option<Token>,
    origin: Origin,
    /// Whether it holds anything that is not written yet.
    dirty: bool,
}

/// Where the inventory comes from.
#[derive(Clone, Copy, PartialEq)]
enum Origin {
    /// The release is new.
    New,
    /// It was stored.
    Stored,
    /// An earlier deployer has left it; it is not stored yet.
    Inherited,
    /// It went with its Namespace, and that is all that is known of the release.
    Namespace,
}

impl Record {
    /// The record of a release that has none: of what an earlier deployer has left, if anything.
    pub(super) fn inherited(release: ReleaseName, inherited: Vec<Inherited>) -> Self {
        let origin = if inherited.is_empty() { Origin::New } else { Origin::Inherited };
        let mut inventory = Inventory::new(release);
        inventory.entries.extend(inherited.into_iter().map(Inherited::into_entry));
        Self { inventory, token: None, origin, dirty: true }
    }

    /// Reads the record.
    pub(super) async fn load(clusters: &Clusters, release: &ReleaseName) -> Result<Option<Self>, Error> {
        let stored = clusters.inventory().load(release).await?;
        let of =
            |s: Stored| Self { inventory: s.inventory, token: Some(s.token), origin: Origin::Stored, dirty: false };
        Ok(stored.map(of))
    }

    /// Reads the record. Where it is gone together with the Namespace that held it, but that Namespace still carries
    /// the release's label, what is left of the release is this Namespace.
    pub(super) async fn load_what_is_left(clusters: &Clusters, release: &ReleaseName) -> Result<Option<Self>, Error> {
        let record = Self::load(clusters, release).await?;
        if record.is_some() || !clusters.record_here() {
            return Ok(record);
        }
        let key = ObjectKey::new(wellknown::namespace(), None, release.namespace());
        let found = match clusters.own.get_meta(&Resource::namespaces(), &key).await {
            Ok(found) => found,
            Err(error) if *error.kind() == ErrorKind::Forbidden => None,
            Err(error) => return Err(error),
        };
        let ours = found.filter(|n| n.labels.get(wellknown::RELEASE_LABEL) == Some(&release.label_value()));
        Ok(ours.map(|namespace| {
            let mut inventory = Inventory::new(release.clone());
            let entry = Entry::new(Resource::namespaces().api_version(), Digest::of(&Value::Null));
            inventory.entries.insert(key, Entry { uid: Some(namespace.uid), ..entry });
            Self { inventory, token: None, origin: Origin::Namespace, dirty: true }
        }))
    }

    /// The inventory as it was read; none for a new release.
    pub(super) fn known(&self) -> Option<&Inventory> {
        (self.origin != Origin::New).then_some(&self.inventory)
    }

    /// Whether all that is known of the release is a Namespace that took the record along.
    pub(super) fn went_with_its_namespace(&self) -> bool {
        self.origin == Origin::Namespace
    }

    /// What an apply intends: the new objects and, until they are gone, the old ones.
    pub(super) fn intend(
        mut self,
        manifests: &BTreeMap<ObjectKey, Manifest>,
        directives: &BTreeMap<ObjectKey, Directives>,
        tasks: &BTreeMap<&ObjectKey, &ApplyTask>,
        policy: Policy,
    ) -> Self {
        let entries = &mut self.inventory.entries;
        for (key, entry) in entries.iter_mut() {
            let obsolete = !manifests.contains_key(key);
            self.dirty |= entry.obsolete != obsolete;
            entry.obsolete = obsolete;
        }
        let default = Directives::default();
        for (key, manifest) in manifests {
            let directives = directives.get(key).unwrap_or(&default);
            let left = tasks.get(key).and_then(|task| task.uid.as_ref());
            let entry = entries.entry(key.clone()).or_insert_with(|| {
                self.dirty = true;
                let applied = if left.is_some() { Digest::of(&Value::Null) } else { directives.digest(manifest) };
                Entry::new(manifest.api_version.clone(), applied)
            });
            let before = entry.clone();
            match left {
                // It is not written, so what was applied last is what counts.
                Some(uid) => entry.uid = Some(uid.clone()),
                None if entry.digest == directives.digest(manifest) => {}
                None => {
                    // With another digest, the version that our last write returned says nothing any more.
                    entry.resource_version = None;
                    entry.digest = directives.digest(manifest);
                    entry.api_version = manifest.api_version.clone();
                }
            }
            entry.keep = directives.policy == ManifestPolicy::Keep;
            entry.before_delete.clone_from(&directives.before_delete);
            self.dirty |= *entry != before;
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
            Work::Delete(_) | Work::Patch(_) => false,
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
        let created = applied(plan).find(|task| task.object == key && task.action == ApplyAction::Create);
        let created = created.filter(|_| clusters.record_here());
        let Some((task, manifest)) = created.zip(manifests.get(&key)) else { return Ok(()) };
        let applied = write::apply(&clusters.own, task, manifest, false, false).await?;
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
        let to_patch = patches(plan);
        for applied in &outcome.applied {
            // Until it is patched, an object is not as the release wants it.
            let version = (!to_patch.contains(&applied.object)).then(|| applied.resource_version.clone());
            self.confirm(applied, version);
        }
        for patched in &outcome.patched {
            // One that was patched for its deletion is not as the release wants it, should it come back into the release.
            if self.inventory.entries.get(&patched.object).is_some_and(|entry| !entry.obsolete) {
                self.confirm(patched, Some(patched.resource_version.clone()));
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

    fn confirm(&mut self, applied: &AppliedObject, version: Option<String>) {
        if let Some(entry) = self.inventory.entries.get_mut(&applied.object) {
            let uid = Some(applied.uid.clone());
            self.dirty |= entry.uid != uid || entry.resource_version != version;
            (entry.uid, entry.resource_version) = (uid, version);
        }
    }

    /// Claims the record for a deletion: another call that is at work on the release finds out.
    pub(super) async fn deleting(&mut self, clusters: &Clusters) -> Result<(), Error> {
        match self.origin {
            Origin::Stored | Origin::Inherited => {}
            // Of a new release there is nothing to record, and a record that was read off a Namespace has no place to be
            // written to: it is on its way.
            Origin::New | Origin::Namespace => return Ok(()),
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
            clusters.record_here() && tasks(plan).contains(&namespace) && unwritable
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

/// The objects that a plan patches.
fn patches(plan: &Plan) -> BTreeSet<&ObjectKey> {
    let work = plan.nodes.iter().filter_map(|node| if let Work::Patch(work) = &node.work { Some(work) } else { None });
    work.flat_map(|work| work.objects.iter().map(|task| &task.object)).collect()
}
