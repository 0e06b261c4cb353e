//! DELETE of one object, modelled after `registry.Store.Delete` of the API server.

use serde_json::{Map, Value, json};

use super::{Writer, create, update};
use crate::{
    admission::{self, AdmissionRequest, Operation},
    call::{self, Call, Verb},
    kinds::Kind,
    object::{FOREGROUND, ORPHAN, is_deleting, meta, meta_list, metadata_mut},
    state::State,
    status::{ApiError, Cause},
};

/// What happens to the dependents of a deleted object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// The options of a DELETE.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) propagation: Option<Propagation>,
    pub(crate) grace: Option<i64>,
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
    /// Whether the deprecated `orphanDependents: false` was sent. The API server answers it with 202.
    pub(crate) cascades: bool,
    /// Whether the DELETE is part of a DELETE of a collection, where admission does not see the name.
    pub(crate) of_collection: bool,
}

impl DeleteOptions {
    /// Returns the options as admission sees them.
    fn value(&self, dry_run: bool) -> Value {
        let preconditions = [("uid", &self.uid), ("resourceVersion", &self.resource_version)];
        let preconditions = preconditions.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
        let preconditions: Map<_, _> = preconditions.map(|(name, value)| (name.to_owned(), json!(value))).collect();
        let mut options = json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"});
        let mut add = |name: &str, value: Option<Value>| value.into_iter().for_each(|value| options[name] = value);
        add("gracePeriodSeconds", self.grace.map(Value::from));
        add("preconditions", (!preconditions.is_empty()).then(|| preconditions.into()));
        add("propagationPolicy", self.propagation.map(|policy| format!("{policy:?}").into()));
        add("dryRun", dry_run.then(|| json!(["All"])));
        options
    }

    /// Reads the options from the body of a call, or else from its query, and whether it is a dry run.
    pub(crate) fn of(call: &Call) -> Result<(Self, bool), ApiError> {
        let body = if call.body.is_empty() { Value::Null } else { call.json()? };
        Self::read(&body, Some(call).filter(|call| call.body.is_empty()))
            .map(|(options, dry_run)| (Self { of_collection: call.verb == Verb::DeleteCollection, ..options }, dry_run))
    }

    /// Reads the options from a body, or from the query of a call, and whether it is a dry run.
    pub(super) fn read(body: &Value, query: Option<&Call>) -> Result<(Self, bool), ApiError> {
        if !body.is_null() && !body.is_object() {
            return Err(ApiError::bad_request("the body of the request is not a DeleteOptions object"));
        }
        if let Some(kind) = body["kind"].as_str().filter(|kind| *kind != "DeleteOptions") {
            let version = body["apiVersion"].as_str().unwrap_or_default();
            let message = format!("{kind} in version \"{version}\" cannot be handled as a DeleteOptions");
            return Err(ApiError::bad_request(message));
        }
        check_types(body)?;
        let queried = |field: &str| query.and_then(|call| call.text(field));
        let text = |field: &str| body[field].as_str().or_else(|| queried(field)).map(str::to_owned);
        let orphan = body["orphanDependents"].as_bool();
        let orphan = orphan.or_else(|| query?.param("orphanDependents").map(|text| text == "true"));
        let policy = text("propagationPolicy");
        let mut causes = Vec::new();
        if policy.is_some() && orphan.is_some() {
            let detail = "orphanDependents and deletionPropagation cannot be both set";
            causes.push(Cause::invalid("propagationPolicy", &json!(policy), detail));
        }
        let propagation = match (policy.as_deref(), orphan) {
            (Some("Background"), _) | (None, Some(false)) => Some(Propagation::Background),
            (Some("Foreground"), _) => Some(Propagation::Foreground),
            (Some("Orphan"), _) | (None, Some(true)) => Some(Propagation::Orphan),
            (Some(other), _) => {
                let supported = ["Foreground", "Background", "Orphan", "nil"].map(str::to_owned);
                causes.push(Cause::unsupported("propagationPolicy", &json!(other), &supported));
                None
            }
            (None, None) => None,
        };
        // With a body, the query is ignored.
        let mut dry_run = query.map_or(Ok(false), |call| call.dry_run("DeleteOptions"))?;
        if let Some(values) = body["dryRun"].as_array().filter(|values| !values.is_empty()) {
            dry_run = true;
            if values.iter().any(|value| value != "All") {
                causes.push(Cause::unsupported("dryRun", &body["dryRun"], &["All".to_owned()]));
            }
        }
        if !causes.is_empty() {
            return Err(ApiError::options("DeleteOptions", causes));
        }
        let of_query = queried("gracePeriodSeconds").map(call::number).transpose()?;
        let precondition = |field: &str| body["preconditions"][field].as_str().map(str::to_owned);
        let grace = body["gracePeriodSeconds"].as_i64();
        let options = Self {
            propagation,
            grace: grace.or(of_query),
            uid: precondition("uid"),
            resource_version: precondition("resourceVersion"),
            cascades: orphan == Some(false),
            of_collection: false,
        };
        Ok((options, dry_run))
    }

