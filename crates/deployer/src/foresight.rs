//! What the deletion of an item would hang at, found when the item has been deployed: in the condition [`CONDITION`].
//!
//! It is looked for at most once for a generation, and only if the item has objects that can make a deletion hang. Nothing is
//! read for all other items.

use std::{sync::Arc, time::Duration};

use billhook_engine::{BackupMode, Clusters, DeleteInput, DeletionOrder, Subject, prepare_delete_foreseen};
use billhook_objects::{Catalog, Manifest, wellknown};
use billhook_plan::{Note, NoteKind, Unlabelled};
use billhook_policy::{Policy, Propagation};
use futures::FutureExt as _;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{
    api::{Condition, DeployItemStatus},
    halt::{Halt, Stop},
    item::Item,
    text::{clip, one_line},
};

/// The type of the condition. An item has it if its objects can make a deletion hang: `True` if they will.
pub const CONDITION: &str = "billhook.dev/DeletionWouldHang";

/// How long looking ahead may take: the item is deployed already.
const PATIENCE: Duration = Duration::from_secs(20);
/// The longest message of the condition, in bytes.
const MAX_MESSAGE: usize = 16 * 1024;
/// Built-in kinds whose deletion others need, or that end with more than themselves.
const DANGEROUS: [&str; 7] = [
    "Namespace",
    "CustomResourceDefinition",
    "APIService",
    "ValidatingWebhookConfiguration",
    "MutatingWebhookConfiguration",
    "PersistentVolumeClaim",
    "PersistentVolume",
];

/// Returns whether objects can make a deletion hang: custom resources, to which controllers add finalizers, objects with
/// finalizers, and kinds whose deletion others need.
pub(crate) fn can_hang<'a>(manifests: impl IntoIterator<Item = &'a Manifest>) -> bool {
    manifests.into_iter().any(|manifest| {
        let kind = &manifest.key.kind;
        // The text is searched first, because it is rarely in it.
        let has_finalizers = || {
            manifest.json().contains("\"finalizers\"")
                && manifest
                    .value()
                    .pointer("/metadata/finalizers")
                    .is_some_and(|all| all.as_array().is_some_and(|all| !all.is_empty()))
        };
        !wellknown::is_built_in(&kind.group) || DANGEROUS.contains(&&*kind.kind) || has_finalizers()
    })
}

impl Item {
    /// Sets the condition for the objects that were just deployed. That they are deployed does not depend on it: if it cannot be
    /// found, the next attempt looks again.
    pub(crate) async fn foresee_deletion(
        &mut self,
        clusters: &Clusters,
        policy: &Policy,
        catalog: Arc<Catalog>,
        halt: &Halt,
    ) -> Result<(), Stop> {
        if self.status.conditions.iter().any(|condition| condition.r#type == CONDITION) {
            return Ok(());
        }
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
        let look = prepare_delete_foreseen(clusters, input, DeletionOrder::Policy);
        let look = tokio::time::timeout(PATIENCE, look).boxed();
        match halt.stoppable(None, "looking ahead", look).await? {
            Ok(Ok(prepared)) => {
                let now = self.now();
                self.status.foresee(&prepared.plan.notes, now);
            }
            Ok(Err(error)) => tracing::debug!(%error, "failed to look ahead of the deletion of an item"),
            Err(_) => tracing::debug!("looking ahead of the deletion of an item took too long"),
        }
        Ok(())
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
mod tests {
    use billhook_objects::{GroupKind, ObjectKey, yaml};
    use billhook_plan::Counts;

    use super::*;

    fn manifests(text: &str) -> Vec<Manifest> {
        let documents = yaml::parse(text).unwrap();
        documents.into_iter().flat_map(|document| Manifest::from_document(document, &"f".into()).unwrap()).collect()
    }

    #[test]
    fn only_objects_that_can_hang_are_looked_at() {
        for (object, expected) in [
            ("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}", false),
            ("{apiVersion: v1, kind: ConfigMap, metadata: {name: a, finalizers: []}}", false),
            ("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {finalizers: x}}", false),
            ("{apiVersion: v1, kind: ConfigMap, metadata: {name: a, finalizers: [x.example/a]}}", true),
            ("{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}}", false),
            ("{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a}}", false),
            ("{apiVersion: v1, kind: Namespace, metadata: {name: a}}", true),
            ("{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a}}", true),
            ("{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: a.b.c}}", true),
            ("{apiVersion: shop.example/v1, kind: Database, metadata: {name: a}}", true),
        ] {
            assert_eq!(can_hang(&manifests(object)), expected, "{object}");
        }
    }

    #[test]
    fn the_condition_says_what_hangs_and_what_helps() {
        let object = |name: &str| ObjectKey::new(GroupKind::new("shop.example", "Database"), Some("shop"), name);
        let first = Note::from(NoteKind::ControllerFirst {
            finalizer: "shop.example/a".to_owned(),
            counts: Counts::from((GroupKind::new("shop.example", "Database"), 1)),
            objects: vec![object("a")],
            controller: "Deployment shop/operator\n".to_owned(),
            parts: Vec::new(),
        });
        let unread = Note::from(NoteKind::NotForeseen { unread: vec!["roles (forbidden)".to_owned()], unexamined: 0 });
        let mut status = DeployItemStatus::default();
        let mut check = |notes: &[Note], expected: &str, says: &[&str]| {
            status.foresee(notes, Timestamp::UNIX_EPOCH);
            let [condition] = &status.conditions[..] else { panic!("{:?}", status.conditions) };
            assert_eq!((&*condition.r#type, &*condition.status), (CONDITION, expected), "{condition:?}");
            for text in says {
                assert!(condition.message.contains(text), "{text}: {condition:?}");
            }
            assert_eq!(condition.message.lines().count(), usize::from(!says.is_empty()));
        };
        check(&[first.clone(), unread.clone()], "True", &["Deployment shop/operator", "; set deletionGroups"]);
        check(&[unread], "Unknown", &["roles (forbidden)"]);
        check(&[Note::from(NoteKind::PolicyLost)], "False", &[]);
        status.forget_foresight();
        assert_eq!(status.conditions, []);
    }
}
