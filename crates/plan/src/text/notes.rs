//! Notes, and why objects remain.

use std::fmt::{Display, Formatter, Result};

use billhook_objects::wellknown::PROTECT_ANNOTATION;

use super::{clip, count, first_of, line, list, objects, of_all, suggestion};
use crate::{
    Annotation, AnnotationNote, BackupNote, HookTreatment, ListFailure, NotServedNote, Note, NoteKind, OrderNote,
    Uncovered, UncoveredCause, UncoveredNote, UnreadableNote,
};

impl Display for Note {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        self.kind.fmt(f)
    }
}

impl Display for NoteKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::ForeignObjects { object, counts, of_release } => {
                let whose = if *of_release { "the release did not create" } else { "the manifests do not name" };
                write!(f, "deleting {object:#} also deletes {} that {whose}: {counts}", objects(counts.total()))
            }
            Self::Contained { object, counts } => {
                write!(f, "deleting {object:#} also deletes {} that no stage names: {counts}", objects(counts.total()))
            }
            Self::TooManyDeletions { deletions, limit } => {
                write!(f, "the plan deletes {}, more than the limit of {limit}", objects(*deletions))
            }
            Self::RendersNothing { pruned, objects } => {
                write!(f, "the input renders to nothing: {} of the release will be pruned", of_all(*pruned, *objects, "the"))
            }
            Self::PrunesMost { pruned, objects } => {
                write!(f, "more than half of the release will be pruned: {}", of_all(*pruned, *objects, "its"))
            }
            Self::PrunesData { objects } => {
                write!(f, "all data of the release will be pruned: {}", first_of(objects))
            }
            Self::PrunesProtected { objects } => {
                let them = count(objects.len(), "protected object");
                write!(f, "{them} will be pruned ({PROTECT_ANNOTATION}): {}", first_of(objects))
            }
            Self::ProtectedNamespace { object, holds_inventory: true } => {
                write!(f, "{object:#} holds the inventory of the release and is not deleted by an update")
            }
            Self::ProtectedNamespace { object, holds_inventory: false } => {
                write!(f, "{object:#} is a system namespace and is not deleted by an update")
            }
            Self::SystemNamespace { group, title, counts } => {
                write!(f, "{group} ({title}) deletes {} in system namespaces: {counts}", objects(counts.total()))
            }
            Self::OtherRelease { object, release, remains: false } => {
                write!(f, "{object:#} belongs to release {release}")
            }
            Self::OtherRelease { object, release, remains: true } => {
                write!(f, "{object:#} carries the label of release {release}; it will not be deleted")
            }
            Self::Unlabelled { object, deleted } => {
                let what = if *deleted { "it will be deleted nevertheless" } else { "it will not be deleted" };
                write!(f, "{object:#} is in the record of the release, but does not carry its label; {what}")
            }
            Self::ScopeChanged { counts } => write!(
                f,
                "recorded in another scope than the cluster now serves their kinds in, so counted as gone: {counts}"
            ),
            Self::Uncovered(note) => note.fmt(f),
            Self::Recreated { object, was_created: true } => write!(
                f,
                "{object:#} was recreated by another client and no longer belongs to the release; it will not be deleted"
            ),
            Self::Recreated { object, was_created: false } => write!(
                f,
                "{object:#} was not created by the release (it does not carry its label); it will not be deleted"
            ),
            Self::Finalizers { finalizer, deleting, counts } => {
                let already = if *deleting { " already being deleted still" } else { "" };
                let verb = if counts.total() == 1 { "carries" } else { "carry" };
                write!(f, "{counts}{already} {verb} the finalizer {finalizer}")
            }
            Self::NotServed(note) => note.fmt(f),
            Self::ForceStage { title, finalizers, after, end_grace_period } => {
                let which = match finalizers.as_slice() {
                    [] => "all finalizers".to_owned(),
                    some => format!("the {}", list("finalizer", some)),
                };
                let when = if after.0.is_zero() { "immediately".to_owned() } else { format!("after {after}") };
                write!(f, "{title}: {which} will be removed by force from objects that are being deleted, {when}")?;
                if *end_grace_period {
                    f.write_str("; Pods will be deleted without waiting for their nodes")?;
                }
                Ok(())
            }
            Self::ForceBeyondLimit { title, after, limit } => write!(
                f,
                "{title}: the time limit of {limit} ends before forceAfter ({after}) has passed, so objects that are deleted \
                 now will not be forced"
            ),
            Self::Unreadable(note) => note.fmt(f),
            Self::SingleReads { lists } => write!(f, "single reads replace list and watch: {}", first_of(lists)),
            Self::DeadApiService { cluster, apis, deleted } => {
                let of = cluster.as_ref().map(|name| format!(" of target {name}")).unwrap_or_default();
                let effect = if *deleted {
                    ", but their APIServices are deleted no later than the first Namespace"
                } else {
                    "; namespaces cannot finish deleting until they recover"
                };
                write!(f, "aggregated APIs{of} are unavailable{effect}: {}", first_of(apis))
            }
            Self::InventoryLast { object } => {
                write!(f, "{object:#} holds the inventory of the release and is deleted last")
            }
            Self::PolicyLost => f.write_str(
                "the record of the release was lost, and its policy with it; the objects were found by their label, and the \
                 default policy applies",
            ),
            Self::NamespaceCreated { object } => {
                write!(f, "namespace {} does not exist and will be created", object.name)
            }
            Self::Order(note) => note.fmt(f),
            Self::Hook { object, treatment } => {
                let what = match treatment {
                    HookTreatment::Deployed => "is a hook of the chart and is deployed as a plain object",
                    HookTreatment::LeftOut => "is a hook of the chart and is left out",
                    HookTreatment::TestLeftOut => "is a test of the chart and is left out",
                };
                write!(f, "{object:#} {what}")
            }
            Self::Fallback { object } => {
                write!(f, "{object:#} does not belong to the release and remains unchanged: its policy is fallback")
            }
            Self::CreateOnly { object } => {
                write!(f, "{object:#} does not belong to the release and remains unchanged: its manifest only creates it")
            }
            Self::Annotation(note) => note.fmt(f),
            Self::FinalizerController { finalizer, counts, controller, problem, .. } => match controller {
                Some(controller) => write!(
                    f,
                    "{counts}: the controller that removes the finalizer {finalizer} does not work: {controller}: {}",
                    line(problem)
                ),
                None => write!(f, "{counts}: it is not known which controller removes the finalizer {finalizer}"),
            },
            Self::ControllerFirst { finalizer, counts, controller, parts, .. } => write!(
                f,
                "{counts}: the finalizer {finalizer} is removed by {controller}, of which the plan deletes {} no later",
                first_of(parts)
            ),
            Self::BackendFirst { front, backend, counts, remains, .. } => {
                write!(f, "{front:#} needs {backend:#}, which is deleted ")?;
                match (remains, counts.total()) {
                    (true, 0) => f.write_str("while the former remains: requests that need it will fail"),
                    (true, _) => write!(f, "while the former remains: requests that need it will fail, also for {counts}"),
                    (false, 0) => f.write_str("no later: requests of others that need it may fail in between"),
                    (false, _) => write!(f, "no later: the deletion of {counts} may hang"),
                }
            }
            Self::VolumeData { counts, objects, lost: true } => {
                write!(f, "the data of {counts} is lost, as the reclaim policies of their volumes say: {}", first_of(objects))
            }
            Self::VolumeData { counts, objects, lost: false } => write!(
                f,
                "the volumes of {counts} and their storage are kept, as their reclaim policies say: {}",
                first_of(objects)
            ),
            Self::ExternalResources { system, finalizer, counts, left: false, .. } => {
                write!(f, "{counts} with the finalizer {finalizer}: {system} also deletes what they created outside of the cluster")
            }
            Self::ExternalResources { system, finalizer, counts, left: true, .. } => write!(
                f,
                "{counts}: the finalizer {finalizer} will be removed by force; what {system} created outside of the cluster may \
                 remain"
            ),
            Self::NotForeseen { unread, unexamined } => {
                f.write_str("it is not known whether the deletion will hang")?;
                if *unexamined > 0 {
                    write!(f, "; {} with finalizers were not examined", objects(*unexamined))?;
                }
                if unread.is_empty() { Ok(()) } else { write!(f, "; not read: {}", first_of(unread)) }
            }
            Self::Backup(note) => note.fmt(f),
        }
    }
}