    pub(super) fn check(&self, kind: &Kind, object: &Value) -> Result<(), ApiError> {
        let name = meta(object, "name");
        if let Some(uid) = self.uid.as_deref().filter(|uid| *uid != meta(object, "uid")) {
            let why = format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
                meta(object, "uid")
            );
            return Err(ApiError::conflict(&kind.qualified(), name, &why));
        }
        let known = meta(object, "resourceVersion");
        if let Some(version) = self.resource_version.as_deref().filter(|version| *version != known) {
            let why = format!(
                "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({known}). The object might have been modified"
            );
            return Err(ApiError::conflict(&kind.qualified(), name, &why));
        }
        Ok(())
    }
}

/// The result of a DELETE.
#[derive(Debug)]
pub(crate) struct Deleted {
    /// The last state of a removed object, or the current state of one that is marked for deletion.
    pub(crate) object: Value,
    /// Whether the object has been removed.
    pub(crate) gone: bool,
}

/// Removes an object, or marks it for deletion if something holds it.
pub(crate) fn delete(
    state: &mut State,
    writer: &Writer,
    namespace: &str,
    name: &str,
    options: &DeleteOptions,
) -> Result<Deleted, ApiError> {
    let kind = &writer.kind;
    let object = update::current(state, writer, namespace, name)?;
    options.check(kind, &object)?;
    let request = AdmissionRequest {
        operation: Operation::Delete,
        user: &writer.user,
        kind,
        version: &writer.version().name,
        subresource: None,
        namespace,
        name: if options.of_collection { "" } else { name },
        object: None,
        old: Some(&object),
        options: &options.value(writer.dry_run),
        dry_run: writer.dry_run,
    };
    admission::admit(state, &request)?;
    remove(state, writer, object, options)
}

/// Removes an object, or marks it for deletion, after admission.
pub(super) fn remove(
    state: &mut State,
    writer: &Writer,
    mut object: Value,
    options: &DeleteOptions,
) -> Result<Deleted, ApiError> {
    let kind = &writer.kind;
    let old = object.clone();
    if kind.is_deletion_pending(&object, options.grace) {
        return Ok(Deleted { object, gone: false });
    }
    if is_deleting(&object) || !kind.defers_propagation() {
        set_finalizers(kind, &mut object, options.propagation);
    }
    mark(state, kind, &mut object, options);
    if update::is_released(kind, &object) {
        if !writer.dry_run {
            state.remove(kind.table(), meta(&object, "namespace"), meta(&object, "name"));
        }
        // Kinds with grace periods return even a removed object with its `deletionTimestamp`.
        let mut object = if kind.is_graceful() { object } else { old };
        let revision = state.store.revision().to_string();
        metadata_mut(&mut object).insert("resourceVersion".to_owned(), revision.into());
        return Ok(Deleted { object, gone: true });
    }
    if object == old {
        return Ok(Deleted { object, gone: false });
    }
    if !writer.dry_run {
        create::check_size(state, kind, &object)?;
    }
    let object = create::store(state, writer, object)?;
    Ok(Deleted { object, gone: false })
}

