//! Access to objects for controllers.

use std::{sync::Arc, time::Duration};

use serde_json::Value;

use crate::{
    kinds::{Kind, ResourceId},
    object::{Stored, meta_list, metadata_mut},
    state::State,
    status::ApiError,
    store::ObjectId,
    verbs::{Writer, current, update},
};

/// What to do after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Done,
    /// Repeat the step later.
    After(Duration),
    /// Retry the step at growing intervals.
    Retry,
}

pub(super) type Step = Result<Next, ApiError>;

/// Returns a controller that writes in the preferred version of a kind.
pub(super) fn writer(kind: &Arc<Kind>, controller: &str) -> Writer {
    let mut writer = Writer::controller(kind, controller);
    // Where versions differ, the stored one needs no conversion.
    if let Some(preferred) = kind.versions.iter().position(|version| version.served).filter(|_| !kind.converts()) {
        writer.version = preferred;
    }
    writer
}

/// Changes an object if the change has an effect. Succeeds if the object does not exist.
pub(super) fn edit(
    state: &mut State,
    id: &ObjectId,
    controller: &str,
    change: impl FnOnce(&mut Value),
) -> Result<(), ApiError> {
    edit_part(state, id, controller, None, change)
}

/// Changes the status of an object if the change has an effect.
pub(super) fn edit_status(
    state: &mut State,
    id: &ObjectId,
    controller: &str,
    change: impl FnOnce(&mut Value),
) -> Result<(), ApiError> {
    edit_part(state, id, controller, Some("status"), change)
}

fn edit_part(
    state: &mut State,
    id: &ObjectId,
    controller: &str,
    subresource: Option<&str>,
    change: impl FnOnce(&mut Value),
) -> Result<(), ApiError> {
    if state.store.get_id(id).is_none() {
        return Ok(());
    }
    let Some(kind) = state.kinds.get(&id.resource) else { return Err(not_served(&id.resource)) };
    let mut writer = writer(kind, controller);
    writer.subresource = subresource.map(str::to_owned);
    let mut object = current(state, &writer, &id.namespace, &id.name)?;
    let old = object.clone();
    change(&mut object);
    if object != old {
        update(state, &writer, &id.namespace, &id.name, object)?;
    }
    Ok(())
}

/// Returns an error that is retried, because the kind may be served later.
pub(super) fn not_served(resource: &ResourceId) -> ApiError {
    ApiError::internal(format!("{resource} is not served"))
}

pub(super) fn remove_finalizer(object: &mut Value, finalizer: &str) {
    let kept: Vec<Value> =
        meta_list(object, "finalizers").filter(|known| *known != finalizer).map(Value::from).collect();
    metadata_mut(object).insert("finalizers".to_owned(), kept.into());
}

pub(super) fn add_finalizer(object: &mut Value, finalizer: &str) {
    if !has_finalizer(object, finalizer) {
        let mut finalizers: Vec<Value> = meta_list(object, "finalizers").map(Value::from).collect();
        finalizers.push(finalizer.into());
        metadata_mut(object).insert("finalizers".to_owned(), finalizers.into());
    }
}

pub(super) fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    meta_list(object, "finalizers").any(|known| known == finalizer)
}

/// Returns the key of an object.
pub(super) fn id(group: &str, plural: &str, namespace: &str, name: &str) -> ObjectId {
    ObjectId::new(&ResourceId::new(group, plural), namespace, name)
}

/// Returns the objects of a namespace.
pub(super) fn objects(state: &State, group: &str, plural: &str, namespace: &str) -> Vec<Arc<Stored>> {
    state.store.list(&ResourceId::new(group, plural), Some(namespace)).cloned().collect()
}

/// Returns an object if it exists.
pub(super) fn load(state: &State, id: &ObjectId) -> Option<Value> {
    state.store.get_id(id).map(|stored| stored.value())
}
