//! Watches that end only when their kind is no longer served: they reconnect, list again after a gap, and report changes.
//!
//! [`machine`] decides without I/O what an answer means and what to do next, [`objects`] keeps the objects that are known,
//! and [`driver`] sends the requests.

mod change;
mod check;
mod driver;
mod events;
mod machine;
mod objects;
mod parts;

use std::sync::{Arc, atomic::AtomicBool};

use billhook_objects::{GroupKind, ObjectKey};
use billhook_plan::Query;
use futures::{Stream, StreamExt as _, stream};
use serde::de::DeserializeOwned;

pub use self::change::{Change, Known, ObjectChange};
use self::{driver::Driver, parts::Watch};
use crate::{
    cluster::Cluster,
    decode::{Full, Meta, Shape},
    request::unreadable,
};

impl Cluster {
    /// Watches the metadata of a query's objects, starting from what is `known`.
    ///
    /// An object that was recreated with another UID is reported as gone first; one that only lost the query's labels is
    /// not. Within one namespace, an object that another client recreates under the name of one that was gone is reported
    /// even without the labels. Dropping the stream ends the request.
    pub fn watch(&self, query: &Query, known: Known) -> impl Stream<Item = Change> + Send + Unpin + use<> {
        changes(Driver::<Meta>::new(self, query, known)).map(|change| match change {
            Change::Present(Meta(observed)) => Change::Present(observed),
            Change::Gone { namespace, name, uid } => Change::Gone { namespace, name, uid },
            Change::KindGone => Change::KindGone,
            Change::Away(message) => Change::Away(message),
            Change::Back => Change::Back,
            Change::PollOnly(message) => Change::PollOnly(message),
        })
    }

    /// Watches whole objects, decoded into `T`: first all objects of a list, then the changes.
    ///
    /// The items of a list have no `kind` and `apiVersion`. Outages and missing rights are waited out; the stream ends when the
    /// kind is no longer served. An object that cannot be decoded is skipped, so that it does not hide the others. All of that is
    /// logged as a warning, unless others choose the server.
    pub fn watch_objects<T>(&self, query: &Query) -> impl Stream<Item = ObjectChange<T>> + Send + Unpin + use<T>
    where
        T: DeserializeOwned + Send + 'static,
    {
        self.watch_objects_telling(query, Arc::default())
    }

    /// Watches whole objects like [`watch_objects`](Self::watch_objects), and sets `current` while they are known as they are
    /// now: from the first list on, except during an outage and while the watch is forbidden.
    pub fn watch_objects_telling<T>(
        &self,
        query: &Query,
        current: Arc<AtomicBool>,
    ) -> impl Stream<Item = ObjectChange<T>> + Send + Unpin + use<T>
    where
        T: DeserializeOwned + Send + 'static,
    {
        let kind = query.resource.kind.clone();
        // What a server says that somebody else chooses does not belong into the log: it may say much, and often.
        let foreign = self.inner.options.foreign.is_some();
        let driver = Driver::<Full<T>>::new(self, query, Known::default()).telling(current);
        Box::pin(changes(driver).filter_map(move |change| {
            std::future::ready(match change {
                Change::Present(full) => decoded(&kind, full, foreign).map(ObjectChange::Present),
                Change::Gone { namespace, name, .. } => {
                    Some(ObjectChange::Gone(ObjectKey { kind: kind.clone(), namespace, name }))
                }
                Change::Away(_) | Change::PollOnly(_) | Change::Back if foreign => None,
                Change::Away(problem) | Change::PollOnly(problem) => {
                    tracing::warn!(%kind, "the watch is interrupted: {problem}");
                    None
                }
                Change::Back => {
                    tracing::info!(%kind, "the watch is running again");
                    None
                }
                Change::KindGone => None,
            })
        }))
    }
}

/// Returns the decoded object. The warning about a failure gives the position only, because the object may hold secrets.
fn decoded<T>(kind: &GroupKind, Full { meta, value }: Full<T>, foreign: bool) -> Option<T> {
    let problem = match value {
        Ok(value) => return Some(value),
        Err(_) if foreign => return None,
        Err(problem) => unreadable(format!("read {}", meta.key(kind)), &problem),
    };
    tracing::warn!("skipped an object: failed to {problem}");
    None
}

fn changes<S: Shape>(driver: Driver<S>) -> impl Stream<Item = Change<S>> + Send + Unpin {
    Box::pin(stream::unfold(Watch::One(Box::new(driver)), Watch::next))
}
