//! The messages about deletions and failures, word for word as the cluster-version operator has them.

use std::fmt::{Display, Formatter, Result};

use billhook_objects::ObjectKey;
use serde::{Deserialize, Serialize};

use crate::history::State;

/// Returns how messages name an object: `configmap "namespace/name"`.
pub fn resource(object: &ObjectKey) -> String {
    let kind = object.kind.kind.to_lowercase();
    match &object.namespace {
        Some(namespace) => format!("{kind} \"{namespace}/{}\"", object.name),
        None => format!("{kind} \"{}\"", object.name),
    }
}

/// What is known of the deletion of an object from before this pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known<'a> {
    /// Nothing: its deletion was not requested.
    Nothing,
    /// Its deletion was requested.
    Requested,
    /// It was deleted.
    Completed {
        /// The time at which that was found, in RFC 3339.
        at: &'a str,
    },
}

/// What the API server says of an object that is to be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observed<'a> {
    /// It does not exist, or its kind does not.
    NotFound,
    /// It exists.
    Found {
        /// Its `deletionTimestamp`, in RFC 3339.
        deletion_timestamp: Option<&'a str>,
    },
}

/// A message about the deletion of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteMessage {
    /// The object.
    pub object: ObjectKey,
    /// What is said of it.
    #[serde(flatten)]
    pub kind: DeleteMessageKind,
}

/// The messages about deletions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "code", rename_all = "kebab-case")]
pub enum DeleteMessageKind {
    /// Its deletion was not requested, and it does not exist.
    NotFound,
    /// Its deletion is requested now.
    Requested,
    /// It is gone.
    Completed,
    /// It has a `deletionTimestamp`.
    Expected {
        /// The `deletionTimestamp`, in RFC 3339.
        by: String,
    },
    /// Its deletion was requested, and it has no `deletionTimestamp`.
    AlreadyRequested,
    /// It exists again.
    Reappeared {
        /// When it was deleted, in RFC 3339.
        deleted_at: String,
    },
}

impl DeleteMessage {
    /// Returns whether this is a warning.
    pub fn is_warning(&self) -> bool {
        matches!(self.kind, DeleteMessageKind::NotFound | DeleteMessageKind::Reappeared { .. })
    }
}

impl Display for DeleteMessage {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let object = resource(&self.object);
        match &self.kind {
            DeleteMessageKind::NotFound => write!(
                f,
                "{object} not found. It either has already been removed or it has never been installed on this cluster."
            ),
            DeleteMessageKind::Requested => write!(f, "Delete requested for {object}."),
            DeleteMessageKind::Completed => write!(f, "Delete of {object} completed."),
            DeleteMessageKind::Expected { by } => write!(f, "Delete of {object} is expected by {by}."),
            DeleteMessageKind::AlreadyRequested => write!(f, "Delete of {object} has already been requested."),
            DeleteMessageKind::Reappeared { deleted_at } => {
                write!(f, "{object} has reappeared after having been deleted at {deleted_at}.")
            }
        }
    }
}

/// What to do about an object that is to be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// The message, if there is something to say.
    pub message: Option<DeleteMessage>,
    /// Whether its deletion is requested now.
    pub request: bool,
}

/// Decides about an object that is to be deleted. The live object decides, so that a new process says the same: one with a
/// `deletionTimestamp` is being deleted whoever requested that, and while updating, one without it is requested, even if
/// that was tried before, because a request that the API server accepted leaves no such object.
pub fn deletion(object: &ObjectKey, known: Known<'_>, observed: Observed<'_>, state: State) -> Deletion {
    use DeleteMessageKind as Kind;
    let request = state.deletes();
    let (kind, request) = match (known, observed) {
        (Known::Nothing, Observed::NotFound) => (Some(Kind::NotFound), false),
        (Known::Requested, Observed::NotFound) => (Some(Kind::Completed), false),
        (Known::Completed { .. }, Observed::NotFound) => (None, false),
        (_, Observed::Found { deletion_timestamp: Some(by) }) => (Some(Kind::Expected { by: by.to_owned() }), false),
        (Known::Nothing, Observed::Found { .. }) => (request.then_some(Kind::Requested), request),
        (Known::Requested, Observed::Found { .. }) => (Some(Kind::AlreadyRequested), request),
        (Known::Completed { at }, Observed::Found { .. }) => {
            (Some(Kind::Reappeared { deleted_at: at.to_owned() }), request)
        }
    };
    let message = kind.map(|kind| DeleteMessage { object: object.clone(), kind });
    Deletion { message, request }
}

/// Returns the error of a DELETE request that failed: `delete request for configmap "ns/a" failed, err=…`.
pub fn delete_failed(object: &ObjectKey, error: impl Display) -> String {
    format!("delete request for {} failed, err={error}", resource(object))
}

