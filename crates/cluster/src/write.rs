//! Writes by the update strategies, each under the precondition that the object is as the plan saw it.

use std::{borrow::Cow, collections::BTreeMap};

use billhook_objects::{
    ObjectKey, Uid,
    wellknown::{FIELD_MANAGER, RELEASE_LABEL},
};
use billhook_plan::{Annotations, Resource};
use billhook_policy::UpdateStrategy;
use serde::Deserialize as _;
use serde_json::Value;
use tokio::time::sleep;

use crate::{
    apply::{Applied, ApplyOptions, NEW_KIND, answer, require_name, unreadable_manifest},
    cluster::Cluster,
    counts::Verb,
    decode::Managed,
    error::{Error, ErrorKind, Status, object_name},
    managed::{not_as_seen, owns_fields},
    patch::{Patch, PatchKind, strict_url},
    request::Call,
    strategy::{self, Change},
    url,
};

/// How often a write is tried while other clients change or delete the object.
const TRIES: u32 = 8;

/// How an object is written.
#[derive(Clone, Copy, Debug)]
pub struct WriteOptions<'a> {
    /// How an existing object is changed to match its manifest.
    pub strategy: UpdateStrategy,
    /// The UID of the object when it was last seen; none if it did not exist.
    pub expected: Option<&'a Uid>,
    /// The manager that owns the written fields.
    pub field_manager: &'a str,
    /// Whether an object that belongs to no release is taken over if another client has created it in the meantime.
    pub adopt: bool,
    /// Other managers whose fields move to `field_manager` first.
    pub takes_over: &'a [String],
    /// Annotations that override those of the manifest if the object is created.
    pub annotate_before_create: &'a BTreeMap<String, String>,
    /// Takes over fields that other managers own. Server-side apply only: the other strategies always overwrite them.
    pub force_conflicts: bool,
    /// Runs validation and admission without changing anything.
    pub dry_run: bool,
}

impl WriteOptions<'_> {
    /// Whether a conflict is only about fields of billhook: those of a patch after an earlier deployment, or of managers that
    /// the own one takes over.
    fn owns_all(&self, conflict: &ErrorKind) -> bool {
        let ours = |manager: &String| {
            [self.field_manager, FIELD_MANAGER].contains(&manager.as_str()) || self.takes_over.contains(manager)
        };
        matches!(conflict, ErrorKind::Conflict(fields)
            if !fields.is_empty() && fields.iter().all(|field| ours(&field.manager)))
    }
}

