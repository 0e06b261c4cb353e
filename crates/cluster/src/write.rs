//! Writes: server-side apply and DELETE. POST, PUT and the other patches are in `modify`.

use std::time::Duration;

use billhook_objects::{ObjectKey, Uid, wellknown::FIELD_MANAGER};
use billhook_plan::Resource;
use billhook_policy::Propagation;
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;

use crate::{
    cluster::{Asked, Cluster},
    error::{Error, ErrorKind},
    fetch::named,
    path,
    transport::{Call, Reply, Verb},
    wire::META,
};

/// How long the endpoint of a kind may take to appear after its CRD became Established.
pub(crate) const NEW_KIND: Duration = Duration::from_secs(10);
/// How long a DELETE is repeated that met another write.
const RACE: Duration = Duration::from_secs(10);

/// How an object is deleted.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// Only if the object of this name has this UID.
    pub uid: Option<Uid>,
    /// How dependents are treated.
    pub propagation: Propagation,
    /// Ask admission, but change nothing.
    pub dry_run: bool,
}

/// What the server said to a DELETE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeleteAnswer {
    /// The server answered with the object.
    Accepted {
        /// Its finalizers.
        finalizers: Vec<String>,
        /// Whether it carries a `deletionTimestamp`. Without one it is gone, or about to be: the watch says so.
        deletion: bool,
    },
    /// The server answered with success alone: it was removed at once.
    Done,
    /// It is not there, nor perhaps its kind.
    NotFound,
    /// The object of this name is another one.
    OtherUid,
}

/// How an object is applied.
#[derive(Clone, Debug, Default)]
pub struct ApplyOptions {
    /// Take over fields that another manager owns.
    pub force_conflicts: bool,
    /// Ask validation and admission, but change nothing.
    pub dry_run: bool,
}

/// What the server made of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Which object it is.
    pub uid: Uid,
    /// Its version after the write.
    pub resource_version: String,
    /// Whether it was not there before (HTTP 201). After a lost answer the repeated request says no.
    pub created: bool,
    /// Whether it carries a `deletionTimestamp`: what was applied will go away.
    pub deleting: bool,
    /// Its finalizers after the write.
    pub finalizers: Vec<String>,
}

