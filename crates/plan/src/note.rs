//! Notes on a plan, and the objects it leaves, as data. `text.rs` has their wording.

use billhook_objects::{ApiVersion, GroupKind, KindName, ObjectKey};
use billhook_policy::GoDuration;
use serde::{Deserialize, Serialize, Serializer};

use crate::{Annotation, BackupNote, ListScope, counts::Counts};

/// A fact worth knowing before a plan is carried out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct Note {
    /// How severe it is.
    pub severity: Severity,
    /// The fact.
    #[serde(flatten)]
    pub kind: NoteKind,
}

/// The severity of a note, the most severe first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Carrying the plan out needs confirmation: it deletes objects that the release did not create, data, or too much.
    Dangerous,
    /// The outcome may differ from what one expects.
    Warning,
    /// Good to know.
    Info,
}

/// What a note is about, in the order of the notes of one severity. A `group` is its path in the policy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "code", rename_all = "kebab-case", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "the names of the parameters describe them")]
pub enum NoteKind {
    /// A deleted Namespace or CRD contains objects that the release did not create.
    ForeignObjects {
        object: ObjectKey,
        counts: Counts,
        /// Whether a release is deleted, and not the objects that manifests name.
        of_release: bool,
    },
    /// A Namespace or CRD that the cleaning of a cluster deletes contains objects that no stage names.
    Contained { object: ObjectKey, counts: Counts },
    /// The plan deletes more objects than allowed.
    TooManyDeletions { deletions: usize, limit: usize },
    /// The new version of the release contains no objects.
    RendersNothing {
        /// How many objects of the release are pruned.
        pruned: usize,
        /// How many objects the release has.
        objects: usize,
    },
    /// An update prunes more than half of the release.
    PrunesMost { pruned: usize, objects: usize },
    /// An update prunes all objects of a kind that holds data.
    PrunesData { objects: Vec<ObjectKey> },
    /// An update prunes objects that are annotated as protected.
    PrunesProtected { objects: Vec<ObjectKey> },
    /// An update does not delete this Namespace.
    ProtectedNamespace {
        object: ObjectKey,
        /// Whether it holds the inventory of the release; else it is a system namespace.
        holds_inventory: bool,
    },
    /// A collection contains objects in system namespaces that its selector does not name.
    SystemNamespace { group: String, title: String, counts: Counts },
    /// An object carries the label of another release.
    OtherRelease {
        object: ObjectKey,
        release: String,
        /// Whether it remains.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        remains: bool,
    },
    /// An object is in the record of the release, but does not carry its label.
    Unlabelled {
        object: ObjectKey,
        /// Whether it is deleted nevertheless.
        deleted: bool,
    },
    /// Kinds are now served in another scope, so that the recorded objects cannot exist any more.
    ScopeChanged { counts: Counts },
    /// Objects that remain although they belong, or belonged, to the release.
    Uncovered(UncoveredNote),
    /// An object of that name exists that does not belong to the release. It remains.
    Recreated {
        object: ObjectKey,
        /// Whether the release had created an object of that name before.
        was_created: bool,
    },
    /// Objects carry a finalizer.
    Finalizers {
        finalizer: String,
        /// Whether they are being deleted already.
        deleting: bool,
        counts: Counts,
    },
    /// The cluster does not serve a kind.
    NotServed(NotServedNote),
    /// A group removes finalizers by force.
    ForceStage {
        title: String,
        /// Which finalizers; all if empty.
        finalizers: Vec<String>,
        after: GoDuration,
        /// Whether Pods are deleted with a grace period of zero.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        end_grace_period: bool,
    },
    /// The operation ends before the force stage of a group starts for an object that it deletes.
    ForceBeyondLimit { title: String, after: GoDuration, limit: GoDuration },
    /// Something could not be read.
    Unreadable(UnreadableNote),
    /// Single reads replace a list and watch.
    SingleReads { lists: Vec<ListScope> },
    /// Aggregated APIs are unavailable, so that namespaces cannot finish deleting.
    DeadApiService {
        /// The target; none for the release's own cluster.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cluster: Option<String>,
        /// The APIs, as `group/version`.
        apis: Vec<String>,
        /// Whether their APIServices are deleted no later than the first Namespace.
        deleted: bool,
    },
    /// The Namespace that holds the inventory is deleted last.
    InventoryLast { object: ObjectKey },
    /// The record of the release was lost, and the recorded policy with it.
    PolicyLost,
    /// A namespace does not exist and is created.
    NamespaceCreated { object: ObjectKey },
    /// Objects or groups are not treated as the policy suggests.
    Order(OrderNote),
    /// An object is a hook or test of a chart.
    Hook { object: ObjectKey, treatment: HookTreatment },
    /// Another client manages an object whose manifest has the policy `fallback`. It remains unchanged.
    Fallback { object: ObjectKey },
    /// An existing object does not belong to the release, whose manifest only creates it: it remains unchanged.
    CreateOnly { object: ObjectKey },
    /// Annotations of objects change what happens to them.
    Annotation(AnnotationNote),
    /// What happens to the objects of a backup, or to the backup itself.
    Backup(BackupNote),
    /// The controller that removes a finalizer does not work, or is not known.
    FinalizerController {
        finalizer: String,
        counts: Counts,
        /// Some of the objects.
        objects: Vec<ObjectKey>,
        /// The controller; none if it is not known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        controller: Option<String>,
        /// What is missing of it; empty if that is not known.
        problem: String,
    },
    /// Parts of the controller that removes a finalizer are deleted no later than the objects that carry it.
    ControllerFirst {
        finalizer: String,
        counts: Counts,
        objects: Vec<ObjectKey>,
        controller: String,
        parts: Vec<ObjectKey>,
    },
    /// The backend of a webhook that must answer, of an aggregated API or of a conversion is deleted before what needs it.
    BackendFirst {
        /// The webhook configuration, APIService or CRD.
        front: ObjectKey,
        backend: ObjectKey,
        /// How many objects of this plan need it.
        counts: Counts,
        objects: Vec<ObjectKey>,
        /// Whether the plan does not delete the front.
        remains: bool,
    },
    /// Data on volumes is deleted, or the volumes are kept.
    VolumeData { counts: Counts, objects: Vec<ObjectKey>, lost: bool },
    /// Resources outside of the cluster are deleted, or left behind.
    ExternalResources {
        system: String,
        finalizer: String,
        counts: Counts,
        objects: Vec<ObjectKey>,
        /// Whether they are left behind.
        left: bool,
    },
    /// Not everything could be read that shows whether the deletion will hang.
    NotForeseen {
        /// What could not be read, and why.
        unread: Vec<String>,
        /// How many objects with finalizers were not looked at.
        unexamined: usize,
    },
}

