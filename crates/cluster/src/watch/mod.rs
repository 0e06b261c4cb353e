//! Watches that end only when their kind does: they reconnect, list again after a gap, and say what changed.

mod judge;
mod lines;
mod watcher;

use billhook_objects::{GroupKind, ObjectKey, Uid};
use billhook_plan::{Observed, Query};
use futures::{Stream, StreamExt as _, stream};
use serde::de::DeserializeOwned;
use serde_json::Value;

use self::watcher::{Raw, Watcher};
use crate::{
    cluster::Cluster,
    transport::unreadable,
    wire::{Full, Meta},
};

/// What is known before a watch begins: the answer of a list.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Where the watch goes on from; without it the watch begins with a list of its own.
    pub resource_version: Option<String>,
    /// The objects of the list: namespace, name and UID. What of them is missing later is reported as gone.
    pub objects: Vec<(Option<String>, String, Uid)>,
}

/// What a watch has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// An object was added or modified, or no longer answers to the query's labels. It may be said twice.
    Present(Observed),
    /// The API server said that this object is gone: a DELETED event, or its absence from a list.
    Gone {
        /// The namespace.
        namespace: Option<String>,
        /// The name.
        name: String,
        /// Which object of that name.
        uid: Uid,
    },
    /// The kind is not served any more (its CRD is gone). Every known object was reported gone before; the stream ends.
    KindGone,
    /// The server does not answer; said once an outage. The watch goes on trying.
    Away(String),
    /// The server answers again, or watching is permitted again, and nothing was missed.
    Back,
    /// Watching is not permitted: lists or single reads take its place, every 200 ms to 2 s. Said once, until it is
    /// permitted again, which is tried every 30 s at the latest.
    PollOnly(String),
}

/// What [`Cluster::watch_objects`] has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectChange<T = Value> {
    /// An object is there, or has changed.
    Present(T),
    /// An object is gone.
    Gone(ObjectKey),
}

impl Cluster {
    /// Watches a query's objects by their metadata, from where `known` was read.
    ///
    /// An object that reappears under its name with another UID is reported gone first; one that merely lost the
    /// labels of the query is not. Within one namespace an object that somebody makes anew under such a name is said
    /// although it lacks the labels. Dropping the stream ends the request.
    pub fn watch(&self, query: &Query, known: Known) -> impl Stream<Item = Change> + Send + Unpin + use<> {
        stream_of(Watcher::<Meta>::new(self.clone(), query.clone(), known)).map(|raw| match raw {
            Raw::Present(Meta(observed)) => Change::Present(observed),
            Raw::Gone { namespace, name, uid } => Change::Gone { namespace, name, uid },
            Raw::KindGone => Change::KindGone,
            Raw::Away(message) => Change::Away(message),
            Raw::Back => Change::Back,
            Raw::PollOnly(message) => Change::PollOnly(message),
        })
    }

    /// Watches whole objects, decoded into `T`: first all that a list shows, then what changes.
    ///
    /// The items of a list carry no `kind` and `apiVersion` of their own. Outages and missing rights are waited out with a
    /// warning in the log; the stream ends when the kind is gone. An object that cannot be decoded is left out, with a
    /// warning, too: it must not hide all others.
    pub fn watch_objects<T>(&self, query: &Query) -> impl Stream<Item = ObjectChange<T>> + Send + Unpin + use<T>
    where
        T: DeserializeOwned + Send + 'static,
    {
        let kind = query.resource.kind.clone();
        let watcher = Watcher::<Full<T>>::new(self.clone(), query.clone(), Known::default());
        Box::pin(stream_of(watcher).filter_map(move |raw| {
            std::future::ready(match raw {
                Raw::Present(full) => decoded(&kind, full).map(ObjectChange::Present),
                Raw::Gone { namespace, name, .. } => {
                    Some(ObjectChange::Gone(ObjectKey { kind: kind.clone(), namespace, name }))
                }
                Raw::Away(problem) | Raw::PollOnly(problem) => {
                    tracing::warn!(%kind, "not watched for now: {problem}");
                    None
                }
                Raw::Back => {
                    tracing::info!(%kind, "watched again");
                    None
                }
                Raw::KindGone => None,
            })
        }))
    }
}

/// What the caller needs of an object. What does not decode is named by its place only: it may hold secrets.
fn decoded<T>(kind: &GroupKind, Full { meta, value }: Full<T>) -> Option<T> {
    let problem = match value {
        Ok(value) => return Some(value),
        Err(problem) => unreadable(format!("read {}", meta.key(kind)), &problem),
    };
    tracing::warn!("left out: failed to {problem}");
    None
}

fn stream_of<S: crate::wire::Shape>(watcher: Watcher<S>) -> impl Stream<Item = Raw<S>> + Send + Unpin {
    Box::pin(stream::unfold(watcher, async |mut watcher| watcher.next().await.map(|raw| (raw, watcher))))
}
