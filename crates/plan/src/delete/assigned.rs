//! The objects of a deletion, divided among its groups.

use std::collections::{BTreeMap, HashSet};

use billhook_objects::{GroupKind, ObjectKey, Uid};

use crate::{Note, Observed, PatchTask, Query, Uncovered, Unmanaged, honoured::Honoured};

/// An object to delete.
#[derive(Clone)]
pub(super) struct Pick<'a> {
    pub(super) key: ObjectKey,
    pub(super) object: &'a Observed,
    pub(super) query: &'a Query,
    /// Whether the release or the manifests name it; else it belongs to a collection.
    pub(super) named: bool,
}

/// The outcome of the assignment for every object.
#[derive(Default)]
pub(super) struct Assigned<'a> {
    /// The objects of each group, in the order of the groups.
    pub(super) groups: Vec<Vec<Pick<'a>>>,
    /// The Namespace that holds the inventory, and the index of its group.
    pub(super) last: Option<(usize, Pick<'a>)>,
    /// All objects to delete.
    pub(super) taken: HashSet<&'a Uid>,
    /// What is patched before anything is deleted.
    pub(super) patches: Vec<PatchTask>,
    pub(super) uncovered: Vec<Uncovered>,
    pub(super) unmanaged: Vec<Unmanaged>,
    pub(super) notes: Vec<Note>,
    pub(super) honoured: Honoured,
    pub(super) not_served: BTreeMap<GroupKind, usize>,
}
