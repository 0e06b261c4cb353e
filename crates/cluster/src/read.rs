//! Single reads.

use billhook_objects::ObjectKey;
use billhook_plan::{Observed, Resource};
use serde_json::Value;

use crate::{
    cluster::Cluster,
    decode::{Full, Meta, Shape},
    error::{Error, object_name},
    request::{Call, unreadable},
    url,
};

impl Cluster {
    /// Reads a whole object; none if it or its kind does not exist.
    ///
    /// # Errors
    ///
    /// When the request fails.
    pub async fn get(&self, resource: &Resource, key: &ObjectKey) -> Result<Option<Value>, Error> {
        let full = self.fetch_one::<Full<Value>>(resource, key.namespace.as_deref(), &key.name, true).await?;
        full.map(|full| full.value.map_err(|error| unreadable(format!("read {key}"), &error))).transpose()
    }

    /// Reads the metadata of an object; none if it or its kind does not exist.
    ///
    /// # Errors
    ///
    /// When the request fails.
    pub async fn get_meta(&self, resource: &Resource, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        let meta = self.fetch_one::<Meta>(resource, key.namespace.as_deref(), &key.name, true).await?;
        Ok(meta.map(|Meta(observed)| observed))
    }

    /// Reads one object; none if it or its kind does not exist. Without `retry` the request is sent once.
    pub(crate) async fn fetch_one<S: Shape>(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        name: &str,
        retry: bool,
    ) -> Result<Option<S>, Error> {
        let what = format!("read {}", object_name(resource, namespace, name));
        let call =
            |resource: &Resource| Call::get(&what, url::object(resource, namespace, name)).accept(S::ITEM).retry(retry);
        self.send_about(resource, call).await?.map(|reply| reply.json()).transpose()
    }
}