/// An object to write.
struct Target<'a> {
    resource: &'a Resource,
    key: &'a ObjectKey,
    what: String,
    options: &'a WriteOptions<'a>,
    /// The manifest with the annotations for the creation.
    new: Cow<'a, str>,
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
        let url = strict_url(&url::collection(resource, namespace), FIELD_MANAGER, false);
        self.post(what, resource, url, object, false).await
    }

    async fn post(
        &self,
        what: String,
        resource: &Resource,
        url: String,
        object: &str,
        dry_run: bool,
    ) -> Result<Applied, Error> {
        let call = Call::new(Verb::Create, what, url)
            .accept(answer(dry_run))
            .body("application/json", object.as_bytes().to_vec())
            .also_retry(|error| *error.kind() == ErrorKind::NotServed, NEW_KIND);
        self.send_write(resource, &call).await
    }

    /// Writes an object from its manifest (JSON text) by the given strategy, if it is the one that was seen, or is still
    /// missing if none was. An object that was deleted in the meantime is created again.
    ///
    /// [`UpdateStrategy::ServerSide`] sends one request. The other strategies create an object by a POST; otherwise they read
    /// the whole object and send the change that follows from it, or nothing if there is none. If another client changes
    /// the object in between, it is read again, at most eight times.
    ///
    /// [`UpdateStrategy::Update`] and [`UpdateStrategy::Patch`] do not keep the annotations of the creation: their next write
    /// removes what the manifest does not have.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotAsSeen`] if another client has created or recreated the object; [`ErrorKind::Conflict`] without fields
    /// if other clients keep changing it; otherwise as [`apply`](Self::apply).
    pub async fn write(
        &self,
        resource: &Resource,
        key: &ObjectKey,
        manifest: &str,
        options: &WriteOptions<'_>,
    ) -> Result<Applied, Error> {
        require_name(resource, &key.name)?;
        let what = format!("apply {}", object_name(resource, key.namespace.as_deref(), &key.name));
        let new = annotated(&what, manifest, options)?;
        let target = Target { resource, key, what, options, new };
        if let Some(uid) = options.expected.filter(|_| !options.takes_over.is_empty() && !options.dry_run) {
            self.take_over_fields(resource, key, uid, options.field_manager, options.takes_over).await?;
        }
        let mut manifest = manifest;
        let mut expected = options.expected.cloned();
        let (mut adopted, mut last) = (false, None);
        for attempt in 0..TRIES {
            if attempt > 1 {
                sleep(self.backoff(attempt)).await;
            }
            let error = match self.write_expected(&target, expected.as_ref(), manifest).await {
                Ok(Some(applied)) => {
                    if applied.created && !options.dry_run {
                        self.inner.names.created(key);
                    }
                    return Ok(Applied { adopted, ..applied });
                }
                Ok(None) => {
                    expected = None;
                    continue;
                }
                Err(error) if is_precondition(&error) => error,
                Err(error) => return Err(error),
            };
            if expected.is_some() && options.strategy != UpdateStrategy::ServerSide {
                // The next attempt reads the object anyway.
                last = Some(error);
                continue;
            }
            let found = self.fetch_one::<Managed>(resource, key.namespace.as_deref(), &key.name, true).await?;
            match target.next(expected.as_ref(), found) {
                Next::Changed if matches!(error.kind(), ErrorKind::Conflict(fields) if !fields.is_empty()) => {
                    return Err(error);
                }
                Next::Changed => {}
                Next::Gone => expected = None,
                Next::Ours(uid) => {
                    expected = Some(uid);
                    // Keep the annotations of the creation.
                    manifest = &target.new;
                }
                Next::Adopted(uid) => (expected, adopted) = (Some(uid), true),
                Next::Refused(error) => return Err(error),
            }
            last = Some(error);
        }
        Err(last.unwrap_or_else(|| {
            Error::new(target.what, ErrorKind::Conflict(Vec::new())).because("other clients keep deleting it")
        }))
    }

    /// Writes an object if it is as expected; none if it was to be updated and is gone.
    async fn write_expected(
        &self,
        target: &Target<'_>,
        expected: Option<&Uid>,
        manifest: &str,
    ) -> Result<Option<Applied>, Error> {
        let Target { resource, key, what, options, new } = target;
        match (options.strategy, expected) {
            (UpdateStrategy::ServerSide, _) => {
                // An update has the annotations of the creation too: without them, the server would remove them, and a command
                // that is repeated after a crash would end in another state.
                let WriteOptions { field_manager, takes_over, force_conflicts, dry_run, .. } = **options;
                // A dry run cannot move fields to another manager, so it is sent as the one that still owns them.
                let former = takes_over.first().filter(|_| dry_run);
                let field_manager = former.map_or(field_manager, String::as_str);
                let apply = ApplyOptions { field_manager, force_conflicts, dry_run, ..ApplyOptions::default() };
                match self.apply_expected(resource, key, new, expected, &apply).await {
                    Err(error) if options.owns_all(error.kind()) => {
                        let forced = ApplyOptions { force_conflicts: true, ..apply };
                        self.apply_expected(resource, key, new, expected, &forced).await.map(Some)
                    }
                    applied => applied.map(Some),
                }
            }
            (_, None) => {
                let url = url::collection(resource, key.namespace.as_deref());
                let url = strict_url(&url, options.field_manager, options.dry_run);
                self.post(what.clone(), resource, url, new, options.dry_run).await.map(Some)
            }
            (_, Some(uid)) => {
                let Some(live) = self.get(resource, key).await? else { return Ok(None) };
                if live["metadata"]["uid"] != uid.as_str() {
                    let entries = live["metadata"]["managedFields"].clone();
                    let entries: Vec<_> = serde_json::from_value(entries).unwrap_or_default();
                    return Err(not_as_seen(what, true, &entries));
                }
                let manifest = parsed(what, manifest)?;
                if is_left(&live, &manifest) {
                    return Ok(unchanged(&live, options.dry_run));
                }
                match self.change(target, &live, &manifest).await {
                    Err(error) if error.object_not_found() => Ok(None),
                    done => done,
                }
            }
        }
    }

    /// Sends the change that the strategy requires for an object that was just read; none if it is gone.
    async fn change(&self, target: &Target<'_>, live: &Value, manifest: &Value) -> Result<Option<Applied>, Error> {
        let Target { resource, key, options, .. } = target;
        match strategy::change(options.strategy, live, manifest) {
            Change::Nothing => Ok(unchanged(live, options.dry_run)),
            Change::Put(object) => {
                let (namespace, name) = (key.namespace.as_deref(), key.name.as_str());
                let url = url::object(resource, namespace, name);
                let url = strict_url(&url, options.field_manager, options.dry_run);
                let what = format!("update {}", object_name(resource, namespace, name));
                let call = Call::new(Verb::Update, what, url)
                    .accept(answer(options.dry_run))
                    .body("application/json", object.to_string());
                self.send_write(resource, &call).await.map(Some)
            }
            Change::Patch(body) => {
                let patch = Patch { subresource: None, kind: PatchKind::Merge, body: &body };
                self.patch_as(options.field_manager, resource, key, &patch, options.dry_run).await
            }
        }
    }
}

