//! What keeps an object from the state that it is to have.

use billhook_cluster::{Error, ErrorKind};
use billhook_objects::GroupKind;
use serde::{Deserialize, Serialize};

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
