//! References to kinds and objects.

use billhook_objects::ApiVersion;

use crate::{
    TypedReference,
    reader::{Cursor, Fields},
};

/// Reads a reference to an object by its name.
pub(super) fn typed_reference(cursor: &Cursor<'_>) -> Option<TypedReference> {
    let mut fields = cursor.fields()?;
    let (api_version, kind) = typed(&mut fields);
    let name = fields.required("name").and_then(|cursor| cursor.text());
    let namespace = fields.filled_text("namespace");
    fields.finish();
    Some(TypedReference { api_version: api_version?, kind: kind?, name: name?.to_owned(), namespace })
}

/// Reads the `apiVersion` and `kind` of an object.
pub(super) fn typed(fields: &mut Fields<'_>) -> (Option<ApiVersion>, Option<String>) {
    let api_version = fields.required("apiVersion").and_then(|cursor| cursor.api_version());
    let kind = fields.required("kind").and_then(|cursor| cursor.text()).map(str::to_owned);
    (api_version, kind)
}