/// What follows from the object that is found after a write failed.
enum Next {
    /// It is as expected, so that another client has changed it at the same time.
    Changed,
    /// It is gone.
    Gone,
    /// We have created it: by an earlier try whose answer was lost, or before its kind was known to the plan.
    Ours(Uid),
    /// Another client has created it, and it is taken over.
    Adopted(Uid),
    /// Another client has created or recreated it.
    Refused(Error),
}

impl Target<'_> {
    fn next(&self, expected: Option<&Uid>, found: Option<Managed>) -> Next {
        let Some(Managed { meta, entries }) = found else { return Next::Gone };
        match expected {
            Some(uid) if *uid == meta.uid => Next::Changed,
            None if owns_fields(self.options.field_manager, &entries) => Next::Ours(meta.uid),
            None if self.options.adopt && !meta.labels.contains_key(RELEASE_LABEL) => Next::Adopted(meta.uid),
            _ => Next::Refused(not_as_seen(&self.what, expected.is_some(), &entries)),
        }
    }
}

/// Returns whether the server may have rejected a write because the object is not as expected. A server that finds fields of
/// other managers says that first.
fn is_precondition(error: &Error) -> bool {
    let about_uid = |status: &Status| status.causes.iter().any(|(_, _, field)| field == "metadata.uid");
    match error.kind() {
        ErrorKind::Conflict(_) => true,
        ErrorKind::Invalid => error.status().is_some_and(about_uid),
        _ => false,
    }
}

/// Whether an object that was just read is annotated, since the plan was made, so that it is not updated.
fn is_left(live: &Value, manifest: &Value) -> bool {
    let treatment = annotations_of(live).with(&annotations_of(manifest)).treatment();
    treatment.ignore || treatment.unmanaged
}

fn annotations_of(object: &Value) -> Annotations {
    Annotations::deserialize(&object["metadata"]["annotations"]).unwrap_or_default()
}

/// Returns an object that was read, as if it had just been written.
fn unchanged(live: &Value, dry_run: bool) -> Option<Applied> {
    let meta = &live["metadata"];
    Some(Applied {
        uid: serde_json::from_value(meta["uid"].clone()).ok()?,
        resource_version: meta["resourceVersion"].as_str()?.to_owned(),
        fingerprint: None,
        created: false,
        adopted: false,
        deleting: meta.get("deletionTimestamp").is_some(),
        finalizers: serde_json::from_value(meta["finalizers"].clone()).unwrap_or_default(),
        annotations: annotations_of(live),
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

/// Parses a manifest and checks that its `metadata` is a map.
fn parsed(what: &str, manifest: &str) -> Result<Value, Error> {
    let object: Value = serde_json::from_str(manifest).map_err(|error| unreadable_manifest(what, &error))?;
    let annotations = object["metadata"].get("annotations");
    if !object["metadata"].is_object() || annotations.is_some_and(|value| !(value.is_object() || value.is_null())) {
        return Err(Error::new(what, ErrorKind::Invalid).because("its metadata or annotations are not a map"));
    }
    Ok(object)
}
