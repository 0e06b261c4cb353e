//! Writes as the update strategies need them: POST, PUT, and patches that are no server-side apply.

use std::{borrow::Cow, collections::BTreeMap};

use billhook_objects::{ObjectKey, wellknown::FIELD_MANAGER};
use billhook_plan::Resource;
use billhook_policy::UpdateStrategy;
use serde_json::Value;
use tokio::time::sleep;

use crate::{
    cluster::Cluster,
    error::{Error, ErrorKind},
    fetch::named,
    path,
    strategy::{self, Change},
    transport::{Call, Verb},
    wire::META,
    write::{Applied, ApplyOptions, NEW_KIND, applied, named_at_all},
};

/// How often an object is looked at anew that others change, create or delete meanwhile.
const LOOKS: u32 = 8;

/// A patch of an object.
#[derive(Clone, Copy, Debug)]
pub struct Patch<'a> {
    /// The subresource that is patched, such as `status`; none for the object itself.
    pub subresource: Option<&'a str>,
    /// How the body is meant.
    pub kind: PatchKind,
    /// The patch.
    pub body: &'a Value,
}

/// How a patch is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// A JSON merge patch (RFC 7386): what it names is set, null removes, lists are replaced.
    Merge,
    /// A JSON patch (RFC 6902): a list of operations.
    Json,
}

/// How an object is written.
#[derive(Clone, Copy, Debug)]
pub struct WriteOptions<'a> {
    /// How an object that exists is brought to what its manifest says.
    pub strategy: UpdateStrategy,
    /// Whether the object was there when it was last looked at. If that is not so any more, it costs a request.
    pub exists: bool,
    /// Annotations that the object gets if it is created, over those of its manifest.
    pub annotate_before_create: &'a BTreeMap<String, String>,
    /// Take over fields that another manager owns; of server-side apply only, as the other strategies ask nobody.
    pub force_conflicts: bool,
    /// Ask validation and admission, but change nothing.
    pub dry_run: bool,
}

