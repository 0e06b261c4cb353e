//! Whether the caller has a right.

use billhook_objects::ObjectKey;
use billhook_plan::Resource;
use serde::Deserialize;
use serde_json::json;

use crate::{
    cluster::Cluster,
    counts::Verb,
    error::{Error, object_name},
    request::Call,
};

/// The reviews of the caller's own rights, which are answered and not stored.
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// The answer to a review of rights.
#[derive(Deserialize)]
pub(crate) struct Review {
    pub(crate) status: ReviewStatus,
}

#[derive(Deserialize)]
pub(crate) struct ReviewStatus {
    pub(crate) allowed: bool,
    #[serde(default)]
    pub(crate) reason: String,
}

impl Cluster {
    /// Returns whether the caller may send a request with this verb for an object, or for a subresource of it such as `status`.
    /// Admission may reject the request nevertheless.
    ///
    /// # Errors
    ///
    /// When the request fails.
    pub async fn may(
        &self,
        verb: &str,
        resource: &Resource,
        key: &ObjectKey,
        subresource: Option<&str>,
    ) -> Result<bool, Error> {
        let namespace = key.namespace.as_deref().filter(|_| resource.namespaced).unwrap_or_default();
        let attributes = json!({
            "verb": verb,
            "group": resource.kind.group,
            "version": resource.version,
            "resource": resource.plural,
            "subresource": subresource.unwrap_or_default(),
            "namespace": namespace,
            "name": key.name,
        });
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        });
        let object = object_name(resource, key.namespace.as_deref(), &key.name);
        let what = format!("ask for the right to {verb} {object}");
        let call = Call::new(Verb::Create, what, REVIEWS.to_owned()).body("application/json", review.to_string());
        Ok(self.send(&call).await?.json::<Review>()?.status.allowed)
    }
}
