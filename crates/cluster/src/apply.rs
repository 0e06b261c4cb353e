//! Server-side apply, and the answer that all writes share.

use std::time::Duration;

use billhook_objects::{ObjectKey, Uid, wellknown::FIELD_MANAGER};
use billhook_plan::Resource;
use http::StatusCode;
use serde_json::Value;

use crate::{
    cluster::Cluster,
    counts::Verb,
    decode::{JSON, META, Written},
    error::{Error, ErrorKind, object_name},
    request::{Call, Reply},
    url,
};

/// How long a write is retried because its kind is not served: after a CRD is Established its endpoint may lag behind.
pub(crate) const NEW_KIND: Duration = Duration::from_secs(10);

/// How an object is applied.
#[derive(Clone, Debug, Default)]
pub struct ApplyOptions {
    /// Takes over fields that other managers own.
    pub force_conflicts: bool,
    /// Runs validation and admission without changing anything.
    pub dry_run: bool,
}

/// The object after a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Its UID.
    pub uid: Uid,
    /// Its version after the write. Empty for the dry run of a creation, which stores nothing.
    pub resource_version: String,
    /// Whether the write created it (HTTP 201). It is false if the answer was lost and a retry found the object.
    pub created: bool,
    /// Whether it has a `deletionTimestamp`, so that it will be removed.
    pub deleting: bool,
    /// Its finalizers after the write.
    pub finalizers: Vec<String>,
    /// The whole object; only after a dry run, since no other caller needs it.
    pub object: Option<Value>,
}

impl Cluster {
    /// Applies an object by server-side apply, as field manager `billhook` and with strict field validation, as kubectl
    /// does. The manifest is JSON text and is sent unchanged; the key gives the namespace and name.
    ///
    /// # Errors
    ///
    /// When the object is invalid, other managers own its fields, admission rejects it, its namespace does not exist, or
    /// the server does not answer. A kind that is not served is retried for up to ten seconds: its CRD may be new.
    pub async fn apply(
        &self,
        resource: &Resource,
        key: &ObjectKey,
        manifest: &str,
        options: &ApplyOptions,
    ) -> Result<Applied, Error> {
        let (namespace, name) = (key.namespace.as_deref(), key.name.as_str());
        require_name(resource, name)?;
        let url = url::with_query(
            &url::object(resource, namespace, name),
            &[
                ("fieldManager", FIELD_MANAGER),
                ("fieldValidation", "Strict"),
                ("force", if options.force_conflicts { "true" } else { "" }),
                ("dryRun", if options.dry_run { "All" } else { "" }),
            ],
        );
        let what = format!("apply {}", object_name(resource, namespace, name));
        let call = Call::new(Verb::Patch, what, url)
            .accept(answer(options.dry_run))
            .body("application/apply-patch+yaml", manifest.as_bytes().to_vec())
            .also_retry(|error| *error.kind() == ErrorKind::NotServed || is_race(error), NEW_KIND);
        self.send_write(resource, &call).await
    }

    /// Sends a write and decodes the object of the answer.
    pub(crate) async fn send_write(&self, resource: &Resource, call: &Call) -> Result<Applied, Error> {
        let reply = self.send(call).await.map_err(|error| without_secret_values(resource, error))?;
        applied(&call.what, &reply, call.accept == JSON)
    }
}

/// Returns what a write asks for: the metadata of the object, or all of it in a dry run.
pub(crate) fn answer(dry_run: bool) -> &'static str {
    if dry_run { JSON } else { META }
}

/// Decodes the answer to a write, which is metadata or the whole object.
pub(crate) fn applied(what: &str, reply: &Reply, whole: bool) -> Result<Applied, Error> {
    let metadata = reply.json::<Written>()?.metadata;
    let Some(uid) = metadata.uid else {
        return Err(Error::new(what, ErrorKind::Other).because("the answer has no uid"));
    };
    let object = if whole { Some(reply.json()?) } else { None };
    Ok(Applied {
        uid,
        resource_version: metadata.resource_version.unwrap_or_default(),
        created: reply.status == StatusCode::CREATED,
        deleting: metadata.deletion_timestamp.is_some(),
        finalizers: metadata.finalizers.unwrap_or_default(),
        object,
    })
}

/// The API server may quote values of a Secret in its answer to a write.
pub(crate) fn without_secret_values(resource: &Resource, error: Error) -> Error {
    if resource.kind.is("", "Secret") { error.without_values() } else { error }
}

/// Returns an error for an object without a name, which could not be found again.
pub(crate) fn require_name(resource: &Resource, name: &str) -> Result<(), Error> {
    if name.is_empty() {
        let error = Error::new(format!("apply a {}", resource.kind), ErrorKind::Invalid);
        return Err(error.because("it has no metadata.name; generateName is not supported"));
    }
    Ok(())
}

/// Returns whether an apply got a 409 because the object changed while the server merged, and not for owned fields.
fn is_race(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Conflict(fields) if fields.is_empty())
        && error.status().is_some_and(|status| status.reason == "Conflict")
}