/// Annotations of objects change what happens to them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "detail", rename_all = "kebab-case", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "the names of the parameters describe them")]
pub enum AnnotationNote {
    /// Objects that are treated as an annotation says.
    Honoured {
        annotation: Annotation,
        counts: Counts,
        /// Whether only the live objects have it, although manifests of theirs are applied: another client has set it.
        live_only: bool,
    },
    /// The value of an annotation cannot be read.
    Unreadable {
        object: ObjectKey,
        annotation: Annotation,
        /// The annotation as written, with its prefix.
        key: String,
        value: String,
    },
    /// An object of a kind that holds others or data, or that is protected: it is not deleted because its update is invalid.
    NotRecreated { object: ObjectKey },
    /// An object whose deletion its manifest requests: nothing waits for it, so that its finalizers are not removed.
    NotFinalized { object: ObjectKey },
}

/// Objects that remain although they belong, or belonged, to the release.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "detail", rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the names of the parameters describe them")]
pub enum UncoveredNote {
    /// Objects that no group covers, but that are deleted with their Namespace or CRD.
    DeletedWithContainer { counts: Counts },
    /// Objects that their annotations keep, but that are deleted with their Namespace or CRD.
    KeptDeletedWithContainer { counts: Counts },
    /// Objects that no group covers.
    Remaining { counts: Counts },
    /// A Namespace or CRD that the new version does not contain, but needs.
    Needed { object: ObjectKey },
    /// Objects that the new version does not contain, and that are not pruned.
    NotPruned { counts: Counts },
}

/// A kind that the cluster does not serve.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "detail", rename_all = "kebab-case", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "the names of the parameters describe them")]
pub enum NotServedNote {
    /// A selector of the policy names an unknown kind.
    Selector { group: String, kind: UnservedKind },
    /// A selector for a later deletion of the release names an unknown kind.
    Later { group: String, kind: UnservedKind },
    /// The kind of a collection was deleted after discovery.
    Collection { group: String, list: ListScope },
    /// Objects of the kind count as gone.
    Objects { counts: Counts },
}

/// Something that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "detail", rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the names of the parameters describe them")]
pub enum UnreadableNote {
    /// Not all contents of deleted Namespaces and CRDs are known.
    Contents { failures: Vec<ListFailure> },
    /// The force stage cannot remove the finalizers of a CRD's instances.
    Instances { failure: ListFailure },
    /// Not all objects of a release that lost its record are known.
    Release { failures: Vec<ListFailure> },
    /// Objects of an unavailable API count as deleted with its APIService.
    UnavailableApi { counts: Counts },
}