impl Cluster {
    /// Creates an object by a POST. The object is JSON text, and is sent as it is.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`] without fields, code 409, where an object of this name is there already: perhaps made by
    /// an earlier try whose answer was lost. Else as [`apply`](Self::apply).
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
        let url = strictly(&path::collection(resource, namespace), dry_run);
        let call = Call::new(Verb::Create, what, url)
            .accept(META)
            .body("application/json", object.as_bytes().to_vec())
            .also(|error| error.kind == ErrorKind::NotServed, NEW_KIND);
        self.written(resource, &call).await
    }

    /// Replaces an object by a PUT. With a `metadata.resourceVersion` it must still be what was read.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`] where it is not; code 404 where the object is not there; else as [`apply`](Self::apply).
    pub async fn update(&self, resource: &Resource, key: &ObjectKey, object: &Value) -> Result<Applied, Error> {
        self.put(resource, key, object, false).await
    }

    async fn put(&self, resource: &Resource, key: &ObjectKey, object: &Value, dry_run: bool) -> Result<Applied, Error> {
        let (namespace, name) = (key.namespace.as_deref(), key.name.as_str());
        let url = strictly(&path::object(resource, namespace, name), dry_run);
        let what = format!("update {}", named(resource, namespace, name));
        let call = Call::new(Verb::Update, what, url).accept(META).body("application/json", object.to_string());
        self.written(resource, &call).await
    }

    /// Patches an object or one of its subresources; none where the object, or its kind, is not there.
    ///
    /// Unknown fields are refused, but not in a subresource: whoever writes a status may know more fields of it than the
    /// CRD that is installed.
    ///
    /// # Errors
    ///
    /// When the patch does not fit, admission refuses it, or the server does not answer.
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
            Some(subresource) => format!("{subresource} of {}", named(resource, namespace, name)),
            None => named(resource, namespace, name),
        };
        let what = format!("patch {target}");
        let content_type = match patch.kind {
            PatchKind::Merge => "application/merge-patch+json",
            PatchKind::Json => "application/json-patch+json",
        };
        let body = patch.body.to_string().into_bytes();
        let call = |resource: &Resource| {
            let url = path::object(resource, namespace, name);
            let url = match patch.subresource {
                Some(subresource) => path::with(&format!("{url}/{subresource}"), &[("fieldManager", FIELD_MANAGER)]),
                None => strictly(&url, dry_run),
            };
            Call::new(Verb::Patch, &what, url).accept(META).body(content_type, body.clone())
        };
        match self.send_about(resource, call).await {
            Ok(reply) => reply.map(|reply| applied(&what, &reply)).transpose(),
            Err(error) if resource.kind.is("", "Secret") => Err(error.without_values()),
            Err(error) => Err(error),
        }
    }

    /// Brings an object to what its manifest (JSON text) says, by the strategy: [`apply`](Self::apply), or for all the
    /// others a POST where it does not exist, and else a read of the whole object, from which follows what is sent.
    /// Nothing is sent where that would change nothing. What others do meanwhile is met by a new look, at most eight.
    ///
    /// The annotations before creation stay with [`UpdateStrategy::Merge`] and [`UpdateStrategy::MergeOverwrite`] only:
    /// the next write by another strategy removes what the manifest does not have.
    ///
    /// # Errors
    ///
    /// As [`apply`](Self::apply); [`ErrorKind::Conflict`] without fields where others keep changing the object.
    pub async fn write(
        &self,
        resource: &Resource,
        key: &ObjectKey,
        manifest: &str,
        options: &WriteOptions<'_>,
    ) -> Result<Applied, Error> {
        let (namespace, name) = (key.namespace.as_deref(), key.name.as_str());
        named_at_all(resource, name)?;
        let what = format!("apply {}", named(resource, namespace, name));
        let new = annotated(&what, manifest, options)?;
        if options.strategy == UpdateStrategy::ServerSide {
            let manifest = if options.exists { manifest } else { &new };
            let apply = ApplyOptions { force_conflicts: options.force_conflicts, dry_run: options.dry_run };
            return self.apply(resource, key, manifest, &apply).await;
        }
        let mut manifest = parsed(&what, manifest)?;
        let mut exists = options.exists;
        let mut last = None;
        for look in 0..LOOKS {
            if look > 1 {
                sleep(self.backoff(look)).await;
            }
            if !exists {
                match self.post(what.clone(), resource, namespace, &new, options.dry_run).await {
                    Err(error) if error.already_exists() => {
                        if error.answer_lost {
                            // The try whose answer was lost may have made it, and then its annotations are to stay.
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
            Error::new(what, ErrorKind::Conflict(Vec::new())).because("others delete it again and again")
        }))
    }

    /// Sends what the strategy makes of an object as it was just read; none where it is not there any more.
    async fn change(
        &self,
        resource: &Resource,
        key: &ObjectKey,
        live: &Value,
        manifest: &Value,
        options: &WriteOptions<'_>,
    ) -> Result<Option<Applied>, Error> {
        match strategy::change(options.strategy, live, manifest) {
            Change::Nothing => Ok(seen(live)),
            Change::Put(object) => self.put(resource, key, &object, options.dry_run).await.map(Some),
            Change::Patch(body) => {
                let patch = Patch { subresource: None, kind: PatchKind::Merge, body: &body };
                self.send_patch(resource, key, &patch, options.dry_run).await
            }
        }
    }
}

/// With strict field validation and under our name, as server-side apply is sent.
fn strictly(url: &str, dry_run: bool) -> String {
    let dry_run = if dry_run { "All" } else { "" };
    path::with(url, &[("fieldManager", FIELD_MANAGER), ("fieldValidation", "Strict"), ("dryRun", dry_run)])
}

/// An object as it was read, as though it had just been written.
fn seen(live: &Value) -> Option<Applied> {
    let meta = &live["metadata"];
    Some(Applied {
        uid: serde_json::from_value(meta["uid"].clone()).ok()?,
        resource_version: meta["resourceVersion"].as_str()?.to_owned(),
        created: false,
        deleting: meta.get("deletionTimestamp").is_some(),
        finalizers: serde_json::from_value(meta["finalizers"].clone()).unwrap_or_default(),
    })
}

/// The manifest with the annotations before creation.
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

/// Reads a manifest; only an object with an object as `metadata` is one. What does not decode is named by its place
/// only: it may hold secrets.
fn parsed(what: &str, manifest: &str) -> Result<Value, Error> {
    let invalid = |message: String| Error::new(what, ErrorKind::Invalid).because(message);
    let object: Value = serde_json::from_str(manifest).map_err(|error| {
        invalid(format!("the manifest is no JSON (line {}, column {})", error.line(), error.column()))
    })?;
    let annotations = object["metadata"].get("annotations");
    if !object["metadata"].is_object() || annotations.is_some_and(|value| !(value.is_object() || value.is_null())) {
        return Err(invalid("its metadata or its annotations are no map".into()));
    }
    Ok(object)
}
