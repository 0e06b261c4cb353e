//! Notes and uncovered objects as JSON.

use serde_json::{Value, json};

use super::cluster::key;
use crate::*;

fn counts() -> Counts {
    Counts::from((key("ConfigMap/x").kind, 2))
}

/// One note of every kind.
pub(super) fn notes() -> Vec<NoteKind> {
    let (object, group, title) = (key("Namespace/x"), "deletionGroups[0]".to_owned(), "title".to_owned());
    let list =
        ListScope { cluster: Some("edge".into()), group: "apps".into(), plural: "deployments".into(), namespace: None };
    let failure = ListFailure { list: list.clone(), reason: "forbidden".into() };
    let kind = UnservedKind {
        name: billhook_objects::KindName { group: String::new(), name: "widgets".into() },
        elsewhere: vec![(billhook_objects::ApiVersion::new("a.example", "v1"), key("Widget.a.example/x").kind)],
        similar: None,
    };
    vec![
        NoteKind::ForeignObjects { object: object.clone(), counts: counts(), of_release: true },
        NoteKind::Contained { object: object.clone(), counts: counts() },
        NoteKind::TooManyDeletions { deletions: 3, limit: 2 },
        NoteKind::RendersNothing { pruned: 3, objects: 4 },
        NoteKind::PrunesMost { pruned: 3, objects: 4 },
        NoteKind::PrunesData { objects: vec![object.clone()] },
        NoteKind::PrunesProtected { objects: vec![object.clone()] },
        NoteKind::ProtectedNamespace { object: object.clone(), holds_inventory: true },
        NoteKind::SystemNamespace { group: group.clone(), title: title.clone(), counts: counts() },
        NoteKind::OtherRelease { object: object.clone(), release: "app/db".into(), remains: true },
        NoteKind::Unlabelled { object: object.clone(), deleted: true },
        NoteKind::ScopeChanged { counts: counts() },
        NoteKind::Uncovered(UncoveredNote::DeletedWithContainer { counts: counts() }),
        NoteKind::Uncovered(UncoveredNote::Remaining { counts: counts() }),
        NoteKind::Uncovered(UncoveredNote::Needed { object: object.clone() }),
        NoteKind::Uncovered(UncoveredNote::NotPruned { counts: counts() }),
        NoteKind::Recreated { object: object.clone(), was_created: true },
        NoteKind::Finalizers { finalizer: "a.example/f".into(), deleting: true, counts: counts() },
        NoteKind::NotServed(NotServedNote::Selector { group: group.clone(), kind: kind.clone() }),
        NoteKind::NotServed(NotServedNote::Later { group: group.clone(), kind }),
        NoteKind::NotServed(NotServedNote::Collection { group: group.clone(), list: list.clone() }),
        NoteKind::NotServed(NotServedNote::Objects { counts: counts() }),
        NoteKind::ForceStage {
            title: title.clone(),
            finalizers: Vec::new(),
            after: "5m".parse().unwrap(),
            end_grace_period: true,
        },
        NoteKind::ForceBeyondLimit {
            title: title.clone(),
            after: "20m".parse().unwrap(),
            limit: "10m".parse().unwrap(),
        },
        NoteKind::Unreadable(UnreadableNote::Contents { failures: vec![failure.clone()] }),
        NoteKind::Unreadable(UnreadableNote::Release { failures: vec![failure.clone()] }),
        NoteKind::Unreadable(UnreadableNote::Instances { failure }),
        NoteKind::Unreadable(UnreadableNote::UnavailableApi { counts: counts() }),
        NoteKind::SingleReads { lists: vec![list] },
        NoteKind::DeadApiService { cluster: None, apis: vec!["m.example/v1".into()], deleted: true },
        NoteKind::InventoryLast { object: object.clone() },
        NoteKind::PolicyLost,
        NoteKind::NamespaceCreated { object: object.clone() },
        NoteKind::Order(OrderNote::NoMatch { group: group.clone(), title }),
        NoteKind::Order(OrderNote::LeftOut { group, kind: key("ConfigMap/x").kind, name: "x".into() }),
        NoteKind::Order(OrderNote::Unrecorded { counts: counts() }),
        NoteKind::Hook { object: object.clone(), treatment: HookTreatment::TestLeftOut },
        NoteKind::Fallback { object: object.clone() },
        NoteKind::CreateOnly { object: object.clone() },
        NoteKind::OtherRelease { object: object.clone(), release: "app/db".into(), remains: false },
        NoteKind::Uncovered(UncoveredNote::KeptDeletedWithContainer { counts: counts() }),
        NoteKind::Backup(BackupNote::Saves { counts: counts() }),
        NoteKind::Backup(BackupNote::LostWithNamespace { object: object.clone() }),
        NoteKind::Backup(BackupNote::OtherClusters { counts: counts() }),
        NoteKind::Backup(BackupNote::Ended { object: object.clone() }),
        NoteKind::Backup(BackupNote::VolumeData { objects: vec![object.clone()] }),
        NoteKind::Backup(BackupNote::External { object: object.clone() }),
        NoteKind::Backup(BackupNote::OwnerMissing { object: object.clone(), owner: object.clone() }),
        NoteKind::Backup(BackupNote::Others { counts: counts() }),
        NoteKind::Backup(BackupNote::Exists { object: object.clone() }),
        NoteKind::Annotation(AnnotationNote::Honoured {
            annotation: Annotation::KeepObject,
            counts: counts(),
            live_only: true,
        }),
        NoteKind::Annotation(AnnotationNote::Unreadable {
            object: object.clone(),
            annotation: Annotation::KeepObject,
            key: "billhook.dev/keep-object".into(),
            value: "maybe".into(),
        }),
        NoteKind::Annotation(AnnotationNote::NotRecreated { object: object.clone() }),
        NoteKind::Annotation(AnnotationNote::NotFinalized { object: object.clone() }),
        NoteKind::FinalizerController {
            finalizer: "a.example/f".into(),
            counts: counts(),
            objects: vec![object.clone()],
            controller: None,
            problem: String::new(),
        },
        NoteKind::BackendFirst {
            front: object.clone(),
            backend: object.clone(),
            counts: Counts::default(),
            objects: Vec::new(),
            remains: true,
        },
        NoteKind::VolumeData { counts: counts(), objects: vec![object.clone()], lost: false },
        NoteKind::FinalizerController {
            finalizer: "a.example/f".into(),
            counts: counts(),
            objects: vec![object.clone()],
            controller: Some("Deployment a/operator".into()),
            problem: "it is scaled to 0".into(),
        },
        NoteKind::ControllerFirst {
            finalizer: "a.example/f".into(),
            counts: counts(),
            objects: vec![object.clone()],
            controller: "Deployment a/operator".into(),
            parts: vec![object.clone()],
        },
        NoteKind::BackendFirst {
            front: object.clone(),
            backend: object.clone(),
            counts: counts(),
            objects: vec![object.clone()],
            remains: false,
        },
        NoteKind::VolumeData { counts: counts(), objects: vec![object.clone()], lost: true },
        NoteKind::ExternalResources {
            system: "a".into(),
            finalizer: "a.example/f".into(),
            counts: counts(),
            objects: vec![object],
            left: true,
        },
        NoteKind::NotForeseen { unread: vec!["clusterroles (forbidden)".into()], unexamined: 2 },
    ]
}

