//! What an actuator gets besides the object and its Cluster.

use std::{fmt, sync::Arc, time::Duration};

use billhook_cluster::{Cluster as Seed, Fence, Options};
use http::{Request, Response};
use k8s_openapi::api::core::v1::{Secret, SecretReference};
use kube::{
    api::{Api, Patch, PatchParams},
    client::Body,
    core::DynamicObject,
};
use serde_json::{Value, json};
use tower::BoxError;

use crate::{
    actuator::SeedObject,
    error::{ActuatorError, ErrorCode},
    events::Subject,
};

/// How long `delete` may take within the default `force_delete`, unless the controller sets it.
pub(crate) const FORCE_DELETE_GRACE: Duration = Duration::from_secs(30);

/// The seed that an actuator works in.
#[derive(Clone)]
pub struct Context {
    client: kube::Client,
    /// The same server for our own requests, behind the same fence.
    pub(crate) seed: Seed,
    fence: Fence,
    pub(crate) force_delete_grace: Duration,
    /// The object that is worked on; none in the tests of an actuator.
    pub(crate) subject: Option<Arc<Subject>>,
}

impl Context {
    /// Makes a context for the tests of an actuator, over any client.
    pub fn new(client: kube::Client) -> Self {
        let seed = Seed::from_client(client.clone(), Options::default());
        Self { client, seed, fence: Fence::open(), force_delete_grace: FORCE_DELETE_GRACE, subject: None }
    }

    /// Makes a context whose requests are sent only while the fence lets them pass.
    pub(crate) fn fenced(client: &kube::Client, seed: &Seed, fence: Fence, force_delete_grace: Duration) -> Self {
        let client = fenced(client, fence.clone());
        Self { client, seed: seed.fenced(fence.clone()), fence, force_delete_grace, subject: None }
    }

    /// Makes a context for the work on one object.
    pub(crate) fn about(&self, subject: Subject) -> Self {
        Self { subject: Some(Arc::new(subject)), ..self.clone() }
    }

    /// Reads an object of the seed; none if it or its kind does not exist.
    ///
    /// # Errors
    ///
    /// When the API server rejects the request or does not answer.
    pub async fn read(&self, object: &SeedObject) -> Result<Option<Value>, ActuatorError> {
        Ok(self.seed.get(&object.resource, &object.key()).await?)
    }

    /// Writes fields of an object of the seed by server-side apply as this field manager, and creates it if it does not exist.
    /// Fields of other managers are overwritten. Fields that the manager has applied before and that are missing now are
    /// removed, also finalizers. `apiVersion`, `kind` and the name are added.
    ///
    /// # Errors
    ///
    /// When the API server rejects the request or does not answer.
    pub async fn apply(&self, object: &SeedObject, manager: &str, fields: Value) -> Result<(), ActuatorError> {
        let kind = object.kind();
        let mut manifest = if fields.is_object() { fields } else { json!({}) };
        manifest["apiVersion"] = json!(kind.api_version);
        manifest["kind"] = json!(kind.kind);
        manifest["metadata"]["name"] = json!(object.name);
        let api: Api<DynamicObject> = match &object.namespace {
            Some(namespace) => Api::namespaced_with(self.client(), namespace, &kind),
            None => Api::all_with(self.client(), &kind),
        };
        api.patch(&object.name, &PatchParams::apply(manager).force(), &Patch::Apply(manifest)).await?;
        Ok(())
    }

    /// Reads the Secret that an object refers to, such as `spec.secretRef` of a DNSRecord.
    ///
    /// # Errors
    ///
    /// With [`ErrorCode::ConfigurationProblem`] if it does not exist; otherwise as [`read`](Self::read).
    pub async fn secret(&self, reference: &SecretReference) -> Result<Secret, ActuatorError> {
        let SecretReference { name, namespace } = reference.clone();
        let (name, namespace) = (name.unwrap_or_default(), namespace.unwrap_or_default());
        let missing = format!("the Secret {namespace}/{name} does not exist");
        let found = match is_name(&name) && is_name(&namespace) {
            true => self.read(&SeedObject::new::<Secret>(namespace, name)).await?,
            false => None,
        };
        let found = found.ok_or_else(|| ActuatorError::new(missing).code(ErrorCode::ConfigurationProblem))?;
        Ok(serde_json::from_value(found)?)
    }

    /// Returns a client for the seed. Once another replica may lead, its requests fail without being sent.
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// Checks whether this process still leads. To be called right before each write to a third-party system: a process that
    /// was frozen continues where it stopped, although another one may have worked on the object meanwhile.
    ///
    /// # Errors
    ///
    /// Once another replica may lead.
    pub fn ensure_leading(&self) -> Result<(), ActuatorError> {
        if self.fence.lets_pass() { Ok(()) } else { Err(NotSent.into()) }
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("force_delete_grace", &self.force_delete_grace).finish_non_exhaustive()
    }
}