/// Objects or groups that are not treated as the policy suggests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "detail", rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the names of the parameters describe them")]
pub enum OrderNote {
    /// A group matches no object.
    NoMatch { group: String, title: String },
    /// A collection does not contain an object that Kubernetes recreates in every namespace.
    LeftOut { group: String, kind: GroupKind, name: String },
    /// Objects carry the release's label and are not in its record.
    Unrecorded { counts: Counts },
}

/// What happens to a hook or test of a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HookTreatment {
    /// A hook that is deployed as a plain object.
    Deployed,
    /// A hook that is left out.
    LeftOut,
    /// A test that is left out.
    TestLeftOut,
}

/// A list that failed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ListFailure {
    /// What was listed.
    pub list: ListScope,
    /// Why it failed.
    pub reason: String,
}

/// A kind that the cluster does not serve, and what may be meant instead.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UnservedKind {
    /// The kind as written.
    pub name: KindName,
    /// Kinds of that name in other groups, each with the version to use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub elsewhere: Vec<(ApiVersion, GroupKind)>,
    /// The kind of the same group with the most similar name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub similar: Option<String>,
}

impl From<NoteKind> for Note {
    fn from(kind: NoteKind) -> Self {
        Self { severity: kind.severity(), kind }
    }
}

impl Note {
    /// Whether the run leaves out something that the policy, the release or the chart contains. Its summary repeats the
    /// note.
    pub fn is_omission(&self) -> bool {
        matches!(
            &self.kind,
            NoteKind::NotServed(NotServedNote::Selector { .. } | NotServedNote::Collection { .. })
                | NoteKind::Recreated { .. }
                | NoteKind::Unreadable(_)
                | NoteKind::Backup(
                    BackupNote::Ended { .. } | BackupNote::OwnerMissing { .. } | BackupNote::Exists { .. }
                )
                | NoteKind::Hook { treatment: HookTreatment::LeftOut, .. }
        )
    }

    /// Whether another order of the deletion would avoid what the note says.
    pub fn is_about_order(&self) -> bool {
        matches!(&self.kind, NoteKind::ControllerFirst { .. } | NoteKind::BackendFirst { remains: false, .. })
    }

    /// Whether the note says that something is not known by which another order could be better.
    pub fn leaves_order_open(&self) -> bool {
        matches!(&self.kind, NoteKind::NotForeseen { .. } | NoteKind::FinalizerController { controller: None, .. })
    }

    /// Whether the note says that objects are not deleted because of an annotation. The summary of a cleaning, which has no
    /// release whose remaining objects it could list, repeats it.
    pub fn is_kept(&self) -> bool {
        let honoured = match &self.kind {
            NoteKind::Annotation(AnnotationNote::Honoured { annotation, .. }) => Some(annotation),
            _ => None,
        };
        matches!(honoured, Some(Annotation::KeepObject | Annotation::Mode))
    }
}

impl NoteKind {
    fn severity(&self) -> Severity {
        match self {
            Self::ForeignObjects { .. }
            | Self::TooManyDeletions { .. }
            | Self::RendersNothing { .. }
            | Self::PrunesMost { .. }
            | Self::PrunesData { .. }
            | Self::PrunesProtected { .. }
            | Self::Unreadable(UnreadableNote::Contents { .. })
            | Self::SystemNamespace { .. }
            | Self::Uncovered(UncoveredNote::KeptDeletedWithContainer { .. })
            | Self::OtherRelease { remains: false, .. }
            | Self::Unlabelled { .. } => Severity::Dangerous,
            Self::ProtectedNamespace { .. }
            | Self::Uncovered(UncoveredNote::DeletedWithContainer { .. } | UncoveredNote::Needed { .. })
            | Self::OtherRelease { remains: true, .. }
            | Self::ScopeChanged { .. }
            | Self::Contained { .. }
            | Self::Order(OrderNote::Unrecorded { .. })
            | Self::Recreated { was_created: true, .. }
            | Self::Finalizers { deleting: true, .. }
            | Self::NotServed(
                NotServedNote::Selector { .. } | NotServedNote::Later { .. } | NotServedNote::Collection { .. },
            )
            | Self::ForceStage { .. }
            | Self::ForceBeyondLimit { .. }
            | Self::Unreadable(
                UnreadableNote::Instances { .. }
                | UnreadableNote::UnavailableApi { .. }
                | UnreadableNote::Release { .. },
            )
            | Self::DeadApiService { deleted: false, .. }
            | Self::Hook { treatment: HookTreatment::LeftOut, .. }
            | Self::Annotation(
                AnnotationNote::Honoured { live_only: true, .. }
                | AnnotationNote::Honoured { annotation: Annotation::FinalizeDeletionAfter, .. }
                | AnnotationNote::Unreadable { .. }
                | AnnotationNote::NotRecreated { .. }
                | AnnotationNote::NotFinalized { .. },
            )
            | Self::Backup(
                BackupNote::LostWithNamespace { .. }
                | BackupNote::OtherClusters { .. }
                | BackupNote::Ended { .. }
                | BackupNote::VolumeData { .. }
                | BackupNote::OwnerMissing { .. }
                | BackupNote::Exists { .. },
            )
            | Self::FinalizerController { controller: Some(_), .. }
            | Self::ControllerFirst { .. }
            | Self::VolumeData { lost: true, .. }
            | Self::ExternalResources { .. }
            | Self::NotForeseen { .. }
            | Self::PolicyLost => Severity::Warning,
            Self::BackendFirst { remains, counts, .. } if *remains || counts.total() > 0 => Severity::Warning,
            Self::Uncovered(UncoveredNote::Remaining { .. } | UncoveredNote::NotPruned { .. })
            | Self::Recreated { was_created: false, .. }
            | Self::Finalizers { deleting: false, .. }
            | Self::NotServed(NotServedNote::Objects { .. })
            | Self::SingleReads { .. }
            | Self::DeadApiService { deleted: true, .. }
            | Self::InventoryLast { .. }
            | Self::NamespaceCreated { .. }
            | Self::Order(OrderNote::NoMatch { .. } | OrderNote::LeftOut { .. })
            | Self::Hook { treatment: HookTreatment::Deployed | HookTreatment::TestLeftOut, .. }
            | Self::Fallback { .. }
            | Self::CreateOnly { .. }
            | Self::Annotation(AnnotationNote::Honoured { live_only: false, .. })
            | Self::FinalizerController { controller: None, .. }
            | Self::BackendFirst { .. }
            | Self::VolumeData { lost: false, .. }
            | Self::Backup(BackupNote::Saves { .. } | BackupNote::External { .. } | BackupNote::Others { .. }) => {
                Severity::Info
            }
        }
    }
}

