//! DELETE of a collection.

use serde_json::{Value, json};

use super::{DeleteOptions, Writer, delete};
use crate::{conversion::readable, selector::Selector, state::State, status::ApiError, webhooks::Collection};

/// Deletes the objects that match a selector one after another and returns a list of them.
///
/// A request that has to wait for a webhook continues with the object that it waits for: only the deletion of each object
/// is one step.
pub(crate) fn delete_collection(
    state: &mut State,
    writer: &Writer,
    namespace: Option<&str>,
    selector: &Selector,
    options: &DeleteOptions,
) -> Result<Value, ApiError> {
    if state.store.is_corrupt(writer.kind.table(), namespace, None) {
        return Err(ApiError::undecodable());
    }
    let known = state.memory.get_mut().collection.take();
    let mut collection = known.unwrap_or_else(|| find(state, writer, namespace, selector));
    while let Some((namespace, name)) = collection.rest.pop() {
        match delete_one(state, writer, &namespace, &name, options) {
            Ok(item) => collection.deleted.extend(item),
            // The first error ends the request; objects deleted before it remain deleted.
            Err(error) => {
                if state.is_waiting() {
                    collection.rest.push((namespace, name));
                    state.memory.get_mut().collection = Some(collection);
                }
                return Err(error);
            }
        }
    }
    let mut list = json!({
        "kind": writer.kind.list_kind, "apiVersion": writer.api_version(),
        "metadata": {"resourceVersion": collection.revision}, "items": collection.deleted,
    });
    if writer.kind.crd.is_some() {
        list["metadata"]["continue"] = "".into();
    }
    Ok(list)
}

fn find(state: &State, writer: &Writer, namespace: Option<&str>, selector: &Selector) -> Collection {
    let found = state.store.list(writer.kind.table(), namespace).filter(|object| selector.matches(object));
    let mut rest: Vec<_> = found.map(|object| (object.namespace.clone(), object.name.clone())).collect();
    rest.reverse();
    Collection { revision: state.store.revision().to_string(), rest, deleted: Vec::new() }
}

/// Deletes an object and returns its state before; none if it has been deleted in the meantime.
fn delete_one(
    state: &mut State,
    writer: &Writer,
    namespace: &str,
    name: &str,
    options: &DeleteOptions,
) -> Result<Option<Value>, ApiError> {
    let kind = &writer.kind;
    let Some(object) = state.store.get(kind.table(), namespace, name).cloned() else { return Ok(None) };
    let mut item = readable(state, kind, writer.version, std::slice::from_ref(&object))?[0].value();
    delete(state, writer, namespace, name, options)?;
    item["apiVersion"] = writer.api_version().into();
    if kind.crd.is_none()
        && let Value::Object(fields) = &mut item
    {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    Ok(Some(item))
}
