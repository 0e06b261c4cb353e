//! The in-memory API server as a cluster: for `--sandbox`, `billhook sandbox` and the demo.

use std::time::Duration;

use billhook_cluster::{Cluster, Options as ClusterOptions};
use billhook_objects::{Catalog, Manifest, ResourceType, Scope, wellknown};
use billhook_sandbox::{Options, Sandbox, User};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, PostParams},
};
use serde_json::{Value, json};

use crate::{
    error::{CommandError, Exit, Problem},
    render,
    session::Session,
};

/// Time limit until a new CRD is Established, which takes milliseconds.
const ESTABLISHED: Duration = Duration::from_secs(5);

/// Starts a sandbox for one command, and returns it as a cluster with the namespace to work in.
pub(crate) async fn start(session: &Session, options: ClusterOptions) -> Result<(Cluster, String), CommandError> {
    reject_cluster_flags(session, "--sandbox")?;
    session.check_impersonation()?;
    let sandbox = Sandbox::start(Options::default());
    let namespace = session.global.namespace.clone().unwrap_or_else(|| "default".to_owned());
    create_namespace(&sandbox.client(User::admin(), ""), &namespace).await?;
    let user = match &session.global.as_user {
        Some(user) => User::new(user, &session.global.as_group),
        None => User::admin(),
    };
    // The client keeps the sandbox running.
    Ok((Cluster::from_client(sandbox.client(user, "billhook"), options), namespace))
}

/// Rejects the flags that choose a cluster, so that no user expects a real cluster to be changed.
pub(crate) fn reject_cluster_flags(session: &Session, what: &str) -> Result<(), CommandError> {
    let global = &session.global;
    let given = [
        ("--kubeconfig", &global.kubeconfig),
        ("--context", &global.context),
        ("--cluster", &global.cluster),
        ("--user", &global.user),
    ];
    match given.iter().find(|(_, value)| value.is_some()) {
        Some((flag, _)) => Err(CommandError::input(format!("{what} cannot be combined with {flag}"))),
        None => Ok(()),
    }
}

/// Creates a namespace unless it exists.
pub(crate) async fn create_namespace(client: &Client, name: &str) -> Result<(), CommandError> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let api = Api::<DynamicObject>::all_with(client.clone(), &resource("", "v1", "Namespace", "namespaces"));
    match create(&api, namespace, "billhook").await {
        Ok(()) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        Err(error) => Err(CommandError::input(rejected(format!("failed to create Namespace {name}"), &error))),
    }
}

/// Creates objects under the field manager `manager`: CRDs first, then Namespaces, then all others in order. Objects
/// without a namespace are created in `namespace`.
pub(crate) async fn create_all(
    client: &Client,
    mut manifests: Vec<Manifest>,
    namespace: &str,
    manager: &str,
) -> Result<(), CommandError> {
    let mut catalog = Cluster::from_client(client.clone(), ClusterOptions::default()).catalog().await?;
    manifests.sort_by_key(|manifest| {
        [wellknown::crd(), wellknown::namespace()].iter().position(|kind| *kind == manifest.key.kind).unwrap_or(2)
    });
    let mut problems = Vec::new();
    for manifest in &manifests {
        if let Err(error) = create_one(client, &mut catalog, manifest, namespace, manager).await {
            let what = format!("{}: failed to create {}", manifest.source, render::object(&manifest.key));
            problems.push(rejected(what, &error));
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(CommandError::all(Exit::Failed, problems)) }
}

async fn create_one(
    client: &Client,
    catalog: &mut Catalog,
    manifest: &Manifest,
    namespace: &str,
    manager: &str,
) -> kube::Result<()> {
    let kind = &manifest.key.kind;
    let version = manifest.api_version.version();
    let served = catalog.get(kind).filter(|served| served.versions.iter().any(|served| served == version));
    let Some(served) = served else {
        let missing = format!("the sandbox does not serve {kind} in version {version}");
        return Err(kube::Error::Service(missing.into()));
    };
    let api = api(client, served, version, manifest.key.namespace.as_deref().unwrap_or(namespace));
    create(&api, manifest.value(), manager).await?;
    if *kind == wellknown::crd() {
        wait_until_established(&api, &manifest.key.name).await?;
        ResourceType::from_crd(&manifest.value()).into_iter().for_each(|new| catalog.insert(new));
    }
    Ok(())
}

/// Returns the API of a kind.
pub(crate) fn api(client: &Client, kind: &ResourceType, version: &str, namespace: &str) -> Api<DynamicObject> {
    let resource = resource(&kind.kind.group, version, &kind.kind.kind, &kind.plural);
    match kind.scope {
        Scope::Namespaced => Api::namespaced_with(client.clone(), namespace, &resource),
        Scope::Cluster => Api::all_with(client.clone(), &resource),
    }
}

fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let [group, version, kind, plural] = [group, version, kind, plural].map(str::to_owned);
    ApiResource { group, version, api_version, kind, plural }
}

async fn create(api: &Api<DynamicObject>, object: Value, manager: &str) -> kube::Result<()> {
    let object: DynamicObject = serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
    let params = PostParams { field_manager: Some(manager.to_owned()), ..PostParams::default() };
    api.create(&params, &object).await.map(drop)
}

/// Waits until a CRD is Established.
async fn wait_until_established(api: &Api<DynamicObject>, name: &str) -> kube::Result<()> {
    let is_established = |crd: DynamicObject| {
        let conditions = crd.data.pointer("/status/conditions").and_then(Value::as_array).cloned();
        conditions.into_iter().flatten().any(|c| c["type"] == "Established" && c["status"] == "True")
    };
    let wait = async {
        while !is_established(api.get(name).await?) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    };
    let late = |_| kube::Error::Service("the CRD was not established in time".into());
    tokio::time::timeout(ESTABLISHED, wait).await.map_err(late)?
}

/// Returns the problem of a request that the API server rejected.
pub(crate) fn rejected(what: String, error: &kube::Error) -> Problem {
    match error {
        kube::Error::Api(status) => Problem::caused(what, &status.message),
        kube::Error::Service(error) => Problem::caused(what, error),
        error => Problem::caused(what, error),
    }
}
