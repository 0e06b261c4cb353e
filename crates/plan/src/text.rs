//! The wording of notes, problems and reasons: the facts, as every front end shows them.
//!
//! A front end adds what its user can do about them. Nothing here names a flag of the command line.

use std::{
    fmt::{Display, Formatter, Result},
    time::Duration,
};

use billhook_objects::{GroupKind, wellknown::PROTECT_ANNOTATION};

use crate::{
    Annotation, AnnotationNote, BackupNote, Counts, HookTreatment, ListFailure, ListScope, Locked, NotServedNote, Note,
    NoteKind, OrderNote, PlanError, Problem, Uncovered, UncoveredCause, UncoveredNote, UnreadableNote, UnservedKind,
    UnservedStep,
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

impl Display for Locked {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "another operation works on release {}: {}", self.release, self.holder())?;
        match (&self.lease, self.expires_in) {
            (Some(lease), _) => write!(f, "; its lock is held as long as Lease {lease} is renewed"),
            (None, Some(left)) => write!(f, "; its lock expires in {} unless it is renewed", seconds(left)),
            (None, None) => write!(f, "; the API server does not tell when its lock was last renewed"),
        }
    }
}

impl Locked {
    /// Returns which operation holds the lock, where and since when: `apply by host (process 12) since …`.
    pub fn holder(&self) -> String {
        let Self { operation, holder, pid, since, .. } = self;
        let since = since.as_ref().map(|since| format!(" since {since}")).unwrap_or_default();
        format!("{operation} by {holder} (process {pid}){since}")
    }
}

/// Prints one problem a line.
impl Display for PlanError {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let lines: Vec<_> = self.problems.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl Display for Problem {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::NoObjects => f.write_str("the input contains no objects"),
            Self::BackupLost { namespace } => write!(
                f,
                "the backup would be deleted with Namespace {namespace}, which holds the record of the release"
            ),
            Self::NotRestorable { object } => {
                write!(f, "{object:#} cannot be restored: the cluster does not serve its kind")
            }
            Self::UnknownTarget { group, target } => write!(f, "{group}: target {target:?} is unknown"),
            Self::AmbiguousKind { group, name, candidates } => {
                write!(f, "{group}: {name} is ambiguous: it may be {}", joined(candidates, " or "))
            }
            Self::NotServed { source, kind } => write!(
                f,
                "{source}: neither the cluster nor a CRD of the release defines {}{}",
                kind.name,
                suggestion(kind)
            ),
            Self::Misspelt { source, written, correct } => {
                write!(f, "{source}: kind {written:?} must be spelled {correct:?}")
            }
            Self::VersionNotServed { source, kind, api_version, served } => {
                write!(f, "{source}: {kind} is not served in {api_version}, but in {}", served.join(", "))
            }
            Self::VersionNotDefined { source, kind, api_version, crd, served } => write!(
                f,
                "{source}: {kind} is not served in {api_version}: the release's own {crd:#} serves {}",
                versions(served)
            ),
            Self::NoLastingVersion { crd, kind, before, after } => write!(
                f,
                "{crd:#}: objects of {kind} cannot be pruned because no version is served both before the update ({}) \
                 and after it ({})",
                versions(before),
                versions(after)
            ),
            Self::NoNamespace { source, object } => {
                let source = source.as_ref().map(|source| format!("{source}: ")).unwrap_or_default();
                write!(f, "{source}{object:#} has no namespace, but its kind is namespaced")
            }
            Self::Annotation { source, object, annotation, key, value } => {
                let expected = annotation.expected();
                write!(f, "{source}: {object:#}: annotation {key} must be {expected}, found {:?}", clip(value))
            }
            Self::Duplicate { source, object, first } => {
                write!(f, "{source}: {object:#} is already defined at {first}")
            }
            Self::TooEarly { group, count, needed } => {
                let verb = if *count == 1 { "needs" } else { "need" };
                write!(f, "{group}: {} {verb} {needed:#}, which is not in an earlier deployment group", objects(*count))
            }
            Self::AppliedLater { group, count, needed } => {
                let verb = if *count == 1 { "needs" } else { "need" };
                write!(f, "{group}: {} {verb} {needed:#}, which is only applied later", objects(*count))
            }
            Self::DeletesNeeded { count, needed } => {
                let verb = if *count == 1 { "needs" } else { "need" };
                write!(f, "{needed:#} is to be deleted, but {} to apply {verb} it", objects(*count))
            }
            Self::MissingNamespace { namespace } => write!(f, "namespace {namespace} does not exist"),
            Self::ListFailed(failure) => failure.fmt(f),
            Self::NotLookedUp { kind } => write!(f, "the answers to the queries for {kind} are missing"),
            Self::UnavailableApi { kind, api } => write!(f, "cannot look up {kind}: the API {api} is unavailable"),
            Self::SystemNamespace { object } => {
                write!(f, "{object:#} is a system namespace and is never deleted; exclude it with excludedResources")
            }
            Self::ProtectedNamespace { object, holds_inventory } => {
                NoteKind::ProtectedNamespace { object: object.clone(), holds_inventory: *holds_inventory }.fmt(f)
            }
            Self::OtherRelease { object, release } => write!(f, "{object:#} belongs to release {release}"),
            Self::Unowned { object, former: None } => write!(f, "{object:#} exists and belongs to no release"),
            Self::Unowned { object, former: Some(release) } => {
                write!(f, "{object:#} exists and belongs to no release: release {release} no longer exists")
            }
            Self::Unlabelled { object } => {
                write!(f, "{object:#} is in the record of the release, but does not carry its label")
            }
            Self::Unrecorded { object } => {
                write!(f, "{object:#} carries the label of the release, but is not in its record")
            }
            Self::BeingDeleted { object } => write!(f, "{object:#} is being deleted"),
            Self::Locked(locked) => locked.fmt(f),
            Self::Outdated { release } => {
                write!(f, "another operation changed release {release} after this one had read it")
            }
        }
    }
}

