//! The admission rules of Gardener's confirmation annotations: who may force the deletion of a Shoot, and which objects may be
//! deleted at all.
//!
//! The rules are plain functions of annotations and need no feature of this crate. With the feature `webhook`, [`review()`]
//! answers an admission review by one of them, and [`router()`] serves both over HTTP.
//!
//! ```
//! use billhook_extension::admission::{ForceDeletionError, validate_force_deletion};
//!
//! // The annotation is set on a Shoot that is being deleted, and whose status has one of the codes.
//! assert_eq!(validate_force_deletion(None, Some("true"), true, ["ERR_INFRA_UNAUTHENTICATED"]), []);
//! // It is removed.
//! assert_eq!(validate_force_deletion(Some("true"), None, true, []), [ForceDeletionError::Removed]);
//! ```

#[cfg(feature = "webhook")]
mod review;
#[cfg(feature = "webhook")]
mod router;
#[cfg(test)]
mod tests;

#[cfg(feature = "webhook")]
pub use self::{
    review::{MalformedReview, Rule, review},
    router::{MAX_REVIEW, router},
};

pub use crate::gardener::FORCE_DELETION;
use crate::{error::ErrorCode, gardener::parse_bool};

/// The annotation of an object that confirms that it may be deleted.
pub const DELETION: &str = "confirmation.gardener.cloud/deletion";

/// The codes of errors that force deletion may resolve: the status of a Shoot must have one of them.
pub const FORCE_DELETION_CODES: [&str; 5] = [
    ErrorCode::CleanupClusterResources.name(),
    ErrorCode::ConfigurationProblem.name(),
    ErrorCode::InfraDependencies.name(),
    ErrorCode::InfraUnauthenticated.name(),
    ErrorCode::InfraUnauthorized.name(),
];

/// Why the annotation [`FORCE_DELETION`] may not be changed in this way. The texts are Gardener's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForceDeletionError {
    /// What was already orphaned would be forgotten.
    #[error("force-deletion annotation cannot be removed once set")]
    Removed,
    /// The Shoot is in use.
    #[error("force-deletion annotation cannot be set when Shoot deletionTimestamp is nil")]
    NotDeleting,
    /// Nothing shows that the Shoot cannot be deleted gracefully.
    #[error(
        "force-deletion annotation cannot be set when Shoot status does not contain one of these error codes: [{}]",
        FORCE_DELETION_CODES.join(" ")
    )]
    NoErrorCode,
}

/// The annotation [`DELETION`] of an object is missing or not true. The text is Gardener's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must have a {DELETION:?} annotation to delete")]
pub struct NotConfirmed;

/// Returns everything that forbids an update of a Shoot, as `ValidateForceDeletion` of Gardener does.
///
/// `old` and `new` are the values of the annotation [`FORCE_DELETION`] before and after the update; for a new Shoot, `old` is
/// `None`. `is_deleting` tells whether the updated Shoot has a `deletionTimestamp`, and `codes` are those of all
/// `status.lastErrors` of the updated Shoot.
pub fn validate_force_deletion<'a>(
    old: Option<&str>,
    new: Option<&str>,
    is_deleting: bool,
    codes: impl IntoIterator<Item = &'a str>,
) -> Vec<ForceDeletionError> {
    let mut errors = Vec::new();
    match (is_true(old), is_true(new)) {
        (true, false) => errors.push(ForceDeletionError::Removed),
        (false, true) => {
            if !is_deleting {
                errors.push(ForceDeletionError::NotDeleting);
            }
            if !codes.into_iter().any(|code| FORCE_DELETION_CODES.contains(&code)) {
                errors.push(ForceDeletionError::NoErrorCode);
            }
        }
        (true, true) | (false, false) => {}
    }
    errors
}

/// Checks that an object may be deleted, as `CheckIfDeletionIsConfirmed` of Gardener does. `annotation` is the value of its
/// annotation [`DELETION`].
///
/// # Errors
///
/// If the annotation is missing or not true.
pub fn check_deletion_confirmed(annotation: Option<&str>) -> Result<(), NotConfirmed> {
    if is_true(annotation) { Ok(()) } else { Err(NotConfirmed) }
}

/// What is not a boolean counts as false, as in Gardener.
fn is_true(annotation: Option<&str>) -> bool {
    annotation.and_then(parse_bool).unwrap_or(false)
}