/// Includes the text, for people who read the JSON.
impl Serialize for Note {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct WithText<'a> {
            severity: Severity,
            message: String,
            #[serde(flatten)]
            kind: &'a NoteKind,
        }
        WithText { severity: self.severity, message: self.to_string(), kind: &self.kind }.serialize(serializer)
    }
}

/// An object of the release that the plan does not delete.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Uncovered {
    /// The object.
    pub object: ObjectKey,
    /// Why no group deletes it.
    #[serde(flatten)]
    pub cause: UncoveredCause,
    /// The Namespace or CRD whose deletion deletes it anyway.
    #[serde(default)]
    pub deleted_with: Option<ObjectKey>,
}

/// Why no group deletes an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "code", rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the names of the parameters describe them")]
pub enum UncoveredCause {
    /// No group matches it.
    NoGroup,
    /// The first group that would match it excludes it.
    Excluded { group: String },
    /// Its policy is `keep`.
    Keep,
    /// Its policy is `fallback`, and the labels of Landscaper's deployers name another DeployItem.
    Fallback,
    /// It is annotated with `keep-object`.
    KeepObject,
    /// It is annotated as no longer managed. An object of a release is only listed if its label could not be removed.
    Unmanaged,
    /// It is a system namespace.
    SystemNamespace,
    /// It is the Namespace that holds the inventory of the release.
    HoldsInventory,
    /// It is a Namespace or CRD with objects of the new version in it.
    Needed,
    /// It does not carry the release's label.
    Unlabelled,
    /// It is a Namespace or CRD with objects in it that a cleaning leaves.
    HoldsExcluded,
    /// It is a namespace that an apply created because it did not exist, and does not belong to the release.
    CreatedNamespace,
    /// Its namespace does not exist any more, so that the API server rejects the removal of its finalizers.
    NamespaceGone,
}

impl UncoveredCause {
    /// Returns the cause for an object that an annotation keeps.
    pub fn kept_by(annotation: Annotation) -> Self {
        if annotation == Annotation::Mode { Self::Unmanaged } else { Self::KeepObject }
    }

    /// Whether an annotation keeps the object.
    pub(crate) fn is_annotation(&self) -> bool {
        matches!(self, Self::KeepObject | Self::Unmanaged)
    }
}

impl Uncovered {
    pub(crate) fn new(object: &ObjectKey, cause: UncoveredCause) -> Self {
        Self { object: object.clone(), cause, deleted_with: None }
    }
}

/// Includes the text, for people who read the JSON.
impl Serialize for Uncovered {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct WithText<'a> {
            object: &'a ObjectKey,
            reason: String,
            #[serde(flatten)]
            cause: &'a UncoveredCause,
            #[serde(skip_serializing_if = "Option::is_none")]
            deleted_with: Option<&'a ObjectKey>,
        }
        let Self { object, cause, deleted_with } = self;
        WithText { object, reason: self.reason(), cause, deleted_with: deleted_with.as_ref() }.serialize(serializer)
    }
}
