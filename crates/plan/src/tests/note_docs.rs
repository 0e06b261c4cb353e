//! `docs/notes.md`, generated from the codes. `BILLHOOK_WRITE=1 cargo test -p billhook-plan note_docs` writes it.

use std::{collections::BTreeMap, fmt::Write as _};

use super::notes::notes;
use crate::*;

const HEAD: &str = "# The notes of plans

<!-- Generated from the codes in crates/plan; BILLHOOK_WRITE=1 cargo test -p billhook-plan note_docs writes it. -->

A plan has notes on what is dangerous, unexpected, or good to know. `-o json` prints them with their `severity`, `code` and parameters;
codes and parameters are stable, and `message` is for people. Some codes have a `detail`. A note whose severity is `dangerous` keeps a
plan from being carried out until a flag answers it (`--yes`, or `--max-deletions` for `too-many-deletions`).

The notes `finalizer-controller`, `controller-first`, `backend-first`, `volume-data`, `external-resources` and `not-foreseen` look ahead:
`plan delete` and `delete` gather the evidence that `billhook why` uses, for what *will* be deleted. If the plan deletes neither objects
with finalizers nor volumes, Namespaces, CRDs, APIServices or webhook configurations, no request is sent for them; else at most 100, for at
most 20 s. What is deleted on other clusters (`targetName`) is not looked at.

";

