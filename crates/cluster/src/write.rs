//! Writes by the update strategies: POST, PUT, and patches other than server-side apply.

use std::{borrow::Cow, collections::BTreeMap};

use billhook_objects::{ObjectKey, wellknown::FIELD_MANAGER};
use billhook_plan::Resource;
use billhook_policy::UpdateStrategy;
use serde_json::Value;
use tokio::time::sleep;

use crate::{
    apply::{Applied, ApplyOptions, NEW_KIND, answer, applied, require_name, without_secret_values},
    cluster::Cluster,
    counts::Verb,
    error::{Error, ErrorKind, object_name},
    request::Call,
    strategy::{self, Change},
    url,
};

/// How often a write is tried while other clients change, create or delete the object.
const TRIES: u32 = 8;

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

/// How an object is written.
#[derive(Clone, Copy, Debug)]
pub struct WriteOptions<'a> {
    /// How an existing object is changed to match its manifest.
    pub strategy: UpdateStrategy,
    /// Whether the object existed when it was last seen. A wrong value costs one more request.
    pub exists: bool,
    /// Annotations that override those of the manifest if the object is created.
    pub annotate_before_create: &'a BTreeMap<String, String>,
    /// Takes over fields that other managers own. Server-side apply only: the other strategies always overwrite them.
    pub force_conflicts: bool,
    /// Runs validation and admission without changing anything.
    pub dry_run: bool,
}

impl Cluster {
    /// Creates an object by a POST. The object is JSON text and is sent unchanged.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`] without fields, code 409, if an object of this name exists: perhaps an earlier try whose
    /// answer was lost has created it. Otherwise as [`apply`](Self::apply).
    pub async fn create(&self, resource: &Resource, namespace: Option<&str>, object: &str) -> Result<Applied, Error> {
        let what = match namespace.filter(|_| resource.namespaced) {
            Some(namespace) => format!("create a {} in namespace {namespace}", resource.kind),
            None => format!("create a {}", resource.kind),
        };
        self.post(what, resource, namespace, object, false).await
    }

    async fn post(
        &self,
        what: String,
        resource: &Resource,
        namespace: Option<&str>,
        object: &str,
        dry_run: bool,
    ) -> Result<Applied, Error> {
        let url = strict_url(&url::collection(resource, namespace), dry_run);
        let call = Call::new(Verb::Create, what, url)
            .accept(answer(dry_run))
            .body("application/json", object.as_bytes().to_vec())
            .also_retry(|error| *error.kind() == ErrorKind::NotServed, NEW_KIND);
        self.send_write(resource, &call).await
    }

