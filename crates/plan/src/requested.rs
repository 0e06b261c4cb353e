//! What was found of the objects that manifests request to delete.

use billhook_objects::ObjectKey;
use serde::{Deserialize, Serialize};

/// An object whose manifest requests its deletion, or that of an earlier version did and this one has none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestedDeletion {
    /// The object.
    pub object: ObjectKey,
    /// What was found of it.
    #[serde(flatten)]
    pub state: DeletionState,
    /// Whether it is in the record of the release. If not, it was never applied, or its deletion is verified.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recorded: bool,
    /// Whether an earlier apply requested its deletion, which is not verified yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub requested: bool,
    /// Whether no manifest requests its deletion any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dropped: bool,
    /// When an earlier operation verified its deletion, in RFC 3339 format. If it exists, it has reappeared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_before: Option<String>,
}

/// What was found of an object to delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum DeletionState {
    /// It does not exist, or the cluster does not serve its kind.
    NotFound,
    /// It is being deleted already: no request is sent.
    Deleting {
        /// Its `deletionTimestamp`, in seconds since 1970 by the server's clock.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deleted_at: Option<i64>,
    },
    /// A step of the plan requests its deletion.
    ToDelete,
    /// It exists, and the plan does not delete it, because the graph of tasks deletes nothing.
    Left,
    /// It exists, and its annotations keep it.
    Kept,
}
