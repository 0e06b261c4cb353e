//! What a watch is given at its start, and what it reports.

use billhook_objects::{ObjectKey, Uid};
use billhook_plan::Observed;
use serde_json::Value;

/// What a caller knows before a watch starts: the answer of a list.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Where the watch continues. Without it, the watch starts with a list of its own.
    pub resource_version: Option<String>,
    /// The objects of the list: namespace, name and UID. Those that no longer exist are reported as gone.
    pub objects: Vec<(Option<String>, String, Uid)>,
}

/// A change that [`Cluster::watch`](crate::Cluster::watch) reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<T = Observed> {
    /// An object was added or modified, or no longer has the query's labels. May be reported twice.
    Present(T),
    /// The API server has confirmed that this object is gone: by a DELETED event, or by its absence from a list.
    Gone {
        /// The namespace.
        namespace: Option<String>,
        /// The name.
        name: String,
        /// The UID of the object of that name.
        uid: Uid,
    },
    /// The kind is no longer served (its CRD was deleted). All known objects were reported as gone; the stream ends.
    KindGone,
    /// The server does not answer. Reported once per outage; the watch keeps retrying.
    Away(String),
    /// The server answers again, or watching is allowed again, and no change was missed.
    Back,
    /// Watching is forbidden: lists or single reads replace the watch, every 200 ms to 2 s. Reported once, and once more
    /// for a list and for a read that is forbidden, too, until a retry of the watch succeeds; it is retried at least every 30 s.
    PollOnly(String),
}

/// A change that [`Cluster::watch_objects`](crate::Cluster::watch_objects) reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectChange<T = Value> {
    /// An object exists, or has changed.
    Present(T),
    /// An object is gone.
    Gone(ObjectKey),
}
