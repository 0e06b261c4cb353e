//! The charts of items of the helm deployer: rendered to manifests, or handed to helm itself.

use std::{sync::Arc, time::Duration};

use billhook_charts::{Capabilities, Chart, Credentials, DeployOptions, RepositoryAuth, Source};
use billhook_cluster::DeleteOptions;
use billhook_objects::{Catalog, Manifest, ObjectKey, wellknown};
use billhook_plan::{Listed, Query, Select};
use billhook_policy::{ChartSource, HelmConfiguration, HelmOptions};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    api::{self, Context, ErrorCode},
    error::ItemFailure,
    item::Item,
    reconcile::{Halt, Objects, Stop, labelled},
    target::{OpenTarget, read_secret, secrets},
};

/// The label that Landscaper's helm deployer puts on objects.
const LABEL: &str = "helm.deployer.landscaper.gardener.cloud/deployitem";
/// The Context of items that name none.
const DEFAULT_CONTEXT: &str = "default";
/// Where a Context holds the credentials of chart repositories.
const REPOSITORY_CREDENTIALS: &str = "helmChartRepoCredentials";

impl From<billhook_charts::Error> for ItemFailure {
    fn from(error: billhook_charts::Error) -> Self {
        use billhook_charts::ErrorKind;
        let cause = error.kind.to_string();
        let message = format!("failed to {error}: {cause}");
        match &error.kind {
            ErrorKind::Program(billhook_charts::ProgramError::Failed { .. }) => {
                // Whether helm's words mean a wrong chart or a registry that is away, only people can tell: it is tried
                // again as long as the item has time.
                Self { passes: true, ..Self::new("ChartFailed", message, ErrorCode::ConfigurationProblem) }
            }
            ErrorKind::Source(_) | ErrorKind::Credentials(_) | ErrorKind::Yaml(_) | ErrorKind::Manifests(_) => {
                Self::configuration("ChartFailed", message)
            }
            _ => Self::new("ChartFailed", message, ErrorCode::InternalProblem),
        }
    }
}

/// The objects of a chart that is only rendered; the release's namespace is one of them where it is to be created, as it
/// is in Landscaper.
pub(crate) async fn render(
    item: &Item,
    helm: &HelmConfiguration,
    target: &OpenTarget,
    catalog: &Catalog,
) -> Result<Objects, ItemFailure> {
    let capabilities = Capabilities::of(target.version(crate::target::RENDER_AGE).await?, catalog);
    let chart = chart(item, helm).await?;
    let release = release(helm);
    let rendered = billhook_charts::template(&chart, &release, Some(&capabilities), &item.shared.options.helm).await?;
    let mut objects = Objects { namespace: Some(helm.namespace.clone()), ..Objects::default() };
    objects.manifests = rendered.manifests;
    let key = ObjectKey::new(wellknown::namespace(), None, helm.namespace.as_str());
    let brings = objects.manifests.iter().any(|manifest| manifest.key == key);
    if helm.create_namespace && !brings && helm.namespace != "default" {
        objects.manifests.push(namespace(&helm.namespace)?);
    }
    labelled(&mut objects.manifests, LABEL, &item.name);
    Ok(objects)
}

fn namespace(name: &str) -> Result<Manifest, ItemFailure> {
    let value = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    let document = billhook_objects::yaml::Document { value, line: 1 };
    let manifests = Manifest::from_document(document, &"config.createNamespace".into());
    let first = manifests.ok().and_then(|manifests| manifests.into_iter().next());
    first.ok_or_else(|| ItemFailure::configuration("InvalidManifests", format!("{name} is no name of a namespace")))
}

fn release(helm: &HelmConfiguration) -> billhook_charts::Release<'_> {
    billhook_charts::Release {
        name: &helm.name,
        namespace: &helm.namespace,
        values: Some(&helm.values).filter(|values| !values.is_null()),
        ..Default::default()
    }
}

/// What exports of a chart's values are read from: the values of the item, under the names that templates have for them.
pub(crate) fn values(helm: &HelmConfiguration) -> Value {
    json!({ "Values": helm.values, "Release": { "Name": helm.name, "Namespace": helm.namespace, "Service": "Helm" } })
}

