//! The events of a run: one closed enum that every front end consumes.

use std::{collections::BTreeMap, sync::Arc};

use billhook_cluster::{Error, ErrorKind};
use billhook_objects::{GroupKind, ObjectKey, Uid};
use billhook_plan::{AppliedVersion, Failed, ListFailure, Note, Operation, Uncovered, UncoveredCause};
use serde::{Deserialize, Serialize};

/// The format version of the events; the first event of a run carries it.
pub const EVENT_FORMAT: u32 = 1;

/// Receives the events of a run, in order, from one task at a time.
pub type Sink = Arc<dyn Fn(Event) + Send + Sync>;

/// Something that happened during a run. `-o json` prints one event per line. A `node` is an index into the plan's nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "the names of the other fields describe them")]
pub enum Event {
    /// The run of a plan started.
    Started {
        /// [`EVENT_FORMAT`].
        format: u32,
        operation: Operation,
        /// The release, as `namespace/name`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        release: Option<String>,
        /// The title of each node, and how many objects it has.
        nodes: Vec<(String, usize)>,
        /// What the objects of each node are to become; empty if all are to be applied, or all to be gone, as the operation
        /// says.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        goals: Vec<Goal>,
        /// The notes of the plan, which is about to be carried out.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        notes: Vec<Note>,
    },
    /// A namespace that was missing was created. It is not an object of the release, or it would be applied by a node.
    NamespaceCreated { object: ObjectKey },
    /// A node started.
    NodeStarted { node: usize, title: String, objects: usize },
    /// An object was applied.
    Applied { node: usize, object: ObjectKey, result: ApplyResult },
    /// An object that its node waits for is ready.
    Ready { node: usize, object: ObjectKey },
    /// An object that its node waits for is not ready; sent again when the reason changes.
    Waiting { node: usize, object: ObjectKey, reason: String },
    /// The API server accepted a deletion; the object may still exist.
    Deleting { node: usize, object: ObjectKey, finalizers: Vec<String> },
    /// The API server confirmed that an object is gone.
    Gone {
        node: usize,
        object: ObjectKey,
        /// Its UID: another object may exist under its name.
        uid: Uid,
    },
    /// What keeps an object from being gone: sent when it changes after `Deleting`, and with an empty list if nothing does
    /// any more.
    Blocked { node: usize, object: ObjectKey, blockers: Vec<Blocker> },
    /// The engine ended the grace period of a Pod, which the API server then removed without waiting for its node.
    GracePeriodEnded { node: usize, object: ObjectKey },
    /// An object was created while its group is being deleted; the engine deletes it too.
    Appeared { node: usize, object: ObjectKey },
    /// Another client recreated a deleted object; it does not belong to the release and is not deleted.
    Recreated { node: usize, object: ObjectKey },
    /// An object was created too late for the stage that is being cleaned; it is not deleted.
    Ignored { node: usize, object: ObjectKey },
    /// An object is not waited for: its annotations keep it, although they did not when the plan was made, or its namespace does
    /// not exist any more.
    Kept {
        node: usize,
        object: ObjectKey,
        #[serde(flatten)]
        cause: UncoveredCause,
    },
    /// A VolumeSnapshotContent was annotated, so that the CSI sidecar deletes its snapshot.
    SnapshotReleased { node: usize, object: ObjectKey },
    /// The engine removed finalizers by force.
    FinalizersRemoved { node: usize, object: ObjectKey, finalizers: Vec<String> },
    /// An object that its node waits for failed and will not become ready by itself, such as a Job without retries left.
    Failed { node: usize, object: ObjectKey, reason: String },
    /// A request for an object failed.
    Refused {
        node: usize,
        object: ObjectKey,
        message: String,
        /// Whether the engine retries the request.
        retried: bool,
    },
    /// The API server of a cluster became unavailable; the engine waits for it to recover.
    ServerAway {
        /// The name of the target; `None` for the release's own cluster.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cluster: Option<String>,
        reason: String,
    },
    /// The API server of a cluster is available again.
    ServerBack {
        /// The name of the target; `None` for the release's own cluster.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cluster: Option<String>,
    },
    /// Watching a kind is forbidden; the engine lists or reads its objects repeatedly instead.
    PollOnly {
        node: usize,
        /// Which kind, and the API server's answer.
        reason: String,
    },
    /// The list that is to confirm that a collection is empty failed. Sent once for each reason.
    ListFailed {
        node: usize,
        /// Which kind, and why.
        reason: String,
        /// Whether the engine retries it. Where listing is forbidden, only the watch or single reads tell what is left.
        #[serde(default = "retried")]
        retried: bool,
    },
    /// A node ended.
    NodeFinished {
        node: usize,
        title: String,
        status: Status,
        /// How many objects were applied, unchanged ones included, or are ready, or gone.
        objects: usize,
        elapsed_ms: u64,
    },
    /// The run ended.
    Finished(Box<Summary>),
}