    /// Replaces an object by a PUT. With a `metadata.resourceVersion` it must still be the version that was read.
    async fn put(&self, resource: &Resource, key: &ObjectKey, object: &Value, dry_run: bool) -> Result<Applied, Error> {
        let (namespace, name) = (key.namespace.as_deref(), key.name.as_str());
        let url = strict_url(&url::object(resource, namespace, name), dry_run);
        let what = format!("update {}", object_name(resource, namespace, name));
        let call =
            Call::new(Verb::Update, what, url).accept(answer(dry_run)).body("application/json", object.to_string());
        self.send_write(resource, &call).await
    }

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
        self.send_patch(resource, key, patch, false).await
    }

    async fn send_patch(
        &self,
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
                Some(subresource) => {
                    url::with_query(&format!("{url}/{subresource}"), &[("fieldManager", FIELD_MANAGER)])
                }
                None => strict_url(&url, dry_run),
            };
            Call::new(Verb::Patch, &what, url).accept(answer(dry_run)).body(content_type, body.clone())
        };
        let reply = self.send_about(resource, call).await.map_err(|error| without_secret_values(resource, error))?;
        reply.map(|reply| applied(&what, &reply, dry_run)).transpose()
    }

    /// Writes an object from its manifest (JSON text) by the given strategy.
    ///
    /// [`UpdateStrategy::ServerSide`] is [`apply`](Self::apply). The other strategies create an object that does not exist
    /// by a POST; otherwise they read the whole object and send the change that follows from it, or nothing if there is
    /// none. If another client changes the object in between, they read it again, at most eight times.
    ///
    /// [`UpdateStrategy::Update`] and [`UpdateStrategy::Patch`] do not keep the annotations of the creation: their next write
    /// removes what the manifest does not have.
    ///
    /// # Errors
    ///
    /// As [`apply`](Self::apply); [`ErrorKind::Conflict`] without fields if other clients keep changing the object.
    pub async fn write(
        &self,
        resource: &Resource,
        key: &ObjectKey,
        manifest: &str,
        options: &WriteOptions<'_>,
    ) -> Result<Applied, Error> {
        let (namespace, name) = (key.namespace.as_deref(), key.name.as_str());
        require_name(resource, name)?;
        let what = format!("apply {}", object_name(resource, namespace, name));
        let new = annotated(&what, manifest, options)?;
        if options.strategy == UpdateStrategy::ServerSide {
            // An update has the annotations too: without them, the server would remove them, and a command that is repeated
            // after a crash would end in another state.
            let apply = ApplyOptions { force_conflicts: options.force_conflicts, dry_run: options.dry_run };
            return self.apply(resource, key, &new, &apply).await;
        }
        let mut manifest = parsed(&what, manifest)?;
        let mut exists = options.exists;
        let mut last = None;
        for attempt in 0..TRIES {
            if attempt > 1 {
                sleep(self.backoff(attempt)).await;
            }
            if !exists {
                match self.post(what.clone(), resource, namespace, &new, options.dry_run).await {
                    Err(error) if error.already_exists() => {
                        if error.answer_lost() {
                            // The try whose answer was lost may have created it: keep its annotations.
                            manifest = parsed(&what, &new)?;
                        }
                        last = Some(error);
                    }
                    done => return done,
                }
            }
            let Some(live) = self.get(resource, key).await? else {
                exists = false;
                continue;
            };
            exists = true;
            match self.change(resource, key, &live, &manifest, options).await {
                Ok(Some(applied)) => return Ok(applied),
                Ok(None) => exists = false,
                Err(error) if error.object_not_found() => exists = false,
                Err(error) if error.code() == Some(409) => last = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(last.unwrap_or_else(|| {
            Error::new(what, ErrorKind::Conflict(Vec::new())).because("other clients keep deleting it")
        }))
    }

    /// Sends the change that the strategy requires for an object that was just read; none if it is gone.
    async fn change(
        &self,
        resource: &Resource,
        key: &ObjectKey,
        live: &Value,
        manifest: &Value,
        options: &WriteOptions<'_>,
    ) -> Result<Option<Applied>, Error> {
        match strategy::change(options.strategy, live, manifest) {
            Change::Nothing => Ok(unchanged(live, options.dry_run)),
            Change::Put(object) => self.put(resource, key, &object, options.dry_run).await.map(Some),
            Change::Patch(body) => {
                let patch = Patch { subresource: None, kind: PatchKind::Merge, body: &body };
                self.send_patch(resource, key, &patch, options.dry_run).await
            }
        }
    }
}

/// Adds strict field validation and our field manager, as for server-side apply.
fn strict_url(url: &str, dry_run: bool) -> String {
    let dry_run = if dry_run { "All" } else { "" };
    url::with_query(url, &[("fieldManager", FIELD_MANAGER), ("fieldValidation", "Strict"), ("dryRun", dry_run)])
}

/// Returns an object that was read, as if it had just been written.
fn unchanged(live: &Value, dry_run: bool) -> Option<Applied> {
    let meta = &live["metadata"];
    Some(Applied {
        uid: serde_json::from_value(meta["uid"].clone()).ok()?,
        resource_version: meta["resourceVersion"].as_str()?.to_owned(),
        created: false,
        deleting: meta.get("deletionTimestamp").is_some(),
        finalizers: serde_json::from_value(meta["finalizers"].clone()).unwrap_or_default(),
        object: dry_run.then(|| live.clone()),
    })
}

/// Returns the manifest with the annotations for the creation.
fn annotated<'m>(what: &str, manifest: &'m str, options: &WriteOptions<'_>) -> Result<Cow<'m, str>, Error> {
    if options.annotate_before_create.is_empty() {
        return Ok(Cow::Borrowed(manifest));
    }
    let mut object = parsed(what, manifest)?;
    let annotations = &mut object["metadata"]["annotations"];
    for (key, value) in options.annotate_before_create {
        annotations[key] = Value::String(value.clone());
    }
    Ok(Cow::Owned(object.to_string()))
}

/// Parses a manifest and checks that its `metadata` is a map. An error gives the position only, because the manifest may
/// hold secrets.
fn parsed(what: &str, manifest: &str) -> Result<Value, Error> {
    let invalid = |message: String| Error::new(what, ErrorKind::Invalid).because(message);
    let object: Value = serde_json::from_str(manifest).map_err(|error| {
        invalid(format!("the manifest is not valid JSON (line {}, column {})", error.line(), error.column()))
    })?;
    let annotations = object["metadata"].get("annotations");
    if !object["metadata"].is_object() || annotations.is_some_and(|value| !(value.is_object() || value.is_null())) {
        return Err(invalid("its metadata or annotations are not a map".into()));
    }
    Ok(object)
}