/// The reason of a manifest that failed, unless a better one is known.
pub const UPDATE_FAILED: &str = "UpdatePayloadFailed";

/// Returns the error of a manifest that failed: `Could not update deployment "ns/a" (3 of 148): …`. `position` is counted
/// from 1.
pub fn could_not_update(object: &ObjectKey, position: usize, total: usize, cause: impl Display) -> String {
    format!("Could not update {}: {cause}", task(object, position, total))
}

/// Returns the error of a run that was cancelled: how many nodes are not complete, and the first task of the first one.
pub fn incomplete(nodes: usize, first: &ObjectKey, position: usize, total: usize) -> String {
    format!("{nodes} incomplete task nodes, beginning with {}", task(first, position, total))
}

fn task(object: &ObjectKey, position: usize, total: usize) -> String {
    format!("{} ({position} of {total})", resource(object))
}

/// The condition `Upgradeable=False`, or one of its reasons.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upgradeable {
    /// The reason, as a word.
    pub reason: String,
    /// The explanation.
    pub message: String,
}

impl Upgradeable {
    /// Returns the reason of deletions that are in progress, with their sorted list; `None` if there are none.
    pub fn deletions<'a>(objects: impl IntoIterator<Item = &'a ObjectKey>) -> Option<Self> {
        let mut resources: Vec<_> = objects.into_iter().map(resource).collect();
        resources.sort();
        let message = format!(
            "Cluster minor or major version upgrades are not allowed while resource deletions are in progress; resources={}",
            resources.join(",")
        );
        (!resources.is_empty()).then(|| Self { reason: "ResourceDeletionInProgress".to_owned(), message })
    }

    /// Returns the reason of objects that are left to other managers.
    pub fn overrides() -> Self {
        Self {
            reason: "ClusterVersionOverridesSet".to_owned(),
            message:
                "Disabling ownership via cluster version overrides prevents upgrades between minor or major versions. \
                      Please remove overrides before requesting a minor or major version update."
                    .to_owned(),
        }
    }

    /// Combines reasons to the condition `Upgradeable=False`; without a reason there is no condition.
    pub fn all(mut reasons: Vec<Self>) -> Option<Self> {
        if reasons.len() < 2 {
            return reasons.pop();
        }
        let messages: Vec<_> = reasons.into_iter().map(|reason| reason.message).collect();
        let message = format!(
            "Cluster should not be upgraded between minor or major versions for multiple reasons:\n* {}",
            messages.join("\n* ")
        );
        Some(Self { reason: "MultipleReasons".to_owned(), message })
    }
}

#[cfg(test)]
mod tests {
    use billhook_objects::GroupKind;

    use super::*;

    const TIME: &str = "2026-11-22T10:00:00Z";
    const FOUND: Observed<'static> = Observed::Found { deletion_timestamp: None };
    const DELETING: Observed<'static> = Observed::Found { deletion_timestamp: Some(TIME) };
    const STATES: [State; 3] = [State::Initializing, State::Updating, State::Reconciling];

    fn key(kind: &str, namespace: Option<&str>, name: &str) -> ObjectKey {
        ObjectKey::new(GroupKind::new("", kind), namespace, name)
    }

    /// Asserts the message, and in which states a request is sent.
    fn check(known: Known<'_>, observed: Observed<'_>, message: &str, while_updating: bool) {
        for state in STATES {
            let Deletion { message: found, request } =
                deletion(&key("ConfigMap", Some("ns"), "name"), known, observed, state);
            let found = found.map(|message| message.to_string()).unwrap_or_default();
            assert_eq!((found.as_str(), request), (message, while_updating && state == State::Updating), "{state:?}");
        }
    }

    #[test]
    fn nothing_known_and_not_found() {
        let message = "configmap \"ns/name\" not found. It either has already been removed or it has never been installed \
                       on this cluster.";
        check(Known::Nothing, Observed::NotFound, message, false);
    }

    #[test]
    fn nothing_known_and_found_is_requested_while_updating_only() {
        let object = key("ConfigMap", Some("ns"), "name");
        for state in STATES {
            let found = deletion(&object, Known::Nothing, FOUND, state);
            assert_eq!(found.request, state == State::Updating);
            let message = found.message.map(|message| message.to_string());
            let expected = "Delete requested for configmap \"ns/name\".";
            assert_eq!(message.as_deref(), Some(expected).filter(|_| state == State::Updating));
        }
    }

    #[test]
    fn requested_and_not_found_is_completed() {
        check(Known::Requested, Observed::NotFound, "Delete of configmap \"ns/name\" completed.", false);
    }