fn retried() -> bool {
    true
}

/// What a request to apply an object did, in the order in which summaries list the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApplyResult {
    /// It created the object.
    Created,
    /// It changed the existing object, or took ownership of its fields.
    Configured,
    /// It added an existing object that belonged to no release.
    Adopted,
    /// It deleted the object, whose update the API server had rejected as invalid, and created it again.
    Recreated,
    /// It patched the object, after the deployment or before the deletion.
    Patched,
    /// It changed nothing, or was not needed.
    Unchanged,
}

/// What the objects of a node are to become: the state that its progress counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Goal {
    /// Created, or updated to match the manifest.
    Applied,
    /// Patched.
    Patched,
    /// Ready: the node applies nothing and waits for objects that earlier nodes have applied.
    Ready,
    /// Gone.
    Gone,
    /// Applied, or their deletion requested, one after another.
    Done,
}

/// How a node, or the run, ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// Everything was done and verified.
    Done,
    /// It was not started.
    NotStarted,
    /// It was interrupted.
    Interrupted,
    /// It reached its time limit.
    TimedOut,
    /// A request, or an object, failed for good.
    Failed,
}

/// What a sweep for the label of a release found after its deletion.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Proof {
    /// The objects that still carry the label, except those that the policy left.
    pub left: Vec<ObjectKey>,
    /// What could not be listed, so that it is unknown whether objects are left there.
    pub unlisted: Vec<ListFailure>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// How it ended.
    pub status: Status,
    /// How many objects are gone.
    pub gone: usize,
    /// How many objects were created, configured or adopted.
    pub applied: usize,
    /// How many objects needed no change.
    pub unchanged: usize,
    /// The objects whose deletion the API server has accepted without that the run waited for its end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requested: Vec<ObjectKey>,
    /// The nodes that are not done, if others continue after a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<Box<Incomplete>>,
    /// The objects that remain, each with what blocks it.
    pub left: Vec<Left>,
    /// The objects of the release that no group covers. They remain, unless they are deleted with their Namespace or CRD.
    pub uncovered: Vec<Uncovered>,
    /// The notes of the plan on what the run left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<Note>,
    /// The finalizers removed by force.
    pub finalizers_removed: Vec<FinalizersRemoved>,
    /// The objects that another client recreated; they remain.
    pub recreated: Vec<ObjectKey>,
    /// The objects that were created too late for the stage that was being cleaned; they remain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored: Vec<ObjectKey>,
    /// Of a cleaning that left objects: what Gardener calls that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Box<CodedError>>,
    /// How many requests were sent to all clusters, by verb.
    pub requests: BTreeMap<String, u64>,
    /// How long it took, in milliseconds.
    pub elapsed_ms: u64,
    /// Why writing the release record failed at the end. The labels of the objects still show what remains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record_error: Option<String>,
    /// Whether the run was stopped because another operation took the lock of the release over, or because the lock could
    /// not be renewed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lock_lost: bool,
    /// Whether the record remains with the objects that the policy does not cover.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retained: bool,
    /// How many objects the backup has that the record remains for; none without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<usize>,
    /// What the sweep at the end found; none without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proof>,
    /// What the record of the release says after an apply.
    #[serde(skip)]
    pub recorded: Option<Recorded>,
}

