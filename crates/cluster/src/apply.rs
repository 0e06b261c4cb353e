//! Server-side apply, and the answer that all writes share.

use std::time::Duration;

use billhook_objects::{ObjectKey, Uid, wellknown::FIELD_MANAGER};
use billhook_plan::{Annotations, Fingerprint, Resource};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

use crate::{
    cluster::Cluster,
    counts::Verb,
    decode::{JSON, META, Written},
    error::{Error, ErrorKind, object_name},
    managed::{ManagedEntry, tracked},
    request::{Call, Reply},
    url,
};

/// How long a write is retried because its kind is not served: after a CRD is Established its endpoint may lag behind.
pub(crate) const NEW_KIND: Duration = Duration::from_secs(10);

/// A `resourceVersion` that no object has. An applied object with it is only created: the API server drops it from a new
/// object, and rejects the update of an existing one, whose version is another.
const NO_VERSION: &str = "9223372036854775807";

/// How an object is applied.
#[derive(Clone, Copy, Debug)]
pub struct ApplyOptions<'a> {
    /// The subresource to apply to, such as `status`; none for the object itself.
    pub subresource: Option<&'a str>,
    /// The manager that owns the applied fields.
    pub field_manager: &'a str,
    /// Takes over fields that other managers own.
    pub force_conflicts: bool,
    /// Runs validation and admission without changing anything.
    pub dry_run: bool,
    /// The manifest has a `resourceVersion`: if the object has another one, trying again does not help.
    pub versioned: bool,
}

impl Default for ApplyOptions<'_> {
    fn default() -> Self {
        Self {
            subresource: None,
            field_manager: FIELD_MANAGER,
            force_conflicts: false,
            dry_run: false,
            versioned: false,
        }
    }
}

/// The object after a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Its UID.
    pub uid: Uid,
    /// Its version after the write. Empty for the dry run of a creation, which stores nothing.
    pub resource_version: String,
    /// Its state after the write, apart from its status; none if no write was needed, or the answer has no `managedFields`.
    pub fingerprint: Option<Fingerprint>,
    /// Whether the write created it (HTTP 201). It is false if the answer was lost and a retry found the object.
    pub created: bool,
    /// Whether it was taken over from another client that created it in the meantime.
    pub adopted: bool,
    /// Whether it has a `deletionTimestamp`, so that it will be removed.
    pub deleting: bool,
    /// Its finalizers after the write.
    pub finalizers: Vec<String>,
    /// Its annotations after the write, as far as they matter.
    pub annotations: Annotations,
    /// The whole object; only after a dry run, since no other caller needs it.
    pub object: Option<Value>,
}

impl Cluster {
    /// Applies an object by server-side apply, whether it exists or not, with strict field validation, as kubectl does. The
    /// manifest is JSON text and is sent unchanged; the key gives the namespace and name. Applying to a subresource does not
    /// create the object.
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
        options: &ApplyOptions<'_>,
    ) -> Result<Applied, Error> {
        require_name(resource, &key.name)?;
        let call = apply_call(resource, key, manifest.as_bytes().to_vec(), options);
        let call = match options.versioned {
            true => call.also_retry(|error| *error.kind() == ErrorKind::NotServed, NEW_KIND),
            false => call.also_retry(|error| *error.kind() == ErrorKind::NotServed || is_race(error), NEW_KIND),
        };
        self.send_write(resource, &call).await
    }

    /// Like [`apply`](Self::apply), but only if the object has this UID, or does not exist if there is none. Otherwise the
    /// API server answers 409 without owned fields, or 422 about the UID.
    pub(crate) async fn apply_expected(
        &self,
        resource: &Resource,
        key: &ObjectKey,
        manifest: &str,
        expected: Option<&Uid>,
        options: &ApplyOptions<'_>,
    ) -> Result<Applied, Error> {
        let what = format!("apply {}", object_name(resource, key.namespace.as_deref(), &key.name));
        let body = with_precondition(manifest, expected).map_err(|error| unreadable_manifest(&what, &error))?;
        let call = apply_call(resource, key, body.into_bytes(), options)
            .also_retry(|error| *error.kind() == ErrorKind::NotServed, NEW_KIND);
        let mut applied = self.send_write(resource, &call).await?;
        if applied.resource_version == NO_VERSION {
            // A dry run returns what was sent.
            applied.resource_version.clear();
        }
        Ok(applied)
    }

    /// Sends a write and decodes the object of the answer.
    pub(crate) async fn send_write(&self, resource: &Resource, call: &Call) -> Result<Applied, Error> {
        let reply = self.send(call).await.map_err(|error| without_secret_values(resource, error))?;
        applied(&call.what, &reply, call.accept == JSON)
    }
}