/// Returns whether an object can have this name, which becomes a segment of a path (`IsValidPathSegmentName` of apimachinery).
fn is_name(text: &str) -> bool {
    !matches!(text, "" | "." | "..") && !text.contains(['/', '%'])
}

/// The failure of a request that was not sent.
#[derive(Debug, thiserror::Error)]
#[error("the request was not sent, because this process is no longer the leader")]
struct NotSent;

/// Returns a client that checks the fence before every request.
fn fenced(client: &kube::Client, fence: Fence) -> kube::Client {
    let inner = client.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (inner, fence) = (inner.clone(), fence.clone());
        async move {
            if !fence.lets_pass() {
                return Err(BoxError::from(NotSent));
            }
            let response: Response<Body> = inner.send(request).await?;
            Ok(response)
        }
    });
    kube::Client::new(service, client.default_namespace())
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };

    use billhook_sandbox::{Sandbox, User};
    use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
    use kube::{api::DeleteParams, core::ApiResource};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn no_request_of_either_client_passes_a_closed_fence() {
        let sandbox = Sandbox::start(billhook_sandbox::Options::default());
        let client = sandbox.client(User::admin(), "extension");
        let open = Arc::new(AtomicBool::new(true));
        let fence = Fence::new("closed", {
            let open = Arc::clone(&open);
            move || open.load(Ordering::Relaxed)
        });
        let seed = Seed::from_client(client.clone(), Options::default());
        let context = Context::fenced(&client, &seed, fence, FORCE_DELETE_GRACE);
        let namespaces: Api<Namespace> = Api::all(context.client());
        namespaces.get("default").await.unwrap();
        context.ensure_leading().unwrap();
        let sent = sandbox.faults().count("extension");

        open.store(false, Ordering::Relaxed);
        let error = namespaces.delete("default", &DeleteParams::default()).await.unwrap_err();
        assert!(error.to_string().contains("no longer the leader"), "{error}");
        assert!(context.seed.catalog().await.is_err());
        assert!(context.ensure_leading().unwrap_err().to_string().contains("no longer the leader"));
        assert_eq!(sandbox.faults().count("extension"), sent);
    }

    #[tokio::test(start_paused = true)]
    async fn objects_of_the_seed_are_applied_read_and_removed() {
        let sandbox = Sandbox::start(billhook_sandbox::Options::default());
        let context = Context::new(sandbox.client(User::admin(), "extension"));
        let note = SeedObject::new::<ConfigMap>("default", "note");
        assert_eq!(context.read(&note).await.unwrap(), None);
        let fields = json!({"metadata": {"finalizers": ["x.example/y"]}, "data": {"zone": "a", "name": "b"}});
        context.apply(&note, "x.example/y", fields).await.unwrap();
        assert_eq!(context.read(&note).await.unwrap().unwrap()["metadata"]["finalizers"], json!(["x.example/y"]));
        // What is missing now is removed.
        context.apply(&note, "x.example/y", json!({"data": {"zone": "a"}})).await.unwrap();
        let found = context.read(&note).await.unwrap().unwrap();
        assert_eq!((&found["metadata"]["finalizers"], &found["data"]), (&Value::Null, &json!({"zone": "a"})));
        context.remove_by_force(&note).await.unwrap();
        assert_eq!(context.read(&note).await.unwrap(), None);

        let namespace = SeedObject::dynamic(&ApiResource::erase::<Namespace>(&()), None, "new");
        context.apply(&namespace, "x.example/y", Value::Null).await.unwrap();
        assert!(context.read(&namespace).await.unwrap().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_secret_that_does_not_exist_is_a_mistake_of_the_configuration() {
        let sandbox = Sandbox::start(billhook_sandbox::Options::default());
        let context = Context::new(sandbox.client(User::admin(), "extension"));
        let reference =
            |name: &str| SecretReference { name: Some(name.to_owned()), namespace: Some("default".to_owned()) };
        // A name that is no name does not lead to another object.
        for name in ["none", "", "..", "../../namespaces/default", "dns/x", "%2e"] {
            let error = context.secret(&reference(name)).await.unwrap_err();
            assert_eq!(error.codes(), [ErrorCode::ConfigurationProblem], "{error}");
            assert_eq!(error.to_string(), format!("the Secret default/{name} does not exist"));
        }
        let secret = SeedObject::new::<Secret>("default", "dns");
        context.apply(&secret, "x.example/y", json!({"stringData": {"key": "value"}})).await.unwrap();
        assert_eq!(context.secret(&reference("dns")).await.unwrap().data.unwrap()["key"].0, b"value");
    }
}