impl Summary {
    /// Returns the summary of a run that did nothing, and ended like this.
    pub fn new(status: Status) -> Self {
        Self {
            status,
            gone: 0,
            applied: 0,
            unchanged: 0,
            requested: Vec::new(),
            incomplete: None,
            left: Vec::new(),
            uncovered: Vec::new(),
            left_out: Vec::new(),
            finalizers_removed: Vec::new(),
            recreated: Vec::new(),
            ignored: Vec::new(),
            error: None,
            requests: BTreeMap::new(),
            elapsed_ms: 0,
            record_error: None,
            lock_lost: false,
            retained: false,
            backup: None,
            proof: None,
            recorded: None,
        }
    }
}

/// What the record of a release says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recorded {
    /// The versions that were applied, the newest first.
    pub history: Vec<AppliedVersion>,
    /// The number of the write that made the record; 0 if there is none.
    pub revision: u64,
    /// After an apply: the UIDs of the objects that the version contains, as far as it was applied.
    pub uids: BTreeMap<ObjectKey, Uid>,
}

impl Proof {
    /// Whether nothing is left, and everything could be listed.
    pub fn is_complete(&self) -> bool {
        self.left.is_empty() && self.unlisted.is_empty()
    }
}

/// An error with the code that Gardener has for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodedError {
    /// The code, such as `ERR_CLEANUP_CLUSTER_RESOURCES`.
    pub code: String,
    /// The error.
    pub message: String,
}

/// The nodes of a run that are not done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Incomplete {
    /// How many nodes.
    pub nodes: usize,
    /// The title of the first of them.
    pub title: String,
    /// The first object of that node.
    pub object: ObjectKey,
}

/// Finalizers removed from an object by force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FinalizersRemoved {
    /// The object.
    pub object: ObjectKey,
    /// Which finalizers.
    pub finalizers: Vec<String>,
}

/// An object that remains, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Left {
    /// The object.
    pub object: ObjectKey,
    /// The title of its group.
    pub group: String,
    /// What keeps it from being gone, applied or ready.
    pub blockers: Vec<Blocker>,
}

/// Which part of the API server rejected it.
        #[serde(default, skip_serializing_if = "RefusedBy::is_server")]
        by: RefusedBy,
    },
    /// Its group was not started.
    NotStarted,
    /// Its group was started, but no request for the object was sent, or its answer did not arrive in time.
    NotRequested,
    /// The deletion was requested; the API server has not confirmed that the object is gone.
    Unconfirmed,
    /// The root cause that `why` finds.
    #[serde(rename_all = "camelCase")]
    RootCause {
        /// The code of the cause, such as `apiservice-unavailable`.
        code: String,
        /// One sentence.
        message: String,
        /// The first next step without risk.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next_step: Option<String>,
        /// Its command.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command: Option<String>,
    },
    /// It is not ready.
    NotReady { reason: String },
    /// It is not healthy, by the rules of its task.
    Unhealthy {
        /// The reason as a word, such as `WorkloadNotProgressing`.
        code: String,
        message: String,
    },
}

impl Blocker {
    /// Returns the name of a finalizer; none for other blockers.
    pub(crate) fn into_finalizer(self) -> Option<String> {
        if let Self::Finalizer { finalizer, .. } = self { Some(finalizer) } else { None }
    }
}

