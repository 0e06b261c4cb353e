//! The API server in memory as a cluster: for `--sandbox`, for `billhook sandbox` and for the demo.

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
    session::{Connection, Session},
};

/// How long a CRD may take until it is Established; it takes milliseconds.
const ESTABLISHED: Duration = Duration::from_secs(5);

/// Starts a sandbox for one call.
pub(crate) async fn connection(session: &Session) -> Result<Connection, CommandError> {
    refuse_kubeconfig(session, "--sandbox")?;
    let sandbox = Sandbox::start(Options::default());
    let namespace = session.common.namespace.clone().unwrap_or_else(|| "default".to_owned());
    create_namespace(&sandbox.client(User::admin(), ""), &namespace).await?;
    let user = match &session.common.as_user {
        Some(user) => User::new(user, &session.common.as_group),
        None if session.common.as_group.is_empty() => User::admin(),
        None => return Err(CommandError::input("--as-group needs --as")),
    };
    // The client holds the sandbox.
    let cluster = Cluster::from_client(sandbox.client(user, "billhook"), session.options());
    Ok(Connection { cluster, namespace })
}

/// Nobody may believe to be at work on a cluster of theirs.
pub(crate) fn refuse_kubeconfig(session: &Session, what: &str) -> Result<(), CommandError> {
    let common = &session.common;
    let given = [
        ("--kubeconfig", &common.kubeconfig),
        ("--context", &common.context),
        ("--cluster", &common.cluster),
        ("--user", &common.user),
    ];
    match given.iter().find(|(_, value)| value.is_some()) {
        Some((flag, _)) => Err(CommandError::input(format!("{what} reads no kubeconfig: it goes without {flag}"))),
        None => Ok(()),
    }
}

/// Creates a namespace unless it is there: nobody else could have made it in a sandbox of one's own.
pub(crate) async fn create_namespace(client: &Client, name: &str) -> Result<(), CommandError> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let api = Api::<DynamicObject>::all_with(client.clone(), &resource("", "v1", "Namespace", "namespaces"));
    match create(&api, namespace, "billhook").await {
        Ok(()) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        Err(error) => Err(refused(Exit::Input, format!("failed to create Namespace {name}"), &error)),
    }
}

/// Creates objects as somebody else does it: CRDs first, which are waited for, then Namespaces, the rest in order.
/// Those that name no namespace lie in `namespace`.
pub(crate) async fn fill(
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
            problems.extend(refused(Exit::Failed, what, &error).problems);
        }
    }
    if problems.is_empty() {
        Ok(())
    } else {
        Err(CommandError { exit: Exit::Failed, ..CommandError::inputs(problems) })
    }
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
        let missing = format!("the sandbox serves no {kind} of version {version}");
        return Err(kube::Error::Service(missing.into()));
    };
    let api = api(client, served, version, manifest.key.namespace.as_deref().unwrap_or(namespace));
    create(&api, manifest.value(), manager).await?;
    if *kind == wellknown::crd() {
        established(&api, &manifest.key.name).await?;
        ResourceType::from_crd(&manifest.value()).into_iter().for_each(|new| catalog.insert(new));
    }
    Ok(())
}

/// The way to objects of a kind.
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

/// Waits until a CRD is served.
async fn established(api: &Api<DynamicObject>, name: &str) -> kube::Result<()> {
    let is = |crd: DynamicObject| {
        let conditions = crd.data.pointer("/status/conditions").and_then(Value::as_array).cloned();
        conditions.into_iter().flatten().any(|c| c["type"] == "Established" && c["status"] == "True")
    };
    let wait = async {
        while !is(api.get(name).await?) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    };
    let late = |_| kube::Error::Service("it is not Established".into());
    tokio::time::timeout(ESTABLISHED, wait).await.map_err(late)?
}

/// What the server says to a request that it refuses.
pub(crate) fn refused(exit: Exit, what: String, error: &kube::Error) -> CommandError {
    let why = match error {
        kube::Error::Api(status) => status.message.clone(),
        kube::Error::Service(error) => error.to_string(),
        error => error.to_string(),
    };
    CommandError { exit, ..CommandError::inputs(vec![Problem::Said(what, vec![why])]) }
}