/// Rejects options of the wrong type, so that they are not mistaken for unset ones.
fn check_types(body: &Value) -> Result<(), ApiError> {
    let texts = |value: &Value| value.as_array().is_some_and(|list| list.iter().all(Value::is_string));
    let preconditions = |value: &Value| {
        let fields = value.as_object().map(|fields| fields.values().collect::<Vec<_>>());
        fields.is_some_and(|fields| fields.iter().all(|field| field.is_string() || field.is_null()))
    };
    type Fits = fn(&Value) -> bool;
    let fits: [(&str, &str, Fits); 5] = [
        ("dryRun", "[]string", texts),
        ("gracePeriodSeconds", "int64", Value::is_i64),
        ("orphanDependents", "bool", Value::is_boolean),
        ("preconditions", "v1.Preconditions", preconditions),
        ("propagationPolicy", "v1.DeletionPropagation", Value::is_string),
    ];
    for (field, go, fits) in fits {
        let value = &body[field];
        if !value.is_null() && !fits(value) {
            let why = format!("json: cannot unmarshal {value} into Go struct field DeleteOptions.{field} of type {go}");
            return Err(ApiError::bad_request(why));
        }
    }
    Ok(())
}

/// Marks an object for deletion. An existing mark changes only if the new grace period is shorter.
fn mark(state: &State, kind: &Kind, object: &mut Value, options: &DeleteOptions) {
    let grace = kind.grace_period(object, options.grace);
    let (marked, known) = (is_deleting(object), object["metadata"]["deletionGracePeriodSeconds"].as_i64());
    if marked && known.unwrap_or(0) <= grace {
        return;
    }
    let at = state.clock.now().checked_add(jiff::SignedDuration::from_secs(grace)).unwrap_or_default();
    let at = at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let metadata = metadata_mut(object);
    metadata.insert("deletionTimestamp".to_owned(), at.into());
    metadata.insert("deletionGracePeriodSeconds".to_owned(), grace.into());
    if !marked {
        kind.prepare_delete(object, &state.time());
    }
}

/// Sets the finalizers `orphan` or `foregroundDeletion`, according to the propagation policy.
fn set_finalizers(kind: &Kind, object: &mut Value, propagation: Option<Propagation>) {
    let has = |finalizer: &str| meta_list(object, "finalizers").any(|known| known == finalizer);
    let wanted = match propagation {
        Some(propagation) => propagation,
        None if has(ORPHAN) => Propagation::Orphan,
        None if has(FOREGROUND) => Propagation::Foreground,
        None if kind.orphans_by_default() => Propagation::Orphan,
        None => Propagation::Background,
    };
    let mut finalizers: Vec<Value> = meta_list(object, "finalizers")
        .filter(|known| *known != ORPHAN && *known != FOREGROUND)
        .map(Value::from)
        .collect();
    match wanted {
        Propagation::Orphan if kind.is_collected() => finalizers.push(ORPHAN.into()),
        Propagation::Foreground if kind.is_collected() => finalizers.push(FOREGROUND.into()),
        _ => {}
    }
    let metadata = metadata_mut(object);
    if finalizers.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".to_owned(), finalizers.into());
    }
}

/// Returns the body of the answer: the object, or a `Status` that reports its removal.
pub(crate) fn answer(kind: &Kind, deleted: Deleted) -> Value {
    if !deleted.gone || kind.returns_deleted() {
        return deleted.object;
    }
    let mut details = json!({
        "name": meta(&deleted.object, "name"), "kind": &*kind.id.plural, "uid": meta(&deleted.object, "uid"),
    });
    if !kind.group().is_empty() {
        details["group"] = kind.group().into();
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}