impl std::fmt::Display for Blocker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Finalizer { finalizer, manager: Some(manager) } => {
                write!(f, "finalizer {finalizer} (set by {manager})")
            }
            Self::Finalizer { finalizer, manager: None } => write!(f, "finalizer {finalizer}"),
            Self::LastError { description, codes } if codes.is_empty() => write!(f, "last error: {description}"),
            Self::LastError { description, codes } => write!(f, "last error: {description} ({})", codes.join(", ")),
            Self::Condition { condition, message } => write!(f, "{condition}: {message}"),
            Self::Node { node } => write!(f, "node {node} has not confirmed that its containers have stopped"),
            Self::Dependents { kind, count, names } => {
                let more =
                    if *count > names.len() { format!(" and {} more", count - names.len()) } else { String::new() };
                write!(f, "its dependents remain: {kind} {}{more}", names.join(", "))
            }
            Self::Recreated { times, manager: Some(manager) } => write!(f, "recreated {times} times by {manager}"),
            Self::Recreated { times, manager: None } => write!(f, "recreated {times} times by another client"),
            Self::Refused { message, .. } => write!(f, "request failed: {message}"),
            Self::NotStarted => f.write_str("its group was not started"),
            Self::NotRequested => f.write_str("request not sent, or not answered in time"),
            Self::Unconfirmed => f.write_str("deletion requested, not yet confirmed by the API server"),
            Self::RootCause { message, next_step, command, .. } => {
                write!(f, "root cause: {message}")?;
                let next = command.as_ref().or(next_step.as_ref());
                next.map_or(Ok(()), |next| write!(f, "; next: {next}"))
            }
            Self::NotReady { reason } => write!(f, "not ready: {reason}"),
            Self::Unhealthy { message, .. } => write!(f, "not healthy: {message}"),
        }
    }
}

/// Which part of the API server rejected a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusedBy {
    /// None of the causes below: validation, a concurrent change, or a server that is overloaded or unavailable.
    #[default]
    Server,
    /// Authorization: a permission is missing.
    Rights,
    /// An admission webhook, or the failure to call it.
    Webhook,
    /// Other admission: a policy, a quota, or a namespace that is being deleted.
    Admission,
    /// The namespace or the kind of the object does not exist.
    Missing,
    /// The object is not the one that was seen: another client has created or recreated it.
    Changed,
    /// Other managers own fields of the manifest.
    Managers,
}

impl RefusedBy {
    pub(crate) fn of(error: &Error) -> Self {
        if error.namespace_not_found() { Self::Missing } else { Self::of_kind(error.kind()) }
    }

    pub(crate) fn of_kind(failure: &ErrorKind) -> Self {
        match failure {
            ErrorKind::Forbidden => Self::Rights,
            ErrorKind::Webhook | ErrorKind::Denied => Self::Webhook,
            ErrorKind::Refused | ErrorKind::NoServiceAccount => Self::Admission,
            ErrorKind::NotServed => Self::Missing,
            ErrorKind::NotAsSeen => Self::Changed,
            ErrorKind::Conflict(fields) if !fields.is_empty() => Self::Managers,
            ErrorKind::Conflict(_)
            | ErrorKind::Invalid
            | ErrorKind::Timeout
            | ErrorKind::Unreachable
            | ErrorKind::TooLarge
            | ErrorKind::Stopped
            | ErrorKind::Other => Self::Server,
        }
    }

    /// Whether the same request may succeed once somebody else has changed the cluster.
    pub fn may_pass_later(self) -> bool {
        matches!(self, Self::Webhook | Self::Admission | Self::Missing | Self::Changed)
    }

    fn is_server(&self) -> bool {
        *self == Self::Server
    }
}