impl Display for BackupNote {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Saves { counts } => {
                write!(f, "the live objects will be saved before they are deleted: {counts}")
            }
            Self::LostWithNamespace { object } => write!(
                f,
                "no backup is written, because {object:#}, which holds the record of the release, is deleted, too"
            ),
            Self::OtherClusters { counts } => {
                write!(f, "the backup does not contain {} of other clusters: {counts}", objects(counts.total()))
            }
            Self::Ended { object } => {
                write!(f, "{object:#} has ended and is not restored, because it would run again")
            }
            Self::VolumeData { objects } => write!(
                f,
                "a backup does not contain the data of volumes; these claims are empty unless their volumes still exist: {}",
                first_of(objects)
            ),
            Self::External { object } => {
                write!(f, "{object:#} gets a new load balancer, which may have another address")
            }
            Self::OwnerMissing { object, owner } => write!(
                f,
                "{object:#} is restored without its owner {owner:#}, which does not exist any more and is not in the backup"
            ),
            Self::Others { counts } => write!(
                f,
                "{} that the release did not create will be restored without its label: {counts}",
                objects(counts.total())
            ),
            Self::Exists { object } => {
                write!(f, "{object:#}, which the release did not create, exists again and remains unchanged")
            }
        }
    }
}

impl Display for AnnotationNote {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Honoured { annotation, counts, live_only } => {
                let effect = match annotation {
                    Annotation::KeepObject => "will not be deleted",
                    Annotation::Mode => "will be neither written nor deleted, and no longer managed",
                    Annotation::Ignore => "will not be updated",
                    Annotation::FinalizeDeletionAfter => "will lose all finalizers some time after the deletion",
                    Annotation::DeleteOnInvalidUpdate | Annotation::DeletionPropagationOnInvalidUpdate => {
                        "will be deleted and recreated if the API server rejects the update as invalid"
                    }
                    Annotation::SkipHealthCheck => "will not be awaited",
                };
                let set = if *live_only { "annotated in the cluster, but not by the manifest," } else { "annotated" };
                let value = if *annotation == Annotation::Mode { "=Ignore" } else { "" };
                write!(f, "{} {set} with {annotation}{value} {effect}: {counts}", objects(counts.total()))
            }
            Self::Unreadable { object, annotation, key, value } => {
                let counts =
                    if annotation.counts_if_unreadable() { "as if it were set" } else { "as if it were not set" };
                let expected = annotation.expected();
                write!(
                    f,
                    "{object:#}: annotation {key} is {:?} instead of {expected}, and counts {counts}",
                    clip(value)
                )
            }
            Self::NotRecreated { object } => write!(
                f,
                "{object:#} is annotated with {}, but will not be deleted for an invalid update: it is protected, or may hold \
                 data or other objects",
                Annotation::DeleteOnInvalidUpdate
            ),
            Self::NotFinalized { object } => write!(
                f,
                "{object:#} is annotated with {}, but will keep its finalizers: nothing waits for the deletion that its manifest \
                 requests",
                Annotation::FinalizeDeletionAfter
            ),
        }
    }
}