/// The chart of an item with the credentials of its Context.
async fn chart(item: &Item, helm: &HelmConfiguration) -> Result<Chart, ItemFailure> {
    let source = match &helm.chart {
        ChartSource::Oci(reference) => Source::Oci(reference.clone()),
        ChartSource::Archive(bytes) => Source::Archive(bytes.clone()),
        ChartSource::RemoteArchive(url) => Source::RemoteArchive(url.clone()),
        ChartSource::Repository { url, name, version } => {
            Source::Repository { url: url.clone(), name: name.clone(), version: version.clone() }
        }
    };
    let credentials = match source {
        Source::Archive(_) => Credentials::default(),
        _ => credentials(item).await?,
    };
    Ok(Chart { source, credentials, plain_http: false })
}

/// The credentials of an item's Context. The default Context need not exist.
async fn credentials(item: &Item) -> Result<Credentials, ItemFailure> {
    let wrong = |problem: String| ItemFailure::configuration("ReadContext", problem);
    let name = item.object.spec.context.as_deref().unwrap_or(DEFAULT_CONTEXT);
    let resource = billhook_plan::Resource {
        kind: billhook_objects::GroupKind::new(api::GROUP, "Context"),
        version: api::VERSION.into(),
        plural: "contexts".into(),
        namespaced: true,
    };
    let key = ObjectKey::new(resource.kind.clone(), Some(&item.namespace), name);
    let home = &item.shared.home;
    let context: Context = match home.get(&resource, &key).await? {
        Some(found) => serde_json::from_value(found).map_err(|error| wrong(format!("Context {name}: {error}")))?,
        None if item.object.spec.context.is_none() => return Ok(Credentials::default()),
        None => return Err(wrong(format!("there is no Context {}/{name}", item.namespace))),
    };
    let mut credentials = Credentials::default();
    for secret in &context.spec.registry_pull_secrets {
        let data = read_secret(home, &item.namespace, &secret.name).await?;
        let config = data.get(".dockerconfigjson").ok_or_else(|| {
            wrong(format!(
                "Secret {} has no .dockerconfigjson: a pull secret is of type kubernetes.io/dockerconfigjson",
                secret.name
            ))
        })?;
        credentials.add_docker_config(config).map_err(|error| wrong(format!("Secret {}: {error}", secret.name)))?;
    }
    let configured = context.spec.configurations.as_ref().and_then(|all| all.get(REPOSITORY_CREDENTIALS));
    if let Some(configured) = configured {
        let mut auths = RepositoryAuth::list(configured)
            .map_err(|error| wrong(format!("Context {name}, configurations.{REPOSITORY_CREDENTIALS}: {error}")))?;
        for auth in &mut auths {
            if let Some(reference) = auth.secret_ref.take() {
                auth.auth_header = Some(header(item, &reference).await?);
            }
        }
        credentials.repositories = auths;
    }
    Ok(credentials)
}

/// The header that stands in a Secret.
async fn header(item: &Item, reference: &billhook_charts::SecretReference) -> Result<String, ItemFailure> {
    let data = read_secret(&item.shared.home, &item.namespace, &reference.name).await?;
    let key = reference.key.as_deref().unwrap_or("authHeader");
    data.get(key).cloned().ok_or_else(|| {
        ItemFailure::configuration("ReadContext", format!("Secret {} has no key {key:?}", reference.name))
    })
}

/// Deploys an item as helm does, and says which objects the release has.
pub(crate) async fn install(
    item: &Item,
    helm: &HelmConfiguration,
    target: &Arc<OpenTarget>,
    halt: &Halt,
) -> Result<Vec<Manifest>, Stop> {
    let chart = chart(item, helm).await?;
    let program = &item.shared.options.helm;
    // helm decides by itself whether it installs or upgrades; the options of both are the same but for an item's own.
    let known = billhook_charts::manifest_of(&helm.name, &helm.namespace, &target.kubeconfig, program).await?;
    let options = if known.is_some() { &helm.deployment.upgrade } else { &helm.deployment.install };
    let options = DeployOptions {
        wait: options.wait,
        timeout: limit(item, options),
        atomic: options.atomic,
        force: options.force,
        create_namespace: helm.create_namespace,
        skip_schema_validation: options.skip_schema_validation,
        take_ownership: options.take_ownership,
    };
    let release = release(helm);
    let run = || billhook_charts::install_or_upgrade(&chart, &release, &options, &target.kubeconfig, program);
    let work = async {
        match run().await {
            // A helm that was killed with its controller has left its mark, and nobody else takes it away.
            Err(error) if is_pending(&error) && unlock(target, helm).await => run().await,
            done => done,
        }
    };
    stoppable(item, halt, work).await?;
    let objects = billhook_charts::manifest_of(&helm.name, &helm.namespace, &target.kubeconfig, program).await?;
    Ok(objects.unwrap_or_default())
}