/// Returns what a note means, and what to do about it.
fn explained(kind: &NoteKind) -> (&'static str, &'static str) {
    match kind {
        NoteKind::ForeignObjects { .. } => (
            "A Namespace or CRD that is deleted contains objects that the release did not create. They are deleted with it.",
            "Move them, leave the Namespace or CRD out of the deletion, or confirm with `--yes`.",
        ),
        NoteKind::Contained { .. } => (
            "A Namespace or CRD that the cleaning of a cluster deletes contains objects that no stage names.",
            "Add a stage for them if they need an order; else nothing.",
        ),
        NoteKind::TooManyDeletions { .. } => (
            "The plan deletes more objects than `--max-deletions` allows.",
            "Review the plan, then raise `--max-deletions`.",
        ),
        NoteKind::RendersNothing { .. } => (
            "The new version of the release has no objects, so that everything is pruned.",
            "Check the input; confirm with `--yes` if this is meant.",
        ),
        NoteKind::PrunesMost { .. } => (
            "An update prunes more than half of the release.",
            "Check the input; confirm with `--yes` if this is meant.",
        ),
        NoteKind::PrunesData { .. } => (
            "An update prunes all objects of a kind that holds data.",
            "Check the input; confirm with `--yes` if the data may be lost.",
        ),
        NoteKind::PrunesProtected { .. } => (
            "An update prunes objects that are annotated as protected.",
            "Remove the annotation, or confirm with `--yes`.",
        ),
        NoteKind::ProtectedNamespace { .. } => (
            "An update does not delete this Namespace: it holds the inventory of the release, or is a system namespace.",
            "Nothing; `delete` deletes a Namespace that holds the inventory last.",
        ),
        NoteKind::SystemNamespace { .. } => (
            "A collection contains objects in system namespaces that its selector does not name.",
            "Name the namespaces in the policy, or confirm with `--yes`.",
        ),
        NoteKind::OtherRelease { .. } => (
            "An object carries the label of another release.",
            "Find out to which release it belongs, and remove it from the other one.",
        ),
        NoteKind::Unlabelled { .. } => (
            "An object is in the record of the release, but does not carry its label: another client removed the label, or edited the record.",
            "Check the object; `--yes` deletes it.",
        ),
        NoteKind::ScopeChanged { .. } => {
            ("Recorded objects cannot exist any more, because their kind is now served in another scope.", "Nothing.")
        }
        NoteKind::Uncovered(note) => match note {
            UncoveredNote::DeletedWithContainer { .. } => (
                "No group of the policy covers these objects, but they are deleted with their Namespace or CRD.",
                "Add them to a group if they need an order.",
            ),
            UncoveredNote::KeptDeletedWithContainer { .. } => (
                "Annotations keep these objects, but they are deleted with their Namespace or CRD.",
                "Exclude the Namespace or CRD with `excludedResources`, or confirm with `--yes`.",
            ),
            UncoveredNote::Remaining { .. } => {
                ("No group of the policy covers these objects; they remain.", "Add them to a group to delete them.")
            }
            UncoveredNote::Needed { .. } => {
                ("The new version does not contain this Namespace or CRD, but needs it.", "Add it to the new version.")
            }
            UncoveredNote::NotPruned { .. } => (
                "The new version does not contain these objects, and `--prune=false` keeps them.",
                "Apply without the flag to prune them.",
            ),
        },
        NoteKind::Recreated { .. } => (
            "An object of that name exists that does not belong to the release. It remains.",
            "Delete it yourself, or adopt it with an apply.",
        ),
        NoteKind::Finalizers { .. } => (
            "Objects carry a finalizer: they are gone when its controller has removed it.",
            "Nothing, as long as the controller works; other notes say if it does not.",
        ),
        NoteKind::NotServed(note) => match note {
            NotServedNote::Selector { .. } => (
                "A selector of the policy names a kind that the cluster does not serve.",
                "Correct the kind or its API version.",
            ),
            NotServedNote::Later { .. } => (
                "A selector for a later deletion names a kind that the cluster does not serve yet.",
                "Correct the kind if it is misspelt.",
            ),
            NotServedNote::Collection { .. } => ("The kind of a collection was deleted after discovery.", "Nothing."),
            NotServedNote::Objects { .. } => (
                "The cluster does not serve the kind of these objects; they count as gone.",
                "Nothing, unless the API is only unavailable.",
            ),
        },
        NoteKind::ForceStage { .. } => (
            "A group removes finalizers by force. What their controllers would have done is not done.",
            "Remove `forceDelete` from the policy, or limit it with `finalizers`.",
        ),
        NoteKind::ForceBeyondLimit { .. } => {
            ("The time limit ends before the force stage of a group starts.", "Raise `--timeout` above `forceAfter`.")
        }
        NoteKind::Unreadable(note) => match note {
            UnreadableNote::Contents { .. } => (
                "Not all contents of deleted Namespaces and CRDs are known.",
                "Let the user list the kinds, or confirm with `--yes`.",
            ),
            UnreadableNote::Instances { .. } => (
                "The force stage cannot remove the finalizers of a CRD's instances, which cannot be listed.",
                "Let the user list the kind.",
            ),
            UnreadableNote::Release { .. } => (
                "Not all objects of a release that lost its record are known.",
                "Let the user list the kinds, and run the command again.",
            ),
            UnreadableNote::UnavailableApi { .. } => (
                "An API is unavailable; its objects count as deleted with its APIService.",
                "Repair the API if its objects stand for something outside of the cluster.",
            ),
        },
        NoteKind::SingleReads { .. } => (
            "List and watch are forbidden; single reads replace them, which is slower.",
            "Let the user list and watch the kinds.",
        ),
        NoteKind::DeadApiService { .. } => (
            "Aggregated APIs are unavailable. As long as they are, no Namespace finishes deleting.",
            "Repair the backend, or delete the APIService if its product is gone.",
        ),
        NoteKind::InventoryLast { .. } => {
            ("The Namespace that holds the inventory of the release is deleted last.", "Nothing.")
        }
        NoteKind::PolicyLost => (
            "The record of the release was lost, and its policy with it; the default policy applies.",
            "Choose a policy with `--policy`.",
        ),
        NoteKind::NamespaceCreated { .. } => {
            ("A namespace does not exist and is created.", "Nothing; `--create-namespace` was given.")
        }
        NoteKind::Order(note) => match note {
            OrderNote::NoMatch { .. } => {
                ("A group of the policy matches no object.", "Nothing, unless its selectors are misspelt.")
            }
            OrderNote::LeftOut { .. } => {
                ("A collection does not contain an object that Kubernetes recreates in every namespace.", "Nothing.")
            }
            OrderNote::Unrecorded { .. } => (
                "Objects carry the label of the release, but are not in its record. They remain.",
                "Remove the label, or delete them.",
            ),
        },
        NoteKind::Hook { .. } => {
            ("An object is a hook or test of a chart.", "Deploy the chart with helm if its hooks must run.")
        }
        NoteKind::Fallback { .. } => (
            "Another client manages an object whose manifest has the policy `fallback`. It remains unchanged.",
            "Nothing.",
        ),
        NoteKind::CreateOnly { .. } => {
            ("An object exists that the manifest only creates. It remains unchanged.", "Nothing.")
        }
        NoteKind::Annotation(note) => match note {
            AnnotationNote::Honoured { .. } => {
                ("Annotations of objects change what happens to them.", "See [annotations](annotations.md).")
            }
            AnnotationNote::Unreadable { .. } => ("The value of an annotation cannot be read.", "Correct the value."),
            AnnotationNote::NotRecreated { .. } => (
                "An object is not deleted because its update is invalid: it is protected, or holds others or data.",
                "Delete it yourself if that is right.",
            ),
            AnnotationNote::NotFinalized { .. } => (
                "Nothing waits for the deletion that a manifest requests, so that finalizers are not removed.",
                "Delete the object with `billhook delete`.",
            ),
        },
        NoteKind::Backup(note) => match note {
            BackupNote::Saves { .. } => (
                "The live objects are saved in the record of the release before the first of them is deleted.",
                "Nothing; `--backup=false` deletes without a backup.",
            ),
            BackupNote::LostWithNamespace { .. } => (
                "No backup is written, because the Namespace that holds the record of the release is deleted, too.",
                "Save the objects as files with `--backup-dir`.",
            ),
            BackupNote::OtherClusters { .. } => (
                "A backup contains only objects of the cluster that holds the record.",
                "Save the objects of the other clusters yourself.",
            ),
            BackupNote::Ended { .. } => (
                "A Job or Pod of the backup has ended. It is not restored, because it would run again.",
                "Create it yourself if it is to run again.",
            ),
            BackupNote::VolumeData { .. } => (
                "A backup does not contain the data of volumes.",
                "Restore the data from a backup of the storage system.",
            ),
            BackupNote::External { .. } => (
                "What an object stood for outside of the cluster, such as a load balancer, is created again.",
                "Update what refers to its former address.",
            ),
            BackupNote::OwnerMissing { .. } => (
                "The owner of an object does not exist any more and is not in the backup; the object is restored without it.",
                "Delete the object yourself when it is no longer needed: no owner does it.",
            ),
            BackupNote::Others { .. } => (
                "The backup contains objects that the release did not create. They are restored without its label.",
                "Nothing.",
            ),
            BackupNote::Exists { .. } => (
                "An object of the backup that the release did not create exists again. It remains unchanged.",
                "Nothing, unless it differs from what you expect.",
            ),
        },
        NoteKind::FinalizerController { .. } => (
            "The controller that removes a finalizer does not work, so that the deletion will hang; or it is not known (severity `info`, \
             without `controller`).",
            "Repair or start the controller first. `billhook why` explains it once the objects are being deleted.",
        ),
        NoteKind::ControllerFirst { .. } => (
            "The controller that removes a finalizer, its ServiceAccount, the last binding or role that lets it write these objects, or \
             their CRD is deleted no later than the objects.",
            "Use `--order safe`, or a policy from `plan delete --suggest-policy`.",
        ),
        NoteKind::BackendFirst { .. } => (
            "The Service or workload behind a webhook that must answer (`failurePolicy: Fail`), an APIService or a conversion is deleted \
             before it. Until then requests fail: those of this deletion that `counts` tells of, and those of others. With `remains`, the \
             plan does not delete the configuration, and no order helps.",
            "Use `--order safe`; with `remains`, delete the configuration first, or keep the backend.",
        ),
        NoteKind::VolumeData { .. } => (
            "The reclaim policy of volumes says whether their data is lost (`Delete`) or kept (`Retain`) when their claims are deleted.",
            "To keep data, set `persistentVolumeReclaimPolicy: Retain` first. Volumes that are kept must be deleted, or bound again, by hand.",
        ),
        NoteKind::ExternalResources { .. } => (
            "The controller of a finalizer also deletes resources outside of the cluster, such as load balancers and their addresses; or, \
             with `left`, a force stage removes the finalizer, and they may remain and cost.",
            "Check that nothing else uses them; with `left`, delete them by hand.",
        ),
        NoteKind::NotForeseen { .. } => (
            "Something could not be read that shows whether the deletion will hang. The other notes are still true, but not complete.",
            "Let the user read what is named, at least Roles, bindings, workloads, Leases, webhook configurations and volumes.",
        ),
    }
}

fn document() -> String {
    let mut sections: BTreeMap<String, String> = BTreeMap::new();
    for note in notes().into_iter().map(Note::from) {
        let printed = serde_json::to_value(&note).unwrap();
        let text = |field: &str| printed.get(field).and_then(|text| text.as_str()).unwrap_or_default().to_owned();
        let (code, detail) = (text("code"), text("detail"));
        let heading = if detail.is_empty() { code } else { format!("{code}: {detail}") };
        let (meaning, todo) = explained(&note.kind);
        let section = sections
            .entry(heading.clone())
            .or_insert_with(|| format!("## {heading}\n\n{meaning}\n\n**What to do.** {todo}\n"));
        write!(section, "\n`{}`: {}\n", text("severity"), text("message")).unwrap();
    }
    HEAD.to_owned() + &sections.into_values().collect::<Vec<_>>().join("\n")
}

#[test]
fn the_document_of_all_notes_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/notes.md");
    let document = document();
    if std::env::var_os("BILLHOOK_WRITE").is_some() {
        std::fs::write(path, &document).unwrap();
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        found == document,
        "docs/notes.md is not current: run BILLHOOK_WRITE=1 cargo test -p billhook-plan note_docs"
    );
}
