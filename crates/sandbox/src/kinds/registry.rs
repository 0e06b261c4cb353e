//! The kinds that are served at the moment.

use std::{collections::BTreeMap, sync::Arc};

use super::{Kind, ResourceId, builtin};

/// The kinds that are served at the moment.
#[derive(Debug)]
pub(crate) struct Kinds {
    /// Shared by all sandboxes until a CustomResourceDefinition adds a kind.
    all: Arc<BTreeMap<ResourceId, Arc<Kind>>>,
    /// Incremented with every change, so that callers can cache what they derive.
    pub(crate) generation: u64,
}

impl Kinds {
    /// Returns the kinds of Kubernetes.
    pub(crate) fn new() -> Self {
        Self { all: builtin::all(), generation: 0 }
    }

    pub(crate) fn get(&self, id: &ResourceId) -> Option<&Arc<Kind>> {
        self.all.get(id)
    }

    /// Finds a kind by the group and plural in a path.
    pub(crate) fn find(&self, group: &str, plural: &str) -> Option<&Arc<Kind>> {
        self.all.get(&ResourceId::new(group, plural))
    }

    /// Finds a kind by group and name, as owner references do.
    pub(crate) fn by_kind(&self, group: &str, kind: &str) -> Option<&Arc<Kind>> {
        self.all.values().find(|known| known.group() == group && known.kind == kind)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.all.values()
    }

    /// Serves a kind and replaces an earlier definition of it.
    pub(crate) fn insert(&mut self, kind: Arc<Kind>) {
        self.generation += 1;
        Arc::make_mut(&mut self.all).insert(kind.id.clone(), kind);
    }

    /// Stops serving a kind.
    pub(crate) fn remove(&mut self, id: &ResourceId) -> Option<Arc<Kind>> {
        self.generation += 1;
        Arc::make_mut(&mut self.all).remove(id)
    }
}