/// Whether helm refuses to work because an earlier run has not ended (`pkg/action` in helm: `errPending`).
fn is_pending(error: &billhook_charts::Error) -> bool {
    error.kind.to_string().contains("another operation (install/upgrade/rollback) is in progress")
}

/// Deletes the revisions of a release that are marked as under way, and says whether there were any.
async fn unlock(target: &OpenTarget, helm: &HelmConfiguration) -> bool {
    let status = "status in (pending-install,pending-upgrade,pending-rollback)";
    let query = Query {
        cluster: None,
        resource: secrets(),
        namespace: Some(helm.namespace.clone()),
        select: Select::Labels(format!("owner=helm,name={},{status}", helm.name)),
        namespaces: Vec::new(),
    };
    let mut found = false;
    for listing in target.cluster.snapshot(&[query]).await {
        let Listed::Items { items, .. } = listing.found else { continue };
        for item in items {
            let key = ObjectKey::new(secrets().kind, Some(&helm.namespace), item.name.as_str());
            let options = DeleteOptions { uid: Some(item.uid), ..DeleteOptions::default() };
            found |= target.cluster.delete(&secrets(), &key, &options).await.is_ok();
        }
    }
    found
}

/// Deletes what an item deployed, as helm does.
pub(crate) async fn uninstall(
    item: &Item,
    helm: &HelmConfiguration,
    target: &Arc<OpenTarget>,
    halt: &Halt,
) -> Result<(), Stop> {
    let options = &helm.deployment.uninstall;
    let program = &item.shared.options.helm;
    let work = billhook_charts::uninstall(
        &helm.name,
        &helm.namespace,
        options.wait,
        limit(item, options),
        &target.kubeconfig,
        program,
    );
    stoppable(item, halt, work).await
}

/// How long helm may take: what the item says of it, and never longer than the item has.
fn limit(item: &Item, options: &HelmOptions) -> Option<Duration> {
    let left = item.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    let own = options.timeout.map(|timeout| timeout.0);
    match (own, left) {
        (Some(own), Some(left)) => Some(own.min(left)),
        (own, left) => own.or(left),
    }
}

/// Runs helm until it ends, is stopped, or the item's time is over.
async fn stoppable(
    item: &Item,
    halt: &Halt,
    work: impl Future<Output = Result<(), billhook_charts::Error>>,
) -> Result<(), Stop> {
    let over = async {
        match item.deadline {
            Some(deadline) => tokio::time::sleep_until(deadline).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        done = work => Ok(done?),
        () = halt.token.cancelled() => Err(Stop::Halted),
        () = over => {
            let failure = ItemFailure::new("TimedOut", "helm did not end within the item's time limit", ErrorCode::Timeout);
            Err(Stop::Failed(failure))
        }
    }
}

/// The provider status of a release that helm deployed: what Landscaper's own deployer writes there.
pub(crate) fn provider_status(helm: &HelmConfiguration, objects: &[Manifest], catalog: &Catalog) -> Value {
    let namespace = |manifest: &Manifest| {
        let namespaced =
            catalog.get(&manifest.key.kind).is_some_and(|kind| kind.scope == billhook_objects::Scope::Namespaced);
        manifest.key.namespace.clone().or_else(|| namespaced.then(|| helm.namespace.clone()))
    };
    let resource = |manifest: &Manifest| {
        json!({ "policy": "manage", "resource": {
            "apiVersion": manifest.api_version.to_string(), "kind": manifest.key.kind.kind,
            "name": manifest.key.name, "namespace": namespace(manifest),
        }})
    };
    json!({
        "apiVersion": "helm.deployer.landscaper.gardener.cloud/v1alpha1",
        "kind": "ProviderStatus",
        "managedResources": objects.iter().map(resource).collect::<Vec<_>>(),
    })
}
