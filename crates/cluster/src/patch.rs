//! Patches other than server-side apply.

use billhook_objects::{ObjectKey, wellknown::FIELD_MANAGER};
use billhook_plan::Resource;
use serde_json::Value;

use crate::{
    apply::{Applied, answer, applied, without_secret_values},
    cluster::Cluster,
    counts::Verb,
    error::{Error, object_name},
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

    pub(crate) async fn patch_as(
        &self,
        manager: &str,
        resource: &Resource,
        key: &ObjectKey,
        patch: &Patch<'_>,
        dry_run: bool,
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
            Call::new(Verb::Patch, &what, url).accept(answer(dry_run)).body(content_type, body.clone())
        };
        let reply = self.send_about(resource, call).await.map_err(|error| without_secret_values(resource, error))?;
        reply.map(|reply| applied(&what, &reply, dry_run)).transpose()
    }
}

/// Adds strict field validation and a field manager, as for server-side apply.
pub(crate) fn strict_url(url: &str, manager: &str, dry_run: bool) -> String {
    let dry_run = if dry_run { "All" } else { "" };
    url::with_query(url, &[("fieldManager", manager), ("fieldValidation", "Strict"), ("dryRun", dry_run)])
}