impl Display for UncoveredNote {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::DeletedWithContainer { counts } => write!(
                f,
                "{} that no group covers will be deleted with a Namespace or CRD: {counts}",
                objects(counts.total())
            ),
            Self::KeptDeletedWithContainer { counts } => write!(
                f,
                "{} that annotations keep will be deleted nevertheless, with a Namespace or CRD: {counts}",
                objects(counts.total())
            ),
            Self::Remaining { counts } => {
                write!(f, "{} of the release will not be deleted: {counts}", objects(counts.total()))
            }
            Self::Needed { object } => {
                write!(
                    f,
                    "{object:#} is not in the new version, but remains because objects of the new version need it"
                )
            }
            Self::NotPruned { counts } => {
                let objects = objects(counts.total());
                write!(f, "{objects} that the new version no longer contains will not be pruned: {counts}")
            }
        }
    }
}

impl Display for NotServedNote {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Selector { group, kind } => {
                write!(f, "{group}: the cluster does not serve {}{}", kind.name, suggestion(kind))
            }
            Self::Later { group, kind } => {
                write!(f, "{group}: the cluster does not serve {} yet{}", kind.name, suggestion(kind))
            }
            Self::Collection { group, list } => write!(f, "{group}: the cluster no longer serves {list}"),
            Self::Objects { counts } => write!(f, "not served by the cluster, so counted as gone: {counts}"),
        }
    }
}

