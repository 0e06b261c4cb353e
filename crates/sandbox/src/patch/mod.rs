//! Patches, and who owns which field.

mod apply;
mod fields;
mod go;
mod json;
mod managed;
mod merge;
mod prune;
mod strategic;
#[cfg(test)]
mod tests;
mod track;
mod typed;
mod validate;

use http::StatusCode;

use crate::status::ApiError;

pub(crate) use apply::apply;
pub(crate) use json::{json_patch, merge_patch};
pub(crate) use managed::keep_times;
pub(crate) use strategic::strategic_merge_patch;
pub(crate) use track::track;

/// Who writes, as `managedFields` name it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manager<'a> {
    pub(crate) name: &'a str,
    /// The version of the fields, `apps/v1`.
    pub(crate) api_version: &'a str,
    pub(crate) subresource: Option<&'a str>,
    /// `2026-01-01T00:00:00Z`
    pub(crate) time: &'a str,
}

/// A patch that does not fit the object: the API does not say why.
fn rejected() -> ApiError {
    let message = "the server rejected our request due to an error in our request";
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).about_nothing()
}
