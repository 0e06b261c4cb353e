//! The kinds that are served now.

use std::{collections::BTreeMap, sync::Arc};

use super::{Kind, ResourceId, builtin};

/// All kinds that are served now.
#[derive(Debug)]
pub(crate) struct Kinds {
    /// Those of Kubernetes are shared with all other sandboxes until a definition comes.
    all: Arc<BTreeMap<ResourceId, Arc<Kind>>>,
    /// Rises with every change, so that what is derived can be kept.
    pub(crate) generation: u64,
}

impl Kinds {
    /// The kinds of Kubernetes.
    pub(crate) fn new() -> Self {
        Self { all: builtin::all(), generation: 0 }
    }

    pub(crate) fn get(&self, id: &ResourceId) -> Option<&Arc<Kind>> {
        self.all.get(id)
    }

    /// Finds a resource by the parts of its path.
    pub(crate) fn find(&self, group: &str, plural: &str) -> Option<&Arc<Kind>> {
        self.all.get(&ResourceId::new(group, plural))
    }

    /// Finds a resource by group and kind, as owner references name it.
    pub(crate) fn by_kind(&self, group: &str, kind: &str) -> Option<&Arc<Kind>> {
        self.all.values().find(|known| known.group() == group && known.kind == kind)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.all.values()
    }

    /// Serves a kind, in place of an older form of it.
    pub(crate) fn insert(&mut self, kind: Arc<Kind>) {
        self.generation += 1;
        Arc::make_mut(&mut self.all).insert(kind.id.clone(), kind);
    }

    /// Serves a kind no longer.
    pub(crate) fn remove(&mut self, id: &ResourceId) -> Option<Arc<Kind>> {
        self.generation += 1;
        Arc::make_mut(&mut self.all).remove(id)
    }
}