    #[test]
    fn requested_and_found_with_a_deletion_timestamp_is_expected() {
        let message = "Delete of configmap \"ns/name\" is expected by 2026-11-22T10:00:00Z.";
        check(Known::Requested, DELETING, message, false);
    }

    #[test]
    fn requested_and_found_without_a_deletion_timestamp_has_been_requested() {
        // The request did not reach the server, or the object is a new one: while updating it is sent again.
        check(Known::Requested, FOUND, "Delete of configmap \"ns/name\" has already been requested.", true);
    }

    #[test]
    fn completed_and_found_has_reappeared_and_is_deleted_again_while_updating() {
        let message = "configmap \"ns/name\" has reappeared after having been deleted at 2026-11-22T10:00:00Z.";
        check(Known::Completed { at: TIME }, FOUND, message, true);
    }

    #[test]
    fn completed_and_not_found_needs_no_message() {
        check(Known::Completed { at: TIME }, Observed::NotFound, "", false);
    }

    #[test]
    fn disagreement_the_deletion_timestamp_of_the_live_object_decides() {
        let message = "Delete of configmap \"ns/name\" is expected by 2026-11-22T10:00:00Z.";
        check(Known::Nothing, DELETING, message, false);
        check(Known::Completed { at: TIME }, DELETING, message, false);
    }

    #[test]
    fn disagreement_an_object_that_is_gone_is_a_success_with_a_warning() {
        let object = key("ConfigMap", None, "name");
        for state in STATES {
            let found = deletion(&object, Known::Nothing, Observed::NotFound, state);
            assert!(!found.request && found.message.is_some_and(|message| message.is_warning()));
        }
    }

    #[test]
    fn disagreement_an_installation_leaves_existing_objects_alone() {
        let found = deletion(&key("ConfigMap", None, "name"), Known::Nothing, FOUND, State::Initializing);
        assert_eq!(found, Deletion { message: None, request: false });
    }

    #[test]
    fn disagreement_deletions_in_progress_come_from_live_objects_and_none_left_removes_the_condition() {
        assert_eq!(Upgradeable::deletions([]), None);
        assert_eq!(Upgradeable::all(Vec::new()), None);
    }

    #[test]
    fn messages_name_objects_with_their_kind_in_lower_case() {
        assert_eq!(resource(&key("ClusterRoleBinding", None, "a")), "clusterrolebinding \"a\"");
        assert_eq!(resource(&key("Service", Some("foo"), "bar")), "service \"foo/bar\"");
    }

    #[test]
    fn errors_are_those_of_the_reference() {
        let object = key("Deployment", Some("ns"), "a");
        let failed = delete_failed(&object, "no");
        assert_eq!(failed, "delete request for deployment \"ns/a\" failed, err=no");
        assert_eq!(
            could_not_update(&object, 3, 148, &failed),
            "Could not update deployment \"ns/a\" (3 of 148): delete request for deployment \"ns/a\" failed, err=no"
        );
        assert_eq!(
            incomplete(2, &object, 3, 148),
            "2 incomplete task nodes, beginning with deployment \"ns/a\" (3 of 148)"
        );
    }

    #[test]
    fn upgradeable_lists_the_deletions_sorted() {
        let objects =
            [key("Service", Some("foo"), "bar"), key("Deployment", Some("b"), "x"), key("Namespace", None, "b")];
        let found = Upgradeable::deletions(&objects).unwrap();
        assert_eq!(found.reason, "ResourceDeletionInProgress");
        assert_eq!(
            found.message,
            "Cluster minor or major version upgrades are not allowed while resource deletions are in progress; \
             resources=deployment \"b/x\",namespace \"b\",service \"foo/bar\""
        );
        assert_eq!(Upgradeable::all(vec![found.clone()]), Some(found.clone()));
        let several = Upgradeable::all(vec![found.clone(), Upgradeable::overrides()]).unwrap();
        assert_eq!(several.reason, "MultipleReasons");
        assert_eq!(
            several.message,
            format!(
                "Cluster should not be upgraded between minor or major versions for multiple reasons:\n* {}\n* {}",
                found.message,
                Upgradeable::overrides().message
            )
        );
    }

    #[test]
    fn messages_serialize_as_data() {
        let by = TIME.to_owned();
        let message = DeleteMessage { object: key("ConfigMap", None, "a"), kind: DeleteMessageKind::Expected { by } };
        let text = serde_json::to_string(&message).unwrap();
        assert_eq!(
            text,
            r#"{"object":{"group":"","kind":"ConfigMap","name":"a"},"code":"expected","by":"2026-11-22T10:00:00Z"}"#
        );
        assert_eq!(serde_json::from_str::<DeleteMessage>(&text).unwrap(), message);
    }
}