fn apply_call(resource: &Resource, key: &ObjectKey, body: Vec<u8>, options: &ApplyOptions<'_>) -> Call {
    let (namespace, name) = (key.namespace.as_deref(), key.name.as_str());
    let (url, object) = (url::object(resource, namespace, name), object_name(resource, namespace, name));
    let (url, what) = match options.subresource {
        Some(subresource) => (format!("{url}/{subresource}"), format!("apply the {subresource} of {object}")),
        None => (url, format!("apply {object}")),
    };
    let url = url::with_query(
        &url,
        &[
            ("fieldManager", options.field_manager),
            ("fieldValidation", "Strict"),
            ("force", if options.force_conflicts { "true" } else { "" }),
            ("dryRun", if options.dry_run { "All" } else { "" }),
        ],
    );
    Call::new(Verb::Patch, what, url).accept(answer(options.dry_run)).body("application/apply-patch+yaml", body)
}

/// Returns a manifest whose application fails unless the object has this UID, or does not exist if there is none. Only its
/// metadata is parsed into values.
fn with_precondition(manifest: &str, expected: Option<&Uid>) -> Result<String, serde_json::Error> {
    #[derive(Deserialize)]
    struct Object<'m> {
        #[serde(borrow)]
        metadata: &'m RawValue,
    }
    let written = serde_json::from_str::<Object<'_>>(manifest)?.metadata.get();
    let mut metadata: Map<String, Value> = serde_json::from_str(written)?;
    let (field, value) = expected.map_or(("resourceVersion", NO_VERSION), |uid| ("uid", uid.as_str()));
    metadata.insert(field.to_owned(), value.into());
    let start = written.as_ptr().addr() - manifest.as_ptr().addr();
    let (before, after) = (&manifest[..start], &manifest[start + written.len()..]);
    Ok([before, &serde_json::to_string(&metadata)?, after].concat())
}

/// Makes an error for a manifest that is not a JSON object. serde's own message would quote it, and it may hold secrets.
pub(crate) fn unreadable_manifest(what: &str, error: &serde_json::Error) -> Error {
    let place = format!("the manifest cannot be read (line {}, column {})", error.line(), error.column());
    Error::new(what, ErrorKind::Invalid).because(place)
}

/// Returns what a write asks for: the metadata of the object, or all of it in a dry run.
pub(crate) fn answer(dry_run: bool) -> &'static str {
    if dry_run { JSON } else { META }
}

/// Decodes the answer to a write, which is metadata or the whole object.
pub(crate) fn applied(what: &str, reply: &Reply, whole: bool) -> Result<Applied, Error> {
    let metadata = reply.json::<Written<Vec<ManagedEntry>>>()?.metadata;
    let Some(uid) = metadata.uid else {
        return Err(Error::new(what, ErrorKind::Other).because("the answer has no uid"));
    };
    let object = if whole { Some(reply.json()?) } else { None };
    Ok(Applied {
        uid,
        resource_version: metadata.resource_version.unwrap_or_default(),
        fingerprint: metadata.managed_fields.map(|entries| tracked(metadata.generation, &entries).fingerprint),
        created: reply.status == StatusCode::CREATED,
        adopted: false,
        deleting: metadata.deletion_timestamp.is_some(),
        finalizers: metadata.finalizers.unwrap_or_default(),
        annotations: metadata.annotations.unwrap_or_default(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_precondition_is_added_to_the_metadata_of_the_object() {
        let uid = Uid::new("u");
        for (manifest, absent, present) in [
            (
                r#"{"kind":"A","metadata":{"name":"x"},"z":{"metadata":{"name":"x"}}}"#,
                r#"{"kind":"A","metadata":{"name":"x","resourceVersion":"9223372036854775807"},"z":{"metadata":{"name":"x"}}}"#,
                r#"{"kind":"A","metadata":{"name":"x","uid":"u"},"z":{"metadata":{"name":"x"}}}"#,
            ),
            (
                r#"{"a":{"metadata":{}}, "metadata" : {"uid":"v"} }"#,
                r#"{"a":{"metadata":{}}, "metadata" : {"resourceVersion":"9223372036854775807","uid":"v"} }"#,
                r#"{"a":{"metadata":{}}, "metadata" : {"uid":"u"} }"#,
            ),
        ] {
            assert_eq!(with_precondition(manifest, None).unwrap(), absent);
            assert_eq!(with_precondition(manifest, Some(&uid)).unwrap(), present);
        }
        for invalid in ["", "{}", r#"{"metadata":null}"#, r#"{"metadata":"x"}"#] {
            with_precondition(invalid, None).unwrap_err();
        }
    }
}
