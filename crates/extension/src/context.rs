//! What an actuator gets besides the object and its Cluster.

use std::{fmt, sync::Arc, time::Duration};

use billhook_cluster::{Cluster as Seed, Fence, Options};
use http::{Request, Response};
use kube::client::Body;
use tower::BoxError;

use crate::events::Subject;

/// How long `delete` may take within the default `force_delete`, unless the controller sets it.
pub(crate) const FORCE_DELETE_GRACE: Duration = Duration::from_secs(30);

/// The seed that an actuator works in.
#[derive(Clone)]
pub struct Context {
    client: kube::Client,
    /// The same server for our own requests, behind the same fence.
    pub(crate) seed: Seed,
    pub(crate) force_delete_grace: Duration,
    /// The object that is worked on; none in the tests of an actuator.
    pub(crate) subject: Option<Arc<Subject>>,
}

impl Context {
    /// Makes a context for the tests of an actuator, over any client.
    pub fn new(client: kube::Client) -> Self {
        let seed = Seed::from_client(client.clone(), Options::default());
        Self { client, seed, force_delete_grace: FORCE_DELETE_GRACE, subject: None }
    }

    /// Makes a context whose requests are sent only while the fence lets them pass.
    pub(crate) fn fenced(client: &kube::Client, seed: &Seed, fence: Fence, force_delete_grace: Duration) -> Self {
        Self { client: fenced(client, fence.clone()), seed: seed.fenced(fence), force_delete_grace, subject: None }
    }

    /// Makes a context for the work on one object.
    pub(crate) fn about(&self, subject: Subject) -> Self {
        Self { subject: Some(Arc::new(subject)), ..self.clone() }
    }

    /// Returns a client for the seed. Once another replica may lead, its requests fail without being sent.
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("force_delete_grace", &self.force_delete_grace).finish_non_exhaustive()
    }
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
    use k8s_openapi::api::core::v1::Namespace;
    use kube::{Api, api::DeleteParams};

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
        let sent = sandbox.faults().count("extension");

        open.store(false, Ordering::Relaxed);
        let error = namespaces.delete("default", &DeleteParams::default()).await.unwrap_err();
        assert!(error.to_string().contains("no longer the leader"), "{error}");
        assert!(context.seed.catalog().await.is_err());
        assert_eq!(sandbox.faults().count("extension"), sent);
    }
}
