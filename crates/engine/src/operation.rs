//! Operations on releases: from the input to a plan, and from a plan to the release's inventory. All front ends share them.

mod apply;
mod backup;
mod claims;
mod clean;
mod delete;
mod error;
mod forget;
mod read;
mod record;
mod restore;
mod sweep;
mod take_over;

pub use apply::{
    ApplyInput, DeploymentOrder, GraphOf, PreparedApply, Starting, Unowned, Unrecorded, apply, apply_announced,
    prepare_apply,
};
pub use backup::{BackupMode, save_objects};
pub use clean::{CleanSubject, PreparedClean, clean, prepare_clean};
pub use delete::{
    DeleteInput, DeletionOrder, PreparedDelete, Subject, delete, prepare_delete, prepare_delete_foreseen,
};
pub use error::OperationError;
pub use forget::{Forgotten, PreparedForget, forget, prepare_forget};
pub(crate) use record::Record;
pub use record::{Inherited, forget_record};
pub use restore::{RestoreInput, prepare_restore};
pub(crate) use sweep::sweep;
pub use take_over::{give_back, take_over};
