//! Plans that delete: each object belongs to the first group that matches it, and the groups run in order.

mod assign;
mod assigned;
mod clean;
mod collect;
mod deletion;
mod nodes;
mod notes;

use crate::{
    Plan, PlanError, Snapshot,
    find::{Finder, Index},
};

pub use clean::{CleanRequest, Spared};
pub use deletion::Deletion;

impl Deletion<'_> {
    /// Plans the deletion from the answers to [`Deletion::queries`] and [`Deletion::missing`].
    ///
    /// # Errors
    ///
    /// When the snapshot leaves open whether an object exists, since no object of a release may be forgotten, and when the
    /// plan would delete a system namespace.
    pub fn plan(&self, snapshot: &Snapshot) -> Result<Plan, PlanError> {
        let index = Index::of(snapshot);
        let missing = self.missing(snapshot);
        let finder = Finder::new(self.queries().iter().chain(&missing), &index);
        let mut assigned = self.assign(&finder, &index)?;
        self.note_unrecorded(&index, &mut assigned);
        Ok(self.build(assigned, &index))
    }
}
