//! Single reads.

use billhook_objects::ObjectKey;
use billhook_plan::{Observed, Resource};
use serde_json::Value;

use crate::{
    cluster::Cluster,
    error::Error,
    transport::unreadable,
    wire::{Full, Meta},
};

impl Cluster {
    /// Reads a whole object; none where it, or its kind, is not there.
    ///
    /// # Errors
    ///
    /// When the server does not say.
    pub async fn get(&self, resource: &Resource, key: &ObjectKey) -> Result<Option<Value>, Error> {
        let full = self.fetch_one::<Full<Value>>(resource, key.namespace.as_deref(), &key.name, true).await?;
        full.map(|full| full.value.map_err(|error| unreadable(format!("read {key}"), &error))).transpose()
    }

    /// Reads an object's metadata; none where it, or its kind, is not there.
    ///
    /// # Errors
    ///
    /// When the server does not say.
    pub async fn get_meta(&self, resource: &Resource, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        let meta = self.fetch_one::<Meta>(resource, key.namespace.as_deref(), &key.name, true).await?;
        Ok(meta.map(|Meta(observed)| observed))
    }
}
