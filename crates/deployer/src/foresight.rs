//! What the deletion of an item would hang at, found when the item has been deployed: in the condition [`CONDITION`].
//!
//! It is looked for at most once for a generation, and only if the item has objects that can make a deletion hang. Nothing is
//! read for all other items.

use std::time::Duration;

use billhook_engine::{
    BackupMode, Clusters, DeleteInput, DeletionOrder, PreparedDelete, Subject, prepare_delete_foreseen,
};
use billhook_objects::{Manifest, wellknown};
use billhook_plan::{Note, NoteKind, Unlabelled};
use billhook_policy::{Policy, Propagation};
use futures::FutureExt as _;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{
    api::{Condition, DeployItemStatus},
    halt::{Halt, Stop},
    item::Item,
    target::OpenTarget,
    text::{clip, one_line},
};

/// The type of the condition. An item has it if its objects can make a deletion hang: `True` if they will.
pub const CONDITION: &str = "billhook.dev/DeletionWouldHang";

/// How long looking ahead may take: the item is deployed already.
const PATIENCE: Duration = Duration::from_secs(20);
/// The longest message of the condition, in bytes.
const MAX_MESSAGE: usize = 16 * 1024;
/// Built-in kinds whose deletion others need, or that end with more than themselves.
const DANGEROUS: [&str; 6] = [
    "Namespace",
    "APIService",
    "ValidatingWebhookConfiguration",
    "MutatingWebhookConfiguration",
    "PersistentVolumeClaim",
    "PersistentVolume",
];

/// Returns whether objects can make a deletion hang: custom resources, to which controllers add finalizers, objects with
/// finalizers, and kinds whose deletion others need. If so, it is the age that the catalog of kinds may have: one from before the
/// deployment lacks the kinds of its CRDs.
pub(crate) fn can_hang<'a>(manifests: impl IntoIterator<Item = &'a Manifest>, age: Duration) -> Option<Duration> {
    let ages = manifests.into_iter().filter_map(|manifest| {
        let kind = &manifest.key.kind;
        // The text is searched first, because it is rarely in it.
        let has_finalizers = || {
            manifest.json().contains("\"finalizers\"")
                && manifest
                    .value()
                    .pointer("/metadata/finalizers")
                    .is_some_and(|all| all.as_array().is_some_and(|all| !all.is_empty()))
        };
        match *kind == wellknown::crd() {
            true => Some(Duration::ZERO),
            false if !wellknown::is_built_in(&kind.group) || DANGEROUS.contains(&&*kind.kind) || has_finalizers() => {
                Some(age)
            }
            false => None,
        }
    });
    ages.min()
}

impl Item {
    /// Sets the condition for the objects that were just deployed. That they are deployed does not depend on it: if it cannot be
    /// found, the next attempt looks again.
    pub(crate) async fn foresee_deletion(
        &mut self,
        clusters: &Clusters,
        policy: &Policy,
        (target, age): (&OpenTarget, Duration),
        halt: &Halt,
    ) -> Result<(), Stop> {
        if self.status.conditions.iter().any(|condition| condition.r#type == CONDITION) {
            return Ok(());
        }
        let looked = self.look_ahead(clusters, policy, (target, age)).boxed();
        match halt.stoppable(None, "looking ahead", tokio::time::timeout(PATIENCE, looked)).await? {
            Ok(Ok(prepared)) => {
                let now = self.now();
                self.status.foresee(&prepared.plan.notes, now);
            }
            Ok(Err(error)) => tracing::debug!(%error, "failed to look ahead of the deletion of an item"),
            Err(_) => tracing::debug!("looking ahead of the deletion of an item took too long"),
        }
        Ok(())
    }

    /// Plans the deletion of the objects.
    async fn look_ahead(
        &self,
        clusters: &Clusters,
        policy: &Policy,
        (target, age): (&OpenTarget, Duration),
    ) -> Result<PreparedDelete, String> {
        let catalog = target.catalog(age).await.map_err(|error| error.to_string())?;
        let input = DeleteInput {
            subject: Subject::Release(self.release()),
            policy: Some(policy.clone()),
            propagation: Propagation::Background,
            max_deletions: None,
            namespace: self.namespace.clone(),
            inherited: Vec::new(),
            require_record: false,
            unlabelled: Unlabelled::Leave,
            retain: false,
            verify: false,
            backup: BackupMode::Never,
            catalog: Some(catalog),
        };
        let prepared = prepare_delete_foreseen(clusters, input, DeletionOrder::Policy).boxed().await;
        prepared.map_err(|error| error.to_string())
    }
}

impl DeployItemStatus {
    /// Sets the condition by the notes of the plan of a deletion.
    fn foresee(&mut self, notes: &[Note], now: Timestamp) {
        let lines: Vec<String> = notes.iter().filter_map(line).collect();
        let unread = notes.iter().find(|note| matches!(note.kind, NoteKind::NotForeseen { .. }));
        let (status, reason, message) = match (lines.is_empty(), unread) {
            (false, _) => ("True", "Foreseen", lines.join("\n")),
            (true, Some(unread)) => ("Unknown", "NotForeseen", one_line(&unread.to_string())),
            (true, None) => ("False", "NothingForeseen", String::new()),
        };
        self.forget_foresight();
        self.conditions.push(Condition {
            r#type: CONDITION.to_owned(),
            status: status.to_owned(),
            last_transition_time: Time(now),
            last_update_time: Time(now),
            reason: reason.to_owned(),
            message: clip(&message, MAX_MESSAGE),
            codes: Vec::new(),
        });
    }

    /// Removes the condition, since another generation has other objects or another order.
    pub(crate) fn forget_foresight(&mut self) {
        self.conditions.retain(|condition| condition.r#type != CONDITION);
    }
}

/// Returns what a note says of something that hangs, and what helps.
fn line(note: &Note) -> Option<String> {
    let help = match &note.kind {
        _ if note.is_about_order() => {
            "set deletionGroups of the configuration so that the objects are deleted before what they need"
        }
        NoteKind::FinalizerController { controller: Some(_), .. } => {
            "repair it first, or annotate the objects with resources.gardener.cloud/finalize-deletion-after, which removes their \
             finalizers by force"
        }
        NoteKind::BackendFirst { remains: true, .. } => "delete what needs it first, or keep it",
        _ => return None,
    };
    Some(format!("{}; {help}", one_line(&note.to_string())))
}

#[cfg(test)]
mod tests;