/// What is decoded of the answer to a write. A `Status` has an empty metadata.
#[derive(Deserialize)]
struct Written {
    kind: Option<String>,
    #[serde(default)]
    metadata: WrittenMeta,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenMeta {
    uid: Option<Uid>,
    resource_version: Option<String>,
    finalizers: Option<Vec<String>>,
    deletion_timestamp: Option<serde::de::IgnoredAny>,
}

impl Cluster {
    /// Deletes an object; a UID that was seen makes it safe to repeat.
    ///
    /// # Errors
    ///
    /// When the server refuses it, or does not answer.
    pub async fn delete(
        &self,
        resource: &Resource,
        key: &ObjectKey,
        options: &DeleteOptions,
    ) -> Result<DeleteAnswer, Error> {
        let propagation = match options.propagation {
            Propagation::Background => "Background",
            Propagation::Foreground => "Foreground",
            Propagation::Orphan => "Orphan",
        };
        let mut body = json!({ "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation });
        if let Some(uid) = &options.uid {
            body["preconditions"] = json!({ "uid": uid });
        }
        if options.dry_run {
            body["dryRun"] = json!(["All"]);
        }
        let body = body.to_string();
        let call = |resource: &Resource| {
            let url = path::object(resource, key.namespace.as_deref(), &key.name);
            Call::new(Verb::Delete, format!("delete {key}"), url)
                .body("application/json", body.clone())
                .also(|error| error.code() == Some(409) && !is_other_uid(error) && !is_emptied(error), RACE)
        };
        let uid = options.uid.as_ref().filter(|_| !options.dry_run);
        // The guard forgets it also where the caller gives up waiting for the answer.
        let asked = uid.map(|uid| Sending::new(self, uid));
        let answer = match self.send_about(resource, call).await {
            Ok(Some(reply)) => {
                let written: Written = reply.json()?;
                if written.kind.as_deref() == Some("Status") {
                    Ok(DeleteAnswer::Done)
                } else {
                    Ok(DeleteAnswer::Accepted {
                        finalizers: written.metadata.finalizers.unwrap_or_default(),
                        deletion: written.metadata.deletion_timestamp.is_some(),
                    })
                }
            }
            Ok(None) => Ok(DeleteAnswer::NotFound),
            Err(error) if is_emptied(&error) => Ok(DeleteAnswer::Accepted { finalizers: Vec::new(), deletion: true }),
            Err(error) if is_other_uid(&error) => Ok(DeleteAnswer::OtherUid),
            Err(error) => Err(error),
        };
        // What carries a `deletionTimestamp` stays for a while: for its finalizers, or a Pod for its grace period.
        let removed = matches!(
            answer,
            Ok(DeleteAnswer::Done
                | DeleteAnswer::NotFound
                | DeleteAnswer::OtherUid
                | DeleteAnswer::Accepted { deletion: false, .. })
        );
        if let (Some(asked), true) = (asked, removed) {
            asked.removed();
        }
        answer
    }

    /// Applies an object by server-side apply, as field manager `billhook` and with strict field validation, as kubectl
    /// does. The manifest is JSON text, and is sent as it is; the key says where it goes.
    ///
    /// # Errors
    ///
    /// When the object is not valid, other managers own its fields, admission refuses it, its namespace is not there, or
    /// the server does not answer. A kind that is not served is waited for up to ten seconds: its CRD may be new.
    pub async fn apply(
        &self,
        resource: &Resource,
        key: &ObjectKey,
        manifest: &str,
        options: &ApplyOptions,
    ) -> Result<Applied, Error> {
        let (namespace, name) = (key.namespace.as_deref(), key.name.as_str());
        named_at_all(resource, name)?;
        let url = path::with(
            &path::object(resource, namespace, name),
            &[
                ("fieldManager", FIELD_MANAGER),
                ("fieldValidation", "Strict"),
                ("force", if options.force_conflicts { "true" } else { "" }),
                ("dryRun", if options.dry_run { "All" } else { "" }),
            ],
        );
        let what = format!("apply {}", named(resource, namespace, name));
        let call = Call::new(Verb::Patch, what, url)
            .accept(META)
            .body("application/apply-patch+yaml", manifest.as_bytes().to_vec())
            .also(|error| error.kind == ErrorKind::NotServed || is_race(error), NEW_KIND);
        self.written(resource, &call).await
    }

    /// Sends a write, and reads of the answer which object it is now.
    pub(crate) async fn written(&self, resource: &Resource, call: &Call) -> Result<Applied, Error> {
        let reply = match self.send(call).await {
            Ok(reply) => reply,
            Err(error) if resource.kind.is("", "Secret") => return Err(error.without_values()),
            Err(error) => return Err(error),
        };
        applied(&call.what, &reply)
    }
}

/// Which object the answer to a write holds.
pub(crate) fn applied(what: &str, reply: &Reply) -> Result<Applied, Error> {
    let metadata = reply.json::<Written>()?.metadata;
    let (Some(uid), Some(resource_version)) = (metadata.uid, metadata.resource_version) else {
        return Err(Error::new(what, ErrorKind::Other).because("the answer has no uid or resourceVersion"));
    };
    Ok(Applied {
        uid,
        resource_version,
        created: reply.status == StatusCode::CREATED,
        deleting: metadata.deletion_timestamp.is_some(),
        finalizers: metadata.finalizers.unwrap_or_default(),
    })
}

/// A DELETE on its way. A watch by labels that hears of its object meanwhile waits for the answer.
struct Sending<'a> {
    cluster: &'a Cluster,
    uid: &'a Uid,
    came_to: Option<Asked>,
}

impl<'a> Sending<'a> {
    fn new(cluster: &'a Cluster, uid: &'a Uid) -> Self {
        cluster.note_asked(uid, Some(Asked::Sent));
        Self { cluster, uid, came_to: None }
    }

    fn removed(mut self) {
        self.came_to = Some(Asked::Removed);
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        self.cluster.note_asked(self.uid, self.came_to);
    }
}

/// An object without a name could not be found again.
pub(crate) fn named_at_all(resource: &Resource, name: &str) -> Result<(), Error> {
    if name.is_empty() {
        let error = Error::new(format!("apply a {}", resource.kind), ErrorKind::Invalid);
        return Err(error.because("it has no metadata.name; generateName is not supported"));
    }
    Ok(())
}

/// A 409 of an apply that is no conflict of managers: the object changed while the server merged.
fn is_race(error: &Error) -> bool {
    matches!(&error.kind, ErrorKind::Conflict(fields) if fields.is_empty())
        && error.status().is_some_and(|status| status.reason == "Conflict")
}

/// The UID precondition does not hold (k8s.io/apiserver registry/rest/delete.go and storage/interfaces.go).
fn is_other_uid(error: &Error) -> bool {
    error.status().is_some_and(|status| {
        let message = status.message.to_lowercase();
        status.code == 409 && message.contains("uid") && message.contains("precondition")
    })
}

/// What some servers say when a Namespace is deleted once more.
fn is_emptied(error: &Error) -> bool {
    error
        .status()
        .is_some_and(|s| s.code == 409 && s.message.contains("ensuring all content is removed from this namespace"))
}
