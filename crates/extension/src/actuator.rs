//! What the author of an extension writes.

use std::fmt;

use billhook_objects::{GroupKind, ObjectKey};
use billhook_plan::Resource;
use kube::core::{ApiResource, GroupVersionKind};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{context::Context, error::ActuatorError, force, gardener::Cluster, status::clip};

/// The longest description before the names of what is orphaned, in bytes.
const PROBLEM: usize = 400;

/// A type for the objects of an extension kind: one with [`kube::CustomResource`], or [`kube::core::DynamicObject`].
pub trait Object: kube::Resource + Clone + fmt::Debug + DeserializeOwned + Send + Sync + 'static {}

impl<T: kube::Resource + Clone + fmt::Debug + DeserializeOwned + Send + Sync + 'static> Object for T {}

/// What an extension does for its objects. The [`Controller`](crate::Controller) decides when, and writes the status, the
/// finalizer and the annotations.
///
/// # What an actuator must guarantee
///
/// - **Each method can be called again**, whether its last call succeeded, failed or was cancelled. A controller that was
///   killed leaves a half-done call behind, and its successor starts from the beginning.
/// - **Each method can be cancelled at every `await`**: when it takes too long, when the process no longer leads, and, for
///   `reconcile`, `restore` and `delete`, when the owner of the Shoot asks for force deletion. The future is dropped before
///   `force_delete` is called. A request that was in flight may still be carried out, so that `force_delete` must expect its
///   effect. What must not be torn apart belongs into a task that is spawned, and is found again by its outcome.
/// - **`delete` returns `Ok` only when everything is gone.** The finalizer is removed after that.
/// - **`force_delete` succeeds even if something remains outside.** The finalizer remains as long as it fails, and so does
///   the Shoot.
/// - Writes to the seed go through the [`Context`] and its client, which stop them when another replica may lead. Before a
///   write to a third-party system, [`Context::ensure_leading`] does.
///
/// # What an actuator can rely on
///
/// The object has the status from before the call: `lastOperation` is that of the last attempt. If it says `Succeeded`,
/// nothing was tried since, and what the last [`Outcome::status`] left there is still true. That saves a steady reconcile the
/// requests to find it out.
pub trait Actuator: Send + Sync + 'static {
    /// The kind of object.
    type Object: Object;

    /// Brings what belongs to the object to the state that the object describes.
    fn reconcile(
        &self,
        context: &Context,
        object: &Self::Object,
        cluster: &Cluster,
    ) -> impl Future<Output = Result<Outcome, ActuatorError>> + Send;

    /// Deletes what belongs to the object.
    fn delete(
        &self,
        context: &Context,
        object: &Self::Object,
        cluster: &Cluster,
    ) -> impl Future<Output = Result<Outcome, ActuatorError>> + Send;

    /// Deletes what belongs to the object when graceful deletion has not succeeded and the owner of the Shoot has asked to go
    /// on without.
    ///
    /// - What can be deleted gracefully is deleted gracefully.
    /// - Objects in the seed that a third-party system backs lose their finalizers and are deleted.
    /// - Objects in the shoot are left alone: they disappear with it.
    /// - What remains in third-party systems is named in the [`Outcome`], and the call succeeds.
    ///
    /// By default, [`delete`](Self::delete) gets the time that
    /// [`Controller::force_delete_grace`](crate::Controller::force_delete_grace) sets. If it failed or panicked, the
    /// [`external`](Self::external) resources are reported as orphaned, see
    /// [`Context::report_orphaned`]. After that, whether it succeeded or not, the [`seed_objects`](Self::seed_objects) are
    /// deleted and their finalizers removed. This only fails if the seed rejects a request.
    ///
    /// An object that cannot be read as [`Object`](Self::Object) is deleted by force without this call.
    fn force_delete(
        &self,
        context: &Context,
        object: &Self::Object,
        cluster: &Cluster,
    ) -> impl Future<Output = Result<Outcome, ActuatorError>> + Send {
        force::force_delete(self, context, object, cluster)
    }

    /// Leaves the seed: the control plane of the Shoot moves to another one. External resources remain, objects in this seed
    /// that would act on them do not. By default, nothing is done, which is right for an extension that has no such objects.
    fn migrate(
        &self,
        _context: &Context,
        _object: &Self::Object,
        _cluster: &Cluster,
    ) -> impl Future<Output = Result<Outcome, ActuatorError>> + Send {
        std::future::ready(Ok(Outcome::done()))
    }

    /// Takes over what another seed has left, with the state that the object carries. By default, this reconciles.
    fn restore(
        &self,
        context: &Context,
        object: &Self::Object,
        cluster: &Cluster,
    ) -> impl Future<Output = Result<Outcome, ActuatorError>> + Send {
        self.reconcile(context, object, cluster)
    }

    /// Returns the objects in the seed that belong to the object. The default [`force_delete`](Self::force_delete) removes
    /// them by force.
    fn seed_objects(&self, _object: &Self::Object, _cluster: &Cluster) -> Vec<SeedObject> {
        Vec::new()
    }

    /// Returns what may exist outside the seed for the object, in words, such as `DNS record www.example.org A`. The default
    /// [`force_delete`](Self::force_delete) reports it as orphaned if it could not be deleted.
    fn external(&self, _object: &Self::Object, _cluster: &Cluster) -> Vec<String> {
        Vec::new()
    }
}

