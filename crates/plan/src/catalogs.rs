//! The kinds that each cluster serves.

use std::{collections::BTreeMap, sync::Arc};

use billhook_objects::Catalog;

/// The kinds that each cluster of an operation serves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalogs {
    /// The kinds of the release's own cluster.
    pub own: Arc<Catalog>,
    /// The kinds of other clusters, by target name.
    pub targets: BTreeMap<String, Arc<Catalog>>,
}

impl Catalogs {
    /// Returns the catalogs of an operation without targets.
    pub fn own(catalog: impl Into<Arc<Catalog>>) -> Self {
        Self { own: catalog.into(), targets: BTreeMap::new() }
    }

    /// Returns the catalog of a target, or of the release's own cluster; none for an unknown target.
    pub fn get(&self, cluster: Option<&str>) -> Option<&Catalog> {
        match cluster {
            None => Some(&self.own),
            Some(name) => self.targets.get(name).map(Arc::as_ref),
        }
    }
}
