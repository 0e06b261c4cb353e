//! Patches other than server-side apply.

use billhook_objects::{ObjectKey, Uid, wellknown::FIELD_MANAGER};
use billhook_plan::Resource;
use serde_json::{Value, json};

use crate::{
    apply::{Applied, answer, applied, without_secret_values},
    cluster::Cluster,
    counts::Verb,
    decode::Managed,
    error::{Error, object_name},
    managed::not_as_seen,
    request::Call,
    url,
};

/// A patch of an object.
#[derive(Clone, Copy, Debug)]
pub struct Patch<'a> {
    /// The subresource to patch, such as `status`; none for the object itself.
    pub subresource: Option<&'a str>,
    /// The format of the body.
    pub kind: PatchKind,
    /// The patch.
    pub body: &'a Value,
}

/// The format of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// A JSON merge patch (RFC 7386): sets the fields that it names, removes those that are null, replaces lists.
    Merge,
    /// A JSON patch (RFC 6902): a list of operations.
    Json,
}

impl Cluster {
    /// Patches an object or one of its subresources; none if the object or its kind does not exist.
    ///
    /// Unknown fields are rejected, except in a subresource: a controller may write more fields of a status than the
    /// installed CRD has.
    ///
    /// # Errors
    ///
    /// When the patch does not apply, admission rejects it, or the server does not answer.
    pub async fn patch(
        &self,
        resource: &Resource,
        key: &ObjectKey,
        patch: &Patch<'_>,
    ) -> Result<Option<Applied>, Error> {
        self.patch_as(FIELD_MANAGER, resource, key, patch, false).await
    }

    /// Like [`patch`](Self::patch), and the answer contains the whole object.
    ///
    /// # Errors
    ///
    /// As [`patch`](Self::patch).
    pub async fn patch_and_read(
        &self,
        resource: &Resource,
        key: &ObjectKey,
        patch: &Patch<'_>,
    ) -> Result<Option<Applied>, Error> {
        self.patch_for(FIELD_MANAGER, resource, key, patch, false, true).await
    }

    /// Sends a JSON merge patch for an object with this UID; none if the object or its kind does not exist.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotAsSeen`](crate::ErrorKind::NotAsSeen) if another client has recreated the object; otherwise as
    /// [`patch`](Self::patch).
    pub async fn merge(
        &self,
        resource: &Resource,
        key: &ObjectKey,
        uid: &Uid,
        patch: &Value,
    ) -> Result<Option<Applied>, Error> {
        let mut body = patch.clone();
        if let Some(body) = body.as_object_mut() {
            // The API server rejects a change of the UID.
            let metadata = body.entry("metadata").or_insert_with(|| json!({})).as_object_mut();
            metadata.map(|metadata| metadata.insert("uid".to_owned(), json!(uid)));
        }
        let patch = Patch { subresource: None, kind: PatchKind::Merge, body: &body };
        let answer = self.patch(resource, key, &patch).await;
        let Some(error) = answer.as_ref().err().filter(|error| matches!(error.code(), Some(409 | 422))) else {
            return answer;
        };
        let namespace = key.namespace.as_deref();
        match self.fetch_one::<Managed>(resource, namespace, &key.name, true).await? {
            Some(Managed { meta, entries }) if meta.uid != *uid => Err(not_as_seen(error.what(), true, &entries)),
            Some(_) => answer,
            None => Ok(None),
        }
    }

    pub(crate) async fn patch_as(
        &self,
        manager: &str,
        resource: &Resource,
        key: &ObjectKey,
        patch: &Patch<'_>,
        dry_run: bool,
    ) -> Result<Option<Applied>, Error> {
        self.patch_for(manager, resource, key, patch, dry_run, dry_run).await
    }

    async fn patch_for(
        &self,
        manager: &str,
        resource: &Resource,
        key: &ObjectKey,
        patch: &Patch<'_>,
        dry_run: bool,
        whole: bool,
    ) -> Result<Option<Applied>, Error> {
        let (namespace, name) = (key.namespace.as_deref(), key.name.as_str());
        let target = match patch.subresource {
            Some(subresource) => format!("{subresource} of {}", object_name(resource, namespace, name)),
            None => object_name(resource, namespace, name),
        };
        let what = format!("patch {target}");
        let content_type = match patch.kind {
            PatchKind::Merge => "application/merge-patch+json",
            PatchKind::Json => "application/json-patch+json",
        };
        let body = patch.body.to_string().into_bytes();
        let call = |resource: &Resource| {
            let url = url::object(resource, namespace, name);
            let url = match patch.subresource {
                Some(subresource) => url::with_query(&format!("{url}/{subresource}"), &[("fieldManager", manager)]),
                None => strict_url(&url, manager, dry_run),
            };
            Call::new(Verb::Patch, &what, url).accept(answer(whole)).body(content_type, body.clone())
        };
        let reply = self.send_about(resource, call).await.map_err(|error| without_secret_values(resource, error))?;
        reply.map(|reply| applied(&what, &reply, whole)).transpose()
    }
}

/// Adds strict field validation and a field manager, as for server-side apply.
pub(crate) fn strict_url(url: &str, manager: &str, dry_run: bool) -> String {
    let dry_run = if dry_run { "All" } else { "" };
    url::with_query(url, &[("fieldManager", manager), ("fieldValidation", "Strict"), ("dryRun", dry_run)])
}
