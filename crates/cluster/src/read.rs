//! Single reads, and the proof that a collection is empty.

use billhook_objects::ObjectKey;
use billhook_plan::{Observed, Query, Resource, Select};
use serde_json::Value;

use crate::{
    cluster::Cluster,
    error::{Error, ErrorKind},
    path,
    transport::{Call, Verb},
    wire::{Full, META_LIST, Meta, Page},
};

/// How many objects of a collection that is not empty are shown.
const SAMPLE: &str = "20";

impl Cluster {
    /// Reads a whole object; none where it, or its kind, is not there.
    ///
    /// # Errors
    ///
    /// When the server does not say.
    pub async fn get(&self, resource: &Resource, key: &ObjectKey) -> Result<Option<Value>, Error> {
        let full = self.fetch_one::<Full<Value>>(resource, key.namespace.as_deref(), &key.name, true).await?;
        Ok(full.map(|full| full.value))
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

    /// Asks whether a query finds anything: up to 20 objects of it, by a consistent read (no `resourceVersion`).
    /// An empty answer is the proof that nothing is there.
    ///
    /// # Errors
    ///
    /// When the server does not say; a kind that is not served is [`ErrorKind::NotServed`].
    pub async fn exists_any(&self, query: &Query) -> Result<Vec<Observed>, Error> {
        let labels = match &query.select {
            Select::All => "",
            Select::Labels(selector) => selector,
            Select::Names(_) => {
                let found = self.fetch::<Meta>(query, true).await?;
                return Ok(found.items.into_iter().map(|Meta(observed)| observed).collect());
            }
        };
        let one = async |namespace: Option<&str>| {
            let url = path::collection(&query.resource, namespace);
            let url = path::with(&url, &[("labelSelector", labels), ("limit", SAMPLE)]);
            let call = Call::new(Verb::List, format!("list {}", query.resource.kind), url).accept(META_LIST);
            self.send(&call).await?.json::<Page<Meta>>()
        };
        let pages = match one(query.namespace.as_deref()).await {
            Err(error) if error.kind == ErrorKind::Forbidden && !query.namespaces.is_empty() => {
                futures::future::try_join_all(query.namespaces.iter().map(|namespace| one(Some(namespace)))).await?
            }
            page => vec![page?],
        };
        Ok(pages.into_iter().flat_map(|page| page.items).map(|Meta(observed)| observed).collect())
    }
}
