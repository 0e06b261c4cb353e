//! DELETE requests.

use std::time::Duration;

use billhook_objects::{ObjectKey, Uid};
use billhook_plan::Resource;
use billhook_policy::Propagation;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::{
    cluster::Cluster,
    counts::Verb,
    decode::Written,
    error::{Error, ErrorKind},
    recent_deletes::DeleteOutcome,
    request::{Call, Reply},
    url,
};

/// How long a DELETE is retried that conflicts with another write.
const RACE: Duration = Duration::from_secs(10);

/// How an object is deleted.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// Deletes the object only if it has this UID.
    pub uid: Option<Uid>,
    /// Deletes the object only if it has this version; whatever version it has if it is empty.
    pub resource_version: String,
    /// How dependents are treated.
    pub propagation: Propagation,
    /// The grace period in seconds, for kinds that have one; `None` for that of the object. Zero ends the grace period of a Pod:
    /// the server removes the Pod without waiting for its node.
    pub grace_period: Option<u64>,
    /// Runs admission without changing anything.
    pub dry_run: bool,
    /// If the answer to the request is lost, reads the object instead of sending the request again: an object that is gone
    /// or being deleted shows that the request took effect.
    pub read_if_lost: bool,
}

impl DeleteOptions {
    /// Returns the body of a request for an object that has this version.
    fn body(&self, resource_version: &str) -> String {
        let propagation = match self.propagation {
            Propagation::Background => "Background",
            Propagation::Foreground => "Foreground",
            Propagation::Orphan => "Orphan",
        };
        let mut body = json!({ "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation });
        if let Some(uid) = &self.uid {
            body["preconditions"] = json!({ "uid": uid });
        }
        if !resource_version.is_empty() {
            body["preconditions"]["resourceVersion"] = json!(resource_version);
        }
        if let Some(seconds) = self.grace_period {
            body["gracePeriodSeconds"] = json!(seconds);
        }
        if self.dry_run {
            body["dryRun"] = json!(["All"]);
        }
        body.to_string()
    }
}

/// The server's answer to a DELETE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeleteAnswer {
    /// The server answered with the object.
    Accepted {
        /// Its finalizers.
        finalizers: Vec<String>,
        /// Whether it has a `deletionTimestamp`. Without one it is gone or about to be, and the watch reports it.
        deletion: bool,
        /// The `deletionTimestamp`, in seconds since 1970 by the server's clock.
        deleted_at: Option<i64>,
    },
    /// The server answered with success only: the object was removed at once.
    Done,
    /// The object, or its kind, does not exist.
    NotFound,
    /// The object of this name has another UID.
    OtherUid,
    /// The object has another version, and was not deleted.
    Changed,
}

impl Cluster {
    /// Deletes an object. With a UID the request is safe to repeat.
    ///
    /// # Errors
    ///
    /// When the server rejects the request or does not answer.
    pub async fn delete(
        &self,
        resource: &Resource,
        key: &ObjectKey,
        options: &DeleteOptions,
    ) -> Result<DeleteAnswer, Error> {
        let uid = options.uid.as_ref().filter(|_| !options.dry_run);
        let pending = uid.map(|uid| PendingDelete::new(self, uid));
        let answer = self.request_deletion(resource, key, options).await;
        // An object with a `deletionTimestamp` remains for its finalizers, or a Pod for its grace period.
        let removed = matches!(
            answer,
            Ok(DeleteAnswer::Done
                | DeleteAnswer::NotFound
                | DeleteAnswer::OtherUid
                | DeleteAnswer::Accepted { deletion: false, .. })
        );
        if let (Some(mut pending), true) = (pending, removed) {
            pending.outcome = Some(DeleteOutcome::Removed);
        }
        answer
    }