impl Display for UnreadableNote {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Contents { failures } => {
                let lists: Vec<_> = failures.iter().map(|failure| &failure.list).collect();
                write!(f, "not all objects that will be deleted are known: failed to list {}", first_of(&lists))?;
                failures.first().map_or(Ok(()), |first| write!(f, ": {}", first.reason))
            }
            Self::Release { failures } => {
                let failures: Vec<_> =
                    failures.iter().map(|ListFailure { list, reason }| format!("{list} ({reason})")).collect();
                write!(f, "not all objects of the release are known: failed to list {}", first_of(&failures))
            }
            Self::Instances { failure } => {
                write!(f, "the force stage cannot remove the finalizers of instances: {failure}")
            }
            Self::UnavailableApi { counts } => {
                write!(f, "the API is unavailable, so counted as deleted with its APIService: {counts}")
            }
        }
    }
}

impl Display for OrderNote {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::NoMatch { group, title } => write!(f, "{group} ({title}) matches no objects"),
            Self::LeftOut { group, kind, name } => {
                write!(f, "{group}: {kind} {name} is left out because Kubernetes recreates it in every namespace")
            }
            Self::Unrecorded { counts } => {
                let (is, does) = if counts.total() == 1 { ("is", "does") } else { ("are", "do") };
                let objects = objects(counts.total());
                write!(
                    f,
                    "{objects} with the release's label {is} not in its record and {does} not belong to it: {counts}"
                )
            }
        }
    }
}

impl Uncovered {
    /// Returns why the object remains, as a fragment.
    pub fn reason(&self) -> String {
        let cause = match &self.cause {
            UncoveredCause::NoGroup => "no group covers it".to_owned(),
            UncoveredCause::Excluded { group } => format!("excluded by {group}"),
            UncoveredCause::Keep => "its policy is keep".to_owned(),
            UncoveredCause::Fallback => "its policy is fallback, and its label names another DeployItem".to_owned(),
            UncoveredCause::KeepObject => format!("it is annotated with {}", Annotation::KeepObject),
            UncoveredCause::Unmanaged => format!("it is annotated with {}=Ignore", Annotation::Mode),
            UncoveredCause::SystemNamespace => "it is a system namespace".to_owned(),
            UncoveredCause::HoldsInventory => "it holds the inventory of the release".to_owned(),
            UncoveredCause::Unlabelled => "it does not carry the release's label".to_owned(),
            UncoveredCause::HoldsExcluded => "it contains objects that are left".to_owned(),
            UncoveredCause::CreatedNamespace => {
                "it was created for the release, but may contain other objects".to_owned()
            }
            UncoveredCause::NamespaceGone => {
                "its namespace does not exist any more, so that its finalizers cannot be removed".to_owned()
            }
            UncoveredCause::Needed => "objects of the new version need it".to_owned(),
        };
        match &self.deleted_with {
            Some(container) => format!("{cause}, but it is deleted with {container:#}"),
            None => cause,
        }
    }
}