/// What keeps an object from being gone, applied or ready.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the names of the other fields describe them")]
pub enum Blocker {
    /// A finalizer, and the field manager that set it.
    Finalizer {
        finalizer: String,
        /// The field manager, where `managedFields` names one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        manager: Option<String>,
    },
    /// What the controller of an extension object says about its last operation, which failed (`status.lastError`).
    LastError {
        description: String,
        /// Gardener's codes, such as `ERR_INFRA_UNAUTHORIZED`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        codes: Vec<String>,
    },
    /// A condition of a Namespace or CRD that explains why it is not gone.
    Condition {
        /// The condition's type, such as `NamespaceContentRemaining`.
        condition: String,
        message: String,
    },
    /// The kubelet of its node has not confirmed that the containers of a Pod have stopped.
    Node { node: String },
    /// Its dependents remain: it is deleted in the foreground.
    Dependents {
        kind: GroupKind,
        count: usize,
        /// The names of the first of them.
        names: Vec<String>,
    },
    /// Another client recreates it whenever it is deleted.
    Recreated {
        times: u32,
        /// The field manager that created it, where `managedFields` names one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        manager: Option<String>,
    },
    /// The request failed.
    Refused {
        message: String,
        /// Which part of the API server rejected it.
        #[serde(default, skip_serializing_if = "RefusedBy::is_server")]
        by: RefusedBy,
    },
    /// Its group was not started.
    NotStarted,
    /// Its group was started, but no request for the object was sent, or its answer did not arrive in time.
    NotRequested,
    /// The deletion was requested; the API server has not confirmed that the object is gone.
    Unconfirmed,
    /// The root cause that `why` finds.
    #[serde(rename_all = "camelCase")]
    RootCause {
        /// The code of the cause, such as `apiservice-unavailable`.
        code: String,
        /// One sentence.
        message: String,
        /// The first next step without risk.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next_step: Option<String>,
        /// Its command.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command: Option<String>,
    },
    /// It is not ready.
    NotReady { reason: String },
    /// It is not healthy, by the rules of its task.
    Unhealthy {
        /// The reason as a word, such as `WorkloadNotProgressing`.
        code: String,
        message: String,
    },
}

impl Summary {
    /// Returns the objects that failed, and why, in the order of the plan: a request failed, or an object did not become ready
    /// or is not healthy. One that is not when the user interrupts the run did not fail, nor did one that is not ready when the
    /// time limit is reached.
    pub fn failures(&self) -> impl Iterator<Item = Failed<'_>> {
        let is_interrupted = self.status == Status::Interrupted;
        let is_cut = is_interrupted || self.status == Status::TimedOut;
        self.left.iter().filter_map(move |left| {
            let (error, code) = left.blockers.iter().find_map(|blocker| match blocker {
                Blocker::Refused { message, .. } => Some((message.as_str(), None)),
                Blocker::NotReady { reason } if !is_cut => Some((reason.as_str(), None)),
                Blocker::Unhealthy { code, message } if !is_interrupted => {
                    Some((message.as_str(), Some(code.as_str())))
                }
                _ => None,
            })?;
            Some(Failed { object: &left.object, error, code })
        })
    }

    /// Returns the objects that the run was waiting for when it reached its time limit, in the order of the plan.
    pub fn awaited(&self) -> impl Iterator<Item = &ObjectKey> {
        let is_awaited = |left: &&Left| left.blockers.iter().any(|of| matches!(of, Blocker::NotReady { .. }));
        let left = self.left.iter().filter(|_| self.status == Status::TimedOut);
        left.filter(is_awaited).map(|left| &left.object)
    }

    /// Returns the remaining objects whose group was started.
    pub fn blocked(&self) -> Vec<&Left> {
        self.left.iter().filter(|left| !left.is_not_started()).collect()
    }

    /// Returns the groups that were not started, each with the number of its objects.
    pub fn not_started(&self) -> Vec<(&str, usize)> {
        let mut groups: Vec<(&str, usize)> = Vec::new();
        for left in self.left.iter().filter(|left| left.is_not_started()) {
            match groups.last_mut() {
                Some((group, objects)) if *group == left.group => *objects += 1,
                _ => groups.push((&left.group, 1)),
            }
        }
        groups
    }
}

impl Left {
    fn is_not_started(&self) -> bool {
        self.blockers == [Blocker::NotStarted]
    }
}

impl Blocker {
    /// Returns the name of a finalizer; none for other blockers.
    pub(crate) fn into_finalizer(self) -> Option<String> {
        if let Self::Finalizer { finalizer, .. } = self { Some(finalizer) } else { None }
    }
}

