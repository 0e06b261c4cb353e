//! DELETE of a collection.

use serde_json::{Value, json};

use super::{DeleteOptions, Writer, delete, read::readable};
use crate::{object::Stored, selector::Selector, state::State, status::ApiError};

/// Deletes the objects that match a selector one after another and returns a list of them.
pub(crate) fn delete_collection(
    state: &mut State,
    writer: &Writer,
    namespace: Option<&str>,
    selector: &Selector,
    options: &DeleteOptions,
) -> Result<Value, ApiError> {
    let kind = &writer.kind;
    readable(kind, writer.version)?;
    let found: Vec<_> =
        state.store.list(&kind.id, namespace).filter(|object| selector.matches(object)).cloned().collect();
    let revision = state.store.revision().to_string();
    let mut items = Vec::new();
    for object in &found {
        let Stored { namespace, name, .. } = &**object;
        // The first error ends the request; objects deleted before it remain deleted.
        delete(state, writer, namespace, name, options)?;
        let mut item = object.value();
        item["apiVersion"] = writer.api_version().into();
        if kind.crd.is_none()
            && let Value::Object(fields) = &mut item
        {
            fields.remove("apiVersion");
            fields.remove("kind");
        }
        items.push(item);
    }
    let mut list = json!({
        "kind": kind.list_kind, "apiVersion": writer.api_version(),
        "metadata": {"resourceVersion": revision}, "items": items,
    });
    if kind.crd.is_some() {
        list["metadata"]["continue"] = "".into();
    }
    Ok(list)
}