/// The result of a successful call of an actuator.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    pub(crate) description: String,
    pub(crate) status: Value,
    pub(crate) orphaned: Vec<String>,
}

impl Outcome {
    /// Returns an outcome that has no more to say.
    pub fn done() -> Self {
        Self::default()
    }

    /// Adds a text to `lastOperation.description`.
    #[must_use]
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.description = text.into();
        self
    }

    /// Sets fields of the object's status, such as `providerStatus`, with the same request that reports the success. Fields
    /// that are null are removed. `lastOperation`, `lastError` and `observedGeneration` are the controller's.
    #[must_use]
    pub fn status(mut self, fields: Value) -> Self {
        self.status = fields;
        self
    }

    /// Adds something that remains in a third-party system. It is named in `lastOperation.description`, in the log, and in an
    /// Event, which outlives the object.
    #[must_use]
    pub fn orphaned(mut self, what: impl Into<String>) -> Self {
        self.orphaned.push(what.into());
        self
    }

    /// Returns the text for `lastOperation.description`.
    pub(crate) fn text(&self) -> String {
        let orphaned = match self.orphaned.as_slice() {
            [] => String::new(),
            orphaned => format!("orphaned: {}", orphaned.join(", ")),
        };
        if self.description.is_empty() || orphaned.is_empty() {
            return format!("{}{orphaned}", self.description);
        }
        // An Event has little room, and a problem may be a whole page of an infrastructure's answer.
        format!("{}; {orphaned}", clip(&self.description, PROBLEM))
    }
}

/// An object in the seed, by its kind and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeedObject {
    pub(crate) resource: Resource,
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
}

impl SeedObject {
    /// Names an object in a namespace, of a kind that is known at compile time.
    ///
    /// ```
    /// use billhook_extension::SeedObject;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    ///
    /// let written = SeedObject::new::<ConfigMap>("shoot--dev--web", "dns-record-web");
    /// assert_eq!(written.to_string(), "ConfigMap/shoot--dev--web/dns-record-web");
    /// ```
    pub fn new<K: kube::Resource<DynamicType = ()>>(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self::dynamic(&ApiResource::erase::<K>(&()), Some(&namespace.into()), name)
    }

    /// Names an object of any kind. Without a namespace, the kind is cluster-scoped.
    pub fn dynamic(kind: &ApiResource, namespace: Option<&str>, name: impl Into<String>) -> Self {
        let resource = Resource {
            kind: GroupKind::new(&kind.group, &kind.kind),
            version: kind.version.clone(),
            plural: kind.plural.clone(),
            namespaced: namespace.is_some(),
        };
        Self { resource, namespace: namespace.map(str::to_owned), name: name.into() }
    }

    pub(crate) fn key(&self) -> ObjectKey {
        ObjectKey::new(self.resource.kind.clone(), self.namespace.as_deref(), &self.name)
    }

    /// Returns the kind as kube names it.
    pub(crate) fn kind(&self) -> ApiResource {
        let Resource { kind: GroupKind { group, kind }, version, plural, .. } = &self.resource;
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
    }
}

impl fmt::Display for SeedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, namespace, name } = self;
        match namespace {
            Some(namespace) => write!(f, "{}/{namespace}/{name}", resource.kind),
            None => write!(f, "{}/{name}", resource.kind),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_names_what_is_orphaned() {
        assert_eq!(Outcome::done().text(), "");
        assert_eq!(Outcome::done().description("1 record").text(), "1 record");
        let orphaned = Outcome::done().orphaned("a").orphaned("b");
        assert_eq!(orphaned.text(), "orphaned: a, b");
        assert_eq!(orphaned.clone().description("delete failed").text(), "delete failed; orphaned: a, b");
        let long = orphaned.description("x".repeat(2000)).text();
        assert!(long.len() < 500 && long.ends_with("x; orphaned: a, b"), "{long}");
    }
}