#[test]
fn every_note_survives_serialization_and_prints_its_text() {
    for note in notes().into_iter().map(Note::from) {
        let printed = serde_json::to_value(&note).unwrap();
        assert_eq!(printed["message"], note.to_string());
        assert!(printed["severity"].is_string() && printed["code"].is_string(), "{printed}");
        assert_eq!(serde_json::from_value::<Note>(printed).unwrap(), note);
    }
}

#[test]
fn objects_and_counts_are_printed_beside_the_code() {
    let printed = |kind: NoteKind| serde_json::to_value(Note::from(kind)).unwrap();
    let (object, counts_json) =
        (json!({"group": "", "kind": "Namespace", "name": "x"}), json!([[key("ConfigMap/x").kind, 2]]));
    let foreign = NoteKind::ForeignObjects { object: key("Namespace/x"), counts: counts(), of_release: true };
    let message = "deleting Namespace x also deletes 2 objects that the release did not create: 2 ConfigMap";
    let expected = json!({"severity": "dangerous", "code": "foreign-objects", "message": message, "object": object,
        "counts": counts_json, "ofRelease": true});
    assert_eq!(printed(foreign), expected);
    let uncovered = printed(NoteKind::Uncovered(UncoveredNote::NotPruned { counts: counts() }));
    assert_eq!((&uncovered["code"], &uncovered["detail"]), (&json!("uncovered"), &json!("not-pruned")));
}

#[test]
fn uncovered_objects_survive_serialization_and_print_their_reason() {
    for (cause, code, reason) in [
        (UncoveredCause::NoGroup, "no-group", "no group covers it, but it is deleted with Namespace x"),
        (
            UncoveredCause::Excluded { group: "deletionGroups[0]".into() },
            "excluded",
            "excluded by deletionGroups[0], but it is deleted with Namespace x",
        ),
    ] {
        let uncovered = Uncovered { object: key("ConfigMap/x/a"), cause, deleted_with: Some(key("Namespace/x")) };
        let printed = serde_json::to_value(&uncovered).unwrap();
        assert_eq!((&printed["code"], &printed["reason"]), (&json!(code), &json!(reason)));
        assert_eq!(serde_json::from_value::<Uncovered>(printed).unwrap(), uncovered);
    }
    let old: Value = json!({"object": key("ConfigMap/x/a"), "code": "keep"});
    assert_eq!(serde_json::from_value::<Uncovered>(old).unwrap().reason(), "its policy is keep");
}