impl std::fmt::Display for Blocker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Finalizer { finalizer, manager: Some(manager) } => {
                write!(f, "finalizer {finalizer} (set by {manager})")
            }
            Self::Finalizer { finalizer, manager: None } => write!(f, "finalizer {finalizer}"),
            Self::LastError { description, codes } if codes.is_empty() => write!(f, "last error: {description}"),
            Self::LastError { description, codes } => write!(f, "last error: {description} ({})", codes.join(", ")),
            Self::Condition { condition, message } => write!(f, "{condition}: {message}"),
            Self::Node { node } => write!(f, "node {node} has not confirmed that its containers have stopped"),
            Self::Dependents { kind, count, names } => {
                let more =
                    if *count > names.len() { format!(" and {} more", count - names.len()) } else { String::new() };
                write!(f, "its dependents remain: {kind} {}{more}", names.join(", "))
            }
            Self::Recreated { times, manager: Some(manager) } => write!(f, "recreated {times} times by {manager}"),
            Self::Recreated { times, manager: None } => write!(f, "recreated {times} times by another client"),
            Self::Refused { message, .. } => write!(f, "request failed: {message}"),
            Self::NotStarted => f.write_str("its group was not started"),
            Self::NotRequested => f.write_str("request not sent, or not answered in time"),
            Self::Unconfirmed => f.write_str("deletion requested, not yet confirmed by the API server"),
            Self::RootCause { message, next_step, command, .. } => {
                write!(f, "root cause: {message}")?;
                let next = command.as_ref().or(next_step.as_ref());
                next.map_or(Ok(()), |next| write!(f, "; next: {next}"))
            }
            Self::NotReady { reason } => write!(f, "not ready: {reason}"),
            Self::Unhealthy { message, .. } => write!(f, "not healthy: {message}"),
        }
    }
}

impl Goal {
    /// Returns what an operation as a whole is about.
    pub(crate) fn of(operation: Operation) -> Self {
        match operation {
            Operation::Apply | Operation::Restore => Self::Applied,
            Operation::Delete | Operation::Clean => Self::Gone,
        }
    }
}

impl std::fmt::Display for Goal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Applied => "applied",
            Self::Patched => "patched",
            Self::Ready => "ready",
            Self::Gone => "gone",
            Self::Done => "done",
        })
    }
}

#[cfg(test)]
mod tests {
    use billhook_objects::GroupKind;

    use super::*;

    #[test]
    fn failures_are_requests_that_failed_and_objects_that_did_not_become_ready() {
        let left = |name: &str, blockers: Vec<Blocker>| Left {
            object: ObjectKey::new(GroupKind::new("", "ConfigMap"), Some("a"), name),
            group: String::new(),
            blockers,
        };
        let refused = |message: &str| Blocker::Refused { message: message.to_owned(), by: RefusedBy::Server };
        let not_ready = || Blocker::NotReady { reason: "not yet".to_owned() };
        let all = vec![
            left("refused", vec![Blocker::Unconfirmed, refused("no")]),
            left("not-ready", vec![not_ready()]),
            left("not-started", vec![Blocker::NotStarted]),
            left("not-requested", vec![Blocker::NotRequested]),
        ];
        for (status, expected) in [
            (Status::Failed, vec![("refused", "no"), ("not-ready", "not yet")]),
            (Status::TimedOut, vec![("refused", "no")]),
            (Status::Interrupted, vec![("refused", "no")]),
        ] {
            let summary = Summary { left: all.clone(), ..Summary::new(status) };
            let found: Vec<_> = summary.failures().map(|failed| (failed.object.name.as_str(), failed.error)).collect();
            assert_eq!(found, expected, "{status:?}");
            let awaited: Vec<_> = summary.awaited().map(|object| object.name.as_str()).collect();
            assert_eq!(awaited, if status == Status::TimedOut { vec!["not-ready"] } else { vec![] }, "{status:?}");
        }
    }
}
