//! Patches and the ownership of fields.

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

/// The manager of a write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manager<'a> {
    pub(crate) name: &'a str,
    /// The version of the fields: `apps/v1`.
    pub(crate) api_version: &'a str,
    pub(crate) subresource: Option<&'a str>,
    /// The time of the write: `2026-01-01T00:00:00Z`.
    pub(crate) time: &'a str,
}

/// Returns the error for a patch that does not match the object, which the API does not explain.
fn rejected() -> ApiError {
    let message = "the server rejected our request due to an error in our request";
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).about_nothing()
}