impl Display for ListFailure {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "failed to list {}: {}", self.list, self.reason)
    }
}

/// Prints `configmaps in namespace web on target edge`.
impl Display for ListScope {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(&self.plural)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if let Some(namespace) = &self.namespace {
            write!(f, " in namespace {namespace}")?;
        }
        if let Some(cluster) = &self.cluster {
            write!(f, " on target {cluster}")?;
        }
        Ok(())
    }
}

/// Prints `2 ConfigMap, 1 Secret`.
impl Display for Counts {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        for (at, (kind, count)) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { ", " };
            write!(f, "{separator}{count} {kind}")?;
        }
        Ok(())
    }
}

impl Display for UnservedStep {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Self { object, api_version, kind } = self;
        write!(f, "the cluster does not serve {} in {api_version}{}", object.kind.kind, suggestion(kind))
    }
}

/// Returns `; did you mean …?`, or nothing if no other kind is similar.
fn suggestion(kind: &UnservedKind) -> String {
    let elsewhere = kind.elsewhere.iter().map(|(version, GroupKind { kind, .. })| format!("{version} {kind}"));
    let candidates: Vec<_> = elsewhere.chain(kind.similar.clone()).collect();
    if candidates.is_empty() { String::new() } else { format!("; did you mean {}?", candidates.join(" or ")) }
}

/// Formats a count: `1 object`, `3 objects`.
pub fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// Formats a list: `finalizer a`, `finalizers a, b`.
pub fn list(what: &str, names: &[String]) -> String {
    let s = if names.len() == 1 { "" } else { "s" };
    format!("{what}{s} {}", names.join(", "))
}

/// Formats a duration in whole seconds, rounded up: `28s`.
pub fn seconds(duration: Duration) -> String {
    format!("{}s", duration.as_millis().div_ceil(1000).max(1))
}

fn objects(number: usize) -> String {
    count(number, "object")
}

/// Shortens what another program reports to the length of a line.
fn line(text: &str) -> &str {
    const SHOWN: usize = 300;
    &text[..text.floor_char_boundary(SHOWN)]
}

/// Shortens the value of an annotation, which may be 256 KiB long.
fn clip(value: &str) -> &str {
    const SHOWN: usize = 60;
    &value[..value.floor_char_boundary(SHOWN)]
}

/// Formats a part of all objects: `3 of its 5 objects`, `all 5 objects`, `the only object`.
fn of_all(part: usize, all: usize, whose: &str) -> String {
    match (part, all) {
        (1, 1) => "the only object".to_owned(),
        (part, all) if part == all => format!("all {all} objects"),
        (part, all) => format!("{part} of {whose} {}", objects(all)),
    }
}

fn versions(versions: &[String]) -> String {
    if versions.is_empty() { "no version".to_owned() } else { versions.join(", ") }
}

fn joined<T: Display>(all: &[T], separator: &str) -> String {
    all.iter().map(ToString::to_string).collect::<Vec<_>>().join(separator)
}

/// Returns the first few of a list, and how many more there are.
fn first_of<T: Display>(all: &[T]) -> String {
    const SHOWN: usize = 5;
    let shown: Vec<String> = all.iter().take(SHOWN).map(|one| format!("{one:#}")).collect();
    let shown = shown.join(", ");
    if all.len() > SHOWN { format!("{shown} and {} more", all.len() - SHOWN) } else { shown }
}