    /// Sends the request; again if its answer was lost, and it took no effect.
    async fn request_deletion(
        &self,
        resource: &Resource,
        key: &ObjectKey,
        options: &DeleteOptions,
    ) -> Result<DeleteAnswer, Error> {
        let (mut reads_if_lost, mut version) = (options.read_if_lost, options.resource_version.as_str());
        let (begun, mut attempt) = (Instant::now(), 0);
        loop {
            let body = options.body(version);
            let call = |resource: &Resource| {
                let url = url::object(resource, key.namespace.as_deref(), &key.name);
                Call::new(Verb::Delete, format!("delete {key}"), url)
                    .body("application/json", body.clone())
                    .retry_lost(!reads_if_lost)
                    .also_retry(is_race, RACE)
            };
            let error = match self.send_about(resource, call).await {
                Ok(Some(reply)) => return accepted(&reply),
                Ok(None) => return Ok(DeleteAnswer::NotFound),
                Err(error) if error.is_about_emptied_namespace() => {
                    return self.being_deleted(resource, key, options).await;
                }
                Err(error) if error.is_about_uid() => return Ok(DeleteAnswer::OtherUid),
                Err(error) if error.is_about_version() => return Ok(DeleteAnswer::Changed),
                Err(error) if reads_if_lost && error.answer_lost() => error,
                Err(error) => return Err(error),
            };
            match self.effect(resource, key, options).await {
                Ok(Some(answer)) => return Ok(answer),
                // The request took no effect.
                Ok(None) if begun.elapsed() < self.inner.options.patience => sleep(self.backoff(attempt)).await,
                // Only another request can tell, which is safe because of its UID. The first one may have changed the version.
                Err(unread) if unread.code() == Some(403) => (reads_if_lost, version) = (false, ""),
                Ok(None) | Err(_) => return Err(error),
            }
            attempt += 1;
        }
    }

    /// Reads an object whose DELETE got no answer; none if the request took no effect.
    async fn effect(
        &self,
        resource: &Resource,
        key: &ObjectKey,
        options: &DeleteOptions,
    ) -> Result<Option<DeleteAnswer>, Error> {
        let Some(found) = self.get_meta(resource, key).await? else { return Ok(Some(DeleteAnswer::Done)) };
        if options.uid.as_ref().is_some_and(|uid| *uid != found.uid) {
            return Ok(Some(DeleteAnswer::OtherUid));
        }
        let accepted =
            DeleteAnswer::Accepted { finalizers: found.finalizers, deletion: true, deleted_at: found.deleted_at };
        Ok(found.deleting.then_some(accepted))
    }

    /// Reads an object whose DELETE failed because it is being deleted already: its finalizers and its `deletionTimestamp`
    /// are those that the answer to the first DELETE had.
    async fn being_deleted(
        &self,
        resource: &Resource,
        key: &ObjectKey,
        options: &DeleteOptions,
    ) -> Result<DeleteAnswer, Error> {
        let accepted = |finalizers: Vec<String>, deleted_at: Option<i64>| {
            Ok(DeleteAnswer::Accepted { finalizers, deletion: true, deleted_at })
        };
        match self.get_meta(resource, key).await {
            Ok(None) => Ok(DeleteAnswer::NotFound),
            Ok(Some(found)) if options.uid.as_ref().is_some_and(|uid| *uid != found.uid) => Ok(DeleteAnswer::OtherUid),
            Ok(Some(found)) => accepted(found.finalizers, found.deleted_at),
            // It is being deleted all the same; a watch may show the rest.
            Err(error) if *error.kind() == ErrorKind::Forbidden => accepted(Vec::new(), None),
            Err(error) => Err(error),
        }
    }
}

fn accepted(reply: &Reply) -> Result<DeleteAnswer, Error> {
    let Written { kind, metadata }: Written = reply.json()?;
    if kind.as_deref() == Some("Status") {
        return Ok(DeleteAnswer::Done);
    }
    Ok(DeleteAnswer::Accepted {
        finalizers: metadata.finalizers.unwrap_or_default(),
        deletion: metadata.deletion_timestamp.is_some(),
        deleted_at: metadata.deletion_timestamp.and_then(|time| time.seconds),
    })
}

/// A DELETE that is in flight: a watch by labels that sees an event of its object waits for the answer. Dropping it
/// records the outcome, even if the caller stops waiting.
struct PendingDelete<'a> {
    cluster: &'a Cluster,
    uid: &'a Uid,
    outcome: Option<DeleteOutcome>,
}

impl<'a> PendingDelete<'a> {
    fn new(cluster: &'a Cluster, uid: &'a Uid) -> Self {
        cluster.inner.deletes.record(uid, Some(DeleteOutcome::Pending));
        Self { cluster, uid, outcome: None }
    }
}

impl Drop for PendingDelete<'_> {
    fn drop(&mut self) {
        self.cluster.inner.deletes.record(self.uid, self.outcome);
    }
}

/// Returns whether a DELETE conflicts with another write, so that it may succeed at once.
fn is_race(error: &Error) -> bool {
    error.code() == Some(409)
        && !error.is_about_uid()
        && !error.is_about_version()
        && !error.is_about_emptied_namespace()
}
